"""The child processes in which handlers of tasks with ``executor="process"`` run.

Each child is a fresh interpreter (`redrive.runtime.child`) with a socket of its own, runs one handler at a time, and
leads a process group. So it can be killed at any instant, with the processes that its handler has started, and no other
child is affected: they share no queue and no lock. A child that has ended is replaced at the next need.

The parent holds the leases, writes heartbeats and settles. It kills the child of an attempt that is cut off: by its
timeout, by the loss of its lease, or at the end of a shutdown. An attempt is lost if its child dies, as if a worker
had died: the third in a row is the death of the job, with the reason ``POISON``.

A worker claims jobs of these tasks for its free children, and as many more as they will start within a moment
(`redrive.engine.pace`). A job that has not started within `PATIENCE` is given back, with no attempt spent.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any

from redrive.app.app import App
from redrive.app.attempts.context import Context, Pending
from redrive.app.attempts.effects import CURRENT as EFFECTS
from redrive.app.attempts.handle import AttemptHandle, Stop
from redrive.app.importable import check_importable
from redrive.app.tasks.task import Task
from redrive.clock import SystemClock
from redrive.engine.outcome import Failed, Lost
from redrive.engine.pace import PATIENCE, Pace
from redrive.engine.records import Claim
from redrive.errors import ConfigurationError
from redrive.observe.logs import levels, replay
from redrive.runtime.child import Asked, Done, Given, Logged, Raised, Ready, Report, Run, Setup
from redrive.runtime.handlers import EndedInChild

# Seconds in which an idle child may end by itself after its socket was closed.
LAST_WAIT = 1.0

# Seconds in which what a child has sent arrives after its end.
LAST_WORDS = 1.0

# The length of a message, as `multiprocessing.connection` writes it.
_LENGTH = struct.Struct("!i")

_PROGRAM = "from redrive.runtime.child import main; main({})"


class ChildError(Exception):
    """The exception of a handler in a child process, which could not be carried over; its text is kept."""


class ChildDied(Exception):
    """The child process of a handler has ended before the handler."""


class Child:
    """One child process.

    Args:
        setup: its first message.
        number: of the child, for the name of its thread.
        context: the context variables of the worker. A child outlives the attempt that starts it.
    """

    def __init__(self, setup: Setup, number: int, context: contextvars.Context) -> None:
        self._loop = asyncio.get_running_loop()
        self._setup = setup
        self._number = number
        self._context = context
        self._process: subprocess.Popen[bytes] | None = None
        self._exited: asyncio.Future[str] = self._loop.create_future()
        self._ready: asyncio.Future[str | None] = self._loop.create_future()
        self._answer: asyncio.Future[Done | Raised] | None = None
        self._link: AttemptHandle | None = None
        self._killed = False

    @property
    def usable(self) -> bool:
        """True unless the process has ended, or is being killed."""
        return not self._killed and not self._serving.done()

    async def start(self) -> str | None:
        """Start the process, and return why it is of no use; None if it has imported the tasks."""
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=self._run, args=(theirs,), name=f"redrive-child_{self._number}", daemon=True)
        thread.start()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._serving = asyncio.create_task(self._serve(reader), context=self._context)
        self._send(self._setup)
        return await asyncio.shield(self._ready)

    # The kernel kills a child when the *thread* that has started it ends. This one ends after the child.
    def _run(self, theirs: socket.socket) -> None:
        """Start the process and wait for its end; the function of a thread."""
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a program of our own
                    [sys.executable, *_options(), "-c", _PROGRAM.format(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            if self._killed:
                self.kill()
            end = _described(self._process.wait())
        except OSError as error:
            end = f"could not be started: {error}"
        # The event loop may have ended, and with it the worker.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._exit, end)

    def _exit(self, end: str) -> None:
        if not self._exited.done():
            self._exited.set_result(end)

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        """Receive messages until the process has ended."""
        reading = asyncio.create_task(self._read(reader))
        try:
            end = await self._exited
            # A process that the handler has started may hold the socket open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await reading
        finally:
            reading.cancel()
            self._writer.close()
        pid = "" if self._process is None else f" {self._process.pid}"
        died = ChildDied(f"the child process{pid} {end}")
        if not self._ready.done():
            self._ready.set_result(str(died))
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(died)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                self._received(pickle.loads(await reader.readexactly(length)))  # noqa: S301 - from a process of ours
        except (asyncio.IncompleteReadError, OSError):
            # Without its socket a child is of no use.
            self.kill()

    def _received(self, message: object) -> None:
        match message:
            case Ready(problem):
                self._ready.set_result(problem)
            case Report(report):
                if self._link is not None:
                    self._link.keep_report(report)
            case Logged(record):
                replay(record)
            case Done() | Raised() if self._answer is not None and not self._answer.done():
                self._answer.set_result(message)

    def _send(self, message: object) -> None:
        raw = pickle.dumps(message)
        self._writer.write(_LENGTH.pack(len(raw)) + raw)

    async def run(self, task: Task[Any, Any, Any], claim: Claim, context: Context | None) -> Any:  # noqa: ANN401 - of the user
        """Run the handler of a claimed job and return its result; raise `EndedInChild` if it has failed.

        The process is killed if the caller is cancelled.
        """
        soft = task.traits.soft_timeout
        given = None if context is None else Given.of(context)
        soft_for = None if soft is None else soft.total_seconds()
        policy = None if claim.catching or callable(claim.policy.on) else claim.policy.without_functions()
        run = Run(task.name, claim.payload or b"{}", given, soft_for, policy, claim.claimed_at)
        try:
            answer = await self._call(run, None if context is None else context.link)
        except ChildDied as died:
            raise EndedInChild(Lost(f"{died} in attempt {claim.attempt}"), died) from None
        if isinstance(answer, Raised):
            raise EndedInChild(answer.outcome, _error(answer))
        effects = EFFECTS.get()
        if effects is not None and answer.effects:
            effects.add(*answer.effects)
        return task.returns.read(answer.result) if answer.pending is None else Pending(answer.pending)

    async def _call(self, run: Run, link: AttemptHandle | None) -> Done | Raised:
        self._answer, self._link = self._loop.create_future(), link
        if link is not None:
            link.forward = self._ask
        try:
            self._send(run)
            if self._serving.done():
                self._answer.set_exception(ChildDied("the child process has ended"))
            return await self._answer
        except BaseException:
            self.kill()
            raise
        finally:
            self._answer = self._link = None
            if link is not None:
                link.forward = None

    def _ask(self, why: Stop) -> None:
        # Any thread may ask.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._send, Asked(why))

    def kill(self) -> None:
        """Kill the process and those that its handler has started."""
        self._killed = True
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Let the process end, and kill it if it does not."""
        # The child reads the end, and answers with its own.
        with contextlib.suppress(OSError):
            self._writer.write_eof()
        await asyncio.wait([self._serving], timeout=LAST_WAIT)
        self.kill()
        await self._serving


