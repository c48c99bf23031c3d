"""A request under the orchestrator as the cases of ``couchbase.json`` tell it: a script of responses, and a watcher.

The cases come in two forms. Some have *responses*, in the words of a server or a client; those go through
`Orchestrator.run`. Some have only the *reason* of a failure, as RFC 0049's own interface does; those go through
`Orchestrator.maybe_retry`, without an error. What a response means is said by `redrive.contrib.couchbase`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from redrive.contrib.couchbase import classify_event, classify_grpc, classify_kv
from redrive.policy import Stage
from redrive.retrying.orchestrator import (
    BestEffort,
    FailFast,
    FailFastOnTerminalError,
    Orchestrator,
    Request,
    RetryAction,
    RetryReason,
    controlled_backoff,
    exponential_backoff,
)
from tests.conformance.adapters.vocabulary import NOTES, UnknownWord, demand, read, word
from tests.retrying.helpers import JumpingClock
from tests.retrying.orchestrator.helpers import SpanOf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redrive.contrib.couchbase import Verdict
    from redrive.policy import Reason
    from redrive.retrying.orchestrator import Attempt, RetryEvent
    from tests.conformance.loading import Case

__all__ = [
    "Refused",
    "Spy",
    "Step",
    "Trial",
    "failing",
    "listening",
    "named",
    "parts",
    "reason_of",
    "script_of",
    "step_of",
    "strategy_of",
]


class Refused(Exception):
    """What a server or a client says instead of a result.

    Attributes:
        retry_reason: for the orchestrator; None: none of its business.
        name: what the caller of an SDK would get.
    """

    def __init__(self, reason: Reason | None, name: str) -> None:
        super().__init__(name)
        self.retry_reason = reason
        self.name = name


@dataclass(frozen=True)
class Step:
    """One response.

    Attributes:
        error: what it is instead of a result.
        stage: how far the request got.
        delivers: it is a part of a result; the attempt goes on.
    """

    error: Refused | None = None
    stage: Stage = Stage.ANSWERED
    delivers: bool = False

    def mark(self, attempt: Attempt) -> None:
        """Tell an attempt about it."""
        if self.stage is not Stage.NOT_SENT:
            attempt.dispatch("node1")
        if self.stage is Stage.ANSWERED and self.error is not None:
            attempt.answer(definite=True)


@dataclass
class Spy:
    """A strategy that another one stands behind.

    Attributes:
        inner: the other one.
        reasons: what it was asked.
        contexts: what it could see of the caller's.
    """

    inner: Any
    reasons: list[RetryReason] = field(default_factory=list)
    contexts: list[dict[str, Any]] = field(default_factory=list)

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """Ask the other one."""
        self.reasons.append(reason)
        self.contexts.append(request.context)
        answer = getattr(self.inner, "retry_after", self.inner)(request, reason)
        result: RetryAction | None = await answer if hasattr(answer, "__await__") else answer
        return result


@dataclass
class Trial:
    """One request, and all that can be seen of it.

    Attributes:
        request: the request.
        orchestrator: what it goes through.
        spy: its strategy.
        clock: its time.
        span: gets its number of retries.
        completions: what its callback got.
        before: retries that it had before.
        sent_at: when it was sent, in milliseconds.
        remaining: how long each attempt might take, in seconds.
        deadlines: its deadline at each attempt.
        events: what was logged.
        raised: what sending it raised.
        error: what it ended with, if not with a result.
    """

    request: Request
    orchestrator: Orchestrator
    spy: Spy
    clock: JumpingClock
    span: SpanOf
    completions: list[Request]
    before: int = 0
    sent_at: list[float] = field(default_factory=list)
    remaining: list[float | None] = field(default_factory=list)
    deadlines: set[Any] = field(default_factory=set)
    events: list[tuple[RetryEvent, logging.LogRecord]] = field(default_factory=list)
    raised: list[Refused] = field(default_factory=list)
    error: Exception | None = None

    @property
    def delays(self) -> list[float]:
        """All waits, in milliseconds."""
        return [each * 1000 for each in self.clock.slept]

    def play(self, steps: Iterator[Step], *, by_reason: bool) -> None:
        """Send the request, and let it meet one response after the other.

        Args:
            steps: the responses.
            by_reason: the orchestrator hears reasons, and no errors.
        """
        with listening(self.events):
            try:
                asyncio.run(self._by_reason(steps) if by_reason else self._by_response(steps))
            except Exception as error:  # noqa: BLE001 - what it ends with is what cases are about
                self.error = error

    async def _by_response(self, steps: Iterator[Step]) -> None:
        async def send(_: Request, attempt: Attempt) -> str:
            self._sent()
            step = next(steps)
            while step.delivers:
                attempt.deliver()
                step = next(steps)
            step.mark(attempt)
            if step.error is None:
                return "ok"
            self.raised.append(step.error)
            raise step.error

        await self.orchestrator.run(self.request, send, marks=True)

    async def _by_reason(self, steps: Iterator[Step]) -> None:
        self.orchestrator.begin(self.request)
        for step in steps:
            self._sent()
            step.mark(self.request.attempt)
            if step.error is None or step.error.retry_reason is None:
                self.request.succeed("ok")
                break
            if not await self.orchestrator.maybe_retry(self.request, step.error.retry_reason):
                break

    def _sent(self) -> None:
        self.sent_at.append(self.clock.monotonic() * 1000)
        self.remaining.append(self.request.attempt.remaining)
        self.deadlines.add(self.request.deadline)


@contextmanager
def listening(heard: list[tuple[RetryEvent, logging.LogRecord]]) -> Iterator[None]:
    """Hear the events of the orchestrator inside a ``with`` block."""
    log = logging.getLogger("redrive.orchestrator")
    handler, level = logging.Handler(), log.level
    handler.emit = lambda record: heard.append((record.event, record))  # type: ignore[attr-defined, method-assign]
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


# ---------------------------------------------------------------------------------------------------------------- words


def parts(
    case: Case, fields: tuple[str, ...], outcomes: tuple[str, ...]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a case gives and what it expects, both checked; ``jvm_text`` is what another system prints.

    Raises:
        UnknownWord: it has other fields, or no outcome.
    """
    read(case.data, "input", "expected", notes=NOTES | {"group", "divergence"})
    expected = read(case.data["expected"], *outcomes, notes=("jvm_text",))
    demand(expected, *outcomes)
    return read(case.data["input"], *fields), expected


