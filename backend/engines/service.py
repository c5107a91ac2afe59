"""What admins change about engines. Every function runs in the caller's transaction, and tells all processes.

What the deployment names (`PARLEY_ENGINES`, the embedded engine) is changed there and only read here.
"""

import re
from typing import Final
from uuid import UUID

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.bus import notify
from backend.core.db import broken
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.text import one_line
from backend.engines import addresses, keys, queries
from backend.engines.addresses import AllowList, origin
from backend.engines.kinds import Kind
from backend.engines.models import Deployment, Engine, Model, Source

#: What the processes hear when engines, models or what people may use of them have changed.
CHANGED: Final = "models"

_MAX_KEY = 500
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,79}", re.ASCII)
_OUR_HEADERS = frozenset(
    "accept accept-encoding authorization connection content-encoding content-length content-type cookie expect host "
    "keep-alive proxy-authorization te trailer transfer-encoding upgrade user-agent".split()
)


async def changed(session: AsyncSession) -> None:
    """Have every process read the rows again, as soon as this transaction has committed."""
    await notify(session, CHANGED, {})


async def add_engine(
    session: AsyncSession,
    allowed: AllowList,
    sealer: Sealer,
    *,
    name: str,
    url: str,
    api_key: str = "",
    kind: str = "",
    priorities: bool = False,
    session_header: str = "",
) -> Engine:
    """Raises BadInput with a sentence per field. Without a `kind` it is found out.

    An engine on the public Internet is external: whatever is sent there leaves the building.
    """
    name, api_key, session_header = one_line(name, 80), api_key.strip(), session_header.strip()
    wrong = _wrong(name=name, api_key=api_key, kind=kind, session_header=session_header)
    address, external = await _allowed_address(url, allowed, wrong)
    await _keep_addresses_apart(session, address)
    engine = Engine(
        id=new_id(),
        name=name,
        url=address,
        source=Source.DATABASE,
        forced_kind=kind or None,
        external=external,
        priorities=priorities,
        session_header=session_header,
    )
    keys.seal(sealer, engine, api_key)
    session.add(engine)
    with broken(uq_engines_name=_name_taken()):
        await session.flush()
    await audit.record(session, Action.ENGINE_ADDED, target(engine), after=facts(engine))
    await changed(session)
    return engine


async def change_engine(
    session: AsyncSession,
    allowed: AllowList,
    sealer: Sealer,
    engine: Engine,
    *,
    url: str,
    api_key: str = "",
    name: str | None = None,
    kind: str | None = None,
    external: bool | None = None,
    priorities: bool | None = None,
    session_header: str | None = None,
) -> None:
    """None leaves a thing as it is. Raises BadInput with a sentence per field; nothing is changed then.

    Without a new key the old one stays, and is of use only while scheme, host and port stay too.
    """
    _only_ours(engine)
    name = engine.name if name is None else one_line(name, 80)
    kind = engine.forced_kind or "" if kind is None else kind
    session_header = engine.session_header if session_header is None else session_header.strip()
    api_key = api_key.strip()
    wrong = _wrong(name=name, api_key=api_key, kind=kind, session_header=session_header)
    address, is_outside = await _allowed_address(url, allowed, wrong)
    if address != engine.url:
        await _keep_addresses_apart(session, address)
    before = facts(engine)
    moves = origin(address) != origin(engine.url)
    if address != engine.url or (kind or None) != engine.forced_kind:
        await session.execute(queries.forget_abilities(engine.id))
    if moves:
        engine.kind = engine.version = None
    engine.external = is_outside if moves else engine.external if external is None else external
    engine.name, engine.url, engine.forced_kind, engine.session_header = name, address, kind or None, session_header
    if priorities is not None:
        engine.priorities = priorities
    if api_key:
        keys.seal(sealer, engine, api_key)
    with broken(uq_engines_name=_name_taken()):
        await session.flush()
    if told := audit.changes(before, facts(engine) | ({"key": "another one"} if api_key else {})):
        await audit.record(session, Action.ENGINE_CHANGED, target(engine), **told)
    await changed(session)


async def enable(session: AsyncSession, engine: Engine) -> None:
    _only_ours(engine)
    engine.enabled = True
    await _changed(session, Action.ENGINE_ENABLED, engine)


async def disable(session: AsyncSession, engine: Engine) -> None:
    """Take an engine out of service: nothing new goes there, running answers end as they would have."""
    _only_ours(engine)
    engine.enabled = False
    await _changed(session, Action.ENGINE_DISABLED, engine)


