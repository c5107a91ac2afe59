import asyncio
import threading

import pytest

from backend.accounts.passwords import Passwords
from backend.core.errors import TooMany
from tests.site import CHEAP_PASSWORDS


@pytest.fixture
def passwords() -> Passwords:
    return Passwords(**CHEAP_PASSWORDS)


async def test_the_right_password_is_recognised_and_a_wrong_one_is_not(passwords: Passwords) -> None:
    stored = await passwords.hash("correct horse battery")

    assert await passwords.verify(stored, "correct horse battery")
    assert not await passwords.verify(stored, "correct horse batterY")


async def test_what_is_stored_is_argon2id_with_a_salt_of_its_own(passwords: Passwords) -> None:
    one, other = await passwords.hash("correct horse battery"), await passwords.hash("correct horse battery")

    assert one.startswith("$argon2id$")
    assert one != other


def test_the_default_cost_is_above_what_owasp_asks_for() -> None:
    stored = Passwords()._nobody

    assert "m=65536,t=3,p=4" in stored


@pytest.mark.parametrize("password", ["", "nobody has this password", "\ud800 half a character", "x\0y"])
async def test_without_a_stored_hash_nothing_matches(passwords: Passwords, password: str) -> None:
    assert not await passwords.verify(None, password)


async def test_a_password_may_hold_anything(passwords: Passwords) -> None:
    stored = await passwords.hash("日本語\ud800\0 ok")

    assert await passwords.verify(stored, "日本語\ud800\0 ok")


async def test_a_stored_value_that_is_no_hash_matches_nothing(passwords: Passwords) -> None:
    assert not await passwords.verify("garbage", "garbage")


async def test_a_hash_of_a_lower_cost_is_due_for_renewal(passwords: Passwords) -> None:
    stored = await passwords.hash("correct horse battery")

    assert not passwords.needs_new_hash(stored)
    assert Passwords(memory_kib=128, rounds=1, lanes=1).needs_new_hash(stored)


async def test_at_most_two_hashes_are_made_at_once_and_never_on_the_event_loop(passwords: Passwords) -> None:
    slow = _Slow(passwords)

    tries = [asyncio.create_task(passwords.verify(None, "x")) for _ in range(6)]
    await asyncio.to_thread(slow.two_began.wait, 5)
    await asyncio.sleep(0.05)
    most = slow.at_once
    slow.go_on.set()
    await asyncio.gather(*tries)

    assert most == 2
    assert threading.main_thread().ident not in slow.threads


async def test_a_flood_is_refused_with_a_time_to_come_back_and_leaves_no_trace(passwords: Passwords) -> None:
    slow = _Slow(passwords)

    tries = [asyncio.create_task(passwords.verify(None, "x")) for _ in range(60)]
    await asyncio.to_thread(slow.two_began.wait, 5)
    slow.go_on.set()
    results = await asyncio.gather(*tries, return_exceptions=True)
    refused = [result for result in results if isinstance(result, TooMany)]

    assert len(refused) == 60 - 50 - 2 or len(refused) == 60 - 50
    assert all(refusal.retry_after for refusal in refused)
    passwords._begun.clear()  # a second later
    assert await passwords.verify(None, "x") is False


class _Slow:
    """Takes the place of the hashing itself, and holds every one until `go_on`."""

    def __init__(self, passwords: Passwords) -> None:
        self.go_on, self.two_began = threading.Event(), threading.Event()
        self.running = self.at_once = 0
        self.threads: set[int] = set()
        self._lock = threading.Lock()
        passwords._matches = self._match  # type: ignore[method-assign]

    def _match(self, stored: str, password: str) -> bool:
        with self._lock:
            self.running += 1
            self.at_once = max(self.at_once, self.running)
            self.threads.add(threading.get_ident())
            if self.running == 2:
                self.two_began.set()
        self.go_on.wait(5)
        with self._lock:
            self.running -= 1
        return False
