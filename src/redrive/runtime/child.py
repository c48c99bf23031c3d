"""The program of a child process that runs handlers of tasks with ``executor="process"``.

`redrive.runtime.processes` starts it, and exchanges messages with it through a socket. The child imports the modules of
the tasks, and then runs one handler at a time. It has no connection to the parent's database and renews no lease: the
parent does that.

If the parent ends, the socket closes, and a child with a running handler ends at once. A thread notices that, so a
handler that holds the interpreter lock would go on; on Linux the kernel also kills the child with its parent.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import faulthandler
import fcntl
import logging
import logging.handlers
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast

from redrive.app.attempts.context import Context, Pending
from redrive.app.attempts.effects import CURRENT, Effects
from redrive.app.attempts.handle import AttemptHandle, Stop
from redrive.app.attempts.resources import Resources
from redrive.app.importable import Place, find
from redrive.app.payload import Returns, Signature
from redrive.app.tasks.failures import permanent
from redrive.engine.origin import Effect
from redrive.engine.outcome import Outcome
from redrive.errors import ConfigurationError, PayloadError
from redrive.errors.foreign import trace
from redrive.observe.logs import forward
from redrive.policy import Policy
from redrive.policy.classify import refuse_coroutine
from redrive.runtime import layers
from redrive.runtime.handlers import outcome_of
from redrive.runtime.threads import carry_context
from redrive.stores.operations.attempts import ProgressReport

# The option of prctl(2) that sets the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1


class Setup(NamedTuple):
    """The first message to a child.

    Attributes:
        parent: the process id of the parent.
        path: ``sys.path`` of the parent.
        url: of its database.
        levels: the levels of its loggers by name; that of the root under the empty name.
        tasks: the names of the tasks, and where their functions are.
    """

    parent: int
    path: Sequence[str]
    url: str
    levels: Mapping[str, int]
    tasks: Sequence[tuple[str, Place]]


class Given(NamedTuple):
    """The fields of the context of an attempt, as the parent sends them."""

    job_id: int
    task: str
    attempt: int
    failures: int
    attempt_uid: str
    idempotency_key: str
    started_at: datetime
    deadline_at: datetime | None
    origin: str | None

    @classmethod
    def of(cls, context: Context) -> Given:
        """Return the fields of a context that a child can have."""
        return cls(*[getattr(context, name) for name in cls._fields])


class Run(NamedTuple):
    """A message to a child: run a handler. ``context`` is None for a handler without one."""

    task: str
    payload: bytes
    context: Given | None
    soft_for: float | None
    #: The policy by which the job retries; None if it does not, or if a function decides, which is not sent.
    policy: Policy | None
    #: The start of the attempt.
    at: datetime


class Asked(NamedTuple):
    """A message to a child: ask its handler to stop."""

    why: Stop


class Ready(NamedTuple):
    """A message from a child: it has imported the tasks, or could not, with the reason."""

    problem: str | None


class Done(NamedTuple):
    """A message from a child: the handler has returned this result, as JSON, or waits for an answer for some time."""

    result: bytes | None
    pending: timedelta | None = None
    effects: tuple[Effect, ...] = ()


class Raised(NamedTuple):
    """A message from a child: the attempt has failed so; the exception is pickled, if that is possible."""

    outcome: Outcome
    error: bytes | None


class Report(NamedTuple):
    """A message from a child: the handler has reported progress."""

    report: ProgressReport


class Logged(NamedTuple):
    """A message from a child: a record for the log."""

    record: logging.LogRecord


def main(descriptor: int) -> None:
    """Run handlers until the parent closes the socket; the function of the process."""
    fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    faulthandler.enable()
    channel = _Channel(Connection(descriptor))
    setup: Setup = channel.receive()
    _end_with(setup.parent)
    # The parent handles the signals of a terminal and of a service manager, and stops its children by itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.path[:] = setup.path
    forward(_Forward(channel), setup.levels)
    try:
        handlers = {name: _Handler(find(place), name) for name, place in setup.tasks}
    except BaseException as error:  # noqa: BLE001 - a module of the user may raise anything
        channel.send(Ready(trace(error)))
        return
    child = _Child(channel, handlers, setup.url)
    carry_context()
    threading.Thread(target=child.listen, name="redrive-parent", daemon=True).start()
    channel.send(Ready(None))
    child.work()


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, where that is possible."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before.
    if os.getppid() != parent:
        os._exit(1)


class _Channel:
    """The socket to the parent; any thread may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def receive(self) -> Any:  # noqa: ANN401 - any message
        return pickle.loads(self._connection.recv_bytes())  # noqa: S301 - from the parent, which has started this process

    def send(self, message: object) -> None:
        raw = pickle.dumps(message)
        # Without a parent nothing is of use; `_Child.listen` ends the process.
        with self._lock, contextlib.suppress(OSError):
            self._connection.send_bytes(raw)


