"""(claim, outcome, now, sample) -> Transition. PURE.

The one place where the end of an attempt is decided. It asks the job's own frozen policy through `Policy.decide`, the
same call that in-process retries make (invariant I8), looks the move up in THE TABLE, and says everything that has to
be written in one frozen value. A store writes that value in one transaction (law 6) or not at all.

What each outcome does to the three counters:

=============  =========  ==========  =========  =======================================
outcome        attempt    failures    crashes    note
=============  =========  ==========  =========  =======================================
succeeded      stays      stays       0
failed         stays      + 1         0          retry, or dead and its catch job
snoozed        - 1        stays       0          the attempt is given back
suspended      stays      stays       0          the attempt stays open, under its lease
released       - 1        stays       stays      not the handler's doing
lost           stays      stays       + 1        dead with ``POISON`` at the third
lost, once     stays      + 1         + 1        ``idempotent=False``: dead, ``LOST_IN_FLIGHT``
expired        - 1        stays       stays      dead, ``DEADLINE``; the handler never ran
cancelled      stays      stays       0
=============  =========  ==========  =========  =======================================

An attempt that is suspended has not ended. What ends it later, an answer from outside or the end of the wait, is an
outcome like any other, which leads out of ``waiting`` instead of ``running``.

A failing catch job never dies of a failure: it is tried again at the parent policy's last delay until it succeeds or
somebody ends it (seed 001, `spec/engine.md`). It carries its parent's policy for that reason. Two things do end it: a
payload that the code cannot read, and three crashes in a row.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.lease import POISON_LIMIT
from redrive.engine.lifecycle import FINAL, Event, State, move
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Outcome, Released, Snoozed, Succeeded, Suspended
from redrive.engine.records import Attempt, Claim, Closing, Hold
from redrive.engine.tracked import Report, report, succeeded
from redrive.policy import Defer, Failure, GiveUp, History, Retry, Stage, format_duration

__all__ = ["EXPIRED", "Transition", "decide"]

EXPIRED = "DEADLINE"
"""The reason of a job that was dead before its attempt could start; no failure was counted for it."""

CATCH_STUCK_AFTER = 5
"""Failures after which a catch job is shown as stuck (`spec/engine.md`, Catch)."""


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
    """

    task: str
    queue: str
    job_id: int
    lease_id: int
    event: Event
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
    closed: Attempt | None = None
    result: bytes | None = None
    catch: str | None = None
    caught: int | None = None
    before: State = State.RUNNING
    report: Report | None = None


def decide(claim: Claim, outcome: Outcome, now: datetime, sample: float, *, state: State = State.RUNNING) -> Transition:
    """Decide what the end of an attempt means for its job.

    Args:
        claim: the job as its worker holds it.
        outcome: how the attempt ended.
        now: the transaction's instant, by the store's clock.
        sample: a random number in [0, 1), for jitter.
        state: where the job is: ``waiting`` for an attempt that was suspended.

    Returns:
        What is to be written.

    Raises:
        IllegalMove: a suspended attempt cannot end so.
    """
    decided = _decided(claim, outcome, now, sample)
    if claim.origin is not None and decided.report is None and decided.state in FINAL:
        dead = decided.state is State.DEAD
        decided = replace(decided, report=report(claim, outcome, sample, dead=dead))
    return decided if state is State.RUNNING else replace(decided, state=move(state, decided.event), before=state)


