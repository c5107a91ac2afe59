"""What routes ask for."""

import inspect
from collections.abc import Iterator

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from backend.core.settings import Settings
from backend.main import create_app


def test_no_dependency_is_run_in_a_thread(settings: Settings) -> None:
    """FastAPI does that with every plain function, and it costs more than most of them do."""

    def everything(dependant: Dependant) -> Iterator[Dependant]:
        yield dependant
        for inner in dependant.dependencies:
            yield from everything(inner)

    app = create_app(settings)
    contexts = iter_route_contexts(list(app.routes))
    routes = [context.original_route for context in contexts if isinstance(context.original_route, APIRoute)]
    called = {inner.call for route in routes for inner in everything(route.dependant) if inner.call}

    plain = [call for call in called if not (inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call))]
    assert len(called) > 30
    assert plain == []
