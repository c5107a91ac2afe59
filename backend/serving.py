"""`parley serve`: the web app under uvicorn."""

import socket

import uvicorn

from backend.core.lifecycle import Lifecycle
from backend.core.settings import Settings
from backend.core.telemetry import configure_logging
from backend.main import create_app

_AFTER_DRAIN_SECONDS = 5  # for the last events to reach their readers, and the last rows the database


def serve(settings: Settings) -> None:
    """Returns after SIGTERM or SIGINT, once the answers in progress had `drain_seconds` to end."""
    configure_logging()
    lifecycle = Lifecycle()
    config = uvicorn.Config(
        create_app(settings, lifecycle=lifecycle),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would write query strings, and those may hold one-time secrets
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.drain_seconds) + _AFTER_DRAIN_SECONDS,
    )
    _Server(config, lifecycle).run()


class _Server(uvicorn.Server):
    """Tells the app of the end as soon as the signal came; uvicorn by itself would first wait for every open stream."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._lifecycle.stop()
        await super().shutdown(sockets)
