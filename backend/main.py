"""The composition root: settings in, application out. Imports everything, is imported by the command line only."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.staticfiles import StaticFiles

from backend.accounts import passkeys, service as accounts, sessions as logins, throttle
from backend.accounts.passkeys import RelyingParty
from backend.accounts.passwords import Passwords
from backend.accounts.sessions import Lifetime
from backend.admission.service import Admission, Pace
from backend.audit import chain, retention
from backend.bench.runs import Runs
from backend.conversations.titles import Titles
from backend.conversations.turns import Timing, Turns
from backend.core import migrations, stored
from backend.core.bus import Bus
from backend.core.clock import now
from backend.core.db import DatabaseGone, Sessions, connect
from backend.core.direct import Direct
from backend.core.lifecycle import Lifecycle
from backend.core.locks import only_one
from backend.core.security import Sealer, subkey
from backend.core.settings import Settings
from backend.engines.aliases import Aliases
from backend.engines.pool import Pool
from backend.engines.registry import Registry
from backend.files import service as attachments
from backend.files.extracting import Extractor
from backend.identity import entrance as company_sign_in, providers
from backend.identity.asking import Asking
from backend.identity.entrance import Doors
from backend.identity.oidc import Oidc
from backend.ops import health
from backend.usage.ledger import Ledger
from web import errors, policy
from web.accounts import browsers, data as data_pages, keys as key_pages, routes as account_pages, second_step, ways_in
from web.admin import (
    audit as audit_pages,
    bench as bench_pages,
    capacity as capacity_pages,
    engine as engine_page,
    engine_memory,
    engines as engine_pages,
    everybody as policy_pages,
    groups as group_pages,
    models as model_pages,
    people as people_pages,
    person as person_pages,
    sign_in as sign_in_pages,
    start as admin_start,
    trial as trial_pages,
)
from web.api import routes as api
from web.api.answering import MOST_BYTES, Desk
from web.api.callers import Callers
from web.api.calls import Calls
from web.api.catalogue import Catalogue
from web.api.pictures import Pictures
from web.chat import routes as chat_pages
from web.company import Company
from web.files import routes as file_pages
from web.gate import Gate
from web.identity import admin as provider_pages, routes as company_pages
from web.logins import Logins
from web.rendering import STATIC
from web.reports import router as reports
from web.streaming import OpenStreams

log = logging.getLogger(__name__)

# Whatever the environment of a company's machine says: nothing about requests leaves this process but our own log.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_ROUTERS = (
    health.router,
    reports,
    account_pages.router,
    second_step.router,
    browsers.router,
    ways_in.router,
    key_pages.router,
    data_pages.router,
    company_pages.router,
    provider_pages.router,
    api.router,
    chat_pages.router,
    file_pages.router,
    admin_start.router,
    people_pages.router,
    person_pages.router,
    policy_pages.router,
    sign_in_pages.router,
    group_pages.router,
    model_pages.router,
    trial_pages.router,
    audit_pages.router,
    bench_pages.router,
    capacity_pages.router,
    engine_pages.router,  # before the next one, to which “test” would be an id
    engine_page.router,
    engine_memory.router,
)
_FIRST, _EVERY = 60.0, 3600.0  # seconds; whoever starts has better things to do
_UNSENT_FILES_STAY = timedelta(days=1)
_DIRECT_CONNECTIONS = 3  # each of their statements takes about a millisecond


def create_app(
    settings: Settings,
    *,
    lifecycle: Lifecycle | None = None,
    passwords: Passwords | None = None,
    timing: Timing | None = None,
) -> FastAPI:
    """The whole site as an ASGI application. Raises `MissingSecret` and `PolicyBroken` before anything starts."""
    secrets = settings.secrets()
    lifecycle = lifecycle or Lifecycle()
    timing = timing or Timing(drain=settings.drain_seconds)
    body_limit = 3 * settings.message_bytes + 64 * 1024  # a character takes at most three times its bytes in a form

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            yield await _open(stack, settings, secrets, lifecycle, passwords or Passwords(), timing)

    app = FastAPI(
        lifespan=lifespan,
        dependencies=[Depends(policy.authorize)],
        redirect_slashes=False,  # it would build an address from the Host header
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
        form_limits={"max_part_size": body_limit, "max_fields": 100, "max_files": 0},
    )
    for router in _ROUTERS:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    errors.install(app)
    app.add_middleware(
        Gate,
        origin=settings.origin,
        max_body=body_limit,
        error_page=errors.error_page,
        uploads={"/files": settings.file_bytes + 64 * 1024, "/v1/chat/completions": MOST_BYTES},
    )
    policy.check(app.routes)
    return app


async def _open(
    stack: AsyncExitStack,
    settings: Settings,
    secrets: Sequence[str],
    lifecycle: Lifecycle,
    hasher: Passwords,
    timing: Timing,
) -> dict[str, Any]:
    """Everything that lives as long as the process, in the order in which one needs the other; routes find it in the
    state of their request. Leaving `stack` closes it."""
    chain.use(secrets)
    engine = connect(settings.database_url, connections=settings.database_connections)
    stack.push_async_callback(engine.dispose)
    await migrations.require_head(engine)
    await migrations.require_plain_role(engine)
    bus = await stack.enter_async_context(Bus(settings.database_url))
    sessions = Sessions(engine, bus)
    await _seed_admin(sessions, hasher, settings)
    async with sessions.begin() as session:
        await providers.take_over(session, settings, Sealer(secrets, "identity providers"))
    company = Company(await _stored_company(sessions))
    registry = await stack.enter_async_context(Registry(settings, sessions, Sealer(secrets, "engine keys"), bus))
    admission = await stack.enter_async_context(
        Admission(
            bus,
            limit_of=registry.limit_of,
            weight_of=registry.weight_of,
            per_person=settings.answers_per_person,
            pace=Pace(beat=min(timing.save_every, 1.0)),
        )
    )
    pool = Pool(registry, admission)
    aliases = Aliases(subkey(secrets[0], "prefix cache salt"))
    titles = Titles(sessions, pool, aliases, enabled=settings.titles)
    stack.push_async_callback(titles.close)
    direct = await stack.enter_async_context(Direct(settings.database_url, connections=_DIRECT_CONNECTIONS))
    turns = await stack.enter_async_context(
        Turns(
            sessions,
            direct,
            bus,
            registry,
            pool,
            titles,
            aliases=aliases,
            message_bytes=settings.message_bytes,
            files_per_message=settings.files_per_message,
            timing=timing,
        )
    )
    asking = await stack.enter_async_context(Asking(settings))
    streams = OpenStreams()
    extractor = Extractor()
    ledger = await stack.enter_async_context(Ledger(sessions))
    callers = Callers(sessions, bus)
    desk = Desk(
        calls=await stack.enter_async_context(Calls(sessions, callers, lifecycle)),
        catalogue=Catalogue(registry),
        pictures=Pictures(extractor),
        pool=pool,
        ledger=ledger,
        aliases=aliases,
    )
    bench = Runs(sessions, registry, ledger, are_waiting=lambda model_id: admission.waiting(model_id) > 0)
    stack.push_async_callback(bench.close)
    lifecycle.on_stop(turns.begin_drain)
    lifecycle.on_stop(bench.stop)
    lifecycle.busy_while(lambda: len(streams) > 0 or turns.is_busy)
    for what, work in (
        ("cleaning up", partial(_clean, sessions)),
        ("looking after the audit", partial(retention.keep, sessions, settings.audit_days)),
    ):
        stack.callback(asyncio.create_task(_every_hour(what, work)).cancel)
    # What exists now lives as long as the process: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return {
        "settings": settings,
        "lifecycle": lifecycle,
        "bus": bus,
        "sessions": sessions,
        "direct": direct,
        "passwords": hasher,
        "company": company,
        "registry": registry,
        "titles": titles,
        "turns": turns,
        "streams": streams,
        "extractor": extractor,
        "limits": attachments.Limits(
            bytes=settings.file_bytes,
            characters=settings.file_characters,
            per_message=settings.files_per_message,
        ),
        "logins": Logins(sessions, bus, streams),
        "callers": callers,
        "api": desk,
        "bench": bench,
        **_ways_in(settings, secrets, sessions, asking),
    }


def _ways_in(settings: Settings, secrets: Sequence[str], sessions: Sessions, asking: Asking) -> dict[str, Any]:
    """What it takes to let somebody in, besides a password."""
    return {
        "lifetime": Lifetime(
            idle=timedelta(hours=settings.session_idle_hours), absolute=timedelta(days=settings.session_days)
        ),
        "second_factors": Sealer(secrets, "second factors"),
        "party": RelyingParty(settings.origin, subkey(secrets[0], "passkey challenges")),
        "doors": Doors(
            db=sessions,
            oidc=Oidc(asking, leeway=settings.oidc_leeway_seconds),
            secrets=Sealer(secrets, "identity providers"),
            cookies=Sealer(secrets, "pending sign-ins"),
            settings=settings,
        ),
    }


async def _seed_admin(sessions: Sessions, hasher: Passwords, settings: Settings) -> None:
    if settings.admin_email and settings.admin_password:
        password = settings.admin_password.get_secret_value()
        if await accounts.seed_admin(sessions, hasher, settings.admin_email, password):
            log.info("made the administrator that PARLEY_ADMIN_EMAIL names")


async def _stored_company(sessions: Sessions) -> str:
    async with sessions.begin() as session:
        name: str = await stored.read(session, "company", "")
    return name


async def _every_hour(what: str, work: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(_FIRST)
    while True:
        try:
            await work()
        except DatabaseGone:
            log.warning("the database is away: %s waits", what)
        await asyncio.sleep(_EVERY)


async def _clean(sessions: Sessions) -> None:
    """Remove what has ended and nobody will ask for again."""
    async with only_one(sessions, "cleaning") as session:
        if session is None:
            return
        await logins.delete_ended(session, now() - timedelta(days=1))
        await throttle.delete_old(session)
        await accounts.delete_ended_links(session)
        await passkeys.delete_ended_challenges(session)
        await company_sign_in.delete_spent(session)
    await attachments.clean_up(sessions, before=now() - _UNSENT_FILES_STAY)
