"""How models and what runs on engines are named in the audit; engines themselves in `service.py`."""

from backend.audit.service import Target
from backend.engines.models import Deployment, Model


def model_target(model: Model) -> Target:
    return Target("model", model.id, model.name)


def deployment_target(deployment: Deployment) -> Target:
    """What runs on one engine goes by the engine's name for it."""
    return Target("deployment", deployment.id, deployment.upstream_name)
