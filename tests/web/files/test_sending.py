"""Files that go with a message: seen with it, copied with it, gone with it."""

import re
from uuid import UUID

import psycopg
import pytest

from backend.accounts.models import User
from backend.engines.snapshot import Offer
from tests.conftest import OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.files.samples import picture
from tests.site import Browser, Site


async def attach(page: Browser, content: bytes, name: str, model: UUID) -> str:
    reply = await page.http.post("/files", files={"file": (name, content)}, data={"model": str(model)})
    found = re.search(r'name="file" value="([^"]+)"', reply.text)
    assert found, reply.text
    return found[1]


def counts(owner_url: str) -> tuple[int, int, int]:
    """Questions, files, stored bytes."""
    with psycopg.connect(owner_url) as connection:
        found = connection.execute(
            "SELECT (SELECT count(*) FROM messages WHERE speaker = 'person'), (SELECT count(*) FROM files),"
            " (SELECT coalesce(sum(octet_length(content)), 0) FROM file_chunks)"
        ).fetchone()
        assert found is not None
        return (found[0], found[1], int(found[2]))


async def test_files_go_to_the_engine_and_stay_with_the_question(
    browser: OpenBrowser, alice: User, site: Site, engine: FakeEngine, owner_url: str
) -> None:
    page = await browser(alice)
    model = (await site.until_offered("fake-8b"))["fake-8b"]
    files = [await attach(page, f"part {n}".encode(), f"{n}.txt", model) for n in (1, 2)]

    begun = await page.send("Read them", model=model, file=files)
    stream = re.search(r'hx-sse:connect="([^"]+)"', begun.text)
    assert stream, begun.text
    await page.read(stream[1])
    chat = begun.headers["hx-push-url"]
    shown = await page.get(chat)

    assert engine.questions[-1].body["messages"][-1]["content"] == (
        '<file-1 name="1.txt">\npart 1\n</file-1>\n\n<file-1 name="2.txt">\npart 2\n</file-1>\n\nRead them'
    )
    for html in (begun.text, shown.text):
        assert re.findall(r'<a class="chip" href="/files/([^"]+)"', html) == files
    assert (await page.post(f"/files/{files[0]}/remove")).status_code == 404, "it is part of a message now"
    question = re.findall(r'id="message-([0-9a-f-]{36})"', shown.text)[0]

    # A fork shares the bytes, and the last one takes them along.
    forked = await page.post(f"{chat}/messages/{question}/fork")
    assert forked.status_code in (200, 204)
    assert counts(owner_url) == (2, 4, 12)
    await page.post(f"{chat}/delete")
    assert counts(owner_url) == (1, 2, 12)
    assert (await page.get(f"/files/{files[0]}")).status_code == 404
    other = re.search(r'href="(/chat/[0-9a-f-]{36})"', (await page.get("/")).text)
    assert other
    copied = re.findall(r'<a class="chip" href="(/files/[^"]+)"', (await page.get(other[1])).text)
    assert [(await page.get(address)).text for address in copied] == ["part 1", "part 2"]
    await page.post(f"{other[1]}/delete")
    assert counts(owner_url) == (0, 0, 0)


async def test_what_cannot_go_along_stops_the_send(
    browser: OpenBrowser, alice: User, bob: User, site: Site, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's file, one that was sent, one too many, a picture for a model without eyes: nothing is stored."""
    monkeypatch.setattr(Offer, "sees", property(lambda offer: offer.name == "fake-70b"))
    page, stranger = await browser(alice), await browser(bob)
    models = await site.until_offered("fake-8b", "fake-70b")
    blind, seeing = models["fake-8b"], models["fake-70b"]
    sent = await attach(page, b"once", "once.txt", blind)
    assert (await page.send("", model=blind, file=[sent])).status_code == 200, "a file alone is a message"
    own = await attach(page, b"own", "own.txt", blind)
    photo = await attach(page, picture(), "photo.png", seeing)
    many = [await attach(page, b"x", f"{n}.txt", blind) for n in range(11)]
    before = counts(owner_url)

    refused = [
        await stranger.send("Look", model=blind, file=[own]),
        await page.send("Again", model=blind, file=[own, sent]),
        await page.send("All", model=blind, file=many),
        await page.send("What is it?", model=blind, file=[photo]),
        await page.send("Garbage", model=blind, file=["no id"]),
        await page.send("", model=blind),
    ]

    assert [reply.status_code for reply in refused] == [404, 422, 422, 422, 422, 422]
    for reply, words in zip(
        refused,
        ("no longer here", "“once.txt” was sent already", "At most 10 files", "Choose “fake-70b”"),
        strict=False,
    ):
        assert words in reply.text
    assert counts(owner_url) == before


async def test_an_edited_question_keeps_its_files_and_the_limit_counts_them(
    browser: OpenBrowser, alice: User, site: Site, engine: FakeEngine, owner_url: str
) -> None:
    page = await browser(alice)
    model = (await site.until_offered("fake-8b"))["fake-8b"]
    most = site.settings.files_per_message
    first = [await attach(page, f"part {n}".encode(), f"{n}.txt", model) for n in range(most - 1)]
    begun = await page.send("", model=model, file=first)
    chat = begun.headers["hx-push-url"]
    question, answer = re.findall(r'id="message-([0-9a-f-]{36})"', begun.text)
    more = [await attach(page, f"more {n}".encode(), f"more-{n}.txt", model) for n in range(2)]
    await page.read(f"{chat}/messages/{answer}/events")

    too_many = await page.send("Again", model=model, to=chat, edits=question, file=more)
    edited = await page.send("", model=model, to=chat, edits=question, file=more[:1])

    assert too_many.status_code == 422
    assert edited.status_code == 200
    assert counts(owner_url)[:2] == (2, (most - 1) + most + 1)
