"""How to ask an engine for the tokens of a prompt: the page, and where in its answer the number stands."""

from collections.abc import Callable
from dataclasses import dataclass

from backend.engines.events import Failure
from backend.engines.failures import failed
from backend.engines.pages import Page, told


@dataclass(frozen=True, slots=True)
class Counter:
    path: str
    number: Callable[[object], object]
    in_api: bool = False  # below `/v1`, else beside it

    def read(self, page: Page) -> int:
        """Raises `EngineFailed` with `NONSENSE` for a page that is no count."""
        count = self.number(page.json)
        if type(count) is not int or count < 0:
            raise failed(Failure.NONSENSE, page.body[:500].decode("utf-8", "replace"))
        return count


def field(name: str) -> Callable[[object], object]:
    return lambda payload: told(payload, name)


def length_of(name: str) -> Callable[[object], object]:
    """For engines that list the tokens instead of counting them."""

    def count(payload: object) -> object:
        found = told(payload, name)
        return len(found) if isinstance(found, list) else None

    return count
