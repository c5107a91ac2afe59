"""A real vLLM server is killed while it answers. These come last: nobody starts it again."""

import asyncio
from contextlib import AsyncExitStack
from uuid import UUID

import aiohttp
import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.engines import probing
from backend.engines.client import ChatMessage, ChatRequest, EngineClient
from backend.engines.kinds import Kind
from tests.conftest import OpenBrowser
from tests.engines.conftest import Ground, until
from tests.engines.support import ask
from tests.site import Site
from tests.vllm.servers import MODEL, Server
from tests.web.chat.conftest import Asked, Chat, stream_of, visible

STORY = "Tell me a very long story about a lighthouse, with every detail you can think of."


@pytest.mark.timeout(300)
async def test_an_answer_whose_engine_is_killed_is_interrupted_and_tried_again_on_the_other(
    site: Site, db: Sessions, browser: OpenBrowser, alice: User, replicas: tuple[Server, ...]
) -> None:
    chat = Chat(await browser(alice), await _published(site, db))
    asked = await chat.ask(STORY)
    await _until_it_writes(chat, asked)
    [dying] = [replica for replica in replicas if replica.name in _answering(site)]

    dying.kill()
    await chat.ended(asked)
    page = visible((await chat.browser.get(asked.address)).text)
    again = Asked(asked.address, stream_of((await chat.browser.post(f"{asked.answer}/regenerate")).text), "")
    await _until_it_writes(chat, again)
    [other] = _answering(site)
    await chat.browser.post(f"{again.answer}/stop")

    assert "Interrupted." in page
    assert "Once" in page or "lighthouse" in page
    assert other != dying.name
    assert other in {replica.name for replica in replicas}


async def test_the_router_asks_the_other_worker(router: Server) -> None:
    """Whatever session it is asked for; and it is no reason to take the router for dead, though it says so."""
    async with EngineClient(router.api, kind=Kind.VLLM_ROUTER) as client:
        await _until_unhealthy(router)
        found = await probing.look(client, 10, thorough=True)
        assert [model.id for model in found.models] == [MODEL]
        for session in ("aa01", "bb02", "cc03", "dd04"):
            messages: list[ChatMessage] = [{"role": "user", "content": "What is the capital of France?"}]
            heard = await ask(client, ChatRequest(MODEL, messages, max_tokens=3, session=session))

            assert heard.failure is None
            assert heard.text


async def _until_unhealthy(router: Server) -> None:
    """It has seen that one of its workers is away."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{router.url}/health") as response:
                if response.status == 503:
                    return
            await asyncio.sleep(0.2)


async def _published(site: Site, db: Sessions) -> UUID:
    """The model of both engines, once for both."""
    await until(lambda: sum(len(engine.deployments) for engine in site.registry.engines) == 2, seconds=60)
    async with AsyncExitStack() as stack:
        await Ground(db, stack).publish(MODEL)
    await site.registry.reload()
    await until(lambda: len(site.registry.offers[0].endpoints) == 2)
    return site.registry.offers[0].id


async def _until_it_writes(chat: Chat, asked: Asked) -> None:
    async with chat.browser.watch(asked.stream) as events:
        async for event in events:
            if "lighthouse" in event.data or len(visible(event.data)) > 80:
                return


def _answering(site: Site) -> list[str]:
    return [engine.name for engine in site.registry.engines if site.registry.traffic.running_on(engine.id)]
