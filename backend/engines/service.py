"""What admins change about engines and models. Every function runs in the caller's transaction.

What the deployment names (`PARLEY_ENGINES`, the embedded engine) is changed there and only read here.
"""

from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.core.db import broken
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.text import one_line
from backend.engines import addresses, keys, queries
from backend.engines.addresses import AllowList, origin
from backend.engines.findings import MAX_NAME, display_name
from backend.engines.models import Deployment, Engine, Model, Source

_MAX_KEY = 500


async def add_engine(
    session: AsyncSession, allowed: AllowList, sealer: Sealer, *, name: str, url: str, api_key: str = ""
) -> Engine:
    """Raises BadInput with a sentence per field."""
    name, api_key = one_line(name, 80), api_key.strip()
    wrong = {}
    if not name:
        wrong["name"] = _("Please enter a name.")
    if not _is_sendable(api_key):
        wrong["api_key"] = _("This is not an API key: it has spaces or unusual characters, or is too long.")
    plain = ""
    try:
        plain = await _allowed_url(url, allowed)
    except BadInput as refused:
        wrong |= refused.fields
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    await _keep_addresses_apart(session, plain)
    engine = Engine(id=new_id(), name=name, url=plain, source=Source.DATABASE)
    keys.seal(sealer, engine, api_key)
    session.add(engine)
    taken = _("There is already an engine with this name.")
    with broken(uq_engines_name=BadInput(taken, fields={"name": taken})):
        await session.flush()
    return engine


async def change_engine(
    session: AsyncSession, allowed: AllowList, sealer: Sealer, engine: Engine, *, url: str, api_key: str = ""
) -> None:
    """Without a new key the old one stays, and is of use only while scheme, host and port stay too."""
    _only_ours(engine)
    if not _is_sendable(api_key.strip()):
        wrong = _("This is not an API key: it has spaces or unusual characters, or is too long.")
        raise BadInput(wrong, fields={"api_key": wrong})
    plain = await _allowed_url(url, allowed)
    if plain != engine.url:
        await _keep_addresses_apart(session, plain)
        await session.execute(queries.forget_abilities(engine.id))
    if origin(plain) != origin(engine.url):
        engine.kind = engine.version = None
    engine.url = plain
    if api_key.strip():
        keys.seal(sealer, engine, api_key.strip())
    await session.flush()


def enable(engine: Engine) -> None:
    _only_ours(engine)
    engine.enabled = True


def disable(engine: Engine) -> None:
    """Take an engine out of service: nothing new goes there, running answers end as they would have."""
    _only_ours(engine)
    engine.enabled = False


async def remove(session: AsyncSession, engine: Engine) -> None:
    """Models that only this engine had are withdrawn; their names stay on the answers they gave."""
    _only_ours(engine)
    await session.execute(delete(Engine).where(Engine.id == engine.id))
    await session.execute(queries.withdraw_models_without_deployment())


async def publish(session: AsyncSession, deployment: Deployment, name: str = "") -> Model:
    """Let everybody use what was found. Where there is a model of this name, the engine joins those that serve it."""
    if deployment.model_id is not None:
        model = await find_model(session, deployment.model_id)
        model.published = True
        return model
    name = one_line(name, MAX_NAME) or display_name(deployment.upstream_name)
    same_name = await session.scalar(select(Model).where(Model.name == name).with_for_update())
    model = same_name or Model(id=new_id(), name=name, position=await _next_position(session))
    model.published = True
    session.add(model)
    already = Conflict(_("“{name}” is served by this engine already.").format(name=name))
    at_once = Conflict(_("Somebody else published “{name}” at the same moment.").format(name=name))
    with broken(uq_deployments_engine_id=already, uq_models_name=at_once):
        await session.flush()
        deployment.model_id = model.id
        await session.flush()
    return model


def unpublish(model: Model) -> None:
    """Nobody can choose it any more. It stays linked to its engines, so that it does not come back by itself."""
    model.published = False


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


async def _allowed_url(url: str, allowed: AllowList) -> str:
    address = addresses.parse(url.strip())
    await addresses.check(address, allowed)
    return address.url


async def _keep_addresses_apart(session: AsyncSession, url: str) -> None:
    """One server under two names would be asked twice for everything and seem to have twice its room."""
    other = await session.scalar(queries.at_address(url))
    if other is not None:
        taken = _("The engine “{name}” has this address already.").format(name=other.name)
        raise BadInput(taken, fields={"url": taken})


async def _next_position(session: AsyncSession) -> int:
    last = await session.scalar(select(func.max(Model.position)))
    return 0 if last is None else last + 1


def _is_sendable(api_key: str) -> bool:
    return len(api_key) <= _MAX_KEY and api_key.isascii() and all("!" <= character <= "~" for character in api_key)


def _only_ours(engine: Engine) -> None:
    if engine.source is not Source.DATABASE:
        raise Conflict(_("The engine “{name}” is set by the deployment and is changed there.").format(name=engine.name))
