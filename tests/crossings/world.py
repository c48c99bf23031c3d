"""What a scenario plays in: a database, a clock that only tests move, processes with workers, and a ledger of effects.

A `Process` has an `App` of its own on the database, as a process of an application has, and runs a real worker until
nothing is due. All durable decisions take the time of the `VirtualClock`; only polls of the worker take real time. A
process can be killed at any point: whatever its tasks and threads do afterwards reaches neither the database nor the
ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import psycopg

from redrive import App
from redrive.clock import SystemClock
from redrive.errors import StoreUnreachable
from redrive.policy import parse_duration
from redrive.runtime.claimer import Quota
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases
from redrive.stores.operations.topics import feed
from redrive.stores.query import Operation
from redrive.testing import VirtualClock
from tests.crossings import deaths

TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)
"""Set by each function of the neighbours; no other function may see a value."""

LOCKED_FOR = 0.5
"""Seconds for which another session holds rows if nobody waits for them; a worker writes those of a locked run again
after 0.05."""

FILE_LOCKED_FOR = 0.12
"""Seconds for which another session holds the lock of a file, for which all statements wait."""

PATIENCE = 300.0
"""Seconds until a function that waits for its end gives up."""


SHORT, HASTE = 1.0, 10
"""Rests of a worker of at most so many seconds, such as those between two polls, pass so many times as fast."""


class HastyLoop(asyncio.SelectorEventLoop):
    """An event loop with short rests."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.TimerHandle:
        """Call a function at an instant, or earlier if that is near."""
        rest = when - self.time()
        if 0 < rest <= SHORT:
            when -= rest * (1 - 1 / HASTE)
        return super().call_at(when, callback, *args, **options)


class Killed(BaseException):
    """Raised in a process that was killed, by all that it does with the database."""


class Flag(threading.Event):
    """An event that can be sent to another process."""

    def __reduce__(self) -> tuple[Callable[[bool], Flag], tuple[bool]]:
        """Send whether it is set."""
        return _flag, (self.is_set(),)


def _flag(is_set: bool) -> Flag:
    made = Flag()
    if is_set:
        made.set()
    return made


