"""The chain: each record is sealed together with the seal of the one before.

    h(n) = HMAC(k, h(n-1) | canonical record n)

`k` is derived from the deployment's secret, so whoever can write into the database but does not have the secret cannot
mend the chain after a change. While the secret is being rotated ("new,old") the first one seals, and all of them are
known: a record names its key.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import orjson

from backend.core.security import subkey
from backend.core.text import clean

START: Final = bytes(32)  # what the first record follows

_LARGEST = 2**53  # up to here every reader of JSON means the same number
_MOST_CHARACTERS = 500

_FIELDS = ("via", "actor_id", "address", "action", "target_kind", "target_id", "target_name", "before", "after")


class NoKeys(RuntimeError):
    """Nothing can be recorded, so nothing may be changed: whoever started this process did not say `chain.use`."""


class Keys:
    """Those of one deployment."""

    def __init__(self, secrets: Sequence[str]) -> None:
        keys = [subkey(secret, "audit chain") for secret in secrets]
        self._keys = {hashlib.sha256(key).digest()[:4]: key for key in keys}
        self.current = hashlib.sha256(keys[0]).digest()[:4]

    def mac(self, previous: bytes, record: Mapping[str, Any]) -> bytes:
        return self._hmac(self.current, previous + canonical(record))

    def holds(self, key_id: bytes, mac: bytes, previous: bytes, record: Mapping[str, Any]) -> bool:
        """Whether a record is as it was written. Raises KeyError for one that was made with another secret."""
        return hmac.compare_digest(self._hmac(key_id, previous + canonical(record)), mac)

    def sign_anchor(self, number: int, mac: bytes) -> bytes:
        return self._hmac(self.current, _anchor(number, mac))

    def signed_anchor(self, key_id: bytes, signature: bytes, number: int, mac: bytes) -> bool:
        return key_id in self._keys and hmac.compare_digest(self._hmac(key_id, _anchor(number, mac)), signature)

    def pseudonym(self, text: str) -> str:
        """By which the same address is known again, and which without the secret cannot be guessed at."""
        return self._hmac(self.current, b"pseudonym:" + clean(text).encode())[:12].hex()

    def _hmac(self, key_id: bytes, message: bytes) -> bytes:
        return hmac.digest(self._keys[key_id], message, "sha256")


def _anchor(number: int, mac: bytes) -> bytes:
    return b"anchor:%d:" % number + mac


def canonical(record: Mapping[str, Any]) -> bytes:
    """The same bytes for a record that is about to be written and for the row that it became."""
    plain = {name: storable(record[name]) for name in _FIELDS}
    plain |= {"number": record["number"], "at": record["at"].astimezone(UTC).isoformat(timespec="microseconds")}
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)


def storable(value: object) -> Any:
    """What JSON and Postgres give back as it was; doing it twice changes nothing."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value) if abs(value) < _LARGEST else str(value)
        case float():
            if not abs(value) < _LARGEST:
                return str(value)
            return int(value) if value.is_integer() else float(f"{value:.9g}")
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case Mapping():
            return {str(name): storable(each) for name, each in value.items()}
        case set() | frozenset():
            return sorted(str(storable(each)) for each in value)
        case list() | tuple():
            return [storable(each) for each in value]
    return clean(str(value))[:_MOST_CHARACTERS]


class _Process:
    keys: Keys | None = None


def use(secrets: Sequence[str]) -> Keys:
    """Said once where a process starts: it serves one deployment, and that has one secret."""
    _Process.keys = Keys(secrets)
    return _Process.keys


def keys() -> Keys:
    if _Process.keys is None:
        raise NoKeys("the keys of the audit are not known: nothing was changed")
    return _Process.keys
