"""What tests of the chat's pages share: reading a page the way a person would."""

import re
from dataclasses import dataclass
from html import unescape
from uuid import UUID

import pytest

from backend.accounts.models import User
from tests.conftest import OpenBrowser
from tests.site import Browser, Event, Site


@dataclass
class Chat:
    """One person's browser, and the model she picks."""

    browser: Browser
    model: UUID

    async def ask(self, text: str, *, to: str = "") -> "Asked":
        response = await self.browser.send(text, model=self.model, to=to)
        assert response.status_code == 200, response.text
        return Asked(response.headers.get("hx-push-url", to), stream_of(response.text), response.text)

    async def ended(self, asked: "Asked") -> list[Event]:
        """The stream of an answer, read to its end."""
        return await self.browser.read(asked.stream)


@dataclass(frozen=True)
class Asked:
    address: str  # of the conversation
    stream: str  # of the answer
    html: str

    @property
    def answer(self) -> str:
        """The address of the answer."""
        return self.stream.partition("/events")[0]


@pytest.fixture
async def chat(browser: OpenBrowser, site: Site, alice: User) -> Chat:
    """Alice, ready to ask the first model there is."""
    offered = await site.until_offered()
    return Chat(await browser(alice), next(iter(offered.values())))


def stream_of(html: str) -> str:
    """Of the last answer; also of one that was there before the reply was drawn, as a quick engine's may be."""
    if found := re.search(r'hx-sse:connect="([^"]+)"', html):
        return unescape(found[1])
    address, answers = re.search(r"/chat/[0-9a-f-]{36}/messages", html), re.findall(r'id="message-([^"]+)"', html)
    assert address and answers, html
    return f"{address[0]}/{answers[-1]}/events"


def visible(html: str) -> str:
    """The text of a page or fragment, white space folded."""
    text = re.sub(r"<(script|style|title)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def assemble(events: list[Event]) -> str:
    """The answer's HTML as the live page holds it: finished blocks appended, the open one replaced."""
    blocks, open_ = "", ""
    for event in events:
        for target, swap, content in re.findall(
            r'<hx-partial hx-target="#(\w+)-[^"]*" hx-swap="(\w+)">(.*?)</hx-partial>', event.data, re.DOTALL
        ):
            if target == "blocks":
                blocks = blocks + content if swap == "beforeend" else content
            elif target == "open":
                open_ = content
    return blocks + open_
