"""What every request passes first: whatever route it is for, and whether there is one."""

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Form, Request
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse

import backend
import web
from backend.core.errors import Conflict
from backend.core.settings import Settings
from tests.web.small import MAX_BODY, Lines, log, small_site
from web.gate import CONTENT_SECURITY_POLICY
from web.rendering import static
from web.reports import router as reports

__all__ = ["log"]

SUPPORT_ID = re.compile(r"<code>([a-z2-9]{4}-[a-z2-9]{4})</code>")
OURS = "http://parley.test"

router = APIRouter()
router.include_router(reports)
done: list[str] = []


@router.get("/page")
async def page() -> Response:
    return HTMLResponse("<p>Hello</p>")


@router.api_route("/change", methods=["POST", "PUT", "PATCH", "DELETE", "PROPFIND"])
async def change(request: Request) -> Response:
    done.append(request.method)
    return PlainTextResponse("done")


@router.post("/form")
async def form(text: Annotated[str, Form()]) -> Response:
    return PlainTextResponse(str(len(text)))


@router.post("/body")
async def body(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


@router.get("/conflict")
async def conflict() -> Response:
    raise Conflict("This has changed meanwhile.")


@router.get("/broken")
async def broken() -> Response:
    secret = "geheim"
    raise RuntimeError(f"a fault of ours with {secret}")


@router.get("/breaks-off")
async def breaks_off() -> Response:
    async def pieces() -> AsyncIterator[str]:
        yield "half of"
        raise RuntimeError("a fault of ours in the middle")

    return StreamingResponse(pieces())


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    done.clear()
    async with small_site(router, origin=OURS) as client:
        yield client


# Headers


async def test_every_reply_carries_the_headers_that_protect_it(client: httpx.AsyncClient) -> None:
    replies = [await client.get(path) for path in ("/page", "/conflict", "/broken", "/nowhere")]

    for reply in replies:
        assert reply.headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
            "connect-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
            "object-src 'none'; require-trusted-types-for 'script'; trusted-types htmx; report-uri /csp-report; "
            "report-to csp"
        )
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["vary"] == "HX-Request, Cookie"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin"
        assert reply.headers["cross-origin-opener-policy"] == "same-origin"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["reporting-endpoints"] == 'csp="/csp-report"'
        assert "microphone=()" in reply.headers["permissions-policy"]


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none';")
    assert not re.search(r"unsafe|\*|data:|blob:|https?:", CONTENT_SECURITY_POLICY)


async def test_a_static_file_is_kept_for_ever_under_the_address_of_its_content(client: httpx.AsyncClient) -> None:
    named = await client.get(static("app.css"))
    unnamed = await client.get("/static/app.css")
    again = await client.get("/static/app.css", headers={"if-none-match": unnamed.headers["etag"]})
    missing = await client.get("/static/nothing.css?v=1")

    assert named.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "cookie" not in named.headers.get("vary", "").lower()
    assert (unnamed.headers["cache-control"], again.status_code) == ("no-cache", 304)
    assert (missing.status_code, missing.headers["cache-control"]) == (404, "no-store")


# Support ids, the last resort, the log


@pytest.mark.parametrize(
    ("path", "status"), [("/conflict", 409), ("/broken", 500), ("/nowhere", 404), ("/change", 405)]
)
async def test_every_error_page_shows_the_support_id_of_its_log_lines(
    client: httpx.AsyncClient, log: Lines, path: str, status: int
) -> None:
    reply = await client.get(path)

    shown = SUPPORT_ID.search(reply.text)
    assert reply.status_code == status
    assert shown
    lines = [json.loads(line) for line in log.lines if f"GET {path}" in line]
    assert lines
    assert {line["support_id"] for line in lines} == {shown[1]}
    assert lines[-1]["status"] == status


async def test_a_serious_toast_shows_the_support_id(client: httpx.AsyncClient, log: Lines) -> None:
    reply = await client.get("/broken", headers={"hx-request": "true"})

    shown = SUPPORT_ID.search(reply.text)
    assert (reply.status_code, reply.headers["hx-retarget"]) == (500, "#toasts")
    assert shown
    assert shown[1] in log.text


async def test_every_request_has_an_id_of_its_own(client: httpx.AsyncClient) -> None:
    replies = await asyncio.gather(*(client.get("/nowhere") for _ in range(20)))

    shown = [SUPPORT_ID.search(reply.text) for reply in replies]
    assert len({found[1] for found in shown if found}) == 20


