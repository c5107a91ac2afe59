"""For load balancers and supervisors: is the process alive, and should it get traffic?"""

from fastapi import APIRouter, Request
from sqlalchemy import text
from starlette.responses import JSONResponse

from backend.core.db import DatabaseGone

router = APIRouter()


@router.get("/healthz")
async def healthz() -> JSONResponse:
    """200 as long as the event loop turns; asks nothing of anybody."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 when a request would succeed: not shutting down, and the database answers."""
    if request.state.lifecycle.stopping:
        return JSONResponse({"status": "stopping"}, status_code=503)
    try:
        async with request.state.sessions.begin() as session:
            await session.execute(text("SELECT 1"))
    except DatabaseGone:
        return JSONResponse({"status": "database away"}, status_code=503)
    return JSONResponse({"status": "ready"})