class _Handler:
    """The function of a task, with its parameters and its result."""

    def __init__(self, function: Any, name: str) -> None:  # noqa: ANN401 - what the module has under that name
        self.function: Callable[..., Any] = function
        self.signature = Signature(function, name)
        self.returns = Returns(self.signature)


class _NoStore:
    """Stands in for the store of the parent, which a child cannot use."""

    def begin(self, asked: object = None) -> NoReturn:
        """Refuse to lend a connection."""
        del asked
        raise ConfigurationError(
            "ctx.transaction() needs a connection of the worker, and this handler runs in a child process: leave out "
            'executor="process", or write in a transaction of your own'
        )

    abegin = begin


class _ChildHandle(AttemptHandle):
    """The connection between an attempt in a child and its worker."""

    def __init__(self, given: Given, soft_for: float | None, send: Callable[[object], None]) -> None:
        job_id, _, lease_id = given.attempt_uid.partition(".")
        # The rest of the claim stays with the parent.
        claim = SimpleNamespace(id=int(job_id), lease_id=int(lease_id))
        super().__init__(cast("Any", claim), cast("Any", _NoStore()), _nothing, _nothing, soft_for)
        self._send = send

    def heartbeat(self, details: object, *, force: bool) -> None:
        """Report progress; see `Context.heartbeat`. The parent writes it."""
        if force:
            raise ConfigurationError(
                "ctx.heartbeat(force=True) writes to the database at once, which a handler in a child process cannot"
            )
        report = self.take_report(details, force=True)
        if report is not None:
            self._send(Report(report))


def _nothing(*_: object) -> None:
    """Return None: a child reads no clock of the database, and stores no result."""


class _Child:
    """Runs the handlers that the parent asks for, in the main thread, where libraries expect to be."""

    def __init__(self, channel: _Channel, handlers: Mapping[str, _Handler], url: str) -> None:
        self._channel = channel
        self._url = url
        self._handlers = handlers
        self._calls: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._busy = False
        self._handle: _ChildHandle | None = None

    def listen(self) -> None:
        """Receive messages until the parent closes the socket; the function of a thread."""
        while True:
            try:
                message = self._channel.receive()
            except (EOFError, OSError):
                break
            if isinstance(message, Run):
                self._busy = True
                self._calls.put(message)
            elif self._handle is not None:
                self._handle.stop(message.why)
        if self._busy:
            os._exit(1)
        self._calls.put(None)

    def work(self) -> None:
        """Run handlers one after the other."""
        while (run := self._calls.get()) is not None:
            # The next handler must not see what this one sets.
            answer = contextvars.copy_context().run(self._run, run)
            self._busy = False
            self._channel.send(answer)

    def _run(self, run: Run) -> Done | Raised:
        handler, effects = self._handlers[run.task], Effects(self._url)
        CURRENT.set(effects)
        try:
            arguments = handler.signature.read(run.payload)
            if run.context is not None and handler.signature.context is not None:
                arguments[handler.signature.context] = self._context(run.context, run.soft_for)
            # It ends with the context of the call.
            layers.begin(run.task, run.policy, run.at)
            result = refuse_coroutine(handler.function(**arguments), handler.function)
        except BaseException as error:  # noqa: BLE001 - it belongs to the attempt
            effects.close()
            return Raised(outcome_of(error), _pickled(error))
        finally:
            self._handle = None
        if isinstance(result, Pending):
            return Done(None, result.timeout, effects.close())
        try:
            return Done(handler.returns.check(result), effects=effects.close())
        except (PayloadError, ConfigurationError) as error:
            return Raised(permanent("BAD_RESULT", str(error)), _pickled(error))

    def _context(self, given: Given, soft_for: float | None) -> Context:
        self._handle = _ChildHandle(given, soft_for, self._channel.send)
        return Context(**given._asdict(), link=self._handle, resources=Resources())


def _pickled(error: BaseException) -> bytes | None:
    """Return an exception for the parent; None if it cannot be written, or not be read again."""
    try:
        raw = pickle.dumps(error)
        # Some exceptions can be pickled, but not be made again from their arguments.
        pickle.loads(raw)  # noqa: S301 - written just now
    except BaseException:  # noqa: BLE001 - methods of the user may raise anything
        return None
    return raw


class _Forward(logging.handlers.QueueHandler):
    """Sends the records of the log to the parent, with their messages already formatted."""

    def __init__(self, channel: _Channel) -> None:
        super().__init__(queue.SimpleQueue())
        self._channel = channel

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a record, without the additions of the user that cannot be pickled."""
        try:
            self._channel.send(Logged(record))
        except Exception:  # noqa: BLE001 - methods of the user may raise anything
            for name in [name for name, value in vars(record).items() if not isinstance(value, (str, int, float))]:
                setattr(record, name, None)
            self._channel.send(Logged(record))
