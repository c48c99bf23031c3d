"""Calls in process: the factors, the forms of a call, and how a row is played.

The expected attempts and waits are those of `Policy.decide`, which is given failures that are written here by hand:
the stage of each exception, and the verdict on it, stand in a table and are not read from the exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import threading
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import httpx
import psycopg
import redis
import trio
from psycopg import errors as psycopg_errors
from sqlalchemy import exc

import redrive
from redrive import App, Flow, Policy, Rule
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport
from redrive.policy import Backoff, Failure, History, Retry, Stage
from redrive.testing import VirtualClock, drain
from tests.crossings.arrays import Row, Table, Void
from tests.retrying.helpers import START, JumpingClock, checkpoint

NOT_SENT, IN_FLIGHT, ANSWERED = Stage.NOT_SENT, Stage.IN_FLIGHT, Stage.ANSWERED
ATTEMPTS = 3


class Broken(Exception):
    """An error whose attributes raise."""

    @property
    def retry_after(self) -> float:
        """Read a header that is missing."""
        raise KeyError("retry-after")


class RpcError(grpc.RpcError):
    """An error with the methods of ``grpcio``'s errors."""

    def code(self) -> grpc.StatusCode:
        """Return the code."""
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        """Return the text."""
        return "Socket closed"

    def trailing_metadata(self) -> tuple[()]:
        """Return no metadata."""
        return ()


@dataclass(frozen=True)
class Kind:
    """What is known about the failures of one kind, by its documentation.

    Attributes:
        make: returns the exception, given the method of the request if there is one.
        names: the class that a policy names.
        stage: how far the call got; of a request, if it may not be repeated.
        reason: its name.
        lasting: True if another attempt would fail alike.
        asked: seconds that the other side asks for.
        by_method: True if the stage is *answered* for a request that may be repeated.
    """

    make: Callable[[str], Exception]
    names: type[Exception]
    stage: Stage
    reason: str = "ERROR"
    lasting: bool = False
    asked: int | None = None
    by_method: bool = False


