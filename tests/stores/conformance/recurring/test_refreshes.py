"""Things that are kept fresh: starts, answers, deadlines, and the end of trying."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Expired, Failed, Snoozed, Succeeded, Suspended
from redrive.engine.records import AttemptOutcome
from redrive.engine.recurring import policy_document
from redrive.policy import Failure
from redrive.schedule import Action, Exhausted, RefreshOutcome, RefreshPolicy, Schedule, Strategy
from redrive.stores.operations import audit, checks, jobs
from redrive.stores.operations.refresh import declare, finish, read, start
from redrive.stores.operations.refresh.write import MoveResult
from tests.stores.helpers import LEASE, T0, Harness, failed, seconds
from tests.stores.recurring import HALF, HOUR, HOURLY, MINUTE, Clockwork, keeping, lucky, made

PERMANENT = failed("401", permanent="The password is wrong", reason="GAVE_UP")
"""An attempt says that no other one can succeed, and why, for the person whose data it is."""


@pytest.fixture
def clockwork(store: Harness) -> Clockwork:
    """What recurs in a new store."""
    return Clockwork(store)


def told(clockwork: Clockwork) -> list[dict[str, Any]]:
    """What the task was told that hears of things which were given up."""
    payloads = [clockwork.do(jobs.payload(job.id)) for job in clockwork.jobs("mourn")]
    return [json.loads(each)["news"] for each in payloads]


def sound(clockwork: Clockwork) -> bool:
    """Is nothing found by the invariant checker?"""
    return clockwork.do(checks.check()).findings == ()


# ------------------------------------------------------------------------------------------------------------- starting


def test_what_is_due_is_started(clockwork: Clockwork):
    """At its time a thing gets a job with its arguments, which says what it is for, and a deadline."""
    clockwork.track("a", at_once=False)
    early = clockwork.start()
    clockwork.until(HALF)
    (turned,) = clockwork.start()
    (job,) = clockwork.jobs()

    assert ((), MoveResult("a", RefreshOutcome.STARTED, job.id)) == (early, turned)
    assert ("refresh:fresh/a", b'{"id":1}') == (job.origin, clockwork.do(jobs.payload(job.id)))
    assert (str(job.id), HALF, HALF + 10 * MINUTE, 1) == (
        clockwork.state().attempt_uid,
        clockwork.state().started_at,
        clockwork.state().deadline_at,
        clockwork.state().attempt_no,
    )
    assert sound(clockwork)


def test_what_runs_is_not_started_again(clockwork: Clockwork):
    """A thing whose attempt has no answer yet is not due, however late it is."""
    clockwork.track("a")
    store_jobs = clockwork.jobs()
    clockwork.until(HALF)

    assert () == clockwork.start()
    assert store_jobs == clockwork.jobs()


def test_the_earliest_are_started_first(clockwork: Clockwork):
    """Of things that are due, as many as the budget allows are started, in the order in which they became due."""
    clockwork.track("late", at_once=False)
    clockwork.definition = keeping(schedule=Schedule.cron("15 * * * *"))
    clockwork.track("early", at_once=False, own=policy_document(clockwork.definition.policy))
    clockwork.until(HALF)

    assert [["early"], ["late"], []] == [[each.key for each in clockwork.start(budget=1)] for _ in range(3)]


@pytest.mark.parametrize("round_", range(3))
def test_a_fleet_starts_each_thing_once(shared: Harness, round_: int):
    """Four workers that look at the same instant start forty things once each, with a job each."""
    clockwork = Clockwork(shared)
    keys = [f"k{number:02}" for number in range(40)]
    clockwork.track(*keys, at_once=False)
    clockwork.until(HALF)
    answers = shared.at_once([start.start_due("fresh", 20, lucky(), now=HALF) for _ in range(4)])
    answers += [clockwork.start(), clockwork.start()]

    assert keys == sorted(turned.key for each in answers for turned in each)
    assert sorted(f"refresh:fresh/{key}" for key in keys) == sorted(job.origin or "" for job in clockwork.jobs())
    assert sound(clockwork)


def test_things_that_start_together_get_their_own_jobs(clockwork: Clockwork):
    """The rows of things that start alike name the jobs that were made for them, and for nobody else."""
    keys = ["a", "b", "c"]
    clockwork.track(*keys, at_once=False)
    clockwork.until(HALF)
    clockwork.start()

    assert {f"refresh:fresh/{key}": clockwork.thing(key).job_id for key in keys} == {
        job.origin: job.id for job in clockwork.jobs()
    }


def test_what_comes_too_late_is_left_out(store: Harness):
    """With a limit to how late a planned refresh may come, one that is later waits for the next."""
    clockwork = Clockwork(store, keeping(catch_up=5 * MINUTE))
    clockwork.track("a", at_once=False)
    clockwork.until(HALF + 6 * MINUTE)

    assert (MoveResult("a", RefreshOutcome.MISSED),) == clockwork.start()
    assert HALF + HOUR == clockwork.state().refresh_at


def test_jitter_keeps_late_ones_apart(store: Harness):
    """After a downtime each waits for a part of the jitter, by its own luck."""
    clockwork = Clockwork(store, keeping(jitter=4 * MINUTE))
    clockwork.track("a", at_once=False)
    clockwork.until(HALF + 6 * MINUTE)

    assert (MoveResult("a", RefreshOutcome.POSTPONED),) == clockwork.start(sample=0.5)
    assert HALF + 8 * MINUTE == clockwork.state().refresh_at


def test_a_refresh_that_nobody_knows_starts_nothing(clockwork: Clockwork):
    """Where nothing was ever declared or tracked there is nothing to be started, swept or reckoned."""
    assert ((), 0, 0) == (clockwork.start(), clockwork.sweep(), clockwork.replan())


def test_a_schedule_that_ends_completes(store: Harness):
    """After the last refresh of its schedule a thing is complete, and waits for nothing."""
    clockwork = Clockwork(store, keeping(schedule=Schedule.cron("0 30 12 1 1 * 2026")))
    clockwork.track("a", at_once=False)
    clockwork.until(HALF)
    clockwork.start()
    store.end(store.take())

    assert (True, None) == (clockwork.state().completed, clockwork.state().refresh_at)
    assert 1 == clockwork.do(read.counts())[0].completed


# ------------------------------------------------------------------------------------------------------------ answering


def test_success_waits_for_the_next_planned_refresh(clockwork: Clockwork):
    """The settle of a success clears what was counted, and plans the next refresh."""
    claim = clockwork.running()
    clockwork.store.wait(60)
    clockwork.store.end(claim)
    state = clockwork.state()

    assert (HALF, HALF, None, None) == (state.refresh_at, state.planned_at, state.deadline_at, state.attempt_uid)
    assert (0, 0, None) == (state.attempt_no, state.attempts_since_success, state.failing_since)
    assert sound(clockwork)


def test_many_answers_are_written_together(clockwork: Clockwork):
    """Successes and failures of one flush move each its own thing."""
    clockwork.track("a", "b", "c", "d")
    claims = {claim.origin[-1]: claim for claim in clockwork.store.claim(4) if claim.origin}
    endings = [(claims["a"], Succeeded()), (claims["b"], failed()), (claims["c"], Succeeded()), (claims["d"], failed())]
    clockwork.store.settle(*endings)
    states = {key: clockwork.state(key) for key in "abcd"}

    assert [HALF, T0 + 5 * MINUTE, HALF, T0 + 5 * MINUTE] == [each.refresh_at for each in states.values()]
    assert [0, 1, 0, 1] == [each.attempt_no for each in states.values()]
    assert sound(clockwork)


def test_a_failure_is_tried_again_after_the_delay(clockwork: Clockwork):
    """A failure leads to a retry as the refresh says, counted from the failure; the streak began with its start."""
    claim = clockwork.running()
    clockwork.store.wait(30)
    clockwork.store.end(claim, failed("boom"))
    state = clockwork.state()
    clockwork.until(T0 + seconds(330))
    (turned,) = clockwork.start()

    assert (T0 + seconds(330), 1, T0) == (state.refresh_at, state.attempt_no, state.failing_since)
    assert RefreshOutcome.STARTED is turned.outcome
    assert 2 == clockwork.state().attempt_no


def test_the_refresh_has_taken_the_failure(clockwork: Clockwork):
    """The dead job of an attempt is stamped as caught, so that nobody redrives it, and it is pruned like a success."""
    claim = clockwork.running()
    clockwork.store.end(claim, failed("boom"))
    job = clockwork.store.job(claim.id)

    assert (State.DEAD, "boom", T0) == (job.state, job.error, job.caught_at)
    assert () == clockwork.store.redrive().ids


def test_a_permanent_failure_gives_up_with_its_reason(clockwork: Clockwork):
    """Where the attempt says that no other one can succeed, the thing is disabled, with that reason."""
    clockwork.store.end(clockwork.running(), PERMANENT)
    thing = clockwork.thing()

    assert (True, "The password is wrong") == (thing.disabled_until_update, thing.disabled_reason)
    assert (None, None, None) == (thing.refresh_at, thing.job_id, thing.sweep_at)
    assert () == clockwork.start()


@pytest.mark.parametrize("reason", ["BAD_PAYLOAD", "BAD_RESULT"])
def test_a_fault_of_the_program_is_no_reason_to_give_up(clockwork: Clockwork, reason: str):
    """A failure that is permanent for the job, because the code is wrong, is an ordinary one for the thing."""
    clockwork.store.end(clockwork.running(), failed("no such field", permanent="no such field", reason=reason))

    assert not clockwork.state().disabled_until_update
    assert T0 + 5 * MINUTE == clockwork.state().refresh_at


def test_what_the_other_side_wants_is_heeded(clockwork: Clockwork):
    """A retry comes no earlier than the other side has asked for."""
    claim = clockwork.running()
    clockwork.store.end(claim, Failed(Failure((), "429", "RETRY_AFTER", hint=9 * MINUTE)))

    assert T0 + 9 * MINUTE == clockwork.state().refresh_at


def test_a_retry_that_does_not_fit_waits_for_the_planned_refresh(clockwork: Clockwork):
    """A retry that would not end before the next planned refresh is that refresh, and counts as the retry."""
    clockwork.running()
    clockwork.until(T0 + 16 * MINUTE)
    clockwork.sweep()
    clockwork.until(T0 + 15 * MINUTE)
    clockwork.start()
    clockwork.until(T0 + 20 * MINUTE)
    clockwork.store.end(clockwork.store.take(), failed())

    assert (HALF, 2) == (clockwork.state().refresh_at, clockwork.state().attempt_no)


@pytest.mark.parametrize("outcome", [Cancelled("no more"), Expired()], ids=["cancelled", "expired"])
def test_an_attempt_that_ends_without_an_answer_has_failed(clockwork: Clockwork, outcome: Any):
    """A handler that cancels its job, and a job whose own deadline has passed, are failures of the attempt."""
    clockwork.store.end(clockwork.running(), outcome)

    assert (T0 + 5 * MINUTE, None) == (clockwork.state().refresh_at, clockwork.state().attempt_uid)
    assert sound(clockwork)


def test_an_operator_who_cancels_the_job_fails_the_attempt(clockwork: Clockwork):
    """The thing goes on with its retry when the job of its attempt is cancelled from outside."""
    claim = clockwork.running()
    clockwork.store.cancel(claim.id)

    assert (T0 + 5 * MINUTE, None) == (clockwork.state().refresh_at, clockwork.state().attempt_uid)
    assert frozenset({claim.lease_id}) == clockwork.store.settle((claim, Succeeded())).lost
    assert sound(clockwork)


def test_a_job_that_goes_on_tells_nothing(clockwork: Clockwork):
    """An attempt that waits for an answer from outside still runs; its answer ends it."""
    claim = clockwork.running()
    clockwork.store.end(claim, Suspended(seconds(300)))
    waiting = clockwork.state()
    clockwork.store.answer(claim, Succeeded(b"1"))

    assert str(claim.id) == waiting.attempt_uid
    assert (None, HALF) == (clockwork.state().attempt_uid, clockwork.state().refresh_at)


def test_the_end_of_a_wait_is_a_failure(clockwork: Clockwork):
    """Where nobody has answered in time from outside, the attempt has failed."""
    clockwork.store.end(clockwork.running(), Suspended(seconds(60)))
    clockwork.store.wait(60)
    clockwork.store.lapse()

    assert (T0 + 6 * MINUTE, None) == (clockwork.state().refresh_at, clockwork.state().attempt_uid)


def test_a_job_that_is_retried_by_hand_changes_nothing(clockwork: Clockwork):
    """An operator may run the job of an old attempt again; its answer is stale, since another attempt has its place."""
    claim = clockwork.running()
    clockwork.store.cancel(claim.id)
    clockwork.store.retry(claim.id)
    before = clockwork.thing()
    clockwork.store.end(clockwork.store.take())

    assert before == clockwork.thing()
    assert sound(clockwork)


# -------------------------------------------------------------------------------------------------------------- crashes


def test_a_crash_keeps_the_attempt(clockwork: Clockwork):
    """The job of a worker that fell silent runs again, under its deadline: it is the same attempt."""
    clockwork.track("a")
    first = clockwork.store.take(worker=clockwork.store.worker())
    before = clockwork.thing()
    clockwork.store.wait(LEASE.total_seconds() + 1)
    clockwork.store.sweep()
    second = clockwork.store.take()

    assert (first.id, before) == (second.id, clockwork.thing())
    clockwork.store.end(second)
    assert HALF == clockwork.state().refresh_at


def test_a_job_that_kills_its_workers_fails_the_attempt(clockwork: Clockwork):
    """After three crashes the job is dead, and the attempt has failed."""
    clockwork.track("a")
    for _ in range(3):
        clockwork.store.take(worker=clockwork.store.worker())
        clockwork.store.wait(LEASE.total_seconds() + 1)
        clockwork.store.sweep()
    (job,) = clockwork.jobs()

    assert (State.DEAD, "POISON", clockwork.now) == (job.state, job.reason, job.caught_at)
    assert clockwork.now + 5 * MINUTE == clockwork.state().refresh_at


def test_what_may_not_be_repeated_fails_at_the_first_crash(store: Harness):
    """With idempotent=False a crash is a failure of the attempt, and the retry is another attempt."""
    clockwork = Clockwork(store, keeping(job=made(idempotent=False)))
    clockwork.track("a")
    store.take(worker=store.worker())
    store.wait(LEASE.total_seconds() + 1)
    store.sweep()

    assert ["LOST_IN_FLIGHT"] == [job.reason for job in clockwork.jobs()]
    assert (1, store.now + 5 * MINUTE) == (clockwork.state().attempt_no, clockwork.state().refresh_at)


# ------------------------------------------------------------------------------------------------------------ deadlines


def test_before_the_deadline_there_is_nothing_to_sweep(clockwork: Clockwork):
    """A sweep that comes a moment early changes nothing."""
    clockwork.running()
    clockwork.until(T0 + 10 * MINUTE - timedelta.resolution)
    before = clockwork.thing()

    assert 0 == clockwork.sweep()
    assert before == clockwork.thing()


def test_an_overdue_attempt_has_failed_at_its_deadline(clockwork: Clockwork):
    """However late the sweep comes, the retry is reckoned from the deadline, as the start has written it down."""
    claim = clockwork.running()
    promised = clockwork.state().refresh_at
    clockwork.until(T0 + 14 * MINUTE)

    assert 1 == clockwork.sweep()
    assert (promised, T0 + 15 * MINUTE) == (clockwork.state().refresh_at, clockwork.state().refresh_at)
    job, (line,) = clockwork.store.job(claim.id), clockwork.store.history(claim.id)
    assert (State.DEAD, "TIMEOUT", clockwork.now) == (job.state, job.reason, job.caught_at)
    assert (AttemptOutcome.FAILED, "the deadline of the refresh has passed") == (line.outcome, line.error)
    assert sound(clockwork)


def test_whoever_runs_an_overdue_attempt_loses_its_lease(clockwork: Clockwork):
    """An answer that comes after the sweep changes nothing."""
    claim = clockwork.running()
    clockwork.until(T0 + 10 * MINUTE)
    clockwork.sweep()
    before = clockwork.thing()

    assert frozenset({claim.lease_id}) == clockwork.store.settle((claim, Succeeded())).lost
    assert before == clockwork.thing()


def test_an_answer_between_the_deadline_and_the_sweep_counts(clockwork: Clockwork):
    """A success that comes late, but before anybody has swept, is a success."""
    claim = clockwork.running()
    clockwork.until(T0 + 11 * MINUTE)
    clockwork.store.end(claim)

    assert (0, HALF) == (clockwork.sweep(), clockwork.state().refresh_at)


def test_an_attempt_that_waits_in_its_queue_is_not_overdue(clockwork: Clockwork):
    """The time allowed counts from the claim: a job that no worker has claimed stays, and nothing has failed."""
    clockwork.track("a")
    clockwork.until(T0 + 3 * HOUR)
    swept = clockwork.sweep()
    (job,) = clockwork.jobs()

    assert (1, State.READY, T0 + 3 * HOUR + 10 * MINUTE) == (swept, job.state, clockwork.state().deadline_at)
    assert (str(job.id), 0) == (clockwork.state().attempt_uid, clockwork.sweep())
    assert sound(clockwork)


def test_a_trigger_over_an_attempt_that_waits_in_its_queue_spends_no_retry(clockwork: Clockwork):
    """However long no worker has claimed it: it has not begun, so the new attempt is the first one."""
    clockwork.track("a")
    clockwork.until(T0 + 3 * HOUR)
    clockwork.trigger("a")

    assert (1, 1) == (clockwork.state().attempt_no, clockwork.state().attempts_since_success)
    assert sound(clockwork)


def test_a_trigger_over_an_attempt_that_was_claimed_late_spends_no_retry(clockwork: Clockwork):
    """The time allowed counts from the claim: it has not failed, so the new attempt is the first one."""
    clockwork.track("a")
    clockwork.until(T0 + 9 * MINUTE)
    clockwork.store.take()
    clockwork.until(T0 + 12 * MINUTE)
    clockwork.trigger("a")

    assert (1, 1) == (clockwork.state().attempt_no, clockwork.state().attempts_since_success)
    assert sound(clockwork)


def test_an_attempt_that_was_claimed_late_has_all_its_time(clockwork: Clockwork):
    """Its deadline counts from the claim, and so do the retry and the streak of failures."""
    clockwork = Clockwork(clockwork.store, keeping(delays=(MINUTE,)))
    clockwork.track("a")
    clockwork.until(T0 + 9 * MINUTE)
    claim = clockwork.store.take()
    clockwork.until(T0 + 18 * MINUTE)
    early = clockwork.sweep()
    put_off = clockwork.state()
    clockwork.until(T0 + HOUR)
    late = clockwork.sweep()
    state = clockwork.state()

    assert (1, T0 + 19 * MINUTE, str(claim.id)) == (early, put_off.deadline_at, put_off.attempt_uid)
    assert (1, State.DEAD) == (late, clockwork.store.job(claim.id).state)
    assert (T0 + 9 * MINUTE, T0 + 20 * MINUTE, 1) == (state.failing_since, state.refresh_at, state.attempt_no)
    assert sound(clockwork)


def test_an_attempt_that_fails_after_a_wait_in_its_queue_is_reckoned_from_the_claim(store: Harness):
    """The limit in time counts from the first attempt that a worker has begun."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR, delays=(5 * MINUTE,)))
    clockwork.track("a")
    clockwork.until(T0 + 2 * HOUR)
    clockwork.sweep()
    store.end(store.take(), failed())

    assert (T0 + 2 * HOUR, 1, False) == (
        clockwork.state().failing_since,
        clockwork.state().attempt_no,
        clockwork.state().disabled_until_update,
    )