class Ledger:
    """The effects of the functions of a scenario, which do not depend on the database.

    Attributes:
        made: the name of each effect that can be taken back, by its token.
        undone: how often each token was taken back.
        used: tokens that were used after they had been taken back.
        calls: how often each function has done its work.
        leaks: functions that have seen the context of another job.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.made: dict[int, str] = {}
        self.undone: Counter[int] = Counter()
        self.used: list[int] = []
        self.calls: Counter[str] = Counter()
        self.leaks: list[str] = []

    def make(self, name: str) -> int:
        """Note an effect that can be taken back, and return its token."""
        with self._lock:
            self.calls[name] += 1
            token = len(self.made) + 1
            self.made[token] = name
            return token

    def undo(self, token: int) -> None:
        """Note that an effect was taken back."""
        with self._lock:
            self.undone[token] += 1

    def use(self, token: int) -> None:
        """Note the use of an effect."""
        with self._lock:
            if self.undone[token]:
                self.used.append(token)

    def call(self, name: str) -> None:
        """Note a call."""
        with self._lock:
            self.calls[name] += 1

    def look(self, name: str) -> None:
        """Note if a function sees the context of another job."""
        if TENANT.get() is not None:
            self.leaks.append(f"{name} saw {TENANT.get()}")


class Staged(Quota):
    """A quota of a worker that ends when nothing is due and no step of the scenario is left.

    When nothing is due, the next step happens in a thread, such as another time or a signal, and the worker goes on.

    Attributes:
        error: of a step.
        claims: the number of claims that have begun.
    """

    def __init__(self, worker: Worker, steps: list[Callable[[], object]]) -> None:
        super().__init__(until_empty=True, ended=worker._end)
        self.worker, self.steps = worker, steps
        self.error: BaseException | None = None
        self.claims = 0
        self._present: asyncio.Task[None] | None = None
        self._seen = 0

    def next(self, is_quiet: Callable[[], bool]) -> bool:
        """Return True if the worker may end; otherwise let the next step happen."""
        if self._present is not None or not is_quiet():
            return False
        if self.claims <= self._seen:
            # The claim that has found nothing began before the end of the step.
            self.worker._look()
            return False
        if not self.steps:
            return True
        # While a step happens, the worker rests as one that does not end by itself.
        self.until_empty = False
        self._present = asyncio.create_task(self._take(self.steps.pop(0)))
        return False

    async def _take(self, step: Callable[[], object]) -> None:
        """Let a step happen, and have all duties look for what follows from it."""
        try:
            await asyncio.to_thread(step)
        except Exception as error:  # noqa: BLE001 - it is raised when the worker has ended
            self.error = error
            self.worker.stop()
            return
        for duty in (self.worker._wakes, self.worker._machines):
            if duty is not None:
                duty.quiet = False
        feeders = self.worker._attempts.feeders
        if feeders.count:
            by_job = {each.lease.job_id: each for each in feeders._running.values()}
            for look in await self.worker._app.store.arun(feed.look(list(by_job))):
                by_job[look.job_id].see(look)
        self._present, self._seen, self.until_empty = None, self.claims, True
        self.worker._look()


def _staged(self: Staged) -> Callable[[], bool]:
    return lambda: self.next(self._is_quiet)


def _put_quiet(self: Staged, is_quiet: Callable[[], bool]) -> None:
    self._is_quiet = is_quiet


# The worker sets this attribute when its duties are made.
Staged.scheduled = property(_staged, _put_quiet)  # type: ignore[assignment]


class Process:
    """A process of the application: an app, and a worker while `work` runs."""

    def __init__(self, world: World, version: int = 1) -> None:
        self.world, self.version = world, version
        self.app = App(world.url, clock=world.clock, heartbeat_every="5s", lease_for="15s")
        self.parts = world.declare(self, version)
        self.app.open()
        self.dead = self.stopping = self.replaced = False
        self.worker: Worker | None = None
        self.quota: Staged | None = None
        self._runner = asyncio.Runner(loop_factory=HastyLoop)
        self._running: asyncio.Task[None] | None = None
        self._guard()

    def _guard(self) -> None:
        """Have each operation of the database call the hooks of the scenario first, and fail in a dead process."""
        store: Any = self.app.store
        arun, run = store.arun, store.run

        async def guarded(operation: Operation[Any], **options: Any) -> Any:
            if self.dead:
                raise Killed
            hook = self.world.hooks.pop(operation.name, None) if self.worker is not None else None
            if hook is not None:
                await asyncio.to_thread(hook)
            if operation.name == "claim" and self.quota is not None:
                self.quota.claims += 1
            answer = await arun(operation, **options)
            if self.dead:
                raise Killed
            return answer

        def guarded_run(operation: Operation[Any], **options: Any) -> Any:
            if self.dead:
                raise StoreUnreachable("its process is dead")
            return run(operation, **options)

        store.arun, store.run = guarded, guarded_run

    def work(self, steps: list[Callable[[], object]]) -> None:
        """Run a worker until nothing is due and no step is left, or until the process is killed or stopped."""
        self._runner.run(self._work(steps))
        if self.dead or self.replaced:
            self.close()

    async def _work(self, steps: list[Callable[[], object]]) -> None:
        # One child process runs all handlers that need one: each comes after another one.
        worker = self.worker = Worker(
            self.app, concurrency=self.world.concurrency, processes=1, shutdown_timeout=timedelta(0)
        )
        quota = worker._quota = self.quota = Staged(worker, steps)
        self._running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(PATIENCE):
                await self._running
        except (Killed, asyncio.CancelledError, BaseExceptionGroup):
            if not self.dead:
                raise
            self.world.buried += [] if worker._registration is None else [worker._registration.id]
        finally:
            self.worker = self.quota = None
        if quota.error is not None:
            raise quota.error

    # ---------------------------------------------------------------- called by functions of a scenario, in any thread

    def kill(self) -> None:
        """Let nothing of this process take effect from now on; in a process of its own, end that."""
        if self.world.die is not None:
            registration = None if self.worker is None else self.worker._registration
            self.world.die(None if registration is None else registration.id)
        self.dead = True
        assert self._running is not None
        self._call(self._running.cancel)

    def term(self) -> None:
        """Stop the worker as two signals do: running functions are interrupted."""
        self.stopping = True
        assert self.worker is not None
        self._call(self.worker.stop)
        self._call(self.worker.stop)

    def time_over(self) -> bool:
        """End the time limit of the attempts that run; return True, because it cuts the function off."""
        self._call(self._end_limits)
        return True

    def _end_limits(self) -> None:
        assert self.worker is not None
        limits = self.worker._attempts._executor._limits
        for limit, row in list(limits._rows.items()):
            row.update({running: (0.0, task) for running, (_, task) in row.items()})
            limits._look(limit)

    def _call(self, function: Callable[[], object]) -> None:
        self._runner.get_loop().call_soon_threadsafe(function)

    @property
    def ends(self) -> bool:
        """True if a function that runs is about to be cut off."""
        return self.dead or self.stopping

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        self.app.close()
        if "postgresql" in self.world.url:
            # Connections that were terminated are closed by the next turns of the event loop.
            for _ in range(10):
                await SystemClock().asleep(0.001)


class World:
    """One scenario: the database, the clock, the ledger, and what happens at which moment.

    Args:
        url: of an empty database.
        declare: declares the code of a version in the app of a process, and returns what the scenario needs of it.
        concurrency: the slots of its workers.
        forks: True if each worker has a process of its own, which a death ends by SIGKILL.

    Attributes:
        memory: objects of the scenario that outlive such processes, as far as they can be sent to another one.
        die: ends this process, which is that of a worker.
    """

    def __init__(
        self, url: str, declare: Callable[[Process, int], Any], concurrency: int, *, forks: bool = False
    ) -> None:
        self.url, self.declare, self.concurrency, self.forks = url, declare, concurrency, forks
        self.memory: list[object] = []
        self.die: Callable[[int | None], None] | None = None
        self.clock = VirtualClock()
        self.ledger = Ledger()
        self.hooks: dict[str, Callable[[], None]] = {}
        self.buried: list[int] = []
        self.moments: dict[str, list[Callable[[Process], object]]] = {}
        self.healthy = False
        self.operator = Process(self)
        self._process: Process | None = None
        self._version = 1
        self._closing: list[Callable[[], None]] = []
        self._holding: threading.Thread | None = None

    @property
    def process(self) -> Process:
        """The process that works now; another one after a kill or a deploy."""
        if self._process is None or self._process.dead or self._process.replaced:
            self._process = Process(self, self._version)
        return self._process

    def deploy(self) -> None:
        """Replace the process by one with new code."""
        self._version = 2
        if self._process is not None and not self._process.dead:
            self._process.replaced = True
            if self._process.worker is not None:
                self._process.term()
            else:
                self._process.close()

    def work(self, *steps: Callable[[], object]) -> None:
        """Let workers do all that is due, and then each step and what is due after it.

        Another worker follows one that was killed or stopped.
        """
        left = list(steps)
        if not self.forks:
            self.work_here(left)
            return
        while not deaths.work(self, left):
            self._bury()

    def work_here(self, left: list[Callable[[], object]]) -> None:
        """Let workers of this process do so."""
        while True:
            process = self.process
            process.stopping = False
            process.work(left)
            if self.buried:
                self._bury()
            elif not process.ends:
                return

    def _bury(self) -> None:
        """Have the leases of dead workers end."""
        numbers, self.buried = self.buried, []
        if self._holding is not None:
            # A sweep leaves locked rows out. Workers sweep again, but not within a scenario.
            self._holding.join()
        self.clock.advance("20s")
        self.operator.app.store.run(leases.sweep(1000, gone=numbers, now=self.clock.now()))

    def step_back(self, span: str) -> None:
        """Set the clock back, as a service of time does."""
        self.clock._now -= parse_duration(span)

    # ---------------------------------------------------------------- moments

    def at(self, moment: str, event: Callable[[Process], object]) -> None:
        """Have an event happen once when a function reaches a moment."""
        self.moments.setdefault(moment, []).append(event)

    def arrange(self, moment: str, happens: Callable[[Process | None], None]) -> None:
        """Have an event happen before the first attempt, within it, or before its end is written."""
        if moment == "queued":
            happens(None)
        elif moment == "working":
            self.at("working", happens)
        elif moment == "settling":
            self.at("working", lambda process: self.hooks.update(settle=lambda: happens(process)))

    def reach(self, process: Process, *moments: str) -> bool:
        """Called by functions in threads: let the events of this moment happen; return True if they cut it off."""
        if process.dead:
            raise Killed
        for moment in moments:
            while self.moments.get(moment):
                is_cut = self.moments[moment].pop(0)(process)
                if process.dead:
                    raise Killed
                if is_cut or process.ends:
                    return True
        return False

    async def areach(self, process: Process, *moments: str) -> None:
        """Called by coroutines: let the events of this moment happen, and be cut off where they say so."""
        if not any(self.moments.get(moment) for moment in moments):
            return
        if await asyncio.to_thread(self._reach, process, moments):
            await asyncio.Event().wait()

    def _reach(self, process: Process, moments: Sequence[str]) -> bool:
        try:
            return self.reach(process, *moments)
        except Killed:
            return True

    # ---------------------------------------------------------------- another session of the database

    def lock_jobs(self) -> None:
        """Have another session hold all rows of jobs for a moment; on SQLite, the lock of the file."""
        if "postgresql" not in self.url:
            file = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            file.execute("BEGIN IMMEDIATE")
            threading.Timer(FILE_LOCKED_FOR, file.close).start()
            return
        connection = psycopg.connect(_dsn(self.url))
        connection.execute(f"SELECT 1 FROM {self._schema}.redrive_jobs FOR UPDATE")  # noqa: S608 - made by the test
        self._holding = threading.Thread(target=_hold, args=(connection,))
        self._holding.start()

    # ---------------------------------------------------------------- a table of the application

    @property
    def table(self) -> str:
        """The name of the table for the effects of transactions."""
        return f"{self._schema}.crossing" if "postgresql" in self.url else "crossing"

    @property
    def _path(self) -> str:
        return self.url.partition("///")[2].partition("?")[0]

    @property
    def _schema(self) -> str:
        return self.operator.app.store.settings.schema  # type: ignore[attr-defined, no-any-return]

    def create_table(self) -> None:
        """Create the table for the effects of transactions, or empty it."""
        self._execute(f"CREATE TABLE IF NOT EXISTS {self.table} (id text)")
        self._execute(f"DELETE FROM {self.table}")  # noqa: S608 - made by the test

    def rows(self) -> list[str]:
        """Return the rows of the table."""
        return [id for (id,) in self._execute(f"SELECT id FROM {self.table}")]  # noqa: S608 - made by the test

    def _execute(self, statement: str) -> list[Any]:
        if "postgresql" in self.url:
            with psycopg.connect(_dsn(self.url), autocommit=True) as connection:
                answer = connection.execute(statement)
                return answer.fetchall() if answer.description else []
        with contextlib.closing(sqlite3.connect(self._path)) as file, file:
            return file.execute(statement).fetchall()

    def close(self) -> None:
        """Close all processes."""
        if self._process is not None and not (self._process.dead or self._process.replaced):
            self._process.close()
        self.operator.close()


def _hold(connection: psycopg.Connection[Any]) -> None:
    """Hold the locks of a session until another one waits for them, which so has met them, or for some time."""
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)) LIMIT 1"
    end = SystemClock.monotonic() + LOCKED_FOR
    with contextlib.closing(connection):
        while SystemClock.monotonic() < end and connection.execute(waiting).fetchone() is None:
            threading.Event().wait(0.005)


def _dsn(url: str) -> str:
    from urllib.parse import parse_qs, urlsplit

    options = parse_qs(urlsplit(url).query)
    return f"host={options['host'][0]} user=postgres dbname=postgres"


@contextlib.contextmanager
def world(
    url: str, declare: Callable[[Process, int], Any], *, concurrency: int = 20, forks: bool = False
) -> Iterator[World]:
    """Yield a scenario's world, and close it."""
    made = World(url, declare, concurrency, forks=forks)
    try:
        yield made
    finally:
        made.close()
