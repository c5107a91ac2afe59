"""How an engine is, and when to look again."""

import asyncio
import random
from dataclasses import dataclass
from datetime import datetime

from backend.core.i18n import _
from backend.engines.client import EngineClient
from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import failed
from backend.engines.findings import Findings

# For a list any engine has at hand; a machine under load may take a moment even when it is asked often.
_LEAST_WAIT, _LONGEST_WAIT = 1.0, 5.0
_QUICK = 8  # an engine that went away is first looked for this much sooner than a healthy one, then less and less
_SLOWEST = 3
_LONGEST_DELAY = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    """How an engine was when it was last looked at. Before the first look it is taken to be well."""

    problem: str | None = None
    since: datetime | None = None  # when the problem began
    checked_at: datetime | None = None
    kind: Failure | None = None

    def failed(self, failure: EngineFailed, at: datetime, *, answered_before: bool) -> "Health":
        problem = str(failure) if answered_before else _until_it_answers(failure)
        return Health(problem, self.since or at, at, failure.kind)


async def look(client: EngineClient, interval: float, *, thorough: bool) -> Findings:
    """What the engine serves and, if `thorough`, what it is. Raises `EngineFailed`, in good time if nothing comes."""
    try:
        async with asyncio.timeout(min(_LONGEST_WAIT, max(_LEAST_WAIT, interval))):
            if thorough:
                probe = await client.probe()
                found = Findings(probe.kind, probe.version, probe.models)
            else:
                found = Findings(None, None, await client.models())
            await client.check_health()
            return found
    except TimeoutError:
        raise failed(Failure.TIMEOUT, "no list of models in time") from None


def pause(interval: float, failures: int) -> float:
    """Seconds until the next look: spread, so that many processes do not ask at the same moment."""
    if failures:
        interval = min(interval / _QUICK * 2.0 ** min(failures - 1, 10), interval * _SLOWEST)
    return interval * random.uniform(0.8, 1.2)  # noqa: S311 — only spreads the load


def delay(interval: float) -> float:
    """Seconds to wait before something is tried, so that neither engines nor processes do it all at once."""
    return random.uniform(0, min(_LONGEST_DELAY, interval / 5))  # noqa: S311 — only spreads the load


def _until_it_answers(failure: EngineFailed) -> str:
    """One sentence whether a port is closed, filtered or somebody else's, so that no network can be explored."""
    if failure.kind.engines:
        return str(failure)
    return _("No engine answers at this address.")
