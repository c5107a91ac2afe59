"""How the answers of a model's revisions compare: counts and medians, never a text or a name."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from backend.core.direct import Direct
from backend.engines.models import Stage

# A copy in a fork has no row of usage: an answer counts once, where it was written.
_COMPARE: Final[LiteralString] = """
SELECT stage,
       count(*) AS answers,
       count(*) FILTER (WHERE rating = 1) AS good,
       count(*) FILTER (WHERE rating = -1) AS bad,
       count(*) FILTER (WHERE status = 'failed' OR status = 'interrupted') AS broken,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY (provenance->>'first_token_seconds')::float) AS first_token_seconds,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY
           (provenance->>'completion_tokens')::float
           / nullif((provenance->>'seconds')::float - (provenance->>'first_token_seconds')::float, 0)
       ) AS tokens_per_second
FROM messages JOIN deployments ON deployments.id = (provenance->>'deployment')::uuid
WHERE messages.model_id = %(model)s AND messages.created_at >= %(since)s AND finished_at IS NOT NULL
  AND EXISTS (SELECT FROM usage WHERE usage.message_id = messages.id)
GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the answers one revision gave to people. Medians are None where no answer told."""

    answers: int
    good: int
    bad: int
    broken: int
    first_token_seconds: float | None
    tokens_per_second: float | None


NOTHING: Final = Figures(0, 0, 0, 0, None, None)


async def compare(direct: Direct, model_id: UUID, since: datetime) -> Mapping[Stage, Figures]:
    """Of answers asked for since then, by the stage that their deployment is in now; one without answers is missing."""
    rows = await direct.as_worker(_COMPARE, {"model": model_id, "since": since})
    return {
        Stage(row.stage): Figures(
            row.answers, row.good, row.bad, row.broken, row.first_token_seconds, row.tokens_per_second
        )
        for row in rows
    }
