"""Who somebody is whom a provider has named: the person with this identity, a person to link, somebody new, or nobody.

By issuer and subject, which never change hands. An address of mail alone makes nobody anybody: it links only where the
provider has verified it and an administrator allowed that, and never to an administrator, for whom it takes a sign-in
of their own. What an administrator is here no token takes away; it may only say who becomes one.
"""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import queries as people, service as accounts
from backend.accounts.models import Role, User
from backend.audit import service as audit
from backend.audit.service import Action
from backend.core import locks
from backend.core.clock import now
from backend.core.errors import AppError
from backend.core.i18n import _
from backend.identity import groups, queries
from backend.identity.facts import Facts
from backend.identity.models import Identity
from backend.identity.problems import SignInRefused
from backend.identity.rules import Rules, Unknown


class Outcome(StrEnum):
    KNOWN = "known"
    LINK = "link"
    NEW = "new"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    person: User | None = None
    identity: Identity | None = None
    sentence: str = ""  # for whoever is refused
    reason: str = ""  # for the log


async def decide(session: AsyncSession, facts: Facts, rules: Rules) -> Decision:
    """Looks, and changes nothing."""
    identity = await session.scalar(queries.known(facts.issuer, facts.subject))
    if identity is not None:
        known = await session.get_one(User, identity.user_id, populate_existing=True)
        if known.disabled_at is None:
            return Decision(Outcome.KNOWN, known, identity)
        return _refused(_("Your account here is deactivated."), "the person is deactivated", known)
    person = await session.scalar(people.by_email(facts.email)) if facts.email else None
    if person is not None:
        return _link(person, facts, rules)
    if rules.unknown is Unknown.REFUSE:
        return _refused(_("You have no account here yet. An administrator can add you."), "nobody here, none is made")
    return _new(facts, rules)


async def admit(session: AsyncSession, facts: Facts, rules: Rules) -> tuple[User, Identity]:
    """The person, linked or made where the rules say so, with groups and role. Raises SignInRefused.

    However many browsers of one person arrive for the first time at once, they come one after the other.
    """
    await locks.hold(session, f"identity|{facts.issuer}|{facts.subject}")
    decision = await decide(session, facts, rules)
    if decision.outcome is Outcome.REFUSED:
        raise SignInRefused(decision.sentence, reason=decision.reason)
    person = await _held(session, decision) if decision.person else await _make(session, facts)
    identity = decision.identity or await connect(session, person, facts)
    identity.last_used_at = now()
    if facts.is_admin and not person.is_admin:
        await accounts.change_role(session, person, Role.ADMIN)
    await groups.apply(session, facts, rules, person)
    return person, identity


async def connect(session: AsyncSession, person: User, facts: Facts) -> Identity:
    """From now on whoever this is at the provider is this person here."""
    identity = Identity(user_id=person.id, issuer=facts.issuer, subject=facts.subject)
    session.add(identity)
    await session.flush()
    await audit.record(session, Action.IDENTITY_LINKED, audit.person(person.id), after={"issuer": facts.issuer})
    return identity


async def _held(session: AsyncSession, decision: Decision) -> User:
    """The person as they are now, who may have been changed since they were looked at."""
    assert decision.person is not None
    held = await session.scalar(people.held(decision.person.id).where(User.disabled_at.is_(None)))
    if held is None or (decision.outcome is Outcome.LINK and held.is_admin):
        raise SignInRefused(_("This account has just been changed. Try again."), reason="changed meanwhile")
    return held


async def _make(session: AsyncSession, facts: Facts) -> User:
    try:
        async with session.begin_nested():
            person = await accounts.add_person(session, name=facts.name, email=facts.email, role=Role.MEMBER)
    except AppError as error:
        raise SignInRefused(str(error), reason=f"no account could be made: {type(error).__name__}") from error
    await audit.record(session, Action.PERSON_PROVISIONED, audit.person(person.id), after={"issuer": facts.issuer})
    return person


def _link(person: User, facts: Facts, rules: Rules) -> Decision:
    sentence = _(
        "There is an account here with your address already. Sign in to it as before, "
        "and connect it with the company sign-in in your settings."
    )
    if person.disabled_at is not None:
        return _refused(_("Your account here is deactivated."), "the person with this address is deactivated", person)
    if not rules.link_by_email:
        return _refused(sentence, "the address belongs to an account, and linking by address is off", person)
    if facts.email_verified is not True:
        return _refused(sentence, "the address belongs to an account, and the provider has not verified it", person)
    if person.is_admin:
        return _refused(sentence, "the address belongs to an administrator, who is never linked by address", person)
    return Decision(Outcome.LINK, person)


def _new(facts: Facts, rules: Rules) -> Decision:
    if not facts.email:
        return _refused(
            _("The company sign-in did not tell your address (the claim “{claim}”). Tell your administrator.").format(
                claim=rules.email_claim
            ),
            f"there is no claim {rules.email_claim}",
        )
    if facts.email_verified is False:
        return _refused(
            _("The company sign-in says that your mail address is not verified yet."), "the address is not verified"
        )
    return Decision(Outcome.NEW)


def _refused(sentence: str, reason: str, person: User | None = None) -> Decision:
    return Decision(Outcome.REFUSED, person, sentence=sentence, reason=reason)