def test_what_cannot_be_read_is_not_put_off(clockwork: Clockwork):
    """Where the policy of a thing or its refresh cannot be read, what runs ends at its deadline, and the rest waits."""
    first, second = clockwork.running("a"), clockwork.running("b")
    clockwork.spoil_policy("a")
    clockwork.until(T0 + 10 * MINUTE)
    one = clockwork.sweep()
    clockwork.track("c")
    clockwork.spoil_schedule()
    clockwork.until(T0 + HOUR)
    clockwork.sweep()

    assert 1 == one
    assert [State.DEAD, State.DEAD] == [clockwork.store.job(each.id).state for each in (first, second)]
    assert State.READY is clockwork.jobs()[-1].state


def test_a_snooze_does_not_move_the_deadline(clockwork: Clockwork):
    """A handler that asks to be called later has the time that it was allowed at first."""
    claim = clockwork.running()
    clockwork.store.end(claim, Snoozed(9 * MINUTE))
    clockwork.until(T0 + 9 * MINUTE)
    again = clockwork.store.take()
    clockwork.store.end(again, Snoozed(MINUTE / 2))
    clockwork.until(T0 + 10 * MINUTE)
    clockwork.sweep()

    assert (State.CANCELLED, "the deadline of the refresh has passed") == (
        clockwork.store.job(claim.id).state,
        clockwork.store.job(claim.id).note,
    )
    assert T0 + 15 * MINUTE == clockwork.state().refresh_at
    assert sound(clockwork)