def _decided(claim: Claim, outcome: Outcome, now: datetime, sample: float) -> Transition:
    match outcome:
        case Succeeded(result):
            return _succeeded(claim, result, now)
        case Failed():
            return _failed(claim, outcome, now, sample)
        case Lost(why):
            return _lost(claim, why, now)
        case Snoozed(delay, why):
            closed = _close(
                claim, now, Closing.SNOOZED, delay=delay, verdict=why or f"snoozed for {format_duration(delay)}"
            )
            base = _base(claim, Event.SNOOZE, closed)
            return replace(
                base,
                attempt=claim.attempt - 1,
                snoozes=claim.snoozes + 1,
                scheduled_at=now + delay,
                hold=Hold.SNOOZE,
                note=closed.verdict,
            )
        case Suspended(wait_for):
            note = f"waits for an answer from outside, {format_duration(wait_for)} at most"
            return replace(_base(claim, Event.WAIT), scheduled_at=now + wait_for, note=note)
        case Released(why, delay, unknown_task, circuit_open):
            hold = Hold.UNKNOWN_TASK if unknown_task else Hold.BREAKER if circuit_open else Hold.RELEASE
            base = _base(claim, Event.RELEASE)
            attempt, due = claim.attempt - 1, now + delay
            return replace(base, attempt=attempt, crashes=claim.crashes, scheduled_at=due, hold=hold, note=why)
        case Cancelled(why):
            closed = _close(claim, now, Closing.CANCELLED, verdict=why)
            return replace(_base(claim, Event.CANCEL, closed), note=why)
        case Expired():  # pragma: no branch - the last one; mypy proves that all are here
            return _expired(claim)


def _base(  # noqa: PLR0913 - what one end differs by from another
    claim: Claim,
    event: Event,
    closed: Attempt | None = None,
    *,
    result: bytes | None = None,
    caught: int | None = None,
    report: Report | None = None,
) -> Transition:
    return Transition(
        task=claim.task,
        queue=claim.queue,
        job_id=claim.id,
        lease_id=claim.lease_id,
        event=event,
        state=move(State.RUNNING, event),
        attempt=claim.attempt,
        failures=claim.failures,
        crashes=0,
        snoozes=claim.snoozes,
        by_rule=claim.by_rule,
        last_delay=claim.last_delay,
        closed=closed,
        result=result,
        caught=caught,
        report=report,
    )


def _close(  # noqa: PLR0913 - the columns of one history line
    claim: Claim,
    now: datetime,
    outcome: Closing,
    *,
    failed: Failed | None = None,
    nominal: timedelta | None = None,
    delay: timedelta | None = None,
    rule: str | None = None,
    verdict: str | None = None,
) -> Attempt:
    failure = failed.failure if failed else None
    return Attempt(
        job_id=claim.id,
        lease_id=claim.lease_id,
        number=claim.attempt,
        worker_id=claim.worker_id,
        started_at=claim.claimed_at,
        finished_at=now,
        outcome=outcome,
        reason=failure.reason if failure else None,
        stage=failure.stage.value if failure else None,
        error_type=failure.error_type if failure else None,
        error=failure.message if failure else None,
        traceback=(failed.traceback or None) if failed else None,
        nominal=nominal,
        delay=delay,
        rule=rule,
        verdict=verdict,
    )


def _succeeded(claim: Claim, result: bytes | None, now: datetime) -> Transition:
    # By far the most frequent: made at once, where the others take a base and replace what differs.
    closed = Attempt(claim.id, claim.lease_id, claim.attempt, claim.worker_id, claim.claimed_at, now, Closing.SUCCEEDED)
    told = None if claim.origin is None else succeeded(claim)
    return _base(claim, Event.SUCCEED, closed, result=result, caught=claim.parent_id, report=told)


def _failed(claim: Claim, failed: Failed, now: datetime, sample: float) -> Transition:
    failure = failed.failure
    if claim.catching and failure.reason != "BAD_PAYLOAD":
        return _catch_again(claim, failed, now)
    history = History(
        attempts=claim.failures + 1,
        started_at=claim.started_at,
        last_delay=claim.last_delay,
        by_rule=claim.by_rule,
    )

    def by_rule(delay: timedelta) -> tuple[int, ...]:
        return claim.policy.advance(history, failure, delay, now=now, sample=sample).by_rule

    match claim.policy.decide(history, failure, now, sample):
        case Retry(delay, nominal, rule):
            verdict = f"retry in {format_duration(delay)} ({rule})"
            closed = _close(
                claim, now, Closing.FAILED, failed=failed, nominal=nominal, delay=delay, rule=rule, verdict=verdict
            )
            if rule == "deadline" and not _ends_by(claim, now + delay):
                return _dead(claim, closed)
            return _retry(claim, closed, now + delay, by_rule(delay))
        case Defer(at, rule):
            verdict = f"deferred to {at:%Y-%m-%d %H:%M:%S} UTC ({rule})"
            closed = _close(claim, now, Closing.FAILED, failed=failed, delay=at - now, rule=rule, verdict=verdict)
            return _retry(claim, closed, at, by_rule(at - now))
        case GiveUp(why, rule):  # pragma: no branch - the last one; mypy proves that all are here
            closed = _close(claim, now, Closing.FAILED, failed=failed, rule=rule, verdict=why)
            return _dead(claim, closed)


