"""Tracked items: starts, answers, deadlines, and giving up."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Expired, Failed, Snoozed, Succeeded, Suspended
from redrive.engine.records import AttemptOutcome
from redrive.engine.recurring import policy_document
from redrive.policy import Failure
from redrive.schedule import Action, Exhausted, RefreshOutcome, RefreshPolicy, Schedule, Strategy
from redrive.stores.operations import audit, checks, jobs
from redrive.stores.operations.refresh import finish, items, start
from redrive.stores.operations.refresh.items import MoveResult
from tests.stores.helpers import LEASE, T0, Harness, failed, seconds
from tests.stores.recurring import HALF, HOUR, HOURLY, MINUTE, Clockwork, keeping, made, samples

PERMANENT = failed("401", permanent="The password is wrong", reason="GAVE_UP")
"""A permanent failure with a reason for the owner of the data."""


@pytest.fixture
def clockwork(store: Harness) -> Clockwork:
    """Return a helper for schedules in a new store."""
    return Clockwork(store)


def second(_: datetime, __: datetime, failures: int) -> Strategy:
    """Return a strategy that aligns from the second failure on."""
    return Strategy.UNTIL_SUCCESS if failures == 1 else Strategy.ALIGN


def raises(_: datetime, planned_at: datetime, __: int) -> Strategy:
    """Raise an error with characters that no database stores, in the year of the store's clock."""
    if planned_at.date() == T0.date():
        raise LookupError("\0 \ud800")
    return Strategy.ALIGN


def notifications(clockwork: Clockwork) -> list[dict[str, Any]]:
    """Return the payloads that the notification task for disabled items received."""
    numbers = [job.id for job in clockwork.jobs("mourn")]
    documents = clockwork.do(jobs.documents(dict.fromkeys(numbers)))
    return [json.loads(documents[number].payload or b"")["news"] for number in numbers]


def sound(clockwork: Clockwork) -> bool:
    """Return True if the invariant checker finds no error."""
    return clockwork.do(checks.check()).findings == ()


# ------------------------------------------------------------------------------------------------------------- starting


def test_due_items_are_started(clockwork: Clockwork):
    """Due items get a job with their arguments and origin, and a deadline."""
    clockwork.track("a", at_once=False)
    early = clockwork.start()
    clockwork.until(HALF)
    (turned,) = clockwork.start()
    (job,) = clockwork.jobs()

    assert ((), MoveResult("a", RefreshOutcome.STARTED, job.id)) == (early, turned)
    assert ("refresh:fresh/a", b'{"id":1}') == (
        job.origin,
        clockwork.do(jobs.documents({job.id: None}))[job.id].payload,
    )
    assert (str(job.id), HALF, HALF + 10 * MINUTE, 1) == (
        clockwork.state().attempt_uid,
        clockwork.state().started_at,
        clockwork.state().deadline_at,
        clockwork.state().attempt_no,
    )
    assert sound(clockwork)


def test_running_items_are_not_started_again(clockwork: Clockwork):
    """Items with an open attempt are not due, however late they are."""
    clockwork.track("a")
    store_jobs = clockwork.jobs()
    clockwork.until(HALF)

    assert () == clockwork.start()
    assert store_jobs == clockwork.jobs()


def test_the_earliest_are_started_first(clockwork: Clockwork):
    """Start as many due items as the budget allows, in the order of their due times."""
    clockwork.track("late", at_once=False)
    clockwork.definition = keeping(schedule=Schedule.cron("15 * * * *"))
    clockwork.track("early", at_once=False, own=policy_document(clockwork.definition.policy))
    clockwork.until(HALF)

    assert [["early"], ["late"], []] == [[each.key for each in clockwork.start(budget=1)] for _ in range(3)]


@pytest.mark.parametrize("round_", range(3))
def test_a_fleet_starts_each_item_once(shared: Harness, round_: int):
    """If four workers run at the same instant, each of forty items gets one job."""
    clockwork = Clockwork(shared)
    keys = [f"k{number:02}" for number in range(40)]
    clockwork.track(*keys, at_once=False)
    clockwork.until(HALF)
    answers = shared.at_once([start.start_due("fresh", 20, samples(), now=HALF) for _ in range(4)])
    answers += [clockwork.start(), clockwork.start()]

    assert keys == sorted(turned.key for each in answers for turned in each)
    assert sorted(f"refresh:fresh/{key}" for key in keys) == sorted(job.origin or "" for job in clockwork.jobs())
    assert sound(clockwork)


