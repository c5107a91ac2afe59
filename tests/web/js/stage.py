"""A stage for our scripts: the real templates under the real policy, and a server that behaves as a test says.

A whole site cannot be made to drop a stream after the tenth event, or to answer with a proxy's page; this one can.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4
from zoneinfo import ZoneInfo

from markupsafe import Markup

from backend.accounts.models import Area
from backend.groups.rights import Right
from web.gate import CONTENT_SECURITY_POLICY
from web.rendering import STATIC, templates

CHAT = "/chat/c1"
RUNNING = f"{CHAT}?running"
NO_OTHER_WAYS: dict[str, Any] = {"ways": [], "left": None, "passkey": None, "notice": None}
MOMENT = datetime(2026, 11, 30, 13, 52, tzinfo=UTC)
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CODE = "def f(x):\n    return x  # <b>\n"
BLOCKS = (
    "<p>Two things.</p>",
    "<ol><li>First.</li><li><p>Second.</p></li></ol>",
    '<figure class="code"><figcaption>Python</figcaption><pre tabindex="0"><code><span class="k">def</span> f(x):\n'
    "    return x  # &lt;b&gt;\n</code></pre></figure>",
    *(f"<p>Paragraph {number} of a text that is long enough to scroll.</p>" for number in range(30)),
)


@dataclass(frozen=True)
class Asked:
    """One request, as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    form: dict[str, str]


