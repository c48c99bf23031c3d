"""The events and log lines of attempts.

`traced` runs only while a sink is registered (`redrive.observe.listeners.LISTENERS`). It emits `JobStarted` and enters
the context managers that sinks return around the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeVar

from redrive import observe
from redrive.app.app import App
from redrive.app.events import emit_moved
from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.outcome import Transition
from redrive.engine.records import Claim
from redrive.engine.settle import BAD_POLICY
from redrive.errors import LeaseLost, StoreError
from redrive.observe.listeners import LISTENERS
from redrive.runtime import log
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


def report_moved(app: App, moved: Sequence[Transition]) -> None:
    """Log and emit the transitions of attempts that a background duty has ended."""
    for each in moved:
        if each.reason == BAD_POLICY or each.event is LifecycleEvent.SET_ASIDE:
            log_undecided(each)
        else:
            log.warning("job %d: %s; %s", each.job_id, each.error, each.note)
    if LISTENERS:
        emit_moved(moved)
    app.settled(moved)


def log_lost(endings: Sequence[Ending], settled: Settled) -> None:
    """Log which attempts had lost their leases before their ends were written."""
    for ending in endings:
        if ending.claim.lease_id in settled.lost:
            happened = "it was cancelled" if ending.claim.lease_id in settled.cancelled else "its lease was lost"
            why = f"job {ending.claim.id}: {happened}; what this attempt did changes nothing"
            log.warning("%s", LeaseLost(why))


def log_undecided(moved: Transition, trace: str | None = None) -> None:
    """Log, with its traceback, that the policy of a job cannot be read or raises."""
    trace = trace or (moved.closed.traceback if moved.closed is not None else None)
    log.error("job %d (%s): %s%s", moved.job_id, moved.task, moved.note, f"\n{trace}" if trace else "")
