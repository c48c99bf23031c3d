"""A request under the orchestrator as ``couchbase.json`` describes it: a script of responses, and a recorder.

A client has two interfaces to the orchestrator, and a case that has *responses* uses both: `Orchestrator.run`, the
errors of which carry the whole verdict of `redrive.contrib.couchbase`; and RFC 0049's own interface,
`Orchestrator.maybe_retry`, which gets nothing but the *name* of a reason and the error. A case that has only the reason
of a failure uses the second one, without an error.

The time is that of an event loop with timers that take no real time, so that strategies and servers may wait.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from redrive.clock import SystemClock
from redrive.contrib.couchbase import classify_event, classify_grpc, classify_kv, rpc
from redrive.contrib.couchbase.transport import EVENTS
from redrive.orchestrator import Orchestrator, Request, RetryReason, timed_out
from redrive.policy import Stage
from tests.conformance.adapters.couchbase_strategies import RecordingStrategy
from tests.conformance.adapters.vocabulary import UnknownWord
from tests.retrying.helpers import JumpingLoop, LoopClock
from tests.retrying.orchestrator.helpers import SpanOf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.contrib.couchbase import Verdict
    from redrive.orchestrator import RequestEvent

__all__ = [
    "RefusedRequest",
    "ResponseStep",
    "Trial",
    "TrialClock",
    "Watched",
    "failing",
    "listening",
    "on_loop",
    "script_of",
    "step_of",
]

_FOREVER = 10**6
"""Seconds: longer than any request waits."""


class RefusedRequest(Exception):
    """An error that a server or a client returns instead of a result.

    Attributes:
        retry_reason: the verdict as a failure, or a reason; None: the orchestrator does not handle the error.
        name: the name of the error that the caller of an SDK would get.
        reason: the name of the reason, for clients that pass nothing more.
    """

    def __init__(self, retry_reason: Any, name: str, reason: str | None) -> None:
        super().__init__(name)
        self.retry_reason = retry_reason
        self.name = name
        self.reason = reason


@dataclass(frozen=True)
class ResponseStep:
    """One response.

    Attributes:
        error: the error in place of a result.
        stage: how far the request got.
        delivers: it is a part of a result; the attempt continues.
        takes: seconds until it arrives.
    """

    error: RefusedRequest | None = None
    stage: Stage = Stage.ANSWERED
    delivers: bool = False
    takes: float = 0.0


class TrialClock(LoopClock):
    """The time of the loop, with the lengths of all waits of the orchestrator.

    Attributes:
        slept: those lengths, in seconds.
        passed: seconds that had passed before the loop began.
    """

    def __init__(self, effects: list[str]) -> None:
        self.slept: list[float] = []
        self.passed = 0.0
        self._effects = effects

    def monotonic(self) -> float:
        """Return the seconds on the clock of the loop, with those before."""
        return super().monotonic() + self.passed

    async def asleep(self, seconds: float) -> None:
        """Wait."""
        self.slept.append(seconds)
        self._effects.append("wait")
        await super().asleep(seconds)


class Watched(Request):
    """A request that lists its recorded retries among the effects."""

    effects: list[str]

    def record_retry(self, reason: Any, delay: Any) -> None:
        """Record it."""
        self.effects.append("record")
        super().record_retry(reason, delay)


@dataclass
class Trial:
    """A request with everything that an observer can see of it.

    Attributes:
        request: the request.
        orchestrator: the orchestrator of the request.
        spy: its strategy.
        clock: its time.
        span: receives its number of retries.
        completions: the arguments of its callback.
        effects: the actions, in order: strategy, record, log, wait, dispatch, complete.
        before: retries that it had before.
        sent_at: when it was sent, in milliseconds.
        remaining: how long each attempt might take, in seconds.
        deadlines: its deadline at each attempt.
        events: the logged events.
        raised: the errors of its attempts.
        error: its final error, if it had no result.
    """

    request: Watched
    orchestrator: Orchestrator
    spy: RecordingStrategy
    clock: TrialClock
    span: SpanOf
    completions: list[Request]
    effects: list[str]
    before: int = 0
    sent_at: list[float] = field(default_factory=list)
    remaining: list[float | None] = field(default_factory=list)
    deadlines: set[Any] = field(default_factory=set)
    events: list[tuple[RequestEvent, logging.LogRecord]] = field(default_factory=list)
    raised: list[RefusedRequest] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def delays(self) -> list[float]:
        """Return all waits, in milliseconds."""
        return [each * 1000 for each in self.clock.slept]

    async def play(
        self, steps: Iterator[ResponseStep], *, interface: str, happen: Callable[[Trial, Any], None] = lambda *_: None
    ) -> None:
        """Send the request, and answer it with one response after the other.

        Args:
            steps: the responses.
            interface: ``run``, ``name`` (reasons by name, with the error), or ``reason`` (without an error).
            happen: plans further actions during the request.
        """
        way = self._run(steps) if interface == "run" else self._by_name(steps, with_error=interface == "name")
        with listening(self.events, lambda: self.effects.append("log")):
            task = asyncio.ensure_future(way)
            happen(self, task)
            try:
                await task
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - what it ends with is the subject
                self.error = error

    async def _run(self, steps: Iterator[ResponseStep]) -> None:
        async def send(*_: Any) -> str:
            step = await self._step(steps)
            if step.error is None:
                return "ok"
            self.raised.append(step.error)
            raise step.error

        await self.orchestrator.run(self.request, send, marks=True)

    async def _by_name(self, steps: Iterator[ResponseStep], *, with_error: bool) -> None:
        self.orchestrator.begin(self.request)
        again = True
        while again:
            left = self.request.remaining
            step = await self._step(steps, float("inf") if left is None else left)
            if left is not None and step.takes and step.takes >= left:  # such a client times its attempts itself
                self.request.fail(timed_out(self.request))
                self.request.result()
            if step.error is None:
                self.request.succeed("ok")
                return
            self.raised.append(step.error)
            if step.error.reason is None:
                self.request.fail(step.error)
                raise step.error
            if with_error:  # all that the orchestrator learns is the name
                again = await self.orchestrator.maybe_retry(self.request, step.error.reason, step.error)
            else:
                given = step.error.retry_reason
                reason = given if isinstance(given, RetryReason) else step.error.reason
                again = await self.orchestrator.maybe_retry(self.request, reason)

    async def _step(self, steps: Iterator[ResponseStep], longest: float = float("inf")) -> ResponseStep:
        """Make one attempt, and record that it was dispatched."""
        attempt = self.request.attempt
        self._sent()
        step = next(steps)
        while step.delivers:
            attempt.dispatch("node1")
            attempt.deliver()
            step = next(steps)
        if step.stage is not Stage.NOT_SENT:
            attempt.dispatch("node1")
        if step.takes:
            await SystemClock().asleep(min(step.takes, max(0.0, longest)))
        return step

    def _sent(self) -> None:
        self.effects.append("dispatch")
        self.sent_at.append(self.clock.monotonic() * 1000)
        self.remaining.append(self.request.attempt.remaining)
        self.deadlines.add(self.request.deadline)


def on_loop(main: Any) -> Any:
    """Run a coroutine on a loop with timers that take no real time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)