def test_a_sweep_that_comes_late_for_a_late_deadline_tells_the_time_of_the_real_one(store: Harness):
    """The row of an attempt that has waited in its queue has a later deadline than the attempt."""
    clockwork = Clockwork(store, keeping(timeout=seconds(3), delays=(5 * MINUTE,)))
    clockwork.track("a")
    clockwork.until(T0 + seconds(3))
    clockwork.sweep()
    clockwork.until(T0 + seconds(10))
    store.take()
    clockwork.until(T0 + HOUR)
    clockwork.sweep()

    assert T0 + seconds(13) + 5 * MINUTE == clockwork.state().refresh_at


def test_a_success_spreads_the_next_start(store: Harness):
    """The sample of a success is that of its next planned start: each thing keeps apart from the others."""
    clockwork = Clockwork(store, keeping(jitter=10 * MINUTE))
    claims = [clockwork.running(key) for key in "abc"]
    for claim, sample in zip(claims, (0.0, 0.25, 0.5), strict=True):
        store.settle((claim, Succeeded()), sample=sample)

    assert [HALF, HALF + 2.5 * MINUTE, HALF + 5 * MINUTE] == [clockwork.state(key).refresh_at for key in "abc"]


def test_things_that_are_lost_together_are_spread_too(store: Harness):
    """The sweep of a dead worker has no samples; the numbers of the jobs stand for them."""
    clockwork = Clockwork(
        store, keeping(jitter=10 * MINUTE, delays=(), on_exhausted=Exhausted.WAIT_NEXT, job=made(idempotent=False))
    )
    clockwork.track(*"abc")
    store.claim(9, worker=store.worker())
    store.wait(600)
    store.sweep()
    due = {clockwork.state(key).refresh_at for key in "abc"}

    assert 3 == len(due)
    assert all(timedelta(0) <= each - HALF < 10 * MINUTE for each in due)


