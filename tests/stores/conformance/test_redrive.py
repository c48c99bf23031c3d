"""Redrive: dead jobs are started again by filter, each once, and kept jobs have a reason."""

from __future__ import annotations

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Lost, Succeeded
from redrive.engine.records import Filter, Hold
from redrive.policy import Rule
from redrive.stores.operations import redriving
from redrive.stores.operations.admin import BulkResult
from tests.stores.helpers import FATAL, Harness, failed, new, seconds


def test_a_redriven_job_starts_with_reset_counters(store: Harness):
    """Redriven jobs are due now without failures and crashes; their history and attempt count stay."""
    rules = [Rule("builtins.ValueError", attempts=9)]
    number = store.put(new(retry="5 1s", rules=rules))
    for _ in range(2):
        store.end(store.take(), failed())
        store.wait(100)
    store.end(store.take(), FATAL)
    store.wait(5)

    assert BulkResult((number,)) == store.redrive()
    row = store.job(number)
    assert (State.READY, Hold.REDRIVE, store.now) == (row.state, row.hold, row.scheduled_at)
    assert (3, 0, 0, 1) == (row.attempt, row.failures, row.crashes, row.redrives)
    assert (None, None, "redriven by an operator") == (row.started_at, row.finished_at, row.note)
    assert 3 == len(store.history(number))
    claim = store.take()
    assert ((), None, 4, store.now) == (claim.by_rule, claim.last_delay, claim.attempt, claim.started_at)


def test_a_redriven_job_gets_all_its_attempts_again(store: Harness):
    """Redriven jobs fail as often as new ones before they are dead."""
    number = store.put(new(retry="2 1s"))
    for _ in range(3):
        store.end(store.take(), failed())
        store.wait(100)
    store.redrive()
    ends = []
    for _ in range(3):
        ends.append(store.end(store.take(), failed()).state)
        store.wait(100)

    assert [State.READY, State.READY, State.DEAD] == ends
    assert (1, 6) == (store.job(number).redrives, store.job(number).attempt)


def test_a_cancelled_job_can_be_redriven(store: Harness):
    """Cancelled jobs can be started again by an operator."""
    number = store.put()
    store.cancel(number)

    assert BulkResult((number,)) == store.redrive(Filter(ids=(number,)))


def test_a_poisoned_job_can_be_redriven(store: Harness):
    """After the cause was repaired, a job that crashed its workers can be started again."""
    number = store.put()
    for _ in range(3):
        store.end(store.take(), Lost("gone"))
    store.redrive()

    assert (State.READY, 0) == (store.job(number).state, store.job(number).crashes)


def test_each_kept_job_has_a_reason(store: Harness):
    """Matching jobs that cannot be started again are unchanged and returned with the reason."""
    store.enqueue(new(delay=99), new(), new(), new(retry="2 1s catch mend"), new(retry="2 1s catch mend"))
    running, done, caught, catching = store.claim(4)
    store.end(done, Succeeded())
    store.end(caught, FATAL)
    store.end(store.take())
    store.end(catching, FATAL)
    before = store.everything()

    assert (
        BulkResult(
            (),
            (
                (1, "is ready"),
                (running.id, "is running"),
                (done.id, "is succeeded"),
                (caught.id, "was caught: its catch task has dealt with it"),
                (catching.id, "is being caught by mend: cancel the catch job first, or let it finish"),
                (6, "is succeeded"),
                (7, "is ready"),
            ),
        )
        == store.redrive()
    )
    assert before == store.everything()


def test_a_dry_run_returns_the_same_and_changes_nothing(store: Harness):
    """Dry runs return the same result as the run, kept jobs included, and change nothing."""
    ids = [store.dead() for _ in range(3)]
    store.put(new(delay=99))
    store.dead(new(retry="2 1s catch mend"))
    store.cancel(store.dead(new(retry="2 1s catch mend")) + 1)
    before = store.everything()
    dry = store.redrive(dry_run=True)

    assert before == store.everything()
    assert ids == list(dry.ids[:3])
    assert dry == store.redrive()


def test_a_filter_bounds_what_is_redriven(store: Harness):
    """Only matching jobs are started again."""
    a, b = store.dead(new("a")), store.dead(new("b"))

    assert BulkResult((b,)) == store.redrive(Filter(state=State.DEAD, task="b"))
    assert State.DEAD == store.job(a).state