def test_items_that_start_together_get_their_own_jobs(clockwork: Clockwork):
    """Rows of items that start together name the jobs that were created for them."""
    keys = ["a", "b", "c"]
    clockwork.track(*keys, at_once=False)
    clockwork.until(HALF)
    clockwork.start()

    assert {f"refresh:fresh/{key}": clockwork.item(key).job_id for key in keys} == {
        job.origin: job.id for job in clockwork.jobs()
    }


def test_a_refresh_that_is_too_late_is_skipped(store: Harness):
    """With a limit on lateness, a later planned refresh is skipped for the next one."""
    clockwork = Clockwork(store, keeping(catch_up=5 * MINUTE))
    clockwork.track("a", at_once=False)
    clockwork.until(HALF + 6 * MINUTE)

    assert (MoveResult("a", RefreshOutcome.MISSED),) == clockwork.start()
    assert HALF + HOUR == clockwork.state().refresh_at


def test_jitter_keeps_late_ones_apart(store: Harness):
    """After a downtime each item is delayed by a random part of the jitter."""
    clockwork = Clockwork(store, keeping(jitter=4 * MINUTE))
    clockwork.track("a", at_once=False)
    clockwork.until(HALF + 6 * MINUTE)

    assert (MoveResult("a", RefreshOutcome.POSTPONED),) == clockwork.start(sample=0.5)
    assert HALF + 8 * MINUTE == clockwork.state().refresh_at


def test_an_unknown_refresh_starts_nothing(clockwork: Clockwork):
    """Refreshes without a declaration or tracked items have nothing to start, sweep or reschedule."""
    assert ((), 0, 0) == (clockwork.start(), clockwork.sweep(), clockwork.replan())


def test_a_schedule_that_ends_completes(store: Harness):
    """After the last refresh of its schedule an item is complete and has no due time."""
    clockwork = Clockwork(store, keeping(schedule=Schedule.cron("0 30 12 1 1 * 2026")))
    clockwork.track("a", at_once=False)
    clockwork.until(HALF)
    clockwork.start()
    store.end(store.take())

    assert (True, None) == (clockwork.state().completed, clockwork.state().refresh_at)
    assert 1 == clockwork.do(items.counts())[0].completed


# ------------------------------------------------------------------------------------------------------------ answering


def test_success_waits_for_the_next_planned_refresh(clockwork: Clockwork):
    """Settling a success resets the counters and plans the next refresh."""
    claim = clockwork.running()
    clockwork.store.wait(60)
    clockwork.store.end(claim)
    state = clockwork.state()

    assert (HALF, HALF, None, None) == (state.refresh_at, state.planned_at, state.deadline_at, state.attempt_uid)
    assert (0, 0, None) == (state.attempt_no, state.attempts_since_success, state.failing_since)
    assert sound(clockwork)


def test_many_answers_are_written_together(clockwork: Clockwork):
    """Successes and failures settled in one batch each update their own item."""
    clockwork.track("a", "b", "c", "d")
    claims = {claim.origin[-1]: claim for claim in clockwork.store.claim(4) if claim.origin}
    endings = [(claims["a"], Succeeded()), (claims["b"], failed()), (claims["c"], Succeeded()), (claims["d"], failed())]
    clockwork.store.settle(*endings)
    states = {key: clockwork.state(key) for key in "abcd"}

    assert [HALF, T0 + 5 * MINUTE, HALF, T0 + 5 * MINUTE] == [each.refresh_at for each in states.values()]
    assert [0, 1, 0, 1] == [each.attempt_no for each in states.values()]
    assert sound(clockwork)


def test_a_failure_is_tried_again_after_the_delay(clockwork: Clockwork):
    """Failures lead to a retry after the refresh's backoff; the failing period begins at the attempt's start."""
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
    """Dead jobs of an attempt are stamped as caught: they are not redriven, and are pruned like successes."""
    claim = clockwork.running()
    clockwork.store.end(claim, failed("boom"))
    job = clockwork.store.job(claim.id)

    assert (State.DEAD, "boom", T0) == (job.state, job.error, job.caught_at)
    assert () == clockwork.store.redrive().ids


