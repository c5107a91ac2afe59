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