def test_an_attempt_that_waits_for_an_answer_is_overdue_too(clockwork: Clockwork):
    """Waiting for an answer from outside does not put the deadline off."""
    claim = clockwork.running()
    clockwork.store.end(claim, Suspended(HOUR))
    clockwork.until(T0 + 10 * MINUTE)
    clockwork.sweep()

    assert State.DEAD is clockwork.store.job(claim.id).state
    assert T0 + 15 * MINUTE == clockwork.state().refresh_at
    assert sound(clockwork)


def test_an_attempt_whose_job_is_gone_is_swept(clockwork: Clockwork):
    """A row that names a job which nobody has any more fails at its deadline like any other."""
    clockwork.track("a")
    clockwork.rename("a", job_id=4711)
    clockwork.until(T0 + 10 * MINUTE)

    assert 1 == clockwork.sweep()
    assert (None, T0 + 15 * MINUTE) == (clockwork.state().attempt_uid, clockwork.state().refresh_at)


def test_an_attempt_whose_job_has_ended_untold_is_swept(clockwork: Clockwork):
    """Where a job ended and nobody could read what that means, the deadline tells."""
    claim = clockwork.running()
    document = clockwork.schedule("fresh").document
    clockwork.spoil_schedule()
    clockwork.store.end(claim)
    untold = clockwork.state()
    clockwork.until(T0 + 10 * MINUTE)
    in_vain = clockwork.sweep()
    clockwork.spoil_schedule(document=document)

    assert (str(claim.id), 0, 1) == (untold.attempt_uid, in_vain, clockwork.sweep())
    assert (State.SUCCEEDED, T0 + 15 * MINUTE) == (clockwork.store.job(claim.id).state, clockwork.state().refresh_at)


