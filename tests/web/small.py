"""A site in miniature: the real gate, the real error pages, and routes that a test makes up, behind a real uvicorn."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, Depends, FastAPI
from starlette.staticfiles import StaticFiles

from backend.core.settings import Settings
from backend.core.telemetry import JsonLines
from tests.site import free_port
from web import errors
from web.company import Company
from web.gate import Gate
from web.rendering import STATIC

MAX_BODY = 10_000


@asynccontextmanager
async def small_site(
    router: APIRouter, *, origin: str = "http://parley.test", dependencies: tuple[Any, ...] = (), **state: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client without cookies or headers of its own. `state` is put beside the settings and the company."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        yield {"settings": Settings(public_url=origin), "company": Company("Acme"), **state}

    app = FastAPI(lifespan=lifespan, openapi_url=None, dependencies=[Depends(each) for each in dependencies])
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    errors.install(app)
    app.add_middleware(Gate, origin=origin, max_body=MAX_BODY, error_page=errors.error_page)
    async with running(app) as address, httpx.AsyncClient(base_url=address, timeout=10, verify=False) as client:
        yield client


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[str]:
    """The address where `app` answers."""
    port = free_port()
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_config=None,
        access_log=False,
        lifespan="on",
        http="httptools",
        ws="none",
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    assert server.started, "it did not start; its log says why"
    yield f"http://127.0.0.1:{port}"
    # Not its own `shutdown`, which waits a tenth of a second whether there is anything to wait for or not.
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    await asyncio.gather(*server.server_state.tasks, return_exceptions=True)
    await server.lifespan.shutdown()


class Lines(logging.Handler):
    """What would be written to the log, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.addFilter(lambda record: record.name != "httpx")  # the client that the tests use
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def log() -> Iterator[Lines]:
    handler = Lines()
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.setLevel(before)
    root.removeHandler(handler)