@dataclass(frozen=True)
class Reply:
    body: str | Iterator[str] = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Stage:
    """What the pages show and what the server does; a test changes either before it acts."""

    def __init__(self) -> None:
        self.person = "alice"
        self.asked: list[Asked] = []
        self.violations: list[str] = []
        self.pause = 0.01  # between two events of a stream
        self.may_end = Event()  # cleared, an answer is written and does not end
        self.may_end.set()
        self.break_after: int | None = None  # events until the next stream is cut off, once
        self.refuse_streams: int | None = None  # a status
        self.open_streams = 0
        self.branch: list[Any] = []  # what is shown, and what every step and every other version leads to
        self.about = ""  # the message that an action is about; else the last one
        self.ends: dict[str, Any] = {}  # how the next answer ends, other than well
        self.send: Callable[[Asked], Reply] = self.accept
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Stage":
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def requests(self, method: str, path: str) -> list[Asked]:
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    @property
    def sent(self) -> list[Asked]:
        return self.requests("POST", "/chat") + self.requests("POST", f"{CHAT}/messages")

    @property
    def streams(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.path.endswith("/events")]

    def reply(self, asked: Asked) -> Reply:
        match asked.method, asked.path:
            case "GET", "/":
                return self._chat([], begun=False)
            case "GET", "/chat/c1":
                return self._chat(self.branch or [question(), answer()])
            case "GET", "/chat/c1?running":
                return self._chat([question(), answer(running=True)])
            case "GET", "/chat/c1/messages/a1/events" | "/chat/c1/messages/a2/events":
                return self._stream(asked)
            case "GET", "/chat/c1/messages/a1" if self.refuse_streams:
                return Reply("", self.refuse_streams)
            case "GET", "/chat/c1/messages/a1":
                return Reply(self._render("chat/_message.html", message=answer("The end, asked for.")))
            case "POST", "/chat" | "/chat/c1/messages":
                return self.send(asked)
            case "GET", "/chat/c1/messages/q1?edit=q1":
                picker = _thread([])["picker"]
                return Reply(self._render("chat/_editor.html", message=question(), picker=picker, send_key=uuid4()))
            case "POST", path if path.endswith(("/show", "/regenerate", "/delete", "/continue")):
                return self.rebranched()
            case "POST", "/chat/c1/messages/a1/stop":
                return Reply(self._render("chat/_message.html", message=answer("Cut", status="stopped")))
            case "POST", "/settings/theme":
                return Reply(status=204)
            case "GET", "/login":
                return Reply(self._render("accounts/sign_in.html", next="/", email="", error=None, **NO_OTHER_WAYS))
            case "POST", "/login" | "/logout":
                target = asked.form.get("next", "/login")
                return Reply(status=303, headers={"Location": target})
        return Reply("Not here.", 404)

    def accept(self, asked: Asked) -> Reply:
        """What the site answers to a send: both messages and a fresh composer, or the whole of a new conversation."""
        turn = [question(asked.form["text"][:80], id="q2"), answer(running=True, id="a2")]
        if asked.path == "/chat":
            html = self._render("chat/_begun.html", **_thread(turn), item=_sidebar()["today"][0])
            return Reply(html, headers={"HX-Push-Url": CHAT})
        return Reply(self._render("chat/_turn.html", **_thread(turn)))

    def rebranched(self) -> Reply:
        """What the site answers when another branch is shown."""
        about = self.about or self.branch[-1].row.id
        html = self._render("chat/_rebranched.html", about=about, announce="", **_thread(self.branch))
        return Reply(html, headers={"HX-Retarget": "#thread", "HX-Reswap": "outerHTML"})

    def toast(self, status: int) -> Reply:
        html = self._render("_toast.html", message="An answer is being written.", serious=status >= 500)
        return Reply(html, status, {"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"})

    def _chat(self, messages: list[Any], *, begun: bool = True) -> Reply:
        return Reply(self._render("chat/conversation.html", **_thread(messages, begun=begun), **_sidebar()))

    def _stream(self, asked: Asked) -> Reply:
        if self.refuse_streams:
            return Reply("", self.refuse_streams)
        start = int(asked.headers.get("last-event-id", "0.0.0").rsplit(".", 1)[-1])
        end, self.break_after = self.break_after, None
        events = self._events(asked.path.split("/")[4], start, end)
        return Reply(events, headers={"Content-Type": "text/event-stream"})

    def _events(self, id: str, start: int, end: int | None) -> Iterator[str]:
        yield ": open\n\n"
        for number, block in list(enumerate(BLOCKS, 1))[start:end]:
            time.sleep(self.pause)
            growing = f'<hx-partial hx-target="#open-{id}" hx-swap="innerMorph">{block}</hx-partial>'
            finished = f'<hx-partial hx-target="#blocks-{id}" hx-swap="beforeend">{block}</hx-partial>'
            emptied = f'<hx-partial hx-target="#open-{id}" hx-swap="innerMorph"></hx-partial>'
            yield _event(growing)
            yield _event(finished + emptied, id=f"1.0.{number}")
        if end is None:
            self.may_end.wait(60)
            yield _event(
                self._render("chat/_finished.html", message=answer("".join(BLOCKS), id=id, **self.ends), look=None),
                id="1.0.99",
            )
            yield "event: finished\ndata:\n\n"

    def _render(self, template: str, **context: Any) -> str:
        viewer = SimpleNamespace(
            id=self.person,
            name="Alice Owner",
            email="alice@corp.example",
            initials="AO",
            theme="system",
            is_admin=True,
            areas=frozenset(Area),
        )
        signed_out = template.startswith("accounts/")
        return (
            templates()
            .get_template(template)
            .render(
                viewer=None if signed_out else viewer,
                company="Corp",
                support_id="0197",
                path="/",
                zone=ZoneInfo("UTC"),
                may=frozenset(Right),
                limits=SimpleNamespace(bytes=20 * 1024 * 1024, per_message=10),
                **context,
            )
        )


def _event(html: str, id: str | None = None) -> str:
    lines = [f"data: {line}" for line in html.split("\n")]
    return "\n".join([*([f"id: {id}"] if id else []), *lines]) + "\n\n"


