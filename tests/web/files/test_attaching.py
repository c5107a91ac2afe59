"""Attachments over HTTP: up, shown, down, gone, and for nobody else."""

import asyncio
import re
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from backend.accounts.models import User
from backend.core.settings import Settings
from backend.engines.snapshot import Offer
from tests.conftest import OpenBrowser
from tests.files.samples import pdf, picture
from tests.site import Browser, Site

HOSTILE = b"<!doctype html><script>alert(document.domain)</script>"


async def attach(
    browser: Browser, content: bytes = b"a,b\n1,2\n", name: str = "data.csv", *, hx: bool = True, **fields: Any
) -> httpx.Response:
    headers = {"hx-request": "true"} if hx else {}
    return await browser.http.post("/files", files={"file": (name, content)}, data=fields, headers=headers)


def file_in(chip: str) -> UUID:
    """The id that goes along with the message."""
    found = re.search(r'<input type="hidden" name="file" value="([0-9a-f-]{36})">', chip)
    assert found, chip
    return UUID(found[1])


def rows(owner_url: str) -> int:
    with psycopg.connect(owner_url) as connection:
        found = connection.execute("SELECT count(*) FROM files").fetchone()
        assert found is not None
        number: int = found[0]
        return number


async def test_a_file_becomes_a_chip_and_comes_back(browser: OpenBrowser, alice: User) -> None:
    page = await browser(alice)

    chip = await attach(page, "Größe\n".encode(), "ma\u00dfe & mehr.csv")
    reply = await page.get(f"/files/{file_in(chip.text)}")

    assert chip.status_code == 200
    assert "ma\u00dfe &amp; mehr.csv" in chip.text
    assert "8 bytes" in chip.text
    assert reply.content == "Größe\n".encode()
    assert reply.headers["content-disposition"] == "attachment; filename*=UTF-8''ma%C3%9Fe%20%26%20mehr.csv"