async def test_a_fault_of_ours_is_a_page_without_its_insides_and_a_log_line_with_them(
    client: httpx.AsyncClient, log: Lines
) -> None:
    reply = await client.get("/broken")

    assert reply.status_code == 500
    assert "Something went wrong on our side. Nothing you wrote is lost." in reply.text
    assert not re.search("Traceback|RuntimeError|geheim|test_gate", reply.text)
    assert "RuntimeError: a fault of ours" in log.text
    assert (await client.get("/page")).status_code == 200


async def test_a_reply_that_breaks_off_does_not_look_complete(client: httpx.AsyncClient, log: Lines) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get("/breaks-off")

    assert "a fault of ours in the middle" in log.text


async def test_a_query_string_is_never_logged(client: httpx.AsyncClient, log: Lines) -> None:
    """It may hold the secret of a one-time link."""
    for path in ("/page", "/conflict", "/broken", "/nowhere"):
        await client.get(f"{path}?secret=geheim")

    assert "GET /page" in log.text
    assert "secret=" not in log.text


async def test_a_stranger_cannot_forge_a_log_line(client: httpx.AsyncClient, log: Lines) -> None:
    await client.get("/x%0d%0a%7b%22level%22:%22info%22%7d")

    assert [json.loads(line)["message"] for line in log.lines if "/x" in line] == ['GET /x\r\n{"level":"info"}']


@pytest.mark.parametrize("host", ["[", "a b", "", "[::1", "evil.example:99999999"])
async def test_a_garbage_host_is_no_fault_of_ours(client: httpx.AsyncClient, log: Lines, host: str) -> None:
    """Nothing is built from it, so nothing can stumble over it."""
    replies = [await client.get(path, headers={"host": host}) for path in ("/page", "/conflict", "/nowhere")]

    assert [reply.status_code for reply in replies] == [200, 409, 404]
    assert "Traceback" not in log.text


# Where an unsafe request comes from

UNSAFE = ("POST", "PUT", "PATCH", "DELETE", "PROPFIND")


@pytest.mark.parametrize("method", UNSAFE)
async def test_a_request_that_another_site_forged_is_refused(
    client: httpx.AsyncClient, log: Lines, method: str
) -> None:
    for headers in ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, {"origin": "null"}, {}):
        reply = await client.request(method, "/change", headers={"cookie": "sid=1", **headers})

        assert reply.status_code == 403
        assert "This request came from another site, so nothing was done." in reply.text
        assert SUPPORT_ID.search(reply.text)

    assert done == []


@pytest.mark.parametrize("method", UNSAFE)
async def test_a_request_of_our_own_pages_passes(client: httpx.AsyncClient, method: str) -> None:
    reply = await client.request(method, "/change", headers={"sec-fetch-site": "same-origin", "cookie": "sid=1"})

    assert (reply.text, done) == ("done", [method])


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin", "origin": OURS}, True),
        ({"sec-fetch-site": "same-origin", "origin": "https://evil.example"}, True),  # only a browser can say the first
        ({"sec-fetch-site": "same-site"}, False),  # another name under the same company domain
        ({"sec-fetch-site": "same-site", "origin": OURS}, False),
        ({"sec-fetch-site": "cross-site", "origin": OURS}, False),
        ({"sec-fetch-site": "none", "origin": OURS}, False),
        ({"sec-fetch-site": "", "origin": OURS}, False),
        ({"origin": OURS}, True),  # over plain http browsers do not send the other header
        ({"origin": OURS + "/"}, False),
        ({"origin": "https://parley.test"}, False),
        ({"origin": "http://parley.test:8080"}, False),
        ({"origin": "http://parley.test.evil.example"}, False),
        ({"origin": "http://evil.parley.test"}, False),
        ({"referer": OURS + "/chat"}, False),
        ({}, False),
        ({"authorization": "Bearer key"}, True),
        ({"authorization": "bearer key"}, True),
        ({"authorization": "Bearer key", "sec-fetch-site": "cross-site"}, True),
        ({"authorization": "Bearer key", "cookie": "sid=1"}, False),  # the cookie would be the authority
        ({"authorization": "Bearer key", "cookie": ""}, False),
        ({"authorization": "Basic a2V5"}, False),  # browsers add it by themselves
        ({"authorization": "Basic a2V5", "cookie": "sid=1", "sec-fetch-site": "same-origin"}, True),
    ],
)
async def test_who_says_where_a_request_comes_from(
    client: httpx.AsyncClient, headers: dict[str, str], passes: bool
) -> None:
    reply = await client.post("/change", headers=headers)

    assert (reply.status_code, done) == ((200, ["POST"]) if passes else (403, []))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_link_from_anywhere_may_be_followed(client: httpx.AsyncClient, method: str) -> None:
    reply = await client.request(method, "/page", headers={"sec-fetch-site": "cross-site", "cookie": "sid=1"})

    assert reply.status_code in (200, 405)


