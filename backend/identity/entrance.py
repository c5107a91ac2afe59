"""The ways in by the company: to a provider and back, and out again when it says so.

No transaction is open while a provider is asked. What was decided before is decided again in the transaction that opens
the session, so whoever was deactivated meanwhile does not come in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import sessions
from backend.accounts.entrance import Arrival
from backend.accounts.models import LoginSession, User
from backend.audit import service as audit
from backend.audit.acting import Actor, Via, act_as
from backend.audit.service import Action, Target
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import Conflict
from backend.core.i18n import _
from backend.core.security import Sealer, digest
from backend.core.settings import Settings
from backend.identity import deciding, groups, pending, providers, queries
from backend.identity.deciding import Decision
from backend.identity.facts import Facts, facts_of
from backend.identity.models import Identity, IdentityProvider, IdentitySession, Kind, SpentToken
from backend.identity.oidc import Client, Oidc
from backend.identity.pending import Aim, Pending
from backend.identity.problems import ReplyRefused, SignInRefused
from backend.identity.rules import Rules

_SPENT_FOR = timedelta(minutes=30)  # longer than a state or a logout token would be taken


@dataclass(frozen=True)
class Doors:
    """What a process needs for all of it."""

    db: Sessions
    oidc: Oidc
    secrets: Sealer
    cookies: Sealer
    settings: Settings


@dataclass(frozen=True)
class Reply:
    """What a browser brings back from a provider."""

    state: str = ""
    code: str = ""
    error: str = ""
    iss: str | None = None


class Button(NamedTuple):
    """A way in, for the sign-in page."""

    slug: str
    name: str


class Connection(NamedTuple):
    """A provider, and whether somebody is known there."""

    slug: str
    name: str
    connected: bool


@dataclass(frozen=True)
class Trial:
    """What a sign-in that changed nothing was told, and what it would have done."""

    provider: IdentityProvider
    claims: dict[str, Any]
    facts: Facts
    decision: Decision
    groups: groups.Plan
    warnings: tuple[str, ...] = field(default=())


async def buttons(session: AsyncSession) -> list[Button]:
    found = await session.scalars(queries.open_to_people(Kind.OIDC))
    return [Button(provider.slug, provider.name) for provider in found]


async def begin(doors: Doors, started: Pending, kept: Sequence[Pending]) -> tuple[str, str]:
    """Where the browser is to go, and its cookie from now on. Raises NotFound, SignInRefused."""
    async with doors.db.begin() as session:
        client = await _client(session, doors, started)
    address = await doors.oidc.authorization(client, started)
    return address, pending.write(doors.cookies, [*kept, started])


def take(kept: Sequence[Pending], slug: str, state: str) -> Pending:
    """The sign-in that this browser began. Raises ReplyRefused."""
    if not state:
        raise ReplyRefused(
            "the callback was opened without a state", _("This page is only of use at the end of a company sign-in.")
        )
    for each in kept:
        if each.state == state and each.slug == slug:
            return each
    raise ReplyRefused(
        "the state is none that this browser began, or it is older than ten minutes",
        _("This sign-in was begun elsewhere, or too long ago."),
    )


async def claims_of(doors: Doors, started: Pending, reply: Reply) -> tuple[Client, dict[str, Any]]:
    """What the provider says of the person. Raises SignInRefused. A reply is taken once."""
    async with doors.db.begin() as session:
        client = await _client(session, doors, started)
        await _spend(session, started.used(), "the reply was brought already")
    if reply.error or not reply.code:
        denied = _("The company sign-in did not let you in. Try again, or ask its administrators.")
        said = "".join(c for c in reply.error if c.isalnum() or c in "_-")[:60]
        raise ReplyRefused(f"the provider refused: {said or 'without a code'}", denied)
    return client, await doors.oidc.claims(client, started, reply.code, reply.iss)


async def sign_in(arrival: Arrival, client: Client, claims: dict[str, Any]) -> str:
    """The token of a new session. Raises SignInRefused."""
    return await let_in(arrival, client.slug, facts_of(claims, client.issuer, client.rules), client.rules)


async def let_in(arrival: Arrival, slug: str, facts: Facts, rules: Rules) -> str:
    """Whoever was proved to be that person at the provider."""
    async with arrival.begin() as session:
        person, identity = await deciding.admit(session, facts, rules)
        token = await arrival.let_in(session, person, by=slug)
        await _remember(session, token, identity, slug, facts.sid)
        return token


async def refuse(db: Sessions, slug: str, address: str, refused: SignInRefused) -> None:
    """Written down, without anything that came from outside."""
    async with db.begin() as session:
        act_as(session, Actor(Via.BROWSER, None, address))
        why = {"provider": slug, "reason": refused.reason}
        await audit.record(session, Action.SIGN_IN_FAILED, Target("provider", None, slug), after=why)


async def connect(doors: Doors, person_id: UUID, address: str, client: Client, claims: dict[str, Any]) -> None:
    """Whoever is signed in here and has just signed in there is one person from now on. Raises Conflict."""
    facts = facts_of(claims, client.issuer, client.rules)
    async with doors.db.begin() as session:
        act_as(session, Actor(Via.BROWSER, person_id, address))
        person = await session.get_one(User, person_id)
        identity = await session.scalar(queries.known(facts.issuer, facts.subject))
        if identity is None:
            await deciding.connect(session, person, facts)
        elif identity.user_id != person_id:
            raise Conflict(_("This company sign-in is connected with another account already."))


async def connections(session: AsyncSession, person: User) -> list[Connection]:
    """The providers that are open to people, and whether this person is known there."""
    issuers = {identity.issuer for identity in await session.scalars(queries.identities_of(person.id))}
    found = await session.scalars(queries.open_to_people(Kind.OIDC))
    return [Connection(each.slug, each.name, each.issuer in issuers) for each in found]


async def disconnect(session: AsyncSession, person: User, slug: str) -> None:
    """Raises NotFound, Conflict where it may be the only way in."""
    provider = await providers.find_by_slug(session, slug)
    if person.password_hash is None:
        raise Conflict(_("This is your only way in. Ask an administrator for a link to set a password first."))
    mine = delete(Identity).where(Identity.user_id == person.id, Identity.issuer == provider.issuer)
    if list(await session.scalars(mine.returning(Identity.id))):
        await audit.record(
            session, Action.IDENTITY_UNLINKED, audit.person(person.id), before={"issuer": provider.issuer}
        )


async def try_out(doors: Doors, client: Client, claims: dict[str, Any]) -> Trial:
    """What a sign-in with these claims would do. Nothing is changed."""
    facts = facts_of(claims, client.issuer, client.rules)
    async with doors.db.begin() as session:
        provider = await providers.find_by_slug(session, client.slug)
        decision = await deciding.decide(session, facts, client.rules)
        person_id = decision.person.id if decision.person else None
        planned = await groups.plan(session, facts, client.rules, person_id)
    return Trial(provider, claims, facts, decision, planned, tuple(_warnings(facts, client.rules)))


async def end_by_provider(doors: Doors, slug: str, token: str) -> int:
    """A back-channel logout: how many sessions it ended. Raises SignInRefused, NotFound."""
    async with doors.db.begin() as session:
        provider = await providers.find_by_slug(session, slug)
        client = providers.client_of(provider, doors.secrets, doors.settings)
    claims = await doors.oidc.logout_claims(client, token)
    async with doors.db.begin() as session:
        await _spend(session, f"logout|{client.issuer}|{claims['jti']}", "the logout token was used already")
        ended = queries.sessions_at(client.issuer, subject=claims.get("sub"), sid=claims.get("sid"))
        people = await sessions.close_some(session, list(await session.scalars(ended)))
        for person_id in people:
            await audit.record(
                session, Action.SIGNED_OUT_BY_PROVIDER, audit.person(person_id), after={"provider": slug}
            )
    return len(people)


async def signed_in_by(session: AsyncSession, session_token: str) -> str | None:
    """The provider at whose page one should sign out, too; None where there is none, or that is not wanted."""
    provider = await session.scalar(queries.provider_behind(digest(session_token)))
    if provider is None or not Rules.stored(provider.rules).logout:
        return None
    return provider.slug


async def provider_sign_out(doors: Doors, slug: str) -> str | None:
    """The address of the provider's own sign-out, which leads back to ours. Raises NotFound."""
    async with doors.db.begin() as session:
        provider = await providers.find_open(session, slug)
        client = providers.client_of(provider, doors.secrets, doors.settings)
    return await doors.oidc.sign_out_address(client)