def test_a_permanent_failure_gives_up_with_its_reason(clockwork: Clockwork):
    """Permanent failures disable the item with the reason of the failure."""
    clockwork.store.end(clockwork.running(), PERMANENT)
    item = clockwork.item()

    assert (True, "The password is wrong") == (item.disabled_until_update, item.disabled_reason)
    assert (None, None, None) == (item.refresh_at, item.job_id, item.sweep_at)
    assert () == clockwork.start()


@pytest.mark.parametrize("reason", ["BAD_PAYLOAD", "BAD_RESULT"])
def test_a_fault_of_the_program_is_no_reason_to_give_up(clockwork: Clockwork, reason: str):
    """Job failures that are permanent because of a defect in the code are ordinary failures of the item."""
    clockwork.store.end(clockwork.running(), failed("no such field", permanent="no such field", reason=reason))

    assert not clockwork.state().disabled_until_update
    assert T0 + 5 * MINUTE == clockwork.state().refresh_at


def test_a_hint_delays_the_retry(clockwork: Clockwork):
    """Retries are not due before the time that the remote service asked for."""
    claim = clockwork.running()
    clockwork.store.end(claim, Failed(Failure((), "429", "RETRY_AFTER", hint=9 * MINUTE)))

    assert T0 + 9 * MINUTE == clockwork.state().refresh_at


def test_a_retry_that_does_not_fit_waits_for_the_planned_refresh(clockwork: Clockwork):
    """Retries that would not end before the next planned refresh take its place and count as the retry."""
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
    """Cancellation by the handler and an expired job deadline are failures of the attempt."""
    clockwork.store.end(clockwork.running(), outcome)

    assert (T0 + 5 * MINUTE, None) == (clockwork.state().refresh_at, clockwork.state().attempt_uid)
    assert sound(clockwork)


def test_cancelling_the_job_fails_the_attempt(clockwork: Clockwork):
    """Items continue with their retry if an operator cancels the job of their attempt."""
    claim = clockwork.running()
    clockwork.store.cancel(claim.id)

    assert (T0 + 5 * MINUTE, None) == (clockwork.state().refresh_at, clockwork.state().attempt_uid)
    assert frozenset({claim.lease_id}) == clockwork.store.settle((claim, Succeeded())).lost
    assert sound(clockwork)


def test_an_unfinished_attempt_is_not_reported(clockwork: Clockwork):
    """Attempts that wait for an external answer are still open; the answer ends them."""
    claim = clockwork.running()
    clockwork.store.end(claim, Suspended(seconds(300)))
    waiting = clockwork.state()
    clockwork.store.answer(claim, Succeeded(b"1"))

    assert str(claim.id) == waiting.attempt_uid
    assert (None, HALF) == (clockwork.state().attempt_uid, clockwork.state().refresh_at)


def test_the_end_of_a_wait_is_a_failure(clockwork: Clockwork):
    """If no external answer arrives in time, the attempt has failed."""
    clockwork.store.end(clockwork.running(), Suspended(seconds(60)))
    clockwork.store.wait(60)
    clockwork.store.lapse()

    assert (T0 + 6 * MINUTE, None) == (clockwork.state().refresh_at, clockwork.state().attempt_uid)


def test_a_job_that_is_retried_by_hand_changes_nothing(clockwork: Clockwork):
    """Operators may rerun the job of an old attempt; its answer is stale, since a newer attempt replaced it."""
    claim = clockwork.running()
    clockwork.store.cancel(claim.id)
    clockwork.store.retry(claim.id)
    before = clockwork.item()
    clockwork.store.end(clockwork.store.take())

    assert before == clockwork.item()
    assert sound(clockwork)


# -------------------------------------------------------------------------------------------------------------- crashes


def test_a_crash_keeps_the_attempt(clockwork: Clockwork):
    """After its worker has died, the job runs again under its deadline as the same attempt."""
    clockwork.track("a")
    first = clockwork.store.take(worker=clockwork.store.worker())
    before = clockwork.item()
    clockwork.store.wait(LEASE.total_seconds() + 1)
    clockwork.store.sweep()
    second = clockwork.store.take()

    assert (first.id, before) == (second.id, clockwork.item())
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


