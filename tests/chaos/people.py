"""People at their browsers: they send, read, stop, go on and ask again, and come back when the connection is lost."""

import asyncio
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from uuid import UUID

import httpx

from backend.core.ids import new_id
from tests.chaos.book import Book, Sent
from tests.site import Event, read_events

_RUNNING = r'id="message-{0}"[^>]*?hx-sse:connect="([^"]+)"'
_PART = re.compile(r'<hx-partial hx-target="#(\w+)-[^"]*" hx-swap="(\w+)">(.*?)</hx-partial>', re.DOTALL)
_PROSE = re.compile(r'<div class="prose" hx-ignore>(.*?)</div>', re.DOTALL)


@dataclass
class Page:
    """One answer as a browser holds it: finished blocks, the open one, and where its stream goes on."""

    answer: UUID
    conversation: str
    stream: str = ""  # empty: it does not run
    cursor: str = ""
    blocks: str = ""
    open: str = ""
    can_continue: bool = False
    is_over: bool = field(default=False)

    @classmethod
    def of(cls, html: str, conversation: str, answer: UUID | None = None) -> "Page":
        """The answer named, or the last one there is."""
        found = re.findall(r'<article class="message assistant" id="message-([0-9a-f-]+)"', html)
        answer = answer or UUID(found[-1])
        page = cls(answer, conversation)
        article = html[html.index(f'id="message-{answer}"') :].partition("</article>")[0]
        if running := re.match(_RUNNING.format(answer), article):
            page.stream = unescape(running[1])
            page.cursor = page.stream.partition("since=")[2]
            page.blocks = _inside(article, f"blocks-{answer}")
            page.open = _inside(article, f"open-{answer}")
        else:
            page._finish(article)
        return page

    def take(self, event: Event) -> None:
        if event.name == "finished":
            self.is_over = True
        if event.id:
            self.cursor = event.id
        if "<article" in event.data:
            self._finish(event.data)
            return
        for target, swap, content in _PART.findall(event.data):
            if target == "blocks":
                self.blocks = self.blocks + content if swap == "beforeend" else content
            elif target == "open":
                self.open = content

    def _finish(self, article: str) -> None:
        prose = _PROSE.search(article)
        self.blocks, self.open = prose[1] if prose else "", ""
        self.can_continue = "/continue" in article
        self.is_over = True

    @property
    def html(self) -> str:
        return f"{self.blocks} {self.open}"

    @property
    def attempt(self) -> int:
        return int(self.cursor.partition(".")[0] or 0)

    @property
    def address(self) -> str:
        return f"{self.conversation}/messages/{self.answer}"


def _inside(article: str, id: str) -> str:
    found = re.search(rf'id="{id}"[^>]*>(.*?)</div>', article, re.DOTALL)
    return found[1] if found else ""


