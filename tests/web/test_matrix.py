"""Every route for every kind of caller, against a table that is written down here; and nothing of Alice for Bob.

The table says it once more, on purpose: what the product decides by is not what it is measured with.
"""

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import select, update

from backend.accounts.models import Area, LoginSession, Role, User
from backend.conversations.models import Message
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.keys import service as keys
from backend.keys.models import Scope
from backend.main import create_app
from tests.conftest import AddPerson, sign_in
from tests.site import Browser, Site
from web import policy

pytestmark = pytest.mark.long

#: Whom each route is for; the first line that fits counts.
TABLE = (
    (r"/login/again", "signed in"),
    (r"/(healthz|readyz|csp-report|static|setup|join)|/(login|logout)(/.*)?", "anybody"),
    (r"/v1/models", "key for models"),
    (r"/v1/chat/completions", "key for chat"),
    (r"/admin", "any area"),
    (r"/admin/people/{person_id}/(areas|role)", "everything"),
    (r"/admin/sign-in/providers(/.*)?", "everything"),
    (r"/admin/(people|groups|erasures)(/.*)?", "people"),
    (r"/admin/(models|engines|deployments|bench|capacity)(/.*)?", "models"),
    (r"/admin/(policy|audit|sign-in)(/.*)?", "audit"),
    (r"/settings/data/delete", "nobody, as it comes"),
    (r"/|/(chat|conversations|files|settings)(/.*)?", "signed in"),
    (r"/v1/models/{model_id}", "key for models"),
)

#: What each of them gets from a route that is for somebody: in, or how they are kept out.
PEOPLE = ("member", "people", "models", "usage", "audit", "everything")
CALLERS = ("anonymous", "disabled", *PEOPLE, "key", "narrow key", "wrong key")
#: They change what the others are measured by, so each is asked by somebody who has just signed in.
LAST = (("POST", "/admin/policy"), ("POST", "/logout"), ("POST", "/settings/sessions/end-all"))
OTHERS_TOO = {  # to that verb it is one of that name
    ("GET", "/admin/engines/test"),
    ("POST", "/admin/sign-in/providers/new"),
}


def expected(whom: str, caller: str) -> str:
    """In words: `in`, `sign in`, `hidden`, `forbidden`, `no key`."""
    if whom == "anybody":
        return "in"
    if whom.startswith("key"):
        allowed = {"key": "in", "narrow key": "in" if whom == "key for models" else "forbidden"}
        return allowed.get(caller, "no key")
    if caller not in PEOPLE:
        return "sign in"  # a key opens no page
    if whom == "signed in":
        return "in"
    if whom == "nobody, as it comes":
        return "forbidden"
    administers = caller != "member" and (whom == "any area" or caller in (whom, "everything"))
    return "in" if administers else "hidden"


def whom_of(path: str) -> str:
    for pattern, whom in TABLE:
        if re.fullmatch(pattern, path):
            return whom
    raise AssertionError(f"nobody has written down whom {path} is for")


async def test_every_route_lets_in_whom_it_is_for_and_nobody_else(
    site: Site, db: Sessions, add_person: AddPerson
) -> None:
    """Each verb that a route has not is refused as well."""
    routes = set(policy.rows_of(create_app(site.settings).routes))
    found = {}
    async with AsyncExitStack() as stack:
        pages = {
            caller: await stack.enter_async_context(await _caller(site, db, add_person, caller)) for caller in CALLERS
        }
        for some in (sorted(routes - set(LAST)), *([each] for each in LAST)):
            for caller, page in pages.items():
                if page.person and "sid" in page.http.cookies:
                    page.http.cookies = {"sid": await sign_in(db, page.person)}
                for method, path in some:
                    found[caller, method, path] = _kind(await _call(page, method, path))
        strange = await _undeclared(pages["anonymous"], routes)

    wanted = {key: expected(whom_of(key[2]), key[0]) for key in found}
    assert {key: (kind, wanted[key]) for key, kind in found.items() if kind != wanted[key]} == {}
    assert strange == {}


async def _caller(site: Site, db: Sessions, add_person: AddPerson, kind: str) -> Browser:
    if kind == "anonymous":
        return Browser(site)
    role = Role.ADMIN if kind == "everything" else Role.MEMBER
    person = await add_person(f"{kind.replace(' ', '-')} caller", role)
    page = Browser(site, token=await sign_in(db, person) if "key" not in kind else None, person=person)
    async with db.as_person(person.id) as session:
        if kind in set(Area):
            await session.execute(update(User).where(User.id == person.id).values(areas=[kind]))
        if kind == "disabled":
            await session.execute(update(User).where(User.id == person.id).values(disabled_at=now()))
        if "key" in kind:
            scopes = [Scope.MODELS] if kind == "narrow key" else list(Scope)
            made = await keys.make(session, person.id, "Script", None, scopes=scopes)
            secret = made.secret if kind != "wrong key" else made.secret[:-1] + ("A" if made.secret[-1] != "A" else "B")
            page.http.headers["authorization"] = f"Bearer {secret}"
    return page


async def _call(page: Browser, method: str, path: str, **ids: str) -> httpx.Response:
    path = "/static/app.css" if path == "/static" else path
    path = re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], str(new_id())), path)
    if path.startswith("/v1/") and method == "POST":
        return await page.http.post(path, json={})
    return await page.http.request(method, path, data={} if method == "POST" else None, headers=_form(method))


