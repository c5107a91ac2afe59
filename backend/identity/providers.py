"""Providers, as administrators add them or the deployment names them. Every function runs in the caller's transaction.

A secret is sealed for its row and for the issuer it was entered for: with another issuer it does not open, so whoever
changes the address does not learn it. What `PARLEY_OIDC` names is shown here and changed there.
"""

import logging
import re
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core import locks
from backend.core.db import broken
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.security import Sealer, Unreadable
from backend.core.settings import ProviderSetting, Settings
from backend.core.text import one_line
from backend.identity import queries
from backend.identity.asking import wrong_address
from backend.identity.models import IdentityProvider, Kind, Source
from backend.identity.oidc import Client
from backend.identity.rules import MAX_CLAIM, MAX_SCOPES, Rules

log = logging.getLogger(__name__)

MOST = 20  # a sign-in page shows a button for each

MAX_NAME, MAX_SLUG, MAX_FIELD, MAX_SECRET = 80, 40, 500, 1000

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_CLAIM = re.compile(r"[\w:/.@-]*")


@dataclass(frozen=True, slots=True)
class Draft:
    """What was typed; an empty secret leaves the one that is stored."""

    name: str
    slug: str
    issuer: str
    client_id: str
    secret: str
    rules: Rules


async def add(session: AsyncSession, sealer: Sealer, draft: Draft, kind: Kind = Kind.OIDC) -> IdentityProvider:
    """Raises BadInput with a sentence per field, Conflict when there are enough. It is switched on afterwards."""
    if (await session.scalar(select(func.count()).select_from(IdentityProvider)) or 0) >= MOST:
        raise Conflict(_("There are {most} providers, and no more can be added.").format(most=MOST))
    _check(draft, kind, is_new=True)
    provider = IdentityProvider(
        id=new_id(),
        slug=draft.slug,
        kind=kind,
        source=Source.DATABASE,
        enabled=False,
        name="",
        issuer="",
        client_id="",
        rules={},
    )
    _take(sealer, provider, draft)
    session.add(provider)
    await _flush(session)
    await audit.record(session, Action.PROVIDER_ADDED, _target(provider), after=_shown(provider))
    return provider


async def change(session: AsyncSession, sealer: Sealer, provider: IdentityProvider, draft: Draft) -> None:
    """Raises BadInput with a sentence per field; nothing is changed then. The slug stays: the provider knows it."""
    require_own(provider)
    _check(draft, provider.kind, is_new=False)
    before = _shown(provider)
    if draft.issuer != provider.issuer and provider.sealed_secret and not draft.secret:
        needed = _("The stored secret belongs to the address it was entered for. Enter it again.")
        raise BadInput(needed, fields={"secret": needed})
    _take(sealer, provider, draft)
    await _flush(session)
    await audit.record(session, Action.PROVIDER_CHANGED, _target(provider), before=before, after=_shown(provider))


async def switch(session: AsyncSession, provider: IdentityProvider, *, on: bool) -> None:
    require_own(provider)
    if provider.enabled is not on:
        provider.enabled = on
        await audit.record(
            session, Action.PROVIDER_CHANGED, _target(provider), before={"enabled": not on}, after={"enabled": on}
        )


async def remove(session: AsyncSession, provider: IdentityProvider) -> None:
    """Nobody comes in by it any more. Who came by it stays known, for the day it is added again."""
    if provider.source is Source.DEPLOYMENT and provider.enabled:
        require_own(provider)
    await session.execute(delete(IdentityProvider).where(IdentityProvider.id == provider.id))
    await audit.record(session, Action.PROVIDER_REMOVED, _target(provider), before=_shown(provider))


def require_own(provider: IdentityProvider) -> None:
    if provider.source is Source.DEPLOYMENT:
        raise Conflict(_("This provider is set by the deployment (PARLEY_OIDC), and is changed there."))


async def find(session: AsyncSession, provider_id: UUID) -> IdentityProvider:
    provider = await session.scalar(queries.provider(provider_id))
    if provider is None:
        raise NotFound(_("There is no such provider."))
    return provider


async def find_open(session: AsyncSession, slug: str, kind: Kind = Kind.OIDC) -> IdentityProvider:
    """One that people may use. Raises NotFound."""
    provider = await session.scalar(queries.open_to_people(kind).where(IdentityProvider.slug == slug))
    if provider is None:
        raise NotFound(_("This way to sign in is not here any more."))
    return provider


async def find_by_slug(session: AsyncSession, slug: str) -> IdentityProvider:
    """Also one that is switched off, for a test. Raises NotFound."""
    provider = await session.scalar(queries.providers().where(IdentityProvider.slug == slug))
    if provider is None:
        raise NotFound(_("This way to sign in is not here any more."))
    return provider


