"""The list of conversations, and what can be done with one."""

import asyncio

import psycopg

from backend.accounts.models import User
from backend.core.ids import new_id
from tests.conftest import OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.web.chat.conftest import Chat, visible


async def test_conversations_are_listed_newest_first(chat: Chat) -> None:
    for text in ("First", "Second", "Third"):
        await chat.ended(await chat.ask(text))

    sidebar = visible((await chat.browser.get("/")).text.partition('id="conversations"')[2])

    assert "Today" in sidebar
    assert sidebar.index("Third") < sidebar.index("Second") < sidebar.index("First")


async def test_the_list_goes_on_page_by_page(chat: Chat, monkeypatch: object) -> None:
    """Every conversation once, also those with the same time."""
    from web.chat import sidebar

    old, sidebar.SIDEBAR_ROWS = sidebar.SIDEBAR_ROWS, 2
    try:
        for number in range(5):
            await chat.ended(await chat.ask(f"Conversation number {number}"))
        html, found = (await chat.browser.get("/")).text, ""
        while True:
            found += html
            more = html.partition('hx-get="/conversations?before=')[2].partition('"')[0]
            if not more:
                break
            html = (await chat.browser.get(f"/conversations?before={more}", hx=True)).text
    finally:
        sidebar.SIDEBAR_ROWS = old

    assert [found.count(f"Conversation number {number}<") for number in range(5)] == [1] * 5


async def test_older_conversations_can_be_reached_without_script(chat: Chat) -> None:
    await chat.ended(await chat.ask("Hello"))

    page = await chat.browser.get("/conversations?before=")

    assert "<html" in page.text
    assert "Hello" in page.text


async def test_a_malformed_body_deletes_nothing(chat: Chat) -> None:
    """AZN-02"""
    asked = await chat.ask("Hello")
    await chat.ended(asked)

    for body, kind in [(b"null", "application/json"), (b"[]", "application/json"), (b"", ""), (b"a=1&a=2", None)]:
        headers = {"content-type": kind} if kind is not None else {"content-type": "application/x-www-form-urlencoded"}
        response = await chat.browser.http.post(f"{asked.address}/delete", content=body, headers=headers)
        assert response.status_code == 422

    assert (await chat.browser.get(asked.address)).status_code == 200


async def test_renaming(chat: Chat) -> None:
    asked = await chat.ask("Hello")
    await chat.ended(asked)

    response = await chat.browser.post(f"{asked.address}/title", {"title": "  My   own\n title  "})

    assert response.status_code == 200
    assert "My own title" in (await chat.browser.get("/")).text


async def test_an_empty_title_is_refused(chat: Chat) -> None:
    asked = await chat.ask("Hello")
    await chat.ended(asked)

    response = await chat.browser.post(f"{asked.address}/title", {"title": " "})

    assert response.status_code == 422
    assert "Hello" in (await chat.browser.get(asked.address)).text


async def test_deleting_stops_the_answer_and_removes_everything(chat: Chat, engine: FakeEngine) -> None:
    engine.hold()
    asked = await chat.ask("Hello")
    await engine.until(lambda fake: fake.running == 1)

    response = await chat.browser.post(f"{asked.address}/delete")

    assert response.headers["hx-redirect"] == "/"
    assert (await chat.browser.get(asked.address)).status_code == 404
    await engine.until(lambda fake: fake.running == 0)
    engine.release()


async def test_get_changes_nothing(chat: Chat) -> None:
    asked = await chat.ask("Hello")
    await chat.ended(asked)

    response = await chat.browser.get(f"{asked.address}/delete")

    assert response.status_code == 405
    assert (await chat.browser.get(asked.address)).status_code == 200


async def test_a_new_chat_that_is_never_used_is_never_stored(chat: Chat) -> None:
    """LIFE-04"""
    for _click in range(20):
        await chat.browser.get("/")

    assert "/chat/" not in (await chat.browser.get("/")).text.partition('id="conversations"')[2].partition("</nav>")[0]


async def test_an_expired_session_sends_a_page_to_sign_in_and_back(chat: Chat, browser: OpenBrowser) -> None:
    """WEB-07"""
    asked = await chat.ask("Hello")
    await chat.ended(asked)
    nobody = await browser(None)

    page = await nobody.get(asked.address)
    fragment = await nobody.get("/conversations", hx=True, headers={"hx-current-url": f"http://x{asked.address}"})

    assert page.status_code == 303
    assert page.headers["location"] == f"/login?next={asked.address}".replace("/chat/", "/chat/")
    assert fragment.status_code == 401
    assert fragment.headers["hx-redirect"] == f"/login?next={asked.address}"
    assert "<form" not in fragment.text


async def test_a_send_without_a_session_keeps_the_page(chat: Chat, browser: OpenBrowser) -> None:
    nobody = await browser(None)

    response = await nobody.send("Hello", model=chat.model)

    assert response.status_code == 401
    assert response.headers["hx-reswap"] == "none"
    assert "signed-out" in response.headers["hx-trigger"]


async def test_pages_are_never_kept_by_the_browser(chat: Chat, alice: User) -> None:
    """WEB-11: Back after sign-out must ask the server."""
    response = await chat.browser.get("/")

    assert response.headers["cache-control"] == "no-store"
    assert "HX-Request" in response.headers["vary"]


async def test_what_is_deleted_meanwhile_is_not_found(chat: Chat, owner_url: str) -> None:
    """Another tab deletes between loading and writing: a sentence, never a fault of ours."""
    for path, data in [
        ("/title", {"title": "New"}),
        ("/messages", {"text": "Hi", "model": str(chat.model)}),
        ("", None),
    ]:
        asked = await chat.ask("Hello")
        await chat.ended(asked)
        data = data | {"key": str(new_id())} if data else None

        async with await psycopg.AsyncConnection.connect(owner_url) as other:
            # The row is locked until the deletion is committed, so the request waits in the middle of its work.
            await other.execute("DELETE FROM conversations WHERE id = %s", [asked.address.rpartition("/")[2]])
            request = asyncio.create_task(
                chat.browser.post(asked.address + path, data) if data else chat.browser.get(asked.address)
            )
            await asyncio.sleep(0.3)
        response = await request

        assert response.status_code == 404, (path, response.text)


async def test_a_title_is_never_invisible(chat: Chat) -> None:
    asked = await chat.ask("\u200b\u202e\u2066")
    await chat.ended(asked)

    refused = await chat.browser.post(f"{asked.address}/title", {"title": "\u202e\u200b"})

    assert "New conversation" in (await chat.browser.get("/")).text
    assert refused.status_code == 422