async def drain(session: AsyncSession, engine: Engine) -> None:
    """Nothing new goes there, and it is still looked at: before a restart, or to see it without work."""
    _only_ours(engine)
    engine.draining = True
    await _changed(session, Action.ENGINE_DRAINED, engine)


async def undrain(session: AsyncSession, engine: Engine) -> None:
    _only_ours(engine)
    engine.draining = False
    await _changed(session, Action.ENGINE_UNDRAINED, engine)


async def remove(session: AsyncSession, engine: Engine) -> None:
    """Models that only this engine had are withdrawn; their names stay on the answers they gave."""
    _only_ours(engine)
    await session.execute(delete(Engine).where(Engine.id == engine.id))
    await session.execute(queries.withdraw_models_without_deployment())
    await audit.record(session, Action.ENGINE_REMOVED, target(engine), before=facts(engine))
    await changed(session)


async def _changed(session: AsyncSession, action: Action, engine: Engine) -> None:
    await audit.record(session, action, target(engine))
    await changed(session)


def target(engine: Engine) -> Target:
    return Target("engine", engine.id, engine.name)


def facts(engine: Engine) -> dict[str, object]:
    """What the audit tells of an engine; of its key only whether there is one."""
    return {
        "name": engine.name,
        "address": engine.url,
        "kind": engine.forced_kind,
        "external": engine.external,
        "priorities": engine.priorities,
        "session_header": engine.session_header,
        "key": "kept" if engine.sealed_api_key else None,
        "source": engine.source,
    }


async def find_engine(session: AsyncSession, engine_id: UUID) -> Engine:
    engine = await session.scalar(queries.engine(engine_id))
    if engine is None:
        raise NotFound(_("There is no such engine."))
    return engine


async def find_deployment(session: AsyncSession, deployment_id: UUID) -> Deployment:
    deployment = await session.scalar(queries.deployment(deployment_id))
    if deployment is None:
        raise NotFound(_("There is no such model."))
    return deployment


async def find_model(session: AsyncSession, model_id: UUID) -> Model:
    model = await session.scalar(queries.model(model_id))
    if model is None:
        raise NotFound(_("There is no such model."))
    return model


def _wrong(*, name: str, api_key: str, kind: str, session_header: str) -> dict[str, str]:
    """A sentence for each field that cannot be used."""
    wrong: dict[str, str] = {}
    if not name:
        wrong["name"] = _("Please enter a name.")
    try:
        check_key(api_key)
    except BadInput as refused:
        wrong |= refused.fields
    if kind and kind not in list(Kind):
        wrong["kind"] = _("Parley knows no engine of this kind.")
    if session_header and (not _HEADER.fullmatch(session_header) or session_header.lower() in _OUR_HEADERS):
        wrong["session_header"] = _("Write the name of a header like X-Session-ID, not one that means something else.")
    return wrong


async def _allowed_address(url: str, allowed: AllowList, wrong: dict[str, str]) -> tuple[str, bool]:
    """In its plain form, and whether it lies on the public Internet. Raises BadInput for everything that is wrong."""
    try:
        address = addresses.parse(url.strip())
        found = await addresses.check(address, allowed)
    except BadInput as refused:
        raise BadInput(_("Please check the fields below."), fields=wrong | refused.fields) from None
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    return address.url, addresses.is_outside(found)


def _name_taken() -> BadInput:
    taken = _("There is already an engine with this name.")
    return BadInput(taken, fields={"name": taken})


async def _keep_addresses_apart(session: AsyncSession, url: str) -> None:
    """One server under two names would be asked twice for everything and seem to have twice its room."""
    other = await session.scalar(queries.at_address(url))
    if other is not None:
        taken = _("The engine “{name}” has this address already.").format(name=other.name)
        raise BadInput(taken, fields={"url": taken})


def check_key(api_key: str) -> None:
    """Raises BadInput for what no header can carry."""
    if not _is_sendable(api_key):
        wrong = _("This is not an API key: it has spaces or unusual characters, or is too long.")
        raise BadInput(wrong, fields={"api_key": wrong})


def _is_sendable(api_key: str) -> bool:
    return len(api_key) <= _MAX_KEY and api_key.isascii() and all("!" <= character <= "~" for character in api_key)


def _only_ours(engine: Engine) -> None:
    if engine.source is not Source.DATABASE:
        raise Conflict(_("The engine “{name}” is set by the deployment and is changed there.").format(name=engine.name))