def test_a_sweep_has_a_budget(clockwork: Clockwork):
    """As many as the budget allows are swept, the most overdue first."""
    clockwork.track("a")
    clockwork.store.wait(1)
    clockwork.track("b", "c")
    clockwork.store.claim(3)
    clockwork.until(T0 + HOUR)
    first = clockwork.sweep(budget=1)

    assert (1, None) == (first, clockwork.state("a").attempt_uid)
    assert [2, 0] == [clockwork.sweep(), clockwork.sweep()]


def test_of_a_sweep_and_an_answer_one_counts(shared: Harness):
    """A sweep and an answer that come at once end the attempt once, whoever is first."""
    clockwork = Clockwork(shared)
    claim = clockwork.running()
    clockwork.until(T0 + 10 * MINUTE)
    settle = clockwork.settling(claim)
    swept, settled = shared.at_once([finish.end_overdue(9, lucky(), now=shared.now), settle])

    assert clockwork.state().refresh_at == (HALF if settled.moved else T0 + 15 * MINUTE)
    assert (swept == 1) == (settled.moved == ())
    assert sound(clockwork)


# ------------------------------------------------------------------------------------------------------------ giving up


def exhausted(clockwork: Clockwork) -> None:
    """Let the first attempt of a thing fail, and its two retries."""
    clockwork.store.end(clockwork.running(), failed("first"))
    for text in ("second", "third"):
        clockwork.until(clockwork.state().refresh_at or T0)
        clockwork.start()
        clockwork.store.end(clockwork.store.take(), failed(text))


