"""Selects over measurements, and what can be measured."""

from uuid import UUID

from sqlalchemy import Select, func, select
from sqlalchemy.orm import joinedload

from backend.bench.models import BenchRun
from backend.engines.models import Deployment, Engine

MOST_SHOWN = 100


def latest() -> Select[BenchRun]:
    return select(BenchRun).order_by(BenchRun.id.desc()).limit(MOST_SHOWN)


def one(run_id: UUID) -> Select[BenchRun]:
    return select(BenchRun).where(BenchRun.id == run_id)


def measurable() -> Select[Deployment]:
    """Whatever an engine in service offers, published or not: one measures before people come."""
    return (
        select(Deployment)
        .join(Deployment.engine)
        .options(joinedload(Deployment.engine))
        .where(Engine.enabled, Deployment.missing_since.is_(None))
        .order_by(func.lower(Engine.name), Deployment.upstream_name, Deployment.id)
    )
