"""How the answers of a model's revisions compare: counts and medians, never a text or a name."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from backend.core.direct import Direct
from backend.engines.models import Stage

MOST: Final = 5_000
"""Answers that are looked at: the newest ones. More would tell the same, and take a page longer to draw."""

# A copy in a fork has no row of usage: an answer counts once, where it was written. One that a deployment did not
# begin, and that another one gave, is told among its tries.
_COMPARE: Final[LiteralString] = """
WITH newest AS (
    SELECT provenance, rating, status FROM messages
    WHERE model_id = %(model)s AND created_at >= %(since)s AND finished_at IS NOT NULL
      AND EXISTS (SELECT FROM usage WHERE usage.message_id = messages.id)
    ORDER BY created_at DESC LIMIT %(most)s
), answers AS (
    SELECT provenance->>'deployment' AS deployment, rating, status IN ('failed', 'interrupted') AS broke,
           (provenance->>'first_token_seconds')::float AS first_token, (provenance->>'seconds')::float AS seconds,
           (provenance->>'completion_tokens')::float AS tokens
    FROM newest
    UNION ALL
    SELECT try->>'deployment', NULL, true, NULL, NULL, NULL
    FROM newest, jsonb_array_elements(coalesce(provenance->'tries', '[]')) AS try
    WHERE try->>'failure' <> 'overloaded'
)
SELECT stage, count(*) AS answers, count(*) FILTER (WHERE rating = 1) AS good,
       count(*) FILTER (WHERE rating = -1) AS bad, count(*) FILTER (WHERE broke) AS broken,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY first_token) AS first_token_seconds,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY tokens / nullif(seconds - first_token, 0)) AS tokens_per_second
FROM answers JOIN deployments ON deployments.id = answers.deployment::uuid
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
    rows = await direct.as_worker(_COMPARE, {"model": model_id, "since": since, "most": MOST})
    return {
        Stage(row.stage): Figures(
            row.answers, row.good, row.bad, row.broken, row.first_token_seconds, row.tokens_per_second
        )
        for row in rows
    }