def test_an_attempt_that_is_not_idempotent_fails_at_the_first_crash(store: Harness):
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
    """Sweeping before the deadline changes nothing."""
    clockwork.running()
    clockwork.until(T0 + 10 * MINUTE - timedelta.resolution)
    before = clockwork.item()

    assert 0 == clockwork.sweep()
    assert before == clockwork.item()


def test_an_overdue_attempt_has_failed_at_its_deadline(clockwork: Clockwork):
    """Retries are computed from the deadline that the start stored, however late the sweep comes."""
    claim = clockwork.running()
    promised = clockwork.state().refresh_at
    clockwork.until(T0 + 14 * MINUTE)

    assert 1 == clockwork.sweep()
    assert (promised, T0 + 15 * MINUTE) == (clockwork.state().refresh_at, clockwork.state().refresh_at)
    job, (line,) = clockwork.store.job(claim.id), clockwork.store.history(claim.id)
    assert (State.DEAD, "TIMEOUT", clockwork.now) == (job.state, job.reason, job.caught_at)
    assert (AttemptOutcome.FAILED, "the deadline of the refresh has passed") == (line.outcome, line.error)
    assert sound(clockwork)


def test_a_sweep_revokes_the_lease_of_an_overdue_attempt(clockwork: Clockwork):
    """Answers after the sweep change nothing."""
    claim = clockwork.running()
    clockwork.until(T0 + 10 * MINUTE)
    clockwork.sweep()
    before = clockwork.item()

    assert frozenset({claim.lease_id}) == clockwork.store.settle((claim, Succeeded())).lost
    assert before == clockwork.item()


def test_an_answer_between_the_deadline_and_the_sweep_counts(clockwork: Clockwork):
    """Successes after the deadline, but before the sweep, count as successes."""
    claim = clockwork.running()
    clockwork.until(T0 + 11 * MINUTE)
    clockwork.store.end(claim)

    assert (0, HALF) == (clockwork.sweep(), clockwork.state().refresh_at)


def test_an_attempt_that_waits_in_its_queue_is_not_overdue(clockwork: Clockwork):
    """Deadlines count from the claim: an unclaimed job stays, and its attempt has not failed."""
    clockwork.track("a")
    clockwork.until(T0 + 3 * HOUR)
    swept = clockwork.sweep()
    (job,) = clockwork.jobs()

    assert (1, State.READY, T0 + 3 * HOUR + 10 * MINUTE) == (swept, job.state, clockwork.state().deadline_at)
    assert (str(job.id), 0) == (clockwork.state().attempt_uid, clockwork.sweep())
    assert sound(clockwork)


def test_a_trigger_over_an_attempt_that_waits_in_its_queue_spends_no_retry(clockwork: Clockwork):
    """Unclaimed attempts have not begun, so the new attempt is the first one."""
    clockwork.track("a")
    clockwork.until(T0 + 3 * HOUR)
    clockwork.trigger("a")

    assert (1, 1) == (clockwork.state().attempt_no, clockwork.state().attempts_since_success)
    assert sound(clockwork)


def test_a_trigger_over_an_attempt_that_was_claimed_late_spends_no_retry(clockwork: Clockwork):
    """Triggering over an attempt that was claimed late spends no retry: the new attempt is the first one."""
    clockwork.track("a")
    clockwork.until(T0 + 9 * MINUTE)
    clockwork.store.take()
    clockwork.until(T0 + 12 * MINUTE)
    clockwork.trigger("a")

    assert (1, 1) == (clockwork.state().attempt_no, clockwork.state().attempts_since_success)
    assert sound(clockwork)


def test_an_attempt_that_was_claimed_late_keeps_its_whole_timeout(clockwork: Clockwork):
    """Deadline, retry and failing period count from the claim."""
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


def test_time_limits_count_from_the_first_claim(store: Harness):
    """Limits in time count from the start of the first attempt that a worker has claimed."""
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


def test_unreadable_items_are_not_rescheduled(clockwork: Clockwork):
    """If an item's policy or refresh is unreadable, open attempts end at their deadline and others wait."""
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
    """Snoozed attempts keep their first deadline."""
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


def test_a_late_sweep_reports_the_deadline_of_the_attempt(store: Harness):
    """Sweeps report the deadline of the attempt, not the later one in its item's row."""
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
    """Samples of successes spread the next planned starts: each item has its own."""
    clockwork = Clockwork(store, keeping(jitter=10 * MINUTE))
    claims = [clockwork.running(key) for key in "abc"]
    for claim, sample in zip(claims, (0.0, 0.25, 0.5), strict=True):
        store.settle((claim, Succeeded()), sample=sample)

    assert [HALF, HALF + 2.5 * MINUTE, HALF + 5 * MINUTE] == [clockwork.state(key).refresh_at for key in "abc"]


