"""The framework can report requests to collectors that the environment names; here it never does."""

import httpx
import pytest

from backend.core.settings import Settings
from tests.site import Site


async def test_no_environment_makes_the_framework_report_what_people_ask(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    async with Site(settings), httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{settings.port}/healthz")

    assert answer.status_code == 200, "it would not have started if it had tried to find a way out"
