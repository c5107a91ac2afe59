"""The end of the process, told once."""

from backend.core.lifecycle import Lifecycle


def test_what_was_registered_runs_once_when_the_end_begins() -> None:
    lifecycle = Lifecycle()
    heard: list[bool] = []
    lifecycle.on_stop(lambda: heard.append(lifecycle.stopping))

    before = lifecycle.stopping
    lifecycle.stop()
    lifecycle.stop()

    assert before is False
    assert heard == [True]


def test_it_is_busy_while_any_part_is() -> None:
    lifecycle = Lifecycle()
    streams, answers = ["stream"], ["answer"]
    for part in (streams, answers):
        lifecycle.busy_while(lambda part=part: bool(part))  # type: ignore[misc]

    found = [lifecycle.is_busy]
    for part in (streams, answers):
        part.clear()
        found.append(lifecycle.is_busy)

    assert found == [True, True, False]
