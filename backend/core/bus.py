"""What processes tell each other: short messages over Postgres, LISTEN and NOTIFY.

A message has a topic and a small JSON object. A plain topic ("sessions") reaches every process; a topic with a dot
("answer.0193…") has a channel of its own, so that only those who asked for it are woken. Nothing is kept: who was not
listening has missed it. So a message may say that something changed, never be the only place where it stands, and
whoever keeps a copy of anything drops it when `on_reconnect` calls.

Two connections stand outside the pool. The one that listens reads its socket itself: `AsyncConnection.notifies` holds
the connection for as long as it waits, and nobody could begin or end listening to an answer meanwhile. The other one
sends what has gathered since its last statement, in order.

One process at a time can `lead` under a name. The lock is held by the connection that listens, so a process leads only
as long as it hears, and one that was killed leaves the lead to another at once.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

import orjson
import psycopg
from psycopg import AsyncConnection, sql
from psycopg.pq.abc import PGconn
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.core.db import after_commit, driver_address
from backend.core.locks import key_of

log = logging.getLogger(__name__)

Payload = dict[str, Any]
Handler = Callable[[Payload], None]
Led = Callable[[float | None], None]
Outgoing = tuple[str, str, "asyncio.Future[bool] | None"]  # channel, message, and who waits for it to be sent

MAX_BYTES = 7_900  # Postgres takes less than 8,000, our two words in front included

_SHARED = "parley"  # the channel of all topics without a dot
_NOBODY = "-"  # a sender without a bus: the command line

_PATIENCE = 2.0  # a connection that says nothing for this long is asked, and has as long for the reply
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_CONNECT_SECONDS = 3
_LAST_WORDS_SECONDS = 1.0
_MAX_WAITING = 10_000
_AT_ONCE = 200
_LEAD_AGAIN = 0.5  # seconds after which the lead is asked for again, while another process has it

_LEAD = "SELECT pg_try_advisory_lock(%s), extract(epoch FROM clock_timestamp())::float8"

# What is said is kept nowhere, so there is no disk to wait for. And a host that vanished holds no lead for hours.
_OPTIONS = "-c synchronous_commit=off -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"


class Bus:
    """`async with Bus(database_url) as bus`: hears and sends until it is left, and comes back by itself."""

    def __init__(self, database_url: str, *, patience: float = _PATIENCE) -> None:
        self.process_id = secrets.token_hex(4)
        self.connected = False  # whether messages of others are heard right now
        self._address = driver_address(database_url)
        self._patience = patience
        self._handlers: defaultdict[str, list[Handler]] = defaultdict(list)
        self._on_reconnect: list[Callable[[], None]] = []
        self._topics: Counter[str] = Counter()  # with a channel of their own, by how many asked for them
        self._listening: set[str] = set()
        self._listening_soon: list[asyncio.Future[None]] = []
        self._leads: dict[str, Led] = {}
        self._leading: set[str] = set()
        self._woken = asyncio.Event()
        self._first_try = asyncio.Event()
        self._waiting: deque[Outgoing] = deque()
        self._to_send = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._sender: AsyncConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._hear_for_ever()), asyncio.create_task(self._send_for_ever())]
        await self._first_try.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._all_sent.wait()
        except TimeoutError:
            log.warning("went without a last word to other processes")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._waiting:
            _settle(self._waiting.popleft()[2], False)

    # Hearing

    def on(self, topic: str, handler: Handler) -> None:
        """Call `handler` (plain, quick) with each message of `topic`; one with a dot needs `listen`, too."""
        self._handlers[topic].append(handler)

    def off(self, topic: str, handler: Handler) -> None:
        self._handlers[topic].remove(handler)
        if not self._handlers[topic]:
            del self._handlers[topic]

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` (plain, quick) whenever hearing begins anew: what was said meanwhile is lost."""
        self._on_reconnect.append(callback)

    async def listen(self, topic: str) -> None:
        """Returns once every later message of `topic` is heard; without a connection at once, and heard with the next.

        Counts: each `listen` needs its `unlisten`.
        """
        self._topics[topic] += 1
        if topic in self._listening or not self.connected:
            return
        try:
            await self._until_changed()
        except asyncio.CancelledError:
            await self.unlisten(topic)
            raise

    async def unlisten(self, topic: str) -> None:
        self._topics[topic] -= 1
        if self._topics[topic] <= 0:
            del self._topics[topic]
            self._woken.set()

    @asynccontextmanager
    async def listening(self, topic: str, handler: Handler) -> AsyncIterator[None]:
        """`handler` hears every message of `topic` that is sent while the block runs."""
        self.on(topic, handler)
        try:
            await self.listen(topic)
            try:
                yield
            finally:
                await self.unlisten(topic)
        finally:
            self.off(topic, handler)

    async def lead(self, name: str, led: Led) -> None:
        """Lead under this name whenever no other process does. Returns once it is known whether that is now.

        `led` (plain, quick) hears the moment it began, by the clock of the database, and None when it has ended because
        nothing is heard any more. Of two who believe that they lead, the one with the later moment is right.
        """
        self._leads[name] = led
        await self._until_changed()

    async def resign(self, name: str) -> None:
        """Leave the lead to another process, if it is here, and ask for it no more."""
        if self._leads.pop(name, None) is not None:
            await self._until_changed()

    def dispatch(self, topic: str, payload: Payload) -> None:
        """Hand a message to the handlers of this process."""
        for handler in tuple(self._handlers.get(topic, ())):
            _guarded(handler, payload)

    # Sending

    def post(self, topic: str, payload: Payload) -> None:
        """Tell the other processes soon, and wait for nothing; dropped while the database is away."""
        self._put(topic, payload, None)

    async def publish(self, topic: str, payload: Payload) -> bool:
        """Tell the other processes, and say whether it went out.

        Takes a few seconds at worst, and never raises for the database.
        """
        sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._put(topic, payload, sent)
        return await sent

    def _put(self, topic: str, payload: Payload, sent: asyncio.Future[bool] | None) -> None:
        self._waiting.append((_channel(topic), _written(self.process_id, topic, payload), sent))
        if len(self._waiting) > _MAX_WAITING:
            _settle(self._waiting.popleft()[2], False)
        self._all_sent.clear()
        self._to_send.set()

    async def _send_for_ever(self) -> None:
        dropped = 0
        try:
            while True:
                await self._to_send.wait()
                batch = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                try:
                    await self._send(batch)
                    if dropped:
                        log.warning("other processes can be told again; %d messages were dropped meanwhile", dropped)
                    dropped = 0
                except (psycopg.Error, OSError) as error:
                    await self._hang_up()
                    if not dropped:
                        log.warning("cannot tell other processes anything: %s", _first_line(error))
                    dropped += len(batch)
                for _, _, sent in batch:
                    _settle(sent, not dropped)
                if not self._waiting:
                    self._to_send.clear()
                    self._all_sent.set()
        finally:
            await self._hang_up()

    async def _send(self, batch: list[Outgoing]) -> None:
        if self._sender is not None:
            try:
                await self._say(self._sender, batch)
                return
            except psycopg.OperationalError:  # it broke while it was idle, as at a restart of Postgres
                await self._hang_up()
        self._sender = await self._connect("sends")
        await self._say(self._sender, batch)

    async def _say(self, connection: AsyncConnection, batch: list[Outgoing]) -> None:
        with _cut_after(self._patience, connection):
            await connection.execute(
                "SELECT pg_notify(channel, message) FROM unnest(%s::text[], %s::text[]) AS m(channel, message)",
                ([channel for channel, _, _ in batch], [message for _, message, _ in batch]),
                prepare=True,
            )

    async def _hang_up(self) -> None:
        if self._sender is not None:
            await self._sender.close()
            self._sender = None

    # Hearing, on the inside

    async def _until_changed(self) -> None:
        """Until what is asked for now was said to the database; not at all while it is away."""
        if self.connected:
            changed = asyncio.get_running_loop().create_future()
            self._listening_soon.append(changed)
            self._woken.set()
            await changed

    async def _hear_for_ever(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                connection = await self._connect("listens")
                try:
                    await self._begin(connection)
                    pause = _FIRST_PAUSE
                    await self._hear(connection)
                finally:
                    self._lose()
                    await connection.close()
            except (psycopg.Error, OSError) as error:
                log.warning("cannot hear other processes, trying again in %.1f s: %s", pause, _first_line(error))
            finally:
                self._first_try.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _begin(self, connection: AsyncConnection) -> None:
        connection.add_notify_handler(lambda notify: self._received(notify.channel, notify.payload))
        with _cut_after(_CONNECT_SECONDS, connection):
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_SHARED)))
            await self._change(connection)
        is_first = not self._first_try.is_set()
        self.connected = True
        self._first_try.set()
        if not is_first:
            log.info("hearing other processes again")
            for callback in self._on_reconnect:
                _guarded(callback)

    def _lose(self) -> None:
        self.connected = False
        self._listening.clear()
        while self._listening_soon:
            _settle(self._listening_soon.pop(), None)
        while self._leading:
            _guarded(self._leads.get(self._leading.pop(), _nobody), None)

    async def _hear(self, connection: AsyncConnection) -> None:
        """Until the connection breaks, which it says by raising."""
        loop = asyncio.get_running_loop()
        pgconn, descriptor = connection.pgconn, connection.fileno()
        broken: list[psycopg.Error] = []

        def read() -> None:
            try:
                self._take(pgconn)
            except psycopg.Error as error:
                loop.remove_reader(descriptor)  # it would be called again at once, for ever
                broken.append(error)
                self._woken.set()

        while True:
            # The statements below watch the same socket, so it is ours only between them.
            loop.add_reader(descriptor, read)
            try:
                async with asyncio.timeout(self._patience if self._leads.keys() <= self._leading else _LEAD_AGAIN):
                    await self._woken.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(descriptor)
            if broken:
                raise broken[0]
            with _cut_after(self._patience, connection):
                if self._woken.is_set() or not self._leads.keys() <= self._leading:
                    await self._change(connection)
                else:
                    await connection.execute("SELECT")
            self._take(pgconn)  # what came with the reply

    async def _change(self, connection: AsyncConnection) -> None:
        """Listen to what is asked for now, in one round trip, and lead where nobody does."""
        self._woken.clear()
        asked, waiting = set(self._topics), self._listening_soon.copy()
        new, old = asked - self._listening, self._listening - asked
        self._listening &= asked  # whoever asks again for one that ends just now has to wait
        statements = [sql.SQL("LISTEN {}").format(sql.Identifier(_channel(topic))) for topic in new]
        statements += [sql.SQL("UNLISTEN {}").format(sql.Identifier(_channel(topic))) for topic in old]
        if statements:
            await connection.execute(sql.SQL("; ").join(statements))
        self._listening = asked
        await self._change_leads(connection)
        for heard in waiting:
            _settle(heard, None)
        del self._listening_soon[: len(waiting)]

    async def _change_leads(self, connection: AsyncConnection) -> None:
        for name in self._leading - self._leads.keys():
            await connection.execute("SELECT pg_advisory_unlock(%s)", [key_of(name)])
            self._leading.discard(name)
        for name in self._leads.keys() - self._leading:
            reply = await connection.execute(_LEAD, [key_of(name)])
            row = await reply.fetchone()
            if row and row[0]:
                self._leading.add(name)  # also where it was resigned meanwhile: then it is given back next
                _guarded(self._leads.get(name, _nobody), row[1])

    def _take(self, pgconn: PGconn) -> None:
        pgconn.consume_input()
        while notify := pgconn.notifies():
            self._received(notify.relname.decode(), notify.extra.decode())

    def _received(self, channel: str, message: str) -> None:
        sender, _, rest = message.partition(" ")
        topic, _, payload = rest.partition(" ")
        if sender != self.process_id and channel == _channel(topic):
            _guarded(lambda: self.dispatch(topic, orjson.loads(payload)))

    async def _connect(self, what_for: str) -> AsyncConnection:
        return await AsyncConnection.connect(
            self._address,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            application_name=f"parley {what_for}",
            options=_OPTIONS,
        )


