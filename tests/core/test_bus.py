"""The bus between processes: what is said is heard, by those who asked, also after the database was away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psycopg
import psycopg.conninfo
import pytest

from backend.core.bus import MAX_BYTES, Bus, notify
from backend.core.db import Sessions, connect
from tests.conftest import plain


class Heard(list[dict[str, Any]]):
    """A handler that remembers, and can be waited for."""

    def __call__(self, payload: dict[str, Any]) -> None:
        self.append(payload)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self) < count:
                await asyncio.sleep(0.002)


@pytest.fixture
async def here(database: str) -> AsyncIterator[Bus]:
    async with Bus(database) as bus:
        yield bus


@pytest.fixture
async def there(database: str) -> AsyncIterator[Bus]:
    async with Bus(database) as bus:
        yield bus


async def everything_said(bus: Bus, *listeners: Bus) -> None:
    """What `bus` has sent so far was heard, for messages arrive in the order in which they were sent."""
    last = Heard()
    for listener in listeners:
        listener.on("last", last)
    await bus.publish("last", {})
    await last.until(len(listeners))
    for listener in listeners:
        listener.off("last", last)


async def until_connected(bus: Bus, wanted: bool = True) -> None:
    async with asyncio.timeout(30):
        while bus.connected is not wanted:
            await asyncio.sleep(0.002)


def end_connections(database: str, what_for: str) -> int:
    """As a restart of the database does."""
    with psycopg.connect(plain(database), autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [f"parley {what_for}"]
        )
        return len(ended.fetchall())


async def test_everybody_else_hears_what_is_published(here: Bus, there: Bus) -> None:
    """Who says it knows it; `notify` calls at home by itself."""
    near, far = Heard(), Heard()
    here.on("sessions", near)
    there.on("sessions", far)

    assert here.connected
    assert await here.publish("sessions", {"user_id": "ü", "n": 1})
    await there.publish("sessions", {"n": 2})
    await far.until(1)
    await near.until(1)

    assert far == [{"user_id": "ü", "n": 1}]
    assert near == [{"n": 2}]


async def test_messages_arrive_in_the_order_in_which_they_were_sent(here: Bus, there: Bus) -> None:
    heard = Heard()
    there.on("answer.1", heard)
    await there.listen("answer.1")

    for number in range(500):
        here.post("answer.1", {"n": number})
    await heard.until(500)

    assert [each["n"] for each in heard] == list(range(500))


async def test_the_messages_of_an_answer_reach_only_those_who_listen(here: Bus, there: Bus) -> None:
    topic, heard = f"answer.{uuid4().hex}", Heard()
    there.on(topic, heard)

    await here.publish(topic, {"n": 1})
    await there.listen(topic)
    await there.listen(topic)  # a second reader
    await here.publish(topic, {"n": 2})
    await there.unlisten(topic)
    await here.publish(topic, {"n": 3})
    await heard.until(2)
    await there.unlisten(topic)
    await there.listen("answer.2")  # once this is heard, the other is heard no more
    await here.publish(topic, {"n": 4})
    await everything_said(here, there)

    assert [each["n"] for each in heard] == [2, 3]


async def test_listening_can_end_and_begin_again_at_any_moment(here: Bus, there: Bus) -> None:
    heard = Heard()

    for number in range(100):
        async with there.listening("answer.1", heard):
            await here.publish("answer.1", {"n": number})
            await heard.until(number + 1)
        if number % 3:
            await asyncio.sleep(0)

    assert [each["n"] for each in heard] == list(range(100))


async def test_what_a_transaction_says_is_heard_when_it_commits_and_at_home_once(database: str, there: Bus) -> None:
    async with Bus(database) as here, Bus(database) as elsewhere:
        near, far = Heard(), Heard()
        here.on("sessions", near)
        there.on("sessions", far)
        engine = connect(database, connections=1)
        sessions = Sessions(engine, here)

        async with sessions.begin() as session:
            await notify(session, "sessions", {"n": 1})
            assert near == []
        assert near == [{"n": 1}]
        await far.until(1)
        with suppress(ZeroDivisionError):
            async with sessions.begin() as session:
                await notify(session, "sessions", {"n": 2})
                _ = 1 / 0
        await everything_said(elsewhere, here, there)
        await engine.dispose()

    assert near == far == [{"n": 1}]


async def test_a_handler_that_fails_makes_nobody_deaf(
    here: Bus, there: Bus, owner_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    here.on("sessions", lambda payload: print(payload["missing"]))
    here.on("sessions", heard)

    with psycopg.connect(owner_url, autocommit=True) as stranger:
        stranger.execute("NOTIFY parley, 'good morning'")
        stranger.execute("NOTIFY parley, '- sessions {'")
        stranger.execute("NOTIFY parley")
    await there.publish("sessions", {"n": 1})
    await heard.until(1)

    assert heard == [{"n": 1}]
    assert "KeyError" in caplog.text


async def test_what_is_too_long_is_refused_where_it_is_said(here: Bus, there: Bus) -> None:
    heard = Heard()
    there.on("sessions", heard)
    room = MAX_BYTES - len(here.process_id + ' sessions {"text":""}')

    await here.publish("sessions", {"text": "ü" * (room // 2)})
    await heard.until(1)

    with pytest.raises(ValueError, match="at most 7900"):
        here.post("sessions", {"text": "ü" * (room // 2 + 1)})


async def test_it_comes_back_by_itself_and_says_that_something_was_missed(here: Bus, there: Bus, database: str) -> None:
    heard, missed = Heard(), Heard()
    there.on("answer.1", heard)
    await there.listen("answer.1")
    there.on_reconnect(lambda: missed({"again": there.connected}))

    assert end_connections(database, "listens") >= 2
    await until_connected(there, False)
    await missed.until(1)
    await here.publish("answer.1", {"n": 1})
    await heard.until(1)

    assert missed == [{"again": True}]
    assert heard == [{"n": 1}]


async def test_a_connection_that_broke_while_nobody_spoke_costs_no_message(
    here: Bus, there: Bus, database: str
) -> None:
    heard = Heard()
    there.on("sessions", heard)
    await here.publish("sessions", {"n": 1})

    assert end_connections(database, "sends") >= 1
    assert await here.publish("sessions", {"n": 2})
    await heard.until(2)


async def test_what_was_said_just_before_the_end_still_goes_out(database: str, there: Bus) -> None:
    heard = Heard()
    there.on("taken", heard)

    async with Bus(database) as here:
        here.post("taken", {})
    await heard.until(1)


class Lead(list[float | None]):
    """Remembers when a process began to lead, and that it ended."""

    def __call__(self, moment: float | None) -> None:
        self.append(moment)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self) < count:
                await asyncio.sleep(0.01)


async def test_one_process_leads_until_it_resigns_or_cannot_hear_any_more(here: Bus, there: Bus, database: str) -> None:
    first, second = Lead(), Lead()
    await here.lead("work", first)
    await there.lead("work", second)
    await there.lead("other work", Lead())
    assert (len(first), second) == (1, [])

    await here.resign("work")
    await second.until(1)
    await here.lead("work", first)
    assert len(first) == 1, "there it is now"
    assert first[0] is not None and second[0] is not None and first[0] < second[0]

    assert end_connections(database, "listens") >= 2  # one of an earlier test may still be going
    await second.until(2)
    assert second[1] is None, "it ended with the connection"
    async with asyncio.timeout(10):
        while len(first) + len(second) < 4:  # and one of them has it again
            await asyncio.sleep(0.01)


class Line:
    """The stretch of network before the database. What runs over it can be made to go silent without breaking."""

    def __init__(self, database: str) -> None:
        conninfo = psycopg.conninfo.conninfo_to_dict(plain(database))
        self._socket = Path(str(conninfo["host"])) / ".s.PGSQL.5432"
        self._silent: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        """The address of the database at the near end of the line."""
        with TemporaryDirectory(dir="/tmp") as folder:  # the path of a socket has to be short
            async with await asyncio.start_unix_server(self._serve, Path(folder) / ".s.PGSQL.5432"):
                yield f"postgresql+psycopg://parley_app@/test?host={folder}"
                await asyncio.gather(*self._open)

    def go_silent(self) -> None:
        self._silent |= self._open

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        ways = {
            asyncio.create_task(self._carry(reader, far_writer)),
            asyncio.create_task(self._carry(far_reader, writer)),
        }
        self._open |= ways
        await asyncio.gather(*ways)
        for end in (writer, far_writer):
            await end.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if asyncio.current_task() not in self._silent:
                writer.write(data)
        writer.close()


async def test_a_line_that_went_silent_is_noticed_and_laid_anew(database: str, there: Bus) -> None:
    line = Line(database)
    async with line.laid() as address, Bus(address, patience=0.2) as here:
        near, far = Heard(), Heard()
        here.on("sessions", near)
        there.on("sessions", far)
        await here.publish("sessions", {"n": 1})
        await there.publish("sessions", {"n": 1})
        await near.until(1)

        line.go_silent()
        await asyncio.wait_for(here.listen("answer.1"), 1)
        await until_connected(here, False)
        assert await here.publish("sessions", {"n": 2})
        await far.until(2)
        await until_connected(here)
        await there.publish("sessions", {"n": 3})
        async with asyncio.timeout(30):
            while near[-1] != {"n": 3}:
                await asyncio.sleep(0.002)

    assert [each["n"] for each in far] == [1, 2]


async def test_without_a_database_nobody_waits_and_nothing_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with Bus("postgresql+psycopg://nobody@/none?host=/tmp/nowhere") as bus:
        assert not bus.connected
        await bus.listen("answer.1")
        assert not await bus.publish("sessions", {"n": 1})
        bus.post("sessions", {"n": 2})

    assert "cannot hear other processes" in caplog.text
    assert caplog.text.count("cannot tell other processes") == 1