def test_when_all_retries_have_failed_it_is_given_up(clockwork: Clockwork):
    """The thing is disabled, with a reason for the person whose data it is, until it is updated."""
    exhausted(clockwork)
    thing = clockwork.thing()

    assert (True, "Cannot refresh after 3 attempt(s)") == (thing.disabled_until_update, thing.disabled_reason)
    assert [thing] == [clockwork.thing() for _ in clockwork.do(read.select("fresh", troubled=True))]
    assert sound(clockwork)


def test_who_is_to_be_told_is_told_once(clockwork: Clockwork):
    """The job that tells of it is made by the transaction that gives up, and by nothing else."""
    clockwork.definition = keeping(on_give_up=(Action("email", "customer"),))
    exhausted(clockwork)
    clockwork.until(T0 + 5 * HOUR)
    clockwork.start()
    clockwork.sweep()
    clockwork.replan()

    assert [
        {
            "refresh": "fresh",
            "key": "a",
            "reason": "Cannot refresh after 3 attempt(s)",
            "error": "third",
            "attempts": 3,
            "failing_since": "2026-01-01T12:00:00Z",
            "actions": [{"name": "email", "to": "customer", "text": None}],
        }
    ] == told(clockwork)


def test_nobody_need_be_told(store: Harness):
    """Without a task for that, giving up writes the row, and no job."""
    clockwork = Clockwork(store, keeping(told=False, delays=()))
    store.end(clockwork.running(), failed())

    assert clockwork.state().disabled_until_update
    assert 1 == len(store.jobs())


