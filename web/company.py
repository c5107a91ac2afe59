"""The name of the company, on every page: read once, changed where it is set."""

from dataclasses import dataclass


@dataclass
class Company:
    name: str
