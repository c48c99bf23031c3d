"""Values that tests share: one ordinary claim, job and bulk operation, to be changed field by field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from redrive.engine.bulk import BulkAction, BulkOperation, BulkOptions, BulkState
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Outcome, Settlement
from redrive.engine.records import NEWEST, AttemptRecord, Claim, Filter, JobRecord, WorkerRecord
from redrive.engine.settle import decide
from redrive.policy import Failure, Policy, Stage

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When the present attempt of `claim` was claimed."""

NOW = T0 + timedelta(seconds=1)
"""When it ended."""

OPERATION = BulkOperation(
    id=7,
    action=BulkAction.REDRIVE,
    wanted=Filter(state=State.DEAD, caught=False, limit=NEWEST, oldest_first=True),
    options=BulkOptions(),
    undoes=None,
    undone_by=None,
    actor="ann",
    rate=None,
    state=BulkState.RUNNING,
    bound_id=99,
    frozen_at=NOW,
    matched=40,
    last_id=0,
    done=0,
    kept=0,
    next_at=NOW,
    ended_at=None,
    last_error=None,
)


def seconds(count: float) -> timedelta:
    """Return a span in seconds."""
    return timedelta(seconds=count)


def policy(directive: str = "5 1s", **changes: Any) -> Policy:
    """Return a policy as a job carries it: complete, with the durable defaults."""
    parsed = Policy.parse(directive)
    return (parsed.with_(**changes) if changes else parsed).durable()


def failure(message: str = "boom", **changes: Any) -> Failure:
    """Return an ordinary failure: the other side refused."""
    return Failure(("builtins.ValueError", "builtins.Exception"), message, **changes)


def in_flight(message: str = "no answer") -> Failure:
    """Return a failure after which it is unknown how far the call got."""
    return failure(message, stage=Stage.IN_FLIGHT)


def claim(**changes: Any) -> Claim:
    """Return the claim of the first attempt of an ordinary job."""
    ordinary = Claim(
        id=7,
        lease_id=41,
        task="send",
        queue="mail",
        priority=3,
        worker_id=2,
        started_at=T0,
        claimed_at=T0,
        payload=b"{}",
        policy=policy(),
    )
    return structs.replace(ordinary, **changes)


LATER = claim(attempt=4, failures=2, crashes=1, snoozes=5, by_rule=(1,), last_delay=seconds(2))
"""An attempt with a past, so that a counter that is set back or mixed up shows."""

CATCHING = structs.replace(LATER, parent_id=3, policy=policy("2 1s catch mend"))
"""An attempt of a catch job; it carries the policy of its parent."""

ONCE = structs.replace(LATER, policy=policy(idempotent=False))
"""An attempt of a task that may not be repeated."""


def settled(of: Claim, outcome: Outcome, sample: float = 0.0) -> Settlement:
    """Return the transition of an attempt that ended at `NOW`."""
    return decide(of, outcome, NOW, sample)


def closed(of: Claim, outcome: Outcome) -> AttemptRecord:
    """Return the history record of an attempt that ended at `NOW`."""
    line = settled(of, outcome).closed
    assert line is not None
    return line


def worker(**changes: Any) -> WorkerRecord:
    """Return a live worker that serves all queues."""
    ordinary = WorkerRecord(
        id=9,
        name="host:1",
        host=None,
        pid=None,
        birth=None,
        lock_id=None,
        concurrency=4,
        queues=None,
        tasks=None,
        started_at=T0,
        heartbeat_at=T0,
        expires_at=T0 + timedelta(days=1),
        stopped_at=None,
        locked=None,
    )
    return replace(ordinary, **changes)


def job(**changes: Any) -> JobRecord:
    """Return an ordinary job that is ready and due at `T0`."""
    ordinary = JobRecord(
        id=7,
        task="send",
        queue="mail",
        priority=3,
        state=State.READY,
        hold=None,
        note=None,
        enqueued_at=T0,
        scheduled_at=T0,
        started_at=None,
        claimed_at=None,
        finished_at=None,
        caught_at=None,
        skipped_at=None,
        attempt=0,
        failures=0,
        crashes=0,
        snoozes=0,
        redrives=0,
        lease_id=None,
        worker_id=None,
        parent_id=None,
        partition=None,
        key=None,
        key_until=None,
        origin=None,
        reason=None,
        error=None,
        policy=policy(),
    )
    return replace(ordinary, **changes)
