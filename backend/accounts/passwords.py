"""Passwords: the rule for new ones, and argon2id off the event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from backend.core.errors import TooMany
from backend.core.i18n import _, ngettext

MIN_LENGTH = 12
MAX_LENGTH = 128

_AT_ONCE = 2  # a hash takes 64 MiB
_MAX_WAITING = 50


class Passwords:
    """Hashes and verifies, at most two at once so that a flood of sign-ins cannot take the memory.

    The default cost is what OWASP's ASVS asks for and more: about 0.1 s. Tests pass cheaper figures.
    """

    def __init__(self, *, memory_kib: int = 65536, rounds: int = 3, lanes: int = 4) -> None:
        self._hasher = PasswordHasher(time_cost=rounds, memory_cost=memory_kib, parallelism=lanes)
        self._turnstile = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
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
        if self._waiting >= _MAX_WAITING:
            raise TooMany(_("Too many people are signing in right now. Try again in a few seconds."), retry_after=5)
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


def weakness(password: str) -> str | None:
    """A sentence that says why `password` cannot be taken, or None."""
    length = len(password)
    if length < MIN_LENGTH:
        return ngettext(
            "This one has {length} character; at least {least} are needed.",
            "This one has {length} characters; at least {least} are needed.",
            length,
        ).format(length=length, least=MIN_LENGTH)
    if length > MAX_LENGTH:
        return _("This one has {length} characters; at most {most} can be kept.").format(length=length, most=MAX_LENGTH)
    if len(set(password)) < 5:
        return _("This one repeats a few characters and is easily guessed.")
    return None