def test_items_that_are_lost_together_are_spread_too(store: Harness):
    """Sweeping a dead worker has no samples; the job ids replace them."""
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
    """Waiting for an external answer does not extend the deadline."""
    claim = clockwork.running()
    clockwork.store.end(claim, Suspended(HOUR))
    clockwork.until(T0 + 10 * MINUTE)
    clockwork.sweep()

    assert State.DEAD is clockwork.store.job(claim.id).state
    assert T0 + 15 * MINUTE == clockwork.state().refresh_at
    assert sound(clockwork)


def test_an_attempt_with_a_missing_job_is_swept(clockwork: Clockwork):
    """Attempts with a missing job fail at their deadline like any other."""
    clockwork.track("a")
    clockwork.rename("a", job_id=4711)
    clockwork.until(T0 + 10 * MINUTE)

    assert 1 == clockwork.sweep()
    assert (None, T0 + 15 * MINUTE) == (clockwork.state().attempt_uid, clockwork.state().refresh_at)


def test_an_attempt_that_missed_the_end_of_its_job_is_swept(clockwork: Clockwork):
    """If a job's end did not update its item, the attempt fails at the deadline."""
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
    """Sweeps process as many items as the budget allows, the most overdue first."""
    clockwork.track("a")
    clockwork.store.wait(1)
    clockwork.track("b", "c")
    clockwork.store.claim(3)
    clockwork.until(T0 + HOUR)
    first = clockwork.sweep(budget=1)

    assert (1, None) == (first, clockwork.state("a").attempt_uid)
    assert [2, 0] == [clockwork.sweep(), clockwork.sweep()]


def test_a_concurrent_sweep_and_answer_end_an_attempt_once(shared: Harness):
    """Concurrent sweeps and answers end the attempt once, in any order."""
    clockwork = Clockwork(shared)
    claim = clockwork.running()
    clockwork.until(T0 + 10 * MINUTE)
    settle = clockwork.settling(claim)
    swept, settled = shared.at_once([finish.end_overdue(9, samples(), now=shared.now), settle])

    assert clockwork.state().refresh_at == (HALF if settled.moved else T0 + 15 * MINUTE)
    assert (swept == 1) == (settled.moved == ())
    assert sound(clockwork)


# ------------------------------------------------------------------------------------------------------------ giving up


def exhausted(clockwork: Clockwork) -> None:
    """Let the first attempt of an item and its two retries fail."""
    clockwork.store.end(clockwork.running(), failed("first"))
    for text in ("second", "third"):
        clockwork.until(clockwork.state().refresh_at or T0)
        clockwork.start()
        clockwork.store.end(clockwork.store.take(), failed(text))


def test_an_item_with_exhausted_retries_is_disabled(clockwork: Clockwork):
    """Items with exhausted retries are disabled with a reason until they are updated."""
    exhausted(clockwork)
    item = clockwork.item()

    assert (True, "Cannot refresh after 3 attempt(s)") == (item.disabled_until_update, item.disabled_reason)
    assert [item] == [clockwork.item() for _ in clockwork.do(items.select("fresh", troubled=True))]
    assert sound(clockwork)


def test_the_notification_job_is_created_once(clockwork: Clockwork):
    """Create the notification job only in the transaction that disables the item."""
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
    ] == notifications(clockwork)


def test_a_notification_task_is_optional(store: Harness):
    """Without a notification task, disabling an item writes the row and creates no job."""
    clockwork = Clockwork(store, keeping(notify=False, delays=()))
    store.end(clockwork.running(), failed())

    assert clockwork.state().disabled_until_update
    assert 1 == len(store.jobs())


def test_an_exhausted_item_continues_without_give_up(store: Harness):
    """If the policy allows it, exhausted items start again at the next planned refresh."""
    clockwork = Clockwork(store, keeping(delays=(), on_exhausted=Exhausted.WAIT_NEXT))
    store.end(clockwork.running(), failed())

    assert (HALF, 0, 1) == (
        clockwork.state().refresh_at,
        clockwork.state().attempt_no,
        clockwork.state().attempts_since_success,
    )
    assert [] == notifications(clockwork)


