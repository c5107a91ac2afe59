"""What is no form, or no clear one, changes nothing and is told so."""

import json
from typing import Any

from backend.accounts.models import Purpose, User
from backend.core.db import Sessions
from tests.accounts.conftest import link_for
from tests.conftest import PASSWORD, OpenBrowser
from tests.site import Browser
from tests.web.accounts.conftest import NEW_PASSWORD, Rows, submit

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
PARTS = "multipart/form-data; boundary=x"

# Every route of accounts and people that changes something, with a form that it takes.
TAKEN: dict[str, dict[str, str]] = {
    "/login": {"email": "alice@corp.example", "password": PASSWORD},
    "/setup": {"name": "Ines", "email": "ines@corp.example", "company": "Fernhill", "password": NEW_PASSWORD},
    "/join": {"password": NEW_PASSWORD},
    "/settings": {"name": "Mallory", "time_zone": ""},
    "/settings/theme": {"theme": "dark"},
    "/settings/password": {"current_password": PASSWORD, "new_password": NEW_PASSWORD},
    "/admin/people": {"name": "Dora", "email": "dora@corp.example", "role": "admin"},
    "/admin/people/{alice}/link": {},
    "/admin/people/{alice}/role": {"role": "admin"},
    "/admin/people/{alice}/disable": {},
    "/admin/people/{alice}/enable": {},
    "/logout": {},  # the last: without a session the others would be refused for that
}

_BROKEN_OFF = '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
_TWICE = "{form}&{form}"
_FINE_WITHOUT_FIELDS = (_BROKEN_OFF, _TWICE)  # to a button without fields these are the empty form that it sends
_NESTED = json.dumps("[" * 100)[1:-1] + "]" * 100
_BODIES: dict[str, tuple[str | None, str]] = {
    "nothing": (None, ""),
    "null": (JSON, "null"),
    "a list": (JSON, "[]"),
    "an argument of null": (JSON, '{"arg":null}'),
    "a hundred levels": (JSON, _NESTED),
    "the right fields as JSON": (JSON, "{fields}"),
    "the form as text": ("text/plain", "{form}"),
    "the form without a type": (None, "{form}"),
    "XML": ("text/xml", "<a/>"),
    "a type that is none": ("\x7f;;=", "{form}"),
    "parts without a boundary": ("multipart/form-data", "{form}"),
    "parts that break off": (PARTS, _BROKEN_OFF),
    "a file": (PARTS, '--x\r\nContent-Disposition: form-data; name="name"; filename="f"\r\n\r\ny\r\n--x--\r\n'),
    "every field twice": (FORM, _TWICE),
    "one field twice": (FORM, "{form}&a=1&a=2"),
    "a thousand fields": (FORM, "{form}&" + "&".join(f"a{n}=1" for n in range(1000))),
}


async def test_a_request_that_is_no_clear_form_is_refused_everywhere_and_changes_nothing(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User, rows: Rows
) -> None:
    page = await browser(carol)
    links = {"/join": await link_for(db, Purpose.RESET, alice), "/setup": await link_for(db, Purpose.SETUP)}
    before = rows()

    found = {
        (path, what): await _post(page, path.format(alice=alice.id), kind, _fill(body, fields), links.get(path))
        for what, (kind, body) in _BODIES.items()
        for path, fields in TAKEN.items()
        if fields or body not in _FINE_WITHOUT_FIELDS
    }

    assert {key: status for key, status in found.items() if not 400 <= status < 500} == {}
    assert rows() == before


async def test_the_same_routes_take_a_clear_form(browser: OpenBrowser, db: Sessions, alice: User, carol: User) -> None:
    """Otherwise the refusals above would prove nothing. Setting up has tests of its own: here is an administrator."""
    found = {}
    for path, fields in TAKEN.items():
        page = await browser(carol)
        page.http.cookies["link"] = await link_for(db, Purpose.RESET, alice) if path == "/join" else ""
        found[path] = (await submit(page, path.format(alice=alice.id), **fields)).status_code

    assert {path: status for path, status in found.items() if status not in (200, 303)} == {"/setup": 410}