def test_exhausted_is_not_given_up(store: Harness):
    """Where the policy says so, the next planned refresh begins anew when all retries are used up."""
    clockwork = Clockwork(store, keeping(delays=(), on_exhausted=Exhausted.WAIT_NEXT))
    store.end(clockwork.running(), failed())

    assert (HALF, 0, 1) == (
        clockwork.state().refresh_at,
        clockwork.state().attempt_no,
        clockwork.state().attempts_since_success,
    )
    assert [] == told(clockwork)


def test_a_deadline_may_be_the_end(store: Harness):
    """Where the last attempt times out, the sweep gives up, and tells."""
    clockwork = Clockwork(store, keeping(delays=()))
    clockwork.running()
    clockwork.until(T0 + HOUR)
    clockwork.sweep()

    assert clockwork.state().disabled_until_update
    assert ["the deadline of the refresh has passed"] == [each["error"] for each in told(clockwork)]


def test_it_is_given_up_when_nothing_has_succeeded_for_too_long(store: Harness):
    """A thing that waits for its retry is given up at the moment that the policy names, not when the retry is due."""
    clockwork = Clockwork(store, keeping(delays=(3 * HOUR,), strategy=Strategy.UNTIL_SUCCESS, give_up_after=HOUR))
    store.end(clockwork.running(), failed("boom"))
    sweep_at = clockwork.thing().sweep_at
    clockwork.until(T0 + HOUR - timedelta.resolution)
    early = clockwork.sweep()
    clockwork.until(T0 + HOUR)

    assert (T0 + HOUR, 0, 1) == (sweep_at, early, clockwork.sweep())
    assert "No successful refresh for too long" == clockwork.state().disabled_reason
    assert [None] == [each["error"] for each in told(clockwork)]
    assert 0 == clockwork.sweep()


def test_a_start_that_would_be_too_late_gives_up(store: Harness):
    """Where no sweep came in time, the start gives up instead, and says why."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running(), failed())
    clockwork.until(T0 + HOUR)
    (turned,) = clockwork.start()

    assert MoveResult("a", RefreshOutcome.GAVE_UP, None, "No successful refresh for too long") == turned
    assert 1 == len(told(clockwork))


def test_success_ends_the_streak(store: Harness):
    """After a success the time without one begins anew, and there is nothing to sweep."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running())

    assert None is clockwork.thing().sweep_at
    clockwork.until(T0 + 5 * HOUR)
    assert 0 == clockwork.sweep()


# ------------------------------------------------------------------------------------------------- what cannot be read


def test_a_policy_that_means_nothing_is_given_up(clockwork: Clockwork):
    """A thing whose own policy this redrive cannot read is disabled when it is due, and the reason is the error."""
    clockwork.track("a", at_once=False)
    clockwork.spoil_policy()
    clockwork.until(HALF)
    (turned,) = clockwork.start()

    assert RefreshOutcome.GAVE_UP is turned.outcome
    assert "the stored policy is no JSON" in (clockwork.state().disabled_reason or "")
    assert 1 == len(told(clockwork))


def test_a_policy_that_means_nothing_is_no_reason_to_lose_an_answer(clockwork: Clockwork):
    """The answer of its attempt ends the job; what that means for the thing is seen at the deadline."""
    claim = clockwork.running()
    clockwork.spoil_policy()
    clockwork.store.end(claim)

    assert State.SUCCEEDED is clockwork.store.job(claim.id).state
    assert str(claim.id) == clockwork.state().attempt_uid


def test_what_fails_and_has_a_policy_that_means_nothing_is_given_up(store: Harness):
    """The sweep of a thing that has failed for too long gives it up even so."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running(), failed())
    clockwork.spoil_policy()
    clockwork.until(T0 + HOUR)

    assert 1 == clockwork.sweep()
    assert "the stored policy is no JSON" in (clockwork.state().disabled_reason or "")


def test_a_refresh_that_only_a_newer_redrive_can_read_waits(store: Harness):
    """Nothing of it is started, swept or reckoned, and nothing is lost."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    clockwork.track("waits", at_once=False)
    store.end(clockwork.running("fails"), failed())
    clockwork.spoil_schedule()
    clockwork.until(T0 + HOUR)
    before = clockwork.do(read.select("fresh"))

    assert ((), 0, 0) == (clockwork.start(), clockwork.sweep(), clockwork.replan())
    assert before == clockwork.do(read.select("fresh"))


# ----------------------------------------------------------------------------------------------------------- replanning