def secret_of(provider: IdentityProvider, sealer: Sealer) -> str:
    """Raises Conflict where it cannot be opened any more."""
    if not provider.sealed_secret:
        return ""
    try:
        return sealer.open(provider.sealed_secret, _place(provider))
    except Unreadable:
        raise Conflict(
            _("The secret of this sign-in cannot be opened any more. An administrator has to enter it again.")
        ) from None


def client_of(provider: IdentityProvider, sealer: Sealer, settings: Settings) -> Client:
    return Client(
        slug=provider.slug,
        issuer=provider.issuer,
        client_id=provider.client_id,
        secret=secret_of(provider, sealer),
        rules=Rules.stored(provider.rules),
        origin=settings.origin,
    )


async def take_over(session: AsyncSession, settings: Settings, sealer: Sealer) -> None:
    """Make the rows agree with `PARLEY_OIDC`. A provider that is no longer named is switched off and kept."""
    await locks.hold(session, "identity providers")  # two processes that start at once must not both insert one
    rows = {row.slug: row for row in await session.scalars(select(IdentityProvider))}
    for setting in settings.oidc:
        row = rows.pop(setting.slug, None)
        if row is None:
            row = IdentityProvider(id=new_id(), slug=setting.slug, kind=Kind.OIDC)
            session.add(row)
        row.name, row.issuer, row.client_id = setting.name, setting.issuer, setting.client_id
        row.source, row.enabled = Source.DEPLOYMENT, True
        row.rules = _rules_of(setting).to_store()
        secret = setting.client_secret.get_secret_value() if setting.client_secret else ""
        row.sealed_secret = sealer.seal(secret, _place(row)) if secret else None
    for row in rows.values():
        if row.source is Source.DEPLOYMENT and row.enabled:
            log.warning("The deployment no longer names the provider %s. Nobody signs in by it.", row.slug)
            row.enabled = False
    await _flush(session)


def _rules_of(setting: ProviderSetting) -> Rules:
    same = setting.model_dump(exclude={"slug", "name", "issuer", "client_id", "client_secret", "group_map"})
    return Rules.stored({**same, "group_map": tuple(setting.group_map.items())})


def _check(draft: Draft, kind: Kind, *, is_new: bool) -> None:
    wrong = {}
    if not one_line(draft.name, MAX_NAME):
        wrong["name"] = _("Please enter a name.")
    if is_new and not (_SLUG.fullmatch(draft.slug) and len(draft.slug) <= MAX_SLUG):
        wrong["slug"] = _("Small letters, digits and “-” make a short name for addresses, like “entra”.")
    if not draft.client_id.strip() or len(draft.client_id) > MAX_FIELD:
        wrong["client_id"] = _("Please enter what the provider calls Parley.")
    if len(draft.secret) > MAX_SECRET:
        wrong["secret"] = _("This is longer than any secret.")
    if kind is Kind.OIDC:
        if (why := wrong_address(draft.issuer)) or len(draft.issuer) > MAX_FIELD or "?" in draft.issuer:
            insecure = _("The address has to begin with https://.") if "http://" in why else ""
            wrong["issuer"] = insecure or _(
                "Write the issuer as the provider does, like https://sso.corp.example/realms/staff."
            )
        if "openid" not in draft.rules.scopes.split() or len(draft.rules.scopes) > MAX_SCOPES:
            wrong["scopes"] = _("Without the scope “openid” a provider does not tell who somebody is.")
        for name in ("name_claim", "email_claim", "groups_claim", "role_claim"):
            claim = getattr(draft.rules, name)
            if len(claim) > MAX_CLAIM or not _CLAIM.fullmatch(claim) or (not claim and name == "email_claim"):
                wrong[name] = _("This is not the name of a claim.")
    if draft.rules.role_claim and not draft.rules.admin_values:
        wrong["admin_values"] = _("Say which values of the claim make somebody an administrator.")
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)


def _take(sealer: Sealer, provider: IdentityProvider, draft: Draft) -> None:
    provider.name = one_line(draft.name, MAX_NAME)
    provider.issuer = draft.issuer
    provider.client_id = draft.client_id.strip()
    provider.rules = draft.rules.to_store()
    if draft.secret:
        provider.sealed_secret = sealer.seal(draft.secret, _place(provider))


def _place(provider: IdentityProvider) -> str:
    return f"identity_providers|{provider.id}|secret|{provider.issuer}"


def _target(provider: IdentityProvider) -> Target:
    return Target("provider", provider.id, provider.name)


def _shown(provider: IdentityProvider) -> dict[str, object]:
    """For the audit: everything but the secret."""
    kept = {"issuer": provider.issuer, "client_id": provider.client_id, "enabled": provider.enabled}
    return kept | {"has_secret": provider.sealed_secret is not None, "rules": provider.rules}


async def _flush(session: AsyncSession) -> None:
    name = _("There is already a provider with this name.")
    slug = _("There is already a provider with this short name.")
    with broken(
        uq_identity_providers_name=BadInput(name, fields={"name": name}),
        uq_identity_providers_slug=BadInput(slug, fields={"slug": slug}),
    ):
        await session.flush()
