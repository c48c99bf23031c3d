"""Durable things as they are read from a store. PURE.

Frozen values with the names of the columns. Instants are aware UTC and called ``*_at``, spans are ``timedelta`` and
called ``*_for`` or ``*_after``. A store decodes rows straight into these (``dialects/*/values.py``); nothing above the
store ever sees a row.

`NewJob`, `Claim` and `AttemptRecord` are structs and not dataclasses: one of each is made for every job or
attempt, and a
frozen dataclass of this size takes ten times as long to make (3 µs; all of a job takes a worker 25). They are frozen
and hold nothing that could hold them, so Python's search for cycles need not look at them (``gc=False``).

Three numbers of a job are easily mixed up, so they are three columns:

* ``attempt`` counts executions, from 1: the ordinal of the present or last one. A crash used one; a snooze and a
  graceful release give theirs back, because the handler did not get its turn.
* ``failures`` counts executions that failed *by the policy's reckoning*. It is what `Policy.decide` gets. A crash of an
  idempotent task does not count here (`spec/engine.md`, Crash).
* ``crashes`` counts crashes in a row, for the poison limit. Any other end of an attempt sets it back to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lifecycle import State
from redrive.policy import Policy

__all__ = [
    "AttemptRecord",
    "Claim",
    "Closing",
    "Hold",
    "JobRecord",
    "KeyUntil",
    "NewJob",
    "OnConflict",
    "Progress",
    "Stats",
]


class Hold(StrEnum):
    """Why a ready job waits for its ``scheduled_at``."""

    DELAY = "delay"
    """It was enqueued for later."""
    RETRY = "retry"
    """Its last attempt failed; the policy chose the delay."""
    SNOOZE = "snooze"
    """Its handler asked to be called later."""
    RELEASE = "release"
    """A worker gave it back unfinished."""
    UNKNOWN_TASK = "unknown_task"
    """The worker that looked at it has no such task."""
    BAD_PAYLOAD = "bad_payload"
    """The worker that looked at it cannot read its arguments; one with other code may."""
    BAD_POLICY = "bad_policy"
    """Its policy cannot be read: it waits for a worker that can, or for an operator who gives it another one."""
    LOST = "lost"
    """Its worker vanished."""
    REDRIVE = "redrive"
    """An operator started it again."""
    DEBOUNCE = "debounce"
    """It waits whether it will be enqueued once more."""
    BREAKER = "breaker"
    """The circuit breaker of its policy is open."""


class Closing(StrEnum):
    """How an attempt ended, as history keeps it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"


class KeyUntil(StrEnum):
    """How long a job keeps its unique key to itself."""

    START = "start"
    """Until it starts: a running job does not stand in the way of the next one."""
    END = "end"
    """Until it has succeeded, died or been cancelled."""


