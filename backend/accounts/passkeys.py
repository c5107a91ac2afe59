"""Passkeys (WebAuthn): a key that lives in somebody's telephone, computer or stick, and shows there that it is them.

A passkey is two factors in one: the device, and what the device asks for (user verification is required). So it is a
whole way in. The challenge a device signs is made here and signed by us, so nothing is stored for a page that is only
looked at; used, it is remembered until it would have ended, and is worth nothing a second time.
"""

import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from webauthn import (
    base64url_to_bytes,
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from backend.accounts import queries
from backend.accounts.models import Passkey, UsedChallenge, User
from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.clock import now
from backend.core.db import broken
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.security import digest
from backend.core.text import one_line

MOST = 20  # of one person
LONGEST_REPLY = 20_000  # characters; a real one has about one thousand
_CHALLENGE_LIVES = timedelta(hours=1)
_NONCE, _TIME, _MAC = 16, 8, 32


@dataclass(frozen=True)
class RelyingParty:
    """This site, as devices know it: by its name, and by the address people open."""

    origin: str
    key: bytes  # for challenges

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname or ""

    @property
    def can_have_passkeys(self) -> bool:
        """Browsers give passkeys to names, not to addresses like 192.168.1.5, over https or on this machine."""
        try:
            ip_address(self.host)
        except ValueError:
            return self.origin.startswith("https://") or self.host == "localhost"
        return False

    def challenge(self, purpose: str) -> bytes:
        end = int((now() + _CHALLENGE_LIVES).timestamp()).to_bytes(_TIME, "big")
        body = secrets.token_bytes(_NONCE) + end
        return body + self._mac(body, purpose)

    def made(self, challenge: bytes, purpose: str) -> bool:
        """Whether it is one of ours, for this purpose, and has not ended."""
        body, mac = challenge[:-_MAC], challenge[-_MAC:]
        if len(body) != _NONCE + _TIME or not hmac.compare_digest(mac, self._mac(body, purpose)):
            return False
        return int.from_bytes(body[_NONCE:], "big") > now().timestamp()

    def _mac(self, body: bytes, purpose: str) -> bytes:
        return hmac.digest(self.key, body + purpose.encode(), "sha256")


_SIGNING_IN = "sign in"


def options_for_sign_in(party: RelyingParty) -> str:
    """For the browser, which asks the person which of their passkeys it shall be."""
    return options_to_json(
        generate_authentication_options(
            rp_id=party.host,
            challenge=party.challenge(_SIGNING_IN),
            user_verification=UserVerificationRequirement.REQUIRED,
        )
    )


async def options_for_new(session: AsyncSession, party: RelyingParty, person: User) -> str:
    """For the browser; a device that has one already is not asked for a second."""
    known = await session.scalars(select(Passkey.credential_id).where(Passkey.user_id == person.id))
    return options_to_json(
        generate_registration_options(
            rp_id=party.host,
            rp_name="Parley",
            user_id=person.id.bytes,
            user_name=person.email,
            user_display_name=person.name,
            challenge=party.challenge(_adding(person.id)),
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.REQUIRED, user_verification=UserVerificationRequirement.REQUIRED
            ),
            exclude_credentials=[PublicKeyCredentialDescriptor(id=each) for each in known],
        )
    )


async def add(session: AsyncSession, party: RelyingParty, person: User, reply: str, name: str) -> Passkey:
    """Raises BadInput for what is no proof of a new passkey, Conflict when there are too many."""
    challenge = await _use_challenge(session, party, reply, _adding(person.id))
    try:
        made = verify_registration_response(
            credential=reply,
            expected_challenge=challenge,
            expected_rp_id=party.host,
            expected_origin=party.origin,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError) as problem:
        raise _unusable() from problem
    await session.scalar(queries.held(person.id))
    kept = await session.scalar(select(func.count()).where(Passkey.user_id == person.id)) or 0
    if kept >= MOST:
        raise Conflict(_("You have {most} passkeys, and more are not kept. Remove one first.").format(most=MOST))
    key = Passkey(
        user_id=person.id,
        credential_id=made.credential_id,
        public_key=made.credential_public_key,
        sign_count=made.sign_count,
        name=one_line(name, 80) or _("Passkey {number}").format(number=kept + 1),
    )
    session.add(key)
    with broken(uq_passkeys_credential_id=Conflict(_("This passkey is here already."))):
        await session.flush()
    await audit.record(session, Action.PASSKEY_ADDED, Target("passkey", key.id, key.name))
    return key