class Person:
    """Acts until told to leave; each act is finished, whatever happens to the processes meanwhile."""

    def __init__(
        self, number: int, id: UUID, token: str, servers: Sequence[str], book: Book, *, seed: int, model: str
    ) -> None:
        self._number = number
        self._id = id
        self._servers = servers
        self._book = book
        self._chance = random.Random(f"{seed}/{number}")
        self._model = model
        self._conversation = ""
        self._sent = 0
        self._http = httpx.AsyncClient(
            cookies={"sid": token},
            headers={"sec-fetch-site": "same-origin", "hx-request": "true", "user-agent": "test"},
            timeout=5,
            verify=False,
        )

    async def live(self, leave: asyncio.Event) -> None:
        async with self._http:
            while not leave.is_set():
                page = await self._ask()
                await self._to_the_end(page)
                for _ in range(3):
                    if leave.is_set() or not page.can_continue or self._chance.random() < 0.2:
                        break
                    page = await self._act(page, "continue", self._book.continued)
                    await self._to_the_end(page)
                if not leave.is_set() and self._chance.random() < 0.2:
                    await self._to_the_end(await self._act(page, "regenerate", self._book.regenerated))

    # Acts

    async def _ask(self) -> Page:
        """Send, and send the same again until somebody says that it was taken."""
        self._sent += 1
        mark = f"p{self._number}q{self._sent}"
        words = [f"{mark}w{number}" for number in range(self._chance.randrange(40, 120))]
        text = "".join(word + ("\n\n" if number % 11 == 10 else " ") for number, word in enumerate(words)).strip()
        sent = Sent(self._id, new_id(), text)
        self._book.sent.append(sent)
        if self._chance.random() < 0.3:
            self._conversation = ""
        where = f"{self._conversation}/messages" if self._conversation else "/chat"
        form = {"text": text, "model": self._model, "key": str(sent.key)}
        while True:
            presses = [self._post(where, form)] * 1 if self._chance.random() < 0.8 else [
                self._post(where, form), self._post(where, form)
            ]  # fmt: skip
            pages = [self._taken(sent, reply) for reply in await asyncio.gather(*presses)]
            if page := next((page for page in pages if page), None):
                return page
            if self._conversation:
                await self._read(await self._look(self._conversation))  # 409: one is still being written there
            await asyncio.sleep(0.2)

    def _taken(self, sent: Sent, reply: httpx.Response | None) -> Page | None:
        if reply is None or reply.status_code == 409:
            return None
        if reply.status_code != 200:
            self._book.odd.append(f"a send was answered with {reply.status_code}: {reply.text[:200]}")
            return None
        if address := reply.headers.get("hx-push-url"):
            self._conversation = address
        page = Page.of(reply.text, self._conversation)
        sent.answers.add(page.answer)
        return page

    async def _act(self, page: Page, act: str, done: set[UUID]) -> Page:
        """Continue or regenerate. These have no key: after a lost connection a person looks before trying again."""
        reply = await self._post(f"{page.address}/{act}", {})
        if reply is not None and reply.status_code == 200:
            after = Page.of(reply.text, page.conversation)
            done.add(after.answer)
            return after
        if reply is not None and reply.status_code != 409:
            self._book.odd.append(f"{act} was answered with {reply.status_code}: {reply.text[:200]}")
        return await self._look(page.conversation)

    async def _to_the_end(self, page: Page) -> None:
        if not page.is_over and self._chance.random() < 0.25:
            reading = asyncio.create_task(self._read(page))
            await asyncio.sleep(self._chance.uniform(0, 1.5))
            pressed = asyncio.get_running_loop().time()
            reply = await self._post(f"{page.address}/stop", {})
            if reply is not None and reply.status_code == 200:
                self._book.stopped[page.answer] = pressed
                if "aria-busy" in reply.text:
                    self._book.odd.append(f"{page.answer} goes on after a Stop that was acknowledged")
            elif reply is not None:
                self._book.odd.append(f"a stop was answered with {reply.status_code}: {reply.text[:200]}")
            await reading
        else:
            await self._read(page)

    # Reading

    async def _read(self, page: Page) -> None:
        """Comes back with its cursor after every loss; now and then by loading the page again."""
        while not page.is_over:
            try:
                await self._stream(page)
            except httpx.TransportError:
                await asyncio.sleep(0.15)
            if self._chance.random() < 0.3:
                again = await self._look(page.conversation, page.answer)
                page.__dict__.update(again.__dict__)
                self._book.saw(page.answer, page.attempt, page.html)

    async def _stream(self, page: Page) -> None:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": page.cursor} if page.cursor else {})
        address = self._somewhere() + page.stream
        async with self._http.stream("GET", address, headers=headers) as reply:
            if reply.status_code == 503:
                await asyncio.sleep(0.2)
                return
            if reply.status_code != 200:
                self._book.odd.append(f"a stream was answered with {reply.status_code}")
                page.is_over = True
                return
            async for event in read_events(reply.aiter_lines()):
                page.take(event)
                self._book.saw(page.answer, page.attempt, page.html)

    async def _look(self, conversation: str, answer: UUID | None = None) -> Page:
        while True:
            with suppress(httpx.TransportError):
                reply = await self._http.get(self._somewhere() + conversation, headers={"hx-request": ""})
                if reply.status_code == 200:
                    return Page.of(reply.text, conversation, answer)
                if reply.status_code != 503:
                    self._book.odd.append(f"a page was answered with {reply.status_code}: {reply.text[:200]}")
            await asyncio.sleep(0.2)

    # HTTP

    async def _post(self, path: str, form: dict[str, Any]) -> httpx.Response | None:
        """None when the connection was lost, or the process is on its way out: nobody knows what became of it."""
        try:
            headers = {"content-type": "application/x-www-form-urlencoded"}
            reply = await self._http.post(self._somewhere() + path, data=form, headers=headers)
        except httpx.TransportError:
            return None
        return None if reply.status_code == 503 else reply

    def _somewhere(self) -> str:
        return self._chance.choice(self._servers)
