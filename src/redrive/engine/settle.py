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
cut off, once  stays      + 1         0          ``idempotent=False``: dead, ``LOST_IN_FLIGHT``
unreadable     - 1        stays       stays      for a while; then failed with ``BAD_PAYLOAD``
lost           stays      stays       + 1        dead with ``POISON`` at the third
lost, once     stays      + 1         + 1        ``idempotent=False``: dead, ``LOST_IN_FLIGHT``
lost, catch    stays      + 1         + 1        never dead; slower from the third on
expired        - 1        stays       stays      dead, ``DEADLINE``; the handler never ran
cancelled      stays      stays       0
=============  =========  ==========  =========  =======================================

An attempt that is suspended has not ended. What ends it later, an answer from outside or the end of the wait, is an
outcome like any other, which leads out of ``waiting`` instead of ``running``.

A catch job dies neither of a failure nor of crashes: it is tried again until it succeeds or an operator ends it. After
a failure it waits for the parent policy's last delay, and carries the parent's policy for that reason. From the third
crash in a row on it waits too, twice as long after each further one. Only a payload that the code cannot read ends it.

Arguments that the code cannot read may be readable by the code of another worker, because a deploy is in progress. So
the job waits, visibly, for `redrive.engine.lease.UNREADABLE_FOR`. ``unreadable_at`` is when that began; what a worker
gives back for another reason leaves it as it is, and every other end of an attempt clears it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.engine.lease import POISON_LIMIT, UNKNOWN_TASK_DELAY, UNREADABLE_FOR, UNREADABLE_LOOK
from redrive.engine.lifecycle import FINAL, Event, State, move
from redrive.engine.origin import Kind, read_origin
from redrive.engine.outcome import (
    Cancelled,
    Expired,
    Failed,
    Lost,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    Unreadable,
)
from redrive.engine.records import Attempt, Claim, Closing, Hold
from redrive.engine.tracked import Report, report, succeeded
from redrive.engine.transition import Transition
from redrive.policy import Defer, Failure, GiveUp, History, Retry, Stage, format_duration

__all__ = ["EXPIRED", "decide"]

EXPIRED = "DEADLINE"
"""The reason of a job that was dead before its attempt could start; no failure was counted for it."""

CATCH_STUCK_AFTER = 5
"""Failures, crashes included, after which a catch job is shown as stuck."""

SLOWEST_CATCH = timedelta(hours=1)
"""How long a catch job waits at most after a crash, unless the policy's last delay is longer."""


_DOUBLINGS = 30  # after so many every delay has reached the longest one, and none has left the range of a timedelta


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


def _decided(  # noqa: PLR0911 - one for each outcome
    claim: Claim, outcome: Outcome, now: datetime, sample: float
) -> Transition:
    match outcome:
        case Succeeded(result):
            return _succeeded(claim, result, now, sample)
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
        case Released():
            return _released(claim, outcome, now)
        case Unreadable(why):
            return _unreadable(claim, why, now, sample)
        case Cancelled(why):
            closed = _close(claim, now, Closing.CANCELLED, verdict=why)
            return replace(_base(claim, Event.CANCEL, closed), note=why)
        case Expired():  # pragma: no branch - the last one; mypy proves that all are here
            return _expired(claim)


def _given_back(claim: Claim, due: datetime, hold: Hold, why: str, closed: Attempt | None = None) -> Transition:
    return replace(
        _base(claim, Event.RELEASE, closed),
        attempt=claim.attempt - 1,
        crashes=claim.crashes,
        scheduled_at=due,
        hold=hold,
        note=why,
        unreadable_at=claim.unreadable_at,
    )


def _unreadable(claim: Claim, why: str, now: datetime, sample: float) -> Transition:
    since = claim.unreadable_at or now
    until = since + UNREADABLE_FOR
    origin = read_origin(claim.origin)
    if now >= until or (origin is not None and origin.kind is Kind.REFRESH):  # a refresh makes new attempts by itself
        return _failed(claim, Failed(Failure((), why, "BAD_PAYLOAD", permanent=why)), now, sample)
    # As long as it has waited already: a deploy that takes long costs few looks.
    look = min(max(now - since, UNKNOWN_TASK_DELAY), UNREADABLE_LOOK)
    note = f"{why}; waits until {until:%H:%M:%S} UTC for a worker that can read them"
    return replace(_given_back(claim, min(now + look, until), Hold.BAD_PAYLOAD, note), unreadable_at=since)


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