def _answer(status: int, **headers: str) -> Callable[[str], Exception]:
    """Return a function that makes what ``raise_for_status`` raises."""

    def make(method: str) -> Exception:
        request = httpx.Request(method, "http://shop/")
        response = httpx.Response(status, request=request, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return httpx.HTTPStatusError(f"status {status}", request=request, response=response)

    return make


def _sqlite(_: str) -> Exception:
    """Return the error of SQLAlchemy for a statement that SQLite cannot read."""
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("SELEC 1")
    except sqlite3.OperationalError as error:
        return exc.OperationalError("SELEC 1", {}, error)
    raise AssertionError


KINDS = {
    "refused": Kind(lambda _: ConnectionRefusedError(), OSError, NOT_SENT),
    "reset": Kind(lambda _: ConnectionResetError(), OSError, IN_FLIGHT),
    "timeout": Kind(lambda _: TimeoutError(), TimeoutError, IN_FLIGHT),
    "os": Kind(lambda _: OSError("mine"), OSError, ANSWERED),
    "urllib-refused": Kind(lambda _: urllib.error.URLError(ConnectionRefusedError()), OSError, NOT_SENT),
    "urllib-timeout": Kind(lambda _: urllib.error.URLError(TimeoutError()), OSError, IN_FLIGHT),
    "broken": Kind(lambda _: Broken("busy"), Broken, ANSWERED),
    "bug": Kind(lambda _: NameError("name"), NameError, ANSWERED, "PROGRAMMING_ERROR", lasting=True),
    "httpx-connect": Kind(lambda _: httpx.ConnectError("no"), httpx.TransportError, NOT_SENT),
    "httpx-read": Kind(lambda _: httpx.ReadTimeout("no"), httpx.TransportError, IN_FLIGHT, "TIMEOUT"),
    "httpx-503": Kind(_answer(503), httpx.HTTPStatusError, IN_FLIGHT, "HTTP_503", by_method=True),
    "httpx-404": Kind(_answer(404), httpx.HTTPStatusError, IN_FLIGHT, "HTTP_404", lasting=True, by_method=True),
    "httpx-429": Kind(_answer(429, Retry_After="60"), httpx.HTTPStatusError, ANSWERED, "HTTP_429", asked=60),
    "grpc": Kind(lambda _: RpcError(), grpc.RpcError, IN_FLIGHT, "GRPC_UNAVAILABLE"),
    "redis": Kind(
        lambda _: redis.ConnectionError("lost"), redis.ConnectionError, IN_FLIGHT, "SOCKET_CLOSED_WHILE_IN_FLIGHT"
    ),
    "psycopg": Kind(
        lambda _: psycopg.OperationalError("lost"), psycopg.OperationalError, IN_FLIGHT, "CONNECTION_FAILURE"
    ),
    "psycopg-deadlock": Kind(
        lambda _: psycopg_errors.DeadlockDetected(), psycopg.OperationalError, ANSWERED, "DEADLOCK_DETECTED"
    ),
    "asyncpg": Kind(
        lambda _: asyncpg.ConnectionDoesNotExistError("closed"),
        asyncpg.PostgresError, IN_FLIGHT, "CONNECTION_EXCEPTION",
    ),
    "sqlalchemy-sqlite": Kind(_sqlite, exc.OperationalError, ANSWERED, "SQLSTATE_HY000", lasting=True),
}  # fmt: skip
"""What each failure is. The stages are those of `redrive.policy.stage` and of the integrations, in words."""

DURABLE = ("job", "step")
LATE_NAMES = ("reason", "rule", "predicate")

IN_PROCESS = ("decorated", "timed", "called", "outcome", "block", "generator")
CANCELS = ("none", "before", "attempt", "wait", "replaced")
LIBRARIES = ("sync", "asyncio", "trio")
NO_WAIT = tuple(name for name, kind in KINDS.items() if kind.asked is None)

COMMON = (
    Void("a blocking call ends by its event, which no attempt can swallow",
         {"library": ["sync"], "cancel": ["replaced"]}),
    Void("nothing waits", {"cancel": ["wait"], "delay": ["zero"], "failure": NO_WAIT}),
)  # fmt: skip

CALLS = Table(
    "calls",
    {
        "failure": tuple(KINDS),
        "names": ("class", *LATE_NAMES, "nothing"),
        "word": ("open", "no", "yes"),
        "callee": ("function", "task-no", "task-yes", "retried-no"),
        "form": (*IN_PROCESS, *DURABLE),
        "cancel": CANCELS,
        "delay": ("zero", "second"),
        "library": LIBRARIES,
    },
    (
        *COMMON,
        Void("in process, a policy names what it retries", {"names": ["nothing"], "form": IN_PROCESS}),
        Void("only a worker takes a class for a bug", {"failure": ["bug"], "form": IN_PROCESS}),
        Void("the tables of jobs and runs have the verbs of operators", {"form": DURABLE, "cancel": CANCELS[1:]}),
        Void("workers run on asyncio", {"form": DURABLE, "library": ["trio"]}),
        Void("the function of a step is stored with the code of the run", {"form": ["step"], "names": ["predicate"]}),
        Void("a blocking call has no limit of an attempt", {"form": ["timed"], "library": ["sync"]}),
    ),
    triples=True,
)

REQUESTS = Table(
    "requests",
    {
        "failure": tuple(name for name in KINDS if name.startswith("httpx")),
        "names": ("class", *LATE_NAMES, "nothing"),
        # The request says whether it may be repeated.
        "word": ("open", "yes"),
        "cancel": CANCELS,
        "delay": ("zero", "second"),
        "library": LIBRARIES,
    },
    (
        *COMMON,
        Void("a transport that swallows a cancellation has an answer, and no error",
             {"cancel": ["replaced"], "failure": ["httpx-503", "httpx-404", "httpx-429"]}),
    ),
    size=3,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------- the forecast


@dataclass
class Seen:
    """The end of a call: its attempts, its waits in seconds, and ``raised`` or ``cancelled``."""

    calls: int = 0
    waits: list[float] = field(default_factory=list)
    end: str = "raised"


def method_of(row: Row) -> str:
    """Return the method of the request: a policy that may repeat it sends one that allows it."""
    return "GET" if row["word"] == "yes" else "POST"


def failure_of(row: Row) -> Failure:
    """Return the failure of a row, by the table."""
    kind = KINDS[row["failure"]]
    types = tuple(f"{each.__module__}.{each.__qualname__}" for each in type(kind.make("GET")).__mro__[:-2])
    stage = ANSWERED if kind.by_method and row["word"] == "yes" else kind.stage
    is_named = row["names"] in LATE_NAMES if row["form"] == "transport" else row["names"] != "nothing"
    once = "charge" if row["callee"] in {"task-no", "retried-no"} else None
    return Failure(
        types,
        reason=kind.reason,
        stage=stage,
        hint=None if kind.asked is None else timedelta(seconds=kind.asked),
        candidate=is_named if kind.lasting or row["names"] == "predicate" else None,
        once=once,
    )


def forecast(row: Row) -> Seen:
    """Return how a call ends, by `Policy.decide` and the table."""
    failure, seen, cancel = failure_of(row), Seen(), row["cancel"]
    may = row["word"] == "yes" or (row["word"] == "open" and row["form"] in DURABLE)
    policy, history = policy_of(row).with_(idempotent=may, stop=None), History(1, START)
    while True:
        seen.calls += 1
        decision = policy.decide(history, failure, START, 0.5)
        is_async = row["library"] != "sync"
        if is_async and (cancel == "attempt" or (cancel == "replaced" and row["library"] == "asyncio")):
            # What the policy would decide is not asked.
            return Seen(1, [], "cancelled")
        if not isinstance(decision, Retry):
            return seen
        if not is_async and cancel in {"before", "attempt"}:
            # The event is set, and nothing is retried.
            return seen
        delay = decision.delay.total_seconds()
        if delay or row["form"] in DURABLE:
            seen.waits.append(delay)
        if cancel != "none":
            # The next wait raises the cancellation, or ends by the event.
            return Seen(seen.calls, seen.waits, "cancelled" if is_async else "raised")
        history = policy.advance(history, failure, decision.delay, now=START, sample=0.5)
        history = history._replace(attempts=seen.calls + 1)


def policy_of(row: Row, stop: threading.Event | None = None) -> Policy:
    """Return the policy of a row."""
    kind = KINDS[row["failure"]]
    fields: dict[str, Any] = {
        "class": {"on": kind.names},
        "reason": {"on": kind.reason},
        "rule": {"on": kind.names, "rules": [Rule(kind.reason)]},
        "predicate": {"on": lambda error: isinstance(error, kind.names)},
        "nothing": {},
    }[row["names"]]
    seconds = {"zero": 0, "second": 1}[row["delay"]]
    if row["form"] == "timed":
        fields["attempt_timeout"] = "1h"
    word = None if row["form"] == "transport" else {"open": None, "no": False, "yes": True}[row["word"]]
    backoff = Backoff.constant(seconds)
    return Policy(
        attempts=ATTEMPTS, backoff=backoff, jitter="none", deadline=None, idempotent=word, stop=stop, **fields
    )


# ----------------------------------------------------------------------------------------------------------- the play


class Clock(JumpingClock):
    """A clock that jumps, and at its first wait cancels the call if the row says so."""

    def __init__(self) -> None:
        super().__init__()
        self.on_wait: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        """Jump."""
        self.on_wait()
        super().sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Jump, and let other tasks run: a cancelled task is interrupted after the wait has begun."""
        self.on_wait()
        super().sleep(seconds)
        await checkpoint()


class Play:
    """One call that fails in each attempt."""

    def __init__(self, row: Row) -> None:
        self.row, self.seen = row, Seen()
        self.clock, self.stop = Clock(), threading.Event()
        self.cancel: Callable[[], object] = self.stop.set
        self.policy = policy_of(row, self.stop if row["library"] == "sync" and row["form"] not in DURABLE else None)

    def fail(self) -> None:
        """Fail, in a thread."""
        self.seen.calls += 1
        if self.row["cancel"] == "attempt":
            self.cancel()
        raise KINDS[self.row["failure"]].make(method_of(self.row))

    async def afail(self) -> None:
        """Fail in a task, which may be cancelled before."""
        if self.row["cancel"] in {"attempt", "replaced"}:
            self.seen.calls += 1
            self.cancel()
            try:
                await checkpoint()
            finally:
                if self.row["cancel"] == "replaced":
                    raise KINDS[self.row["failure"]].make(method_of(self.row))
        self.fail()

    def function(self) -> Callable[..., Any]:
        """Return the function that the policy calls: it calls the one that fails, which may have a word of its own."""
        is_sync, callee = self.row["library"] == "sync", self.row["callee"]
        inner: Any = self.fail if is_sync else self.afail
        if callee.startswith("task"):
            inner = App("memory://").task(name="charge", idempotent=callee == "task-yes")(_unbound(inner))
        elif callee == "retried-no":
            inner = redrive.retry(Policy(on=KINDS[self.row["failure"]].names, attempts=1, idempotent=False))(inner)

        def outer() -> None:
            inner()

        async def aouter() -> None:
            await inner()

        return outer if is_sync else aouter


def _unbound(function: Any) -> Any:
    """Return a function that a task can be, of the colour of a method."""
    if asyncio.iscoroutinefunction(function):

        async def charge() -> None:
            await function()

        return charge

    def charge_in_thread() -> None:
        function()

    return charge_in_thread


def play(row: Row) -> None:
    """Make the call of a row, and compare its end with the forecast."""
    row = {"form": "transport", "callee": "function", **row}
    call = Play(row)
    if row["cancel"] == "wait":
        call.clock.on_wait = lambda: call.cancel()  # noqa: PLW0108 - it is set later
    make = work if row["form"] in DURABLE else {"sync": _play, "asyncio": _aplay, "trio": _tplay}[row["library"]]
    make(call)
    call.seen.waits = call.seen.waits or call.clock.slept

    assert forecast(row) == call.seen


def _play(call: Play) -> None:
    if call.row["cancel"] == "before":
        call.cancel()
    with redrive.testing.using(clock=call.clock):
        _expect(call, lambda: SYNC[call.row["form"]](call))


def _expect(call: Play, made: Callable[[], object]) -> None:
    """Make the call, which raises its own error."""
    try:
        made()
    except type(KINDS[call.row["failure"]].make("GET")):
        return
    raise AssertionError("the call returned")


async def _aexpect(call: Play) -> None:
    try:
        await ASYNC[call.row["form"]](call)
    except type(KINDS[call.row["failure"]].make("GET")):
        return
    raise AssertionError("the call returned")


def _aplay(call: Play) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        call.cancel = task.cancel
        if call.row["cancel"] == "before":
            task.cancel()
        try:
            await _aexpect(call)
        except asyncio.CancelledError:
            call.seen.end = "cancelled"
        with contextlib.suppress(asyncio.CancelledError):
            # The call has ended before its task has waited.
            await checkpoint()

    with redrive.testing.using(clock=call.clock):
        asyncio.run(main())


def _tplay(call: Play) -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            call.cancel = scope.cancel
            if call.row["cancel"] == "before":
                scope.cancel()
            await _aexpect(call)
        if scope.cancelled_caught:
            call.seen.end = "cancelled"

    with redrive.testing.using(clock=call.clock):
        trio.run(main)


def work(call: Play) -> None:
    """Run a job, or a run with one step."""
    app = App("memory://", clock=VirtualClock())
    function = call.function()
    if call.row["form"] == "job":
        job = app.task(name="book", retry=call.policy)(function).enqueue()
        drain(app)
        call.seen.waits = [each.delay.total_seconds() for each in job.attempts if each.delay is not None]
    else:
        at: list[float] = []

        def noted() -> None:
            at.append(app.clock.monotonic())
            function()

        async def anoted() -> None:
            at.append(app.clock.monotonic())
            await function()

        @app.workflow()
        async def book(flow: Flow) -> None:
            await flow.step(noted if call.row["library"] == "sync" else anoted, retry=call.policy)

        book.start(id="o-1")
        drain(app)
        call.seen.waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    app.close()


# ---------------------------------------------------------------------------------------------------------- the forms


def _block(call: Play) -> None:
    for attempt in call.policy:
        with attempt:
            call.function()()


def _generator(call: Play) -> None:
    @redrive.retry(call.policy)
    def items() -> Any:
        call.function()()
        yield

    list(items())


def _transport(call: Play) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        try:
            call.fail()
        except httpx.HTTPStatusError as error:
            return httpx.Response(error.response.status_code, headers=error.response.headers)
        raise AssertionError

    with httpx.Client(transport=RetryTransport(call.policy, httpx.MockTransport(handle))) as client:
        client.request(method_of(call.row), "http://shop/").raise_for_status()


SYNC: dict[str, Callable[[Play], object]] = {
    "decorated": lambda call: redrive.retry(call.policy)(call.function())(),
    "called": lambda call: call.policy.call(call.function()),
    "outcome": lambda call: call.policy.outcome(call.function()).unwrap(),
    "block": _block,
    "generator": _generator,
    "transport": _transport,
}


async def _aoutcome(call: Play) -> None:
    (await call.policy.aoutcome(call.function())).unwrap()


async def _ablock(call: Play) -> None:
    async for attempt in call.policy:
        with attempt:
            await call.function()()


async def _agenerator(call: Play) -> None:
    @redrive.retry(call.policy)
    async def items() -> Any:
        await call.function()()
        yield

    async for _ in items():
        """Take nothing."""


async def _atransport(call: Play) -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        try:
            await call.afail()
        except httpx.HTTPStatusError as error:
            return httpx.Response(error.response.status_code, headers=error.response.headers)
        raise AssertionError

    transport = AsyncRetryTransport(call.policy, httpx.MockTransport(handle))
    async with httpx.AsyncClient(transport=transport) as client:
        (await client.request(method_of(call.row), "http://shop/")).raise_for_status()


ASYNC: dict[str, Callable[[Play], Any]] = {
    "decorated": lambda call: redrive.retry(call.policy)(call.function())(),
    "timed": lambda call: redrive.retry(call.policy)(call.function())(),
    "called": lambda call: call.policy.acall(call.function()),
    "outcome": _aoutcome,
    "block": _ablock,
    "generator": _agenerator,
    "transport": _atransport,
}