async def recognise(session: AsyncSession, party: RelyingParty, reply: str) -> User | None:
    """Whose passkey gave this reply, held; None for what is none of ours, or of somebody who may not come in."""
    try:
        challenge = await _use_challenge(session, party, reply, _SIGNING_IN)
        credential_id = base64url_to_bytes(str(json.loads(reply)["rawId"]))
    except (BadInput, ValueError, KeyError, TypeError):
        return None
    owner = await session.scalar(select(Passkey.user_id).where(Passkey.credential_id == credential_id))
    person: User | None = await session.scalar(queries.held(owner)) if owner else None
    if person is None or person.disabled_at is not None:
        return None
    key = await session.scalar(select(Passkey).where(Passkey.credential_id == credential_id).with_for_update())
    if key is None:
        return None
    try:
        shown = verify_authentication_response(
            credential=reply,
            expected_challenge=challenge,
            expected_rp_id=party.host,
            expected_origin=party.origin,
            credential_public_key=key.public_key,
            credential_current_sign_count=key.sign_count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError):
        return None
    key.sign_count = shown.new_sign_count
    key.last_used_at = now()
    return person


async def kept_by(session: AsyncSession, person_id: UUID) -> list[Passkey]:
    return list(await session.scalars(select(Passkey).where(Passkey.user_id == person_id).order_by(Passkey.id)))


async def rename(session: AsyncSession, person: User, key_id: UUID, name: str) -> None:
    key = await _own(session, person, key_id)
    key.name = one_line(name, 80) or key.name


async def remove(session: AsyncSession, person: User, key_id: UUID) -> None:
    key = await _own(session, person, key_id)
    await session.delete(key)
    await audit.record(session, Action.PASSKEY_REMOVED, Target("passkey", key.id, key.name))


async def remove_all(session: AsyncSession, person: User) -> None:
    for key in await session.scalars(delete(Passkey).where(Passkey.user_id == person.id).returning(Passkey.id)):
        await audit.record(session, Action.PASSKEY_REMOVED, Target("passkey", key))


async def delete_ended_challenges(session: AsyncSession) -> None:
    await session.execute(delete(UsedChallenge).where(UsedChallenge.expires_at < now()))


async def _own(session: AsyncSession, person: User, key_id: UUID) -> Passkey:
    key = await session.scalar(select(Passkey).where(Passkey.id == key_id, Passkey.user_id == person.id))
    if key is None:
        raise NotFound(_("There is no such passkey."))
    return key


async def _use_challenge(session: AsyncSession, party: RelyingParty, reply: str, purpose: str) -> bytes:
    """The challenge that was signed, if we made it for this and nobody has used it. Raises BadInput."""
    try:
        if len(reply) > LONGEST_REPLY:
            raise ValueError
        signed = json.loads(base64url_to_bytes(json.loads(reply)["response"]["clientDataJSON"]))
        challenge = base64url_to_bytes(signed["challenge"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise _unusable() from problem
    if not party.made(challenge, purpose):
        raise _unusable()
    new = insert(UsedChallenge).values(digest=digest(challenge.hex()), expires_at=now() + _CHALLENGE_LIVES)
    first = await session.scalar(new.on_conflict_do_nothing().returning(UsedChallenge.digest))
    if first is None:
        raise _unusable()
    return challenge


def _adding(person_id: UUID) -> str:
    return f"add for {person_id}"


def _unusable() -> BadInput:
    return BadInput(_("This passkey could not be read, or the page was open for too long. Please try again."))
