"""Waits for the ends of jobs: the loops of `Job.result` and `App.results`, and the steps of a wait for several jobs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

from redrive.app.protocol import AppProtocol
from redrive.clock import SystemClock
from redrive.engine.explain import Circumstances, Obstacle, span, unserved, why_not_running
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import JobRecord
from redrive.errors import JobCancelled, JobDead, JobError, ResultTimeout, StoreUnreachable
from redrive.observe.logs import logger
from redrive.policy import parse_duration
from redrive.stores.operations import jobs, queues
from redrive.stores.query import Operation
from redrive.stores.store import Store
from redrive.stores.urls import located

R = TypeVar("R")
S = TypeVar("S")

POLL = 0.005
"""Seconds between two reads of the store's version while waiting for a result; a read costs microseconds."""

LAST_LOOK = 1.0
"""Seconds that a database server may take to answer when the timeout is over, or nearly over."""

PATIENCE = 3.0
"""Seconds after which a wait logs that there is no worker for its job: one that was just started is there by then."""

_log = logger("redrive.jobs")

_BLOCKS = (
    "this wait blocks the event loop of its thread, with a worker that may run there: await job.aresult(), or "
    "app.aresults() of several jobs"
)

# The largest number of jobs that one operation reads.
BATCH = 1000

Waiting: TypeAlias = Generator[Operation[Any] | None, Any, R]
"""A generator that yields operations, and None for a pause, until the jobs have ended; it returns their results."""


def wait(store: Store, waiting: Waiting[R], until: float, what: str) -> R:
    """Run a wait and return its result; `what` names the jobs in errors."""
    clock, is_blocking = SystemClock(), _runs_loop()
    warn_at = SystemClock.monotonic() + PATIENCE if is_blocking else float("inf")
    answer: Any = None
    while True:
        try:
            operation = waiting.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result
        except ResultTimeout as error:
            if not is_blocking:
                raise
            raise ResultTimeout(f"{error}; {_BLOCKS}") from None
        if operation is None:
            clock.sleep(POLL)
            if SystemClock.monotonic() >= warn_at:
                warn_at = float("inf")
                _log.warning("%s: %s", what, _BLOCKS)
        else:
            answer = _ask(store, operation, until, what)


def _runs_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def await_(store: Store, waiting: Waiting[R], until: float, what: str) -> R:
    """Run a wait without blocking the event loop; see `wait`."""
    clock = SystemClock()
    answer: Any = None
    while True:
        try:
            operation = waiting.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result
        if operation is None:
            await clock.asleep(POLL)
        else:
            answer = await _aask(store, operation, until, what)


def _ask(store: Store, operation: Operation[S], until: float, what: str) -> S:
    """Run an operation, and raise `ResultTimeout` if the database does not answer in time, or soon afterwards."""
    try:
        return store.run(operation, timeout=max(until - SystemClock.monotonic(), LAST_LOOK))
    except StoreUnreachable as error:
        if SystemClock.monotonic() < until:
            raise
        raise _silence(what) from error


async def _aask(store: Store, operation: Operation[S], until: float, what: str) -> S:
    """Run an operation with a time limit; see `_ask`."""
    try:
        async with asyncio.timeout(max(until - SystemClock.monotonic(), LAST_LOOK)):
            return await store.arun(operation)
    except (StoreUnreachable, TimeoutError) as error:
        if SystemClock.monotonic() < until:
            raise
        raise _silence(what) from error


def _silence(what: str) -> ResultTimeout:
    return ResultTimeout(f"{what} may have ended or not: the database did not answer in time")


def until(timeout: Any) -> float:
    """Return the end of a wait by the monotonic clock; None waits for ever."""
    return float("inf") if timeout is None else SystemClock.monotonic() + parse_duration(timeout).total_seconds()


class End(Protocol):
    """What a job shows of its end."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def task(self) -> str:
        """The name of its task."""

    @property
    def state(self) -> State:
        """Its state."""

    @property
    def reason(self) -> str | None:
        """The reason of its last failure."""

    @property
    def error(self) -> str | None:
        """The text of its last error."""

    @property
    def note(self) -> str | None:
        """The last decision about it."""


def why_late(app: AppProtocol, record: JobRecord, around: Circumstances) -> str:
    """Return why a job has not ended, with the command that clears it if there is no worker for the job."""
    missing = unserved(record, around)
    how = "" if missing is None else f"; {_advice(app, missing)}"
    return f"{why_not_running(record, around)}{how}"


def warn_unserved(app: AppProtocol, record: JobRecord, around: Circumstances) -> None:
    """Log that a job is waited for without a worker that could run it."""
    missing = unserved(record, around)
    if missing is not None:
        due = span(around.now - record.scheduled_at)
        text = "job %d (%s) is waited for, and is due since %s without a worker for it: %s; %s"
        _log.warning(text, record.id, record.task, due, missing.text, _advice(app, missing))


def _advice(app: AppProtocol, missing: Obstacle) -> str:
    if app.url.startswith("memory:"):
        return "a database in memory needs a worker in this process: redrive.runtime.worker.Worker(app).run()"
    # A worker in another folder may serve another file of the same name.
    where = "" if app.url.startswith("postgres") else f" (of {located(app.url)})"
    return f"run: {missing.advice(app.reference)}{where}"


def value(app: AppProtocol, end: End, raw: bytes | None) -> Any:
    """Return the result of a job that has ended, or raise why it has none."""
    if end.state is State.DEAD:
        raise JobDead(f"job {end.id} ({end.task}) gave up: {end.error} ({end.reason}; {end.note})")
    if end.state is State.CANCELLED:
        raise JobCancelled(f"job {end.id} ({end.task}) was cancelled: {end.note}")
    return app.read_result(end.task, raw)


def collect(
    app: AppProtocol,
    wanted: Sequence[tuple[int, datetime | None]],
    timeout: object,
    until: float,
    *,
    return_exceptions: bool,
) -> Waiting[list[Any]]:
    """Wait for several jobs, given by their ids and by the instants of enqueues that may have been rolled back."""
    found: dict[int, Any] = {}
    pending = dict(wanted)
    seen, warn_at = -1, SystemClock.monotonic() + PATIENCE
    while pending:
        version = app.store.version()
        if version != seen:
            seen = version
            for some in _batches(pending):
                for end, raw in (yield jobs.ends(some)):
                    found[end.id] = _value_or_error(app, end, raw, return_exceptions=return_exceptions)
                    del pending[end.id]
        if pending and SystemClock.monotonic() >= warn_at:
            warn_at = float("inf")
            warn_unserved(app, *(yield queues.status(next(iter(pending)), now=app.now())))
        if pending and SystemClock.monotonic() >= until:
            first = next(iter(pending))
            record, around = yield queues.status(first, now=app.now())
            if record.state not in FINAL:
                raise ResultTimeout(
                    f"{len(pending)} of {len(dict(wanted))} jobs have not ended after {timeout}: job {first} is "
                    f"{record.state}: {why_late(app, record, around)}"
                )
            seen = -1
        elif pending:
            yield None
    return [found[number] for number, _ in wanted]


def _batches(pending: dict[int, datetime | None]) -> Iterator[list[tuple[int, datetime | None]]]:
    left = iter(list(pending.items()))
    while batch := list(itertools.islice(left, BATCH)):
        yield batch


def _value_or_error(app: AppProtocol, end: End, raw: bytes | None, *, return_exceptions: bool) -> Any:
    try:
        return value(app, end, raw)
    except JobError as error:
        if return_exceptions:
            return error
        raise