def _form(method: str) -> dict[str, str]:
    return {} if method == "GET" else {"content-type": "application/x-www-form-urlencoded"}


def _kind(reply: httpx.Response) -> str:
    assert reply.status_code < 500, reply.text
    if reply.request.url.path.startswith("/v1/"):
        return {401: "no key", 403: "forbidden"}.get(reply.status_code, "in")
    if reply.status_code == 303 and reply.headers["location"].startswith("/login?next="):
        return "sign in"
    if reply.status_code == 401 and ("signed-out" in reply.headers.get("hx-trigger", "") or "signed out" in reply.text):
        return "sign in"
    if reply.status_code == 403:
        return "forbidden"
    return "hidden" if "There is no page here." in reply.text else "in"


async def _undeclared(page: Browser, routes: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The verbs that no route has, and what they get if it is not 405."""
    found = {}
    for path in {path for _method, path in routes if path != "/static"}:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if (method, path) not in routes | OTHERS_TOO:
                found[method, path] = (await _call(page, method, path)).status_code
    return {key: status for key, status in found.items() if status != 405}


# What is somebody else's


async def test_nothing_of_alice_answers_to_bob(
    site: Site, db: Sessions, owner_url: str, alice: User, bob: User
) -> None:
    """Twins: both have a chat, a file, a key. Whatever Alice's ids are sent in, it is as if they did not exist."""
    async with (
        Browser(site, token=await sign_in(db, alice)) as hers,
        Browser(site, token=await sign_in(db, bob)) as his,
    ):
        mine, theirs = [await _belongings(page, db, person) for page, person in ((hers, alice), (his, bob))]
        before = _rows(owner_url, alice)
        routes = [key for key in policy.rows_of(create_app(site.settings).routes) if _is_about_something(key[1])]

        by_path = {key: await _call(his, *key, **mine) for key in routes}
        with_his_chat = {
            key: await _call(his, *key, **mine | {"conversation_id": theirs["conversation_id"]})
            for key in routes
            if "{message_id}" in key[1]
        }
        chat, model = f"/chat/{theirs['conversation_id']}", theirs["model"]
        forms: list[httpx.Response] = [
            await his.send("Hers", model=model, file=mine["file_id"]),
            await his.send("Hers", model=model, to=chat, edits=mine["message_id"]),
            await his.send("Hers", model=model, to=chat, after=mine["message_id"]),
            await his.send("Hers", model=model, to=f"/chat/{mine['conversation_id']}"),
        ]
        stream = await his.http.get(
            f"/chat/{mine['conversation_id']}/messages/{mine['message_id']}/events",
            headers={"accept": "text/event-stream", "last-event-id": "1.0.0"},
        )

    replies = [*by_path.values(), *with_his_chat.values(), stream]
    assert len(by_path) >= 15
    assert {key: reply.status_code for key, reply in by_path.items() if reply.status_code != 404} == {}
    assert {key: reply.status_code for key, reply in with_his_chat.items() if reply.status_code != 404} == {}
    assert [reply.status_code // 100 for reply in forms] == [4, 4, 4, 4]
    assert forms[-1].status_code == 404
    assert [reply.url for reply in [*replies, *forms] if "secret of alice" in reply.text.lower()] == []
    assert _rows(owner_url, alice) == before


def _is_about_something(path: str) -> bool:
    if path == "/chat/{conversation_id}/messages":
        return False  # it wants a whole form, and is asked with one
    return bool(re.search(r"{(conversation_id|message_id|file_id|key_id)}", path)) and not path.startswith("/admin")


async def _belongings(page: Browser, db: Sessions, person: User) -> dict[str, Any]:
    model = next(iter((await page.site.until_offered()).values()))
    word = f"Secret of {person.name.split()[0]}"
    sent = await page.send(word, model=model)
    conversation_id = sent.headers["hx-push-url"].rpartition("/")[2]
    async with asyncio.timeout(10):
        while 'aria-busy="true"' in (await page.get(f"/chat/{conversation_id}")).text:
            await asyncio.sleep(0.05)
    chip = await page.http.post("/files", files={"file": (f"{word}.txt", word.encode())})
    file_id = re.search(r'value="([0-9a-f-]{36})"', chip.text)
    assert file_id, chip.text
    async with db.as_person(person.id) as session:
        made = await keys.make(session, person.id, word, None)
        message_id = await session.scalar(select(Message.id).order_by(Message.id.desc()).limit(1))
        login_id = await session.scalar(select(LoginSession.id).where(LoginSession.user_id == person.id))
    return {
        "conversation_id": conversation_id,
        "message_id": str(message_id),
        "file_id": file_id[1],
        "key_id": str(made.key.id),
        "session_id": str(login_id),
        "model": model,
    }


def _rows(owner_url: str, person: User) -> dict[str, list[Any]]:
    """Everything that is hers, as it is stored."""
    tables = {"users": "id", "conversations": "owner_id", "messages": "owner_id", "files": "owner_id"}
    tables |= {"blobs": "owner_id", "api_keys": "owner_id", "login_sessions": "user_id", "default_models": "user_id"}
    with psycopg.connect(owner_url) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} WHERE {column} = %s ORDER BY 1", [person.id]).fetchall()
            for table, column in tables.items()
        }