def _released(claim: Claim, released: Released, now: datetime) -> Transition:
    """Give a job back. An attempt that had started is cut off by that, and may have had its effect already."""
    if released.started and claim.policy.idempotent is False and not claim.catching:
        verdict = "cut off in flight, and the task is declared idempotent=False: not repeated"
        failure = Failure(types=(), message=released.why, reason="LOST_IN_FLIGHT", stage=Stage.IN_FLIGHT)
        closed = _close(claim, now, Closing.LOST, failed=Failed(failure), rule="not_idempotent", verdict=verdict)
        return _dead(claim, closed)
    cut = None
    if released.started:
        cut = _close(claim, now, Closing.RELEASED, delay=released.delay, verdict=f"cut off: {released.why}")
    hold = Hold.UNKNOWN_TASK if released.unknown_task else Hold.BREAKER if released.circuit_open else Hold.RELEASE
    return _given_back(claim, now + released.delay, hold, released.why, cut)


def _succeeded(claim: Claim, result: bytes | None, now: datetime, sample: float) -> Transition:
    # By far the most frequent: made at once, where the others take a base and replace what differs.
    closed = Attempt(claim.id, claim.lease_id, claim.attempt, claim.worker_id, claim.claimed_at, now, Closing.SUCCEEDED)
    told = None if claim.origin is None else succeeded(claim, sample)
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
    verdict = f"catch again in {format_duration(delay)}{_stuck(failures)}"
    closed = _close(
        claim, now, Closing.FAILED, failed=failed, nominal=nominal, delay=delay, rule="catch", verdict=verdict
    )
    return _retry(claim, closed, now + delay)


def _stuck(failures: int) -> str:
    return f"; stuck: {failures} failures" if failures >= CATCH_STUCK_AFTER else ""


def _lost(claim: Claim, why: str, now: datetime) -> Transition:
    """A crash is RFC 0049's "in flight": nobody knows how far the call got."""
    crashes, failures, delay = claim.crashes + 1, claim.failures, None
    reason, rule = "WORKER_LOST", "crash"
    if claim.catching:
        failures, delay = failures + 1, _catch_pause(claim, crashes)
        verdict = f"catch again in {format_duration(delay)} after crash {crashes}{_stuck(failures)}"
    elif crashes >= POISON_LIMIT:
        verdict = f"{crashes} crashes in a row: presumed to kill its workers"
        reason, rule = "POISON", "poison limit"
    elif claim.policy.idempotent is False:
        verdict = "lost in flight, and the task is declared idempotent=False: not repeated"
        reason, rule = "LOST_IN_FLIGHT", "not_idempotent"
    else:
        verdict = f"runs again after crash {crashes} of at most {POISON_LIMIT - 1}"
    failure = Failure(types=(), message=why, reason=reason, stage=Stage.IN_FLIGHT)
    closed = _close(claim, now, Closing.LOST, failed=Failed(failure), delay=delay, rule=rule, verdict=verdict)
    if reason != "WORKER_LOST":
        return _dead(claim, closed, crashes=crashes)
    return replace(
        _base(claim, Event.LOSE, closed),
        failures=failures,
        crashes=crashes,
        scheduled_at=now + (delay or timedelta(0)),
        hold=Hold.LOST,
        note=verdict,
        reason=reason,
        error=why,
    )


def _catch_pause(claim: Claim, crashes: int) -> timedelta:
    """Return how long a catch job waits after this crash in a row: not at all at first, then ever longer."""
    delay, more = claim.policy.catch_delay, crashes - POISON_LIMIT
    if more < 0:
        return timedelta(0)
    return delay if delay >= SLOWEST_CATCH else min(delay * 2 ** min(more, _DOUBLINGS), SLOWEST_CATCH)


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
