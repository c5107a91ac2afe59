"""Expected failures and the HTTP status each of them is."""

import pytest

from backend.core import errors


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.BadInput, 422),
        (errors.NotSignedIn, 401),
        (errors.Forbidden, 403),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
        (errors.TooLarge, 413),
        (errors.TooMany, 429),
        (errors.Unavailable, 503),
    ],
)
def test_a_failure_carries_its_status_and_its_sentence(kind: type[errors.AppError], status: int) -> None:
    failure = kind("This is why.")

    assert (failure.status, str(failure), failure.retry_after) == (status, "This is why.", None)
    assert f"{kind.__name__} " in str(errors.__doc__)
    assert f" {status} " in str(errors.__doc__)


def test_some_failures_say_more() -> None:
    assert errors.BadInput("No.", fields={"email": "Not an address."}).fields == {"email": "Not an address."}
    assert errors.BadInput("No.").fields == {}
    assert errors.TooMany("Slowly.", retry_after=30).retry_after == 30