async def delete_spent(session: AsyncSession) -> None:
    await session.execute(delete(SpentToken).where(SpentToken.expires_at < now()))


async def _client(session: AsyncSession, doors: Doors, started: Pending) -> Client:
    if started.aim is Aim.TEST:
        provider = await providers.find_by_slug(session, started.slug)
    else:
        provider = await providers.find_open(session, started.slug)
    return providers.client_of(provider, doors.secrets, doors.settings)


async def _spend(session: AsyncSession, what: str, reason: str) -> None:
    """Raises ReplyRefused the second time."""
    once = insert(SpentToken).values(digest=digest(what), expires_at=now() + _SPENT_FOR).on_conflict_do_nothing()
    if await session.scalar(once.returning(SpentToken.digest)) is None:
        raise ReplyRefused(reason, _("This sign-in has been used already."))


async def _remember(session: AsyncSession, token: str, identity: Identity, slug: str, sid: str | None) -> None:
    await session.flush()
    session_id = await session.scalar(select(LoginSession.id).where(LoginSession.token_digest == digest(token)))
    provider_id = await session.scalar(select(IdentityProvider.id).where(IdentityProvider.slug == slug))
    assert session_id is not None
    session.add(IdentitySession(session_id=session_id, identity_id=identity.id, provider_id=provider_id, sid=sid))


def _warnings(facts: Facts, rules: Rules) -> list[str]:
    found = []
    if not facts.email:
        found.append(_("There is no claim “{claim}” with a mail address.").format(claim=rules.email_claim))
    elif rules.link_by_email and facts.email_verified is not True:
        found.append(_("The provider does not say that the address is verified, so it links nobody."))
    if rules.role_claim and not facts.is_admin:
        found.append(_("The claim of the role makes nobody an administrator here. Whoever is one stays one."))
    return found