OTHER = Schedule.cron("45 * * * *")


def test_another_policy_reckons_anew_a_batch_at_a_time(clockwork: Clockwork):
    """After a deployment each thing waits for the next refresh of the new schedule; each is reckoned once."""
    clockwork.track("a", "b", "c", at_once=False)
    clockwork.declare(keeping(schedule=OTHER))
    counts = [clockwork.replan(budget=2) for _ in range(3)]

    assert [2, 1, 0] == counts
    assert {T0 + 45 * MINUTE} == {clockwork.state(key).refresh_at for key in "abc"}


def test_the_same_policy_reckons_nothing(clockwork: Clockwork):
    """Where only the jobs are made otherwise, no thing moves."""
    clockwork.track("a", at_once=False)
    clockwork.declare(keeping(job=made("other")))

    assert 0 == clockwork.replan()


def test_what_runs_is_reckoned_anew_and_goes_on(clockwork: Clockwork):
    """A running attempt keeps its job and its deadline, and its failure leads where the new policy says."""
    claim = clockwork.running()
    clockwork.declare(keeping(delays=(MINUTE,)))
    clockwork.replan()

    assert (str(claim.id), T0 + 10 * MINUTE) == (clockwork.state().attempt_uid, clockwork.state().deadline_at)
    clockwork.store.end(claim, failed())
    assert T0 + MINUTE == clockwork.state().refresh_at


def test_policies_of_their_own_follow_no_deployment(clockwork: Clockwork):
    """A thing with a policy of its own is not reckoned anew when the code has another one."""
    own = policy_document(RefreshPolicy(schedule=HOURLY))
    clockwork.track("a", at_once=False, own=own)
    clockwork.declare(keeping(schedule=OTHER))

    assert (0, HALF) == (clockwork.replan(), clockwork.state().refresh_at)


# ------------------------------------------------------------------------------------------------------------ the clock


def test_late_starts_and_late_claims_follow_the_plan(store: Harness):
    """A retry that fits to the second is made there, though the look, the claim and the settlement take 0.3 s each."""
    late = timedelta(seconds=0.3)
    clockwork = Clockwork(store, keeping(timeout=HOUR / 2, delays=(timedelta(0),) * 3))
    clockwork.track("a", at_once=False)
    begun = []
    for _ in range(4):
        clockwork.until((clockwork.state().refresh_at or HALF) + late)
        clockwork.start()
        clockwork.until(clockwork.now + late)
        claim = store.take()
        begun.append(clockwork.now - HALF)
        clockwork.until(clockwork.now + HOUR / 2 + late)
        store.end(claim, failed())

    assert [0, 1800, 3600, 5400] == [round(each.total_seconds()) // 10 * 10 for each in begun]


def test_things_that_are_ahead_of_the_clock_are_reckoned_anew_a_page_at_a_time(clockwork: Clockwork):
    """After the clock was set back, each waits for the next planned refresh from now on; the audit log tells."""
    clockwork.until(T0 + 999 * HOUR)
    clockwork.track("a", "b", "c", at_once=False)
    running = clockwork.running("d")
    clockwork.track("own", at_once=False, own=policy_document(RefreshPolicy(schedule=OTHER)))
    clockwork.until(T0)
    pages, after = [], ""
    while True:
        page = clockwork.do(declare.set_back("fresh", lucky(), after=after, limit=2, now=T0))
        pages.append(page.moved)
        if page.last is None:
            break
        after = page.last

    assert [2, 2, 1] == pages
    assert {HALF} == {clockwork.state(key).refresh_at for key in "abc"}
    assert T0 + 45 * MINUTE == clockwork.state("own").refresh_at
    assert (T0 + 10 * MINUTE, str(running.id)) == (clockwork.state("d").deadline_at, clockwork.state("d").attempt_uid)
    assert {("redrive", "clock_set_back")} == {(each.actor, each.action) for each in clockwork.do(audit.audit())}
    assert declare.SetBackPage(None, 0) == clockwork.do(declare.set_back("fresh", lucky(), now=T0))


def test_what_cannot_be_read_stays_ahead_of_the_clock(clockwork: Clockwork):
    """Nothing is reckoned of a policy or a refresh that this redrive cannot read, or that is not there."""
    clockwork.until(T0 + 999 * HOUR)
    clockwork.track("a", at_once=False)
    clockwork.spoil_policy()
    clockwork.until(T0)
    moved = [clockwork.do(declare.set_back(name, lucky(), now=T0)).moved for name in ("fresh", "absent")]
    clockwork.spoil_schedule()

    assert [0, 0, 0] == [*moved, clockwork.do(declare.set_back("fresh", lucky(), now=T0)).moved]
