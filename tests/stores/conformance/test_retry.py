"""Retry: an operator grants one attempt more."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Expired, Lost, Succeeded
from redrive.engine.records import Hold
from redrive.errors import IllegalMove, JobNotFound
from redrive.policy import Rule
from tests.stores.helpers import FATAL, Harness, failed, new


def fails_left(store: Harness, number: int) -> int:
    """Return the number of failures until the job is dead."""
    count = 0
    while store.job(number).state is State.READY:
        store.wait(10_000)
        store.end(store.take(), failed())
        count += 1
    return count


def test_a_waiting_job_becomes_due(store: Harness):
    """Waiting jobs become due now, whatever they wait for; their counters stay."""
    claim = store.take(new(retry="5 1h"))
    store.end(claim, failed())
    store.wait(5)
    store.retry(claim.id)
    row = store.job(claim.id)

    assert (State.READY, store.now, None) == (row.state, row.scheduled_at, row.hold)
    assert (1, 1, 0) == (row.attempt, row.failures, row.redrives)
    assert claim.id == store.take().id


def test_a_job_that_is_due_keeps_its_place(store: Harness):
    """Jobs that are already due keep their due time."""
    first, second = store.put(), store.put()
    store.wait(5)
    before = store.everything()
    store.retry(first)

    assert before == store.everything()
    assert [first, second] == [claim.id for claim in store.claim(2)]


def test_a_dead_job_gets_exactly_one_attempt_more(store: Harness):
    """Retried jobs that exhausted their retries have one failure subtracted: one attempt more."""
    number = store.put(new(retry="2 1s"))
    assert 3 == fails_left(store, number)
    store.retry(number)
    row = store.job(number)

    assert (State.READY, store.now, Hold.REDRIVE) == (row.state, row.scheduled_at, row.hold)
    assert (2, 3, 1, None) == (row.failures, row.attempt, row.redrives, row.finished_at)
    assert "run once more by an operator" == row.note
    assert 1 == fails_left(store, number)
    assert 4 == len(store.history(number))


def test_the_one_attempt_more_is_counted_by_rules_too(store: Harness):
    """Jobs ended by the limit of a rule get exactly one more attempt too."""
    rules = [Rule("builtins.ValueError", attempts=4)]
    number = store.put(new(retry="1 1s", rules=rules))
    assert 4 == fails_left(store, number)
    store.retry(number)

    assert 1 == fails_left(store, number)


def test_a_job_that_gave_up_early_gets_one_attempt_more(store: Harness):
    """Jobs ended by a permanent failure run again with the retries that they had left."""
    number = store.dead(new(retry="2 1s"))
    store.retry(number)

    assert 0 == store.job(number).failures
    assert 3 == fails_left(store, number)


def test_a_retried_cancelled_job_keeps_its_counters(store: Harness):
    """Jobs cancelled between two attempts continue with the retries that they had left."""
    rules = [Rule("builtins.ValueError", attempts=3)]
    claim = store.take(new(retry="1 1s", rules=rules))
    store.end(claim, failed())
    store.cancel(claim.id)
    store.retry(claim.id)

    assert 1 == store.job(claim.id).failures
    assert 2 == fails_left(store, claim.id)


def test_an_expired_job_starts_with_a_new_deadline(store: Harness):
    """Expired jobs run again with a new deadline; their failures stay."""
    number = store.put(new(retry="3 1s", deadline="90s"))
    store.end(store.take(), failed())
    store.wait(600)
    store.end(store.take(), Expired())
    store.retry(number)
    claim = store.take()

    assert (1, store.now) == (claim.failures, claim.started_at)


def test_a_poisoned_job_is_given_three_more_crashes(store: Harness):
    """Jobs that crashed their workers start again with a crash count of zero."""
    number = store.put(new(retry="2 1s"))
    for _ in range(3):
        store.end(store.take(), Lost("gone"))
    store.retry(number)

    assert (0, 0) == (store.job(number).crashes, store.job(number).failures)


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_retrying_a_running_or_succeeded_job_is_refused(store: Harness, state: str):
    """Retrying a running or succeeded job is refused with its state, and changes nothing."""
    claim = store.take(new())
    if state == "succeeded":
        store.end(claim, Succeeded())
    before = store.everything()
    with pytest.raises(IllegalMove, match=f"a {state} job cannot run again"):
        store.retry(claim.id)

    assert before == store.everything()


def test_an_unknown_job_is_not_found(store: Harness):
    """Retrying a missing job raises an error with its id."""
    with pytest.raises(JobNotFound, match="there is no job 404"):
        store.retry(404)


def test_a_caught_job_is_refused(store: Harness):
    """Refuse to retry a job that its catch task has handled."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.end(store.take())
    with pytest.raises(IllegalMove) as refusal:
        store.retry(1)

    assert "job 1 was caught: its catch task has dealt with it" == str(refusal.value)


@pytest.mark.parametrize("runs", [False, True])
def test_a_job_that_is_being_caught_is_refused(store: Harness, runs: bool):
    """Retrying a dead job is refused while its catch job waits or runs, with the step to take first."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    if runs:
        store.take()
    with pytest.raises(IllegalMove) as refusal:
        store.retry(1)

    assert "job 1 is being caught by mend: cancel the catch job first, or let it finish" == str(refusal.value)


def test_a_job_whose_catch_was_cancelled_can_run_again(store: Harness):
    """After its catch job was cancelled, a dead job can be retried."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.cancel(2)
    store.retry(1)

    assert State.READY == store.job(1).state


def test_a_catch_job_can_run_once_more(store: Harness):
    """Ended catch jobs of a job that is still dead can be retried, and catch it."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.cancel(2)
    store.retry(2)
    store.end(store.take())

    assert store.now == store.job(1).caught_at


@pytest.mark.parametrize("fate", ["waits", "succeeded"])
def test_a_catch_job_of_a_job_that_was_started_again_is_refused(store: Harness, fate: str):
    """Retrying a catch job is refused if its parent was started again."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.cancel(2)
    store.retry(1)
    if fate == "succeeded":
        store.end(store.take())
    with pytest.raises(IllegalMove) as refusal:
        store.retry(2)

    assert "job 2 has nothing to catch: job 1 is not dead any more, or was caught" == str(refusal.value)


def test_a_second_catch_job_is_refused_while_the_first_is_unfinished(store: Harness):
    """Of two catch jobs of one parent only one may run: each death is caught once."""
    number = store.put(new(retry="2 1s catch mend"))
    store.end(store.take(), FATAL)
    store.cancel(2)
    store.retry(number)
    store.end(store.take(), FATAL)
    with pytest.raises(IllegalMove) as refusal:
        store.retry(2)

    assert "job 2 has a twin: another catch job of job 1 waits or runs" == str(refusal.value)
