"""The servers that the contract is held against: a fake of every kind, a real llama.cpp, and whatever is named.

`PARLEY_TEST_UPSTREAMS='vllm=http://127.0.0.1:8000 vllm_router=http://127.0.0.1:30000'` adds real servers, each with its
kind; a key goes in front of the host (`http://:key@127.0.0.1:8000`). Their first model is asked.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from backend.embedded import engine as embedded
from backend.embedded.service import Service
from backend.engines import dialects
from backend.engines.client import EngineClient
from backend.engines.dialects import Dialect
from backend.engines.kinds import Kind
from tests.fakes.engine import FakeEngine
from tests.site import free_port

VARIABLE = "PARLEY_TEST_UPSTREAMS"
KEY = "a key for this start only"
WINDOW = 2_048

WHOLE = [pytest.mark.whole, pytest.mark.xdist_group("whole")]


@dataclass(frozen=True)
class Upstream:
    """One server, spoken to in the dialect of its kind."""

    kind: Kind
    model: str
    client: EngineClient
    fake: FakeEngine | None = None

    @property
    def dialect(self) -> Dialect:
        return dialects.of(self.kind)


@pytest.fixture(scope="session")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real llama.cpp with a small real model."""
    folder = tmp_path_factory.mktemp("engine")
    for name in ("logs", "run"):
        (folder / name).mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    service = Service(
        "The model",
        "engine",
        [sys.executable, "-m", "backend.embedded.engine", str(embedded.model_file(None)), embedded.BUNDLED],
        ready_url=f"{url}/health",
        env=os.environ | {embedded.VARIABLE: json.dumps({"name": "embedded", "url": url, "api_key": KEY})},
        folder=folder,
        patience=5,
    )
    service.begin()
    assert service.wait_until_ready(60)
    yield url
    service.stop()


def named_upstreams() -> dict[str, str]:
    pairs = (pair.partition("=") for pair in os.environ.get(VARIABLE, "").split())
    return {kind: url for kind, _equals, url in pairs}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "upstream" not in metafunc.fixturenames:
        return
    real = [pytest.param("real llama.cpp", marks=WHOLE), *(f"real {kind}" for kind in named_upstreams())]
    metafunc.parametrize("upstream", [*map(str, Kind), *real], indirect=True)


@pytest.fixture
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[Upstream]:
    name: str = request.param
    if not name.startswith("real "):
        kind = Kind(name)
        async with (
            FakeEngine(kind=kind, window=WINDOW, api_key=KEY) as fake,
            EngineClient(fake.url, KEY, kind=kind) as client,
        ):
            yield Upstream(kind, fake.models[0], client, fake)
        return
    is_ours = name == "real llama.cpp"
    kind = Kind.LLAMACPP if is_ours else Kind(name.removeprefix("real "))
    address = urlsplit(request.getfixturevalue("llama_cpp") if is_ours else named_upstreams()[kind])
    url = f"{address.scheme}://{address.hostname}:{address.port}{address.path}"
    async with EngineClient(url, KEY if is_ours else address.password, kind=kind) as client:
        models = await client.models()
        yield Upstream(kind, models[0].id, client)
