"""Selects over providers and those who come by them."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import Select, func, select

from backend.accounts.models import LoginSession
from backend.groups.models import Group
from backend.identity.models import DirectoryGroup, Identity, IdentityProvider, IdentitySession, Kind


def providers() -> Select[IdentityProvider]:
    return select(IdentityProvider).order_by(func.lower(IdentityProvider.name), IdentityProvider.id)


def provider(provider_id: UUID) -> Select[IdentityProvider]:
    return select(IdentityProvider).where(IdentityProvider.id == provider_id)


def open_to_people(kind: Kind) -> Select[IdentityProvider]:
    return providers().where(IdentityProvider.enabled, IdentityProvider.kind == kind)


def known(issuer: str, subject: str) -> Select[Identity]:
    return select(Identity).where(Identity.issuer == issuer, Identity.subject == subject)


def identities_of(person_id: UUID) -> Select[Identity]:
    return select(Identity).where(Identity.user_id == person_id).order_by(Identity.id)


def counts() -> Select[str, int]:
    """How many people are known by each issuer."""
    return select(Identity.issuer, func.count()).group_by(Identity.issuer)


def sessions_at(issuer: str, *, subject: str | None, sid: str | None) -> Select[UUID]:
    """The sessions that a provider opened: of one of its own sessions, of a person, or of both."""
    found = (
        select(LoginSession.id)
        .join(IdentitySession, IdentitySession.session_id == LoginSession.id)
        .join(Identity, Identity.id == IdentitySession.identity_id)
        .where(Identity.issuer == issuer)
    )
    if subject is not None:
        found = found.where(Identity.subject == subject)
    return found if sid is None else found.where(IdentitySession.sid == sid)


def groups_of(origin: str) -> Select[str, Group]:
    """Those that were made for a provider, and what it calls them."""
    return (
        select(DirectoryGroup.external_name, Group)
        .join(Group, Group.id == DirectoryGroup.group_id)
        .where(DirectoryGroup.origin == origin)
    )


def groups_named(names: Iterable[str]) -> Select[Group]:
    return select(Group).where(Group.name.in_(list(names)))


def provider_behind(session_token: bytes) -> Select[IdentityProvider]:
    """The provider by which the session with this digest came in."""
    return (
        select(IdentityProvider)
        .join(IdentitySession, IdentitySession.provider_id == IdentityProvider.id)
        .join(LoginSession, LoginSession.id == IdentitySession.session_id)
        .where(LoginSession.token_digest == session_token)
    )
