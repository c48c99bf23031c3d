"""The record of everything that the end of one attempt writes. PURE."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from redrive.engine.lifecycle import JobEvent, State
from redrive.engine.records import AttemptRecord, Hold
from redrive.engine.tracked import Report

__all__ = ["Transition"]


class Transition(msgspec.Struct, frozen=True, gc=False):
    """Everything that the end of one attempt writes.

    Attributes:
        task: whose job it is.
        queue: where the job is.
        job_id: whose.
        lease_id: the fence: where it is no longer current, nothing is written.
        event: what happened.
        state: where THE TABLE says it leads.
        before: where the job is: nothing is written if it is not there.
        report: what the schedule is told that has made the job; None where the job goes on, or none has.
        attempt: executions after this.
        failures: failed executions after this.
        crashes: crashes in a row after this.
        snoozes: snoozes after this.
        by_rule: failures matched by each rule after this, and what schedules remember.
        scheduled_at: when the job is due again, if it is.
        last_delay: the delay that was decided for the latest retry; an attempt that was given back leaves it as it was.
        hold: why it waits.
        note: the decision as a sentence.
        reason: why the attempt failed; None leaves what an earlier failure said.
        error: text of the error; None leaves that of an earlier failure.
        closed: the line for the history; None where no execution took place.
        result: what the handler returned, as JSON.
        catch: the catch task to be enqueued with this, by name.
        caught: the dead parent that this success takes.
        unreadable_at: since when no worker has been able to read the arguments of the job.
    """

    task: str
    queue: str
    job_id: int
    lease_id: int
    event: JobEvent
    state: State
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    by_rule: tuple[int, ...] = ()
    scheduled_at: datetime | None = None
    last_delay: timedelta | None = None
    hold: Hold | None = None
    note: str | None = None
    reason: str | None = None
    error: str | None = None
    closed: AttemptRecord | None = None
    result: bytes | None = None
    catch: str | None = None
    caught: int | None = None
    before: State = State.RUNNING
    report: Report | None = None
    unreadable_at: datetime | None = None
