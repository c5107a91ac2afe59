"""What it costs to read an engine and to do nothing with it: the product's own client, alone in a process.

    python -m tests.load.reader http://127.0.0.1:8000/v1 16 8000

prints the microseconds of CPU that a token takes.
"""

import asyncio
import sys
import time
from contextlib import aclosing

import uvloop

from backend.engines.client import ChatRequest, EngineClient
from tests.load.engine import MODEL, plan


async def _cost(url: str, answers: int, tokens: int) -> float:
    async with EngineClient(url) as client:

        async def one(number: int) -> None:
            asked = ChatRequest(MODEL, [{"role": "user", "content": plan(f"r{number}", "plain", tokens, 0)}])
            async with aclosing(client.answer(asked)) as batches:
                async for _events in batches:
                    pass

        await one(0)
        began = time.process_time()
        await asyncio.gather(*map(one, range(answers)))
        return 1e6 * (time.process_time() - began) / (answers * tokens)


if __name__ == "__main__":
    print(uvloop.run(_cost(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
