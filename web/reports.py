"""Where browsers report that a page broke its Content-Security-Policy: a fault of ours, or an attack that failed."""

import logging

from fastapi import APIRouter, Request
from starlette.responses import Response

log = logging.getLogger(__name__)

router = APIRouter()

_LONGEST = 8 * 1024


@router.post("/csp-report")
async def csp_report(request: Request) -> Response:
    """Anybody can send one, so it is shortened and logged as data; the log escapes line breaks."""
    body = await request.body()
    report = body[:_LONGEST].decode("utf-8", "replace")
    log.warning("a browser reports a broken content security policy", extra={"report": report})
    return Response(status_code=204)
