"""The decision about the end of an attempt: (claim, outcome, now, sample) -> settlement. PURE.

`decide` asks the policy stored with the job through `Policy.decide`, the same call that in-process retries make, looks
the next state up in the lifecycle table, and returns all changes as one value. A store writes it in one transaction or
not at all.

The effect of each outcome on the three counters:

=============  =========  ==========  =========  =======================================
outcome        attempt    failures    crashes    note
=============  =========  ==========  =========  =======================================
succeeded      stays      stays       0
failed         stays      + 1         0          retry, or dead and its catch job
snoozed        - 1        stays       0          the attempt is given back
suspended      stays      stays       0          the attempt stays open, under its lease
parked         - 1        stays       0          a run waits; the attempt is given back
restarted      - 1        stays       0          a run begins again, with its new arguments
held           - 1        stays       stays      a run waits for code that fits its steps
released       - 1        stays       stays      not caused by the handler
cut off, once  stays      + 1         0          ``idempotent=False``: dead, ``LOST_IN_FLIGHT``
unreadable     - 1        stays       stays      for a while; then failed with ``BAD_PAYLOAD``; encoded: no limit
lost           stays      stays       + 1        dead with ``POISON`` at the third
lost, once     stays      + 1         + 1        ``idempotent=False``: dead, ``LOST_IN_FLIGHT``
lost, catch    stays      + 1         + 1        never dead; slower from the third on
expired        - 1        stays       stays      dead, ``DEADLINE``; the handler never ran
cancelled      stays      stays       0
=============  =========  ==========  =========  =======================================
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.engine.frozen import UnreadablePolicy
from redrive.engine.lease import POISON_LIMIT, UNKNOWN_TASK_DELAY, UNREADABLE_FOR, UNREADABLE_LOOK
from redrive.engine.lifecycle import FINAL, LifecycleEvent, State, next_state
from redrive.engine.origin import Kind, is_feeder, read_origin
from redrive.engine.outcome import (
    Cancelled,
    Expired,
    Failed,
    Held,
    Lost,
    Outcome,
    Parked,
    Released,
    Restarted,
    RunChange,
    Settlement,
    Snoozed,
    Succeeded,
    Suspended,
    Unreadable,
    base,
    close,
)
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, Hold
from redrive.engine.reports import report, succeeded
from redrive.engine.runs import FAR, StepOutcome
from redrive.engine.steps import NewStep, decided
from redrive.errors.foreign import summary, trace
from redrive.policy import Defer, Failure, GiveUp, History, Policy, Retry, Stage, format_duration

if TYPE_CHECKING:
    from redrive.engine.error_groups import ErrorSeen

#: The reason of a job that passed its deadline before its attempt could start; no failure is counted.
DEADLINE = "DEADLINE"

#: The reason of a job that was cancelled because it had not started in time.
EXPIRED = "EXPIRED"

#: Failures, crashes included, after which a catch job is shown as stuck.
CATCH_STUCK_AFTER = 5

_HELP = "; waits for a worker that can read it, or for redrive jobs repolicy"

#: The reason of a job that died because its policy raised.
BAD_POLICY = "BAD_POLICY"

#: Delay of a catch job after its policy has raised; a catch job never dies of a failure.
CATCH_AGAIN = timedelta(minutes=1)

#: The newest attempts of a catch job that its history keeps: it may fail for years.
CATCH_HISTORY = 100

#: Maximum delay of a catch job after crashes, or if it is stuck, unless the policy's last delay is longer.
SLOWEST_CATCH = timedelta(hours=1)


#: Maximum delay of a feeder after crashes.
FEEDER_PAUSE = timedelta(seconds=30)

# After 30 doublings every delay has reached `SLOWEST_CATCH`, and none has left the range of a timedelta.
_DOUBLINGS = 30


def decide(claim: Claim, outcome: Outcome, now: datetime, sample: float, *, state: State = State.RUNNING) -> Settlement:
    """Decide the end of an attempt.

    Args:
        claim: the claimed job.
        outcome: how the attempt ended.
        now: the transaction's instant, by the store's clock.
        sample: a random number in [0, 1), for jitter.
        state: ``waiting`` for an attempt that was suspended.

    Raises:
        IllegalMove: a suspended attempt cannot end with this outcome.
    """
    try:
        decided = _decided(claim, outcome, now, sample)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(outcome, Failed | Lost):
            raise
        decided, outcome = _undecided(claim, outcome, now, error)
    if claim.origin is not None and decided.report is None and decided.state in FINAL:
        decided = replace(decided, report=report(claim, outcome, sample, decided))
    if decided.reason is not None:
        decided = replace(decided, seen=_seen(claim, decided, decided.reason, now))
    return decided if state is State.RUNNING else replace(decided, state=next_state(state, decided.event), before=state)


# A suspended attempt has not ended. The external completion or the end of the wait is an outcome like any other, out of
# ``waiting`` instead of ``running``.
def _decided(  # noqa: PLR0911 - one for each outcome
    claim: Claim, outcome: Outcome, now: datetime, sample: float
) -> Settlement:
    match outcome:
        case Succeeded():
            return _succeeded(claim, outcome, now, sample)
        case Failed():
            return _failed(claim, outcome, now, sample)
        case Lost(why):
            return _lost(claim, why, now)
        case Snoozed() | Parked() | Restarted() | Held():
            return _put_off(claim, outcome, now)
        case Suspended(wait_for, effects):
            note = f"waits for an answer from outside, {format_duration(wait_for)} at most"
            waits = base(claim, LifecycleEvent.WAIT, effects=effects)
            return replace(waits, scheduled_at=now + wait_for, note=note)
        case Released():
            return _released(claim, outcome, now)
        case Unreadable():
            return _unread(claim, outcome, now) if outcome.lasts else _unreadable(claim, outcome.why, now, sample)
        case Cancelled(why):
            closed = close(claim, now, AttemptOutcome.CANCELLED, verdict=why)
            return replace(base(claim, LifecycleEvent.CANCEL, closed), note=why)
        case Expired():  # pragma: no branch - the last one; mypy proves that all are here
            return _expired(claim)


def _seen(claim: Claim, decided: Settlement, reason: str, now: datetime) -> ErrorSeen:
    """Return the failure as a member of its error group."""
    # A worker does not wait for this module before its first job.
    from redrive.engine.error_groups import seen

    kind, trace = (None, None) if decided.closed is None else (decided.closed.error_type, decided.closed.traceback)
    return seen(claim, now, reason=reason, error_type=kind, error=decided.error, traceback=trace)


def _undecided(claim: Claim, outcome: Failed | Lost, now: datetime, error: BaseException) -> tuple[Settlement, Failed]:
    """Return the settlement of an attempt with a policy that raises, such as a backoff function of the application."""
    # The job is dead, because asking again would not help. A catch job, which may not die of a failure, runs again.
    why = f"the decision about this attempt failed: {summary(error)}"
    before = outcome.failure.message if isinstance(outcome, Failed) else outcome.why
    failed = Failed(Failure((), why, BAD_POLICY, permanent=why), trace(error))
    if claim.catching:
        verdict = f"catch again in {format_duration(CATCH_AGAIN)}; the attempt had failed: {before}"
        closed = close(
            claim, now, AttemptOutcome.FAILED, failed=failed, delay=CATCH_AGAIN, rule="catch", verdict=verdict
        )
        return _retry(claim, closed, now + CATCH_AGAIN), failed
    verdict = f"{why}; the attempt had failed: {before}"
    return _dead(
        claim, close(claim, now, AttemptOutcome.FAILED, failed=failed, rule="bad policy", verdict=verdict)
    ), failed


def set_aside(claim: Claim, now: datetime, *, state: State = State.RUNNING) -> Settlement:
    """Return the settlement of an attempt that is over while its policy, which decides what follows, cannot be decoded.

    The attempt keeps its lease, and its worker may still end it.
    """
    why = claim.policy.why if isinstance(claim.policy, UnreadablePolicy) else "unknown"
    over = "no answer came in time" if state is State.WAITING else f"worker {claim.worker_id} was lost"
    note = f"{over}, and its policy cannot be read: {why}{_HELP}"
    return replace(
        base(claim, LifecycleEvent.SET_ASIDE),
        state=next_state(state, LifecycleEvent.SET_ASIDE),
        before=state,
        crashes=claim.crashes,
        scheduled_at=now + UNREADABLE_LOOK,
        hold=Hold.BAD_POLICY,
        note=note,
    )


def _given_back(
    claim: Claim, due: datetime, hold: Hold, why: str, closed: AttemptRecord | None = None, *, began: bool = False
) -> Settlement:
    return replace(
        base(claim, LifecycleEvent.RELEASE, closed),
        attempt=claim.attempt - 1,
        crashes=claim.crashes,
        scheduled_at=due,
        hold=hold,
        note=why,
        unreadable_at=claim.unreadable_at,
        # In virtual time an earlier attempt may have begun at the same instant.
        unstarted=closed is None and not began and claim.attempt == 1 and not claim.snoozes,
    )


# Arguments that this code cannot decode may be readable for another worker during a deployment. The job therefore waits
# for `redrive.engine.lease.UNREADABLE_FOR`, counted from ``unreadable_at``; a release for another reason keeps that
# instant, and every other end of an attempt clears it.
def _unreadable(claim: Claim, why: str, now: datetime, sample: float) -> Settlement:
    since = claim.unreadable_at or now
    until = since + UNREADABLE_FOR
    origin = read_origin(claim.origin)
    # A refresh makes new attempts by itself.
    if now >= until or (origin is not None and origin.kind is Kind.REFRESH):
        return _failed(claim, Failed(Failure((), why, "BAD_PAYLOAD", permanent=why)), now, sample)
    look = _look(since, now)
    note = f"{why}; waits until {until:%H:%M:%S} UTC for a worker that can read them"
    return replace(_given_back(claim, min(now + look, until), Hold.BAD_PAYLOAD, note), unreadable_at=since)


# Without its policy nothing can decide on the job, and without the key nothing is wrong with it.
def _unread(claim: Claim, outcome: Unreadable, now: datetime) -> Settlement:
    """Keep a job with a policy or an encoded document that cannot be decoded waiting, without a time limit."""
    since = claim.unreadable_at or now
    hold, note = Hold.BAD_PAYLOAD, f"{outcome.why}; waits for a worker that can"
    if outcome.policy:
        hold, note = Hold.BAD_POLICY, f"its policy cannot be read: {outcome.why}{_HELP}"
    return replace(_given_back(claim, now + _look(since, now), hold, note), unreadable_at=since)


def _put_off(claim: Claim, outcome: Snoozed | Parked | Restarted | Held, now: datetime) -> Settlement:
    """Return the settlement of an attempt that its own handler gave back."""
    match outcome:
        case Snoozed(delay, why):
            closed = close(
                claim, now, AttemptOutcome.SNOOZED, delay=delay, verdict=why or f"snoozed for {format_duration(delay)}"
            )
            return replace(
                base(claim, LifecycleEvent.SNOOZE, closed),
                attempt=claim.attempt - 1,
                snoozes=claim.snoozes + 1,
                scheduled_at=now + delay,
                hold=Hold.SNOOZE,
                note=closed.verdict,
            )
        case Parked(until, why, steps, values, waits, paused, undoing, drops, before):
            rows, ends_at = tuple(decided(each, now) for each in steps), None if undoing else _ends_at(claim)
            due = _due(until, rows, now) if ends_at is None else min(_due(until, rows, now), ends_at)
            change = RunChange(rows, values, waits, paused, ends_at=ends_at, drops=drops, before=before)
            return _parked(claim, due, why, change)
        case Restarted(arguments, values, steps):
            change = RunChange(steps, values, arguments=arguments, ends_at=_ends_at(claim))
            return _parked(claim, now, "begins again with new arguments", change)
        case Held():  # pragma: no branch - the last one; mypy proves that all are here
            return _held(claim, outcome, now)


# A run is parked without a line in the history: its steps are the history.
def _parked(claim: Claim, until: datetime, why: str, change: RunChange) -> Settlement:
    return replace(
        base(claim, LifecycleEvent.PARK),
        attempt=claim.attempt - 1,
        scheduled_at=until,
        hold=Hold.PARKED,
        note=why,
        run=change,
    )


def _due(until: datetime | None, rows: Sequence[NewStep], now: datetime) -> datetime:
    """Return when a parked run is due: at its earliest wait, or at once if a step of it has failed for good."""
    if any(row.outcome is StepOutcome.FAILED for row in rows):
        return now
    return min((at for at in (until, *(row.due_at for row in rows)) if at is not None), default=FAR)


def _held(claim: Claim, outcome: Held, now: datetime) -> Settlement:
    """Keep a run waiting, without a time limit, until the code of a worker fits its recorded steps."""
    since = claim.unreadable_at or now
    due, ends_at = now + _look(since, now), _ends_at(claim)
    due = due if ends_at is None else min(due, ends_at)
    held = _given_back(claim, due, Hold.HELD, outcome.why, began=outcome.began)
    return replace(held, unreadable_at=since, run=RunChange(held=outcome.why))


def _look(since: datetime, now: datetime) -> timedelta:
    """Return the next wait of a job that could not be decoded: as long as it has waited already, within limits."""
    return min(max(now - since, UNKNOWN_TASK_DELAY), UNREADABLE_LOOK)


def _released(claim: Claim, released: Released, now: datetime) -> Settlement:
    """Return the settlement of a released job; an attempt that had started may have had its effect already."""
    if released.started and claim.policy.idempotent is False and not claim.catching:
        verdict = "cut off in flight, and the task is declared idempotent=False: not repeated"
        failure = Failure(types=(), message=released.why, reason="LOST_IN_FLIGHT", stage=Stage.IN_FLIGHT)
        closed = close(claim, now, AttemptOutcome.LOST, failed=Failed(failure), rule="not_idempotent", verdict=verdict)
        return _dead(claim, closed)
    cut = None
    if released.started:
        cut = close(claim, now, AttemptOutcome.RELEASED, delay=released.delay, verdict=f"cut off: {released.why}")
    return _given_back(claim, now + released.delay, released.hold, released.why, cut, began=released.began)


def _succeeded(claim: Claim, outcome: Succeeded, now: datetime, sample: float) -> Settlement:
    # Hot path: by far the most frequent outcome; built without `replace`.
    closed = AttemptRecord(
        claim.id, claim.lease_id, claim.attempt, claim.worker_id, claim.claimed_at, now, AttemptOutcome.SUCCEEDED
    )
    return base(
        claim,
        LifecycleEvent.SUCCEED,
        closed,
        result=outcome.result,
        caught=claim.parent_id,
        report=None if claim.origin is None else succeeded(claim, sample, outcome.effects),
        effects=outcome.effects,
    )


def _failed(claim: Claim, failed: Failed, now: datetime, sample: float) -> Settlement:
    failure = failed.failure
    if claim.catching and failure.reason != "BAD_PAYLOAD":
        return _catch_again(claim, failed, now)
    history = History(
        attempts=claim.failures + 1, started_at=claim.started_at, last_delay=claim.last_delay, by_rule=claim.by_rule
    )

    def by_rule(delay: timedelta) -> tuple[int, ...]:
        return claim.policy.advance(history, failure, delay, now=now, sample=sample).by_rule

    left = claim.policy.remaining(history, failure)
    most = None if left is None or is_feeder(claim.origin) else claim.attempt + left
    match claim.policy.decide(history, failure, now, sample):
        case Retry(delay, nominal, rule):
            verdict = f"retry in {format_duration(delay)} ({rule})"
            closed = close(
                claim,
                now,
                AttemptOutcome.FAILED,
                failed=failed,
                nominal=nominal,
                delay=delay,
                rule=rule,
                verdict=verdict,
            )
            if rule == "deadline" and not _ends_by(claim, now + delay):
                return _dead(claim, closed, most=most)
            return _retry(claim, closed, now + delay, by_rule(delay), most=most)
        case Defer(at, rule):
            verdict = f"deferred to {at:%Y-%m-%d %H:%M:%S} UTC ({rule})"
            closed = close(claim, now, AttemptOutcome.FAILED, failed=failed, delay=at - now, rule=rule, verdict=verdict)
            return _retry(claim, closed, at, by_rule(at - now), most=most)
        case GiveUp(why, rule):  # pragma: no branch - the last one; mypy proves that all are here
            others = claim.attempt - history.attempts
            if rule == "attempts" and others > 0:
                were = "1 earlier one was" if others == 1 else f"{others} earlier ones were"
                why += f"; {were} forgiven by a retry or redrive, or lost with a worker"
            closed = close(claim, now, AttemptOutcome.FAILED, failed=failed, rule=rule, verdict=why)
            return _dead(claim, closed, most=most)


def _ends_by(claim: Claim, due: datetime) -> bool:
    """Return True if a claim at this instant will find the job expired."""
    # A delay that is cut at the deadline is not followed by a call. The claim checks the deadline of the policy; but a
    # part of a combined policy may have an earlier one, and then there is nothing to wait for.
    ends_at = deadline_at(claim.policy, claim.started_at)
    return ends_at is not None and due >= ends_at


def deadline_at(policy: Policy, started_at: datetime | None) -> datetime | None:
    """Return the instant from which on no attempt of a job may start; None if it has no deadline or has not started."""
    return None if policy.deadline is None or started_at is None else started_at + policy.deadline


def _ends_at(claim: Claim) -> datetime | None:
    """Return the deadline of a run that waits; None after a claim that has found it expired."""
    ends_at = None if claim.catching else deadline_at(claim.policy, claim.started_at)
    return None if ends_at is None or claim.claimed_at >= ends_at else ends_at


def _retry(
    claim: Claim, closed: AttemptRecord, due: datetime, by_rule: tuple[int, ...] = (), *, most: int | None = None
) -> Settlement:
    return replace(
        base(claim, LifecycleEvent.RETRY, closed),
        failures=claim.failures + 1,
        by_rule=by_rule,
        scheduled_at=due,
        last_delay=closed.delay,
        hold=Hold.RETRY,
        note=closed.verdict,
        reason=closed.reason,
        error=closed.error,
        max_attempts=most,
    )


def _dead(claim: Claim, closed: AttemptRecord, *, crashes: int = 0, most: int | None = None) -> Settlement:
    return replace(
        base(claim, LifecycleEvent.DIE, closed),
        failures=claim.failures + 1,
        crashes=crashes,
        note=closed.verdict,
        reason=closed.reason,
        error=closed.error,
        max_attempts=most,
        catch=None if claim.catching else claim.policy.catch,
    )


# A catch job does not die of failures or crashes: it runs again until it succeeds or an operator ends it. After a
# failure it waits for the last delay of the parent's policy, which it carries for that reason; from the third crash in
# a row on, and after each failure of a stuck one, it waits twice as long, so that a catch that is broken for a week
# leaves some dozens of attempts in the history. Only arguments that cannot be decoded end it.
def _catch_again(claim: Claim, failed: Failed, now: datetime) -> Settlement:
    """Return the settlement of a failed catch job: it runs again until it succeeds."""
    failures = claim.failures + 1
    nominal = catch_wait(claim.policy.catch_delay, failures)
    delay = max(nominal, failed.failure.hint) if failed.failure.hint else nominal
    verdict = f"catch again in {format_duration(delay)}{_stuck(failures)}"
    closed = close(
        claim, now, AttemptOutcome.FAILED, failed=failed, nominal=nominal, delay=delay, rule="catch", verdict=verdict
    )
    return _retry(claim, closed, now + delay)


def catch_wait(delay: timedelta, failures: int) -> timedelta:
    """Return the wait of a catch task after so many failures: its delay, and twice as long for each one when stuck."""
    return delay if failures <= CATCH_STUCK_AFTER else _slowed(delay, failures - CATCH_STUCK_AFTER)


def _stuck(failures: int) -> str:
    return f"; stuck: {failures} failures" if failures >= CATCH_STUCK_AFTER else ""


def _lost(claim: Claim, why: str, now: datetime) -> Settlement:
    """Return the settlement after a crash: its failure is "in flight", because it is unknown how far the call got."""
    crashes, failures, delay = claim.crashes + 1, claim.failures, None
    reason, rule = "WORKER_LOST", "crash"
    if claim.catching:
        failures, delay = failures + 1, _catch_pause(claim, crashes)
        verdict = f"catch again in {format_duration(delay)} after crash {crashes}{_stuck(failures)}"
    elif is_feeder(claim.origin):
        # A feeder has no handler of its own: it hands the events that it was delivering to jobs, which have the limit.
        delay = min(timedelta(seconds=2 ** min(crashes, _DOUBLINGS)), FEEDER_PAUSE) if crashes > POISON_LIMIT else None
        verdict = f"runs again after crash {crashes}"
    elif crashes >= POISON_LIMIT:
        verdict = f"{crashes} crashes in a row: presumed to kill its workers"
        reason, rule = "POISON", "poison limit"
    elif claim.policy.idempotent is False:
        verdict = "lost in flight, and the task is declared idempotent=False: not repeated"
        reason, rule = "LOST_IN_FLIGHT", "not_idempotent"
    else:
        verdict = f"runs again after crash {crashes} of at most {POISON_LIMIT - 1}"
    failure = Failure(types=(), message=why, reason=reason, stage=Stage.IN_FLIGHT)
    closed = close(claim, now, AttemptOutcome.LOST, failed=Failed(failure), delay=delay, rule=rule, verdict=verdict)
    if reason != "WORKER_LOST":
        return _dead(claim, closed, crashes=crashes)
    return replace(
        base(claim, LifecycleEvent.LOSE, closed),
        failures=failures,
        crashes=crashes,
        scheduled_at=now + (delay or timedelta(0)),
        hold=Hold.LOST,
        note=verdict,
        reason=reason,
        error=why,
    )


def _catch_pause(claim: Claim, crashes: int) -> timedelta:
    """Return the delay of a catch job after a crash: none at first, doubled from the third crash in a row on."""
    more = crashes - POISON_LIMIT
    return timedelta(0) if more < 0 else _slowed(claim.policy.catch_delay, more)


def _slowed(delay: timedelta, doublings: int) -> timedelta:
    """Return a delay doubled so many times, at most `SLOWEST_CATCH` unless it is longer itself."""
    return delay if delay >= SLOWEST_CATCH else min(delay * 2 ** min(doublings, _DOUBLINGS), SLOWEST_CATCH)


def _expired(claim: Claim) -> Settlement:
    """Return the settlement of a job that passed its deadline in the queue; its handler must not start."""
    deadline = f" of {format_duration(claim.policy.deadline)}" if claim.policy.deadline else ""
    verdict = f"the deadline{deadline} had passed before the attempt could start"
    return replace(
        base(claim, LifecycleEvent.DIE),
        attempt=claim.attempt - 1,
        crashes=claim.crashes,
        note=verdict,
        reason=DEADLINE,
        error=verdict,
        catch=None if claim.catching else claim.policy.catch,
    )
