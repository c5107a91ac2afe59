"""What engines are told in place of who asks, and in which conversation: always the same, and telling nothing."""

import hashlib
import hmac
from typing import TypedDict
from uuid import UUID


class Names(TypedDict):
    """The fields of a `ChatRequest` that say for whom it is."""

    salt: str
    session: str
    fairness: str


class Aliases:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, person_id: UUID, conversation_id: UUID) -> Names:
        """A salt per person, so that nobody can tell from timing what others asked (CVE-2025-46570)."""
        return {
            "salt": self._alias(b"salt", person_id),
            "session": self._alias(b"session", conversation_id),
            "fairness": self._alias(b"fairness", person_id),
        }

    def _alias(self, purpose: bytes, of: UUID) -> str:
        return hmac.new(self._key, purpose + of.bytes, hashlib.sha256).hexdigest()