def test_a_deadline_may_be_the_end(store: Harness):
    """If the last attempt times out, the sweep disables the item and creates the notification job."""
    clockwork = Clockwork(store, keeping(delays=()))
    clockwork.running()
    clockwork.until(T0 + HOUR)
    clockwork.sweep()

    assert clockwork.state().disabled_until_update
    assert ["the deadline of the refresh has passed"] == [each["error"] for each in notifications(clockwork)]


def test_an_item_is_disabled_at_the_time_limit_of_its_policy(store: Harness):
    """Items that wait for a retry are disabled at the policy's time limit, not when the retry is due."""
    clockwork = Clockwork(store, keeping(delays=(3 * HOUR,), strategy=Strategy.UNTIL_SUCCESS, give_up_after=HOUR))
    store.end(clockwork.running(), failed("boom"))
    sweep_at = clockwork.item().sweep_at
    clockwork.until(T0 + HOUR - timedelta.resolution)
    early = clockwork.sweep()
    clockwork.until(T0 + HOUR)

    assert (T0 + HOUR, 0, 1) == (sweep_at, early, clockwork.sweep())
    assert "No successful refresh for too long" == clockwork.state().disabled_reason
    assert [None] == [each["error"] for each in notifications(clockwork)]
    assert 0 == clockwork.sweep()


def test_a_start_that_would_be_too_late_gives_up(store: Harness):
    """If no sweep ran in time, the start disables the item and stores the reason."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running(), failed())
    clockwork.until(T0 + HOUR)
    (turned,) = clockwork.start()

    assert MoveResult("a", RefreshOutcome.GAVE_UP, None, "No successful refresh for too long") == turned
    assert 1 == len(notifications(clockwork))


@pytest.mark.parametrize("own", [False, True], ids=["policy of the refresh", "policy of its own"])
def test_a_limit_counts_from_the_last_success(store: Harness, own: bool):
    """The instant of the success is stored, and a trigger, a pause and a superseded attempt do not change it."""
    clockwork = Clockwork(store, keeping(give_up_after=2 * HOUR, give_up_since="last_success"))
    policy = policy_document(clockwork.definition.policy)
    clockwork.track("a", own=policy if own else None)
    claim = store.take()
    clockwork.until(T0 + MINUTE)
    store.end(claim)
    fresh = clockwork.item()
    clockwork.until(HALF)
    clockwork.start()
    clockwork.trigger()
    store.end(store.take(), failed())
    clockwork.pause()
    paused = clockwork.item()
    clockwork.resume()
    failing = clockwork.item()

    assert (T0 + MINUTE, None) == (fresh.succeeded_at, fresh.sweep_at)
    assert (T0 + MINUTE, None) == (paused.succeeded_at, paused.sweep_at)
    assert (T0 + MINUTE, HALF, T0 + MINUTE + 2 * HOUR) == (
        failing.succeeded_at,
        failing.failing_since,
        failing.sweep_at,
    )
    clockwork.until(T0 + MINUTE + 2 * HOUR - timedelta.resolution)
    assert 0 == clockwork.sweep()
    clockwork.until(T0 + MINUTE + 2 * HOUR)
    assert 1 == clockwork.sweep()
    assert "No successful refresh for too long" == clockwork.state().disabled_reason
    clockwork.update()
    assert None is clockwork.item().succeeded_at
    assert sound(clockwork)


def test_a_limit_counts_from_the_first_failure_until_a_success_is_stored(store: Harness):
    """An item that never succeeded has no other instant, nor one whose policy did not count from the success."""
    clockwork = Clockwork(store, keeping(give_up_after=2 * HOUR))
    store.end(clockwork.running("a"))
    clockwork.until(HALF)
    clockwork.start()
    store.end(store.take(), failed())
    clockwork.declare(keeping(give_up_after=2 * HOUR, give_up_since="last_success"))
    clockwork.replan()
    store.end(clockwork.running("new"), failed())

    assert [(None, HALF + 2 * HOUR)] * 2 == [
        (clockwork.item(key).succeeded_at, clockwork.item(key).sweep_at) for key in ("a", "new")
    ]


def test_a_deployment_counts_the_limit_of_failing_items_anew(store: Harness):
    """Items that fail are given up by the new instant, and those that are due already at the next sweep."""
    since_success, since_failure = (
        keeping(give_up_after=HOUR, give_up_since=each) for each in ("last_success", "first_failure")
    )
    clockwork = Clockwork(store, since_success)
    store.end(clockwork.running())
    clockwork.until(HALF)
    clockwork.start()
    store.end(store.take(), failed())
    limits = []
    for definition in (since_failure, since_success):
        clockwork.declare(definition)
        clockwork.replan()
        limits.append(clockwork.item().sweep_at)

    assert [HALF + HOUR, T0 + HOUR] == limits
    clockwork.until(T0 + HOUR)
    assert 1 == clockwork.sweep()


def test_a_function_of_the_user_is_the_strategy(store: Harness):
    """The stored policy names it, and each retry asks it."""
    Strategy.register("second in a test", second)
    clockwork = Clockwork(store, keeping(timeout=HOUR, strategy="second in a test"))
    store.end(clockwork.running(), failed())
    first = clockwork.state()
    clockwork.until(T0 + 5 * MINUTE)
    clockwork.start()
    store.end(store.take(), failed())

    assert (T0 + 5 * MINUTE, 1) == (first.refresh_at, first.attempt_no)
    assert (HALF, 2) == (clockwork.state().refresh_at, clockwork.state().attempt_no)


def test_a_strategy_that_raises_disables_the_item(store: Harness):
    """The other items go on; the reason is a text that each database stores, and the owner is notified."""
    Strategy.register("raises in a test", raises)
    clockwork = Clockwork(store, keeping(strategy="raises in a test"))
    claims = [clockwork.running("a"), clockwork.running("b")]
    store.end(claims[0], failed())
    clockwork.until(T0 + MINUTE)
    clockwork.start()
    store.end(claims[1])
    clockwork.until(HALF)
    clockwork.start()
    _ = store.take(), store.take()  # the notification for the other item, and this attempt
    before = clockwork.state("b")
    clockwork.until(T0 + 5 * HOUR)
    clockwork.sweep()

    assert (False, None) == (before.disabled_until_update, before.refresh_at)
    why = "the strategy function raises in a test raised LookupError for failure 1: '\\x00 \\ud800'"
    assert [why, why] == [clockwork.state(key).disabled_reason for key in ("a", "b")]
    assert {"a", "b"} == {each["key"] for each in notifications(clockwork)}
    assert sound(clockwork)


def test_success_ends_the_streak(store: Harness):
    """After a success the failing period ends, and there is nothing to sweep."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running())

    assert None is clockwork.item().sweep_at
    clockwork.until(T0 + 5 * HOUR)
    assert 0 == clockwork.sweep()