@pytest.fixture
def one_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two models."""
    monkeypatch.setattr(Offer, "sees", property(lambda offer: offer.name == "fake-70b"))


@pytest.mark.usefixtures("one_sees")
async def test_a_picture_is_shown_as_the_one_we_drew(browser: OpenBrowser, alice: User, site: Site) -> None:
    page = await browser(alice)
    models = await site.until_offered("fake-70b")
    chip = await attach(page, picture("GIF"), "photo.gif", model=str(models["fake-70b"]))

    reply = await page.get(f"/files/{file_in(chip.text)}")

    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["content-disposition"] == "inline; filename*=UTF-8''photo.png"
    assert reply.content.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (HOSTILE, "page.html"),
        (HOSTILE, "photo.png"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "drawing.svg"),
        (pdf("x"), "paper.pdf"),
    ],
)
async def test_whatever_is_not_drawn_by_us_is_only_ever_saved(
    browser: OpenBrowser, alice: User, content: bytes, name: str
) -> None:
    page = await browser(alice)
    chip = await attach(page, content, name)

    reply = await page.get(f"/files/{file_in(chip.text)}")

    assert reply.content == content
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"].startswith("attachment; ")
    assert reply.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a\u202egpj.exe", "x" * 300 + ".txt", 'q"><script>.txt', "\u0000", ""]
)
async def test_a_hostile_name_is_only_a_name(browser: OpenBrowser, alice: User, name: str) -> None:
    page = await browser(alice)
    # As raw bytes: clients of today escape what old ones and attackers do not.
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.replace('"', "%22").encode()
        + b'"\r\n\r\ntext\r\n--b--\r\n'
    )

    chip = await page.http.post(
        "/files", content=body, headers={"content-type": "multipart/form-data; boundary=b", "hx-request": "true"}
    )

    if chip.status_code == 422:
        assert name in ("", "\u0000"), "without a name a browser sends no file"
        return
    reply = await page.get(f"/files/{file_in(chip.text)}")
    assert reply.content == b"text"
    assert "<script>" not in chip.text
    assert not re.search("[\u202a-\u202e/\\\\]", re.sub(r"<[^>]*>", "", chip.text))
    assert len(reply.headers["content-disposition"]) < 700


async def test_what_cannot_be_read_is_refused_in_words(browser: OpenBrowser, alice: User, owner_url: str) -> None:
    page = await browser(alice)

    reply = await attach(page, bytes(range(256)) * 9, "setup.exe")

    assert reply.status_code == 422
    assert "“setup.exe” cannot be read here. Text, PDF, Word (DOCX) and pictures" in reply.text
    assert rows(owner_url) == 0


@pytest.mark.usefixtures("one_sees")
async def test_a_picture_for_a_model_that_does_not_see_is_refused(
    browser: OpenBrowser, alice: User, site: Site
) -> None:
    page = await browser(alice)
    models = await site.until_offered("fake-8b", "fake-70b")

    reply = await attach(page, picture(), "photo.png", model=str(models["fake-8b"]))

    assert reply.status_code == 422
    assert "“photo.png” is a picture. “fake-8b” cannot see pictures. Choose “fake-70b” for them." in reply.text


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"file_bytes": 200_000, "message_bytes": 1024})


async def test_a_file_beyond_the_limit_is_refused(browser: OpenBrowser, alice: User, owner_url: str) -> None:
    """Named where it was read; not read at all where it says that it is far too large, or turns out to be."""
    page = await browser(alice)

    named = await attach(page, b"x" * 210_000, "long.txt")
    announced = await attach(page, b"x" * 400_000, "longer.txt")
    found_out = await page.http.post("/files", content=_endless(), headers={"content-type": _MULTIPART})

    assert [reply.status_code for reply in (named, announced, found_out)] == [413, 413, 413]
    assert "“long.txt” has 205 kB; the limit is 195 kB." in named.text
    assert "too large" in announced.text
    assert "Files may have 195 kB." in found_out.text
    assert rows(owner_url) == 0


async def test_only_this_route_takes_large_bodies_and_files(browser: OpenBrowser, alice: User) -> None:
    page = await browser(alice)

    large = await page.post("/settings", {"name": "x" * 150_000})
    file = await page.http.post("/settings/theme", files={"theme": ("theme", b"dark")})

    assert large.status_code == 413
    assert file.status_code == 422


@pytest.mark.parametrize(
    "request_",
    [
        {"data": {"file": "not a file"}},
        {"files": {"other": ("a.txt", b"a")}},
        {"files": [("file", ("a.txt", b"a")), ("file", ("b.txt", b"b"))]},
        {"content": b"{}", "headers": {"content-type": "application/json"}},
        {"content": b"--b\r\nbroken", "headers": {"content-type": "multipart/form-data; boundary=b"}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
        {"files": {"file": ("a.txt", b"a")}, "data": {"model": "x" * 10_000}},
    ],
)
async def test_anything_but_one_file_is_refused(
    browser: OpenBrowser, alice: User, owner_url: str, request_: dict[str, Any]
) -> None:
    page = await browser(alice)

    reply = await page.http.post("/files", **request_)

    assert reply.status_code == 422, reply.text
    assert rows(owner_url) == 0


async def test_an_unsent_file_can_be_removed(browser: OpenBrowser, alice: User, owner_url: str) -> None:
    page = await browser(alice)
    file = file_in((await attach(page)).text)

    removed = await page.post(f"/files/{file}/remove")
    again = await page.post(f"/files/{file}/remove")

    assert (removed.status_code, again.status_code) == (204, 404)
    assert rows(owner_url) == 0


async def test_to_bob_nothing_of_it_is_there(
    browser: OpenBrowser, alice: User, bob: User, carol: User, owner_url: str
) -> None:
    """Nor to the administrator, nor to nobody."""
    file = file_in((await attach(await browser(alice))).text)
    strangers = [await browser(bob), await browser(carol)]
    nobody = await browser(None)

    replies = [
        reply
        for page in strangers
        for reply in (await page.get(f"/files/{file}"), await page.post(f"/files/{file}/remove"))
    ]
    nowhere = await strangers[0].get(f"/files/{uuid4()}")

    assert {reply.status_code for reply in replies} == {404}
    assert _without_ids(replies[0].text) == _without_ids(nowhere.text)
    assert (await nobody.get(f"/files/{file}")).status_code == 303
    assert (await attach(nobody)).status_code == 401
    assert rows(owner_url) == 1


async def test_no_connection_is_held_while_a_file_arrives_or_leaves(
    browser: OpenBrowser, alice: User, site: Site
) -> None:
    """Twenty slow uploads would use up the pool, and a page would wait for all of them."""
    page = await browser(alice)
    go_on = asyncio.Event()

    async def slow() -> Any:
        yield _HEAD
        await go_on.wait()
        yield b"text" + _TAIL

    uploads = [
        asyncio.create_task(page.http.post("/files", content=slow(), headers={"content-type": _MULTIPART}))
        for _ in range(20)
    ]
    await asyncio.sleep(0.3)
    async with asyncio.timeout(3):
        assert (await page.get("/settings")).status_code == 200
    go_on.set()

    assert {reply.status_code for reply in await asyncio.gather(*uploads)} == {200}


_MULTIPART = "multipart/form-data; boundary=b"
_HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="slow.txt"\r\n\r\n'
_TAIL = b"\r\n--b--\r\n"


async def _endless() -> Any:
    """Says nothing of its length."""
    yield _HEAD
    for _ in range(100):
        yield b"x" * 10_000


def _without_ids(html: str) -> str:
    return re.sub(r"<code>.*?</code>|<time.*?</time>", "", html)