@contextmanager
def listening(
    records: list[tuple[RequestEvent, logging.LogRecord]], then: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Collect the events of the orchestrator inside a ``with`` block."""
    log = logging.getLogger("redrive.orchestrator")

    def emit(record: logging.LogRecord) -> None:
        records.append((record.event, record))  # type: ignore[attr-defined]
        then()

    handler, level = logging.Handler(), log.level
    handler.emit = emit  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


# ------------------------------------------------------------------------------------------------------------ responses

_SUCCESS = {"success", "ok"}
_CLIENT = {
    "breaker open": "circuit open",
    "circuit breaker open": "circuit open",
    "circuit open": "circuit open",
    "bucket not connected": "no active node",
    "bucket not available": "no active node",
    "node not available": "no active node",
    "no node": "no active node",
    "service not available": "no such service",
    "socket not available": "connection refused",
    "not connected": "connection refused",
    "connection refused": "connection refused",
    "queue full": "queue full",
    "write queue full": "queue full",
    "socket closed while in flight": "closed in flight",
    "socket closed in flight": "closed in flight",
    "connection closed while in flight": "closed in flight",
    "connection lost in flight": "closed in flight",
    "request_canceled": "closed in flight",
    "socket closed before write": "closed before write",
    "short write": "short write",
}
"""The failures that a client notices by itself, with or without ``client:`` before the name."""

_NAMED_STATUSES = {
    "NOT_MY_VBUCKET": 0x07,
    "NMVB": 0x07,
    "LOCKED": 0x09,
    "TMPFAIL": 0x86,
    "TEMPORARY_FAILURE": 0x86,
    "Busy": 0x86,
    "UNKNOWN_COLLECTION": 0x88,
    "SYNC_WRITE_IN_PROGRESS": 0xA2,
    "SYNC_WRITE_AMBIGUOUS": 0xA3,
    "SYNC_WRITE_RE_COMMIT_IN_PROGRESS": 0xA4,
    "KEY_NOT_FOUND": 0x01,
    "KEY_EXISTS": 0x02,
}
_STATUS = re.compile(r"(?:[A-Za-z_]+ )?0x([0-9a-fA-F]{1,4})")
_SILENT = re.compile(r"no (?:response|answer|reply)|never answers|hangs|silence|lost")
_TAKES = re.compile(r"(.+?),? (?:after|in) (\d+(?:\.\d+)?) ?ms")


def step_of(given: object, operation: str, *, read_only: bool = False) -> ResponseStep:
    """Return the response that a case names: a key-value status, a gRPC code, an event, or a reason.

    Raises:
        UnknownWord: it names another one.
    """
    if not isinstance(given, str):
        raise UnknownWord(f"response {given!r} (known: {_KNOWN})")
    if found := _TAKES.fullmatch(given):
        return replace(step_of(found[1], operation, read_only=read_only), takes=float(found[2]) / 1000)
    if given.lower() in _SUCCESS:
        return ResponseStep()
    if re.fullmatch(r"rows? \d+ delivered", given):
        return ResponseStep(delivers=True)
    if _SILENT.fullmatch(given):
        return ResponseStep(stage=Stage.IN_FLIGHT, takes=_FOREVER)
    return _failure(given, operation, read_only=read_only)


def _failure(given: str, operation: str, *, read_only: bool) -> ResponseStep:
    bare, code = given.removeprefix("client:").strip(), given.removesuffix(" mid-stream")
    if bare in _CLIENT or bare in EVENTS:
        return _judged(classify_event(_CLIENT.get(bare, bare)))
    if found := _STATUS.fullmatch(given):
        return _judged(classify_kv(int(found[1], 16), operation))
    if code in rpc.CODES:
        return _judged(classify_grpc(code, read_only=read_only))
    if code in _NAMED_STATUSES:
        return _judged(classify_kv(_NAMED_STATUSES[code], operation))
    if RetryReason.parse(code).name == code:
        return failure_of(RetryReason.of(code))
    raise UnknownWord(f"response {given!r} (known: {_KNOWN})")


_KNOWN = (
    "LOCKED 0x09 and its like, gRPC codes, reasons, Success, row 1 delivered, no response, X after N ms, "
    + ", ".join(sorted(_CLIENT))
)


def _judged(verdict: Verdict) -> ResponseStep:
    if verdict.error is None:
        return ResponseStep()
    return ResponseStep(RefusedRequest(verdict.classified(), str(verdict.error), verdict.reason), verdict.stage)


def failure_of(reason: RetryReason, stage: Stage = Stage.ANSWERED) -> ResponseStep:
    """Return a failure that has only a reason."""
    return ResponseStep(RefusedRequest(reason, reason.name, reason.name), stage)


def script_of(given: object, operation: str, *, read_only: bool = False) -> Iterator[ResponseStep]:
    """Yield the responses of a case, one after the other; ``always X`` and ``X until timeout`` never end.

    Raises:
        UnknownWord: a response that is not known.
    """

    def many(text: object) -> Iterator[ResponseStep]:
        if isinstance(text, str) and (found := re.fullmatch(r"(\d+) ?x (.+)|(.+) x ?(\d+)|(.+) (\d+) times", text)):
            count, what = (found[1], found[2]) if found[1] else (found[4] or found[6], found[3] or found[5])
            return repeat(step_of(what, operation, read_only=read_only), int(count))
        if isinstance(text, str) and (
            found := re.fullmatch(r"always (.+)|(.+) (?:until (?:timeout|the deadline)|for ever|forever)", text)
        ):
            return repeat(step_of(found[1] or found[2], operation, read_only=read_only))
        return iter([step_of(text, operation, read_only=read_only)])

    if isinstance(given, str) and " then " in given:
        given = given.split(" then ")
    if isinstance(given, list):
        return chain.from_iterable([many(each) for each in given])
    return many(given)


def failing(reasons: list[RetryReason], stage: Stage) -> Iterator[ResponseStep]:
    """Yield a failure for each reason, then a success."""
    return chain((failure_of(reason, stage) for reason in reasons), [ResponseStep()])
