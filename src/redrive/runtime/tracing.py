"""The events and log lines of attempts.

`traced` runs only if a sink or the log receives `JobStarted` (`redrive.observe.listeners.heard`), which it emits. It
enters the context managers that sinks return around the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeVar

from redrive import observe
from redrive.app.app import App
from redrive.app.events import emit_moved, emit_settled, is_undecided
from redrive.engine.outcome import Settlement
from redrive.engine.records import Claim
from redrive.engine.settle import BAD_POLICY
from redrive.errors import StoreError
from redrive.observe.logs import Block
from redrive.runtime import log
from redrive.runtime.functions import PolicyFunctions
from redrive.stores.operations import jobs
from redrive.stores.operations.leases import Ending, Settled
from redrive.stores.store import Store

R = TypeVar("R")


# A sink with ``carries = True`` may leave a text with the job for its next attempt, such as the trace of this one.
# Until the end of the attempt is written, the text is in a context variable of the attempt's asyncio task.
_KEPT: ContextVar[str | None] = ContextVar("redrive.runtime.tracing", default=None)


async def traced(store: Store, claim: Claim, call: Callable[[], Awaitable[R]]) -> R:
    """Emit `JobStarted`, and call a handler inside the context managers of the sinks."""
    _KEPT.set(None)
    trace = await _trace(store, claim) if observe.carried() else None
    due_at = claim.scheduled_at or claim.claimed_at
    event = observe.JobStarted(
        task=claim.task,
        queue=claim.queue,
        job_id=claim.id,
        origin=claim.origin,
        attempt=claim.attempt,
        lease_id=claim.lease_id,
        worker_id=claim.worker_id,
        waited=max(claim.claimed_at - due_at, timedelta(0)),
        delay=claim.last_delay,
        trace=trace,
    )
    around = observe.around(event)
    with around:
        _KEPT.set(around.kept)
        return await call()


async def _trace(store: Store, claim: Claim) -> str | None:
    try:
        return await store.arun(jobs.trace(claim.id, claim.parent_id))
    except StoreError as error:
        log.warning("job %d: its trace cannot be read, and the attempt runs without: %s", claim.id, error)
        return None


def kept() -> str | None:
    """Take the text that a sink has left for the next attempt. Called in the task of the attempt."""
    trace = _KEPT.get()
    _KEPT.set(None)
    return trace


def uncounted(_: Sequence[Settlement]) -> None:
    """Count nothing."""


def report_moved(
    app: App, moved: Sequence[Settlement], counted: Callable[[Sequence[Settlement]], None] = uncounted
) -> None:
    """Log, count and emit the settlements of attempts that a background duty has ended."""
    counted(moved)
    for each in moved:
        if is_undecided(each):
            log_undecided(each)
    emit_moved(moved)
    app.settled(moved)


def report_settled(app: App, endings: Sequence[Ending], settled: Settled, functions: PolicyFunctions) -> None:
    """Log and emit the ends of attempts that are written, and start the hooks of their policies."""
    emit_settled(endings, settled)
    app.settled(settled.moved, settled.lost)
    functions.report(endings, settled.moved)
    for moved in settled.moved:
        if moved.reason == BAD_POLICY:
            log_undecided(moved)


def log_undecided(moved: Settlement, trace: str | None = None) -> None:
    """Log, with its traceback, that the policy of a job cannot be read or raises."""
    trace = trace or (moved.closed.traceback if moved.closed is not None else None)
    log.error("job %d (%s): %s%s", moved.job_id, moved.task, moved.note, Block(trace) if trace else "")
