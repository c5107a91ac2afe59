"""The code of an app, and what stands in for it."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from backend.accounts import entrance, rules, second_factor, service
from backend.accounts.entrance import HalfWay
from backend.accounts.models import Passkey, Purpose, SecondFactor, User
from backend.accounts.rules import Demand, Rules
from backend.accounts.second_factor import code_at, matching_step, step_of
from backend.accounts.service import LinkEnded
from backend.accounts.throttle import PER_MINUTE
from backend.core.db import Sessions
from tests.accounts.conftest import Arrive, link_for, sessions_of
from tests.conftest import PASSWORD
from tests.second_factor import code_now, give_app

SHARED = b"12345678901234567890"


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_are_those_of_the_standard(seconds: int, code: str) -> None:
    """RFC 6238, appendix B."""
    assert code_at(SHARED, seconds // 30) == code


def test_a_code_is_good_for_half_a_minute_before_and_after_and_once() -> None:
    moment = datetime(2026, 12, 1, tzinfo=UTC)
    code, step = code_at(SHARED, step_of(moment)), step_of(moment)

    found = [matching_step(SHARED, code, moment + timedelta(seconds=30 * late), None) for late in range(-2, 3)]

    assert found == [None, step, step, step, None]
    assert matching_step(SHARED, code, moment, step) is None
    assert matching_step(SHARED, code, moment, step - 1) == step
    assert [matching_step(SHARED, odd, moment, None) for odd in ("", code + "0", "\ud800", "½" * 6)] == [None] * 4


async def test_with_an_app_a_password_is_half_the_way(db: Sessions, arrive: Arrive, alice: User) -> None:
    secret, _codes = await give_app(db, alice)

    entry = await entrance.sign_in(arrive(), alice.email, PASSWORD)
    assert isinstance(entry, HalfWay)
    nobody_yet = await sessions_of(db, alice)
    wrong = await entrance.take_second_step(arrive(), entry.secret, "000000")
    passed = await entrance.take_second_step(arrive(), entry.secret, await code_now(db, secret))

    assert (nobody_yet, wrong) == (0, None)
    assert passed
    assert await sessions_of(db, alice) == 1
    with pytest.raises(LinkEnded):
        await entrance.take_second_step(arrive(), entry.secret, await code_now(db, secret))


async def test_a_code_that_was_seen_over_a_shoulder_is_worth_nothing(db: Sessions, arrive: Arrive, alice: User) -> None:
    secret, _codes = await give_app(db, alice)
    code = await code_now(db, secret)

    passed = [await _through(arrive, alice, code) for _ in range(2)]

    assert passed == [True, False]


async def test_each_recovery_code_works_once_and_for_its_person_only(
    db: Sessions, arrive: Arrive, alice: User, bob: User
) -> None:
    _secret, codes = await give_app(db, alice)
    await give_app(db, bob)

    assert len(set(codes)) == 10
    assert not await _through(arrive, bob, codes[0])
    assert await _through(arrive, alice, codes[0].upper().replace("-", " "))
    assert not await _through(arrive, alice, codes[0])
    assert await _through(arrive, alice, codes[1])


async def test_guessing_codes_is_slow_and_a_right_password_buys_no_new_tries(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    secret, _codes = await give_app(db, alice)
    entry = await entrance.sign_in(arrive(), alice.email, PASSWORD)
    assert isinstance(entry, HalfWay)

    for _ in range(PER_MINUTE):
        await entrance.take_second_step(arrive(), entry.secret, "000000")
    again = await entrance.sign_in(arrive(), alice.email, PASSWORD)
    assert isinstance(again, HalfWay)

    assert await entrance.take_second_step(arrive(), again.secret, await code_now(db, secret)) is None


async def test_a_link_for_a_new_password_does_not_lead_past_the_app(db: Sessions, arrive: Arrive, alice: User) -> None:
    await give_app(db, alice)

    entry = await entrance.join(arrive(), await link_for(db, Purpose.RESET, alice), "another fine password")

    assert isinstance(entry, HalfWay)
    assert await sessions_of(db, alice) == 0


async def test_a_new_password_and_a_closed_account_end_what_is_half_way(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    await give_app(db, alice)
    for end in (_set_password, _disable):
        entry = await entrance.sign_in(arrive(), alice.email, PASSWORD)
        assert isinstance(entry, HalfWay)

        await end(db, alice)

        with pytest.raises(LinkEnded):
            await entrance.second_step(arrive(), entry.secret)


async def test_who_has_to_have_one_sets_it_up_on_the_way_in(
    db: Sessions, arrive: Arrive, alice: User, carol: User
) -> None:
    async with db.begin() as session:
        await rules.write(session, Rules(second_factor=Demand.ADMINS))

    free = await entrance.sign_in(arrive(), alice.email, PASSWORD)
    entry = await entrance.sign_in(arrive(), carol.email, PASSWORD)
    assert isinstance(free, str)
    assert isinstance(entry, HalfWay)
    asked = await entrance.second_step(arrive(), entry.secret)
    assert asked.new_secret
    passed = await entrance.take_second_step(arrive(), entry.secret, await code_now(db, asked.new_secret))

    assert passed
    assert len(passed.recovery_codes) == 10
    async with db.begin() as session:
        assert await second_factor.is_set(session, carol.id)


async def test_a_stolen_password_sets_up_no_app_for_somebody_who_has_a_passkey(
    db: Sessions, arrive: Arrive, carol: User
) -> None:
    async with db.begin() as session:
        await rules.write(session, Rules(second_factor=Demand.EVERYBODY))
        session.add(Passkey(user_id=carol.id, credential_id=b"1", public_key=b"2", sign_count=0, name="Telephone"))

    entry = await entrance.sign_in(arrive(), carol.email, PASSWORD)
    assert isinstance(entry, HalfWay)
    asked = await entrance.second_step(arrive(), entry.secret)

    assert (asked.takes_code, asked.new_secret) == (False, None)
    assert await entrance.take_second_step(arrive(), entry.secret, "000000") is None


async def test_a_secret_that_was_moved_to_another_row_opens_nothing(
    db: Sessions, arrive: Arrive, alice: User, bob: User
) -> None:
    secret, _codes = await give_app(db, alice)
    await give_app(db, bob)
    async with db.begin() as session:
        sealed = await session.scalar(select(SecondFactor.sealed).where(SecondFactor.user_id == alice.id))
        await session.execute(update(SecondFactor).where(SecondFactor.user_id == bob.id).values(sealed=sealed))

    assert not await _through(arrive, bob, await code_now(db, secret))
    assert secret.encode() not in (sealed or b"")


async def test_a_reset_by_the_host_removes_all_of_it_and_every_session(
    db: Sessions, arrive: Arrive, alice: User
) -> None:
    await give_app(db, alice)
    async with db.begin() as session:
        session.add(Passkey(user_id=alice.id, credential_id=b"1", public_key=b"2", sign_count=0, name="Telephone"))
        await service.reset_second_factor(session, await service.find_person(session, alice.id))

    assert isinstance(await entrance.sign_in(arrive(), alice.email, PASSWORD), str)
    async with db.begin() as session:
        assert await session.scalar(select(Passkey.id)) is None


async def _through(arrive: Arrive, person: User, code: str) -> bool:
    entry = await entrance.sign_in(arrive(), person.email, PASSWORD)
    assert isinstance(entry, HalfWay)
    return await entrance.take_second_step(arrive(), entry.secret, code) is not None


async def _set_password(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        found = await service.find_person(session, person.id)
        assert found.password_hash
        await service.set_password(session, found, found.password_hash)


async def _disable(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        await service.disable(session, await service.find_person(session, person.id))
