"""The ways in, and what may happen while a hash is being made."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from backend.accounts import entrance, queries, service, sessions, throttle
from backend.accounts.models import LoginSession, OneTimeLink, Purpose, Role, SignInThrottle, User
from backend.accounts.passwords import Passwords
from backend.accounts.service import EmailTaken, LinkEnded
from backend.accounts.throttle import PER_MINUTE
from backend.core import stored
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import Conflict
from tests.accounts.conftest import LIFETIME, Arrive, link_for, reread, sessions_of
from tests.conftest import PASSWORD, AddPerson, sign_in
from tests.site import CHEAP_PASSWORDS

NEW = "another fine password"

# Signing in


async def test_the_right_password_opens_a_session(db: Sessions, arrive: Arrive, alice: User) -> None:
    token = await entrance.sign_in(arrive(), " Alice@Corp.example", PASSWORD)

    assert isinstance(token, str)
    found = await _find(db, token)
    assert found is not None
    assert found.user_id == alice.id
    assert (found.address, found.user_agent, found.time_zone) == ("10.0.0.7", "test", "Europe/Berlin")


async def test_a_wrong_password_opens_none(db: Sessions, arrive: Arrive, alice: User) -> None:
    assert await entrance.sign_in(arrive(), alice.email, PASSWORD + "x") is None
    assert await sessions_of(db, alice) == 0


async def test_somebody_unknown_gets_the_same_answer_after_the_same_work(arrive: Arrive, alice: User) -> None:
    counting = _Counting()

    known = await entrance.sign_in(arrive(passwords=counting), alice.email, "wrong")
    unknown = await entrance.sign_in(arrive(passwords=counting), "nobody@corp.example", "wrong")

    assert known is None
    assert unknown is None
    assert counting.verified == 2


@pytest.mark.parametrize("email", ["", "\0", "nobody", "x" * 10_000, "\ud800@corp.example", "' or 1=1 --"])
async def test_no_address_is_too_strange_to_be_unknown(arrive: Arrive, alice: User, email: str) -> None:
    assert await entrance.sign_in(arrive(), email, PASSWORD) is None


async def test_who_was_invited_and_has_no_password_cannot_sign_in(db: Sessions, arrive: Arrive) -> None:
    async with db.begin() as session:
        await service.add_person(session, name="Dora", email="dora@corp.example", role=Role.MEMBER)

    assert await entrance.sign_in(arrive(), "dora@corp.example", "") is None


async def test_a_disabled_person_cannot_sign_in_though_the_work_is_done(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    await _change(db, alice, disabled_at=now())
    counting = _Counting()

    assert await entrance.sign_in(arrive(passwords=counting), alice.email, PASSWORD) is None
    assert counting.verified == 1


async def test_the_old_session_of_the_browser_ends(db: Sessions, arrive: Arrive, alice: User, bob: User) -> None:
    of_bob = await sign_in(db, bob)

    token = await entrance.sign_in(arrive(of_bob), alice.email, PASSWORD)

    assert token != of_bob
    assert await _find(db, of_bob) is None


async def test_too_many_tries_keep_even_the_right_password_out_and_cost_no_hash(arrive: Arrive, alice: User) -> None:
    counting = _Counting()

    tries = await asyncio.gather(
        *[entrance.sign_in(arrive(passwords=counting), alice.email, f"guess {n}") for n in range(30)]
    )
    right = await entrance.sign_in(arrive(passwords=counting), alice.email, PASSWORD)

    assert [*tries, right] == [None] * 31
    assert counting.verified == PER_MINUTE


async def test_a_right_password_forgives_the_wrong_ones_before_it(db: Sessions, arrive: Arrive, alice: User) -> None:
    for _ in range(PER_MINUTE - 1):
        await entrance.sign_in(arrive(), alice.email, "wrong")

    token = await entrance.sign_in(arrive(), alice.email, PASSWORD)

    assert token is not None
    assert await _tries(db) == 0


async def test_a_wrong_password_stays_counted(db: Sessions, arrive: Arrive, alice: User) -> None:
    await entrance.sign_in(arrive(), alice.email, "wrong")
    await entrance.sign_in(arrive(), "nobody@corp.example", "wrong")

    assert await _tries(db) == 2


async def test_a_hash_of_a_lower_cost_is_renewed_by_signing_in(db: Sessions, arrive: Arrive, alice: User) -> None:
    dearer = Passwords(memory_kib=128, rounds=1, lanes=1)

    await entrance.sign_in(arrive(passwords=dearer), alice.email, PASSWORD)

    new_hash = (await reread(db, alice)).password_hash
    assert new_hash is not None
    assert not dearer.needs_new_hash(new_hash)
    assert await entrance.sign_in(arrive(passwords=dearer), alice.email, PASSWORD)


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_password_changed_while_the_old_one_was_checked_lets_nobody_in(
    db: Sessions, arrive: Arrive, alice: User, renewed: bool
) -> None:
    changed_hash = await Passwords(**CHEAP_PASSWORDS).hash(NEW)
    slow = _Meanwhile(lambda: _change(db, alice, password_hash=changed_hash), memory_kib=128 if renewed else 64)

    token = await entrance.sign_in(arrive(passwords=slow), alice.email, PASSWORD)

    assert token is None
    assert await sessions_of(db, alice) == 0
    assert (await reread(db, alice)).password_hash == changed_hash


async def test_somebody_disabled_while_the_password_was_checked_does_not_get_in(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    slow = _Meanwhile(lambda: _change(db, alice, disabled_at=now()))

    assert await entrance.sign_in(arrive(passwords=slow), alice.email, PASSWORD) is None
    assert await sessions_of(db, alice) == 0


# A new password


async def test_a_new_password_ends_every_session_and_opens_one(db: Sessions, arrive: Arrive, alice: User) -> None:
    here, elsewhere = await sign_in(db, alice), await sign_in(db, alice)
    link = await link_for(db, Purpose.RESET, alice)

    token = await entrance.change_password(arrive(here), alice, PASSWORD, NEW)

    assert await _find(db, token) is not None
    assert [await _find(db, old) for old in (here, elsewhere)] == [None, None]
    assert await _link(db, link) is None
    assert await entrance.sign_in(arrive(), alice.email, PASSWORD) is None
    assert await entrance.sign_in(arrive(), alice.email, NEW)


async def test_a_wrong_old_password_changes_nothing_and_counts_as_a_try(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    here = await sign_in(db, alice)

    tries = [await entrance.change_password(arrive(here), alice, "wrong", NEW) for _ in range(PER_MINUTE)]
    right = await entrance.change_password(arrive(here), alice, PASSWORD, NEW)

    assert [*tries, right] == [None] * (PER_MINUTE + 1)
    assert await sessions_of(db, alice) == 1
    assert (await reread(db, alice)).password_hash == alice.password_hash


async def test_somebody_disabled_meanwhile_does_not_stay_signed_in_by_a_new_password(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    slow = _Meanwhile(lambda: _change(db, alice, disabled_at=now()))

    assert await entrance.change_password(arrive(passwords=slow), alice, PASSWORD, NEW) is None
    assert (await reread(db, alice)).password_hash == alice.password_hash


# Links


async def test_an_invitation_sets_the_password_and_signs_in(db: Sessions, arrive: Arrive) -> None:
    async with db.begin() as session:
        dora = await service.add_person(session, name="Dora", email="dora@corp.example", role=Role.MEMBER)
    secret = await link_for(db, Purpose.INVITATION, dora)

    token = await entrance.join(arrive(), secret, NEW)

    assert isinstance(token, str)
    found = await _find(db, token)
    assert found is not None
    assert found.user_id == dora.id
    assert await entrance.sign_in(arrive(), dora.email, NEW)


async def test_a_reset_ends_every_session_of_before_and_the_wait_for_sign_in(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    await sign_in(db, alice)
    async with db.begin() as session:
        for _ in range(PER_MINUTE):
            await throttle.admit(session, alice.email, "10.0.0.7")

    await entrance.join(arrive(), await link_for(db, Purpose.RESET, alice), NEW)

    assert await sessions_of(db, alice) == 1
    assert await entrance.sign_in(arrive(), alice.email, NEW)


async def test_a_link_works_once(db: Sessions, arrive: Arrive, alice: User) -> None:
    secret = await link_for(db, Purpose.RESET, alice)
    await entrance.join(arrive(), secret, NEW)

    with pytest.raises(LinkEnded):
        await entrance.join(arrive(), secret, "a third fine password")

    assert await entrance.sign_in(arrive(), alice.email, NEW)


async def test_of_ten_who_use_a_link_at_the_same_moment_one_gets_in(db: Sessions, arrive: Arrive, alice: User) -> None:
    secret = await link_for(db, Purpose.RESET, alice)

    results = await asyncio.gather(
        *[entrance.join(arrive(), secret, f"{NEW} {n}") for n in range(10)], return_exceptions=True
    )

    assert sum(isinstance(result, str) for result in results) == 1
    assert sum(isinstance(result, LinkEnded) for result in results) == 9
    assert await sessions_of(db, alice) == 1


@pytest.mark.parametrize("secret", [None, "", "nonsense", "\ud800"])
async def test_a_secret_that_never_was_opens_nothing(arrive: Arrive, alice: User, secret: str | None) -> None:
    with pytest.raises(LinkEnded):
        await entrance.join(arrive(), secret, NEW)


async def test_an_expired_link_opens_nothing(db: Sessions, arrive: Arrive, alice: User) -> None:
    secret = await link_for(db, Purpose.RESET, alice)
    async with db.begin() as session:
        await session.execute(update(OneTimeLink).values(expires_at=now()))

    with pytest.raises(LinkEnded):
        await entrance.join(arrive(), secret, NEW)


async def test_a_link_of_somebody_disabled_opens_nothing_even_if_its_row_was_left(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    secret = await link_for(db, Purpose.RESET, alice)
    await _change(db, alice, disabled_at=now())

    with pytest.raises(LinkEnded):
        await entrance.join(arrive(), secret, NEW)


async def test_disabling_somebody_who_uses_a_link_at_the_same_moment_ends_well_for_both(
    db: Sessions, arrive: Arrive, add_person: AddPerson
) -> None:
    """Both take the person's row before the link's. The other way round they would wait for each other."""
    for number in range(10):
        dora = await add_person(f"Dora{number}", Role.MEMBER)
        secret = await link_for(db, Purpose.RESET, dora)

        joined, disabled = await asyncio.gather(
            entrance.join(arrive(), secret, NEW), _disable(db, dora), return_exceptions=True
        )

        assert isinstance(joined, str | LinkEnded)
        assert disabled is None
        assert await sessions_of(db, dora) == 0


async def test_a_person_disabled_between_the_look_at_the_link_and_its_use_does_not_get_in(
    db: Sessions, arrive: Arrive, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = await link_for(db, Purpose.RESET, alice)
    look = entrance.find_link

    async def look_then_disable(*args: object) -> OneTimeLink:
        link = await look(*args)  # type: ignore[arg-type]
        await _change(db, alice, disabled_at=now())
        return link

    monkeypatch.setattr(entrance, "find_link", look_then_disable)

    with pytest.raises(LinkEnded):
        await entrance.join(arrive(), secret, NEW)

    assert (await reread(db, alice)).password_hash == alice.password_hash


# The first administrator


async def test_the_set_up_link_makes_an_administrator_and_names_the_company(db: Sessions, arrive: Arrive) -> None:
    secret = await link_for(db, Purpose.SETUP)

    token = await _set_up(arrive, secret)

    found = await _find(db, token)
    assert found is not None
    assert (found.user.is_admin, found.user.name) == (True, "Ines Duarte")
    async with db.begin() as session:
        assert await stored.read(session, "company") == "Fernhill Works"
    assert await entrance.sign_in(arrive(), "ines@corp.example", NEW)


async def test_thirty_who_set_up_at_the_same_moment_make_one_administrator(db: Sessions, arrive: Arrive) -> None:
    secret = await link_for(db, Purpose.SETUP)

    results = await asyncio.gather(
        *[_set_up(arrive, secret, email=f"admin{n}@corp.example") for n in range(30)], return_exceptions=True
    )

    assert sum(isinstance(result, str) for result in results) == 1
    assert all(isinstance(result, str | Conflict | LinkEnded) for result in results)
    async with db.begin() as session:
        assert await session.scalar(select(func.count()).select_from(User)) == 1
        assert len(list(await session.scalars(queries.active_admins()))) == 1


async def test_with_an_administrator_the_link_makes_no_second_one(db: Sessions, arrive: Arrive, carol: User) -> None:
    secret = await link_for(db, Purpose.SETUP)

    with pytest.raises(Conflict, match="administrator already"):
        await _set_up(arrive, secret)


async def test_an_address_that_is_taken_leaves_the_link_as_it_was(db: Sessions, arrive: Arrive, alice: User) -> None:
    secret = await link_for(db, Purpose.SETUP)

    with pytest.raises(EmailTaken):
        await _set_up(arrive, secret, email=alice.email)

    assert await _set_up(arrive, secret)


async def test_an_invitation_is_no_set_up_link_and_the_other_way_round(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    invitation, set_up = await link_for(db, Purpose.INVITATION, alice), await link_for(db, Purpose.SETUP)

    with pytest.raises(LinkEnded):
        await _set_up(arrive, invitation)
    with pytest.raises(LinkEnded):
        await entrance.join(arrive(), set_up, NEW)


async def test_the_set_up_link_lasts_an_hour(db: Sessions) -> None:
    secret = await link_for(db, Purpose.SETUP)

    link = await _link(db, secret)

    assert link is not None
    assert timedelta(minutes=59) < link.expires_at - now() <= timedelta(hours=1)


class _Counting(Passwords):
    def __init__(self) -> None:
        super().__init__(**CHEAP_PASSWORDS)
        self.verified = 0

    async def verify(self, stored: str | None, password: str) -> bool:
        self.verified += 1
        return await super().verify(stored, password)


class _Meanwhile(Passwords):
    """Something else happens while a password is being checked."""

    def __init__(self, happens: Callable[[], Awaitable[None]], *, memory_kib: int = 64) -> None:
        super().__init__(**CHEAP_PASSWORDS | {"memory_kib": memory_kib})
        self._happens = happens

    async def verify(self, stored: str | None, password: str) -> bool:
        verdict = await super().verify(stored, password)
        await self._happens()
        return verdict


async def _set_up(arrive: Arrive, secret: str | None, email: str = "ines@corp.example") -> str:
    entry = await entrance.set_up(
        arrive(), secret, name="Ines Duarte", email=email, company="Fernhill Works", password=NEW
    )
    assert isinstance(entry, str)
    return entry


async def _find(db: Sessions, token: str | None) -> LoginSession | None:
    assert token is not None
    async with db.begin() as session:
        return await sessions.find(session, token, LIFETIME)


async def _link(db: Sessions, secret: str) -> OneTimeLink | None:
    async with db.begin() as session:
        return await service.find_link(session, secret, *Purpose)


async def _tries(db: Sessions) -> int:
    async with db.begin() as session:
        return sum([row.tries for row in await session.scalars(select(SignInThrottle))])


async def _change(db: Sessions, person: User, **columns: object) -> None:
    async with db.begin() as session:
        await session.execute(update(User).where(User.id == person.id).values(**columns))


async def _disable(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        await service.disable(session, await service.find_person(session, person.id))