def _options() -> list[str]:
    """Return the options of this interpreter, such as ``-W error``, for another one."""
    # As multiprocessing does.
    options: list[str] = getattr(subprocess, "_args_from_interpreter_flags")()  # noqa: B009 - typeshed lacks it
    return options


def _described(code: int) -> str:
    """Describe the end of a process."""
    if code >= 0:
        return f"ended with the exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (as by the kernel, if the memory runs out)" if name == "SIGKILL" else "")


def process_tasks(app: App) -> dict[str, Task[Any, Any, Any]]:
    """Return the tasks of an app with handlers that run in child processes, by name."""
    return {name: task for name, task in app.tasks.items() if task.traits.executor == "process"}


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Processes:
    """The child processes of one worker.

    Args:
        app: the app with the tasks.
        count: the largest number of children.
    """

    def __init__(self, app: App, count: int) -> None:
        self._app = app
        self._count = count
        self._context = contextvars.copy_context()
        self._free = asyncio.Semaphore(count)
        self._pace = Pace()
        self._served = self._tasks = frozenset[str]()
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._started = 0

    async def open(self) -> None:
        """Start the first child. Raise `ConfigurationError` if a child cannot import the tasks."""
        async with self.lend():
            pass

    @property
    def tasks(self) -> frozenset[str]:
        """The names under which jobs of tasks with ``executor="process"`` are stored."""
        served = self._app.served()
        if self._served is not served:
            needing = process_tasks(self._app).values()
            self._tasks = frozenset(name for name in served if self._app.find(name) in needing)
            self._served = served
        return self._tasks

    def room(self, claims: Iterable[Claim]) -> int:
        """Return how many jobs to claim for children, besides these claims of the worker."""
        waiting = sum(claim.task in self.tasks for claim in claims) - self._count
        ahead = self._pace.ahead(SystemClock.monotonic())
        # While half as many wait as should, none is claimed: a small claim costs as much.
        return max(ahead - waiting, 0) if waiting < 0 or 2 * waiting <= ahead else 0

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[Child | None]:
        """Lend a child for one handler; None if none becomes free within `PATIENCE`."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            # The estimate was wrong: the pace is measured anew.
            self._pace = Pace()
            yield None
            return
        began = SystemClock.monotonic()
        try:
            child = await self._child()
            try:
                yield child
            finally:
                if child.usable:
                    self._idle.append(child)
                else:
                    self._children.discard(child)
        finally:
            self._free.release()
            ended = SystemClock.monotonic()
            self._pace = self._pace.after(1, ended - began, ended)

    async def _child(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
            self._children.discard(child)
        child = Child(self._setup(), self._started, self._context.copy())
        self._started += 1
        self._children.add(child)
        try:
            problem = await child.start()
        except BaseException:
            self._drop(child)
            raise
        if problem is not None:
            self._drop(child)
            raise ConfigurationError(f'a child process cannot import the tasks with executor="process": {problem}')
        return child

    def _drop(self, child: Child) -> None:
        child.kill()
        self._children.discard(child)

    def _setup(self) -> Setup:
        places = [(name, check_importable(task)) for name, task in process_tasks(self._app).items()]
        return Setup(os.getpid(), tuple(sys.path), self._app.url, levels(), places)

    async def close(self) -> None:
        """End all children, and kill those that do not end."""
        await asyncio.gather(*[child.close() for child in self._children])


def _error(answer: Raised) -> BaseException:
    if answer.error is not None:
        # Its module may be one that only the child has imported, and that fails here.
        with contextlib.suppress(Exception):
            error: BaseException = pickle.loads(answer.error)  # noqa: S301 - from a process of ours
            return error
    return ChildError(answer.outcome.failure.message if isinstance(answer.outcome, Failed) else "")