async def test_a_person_that_is_not_there_is_not_found(browser: OpenBrowser, carol: User, rows: Rows) -> None:
    page = await browser(carol)
    before = rows()

    replies = [
        await submit(page, f"/admin/people/{person_id}/{action}", **form)
        for person_id in ("x", "1", "019a0000-0000-7000-8000-000000000000", "%00", "null")
        for action, form in (("link", {}), ("role", {"role": "admin"}), ("disable", {}), ("enable", {}))
    ]

    assert {reply.status_code for reply in replies} == {404}
    assert rows() == before


async def test_a_field_that_is_far_too_long_is_refused_and_breaks_nothing(browser: OpenBrowser, carol: User) -> None:
    page = await browser(carol)

    replies = [
        reply
        for size in (300, 100_000, 2_000_000)
        for long in ("x" * size,)
        for reply in (
            await submit(page, "/login", email=long, password=long),
            await submit(page, "/settings", name=long, time_zone=long),
            await submit(page, "/settings/theme", theme=long),
            await submit(page, "/settings/password", current_password=long, new_password=long),
            await submit(page, "/admin/people", name=long, email=long, role="member"),
        )
    ]

    assert all(400 <= reply.status_code < 500 for reply in replies)


async def test_strange_characters_break_nothing(browser: OpenBrowser, carol: User) -> None:
    page = await browser(carol)

    replies = [
        reply
        for strange in ("\0", "\u202e", "\ufffe", "😀", "a\r\nb: c", "<script>", "' OR 1=1 --", "%s{0}$1")
        for reply in (
            await submit(page, "/login", email=strange, password=strange, next=strange, time_zone=strange),
            await submit(page, "/settings", name=strange, time_zone=strange),
            await submit(page, "/settings", name=strange),
            await submit(page, "/settings/theme", theme=strange),
            await submit(page, "/settings/password", current_password=strange, new_password=strange),
            await submit(page, "/admin/people", name=strange, email=f"{strange}@corp.example", role="member"),
            await page.get("/admin/people"),
            await page.get("/settings", params={"saved": strange}),
        )
    ]

    assert {reply.status_code for reply in replies} <= {200, 303, 401, 409, 422}
    assert not any("<script>" in reply.text for reply in replies)


async def test_halves_of_characters_in_a_form_break_nothing(browser: OpenBrowser, alice: User) -> None:
    """The sender names the encoding of a multipart form; this one can spell lone surrogates."""
    page = await browser(alice)
    fields = {
        "email": "\\ud800@x",
        "password": "\\udfff",
        "next": "/\\ud800",
        "time_zone": "\\ud800",
        "name": "\\ud800",
        "theme": "\\ud800",
        "current_password": "\\ud800",
        "new_password": "\\ud800" * 13,
    }
    body = "".join(f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items())
    content_type = "multipart/form-data; boundary=x; charset=unicode_escape"

    found = [
        await _post(page, path, content_type, body + "--x--\r\n", None)
        for path in ("/login", "/settings", "/settings/theme", "/settings/password", "/setup", "/join", "/logout")
    ]

    assert all(status < 500 for status in found), found


def _fill(body: str, fields: dict[str, str]) -> str:
    form = "&".join(f"{name}={value.replace(' ', '+')}" for name, value in fields.items())
    return body.replace("{form}", form).replace("{fields}", json.dumps(fields))


async def _post(page: Browser, path: str, content_type: str | None, body: str, link: str | None) -> int:
    headers: dict[str, Any] = {"content-type": content_type} if content_type else {}
    if link:
        headers["cookie"] = f"link={link}"
    reply = await page.post(path, hx=False, content=body.encode(), headers=headers)
    return reply.status_code
