"""The scheduler, with a virtual clock: who goes first, who waits how long, and that nothing is lost or let in twice."""

import time
from collections import Counter
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st

from backend.admission.fair import Fair
from backend.admission.lines import Key
from backend.admission.wishes import Place, Urgency, Wish
from tests.admission.simulation import ALICE, BOB, CAROL, MODEL, Office


def test_whoever_comes_while_there_is_room_starts_at_once() -> None:
    office = Office(limit=2)

    first, second, third = office.ask(ALICE), office.ask(BOB), office.ask(CAROL)
    office.run()

    assert [office.waited(key) for key in (first, second, third)] == [0, 0, 1]
    assert len(office.fair) == 0


@pytest.mark.parametrize("limit", [1, 4])
@pytest.mark.parametrize("question", [10, 30_000])
def test_two_hundred_requests_of_one_person_delay_another_by_one_service_time_at_most(
    limit: int, question: int
) -> None:
    """Whenever the question comes, however long it is, and however little its rival's requests cost."""
    for moment in (0.5, 7.25, 33.0):
        office = Office(limit)
        random = Random(1)
        for _ in range(200):
            office.ask(BOB, seconds=random.uniform(0.5, 2.0), tokens=random.choice([5, 500, 9_000]))

        office.run(until=moment)
        single = office.ask(ALICE, tokens=question)
        office.run()

        assert office.waited(single) <= 2.0


def test_a_second_question_does_not_wait_for_the_whole_line_either() -> None:
    office = Office(limit=1)
    for _ in range(200):
        office.ask(BOB)

    waits = []
    for _ in range(20):
        key = office.ask(ALICE)
        office.run(until=office.now + 3.0)
        waits.append(office.waited(key))

    assert max(waits) <= 2.0


@pytest.mark.parametrize("wrong", [1, 5])
def test_weights_give_shares_of_the_tokens_not_of_the_requests(wrong: int) -> None:
    """Also where the estimate was wrong, as soon as it is known what the answers really cost."""
    random = Random(2)
    office = Office(limit=4, weights={ALICE: 1, BOB: 2, CAROL: 5})
    sizes = {ALICE: 200, BOB: 2_000, CAROL: 700}  # a person of short questions gets more of them

    def ask(person: Any) -> None:
        tokens = int(sizes[person] * random.uniform(0.5, 1.5))
        # Alice's are estimated too low by as much as Carol's are too high.
        guess = tokens // wrong if person == ALICE else tokens * wrong if person == CAROL else tokens
        office.ask(person, seconds=tokens / 1_000, tokens=guess, real_tokens=tokens)

    office.on_end = lambda key: ask(office.jobs[key].person)
    for person in sizes:
        for _ in range(40):
            ask(person)
    office.run(until=2_000)

    whole = office.tokens.total()
    shares = {person: office.tokens[person] / whole for person in sizes}
    assert shares == pytest.approx({ALICE: 1 / 8, BOB: 2 / 8, CAROL: 5 / 8}, rel=0.03)


def test_chat_goes_before_the_api_and_the_api_before_the_background() -> None:
    office = Office(limit=1)
    running = office.ask(ALICE)

    asked = [
        office.ask(person, urgency=urgency)
        for urgency in (Urgency.BACKGROUND, Urgency.API, Urgency.CHAT)
        for person in (BOB, CAROL)
    ]
    office.run()

    assert office.order == [running, asked[4], asked[5], asked[2], asked[3], asked[0], asked[1]]


def test_further_answers_of_one_person_wait_for_their_own_and_hold_nobody_up() -> None:
    office = Office(limit=10, per_person=2)
    other = uuid4()

    mine = [office.ask(ALICE), office.ask(ALICE, model=other), office.ask(ALICE), office.ask(ALICE, model=other)]
    api = [office.ask(ALICE, urgency=Urgency.API) for _ in range(3)]
    theirs = office.ask(BOB)

    assert [office.waited(key) for key in (*mine[:2], *api, theirs)] == [0] * 6
    assert office.places() == {mine[2]: Place(0, None, True), mine[3]: Place(0, None, True)}

    office.run()
    assert [office.waited(key) for key in mine] == [0, 0, 1, 1]


def test_nobody_starves_in_a_class_however_many_others_come_and_go() -> None:
    """Fifty people who ask again as soon as they have their answer, and one with two requests in line."""
    office = Office(limit=2)
    people = [uuid4() for _ in range(50)]
    office.on_end = lambda key: void(office.ask(office.jobs[key].person)) if office.jobs[key].person != ALICE else None
    for person in people:
        office.ask(person)

    patient = [office.ask(ALICE, tokens=2_000), office.ask(ALICE)]
    office.run(until=200)

    assert all(office.waited(key) <= 80 for key in patient)  # a round of all is 25 seconds
    counts = Counter(office.people(office.order))
    assert max(counts[person] for person in people) - min(counts[person] for person in people) <= 1


def void(_: object) -> None: ...


def test_who_was_silent_has_saved_up_nothing() -> None:
    office = Office(limit=1)
    office.on_end = lambda key: void(office.ask(BOB)) if office.jobs[key].person == BOB else None
    office.ask(BOB)
    office.run(until=500)  # Alice asks nothing all the while

    for _ in range(50):
        office.ask(ALICE)
    office.run(until=520)

    late = office.people([key for key in office.order if office.started[key] > 500])
    assert abs(late.count(ALICE) - late.count(BOB)) <= 2