def _ends_by(claim: Claim, due: datetime) -> bool:
    """Will a claim at this instant find the job expired?

    A wait that is cut at the deadline is not followed by a call. The claim sees to that by the policy's deadline; but
    of a combination one part may have the earlier one, and then there is nothing to wait for.
    """
    deadline = claim.policy.deadline
    return deadline is not None and due >= claim.started_at + deadline


def _retry(claim: Claim, closed: Attempt, due: datetime, by_rule: tuple[int, ...] = ()) -> Transition:
    return replace(
        _base(claim, Event.RETRY, closed),
        failures=claim.failures + 1,
        by_rule=by_rule,
        scheduled_at=due,
        last_delay=closed.delay,
        hold=Hold.RETRY,
        note=closed.verdict,
        reason=closed.reason,
        error=closed.error,
    )


def _dead(claim: Claim, closed: Attempt, *, crashes: int = 0) -> Transition:
    return replace(
        _base(claim, Event.DIE, closed),
        failures=claim.failures + 1,
        crashes=crashes,
        note=closed.verdict,
        reason=closed.reason,
        error=closed.error,
        catch=None if claim.catching else claim.policy.catch,
    )


def _catch_again(claim: Claim, failed: Failed, now: datetime) -> Transition:
    """Seed 001: a catch task that fails is tried again until it succeeds."""
    nominal = claim.policy.catch_delay
    delay = max(nominal, failed.failure.hint) if failed.failure.hint else nominal
    failures = claim.failures + 1
    stuck = f"; stuck: {failures} failures" if failures >= CATCH_STUCK_AFTER else ""
    verdict = f"catch again in {format_duration(delay)}{stuck}"
    closed = _close(
        claim, now, Closing.FAILED, failed=failed, nominal=nominal, delay=delay, rule="catch", verdict=verdict
    )
    return _retry(claim, closed, now + delay)


def _lost(claim: Claim, why: str, now: datetime) -> Transition:
    """A crash is RFC 0049's "in flight": nobody knows how far the call got."""
    crashes = claim.crashes + 1
    if crashes >= POISON_LIMIT:
        verdict = f"{crashes} crashes in a row: presumed to kill its workers"
        reason, rule = "POISON", "poison limit"
    elif claim.policy.idempotent is False and not claim.catching:
        verdict = "lost in flight, and the task is declared idempotent=False: not repeated"
        reason, rule = "LOST_IN_FLIGHT", "not_idempotent"
    else:
        verdict = f"runs again after crash {crashes} of at most {POISON_LIMIT - 1}"
        reason, rule = "WORKER_LOST", "crash"
    failure = Failure(types=(), message=why, reason=reason, stage=Stage.IN_FLIGHT)
    closed = _close(claim, now, Closing.LOST, failed=Failed(failure), rule=rule, verdict=verdict)
    if reason != "WORKER_LOST":
        return _dead(claim, closed, crashes=crashes)
    return replace(
        _base(claim, Event.LOSE, closed),
        crashes=crashes,
        scheduled_at=now,
        hold=Hold.LOST,
        note=verdict,
        reason=reason,
        error=why,
    )


def _expired(claim: Claim) -> Transition:
    """The workers were away while the deadline passed: never start what must not start (conformance D09)."""
    deadline = f" of {format_duration(claim.policy.deadline)}" if claim.policy.deadline else ""
    verdict = f"the deadline{deadline} had passed before the attempt could start"
    return replace(
        _base(claim, Event.DIE),
        attempt=claim.attempt - 1,
        crashes=claim.crashes,
        note=verdict,
        reason=EXPIRED,
        error=verdict,
        catch=None if claim.catching else claim.policy.catch,
    )