async def test_browsers_may_report_from_anywhere(client: httpx.AsyncClient, log: Lines) -> None:
    report = json.dumps({"csp-report": {"blocked-uri": "inline", "x": "y" * 9_000}})

    reply = await client.post("/csp-report", content=report, headers={"sec-fetch-site": "cross-site"})

    assert (reply.status_code, reply.content) == (204, b"")
    reported = next(json.loads(line) for line in log.lines if "report" in json.loads(line))["report"]
    assert reported.startswith('{"csp-report": {"blocked-uri": "inline"')
    assert len(reported) == 8 * 1024


# How large it is

SAME = {"sec-fetch-site": "same-origin"}


async def in_pieces(size: int) -> AsyncIterator[bytes]:
    """Sent as chunks, so that nobody is told its length before."""
    yield b"text="
    for start in range(5, size, 1_000):
        yield b"x" * min(1_000, size - start)


FORM = {"content-type": "application/x-www-form-urlencoded", **SAME}


@pytest.mark.parametrize("path", ["/form", "/body"])
async def test_what_is_just_small_enough_is_read(client: httpx.AsyncClient, path: str) -> None:
    whole = await client.post(path, content=b"text=" + b"x" * (MAX_BODY - 5), headers=FORM)
    chunked = await client.post(path, content=in_pieces(MAX_BODY), headers=FORM)

    assert {whole.text, chunked.text} == {str(MAX_BODY - 5) if path == "/form" else str(MAX_BODY)}


@pytest.mark.parametrize("path", ["/form", "/body"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_what_is_too_large_gets_a_page_that_says_so(client: httpx.AsyncClient, path: str, chunked: bool) -> None:
    content = in_pieces(MAX_BODY + 1) if chunked else b"text=" + b"x" * (MAX_BODY - 4)

    reply = await client.post(path, content=content, headers=FORM)

    assert reply.status_code == 413
    assert "<h1>This is too large</h1>" in reply.text
    assert "Please shorten it; your text is kept." in reply.text
    assert SUPPORT_ID.search(reply.text)
    assert reply.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert (await client.post("/body", content=b"x", headers=SAME)).text == "1"


async def test_what_says_that_it_is_too_large_is_refused_before_it_is_sent(client: httpx.AsyncClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
    writer.write(b"POST /form HTTP/1.1\r\nhost: x\r\nsec-fetch-site: same-origin\r\ncontent-length: 50000\r\n\r\n")

    async with asyncio.timeout(2):
        status_line = await reader.readline()

    writer.close()
    assert status_line.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("chunked", [False, True])
async def test_for_a_fragment_it_is_a_toast(client: httpx.AsyncClient, chunked: bool) -> None:
    content = in_pieces(50_000) if chunked else b"x" * 50_000

    reply = await client.post("/form", content=content, headers={"hx-request": "true", **FORM})

    assert (reply.status_code, reply.headers["hx-retarget"]) == (413, "#toasts")
    assert "This is too large to send." in reply.text


# How it is built


def test_nothing_is_wrapped_in_a_middleware_that_buffers() -> None:
    """`BaseHTTPMiddleware` costs each token of each stream, and holds the headers back until the first one."""
    for package in (backend, web):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                name = getattr(node, "id", getattr(node, "attr", getattr(node, "name", None)))
                assert name != "BaseHTTPMiddleware", path
                assert not (isinstance(node, ast.Attribute) and node.attr == "middleware"), path


def test_the_whole_site_is_wrapped_in_the_gate_alone() -> None:
    from backend.main import create_app

    app = create_app(Settings(secret_key="0123456789abcdef0123456789abcdef"))

    kinds = [each.cls for each in app.user_middleware]
    assert [kind.__name__ for kind in kinds if isinstance(kind, type)] == ["Gate"]
    assert not any(isinstance(kind, type) and issubclass(kind, BaseHTTPMiddleware) for kind in kinds)
