"""Argon2id off the event loop. Which passwords are taken at all is told in `strength.py`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from backend.core.errors import TooMany
from backend.core.i18n import _

_AT_ONCE = 2  # a hash takes 64 MiB
_MAX_WAITING = 50
_PER_SECOND = 50


class Passwords:
    """Hashes and verifies, at most two at once so that a flood of sign-ins cannot take the memory.

    The default cost is what OWASP's ASVS asks for and more: about 0.1 s. Tests pass cheaper figures.
    """

    def __init__(self, *, memory_kib: int = 65536, rounds: int = 3, lanes: int = 4) -> None:
        self._hasher = PasswordHasher(time_cost=rounds, memory_cost=memory_kib, parallelism=lanes)
        self._turnstile = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._begun: deque[float] = deque(maxlen=_PER_SECOND)
        self._nobody = self._hasher.hash("nobody has this password")

    async def hash(self, password: str) -> str:
        async with self._one_of_few():
            return await asyncio.to_thread(self._hasher.hash, _bytes(password))

    async def verify(self, stored: str | None, password: str) -> bool:
        """Whether `password` is right. Without a stored hash the work is done too, so that timing tells nothing."""
        async with self._one_of_few():
            matches = await asyncio.to_thread(self._matches, stored or self._nobody, password)
        return matches and stored is not None

    def needs_new_hash(self, stored: str) -> bool:
        return self._hasher.check_needs_rehash(stored)

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, _bytes(password))
        except (VerificationError, InvalidHashError):
            return False

    @asynccontextmanager
    async def _one_of_few(self) -> AsyncIterator[None]:
        """A short line before the turnstile; a long one is refused rather than grown."""
        moment = monotonic()
        too_fast = len(self._begun) == _PER_SECOND and moment - self._begun[0] < 1
        if self._waiting >= _MAX_WAITING or too_fast:
            raise TooMany(_("Too many people are signing in right now. Try again in a few seconds."), retry_after=5)
        self._begun.append(moment)
        self._waiting += 1
        try:
            await self._turnstile.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turnstile.release()


def _bytes(password: str) -> bytes:
    """Any text, also with halves of characters in it: a password is compared, never shown."""
    return password.encode("utf-8", "surrogatepass")