# -------------------------------------------------------------------------------------------------------- unreadable


def test_an_item_with_an_unreadable_policy_is_disabled(clockwork: Clockwork):
    """Items with an unreadable policy of their own are disabled when due, with the error as the reason."""
    clockwork.track("a", at_once=False)
    clockwork.spoil_policy()
    clockwork.until(HALF)
    (turned,) = clockwork.start()

    assert RefreshOutcome.GAVE_UP is turned.outcome
    assert "the stored policy is not JSON" in (clockwork.state().disabled_reason or "")
    assert 1 == len(notifications(clockwork))


def test_an_answer_for_an_unreadable_policy_ends_the_job(clockwork: Clockwork):
    """Answers for an item with an unreadable policy end the job; the item is decided at the deadline."""
    claim = clockwork.running()
    clockwork.spoil_policy()
    clockwork.store.end(claim)

    assert State.SUCCEEDED is clockwork.store.job(claim.id).state
    assert str(claim.id) == clockwork.state().attempt_uid


def test_a_failing_item_with_an_unreadable_policy_is_disabled(store: Harness):
    """Sweeps disable an item that failed for too long even if its policy is unreadable."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running(), failed())
    clockwork.spoil_policy()
    clockwork.until(T0 + HOUR)

    assert 1 == clockwork.sweep()
    assert "the stored policy is not JSON" in (clockwork.state().disabled_reason or "")


def test_a_refresh_that_only_a_newer_redrive_can_read_waits(store: Harness):
    """Refreshes that need a newer redrive are not started, swept, rescheduled or deleted."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    clockwork.track("waits", at_once=False)
    store.end(clockwork.running("fails"), failed())
    clockwork.spoil_schedule()
    clockwork.until(T0 + HOUR)
    before = clockwork.do(items.select("fresh"))

    assert ((), 0, 0) == (clockwork.start(), clockwork.sweep(), clockwork.replan())
    assert before == clockwork.do(items.select("fresh"))


