"""Sign-ins that are under way, kept in the browser that began them: a sealed cookie of at most five, ten minutes each.

The provider hands the state back by way of the browser. That it is the same browser is what the cookie proves: a link
with somebody else's state and code leads nowhere. Several tabs each have an entry of their own; the oldest gives way.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import time
from typing import Final, Self
from uuid import UUID

from backend.core.security import Sealer, Unreadable, new_token

SECONDS: Final = 600
MOST: Final = 5
MAX_BYTES: Final = 3800  # with name and attributes less than the 4,096 that browsers keep
_MAX_TARGET: Final = 300
_PLACE: Final = "cookie|oidc"


class Aim(StrEnum):
    SIGN_IN = "in"
    TEST = "test"  # show what would happen
    CONNECT = "connect"  # with the person who is signed in already


@dataclass(frozen=True, slots=True)
class Pending:
    state: str
    nonce: str
    verifier: str  # PKCE
    slug: str
    target: str  # where the person wanted to go
    until: int
    aim: Aim = Aim.SIGN_IN
    person_id: UUID | None = None  # who tests or connects

    @classmethod
    def begin(cls, slug: str, target: str, aim: Aim = Aim.SIGN_IN, person_id: UUID | None = None) -> Self:
        target = target if len(target) <= _MAX_TARGET else "/"
        return cls(new_token(), new_token(), new_token(), slug, target, int(time()) + SECONDS, aim, person_id)

    def used(self) -> str:
        """By which its state is remembered as spent."""
        return f"state|{self.state}"


def read(sealer: Sealer, cookie: str) -> tuple[Pending, ...]:
    """Those that have not ended, the oldest first; nothing for a cookie that is not ours."""
    try:
        sealed = base64.urlsafe_b64decode(cookie.encode("ascii"))
        rows = json.loads(sealer.open(sealed, _PLACE))
        kept = [_load(row) for row in rows]
    except (Unreadable, binascii.Error, UnicodeError, ValueError, TypeError):
        return ()
    return tuple(each for each in kept if each.until > time())


def write(sealer: Sealer, kept: Sequence[Pending]) -> str:
    """As many of the newest as there is room for; empty for none."""
    newest = list(kept)[-MOST:]
    while newest:
        plain = json.dumps([_dump(each) for each in newest], separators=(",", ":"))
        cookie = base64.urlsafe_b64encode(sealer.seal(plain, _PLACE)).decode()
        if len(cookie) <= MAX_BYTES:
            return cookie
        newest = newest[1:] if len(newest) > 1 else [replace(newest[0], target="/")]
    return ""


def _dump(each: Pending) -> list[str | int]:
    person = each.person_id.hex if each.person_id else ""
    return [each.state, each.nonce, each.verifier, each.slug, each.target, each.until, each.aim.value, person]


def _load(row: list[str]) -> Pending:
    state, nonce, verifier, slug, target, until, aim, person = row
    return Pending(state, nonce, verifier, slug, target, int(until), Aim(aim), UUID(hex=person) if person else None)