def test_places_say_who_starts_next_and_about_when() -> None:
    office = Office(limit=2)
    for _ in range(4):
        office.ask(CAROL, seconds=30)
    assert [place.seconds for place in office.places().values()] == [None, None], "nobody knows yet"
    office.run()

    running = [office.ask(BOB, seconds=30) for _ in range(2)]
    bobs = [office.ask(BOB, seconds=30) for _ in range(3)]
    alices = [office.ask(ALICE, seconds=30) for _ in range(2)]
    told = office.places()
    office.run()

    assert [told[key].seconds for key in sorted(told, key=lambda key: told[key].ahead)] == [15, 30, 45, 60, 90]
    assert sorted(told, key=lambda key: told[key].ahead) == office.order[-5:]
    assert told[alices[0]] == Place(0, 15, False)
    assert not told.keys() & set(running)
    assert told.keys() == {*bobs, *alices}


def test_a_cancelled_request_is_gone_and_its_place_goes_to_the_next() -> None:
    office = Office(limit=1)
    running, gone, stays = office.ask(ALICE), office.ask(BOB), office.ask(CAROL)

    office.end(gone)
    assert office.places()[stays].ahead == 0
    office.end(running)
    assert office.started.keys() == {running, stays}

    office.run()
    assert len(office.fair) == 0


def test_a_refusal_lowers_what_a_model_gets_and_answers_raise_it_again() -> None:
    office = Office(limit=8)
    keys = [office.ask(uuid4(), seconds=1 + number / 10) for number in range(20)]

    office.fair.refused(keys[7], office.now)  # with seven others running
    office.end(keys[7])
    assert len(office.running) == 7
    office.run(until=1.95)

    assert len(office.running) == 8, "seven answers came, so one more is tried"
    office.run()


def test_whoever_was_refused_by_an_engine_has_paid_nothing_and_is_next() -> None:
    office = Office(limit=2)
    office.ask(BOB, seconds=10)
    refused = office.ask(ALICE, tokens=50_000)
    waiting = office.ask(BOB)

    office.fair.refused(refused, office.now)
    office.running.discard(refused)
    office.fair.leave(refused, office.now)
    again = office.ask(ALICE, tokens=50_000)
    office.run()

    assert office.order[2:] == [again, waiting]


def test_a_limit_that_is_raised_lets_those_in_who_wait() -> None:
    office = Office(limit=1)
    keys = [office.ask(uuid4()) for _ in range(5)]

    office.limit = 4
    office.fair.touch()

    assert office.fair.start(office.now) == keys[1:4]


def test_a_running_request_of_somebody_else_counts() -> None:
    """As after a takeover: they tell what they have."""
    office = Office(limit=2, per_person=1)
    office.fair.resume(("there", 1), Wish(MODEL, ALICE, Urgency.CHAT, 10), began=-5)
    office.fair.resume(("there", 2), Wish(MODEL, BOB, Urgency.CHAT, 10), began=-5)
    waiting = office.ask(ALICE)
    office.fair.resume(("there", 3), Wish(MODEL, CAROL, Urgency.CHAT, 10), began=-5)  # it is one too many

    office.fair.leave(("there", 1), 0)
    assert office.fair.start(0) == []
    office.fair.leave(("there", 2), 0)
    assert office.fair.start(0) == [waiting]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_order_things_happen_in_nothing_is_lost_and_no_limit_is_broken(data: st.DataObject) -> None:
    """Also work-conserving: while something could start, nothing that may start waits."""
    random = data.draw(st.randoms(use_true_random=False))
    limit, per_person = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    people, models = [uuid4() for _ in range(4)], [uuid4(), uuid4()]
    fair = Fair(per_person=per_person, limit_of=lambda model: limit, weight_of=lambda person: 1 + people.index(person))
    wishes: dict[Key, Wish] = {}
    running: set[Key] = set()
    for number in range(data.draw(st.integers(1, 120))):
        if not wishes or random.random() < 0.6:
            wish = Wish(
                random.choice(models), random.choice(people), random.choice(list(Urgency)), random.randint(1, 500)
            )
            wishes["here", number] = wish
            fair.enter(("here", number), wish)
        else:
            key = random.choice(list(wishes))
            if key in running and random.random() < 0.1:
                fair.resume(key, wishes[key], 0)  # said twice
            fair.leave(key, number, spent=random.choice([None, 0, 5_000]), accepted=random.random() < 0.9)
            del wishes[key]
            running.discard(key)
        started = fair.start(number)
        assert not running & set(started)
        running |= set(started)

        chats = Counter(wishes[key].person_id for key in running if wishes[key].urgency is Urgency.CHAT)
        used = Counter(wishes[key].model_id for key in running)
        assert max(chats.values(), default=0) <= per_person
        assert max(used.values(), default=0) <= limit
        waiting = wishes.keys() - running
        for key in waiting:
            has_enough = wishes[key].urgency is Urgency.CHAT and chats[wishes[key].person_id] == per_person
            assert has_enough or used[wishes[key].model_id] == limit
        assert dict(fair.places(number)).keys() == waiting
        assert [fair.running(model) for model in models] == [used[model] for model in models]

    for key in list(wishes):
        fair.leave(key, 1_000)
    assert fair.start(1_000) == []
    assert len(fair) == 0
    assert fair.busy() == []


def test_ten_thousand_in_line_are_no_burden() -> None:
    """Bounds ten times over what it takes: a step that looked at everybody would take minutes."""
    office = Office(limit=1, per_person=4)
    people = [uuid4() for _ in range(5_000)]

    began = time.perf_counter()
    keys = [office.ask(person) for _ in range(2) for person in people]
    for key in keys[1:9_000:2]:
        office.end(key)
    office.run()
    assert time.perf_counter() - began < 5

    assert len(office.order) == 5_500
    assert len(office.fair) == 0