# ----------------------------------------------------------------------------------------------------------- replanning


OTHER = Schedule.cron("45 * * * *")


def test_a_changed_policy_reschedules_items_in_batches(clockwork: Clockwork):
    """After a deployment each item is rescheduled once, in batches, to the new schedule's next refresh."""
    clockwork.track("a", "b", "c", at_once=False)
    clockwork.declare(keeping(schedule=OTHER))
    counts = [clockwork.replan(budget=2) for _ in range(3)]

    assert [2, 1, 0] == counts
    assert {T0 + 45 * MINUTE} == {clockwork.state(key).refresh_at for key in "abc"}


def test_an_unchanged_policy_reschedules_no_item(clockwork: Clockwork):
    """If only the job template changes, no item is rescheduled."""
    clockwork.track("a", at_once=False)
    clockwork.declare(keeping(job=made("other")))

    assert 0 == clockwork.replan()


def test_rescheduling_keeps_a_running_attempt(clockwork: Clockwork):
    """Rescheduling keeps the job and deadline of an open attempt; its failure follows the new policy."""
    claim = clockwork.running()
    clockwork.declare(keeping(delays=(MINUTE,)))
    clockwork.replan()

    assert (str(claim.id), T0 + 10 * MINUTE) == (clockwork.state().attempt_uid, clockwork.state().deadline_at)
    clockwork.store.end(claim, failed())
    assert T0 + MINUTE == clockwork.state().refresh_at


def test_policies_of_their_own_follow_no_deployment(clockwork: Clockwork):
    """Items with their own policy are not rescheduled after a deployment."""
    own = policy_document(RefreshPolicy(schedule=HOURLY))
    clockwork.track("a", at_once=False, own=own)
    clockwork.declare(keeping(schedule=OTHER))

    assert (0, HALF) == (clockwork.replan(), clockwork.state().refresh_at)


# ------------------------------------------------------------------------------------------------------------ the clock


def test_late_starts_and_late_claims_follow_the_plan(store: Harness):
    """Retries that just fit take place although start, claim and settlement are each 0.3 s late."""
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


def test_items_that_are_ahead_of_the_clock_are_replanned_in_pages(clockwork: Clockwork):
    """After the clock was set back, items are replanned from now on; the audit log has a line."""
    clockwork.until(T0 + 999 * HOUR)
    clockwork.track("a", "b", "c", at_once=False)
    running = clockwork.running("d")
    clockwork.track("own", at_once=False, own=policy_document(RefreshPolicy(schedule=OTHER)))
    clockwork.until(T0)
    pages, after = [], ""
    while True:
        page = clockwork.do(start.set_back("fresh", samples(), after=after, limit=2, now=T0))
        pages.append(page.moved)
        if page.last is None:
            break
        after = page.last

    assert [2, 2, 1] == pages
    assert {HALF} == {clockwork.state(key).refresh_at for key in "abc"}
    assert T0 + 45 * MINUTE == clockwork.state("own").refresh_at
    assert (T0 + 10 * MINUTE, str(running.id)) == (clockwork.state("d").deadline_at, clockwork.state("d").attempt_uid)
    assert {("redrive", "clock_set_back")} == {(each.actor, each.action) for each in clockwork.do(audit.audit())}
    assert start.SetBackPage(None, 0) == clockwork.do(start.set_back("fresh", samples(), now=T0))


def test_unreadable_items_ahead_of_the_clock_are_not_replanned(clockwork: Clockwork):
    """Items with an unreadable or missing policy or refresh are not rescheduled."""
    clockwork.until(T0 + 999 * HOUR)
    clockwork.track("a", at_once=False)
    clockwork.spoil_policy()
    clockwork.until(T0)
    moved = [clockwork.do(start.set_back(name, samples(), now=T0)).moved for name in ("fresh", "absent")]
    clockwork.spoil_schedule()

    assert [0, 0, 0] == [*moved, clockwork.do(start.set_back("fresh", samples(), now=T0)).moved]
