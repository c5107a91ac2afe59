"""Eight engines with one model, of which three are dead, hang, or have turned into somebody's web page (ENG-01)."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from statistics import median

import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.settings import EngineSetting, Settings
from backend.engines import publishing
from backend.engines.models import Deployment
from tests.conftest import sign_in
from tests.engines import strangers
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.chat.conftest import Chat, visible

pytestmark = pytest.mark.long

PAGES = ("/", "/conversations", "/settings", "/admin/engines", "/admin/models", "/admin/bench", "/readyz")
_TIMES = 5


@asynccontextmanager
async def opened(
    settings: Settings, urls: Sequence[str], db: Sessions, admin: User, *, sick: Sequence[int] = ()
) -> AsyncIterator[tuple[Site, Chat]]:
    """The site with these engines, all of which serve the model as far as the database knows; and an admin's browser.

    It is known by then which of them are `sick`.
    """
    engines = tuple(EngineSetting(name=f"engine-{number}", url=url) for number, url in enumerate(urls))
    async with Site(settings.model_copy(update={"engines": engines})) as site:
        async with asyncio.timeout(60):
            while health(site) != {f"engine-{number}": number not in sick for number in range(len(urls))}:
                if site.registry.offers:  # the first engine's model publishes itself
                    await publish_all(site)
                await asyncio.sleep(0.05)
        async with Browser(site, token=await sign_in(db, admin), person=admin) as browser:
            yield site, Chat(browser, site.registry.offers[0].id)


def health(site: Site) -> dict[str, bool]:
    """Of the engines that serve the model."""
    return {each.engine_name: each.problem is None for offer in site.registry.offers for each in offer.endpoints}


async def publish_all(site: Site) -> None:
    async with site.sessions.begin() as session:
        found = (await session.scalars(select(Deployment).where(Deployment.model_id.is_(None)))).all()
        for deployment in found:
            await publishing.publish(session, deployment)
    if found:
        await site.registry.reload()


async def seconds(chat: Chat) -> dict[str, float]:
    """How long each page takes, the median of several."""
    found: dict[str, list[float]] = {path: [] for path in PAGES}
    for _ in range(_TIMES):
        for path, times in found.items():
            began = time.monotonic()
            response = await chat.browser.get(path)
            times.append(time.monotonic() - began)
            assert response.status_code == 200, path
    return {path: median(times) for path, times in found.items()}


async def test_three_sick_engines_of_eight_delay_no_page_and_no_answer(
    settings: Settings, db: Sessions, carol: User
) -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(FakeEngine()) for _ in range(8)]
        urls = [engine.url for engine in engines]
        async with opened(settings, urls, db, carol) as (_site, chat):
            healthy = await seconds(chat)

        with ExitStack() as street:
            urls[0] = strangers.nobody()
            urls[3] = street.enter_context(strangers.silent())
            urls[6] = street.enter_context(strangers.WebServer().running())
            async with opened(settings, urls, db, carol, sick=[0, 3, 6]) as (_site, chat):
                sick = await seconds(chat)
                asked = [await chat.ask(f"Question {number}?") for number in range(12)]
                answers = [visible((await chat.ended(each))[0].data) for each in asked]

    for path in PAGES:
        assert sick[path] < max(0.3, 3 * healthy[path]), "whoever waits for an engine waits for a second at least"
    assert all(f"Question {number}?" in answer for number, answer in enumerate(answers)), answers
    assert sum(len(engine.questions) for engine in engines) == 12
