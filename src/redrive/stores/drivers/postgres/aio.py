"""The runner for coroutines: asyncpg, with connections of its own for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from redrive.clock import SystemClock
from redrive.errors import StoreBusy, StoreClosed, StoreError
from redrive.stores.drivers.postgres.errors import ends_session, is_read_only, no_server, translation
from redrive.stores.drivers.postgres.liveness import answers, lost_text
from redrive.stores.drivers.postgres.script import Script, Statement, full_script, inner_script
from redrive.stores.drivers.postgres.servers import Address, Attempt, NoServer, Search, Servers, Session, no_answer
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import STATE, session
from redrive.stores.drivers.postgres.timeline import Timeline
from redrive.stores.query import Compound, Operation, Query, R, Rows, Statements
from redrive.stores.store import MAY_WAIT
from redrive.stores.values.postgres import decoder

# The errors of asyncpg when the database refuses or does not answer. InternalClientError ("cannot switch to state")
# occurs if the session was ended between two messages.
ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

# Seconds of idleness after which the loop may have to notice the end of a session, and the rounds in which it does: it
# reads the last message, then the end of the stream, and then reports it.
_UNNOTICED, _ROUNDS = 0.01, 4

# Seconds after which a connection that nothing has needed is closed. A start and a burst use several at once, and in a
# fleet of idle workers these would take the sessions of the server.
IDLE = 60.0

# Seconds within which a connection is chosen that has run the same operation: a server process plans the statements of
# an operation when it runs it first, which takes longer than a claim of a hundred jobs. Operations that are further
# apart share the connection that was used last.
_RECENT = 1.0

# So many connections are opened as soon as they are needed: a claim and a settle overlap. Before an operation opens a
# further one, it waits until another one ends, for so many times as long as it took to open the last connection. A new
# session also plans its statements, so it would seldom answer sooner.
_AT_ONCE, _PATIENCE = 2, 6.0

# Seconds for which an operation that may wait (`redrive.stores.store.MAY_WAIT`) waits for its turn among these, and for
# a connection that is in use, before it opens a further one: the polls of an idle worker share one.
_WAIT = 1.0

# The operation whose connection the others that may wait leave alone, while there is another one. A claim that finds it
# in use is planned anew elsewhere, and the first jobs of a worker would wait for that.
_CLAIM = "claim"

_CLOCK = SystemClock()


def failure(error: BaseException, settings: PostgresSettings, *, commits: str | None) -> StoreError:
    """Translate an error of asyncpg after a statement that may have committed an operation; see `translation`."""
    # asyncpg raises an InterfaceError before it sends a statement.
    sent = not isinstance(error, asyncpg.InterfaceError)
    return translation(error, settings, commits=commits if sent else None)


# The types of arrays in the statements of redrive, without those of text, which asyncpg has: by their object ids, which
# are the same in each database, their elements.
_ARRAYS = {
    1000: (16, "bool", "boolean"),
    1001: (17, "bytea", "bytea"),
    1007: (23, "int4", "integer"),
    1016: (20, "int8", "bigint"),
    1185: (1184, "timestamptz", "timestamp with time zone"),
    1187: (1186, "interval", "interval"),
}


def array_type(oid: int) -> Mapping[str, Any]:
    """Return the description of a type of arrays, as the statement of asyncpg that reads types returns it."""
    element, name, title = _ARRAYS[oid]
    return {
        "oid": oid, "ns": "pg_catalog", "name": f"_{name}", "kind": b"b", "basetype": None, "elemtype": element,
        "elemdelim": b",", "range_subtype": None, "attrtypoids": None, "attrnames": None, "depth": 0,
        "basetype_name": None, "elemtype_name": title, "range_subtype_name": None,
    }  # fmt: skip


class _Introspection(NamedTuple):
    """The statement that has read types, as asyncpg uses it; no name means that it was an unnamed one."""

    name: str


class Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that reads no descriptions of arrays.

    asyncpg reads them on each connection, by a query that takes the server longer than a claim of a hundred jobs.

    Attributes:
        operations: the names of the operations that it has run.
        servers: those of which it has one.
        address: its server.
        era: that of the store when it was opened.
        turn: the turn of the servers when it was opened.
        limit: seconds after which an operation asks whether the server is there.
        lost: why it was closed in the middle of an operation; None if it was not.
        over: True if another object has taken over its session; see `renewed`.
        wanted_at: the instant of the loop's clock at which an operation has used it that may not wait for another one.
        is_changed: True if its user has changed how values are read or written, which is a part of the session.
    """

    def __init__(self, protocol: Any, transport: asyncio.Transport, *args: object, **kwargs: object) -> None:  # noqa: ANN401 - asyncpg's own
        super().__init__(protocol, transport, *args, **kwargs)
        self.made = functools.partial(type(self), protocol, transport, *args, **kwargs)
        self.over: bool = False
        self.is_changed: bool = False
        self.operations: set[str] = set()
        self.servers: Servers = Servers()
        self.address: Address = Address("")
        self.turn = self.era = 0
        self.limit: float = math.inf
        self.wanted_at: float = 0.0
        self.lost: str | None = None
        self._peer = transport.get_extra_info("peername")
        self._look_at: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def is_closed(self) -> bool:
        """Return True if it cannot be used any more."""
        return self.over or bool(super().is_closed())

    def terminate(self) -> None:
        """Close the session, unless another object has taken it over."""
        if not self.over:
            super().terminate()

    def end(self) -> None:
        """Close the session."""
        self.unwatch()
        self.over = False
        self.terminate()

    async def set_type_codec(self, *args: object, **kwargs: object) -> None:
        """Change how values of a type are read and written."""
        self.is_changed = True
        await super().set_type_codec(*args, **kwargs)

    async def set_builtin_type_codec(self, *args: object, **kwargs: object) -> None:
        """Change how values of a type are read and written."""
        self.is_changed = True
        await super().set_builtin_type_codec(*args, **kwargs)

    def watch(self) -> None:
        """Close the connection if its server does not answer on a new one either, from now on until `unwatch`."""
        if self.limit < math.inf:
            self._look_at = asyncio.get_running_loop().call_later(self.limit, self._begin_to_look)

    def unwatch(self) -> None:
        """Stop watching."""
        if self._look_at is not None:
            self._look_at.cancel()
            self._look_at = None
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _begin_to_look(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        if await asyncio.to_thread(answers, self._peer, self.limit):
            self.watch()
            return
        self.servers.lost(self.address)
        self.lost = lost_text(self.address, self.limit)
        self.terminate()

    @property
    def is_read_only(self) -> bool:
        """True if the server has reported that new transactions of the session cannot write."""
        reported = self.get_settings()
        return "on" in {reported.in_hot_standby, reported.default_transaction_read_only}

    async def _introspect_types(self, typeoids: Iterable[int], *options: float | None) -> tuple[Sequence[Any], Any]:
        wanted = set(typeoids)
        if wanted <= _ARRAYS.keys():
            return [array_type(oid) for oid in wanted], _Introspection("none")
        types: tuple[Sequence[Any], Any] = await super()._introspect_types(wanted, *options)
        return types


async def connect(
    settings: PostgresSettings,
    *,
    direct: bool = False,
    until: float = math.inf,
    kind: type[Connection] = Connection,
) -> Connection:
    """Open a connection to the first server that can be used; with ``direct`` past the pool, if there is one.

    Raise `StoreError` if there is none by the instant ``until`` of the loop's clock, or within the timeout of the
    settings if that is earlier.
    """
    clock = asyncio.get_running_loop().time
    past = settings.direct if direct else None
    servers = past or settings.servers
    pooled = settings.pgbouncer and past is None
    trying: Search[Connection] = settings.search(servers, now=clock(), until=until, close=Connection.terminate)
    with contextlib.closing(trying):
        try:
            attempt = next(trying)
            while True:
                tried = await _tried(settings, servers, attempt, kind, pooled=pooled)
                attempt = trying.send((tried, clock()))
        except StopIteration as stop:
            connection: Connection = stop.value
            return connection
        except NoServer as error:
            raise no_server(error, settings) from error.failures[-1][1]


async def _tried(
    settings: PostgresSettings, servers: Servers, attempt: Attempt, kind: type[Connection], *, pooled: bool
) -> Session[Connection] | Exception:
    """Try one server."""
    connection: Connection | None = None
    turn = servers.turn
    try:
        async with asyncio.timeout(attempt.seconds):
            connection = await asyncpg.connect(
                settings.dsn,
                **attempt.address.place,
                # The limit is that of the block.
                timeout=settings.timeout.total_seconds(),
                command_timeout=settings.timeout.total_seconds(),
                connection_class=kind,
                # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
                statement_cache_size=0 if pooled else 200,
                # Without a timer for each statement.
                max_cached_statement_lifetime=0,
                # The settings have it, also from the environment; see `_session`.
                target_session_attrs="any",
            )
            connection.servers, connection.address, connection.turn = servers, attempt.address, turn
            connection.limit = settings.patience(servers)
            return await _session(connection, pooled=pooled)
    except BaseException as error:
        if connection is not None:
            connection.terminate()
        if isinstance(error, TimeoutError):
            return TimeoutError(no_answer(attempt.seconds))
        if isinstance(error, (*ERRORS, ValueError)):
            return error
        raise


# As in `sync`: code that has kept the earlier object, or a cursor of it, cannot use the session any more.
def renewed(earlier: Connection) -> Connection:
    """Return another object for the session of a connection, in the state of a new one; end the earlier object."""
    connection: Connection = earlier.made()
    earlier.made.args[0].set_connection(connection)
    earlier.unwatch()
    earlier.over = True
    for name in ("servers", "address", "turn", "era", "limit", "is_changed"):
        setattr(connection, name, getattr(earlier, name))
    return connection


async def _session(connection: Connection, *, pooled: bool) -> Session[Connection]:
    """Return a session as `search` judges it."""
    if connection.servers.wanted == "any":
        return Session(connection, is_standby=False, is_read_only=False)
    if not pooled:
        standby = connection.get_settings().in_hot_standby == "on"
        return Session(connection, is_standby=standby, is_read_only=connection.is_read_only)
    # A pool reports the state of a session that it had before. In a transaction, as a statement has two messages.
    async with connection.transaction():
        row = await connection.fetchrow(STATE)
    return Session(connection, is_standby=row[0], is_read_only=row[1])


async def drive(
    connection: asyncpg.Connection[Any],
    steps: Statements[R],
    settings: PostgresSettings,
    first: Query | Compound | None = None,
) -> R:
    """Run an operation in a transaction that the caller ends; see `sync.drive`."""
    return await execute(connection, inner_script(steps, settings, first), settings)


async def execute(
    connection: asyncpg.Connection[Any],
    script: Script[R],
    settings: PostgresSettings,
    rows: Rows | None = None,
    failed: Callable[[BaseException], None] | None = None,
) -> R:
    """Execute the statements of a script; send it the rows, throw errors into it, and call ``failed`` with them."""
    try:
        statement = script.send(rows)
        while True:
            try:
                rows = await ask(connection, statement)
            except ERRORS as error:
                if failed is not None:
                    failed(error)
                statement = script.throw(failure(error, settings, commits=statement.commits))
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


async def ask(connection: asyncpg.Connection[Any], statement: Statement, seconds: float | None = None) -> Rows:
    """Execute one statement and return its rows; without ``seconds`` it may take as long as the connection permits."""
    try:
        if statement.values is None:
            status: str = await connection.execute(statement.text, timeout=seconds)
            # Such as SELECT 1, or INSERT 0 1.
            return [()] * int(status.rpartition(" ")[2]) if statement.counts else []
        rows: Rows = await connection.fetch(statement.text, *statement.values, timeout=seconds)
    except ERRORS as error:
        # A connection of the user has no such attribute.
        lost = getattr(connection, "lost", None)
        if lost is None:
            raise
        raise TimeoutError(lost) from error
    if statement.into is None or not rows:
        return rows
    return decoder(statement.into, tuple(rows[0].keys()))(rows)


async def begin(connection: Connection, opening: Statement) -> Rows:
    """Begin the transaction of a handler by a message, and return its rows."""
    rows = await ask(connection, opening)
    # What `Transaction.start` does besides: a transaction of the handler is a savepoint.
    connection._top_xact = connection.transaction()  # noqa: SLF001
    return rows


async def begin_session(connection: Connection, settings: PostgresSettings, timeline: Timeline) -> None:
    """Set the settings of a session, and record its server."""
    if not await _met(connection, session(settings, timeline.server), timeline):
        await connection.execute(session(settings))


async def meet(connection: Connection, timeline: Timeline) -> None:
    """Record the server of a session, whose settings are those of the server."""
    await _met(connection, f"SELECT {timeline.server}", timeline)


async def _met(connection: Connection, query: str, timeline: Timeline) -> bool:
    """Record the server of a session, the last column of a query; return False if the role may not read it."""
    # asyncpg returns no rows of a message without parameters, but those of a COPY, in one round trip.
    rows = bytearray()

    async def receive(data: bytes) -> None:
        """Keep what the server sends."""
        rows.extend(data)

    connection.era = timeline.era
    try:
        await connection.copy_from_query(query, output=receive)
    except asyncpg.PostgresError as error:
        if not timeline.refused(error.sqlstate):
            raise
        return False
    server = rows.decode().rstrip("\n").rpartition("\t")[2]
    connection.era = timeline.meet(None if server == r"\N" else server)
    return True


class AsyncRunner:
    """The pools of connections that run operations, one pool for each event loop."""

    def __init__(self, settings: PostgresSettings, timeline: Timeline) -> None:
        self._settings = settings
        self._timeline = timeline
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._closed = False

    async def run(self, operation: Operation[R], should_notify: Callable[[], bool] = bool) -> R:
        """Run an operation in a transaction of its own.

        The first answer must come within the timeout of the settings, including the time to wait for a connection and
        to open it; each further answer has that time for itself. Raise `StoreBusy` if no connection was free in time,
        `StoreUnreachable` if there was no answer in time, or no connection, or `StoreError` if the database refused.
        """
        if self._closed:
            raise StoreClosed(f"{self._settings} has been closed")
        script = full_script(operation, self._settings, should_notify)
        try:
            first = next(script)
        except StopIteration as stop:
            answer: R = stop.value
            return answer
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or await self._opened(loop)
        if MAY_WAIT.get():
            async with pool.poll():
                return await self._run_on(pool, first, script, operation)
        return await self._run_on(pool, first, script, operation)

    async def _run_on(self, pool: _Pool, first: Statement, script: Script[R], operation: Operation[R]) -> R:
        connection, rows = await pool.checkout(first, operation)
        try:
            failed = functools.partial(pool.close_spent, connection)
            return await execute(connection, script, self._settings, rows, failed)
        except BaseException as error:
            await pool.undo(connection, error)
            raise
        finally:
            pool.give_back(connection)

    def close(self) -> None:
        """Close the connections of all loops; one that is in use is closed when it is given back. Idempotent."""
        self._closed = True
        for loop, pool in list(self._pools.items()):
            pool.closed = True
            in_loop(loop, pool.close_idle)

    async def _opened(self, loop: asyncio.AbstractEventLoop) -> _Pool:
        """Open the pool of a loop."""
        self._pools = {each: kept for each, kept in self._pools.items() if not each.is_closed()}
        pool = self._pools[loop] = _Pool(self._settings, self._timeline, loop)
        await anext(pool.end)
        return pool


async def at_end_of_loop(close: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Call a function at the end of the loop that has begun to iterate over this."""
    # `asyncio.run` and its like close the asynchronous generators of a loop at its end, also if the user does not close
    # the store.
    try:
        yield
    finally:
        close()


def in_loop(loop: asyncio.AbstractEventLoop, close: Callable[[], None]) -> None:
    """Call a function that closes connections in their loop; one that is closed has closed its connections."""
    with contextlib.suppress(RuntimeError):
        if loop.is_running() and not _is_current(loop):
            loop.call_soon_threadsafe(close)
        else:
            close()


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class _Pool:
    """The connections of one event loop."""

    def __init__(self, settings: PostgresSettings, timeline: Timeline, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = False
        self._settings = settings
        self._timeline = timeline
        self._loop = loop
        #: Connections that are not in use, and since when, by that time.
        self._idle: list[tuple[Connection, float]] = []
        self._free = asyncio.Semaphore(settings.pool)
        self._in_use = 0
        self._opening = 0.0  # seconds that it took to open the last connection
        self._given_back: asyncio.Future[None] | None = None
        self._polls = asyncio.Lock()
        self.end = at_end_of_loop(self._close)

    def _close(self) -> None:
        self.closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that are not in use."""
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.terminate()

    async def checkout(self, first: Statement, operation: Operation[Any]) -> tuple[Connection, Rows]:
        """Take a connection and execute the first statement on it, perhaps more than once; return it and the rows.

        Of the connections that were used a moment ago, one is taken that has run such an operation.
        """
        until = self._loop.time() + self._settings.timeout.total_seconds()
        if self._free.locked():
            await self._wait_for_slot(until)
        else:
            await self._free.acquire()
        try:
            if self._in_use and not self._suitable(operation.name):
                await self._wait(self._patience, operation.name)
            self._in_use += 1
            try:
                return await self._open(first, operation, until)
            except BaseException:
                self._in_use -= 1
                raise
        except BaseException:
            self._free.release()
            raise

    @contextlib.asynccontextmanager
    async def poll(self) -> AsyncGenerator[None, None]:
        """Run operations that may wait one after the other, in the order in which they come."""
        has_turn = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                has_turn = await self._polls.acquire()
        try:
            yield
        finally:
            if has_turn:
                self._polls.release()

    async def _wait_for_slot(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            message = f"all {self._settings.pool} connections to {self._settings} are in use: set ?pool= higher"
            raise StoreBusy(message) from None

    @property
    def _patience(self) -> float:
        """The seconds to wait for a connection that another operation uses, before a further one is opened."""
        if MAY_WAIT.get():
            return _WAIT
        if self._in_use >= _AT_ONCE:
            return _PATIENCE * self._opening
        # A poll is short.
        return self._opening if self._polls.locked() else 0.0

    async def _wait(self, seconds: float, operation: str) -> None:
        """Wait a moment for a connection that another operation uses."""
        if not seconds:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._suitable(operation):
                    if self._given_back is None:
                        self._given_back = self._loop.create_future()
                    await asyncio.shield(self._given_back)

    async def _open(self, first: Statement, operation: Operation[Any], until: float) -> tuple[Connection, Rows]:
        """Execute the first statement; skip connections that died while they were idle."""
        while True:
            idle = await self._pop(operation.name)
            connection = idle or await self._connect(until)
            if operation.era is not None:
                self._check(operation.era, connection)
            connection.operations.add(operation.name)
            connection.watch()
            try:
                return connection, await ask(connection, first, until - self._loop.time())
            except ERRORS as error:
                connection.unwatch()
                connection.terminate()
                self.close_spent(connection, error)
                # A connection that does not answer in time is not skipped: the time is up. Nor is one that refuses a
                # value, as each would.
                may_have_committed = first.commits is not None and not is_read_only(error)
                is_final = isinstance(error, TimeoutError | asyncpg.DataError) and connection.lost is None
                if idle is None or may_have_committed or is_final:
                    raise failure(error, self._settings, commits=first.commits) from error
            except BaseException:
                connection.unwatch()
                connection.terminate()
                raise

    def _check(self, era: int, connection: Connection) -> None:
        """Raise `StoreUnreachable` if an operation is of an earlier era; its connection is kept for others."""
        try:
            self._timeline.check(era, self._settings)
        except StoreError:
            self._idle.append((connection, self._loop.time()))
            raise

    async def _connect(self, until: float) -> Connection:
        connection: Connection | None = None
        began = self._loop.time()
        try:
            connection = await connect(self._settings, until=until)
            async with asyncio.timeout_at(until):
                if not self._settings.pgbouncer:
                    await begin_session(connection, self._settings, self._timeline)
                connection.wanted_at = self._loop.time()
                self._opening = connection.wanted_at - began
                return connection
        except BaseException as error:
            if connection is not None:
                connection.terminate()
            if isinstance(error, ERRORS):
                raise failure(error, self._settings, commits=None) from error
            raise

    async def _pop(self, operation: str) -> Connection | None:
        """Take an idle connection with a session that the server has not ended."""
        # A statement that commits cannot be sent again on another connection. While the loop was not running, it did
        # not notice the end of a session.
        while self._idle:
            now = self._loop.time()
            connection, since = self._idle.pop(self._chosen(operation, now))
            if now - since > _UNNOTICED:
                await self._notice(connection)
            if connection.is_closed():
                continue
            # A pool that gives each transaction another session reports the state of one that it had before.
            is_writing = self._settings.pgbouncer or not connection.is_read_only
            if is_writing and self._is_current(connection):
                return connection
            connection.terminate()
        return None

    def _is_current(self, connection: Connection) -> bool:
        return connection.turn == self._settings.servers.turn and connection.era == self._timeline.era

    async def _notice(self, connection: Connection) -> None:
        """Let the loop notice the end of a session; close the connection if the task is cancelled meanwhile."""
        try:
            for _ in range(_ROUNDS):
                await _CLOCK.asleep(0)
        except BaseException:
            connection.terminate()
            raise

    def _suitable(self, operation: str) -> list[int]:
        """Return the indexes of the idle connections that an operation takes rather than waits."""
        every = range(len(self._idle))
        if operation == _CLAIM or not MAY_WAIT.get():
            return [*every]
        return [index for index in every if _CLAIM not in self._idle[index][0].operations]

    def _chosen(self, operation: str, now: float) -> int:
        """Return the index of the idle connection for an operation."""
        suitable = self._suitable(operation)
        for index in reversed(suitable):
            connection, since = self._idle[index]
            if now - since > _RECENT:
                break
            if operation in connection.operations:
                return index
        return suitable[-1] if suitable else -1

    def close_spent(self, connection: Connection, error: BaseException) -> None:
        """Close a connection that must not be used after an error, and the idle ones if the server is of no use."""
        # After a timeout, asyncpg would wait for the server before it sends another statement, such as ROLLBACK.
        if isinstance(error, TimeoutError) or ends_session(error):
            connection.terminate()
        if is_read_only(error):
            self._settings.servers.lost(connection.address)
        if connection.turn != self._settings.servers.turn:
            # Sessions from before belong to the same server, also those that are in use.
            self.close_idle()

    async def undo(self, connection: Connection, error: BaseException) -> None:
        """Roll back what an operation has left open, or close the connection."""
        if isinstance(error, Exception) and not connection.is_closed():
            if not connection.is_in_transaction():
                return
            with contextlib.suppress(*ERRORS):
                await connection.execute("ROLLBACK")
                return
        # The task was cancelled, perhaps in the middle of an answer: closing the connection ends its transaction.
        connection.terminate()

    def give_back(self, connection: Connection) -> None:
        """Let the next operation use a connection."""
        connection.unwatch()
        self._free.release()
        self._in_use -= 1
        if self._given_back is not None:
            self._given_back.set_result(None)
            self._given_back = None
        if connection.is_closed():
            return
        if self.closed or not self._is_current(connection) or connection.is_in_transaction():
            connection.terminate()
            return
        now = self._loop.time()
        if not MAY_WAIT.get():
            connection.wanted_at = now
        self._idle.append((connection, now))
        if len(self._idle) > 1:
            self._close_unwanted(now)

    def _close_unwanted(self, now: float) -> None:
        """Close a connection that only operations have used for long which could have waited for another one."""
        place = min(range(len(self._idle)), key=lambda each: self._idle[each][0].wanted_at)
        if now - self._idle[place][0].wanted_at > IDLE:
            self._idle.pop(place)[0].terminate()