async def notify(session: AsyncSession, topic: str, payload: Payload) -> None:
    """Say it when this transaction commits, and never if it does not.

    Handlers of this process are called right after the commit, not only when the message comes back.
    """
    bus: Bus | None = session.info.get("bus")
    sender = bus.process_id if bus else _NOBODY
    await session.execute(
        text("SELECT pg_notify(:channel, :message)"),
        {"channel": _channel(topic), "message": _written(sender, topic, payload)},
    )
    if bus:
        after_commit(session, lambda: bus.dispatch(topic, payload))


def _channel(topic: str) -> str:
    return f"{_SHARED}.{topic}" if "." in topic else _SHARED


def _written(sender: str, topic: str, payload: Payload) -> str:
    message = b"%s %s %s" % (sender.encode(), topic.encode(), orjson.dumps(payload))
    if len(message) > MAX_BYTES:
        raise ValueError(f"a message about {topic!r} has {len(message)} bytes; at most {MAX_BYTES} can be sent")
    return message.decode()


def _guarded(callback: Callable[..., None], *arguments: object) -> None:
    """The outermost frame of what others registered: a mistake of one must not make the process deaf."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a handler of the bus failed")


@contextmanager
def _cut_after(seconds: float, connection: AsyncConnection) -> Iterator[None]:
    """A reply that does not come fails at once; to cancel the statement would mean to ask the silent server first."""
    timer = asyncio.get_running_loop().call_later(seconds, _cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: AsyncConnection) -> None:
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


def _nobody(_moment: float | None) -> None:
    """In place of who has resigned."""


def _settle(waiting: "asyncio.Future[Any] | None", result: object) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(result)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