def test_the_oldest_go_first(store: Harness):
    """Limits select the oldest dead jobs, in the order of their ids."""
    ids = [store.dead() for _ in range(5)]

    assert tuple(ids[:2]) == store.redrive(Filter(state=State.DEAD, limit=2)).ids
    assert tuple(ids[2:4]) == store.redrive(Filter(state=State.DEAD, limit=2)).ids


def test_a_second_redrive_moves_nothing(store: Harness):
    """Redriving a second time starts no job twice."""
    number = store.dead()
    store.redrive()

    assert BulkResult((), ((number, "is ready"),)) == store.redrive()
    assert 1 == store.job(number).redrives


def test_concurrent_redrives_start_a_job_once(store: Harness):
    """Of simultaneous redrives one starts each job again."""
    ids = [store.dead() for _ in range(5)]
    answers = store.at_once([redriving.redrive(Filter(state=State.DEAD), now=store.now) for _ in range(6)])

    assert ids == sorted(number for answer in answers for number in answer.ids)
    assert [1] * 5 == [store.job(number).redrives for number in ids]


# ---------------------------------------------------------------------------------------------------- families


def test_only_one_of_a_job_and_its_catch_job_is_redriven(store: Harness):
    """If a dead job and its ended catch job both match, only the dead job runs again."""
    parent = store.dead(new(retry="2 1s catch mend"))
    child = parent + 1
    store.cancel(child)

    assert BulkResult((parent,), ((child, f"has nothing to catch while job {parent} starts again"),)) == store.redrive()
    assert [State.READY, State.CANCELLED] == [job.state for job in store.jobs()]


def test_only_one_of_two_catch_jobs_is_redriven(store: Harness):
    """Two ended catch jobs of one dead job are not both started again: each death is caught once."""
    parent = store.dead(new(retry="2 1s catch mend"))
    store.cancel(2)
    store.retry(parent)
    store.end(store.take(), FATAL)
    store.cancel(3)

    assert (2,) == store.redrive(Filter(ids=(2, 3))).ids
    assert [State.DEAD, State.READY, State.CANCELLED] == [job.state for job in store.jobs()]


def test_a_catch_job_is_redriven_while_its_parent_is_dead(store: Harness):
    """Ended catch jobs of a dead, uncaught job can be started again, and catch it."""
    parent = store.dead(new(retry="2 1s catch mend"))
    store.cancel(2)

    assert BulkResult((2,)) == store.redrive(Filter(task="mend"))
    store.end(store.take())
    assert store.now == store.job(parent).caught_at


def test_a_catch_job_is_kept_when_its_parent_lives_again(store: Harness):
    """Catch jobs are kept if their parent was started again, since they would block its next one."""
    parent = store.dead(new(retry="0 catch mend"))
    store.cancel(2)
    store.redrive(Filter(ids=(parent,)))
    kept = BulkResult((), ((2, f"has nothing to catch: job {parent} is not dead any more, or was caught"),))

    assert kept == store.redrive(Filter(ids=(2,)))
    assert kept == store.redrive(Filter(ids=(2,)), dry_run=True)
    store.end(store.take(), failed())
    assert [State.DEAD, State.CANCELLED, State.READY] == [job.state for job in store.jobs()]


def test_a_catch_job_is_kept_when_its_parent_was_caught(store: Harness):
    """Catch jobs are kept if another one has caught their parent."""
    parent = store.dead(new(retry="2 1s catch mend"))
    store.cancel(2)
    store.retry(parent)
    store.end(store.take(), FATAL)
    store.end(store.take())

    assert BulkResult((), ((2, f"has nothing to catch: job {parent} is not dead any more, or was caught"),)) == (
        store.redrive(Filter(ids=(2,)))
    )


def test_a_catch_job_is_kept_while_another_one_is_unfinished(store: Harness):
    """Catch jobs are kept while another one of the same parent waits or runs."""
    parent = store.dead(new(retry="2 1s catch mend"))
    store.cancel(2)
    store.retry(parent)
    store.end(store.take(), FATAL)
    store.wait(1)

    kept = store.redrive(Filter(ids=(2,))).kept
    assert ((2, f"has a twin: another catch job of job {parent} waits or runs"),) == kept
    assert seconds(0) == store.claimed(1).rest_for