def named(name: str) -> type[Exception]:
    """An exception of this name, which stands for one of the user's own."""
    return _NAMED.setdefault(name, type(name, (Exception,), {}))


_NAMED: dict[str, type[Exception]] = {}

_FIXED = {
    "best_effort": BestEffort,
    "best_effort(controlled)": lambda: BestEffort(controlled_backoff),
    "exponential 1..500": lambda: BestEffort(exponential_backoff()),
    "fail_fast": FailFast,
    "fail_fast_on_terminal_error": FailFastOnTerminalError,
    "retry everything": lambda: lambda *_: RetryAction("1ms"),
    "reads client_context": FailFast,
    "no_retry": lambda: lambda *_: None,
}


def strategy_of(text: str) -> Any:
    """The strategy that a case describes.

    Raises:
        UnknownWord: it describes another one.
    """
    if text == "no_retry if client_context.isRobotRequest else super":
        return _Humans()
    if found := re.fullmatch(r"raises (\w+) on (\w+)", text):
        return _raising(named(found[1]), found[2])
    if found := re.fullmatch(r"(\w+) -> no_retry\(translate=(\w+)\)", text):
        return _translating(found[1], named(found[2]))
    return word(text, _FIXED)()


class _Humans(BestEffort):
    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        return None if request.context.get("isRobotRequest") else await super().retry_after(request, reason)


def _raising(kind: type[Exception], name: str) -> Any:
    async def retry_after(request: Request, reason: RetryReason) -> RetryAction | None:
        if reason.name == name:
            raise kind("of the strategy")
        return await BestEffort().retry_after(request, reason)

    return retry_after


def _translating(name: str, kind: type[Exception]) -> Any:
    async def retry_after(request: Request, reason: RetryReason) -> RetryAction | None:
        if reason.name == name:
            return RetryAction.no_retry(lambda error: kind(str(error)))
        return await BestEffort().retry_after(request, reason)

    return retry_after


def reason_of(said: str | dict[str, bool]) -> RetryReason:
    """A reason by its name, or one that has these flags."""
    if isinstance(said, str):
        return RetryReason.parse(said)
    return RetryReason("TEST_CASE", said["allows_non_idempotent_retry"], said["always_retry"])


_SUCCESS = {"Success", "OK", "ok"}
_EVENTS = {
    "socket closed while in flight": "closed in flight",
    "client: breaker open": "circuit open",
    "client: bucket not connected": "no active node",
    "client: node not available": "no active node",
    "client: service not available": "no such service",
    "client: socket not available": "connection refused",
    "client: queue full": "queue full",
}
_GRPC_ERROR = re.compile(r"([A-Z_]+)(?: mid-stream)?")
_KV_STATUS = re.compile(r"[A-Z_]+ 0x([0-9a-fA-F]+)")
_OTHER_NAMES = {"Busy": "TMPFAIL 0x86"}


def step_of(text: str, operation: str) -> Step:
    """The response that a case names: a status of the key-value service, a code of gRPC, or an event of the client.

    Raises:
        UnknownWord: it names another one.
    """
    text = _OTHER_NAMES.get(text, text)
    if text in _SUCCESS:
        return Step()
    if re.fullmatch(r"row \d+ delivered", text):
        return Step(delivers=True)
    if text in _EVENTS:
        return _judged(classify_event(_EVENTS[text]))
    if found := _KV_STATUS.fullmatch(text):
        return _judged(classify_kv(int(found[1], 16), operation))
    if found := _GRPC_ERROR.fullmatch(text):
        return _judged(classify_grpc(found[1], read_only=False))
    raise UnknownWord(f"{text!r} (known: KV statuses, gRPC codes, {', '.join(sorted(_EVENTS))})")


def _judged(verdict: Verdict) -> Step:
    reason = None if verdict.reason is None else RetryReason.of(verdict.reason)
    return Step(Refused(reason, str(verdict.error)), verdict.stage)


def script_of(said: str | list[str], operation: str) -> Iterator[Step]:
    """The responses of a case, one after the other; ``always X`` and ``X until timeout`` never end.

    Raises:
        UnknownWord: a response that is not known.
    """
    if isinstance(said, list):
        return iter([step_of(text, operation) for text in said])
    found = re.fullmatch(r"always (.+)|(.+) until timeout", said)
    if not found:
        raise UnknownWord(f"{said!r} (known: a list, always ..., ... until timeout)")
    return repeat(step_of(found[1] or found[2], operation))


def failing(reasons: list[RetryReason], stage: Stage) -> Iterator[Step]:
    """A failure for each reason, then a success."""
    return chain((Step(Refused(reason, reason.name), stage) for reason in reasons), [Step()])
