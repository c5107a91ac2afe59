"""Attachments over HTTP: one upload at a time, removal before sending, and the bytes back."""

from pathlib import PurePosixPath
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, cast
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response, StreamingResponse

from backend.core.db import Session
from backend.core.errors import BadInput, NotFound, TooLarge
from backend.core.i18n import _
from backend.engines.registry import Registry
from backend.files import queries, service, sight
from backend.files.models import File, Kind
from backend.files.names import human_size
from backend.groups.rights import Right
from web.dependencies import AllSessions, CurrentUser, FileLimits, FileReader, Models
from web.files.view import FileView
from web.forms import plain_form
from web.rendering import partial
from web.rights import rights_of

router = APIRouter(prefix="/files")

_ENDINGS = {Kind.PNG: (".png",), Kind.JPEG: (".jpg", ".jpeg")}


@router.post("")
async def upload(
    request: Request,
    user: CurrentUser,
    session: Session,
    sessions: AllSessions,
    registry: Models,
    extractor: FileReader,
    limits: FileLimits,
) -> HTMLResponse:
    """Answers with the chip for the composer; it holds the field that goes along with the message.

    Not through FastAPI's own parameters: those are read before the route runs, under the small limits of all others.
    """
    await session.commit()  # a slow network must not hold a connection
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadInput(_("This request could not be read, so nothing was done."))
    try:
        form = await request.form(max_files=1, max_fields=1, max_part_size=100)
    except ClientDisconnect as error:
        raise BadInput(_("The upload broke off.")) from error
    except HTTPException as error:
        if error.status_code == 413:
            raise TooLarge(_("Files may have {limit}.").format(limit=human_size(limits.bytes))) from error
        raise
    try:
        given = form.get("file")
        if not isinstance(given, UploadFile):
            raise BadInput(_("There is no file in this request."))
        file = await service.receive(
            sessions,
            extractor,
            user.id,
            given.filename or "",
            _on_disk(given),
            limits,
            refuse_pictures=_why_no_pictures(request, registry, user.id, form.get("model")),
        )
    finally:
        await form.close()
    return partial(request, "files/_chip.html", file=FileView.of(file))


@router.get("/{file_id}")
async def download(file: "OwnFile", sessions: AllSessions) -> Response:
    """Pictures are ours, drawn anew, and shown; everything else may be anything, so browsers only ever save it."""
    kind = file.blob.kind
    name, how = file.name, "attachment"
    if kind.is_picture:
        how = "inline"
        if not name.lower().endswith(_ENDINGS[kind]):
            name = PurePosixPath(name).stem + _ENDINGS[kind][0]
    return StreamingResponse(
        service.stream(sessions, file),
        media_type=f"image/{kind}" if kind.is_picture else "application/octet-stream",
        headers={
            "content-length": str(file.blob.size),
            "content-disposition": f"{how}; filename*=UTF-8''{quote(name, safe='')}",
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


@router.post("/{file_id}/remove", dependencies=[Depends(plain_form)])
async def remove(file_id: UUID, user: CurrentUser, session: Session) -> Response:
    await service.remove_unsent(session, user.id, file_id)
    return Response(status_code=204)


async def own_file(file_id: UUID, user: CurrentUser, session: Session) -> File:
    found = await session.scalar(queries.visible_to(user.id).where(File.id == file_id))
    if found is None:
        raise NotFound(_("There is no file here. It may have been deleted, or it belongs to somebody else."))
    return found


OwnFile = Annotated[File, Depends(own_file)]


def _why_no_pictures(request: Request, registry: Registry, person_id: UUID, model: object) -> str | None:
    """Why this person, or the model in the composer, cannot be given a picture, if so."""
    if Right.PICTURES not in rights_of(request):
        return _("Pictures are switched off for you. Your administrators can allow them.")
    offers = registry.offers_for(person_id)
    chosen = next((offer for offer in offers if str(offer.id) == model), None)
    return sight.refusal(chosen, offers)


def _on_disk(given: UploadFile) -> IO[bytes]:
    """The temporary file itself: a small one is in memory until somebody asks, where no other process can read it."""
    spooled = cast("SpooledTemporaryFile[bytes]", given.file)
    spooled.rollover()
    return cast("IO[bytes]", spooled)
