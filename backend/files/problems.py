"""Why a file cannot be read, as a word that crosses the border between processes."""

from enum import StrEnum


class Problem(StrEnum):
    UNKNOWN = "unknown"  # none of the kinds that can be attached
    DAMAGED = "damaged"
    ENCRYPTED = "encrypted"
    NO_TEXT = "no-text"  # scanned, or nothing but pictures
    LONG = "long"  # more text than is allowed
    PIXELS = "pixels"
    UNPACKS = "unpacks"  # small, but huge once unpacked
    SLOW = "slow"
    MEMORY = "memory"


class Unreadable(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.value)
        self.problem = problem
