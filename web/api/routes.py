"""`/v1`: what programs ask with an API key, in OpenAI's shapes. See `docs/api.md`."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from backend.engines.registry import Offer
from web.api.answering import Answer, Desk
from web.api.callers import Caller
from web.api.errors import ModelNotFound

router = APIRouter(prefix="/v1")


async def _caller(request: Request) -> Caller:
    """The policy table has let them in already (`web/policy.py`)."""
    caller: Caller = request.state.caller
    return caller


async def _desk(request: Request) -> Desk:
    desk: Desk = request.state.api
    return desk


CurrentCaller = Annotated[Caller, Depends(_caller)]
ApiDesk = Annotated[Desk, Depends(_desk)]


@router.get("/models")
async def models(caller: CurrentCaller, desk: ApiDesk) -> Response:
    """Those this key may use, also while no engine can answer for them."""
    offers = desk.catalogue.offers_for(caller)
    return _json({"object": "list", "data": [_model(name, offer) for name, offer in offers.items()]})


@router.get("/models/{model_id}")
async def model(model_id: str, caller: CurrentCaller, desk: ApiDesk) -> Response:
    found = desk.catalogue.find(caller, model_id)
    if found is None:
        raise ModelNotFound(model_id[:100])
    return _json(_model(*found))


@router.post("/chat/completions")
async def complete(request: Request, caller: CurrentCaller, desk: ApiDesk) -> Response:
    """Everything else happens while it replies: nothing of this must outlive the reply, or be missed by it."""
    return Answer(request, caller, desk)


def _model(name: str, offer: Offer) -> dict[str, object]:
    """`name` and `context_length` are beside OpenAI's fields; many clients show them."""
    return {
        "id": name,
        "object": "model",
        "created": (offer.id.int >> 80) // 1000,  # a UUIDv7 begins with its time
        "owned_by": "parley",
        "name": offer.name,
        "context_length": offer.window,
    }


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
