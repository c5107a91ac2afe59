"""The framework can report requests to collectors that the environment names; here it never does."""

import httpx
import pytest

from backend.core.settings import Settings
from tests.site import Site


async def test_an_environment_that_names_a_collector_does_not_set_the_framework_up_for_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    async with Site(settings), httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{settings.port}/healthz")

    assert answer.status_code == 200, "it would not have started if it had tried to find a way out"