class OnConflict(StrEnum):
    """What becomes of an enqueue whose unique key another job holds."""

    RAISE = "raise"
    """`redrive.errors.DuplicateJob`, which names the other job."""
    EXISTING = "existing"
    """The other job is the answer."""
    BOUNCE = "bounce"
    """The other job waits longer, and gets these arguments: debounce."""


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to be inserted.

    Attributes:
        task: name of the task.
        queue: name of the queue.
        priority: smaller runs first.
        payload: the arguments as JSON; None for a catch job, which reads those of its parent.
        policy: the policy, frozen into the job.
        delay: time from the transaction's now until the job is due.
        parent_id: the dead job that this one is to catch.
        partition: whose turn it is in its queue, for limits by key, fairness and strict order.
        key: unique in its task.
        key_until: how long.
        on_conflict: what becomes of it where another job holds the key.
        idempotency_key: names this request among all of the app, until the job is pruned.
        latest: time from the transaction's now beyond which a debounced job is not put off.
        origin: what it is for; see `redrive.engine.origin`.
    """

    task: str
    queue: str
    priority: int
    payload: bytes | None
    policy: FrozenPolicy
    delay: timedelta = timedelta(0)
    parent_id: int | None = None
    partition: str | None = None
    key: str | None = None
    key_until: KeyUntil | None = None
    on_conflict: OnConflict = OnConflict.RAISE
    idempotency_key: str | None = None
    latest: timedelta | None = None
    origin: str | None = None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A job as its worker holds it: everything that deciding about the attempt needs.

    Attributes:
        id: the job.
        lease_id: the right to this attempt; monotonic, never repeated. Its low 20 bits are random.
        task: name of the task.
        queue: name of the queue.
        priority: smaller runs first.
        worker_id: the holder.
        attempt: ordinal of this execution, from 1.
        failures: earlier failed executions, by the policy's reckoning.
        crashes: crashes in a row before this execution.
        snoozes: how often the job was snoozed.
        by_rule: earlier failures matched by each rule of the policy, and what its schedules remember.
        last_delay: the delay before this attempt, if it is a retry.
        started_at: start of the first attempt; the deadline counts from here.
        claimed_at: start of this attempt.
        parent_id: the dead job that this one is to catch, or None.
        partition: whose turn it is in its queue.
        key: unique in its task.
        key_until: how long.
        origin: what the job is for; None: a task by itself.
        payload: the arguments as JSON.
        policy: the policy frozen into the job.
        scheduled_at: when the job was due; while it waits for an answer, when that is over.
        unreadable_at: since when no worker has been able to read its arguments; None where none has failed to.
        salt: the random part of its idempotency key.
    """

    id: int
    lease_id: int
    task: str
    queue: str
    priority: int
    worker_id: int
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    by_rule: tuple[int, ...]
    last_delay: timedelta | None
    started_at: datetime
    claimed_at: datetime
    parent_id: int | None
    partition: str | None
    key: str | None
    key_until: KeyUntil | None
    payload: bytes | None
    policy: Policy
    scheduled_at: datetime | None = None
    origin: str | None = None
    unreadable_at: datetime | None = None
    salt: int = 0

    @property
    def catching(self) -> bool:
        """Is this a catch job?"""
        return self.parent_id is not None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as people see it.

    Attributes:
        id: the job; never reused.
        task: name of the task.
        queue: name of the queue.
        priority: smaller runs first.
        state: see `redrive.engine.lifecycle`.
        hold: why it waits, while it is ready and not due.
        note: what the last decision about it was, as a sentence.
        enqueued_at: when it was enqueued.
        scheduled_at: when it is or was due.
        started_at: start of the first attempt since it was enqueued or redriven.
        claimed_at: start of the present attempt.
        finished_at: when it succeeded, died or was cancelled.
        caught_at: when its catch task succeeded.
        skipped_at: when an operator let those pass that it held up.
        attempt: executions so far.
        failures: failed executions, by the policy's reckoning.
        crashes: crashes in a row.
        snoozes: how often it was snoozed.
        redrives: how often an operator started it again.
        lease_id: the present lease.
        worker_id: the present holder.
        parent_id: the dead job that this one is to catch.
        partition: whose turn it is in its queue.
        key: unique in its task.
        key_until: how long.
        origin: what it is for; None: a task by itself.
        reason: why the last failed attempt failed, one upper-case word; None once the job has succeeded.
        error: the text of the last error; None once the job has succeeded.
        policy: the policy frozen into the job.
    """

    id: int
    task: str
    queue: str
    priority: int
    state: State
    hold: Hold | None
    note: str | None
    enqueued_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    caught_at: datetime | None
    skipped_at: datetime | None
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    redrives: int
    lease_id: int | None
    worker_id: int | None
    parent_id: int | None
    partition: str | None
    key: str | None
    key_until: KeyUntil | None
    origin: str | None
    reason: str | None
    error: str | None
    policy: Policy


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One closed execution.

    Attributes:
        job_id: whose.
        lease_id: under which lease.
        number: ordinal, from 1; repeated where an earlier one was given back.
        worker_id: who ran it.
        started_at: when it was claimed.
        finished_at: when it was settled.
        outcome: how it ended.
        reason: why it failed, one upper-case word.
        stage: how far the call got, where it failed.
        error_type: qualified name of the exception.
        error: its text.
        traceback: for people.
        nominal: the delay that the backoff computed.
        delay: the delay that was decided; what is stored is what happens (I7).
        rule: which rule of the policy decided.
        verdict: the decision as a sentence.
    """

    job_id: int
    lease_id: int
    number: int
    worker_id: int
    started_at: datetime
    finished_at: datetime
    outcome: Closing
    reason: str | None = None
    stage: str | None = None
    error_type: str | None = None
    error: str | None = None
    traceback: str | None = None
    nominal: timedelta | None = None
    delay: timedelta | None = None
    rule: str | None = None
    verdict: str | None = None

    def __repr__(self) -> str:
        """Show all but the traceback, which would hide the rest."""
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "traceback")
        return f"AttemptRecord({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a handler last said of itself.

    Attributes:
        job_id: whose.
        lease_id: under which lease.
        details: what it said, as JSON.
        at: when.
    """

    job_id: int
    lease_id: int
    details: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Stats:
    """How many jobs there are, told apart as people do.

    Attributes:
        due: ready, and due now.
        scheduled: ready, for later, not after a failure.
        retrying: ready, for later, after a failure.
        running: held by a worker.
        waiting: for an answer from outside.
        succeeded: done.
        dead: gave up, not caught.
        caught: gave up, and the catch task took it.
        cancelled: ended by somebody.
    """

    due: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    succeeded: int
    dead: int
    caught: int
    cancelled: int

    @property
    def unfinished(self) -> int:
        """Jobs that workers will still bring to an end."""
        return self.due + self.scheduled + self.retrying + self.running + self.waiting
