"""Whether the recorded bytes that the whole suite reads are still what a real vLLM says."""

import json
import re
from typing import Any

import aiohttp
import pytest

from backend.engines.dialects.vllm import METRICS
from backend.engines.metrics import parse
from tests.engines.replay import FIXTURES, recording
from tests.vllm.servers import MODEL_FOLDER, Server

_OTHERWISE = {
    "error-context",  # a body too long to keep; see below
    "metrics-before",  # numbers; see below
    "stream-logprobs",  # the recorded server computed with 16 bits, which shows here only; Parley never asks for them
}

REPLAYED = sorted(
    file.parent.name for file in (FIXTURES / "vllm").glob("*/request.json") if file.parent.name not in _OTHERWISE
)

_IDS = re.compile(rb'"(id|system_fingerprint)":"[^"]*"|"created":\d+')
_COUNTS = re.compile(rb'"(cached_tokens|created_cache_tokens)":\d+')


@pytest.mark.parametrize("name", REPLAYED)
async def test_vllm_still_says_what_was_recorded(name: str, replicas: tuple[Server, ...]) -> None:
    recorded = recording(f"vllm/{name}")

    status, body = await _ask(replicas[0], recorded.request)

    assert status == recorded.status
    assert _lasting(body) == _lasting(recorded.body)


async def test_vllm_still_names_its_numbers_as_recorded(replicas: tuple[Server, ...]) -> None:
    """Its own names; those of Python and of its web server come and go with their versions."""
    status, body = await _ask(replicas[0], {"method": "GET", "path": "/metrics"})

    recorded = (FIXTURES / "vllm" / "metrics-after" / "body").read_bytes()
    assert status == 200
    assert _names(recorded) <= _names(body)
    assert parse(recorded, METRICS).keys() == parse(body, METRICS).keys()


async def test_vllm_still_refuses_a_long_prompt_in_the_recorded_words(replicas: tuple[Server, ...]) -> None:
    recorded = recording("vllm/error-context")
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "word " * 20_000}]}

    status, said = await _ask(replicas[0], {"method": "POST", "path": "/v1/chat/completions", "body": body})

    assert (status, said) == (recorded.status, recorded.body)


async def _ask(server: Server, request: dict[str, Any]) -> tuple[int, bytes]:
    body = request.get("body")
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    headers = {"content-type": "application/json"} if data is not None else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(request["method"], server.url + request["path"], data=data, headers=headers) as response,
    ):
        return response.status, await response.read()


def _lasting(body: bytes) -> bytes:
    """Without what is new each time, what depends on earlier questions, and where the model lies."""
    body = body.replace(str(MODEL_FOLDER).encode(), b"/weights/smollm2-hf")
    return _COUNTS.sub(b"", _IDS.sub(b"", body))


def _names(page: bytes) -> set[bytes]:
    return set(re.findall(rb"^(vllm:\w+)", page, re.MULTILINE))
