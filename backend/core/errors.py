"""What can go wrong for a person, as exceptions that carry their HTTP status and a sentence for the reader.

    AppError
    ├── BadInput      422  what was sent cannot be used
    ├── NotSignedIn   401  no valid session
    ├── Forbidden     403  signed in, but not allowed
    ├── NotFound      404  not there, or not yours: the two look alike
    ├── Conflict      409  true when sent, no longer true now
    ├── TooLarge      413  over a limit of size
    ├── TooMany       429  over a limit of number; `retry_after` seconds
    └── Unavailable   503  a part of the service is away; `retry_after` seconds

Domains raise these or children of them; `web/errors.py` turns them into pages and toasts.
"""

from typing import ClassVar


class AppError(Exception):
    """An expected failure; `str()` is a whole sentence for the person who caused or met it."""

    status: ClassVar[int] = 500

    def __init__(self, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class BadInput(AppError):
    """Also carries `fields`: a sentence for each form field that is wrong."""

    status = 422

    def __init__(self, sentence: str, *, fields: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.fields = fields or {}


class NotSignedIn(AppError):
    status = 401


class Forbidden(AppError):
    status = 403


class NotFound(AppError):
    status = 404


class Conflict(AppError):
    status = 409


class TooLarge(AppError):
    status = 413


class TooMany(AppError):
    status = 429


class Unavailable(AppError):
    status = 503