class _Word(str):
    """Stands for a member of an enumeration: a word that knows its value."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


def _message(
    id: str, text: str, *, status: str = "done", provenance: dict[str, str] | None = None, **more: Any
) -> SimpleNamespace:
    row = SimpleNamespace(
        id=id,
        conversation_id="c1",
        created_at=MOMENT,
        text=text,
        status=_Word(status),
        reasoning="",
        reason="",
        ended_by="stop",
        deleted_at=None,
        is_continuation=False,
        instruction="",
        model_id="m1",
        provenance=provenance or {},
        context_from=None,
        context_tokens=1000,
        rating=None,
    )
    shown: dict[str, Any] = {
        "row": row,
        "html": Markup(text),
        "color": "",
        "files": (),
        "live": None,
        "facts": [],
        "summary": "",
        "siblings": None,
        "way_on": "continue" if status == "stopped" else "",
        "can_proceed": True,
        "is_edited": False,
        "spells_out": False,
        "begins_context": False,
    }
    return SimpleNamespace(**shown | more)


def question(text: str = "Why?", id: str = "q1", **more: Any) -> SimpleNamespace:
    return _message(id, text, is_question=True, running=False, speaker="You", **more)


def siblings(number: int, before: str | None, after: str | None) -> SimpleNamespace:
    return SimpleNamespace(number=number, count=2, before=before, after=after)


def answer(
    html: str = "".join(BLOCKS[:3]), *, running: bool = False, status: str = "done", id: str = "a1", **more: Any
) -> SimpleNamespace:
    live = SimpleNamespace(cursor="0.0.0", reasoning="", blocks=Markup(), open=Markup(), phase="waiting", place=None)
    return _message(
        id,
        "" if running else html,
        status="streaming" if running else status,
        is_question=False,
        running=running,
        speaker="Fake 8B",
        live=live if running else None,
        **more,
    )


def _choice(**more: Any) -> SimpleNamespace:
    shown = {
        "description": "",
        "problem": None,
        "selected": False,
        "color": "",
        "adjusts": "",
        "window": None,
        "room": None,
    }
    return SimpleNamespace(**shown | more)


def _thread(messages: list[Any], *, begun: bool = True) -> dict[str, Any]:
    choices = [
        _choice(id="m1", name="Fake 8B", selected=True, window=4000, room=3000),
        _choice(id="m2", name="Fake 70B"),
    ]
    conversation = SimpleNamespace(id="c1", title="Why", model_id="m1", parameters={})
    return {
        "conversation": conversation if begun else None,
        "messages": messages,
        "picker": choices,
        "instead": None,
        "context": SimpleNamespace(used=1000, window=4000),
        "send_key": uuid4(),
        "hour": 13,
    }


def _sidebar() -> dict[str, Any]:
    item = SimpleNamespace(id="c1", title="Why", running=False, unread=False, current=True)
    return {"begins": True, "today": [item], "groups": [], "next_page": None}


def _handler(stage: Stage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path.startswith("/static/"):
                self._static(path.removeprefix("/static/"))
            else:
                self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            if self.path == "/csp-report":
                stage.violations.append(json.loads(body)["csp-report"]["violated-directive"])
                return self._send(Reply(status=204))
            # A mark of the stage (`?running`) is part of its path; what a stream is asked from is not.
            path = self.path.partition("?since=")[0]
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, path, headers, dict(parse_qsl(body, keep_blank_values=True)))
            stage.asked.append(asked)
            return self._send(stage.reply(asked))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            headers = {
                "Content-Type": "text/html; charset=utf-8",
                "Cache-Control": "no-store",
                "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            }
            for name, value in (headers | reply.headers).items():
                self.send_header(name, value)
            if isinstance(reply.body, str):
                content = reply.body.encode()
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            else:
                self._stream(reply.body)

        def _stream(self, events: Iterator[str]) -> None:
            self.send_header("Connection", "close")
            self.end_headers()
            stage.open_streams += 1
            try:
                for event in events:
                    self.wfile.write(event.encode())
            except (BrokenPipeError, ConnectionResetError):
                pass  # the reader has gone, as many tests want it to
            finally:
                stage.open_streams -= 1

        def _static(self, name: str) -> None:
            content = (STATIC / name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", TYPES[(STATIC / name).suffix])
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "max-age=3600")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler
