import itertools
import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from backend.core.settings import Settings
from backend.engines.addresses import IP, allow_list
from backend.engines.client import EngineClient
from backend.engines.events import EngineFailed, Failure
from backend.engines.guarding import GuardedResolver
from tests.fakes.engine import FakeEngine

ALLOWED = allow_list(Settings(engine_allowed=("10.0.0.0/8", "gpu-1")))


def turning(*answers: str) -> GuardedResolver:
    """A name server that says something else each time."""
    left = itertools.cycle(answers)

    async def resolve(_host: str) -> Sequence[IP]:
        return [ip_address(each) for each in next(left).split(",")]

    return GuardedResolver(ALLOWED, resolve)


async def test_the_addresses_that_were_tested_are_those_that_are_connected_to() -> None:
    found = await turning("10.0.0.1,10.0.0.2").resolve("gpu-2", 8000)

    assert [(each["host"], each["port"], each["family"]) for each in found] == [
        ("10.0.0.1", 8000, socket.AF_INET),
        ("10.0.0.2", 8000, socket.AF_INET),
    ]


async def test_a_name_that_points_elsewhere_by_now_leads_nowhere() -> None:
    """AZN-04: first an allowed address, then a forbidden one."""
    resolver = turning("10.0.0.1", "169.254.169.254", "10.0.0.1,192.168.0.1")

    await resolver.resolve("gpu-2", 8000)
    for _again in range(2):
        with pytest.raises(OSError, match="Parley may not connect"):
            await resolver.resolve("gpu-2", 8000)


async def test_an_engine_behind_such_a_name_is_unreachable_and_asked_nothing() -> None:
    async with FakeEngine() as engine:
        url = engine.url.replace("127.0.0.1", "rebinding.example")
        async with EngineClient(url, resolver=turning("127.0.0.1", "127.0.0.1")) as client:
            with pytest.raises(EngineFailed) as failed:
                await client.models()

    assert failed.value.kind is Failure.UNREACHABLE
    assert "Parley may not connect" in failed.value.detail
