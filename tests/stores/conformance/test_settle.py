"""Settle: the end of an attempt is written completely, once, and only by its current lease."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Outcome, Released, Snoozed, Succeeded, Unreadable
from redrive.engine.records import AttemptOutcome, AttemptRecord, Filter, Hold
from redrive.policy import Rule
from redrive.stores.operations import admin, leases
from redrive.stores.operations.leases import Settled
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds

OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded(),
    "result": Succeeded(b'{"a":1}'),
    "hinted": failed("boom", hint=seconds(77)),
    "failure": Failed(failed().failure, "Traceback ..."),
    "fatal": FATAL,
    "snooze": Snoozed(seconds(30), "the bank is closed"),
    "release": Released("shutdown"),
    "unknown": Released("unknown task", seconds(15), Hold.UNKNOWN_TASK),
    "unreadable": Unreadable("no field 'amount'"),
    "cancel": Cancelled("no longer wanted"),
    "expired": Expired(),
    "lost": Lost("worker vanished"),
}


def outcomes(*names: str) -> pytest.MarkDecorator:
    """Run a test for these outcomes, or for all."""
    chosen = names or tuple(OUTCOMES)
    return pytest.mark.parametrize("outcome", [OUTCOMES[name] for name in chosen], ids=chosen)


# ---------------------------------------------------------------------------------------------------- written


@outcomes()
def test_a_transition_is_written_as_it_was_decided(store: Harness, outcome: Outcome):
    """Job row and history line contain each field of the engine's decision."""
    claim = store.take(new(retry="5 1s"))
    store.wait(3)
    moved = store.end(claim, outcome)
    row = store.job(claim.id)

    assert (moved.state, moved.hold, moved.note) == (row.state, row.hold, row.note)
    assert (moved.attempt, moved.failures, moved.crashes, moved.snoozes) == (
        row.attempt, row.failures, row.crashes, row.snoozes,
    )  # fmt: skip
    assert (moved.reason, moved.error) == (row.reason, row.error)
    assert (None, None) == (row.lease_id, row.worker_id)
    assert (store.now if moved.state in FINAL else None) == row.finished_at
    assert (moved.scheduled_at or T0) == row.scheduled_at
    assert (() if moved.closed is None else (moved.closed,)) == store.history(claim.id)
    assert moved.result == store.result(claim.id)


@outcomes()
def test_the_next_claim_has_the_counters_of_the_last_transition(store: Harness, outcome: Outcome):
    """Next claims contain the counters that the last transition wrote."""
    claim = store.take(new(retry="5 1s"))
    moved = store.end(claim, outcome)
    store.wait(1000)
    claims = store.claim()

    if moved.state is State.READY:
        (again,) = claims
        assert (moved.attempt + 1, moved.failures, moved.crashes, moved.snoozes) == (
            again.attempt, again.failures, again.crashes, again.snoozes,
        )  # fmt: skip
        assert (moved.by_rule, moved.last_delay) == (again.by_rule, again.last_delay)
        assert moved.unreadable_at == again.unreadable_at
    else:
        assert () == claims


@pytest.mark.parametrize("retry", ["5 1s", "0 catch mend"], ids=["job", "catch job"])
def test_a_success_clears_the_failure(store: Harness, retry: str):
    """Succeeded jobs have no reason and no error, so that a search for the reason skips them."""
    store.end(store.take(new(retry=retry)), failed("boom", reason="TIMEOUT"))
    store.wait(1)
    claim = store.take()
    store.end(claim, failed("boom", reason="TIMEOUT"))
    store.wait(1000)
    store.end(store.take())

    assert (State.SUCCEEDED, None, None) == tuple(
        getattr(store.job(claim.id), name) for name in ("state", "reason", "error")
    )
    assert () == store.do(admin.select(Filter(reason="TIMEOUT", state=State.SUCCEEDED)))


@outcomes("snooze", "release", "cancel")
def test_later_transitions_keep_the_last_failure(store: Harness, outcome: Outcome):
    """Later transitions keep the reason of the last failed attempt, except a success."""
    store.end(store.take(new(retry="5 1s")), failed("boom", reason="TIMEOUT"))
    store.wait(1)
    claim = store.take()
    store.end(claim, outcome)

    assert ("TIMEOUT", "boom") == (store.job(claim.id).reason, store.job(claim.id).error)


def test_a_release_keeps_the_delay_of_the_retry_it_gave_back(store: Harness):
    """Released attempts do not change the backoff."""
    store.end(store.take(new(retry="5 1s")), failed())
    store.wait(1)
    store.end(store.take(), Released("shutdown"))

    assert (seconds(1), 1, 2) == ((again := store.take()).last_delay, again.failures, again.attempt)


def test_ten_retries_from_5_s_to_60_s(store: Harness):
    """Backoff delays are 5, 10, 20, 40 and then 60 s from each failure, and no retry is claimable early."""
    expected = [5, 10, 20, 40, *[60] * 6]
    store.put(new(retry="10 5s 1m"))
    for delay in expected:
        claim = store.take()
        store.wait(0.25)
        store.end(claim, failed())
        store.now += seconds(delay) - timedelta(milliseconds=1)
        assert () == store.claim()
        store.now += timedelta(milliseconds=1)
    store.end(store.take(), failed())
    history = store.history(claim.id)

    assert [*map(seconds, expected), None] == [attempt.delay for attempt in history]
    assert list(range(1, 12)) == [attempt.number for attempt in history]
    assert State.DEAD == store.job(claim.id).state


def test_a_hint_beats_the_backoff_and_both_are_kept(store: Harness):
    """Retry times that the error gives are stored beside the computed ones, with their reason."""
    claim = store.take(new(retry="3 5s"))
    store.end(claim, failed(hint=timedelta(minutes=15)))
    (attempt,) = store.history(claim.id)

    assert T0 + timedelta(minutes=15) == store.job(claim.id).scheduled_at
    assert (timedelta(minutes=15), seconds(5), "hint") == (attempt.delay, attempt.nominal, attempt.rule)


def test_failures_are_counted_by_rule_across_attempts(store: Harness):
    """Failure counts of each rule are stored in the row, and end the job at the rule's limit."""
    rules = [Rule("builtins.OSError", attempts=9), Rule("builtins.ValueError", attempts=3)]
    claim = store.take(new(retry="9 1s", rules=rules))
    counts = []
    while store.end(claim, failed()).state is State.READY:
        store.wait(600)
        claim = store.take()
        counts.append(claim.by_rule)

    assert [(0, 1), (0, 2)] == counts
    assert "rule 2 (ValueError)" == store.history(claim.id)[-1].rule


def test_text_of_any_kind_is_kept(store: Harness):
    """Errors and tracebacks with quotes, newlines and any Unicode characters are stored unchanged."""
    text = "naïve 'quote' \"double\"\n\tline 2 \N{SNOWMAN} %s ?1 :name"
    claim = store.take(new())
    store.end(claim, Failed(failed(text).failure, text * 1000))
    (attempt,) = store.history(claim.id)

    assert (text, text * 1000, text) == (attempt.error, attempt.traceback, store.job(claim.id).error)


# ---------------------------------------------------------------------------------------------------- batches


def test_a_batch_of_every_kind_is_written(store: Harness):
    """Endings of every kind in one batch have the same effect as separate ones."""
    store.enqueue(*[new(retry="5 1s") for _ in OUTCOMES])
    claims = store.claim(len(OUTCOMES))
    settled = store.settle(*zip(claims, OUTCOMES.values(), strict=True))
    moved = {each.job_id: each for each in settled.moved}

    assert frozenset() == settled.lost
    assert len(OUTCOMES) == len(settled.moved)
    for claim, outcome in zip(claims, OUTCOMES.values(), strict=True):
        row = store.job(claim.id)
        assert (moved[claim.id].state, moved[claim.id].note) == (row.state, row.note)
        assert (outcome.result if isinstance(outcome, Succeeded) else None) == store.result(claim.id)


def test_an_empty_batch_changes_nothing(store: Harness):
    """Settling an empty batch returns an empty result."""
    store.put()
    before = store.everything()

    assert Settled((), frozenset()) == store.settle()
    assert before == store.everything()


def test_one_stale_outcome_delays_no_other(store: Harness):
    """In a batch, the ending of a lost lease is reported and changes nothing; the others are settled."""
    store.enqueue(*[new(retry="5 1s") for _ in range(5)])
    claims = store.claim(5)
    store.cancel(claims[1].id)
    store.cancel(claims[3].id)
    before = store.everything()
    endings = [Succeeded(b"1"), Succeeded(b"2"), failed(), failed(), Succeeded()]
    settled = store.settle(*zip(claims, endings, strict=True))
    after = store.everything()

    assert {claims[1].lease_id, claims[3].lease_id} == settled.lost
    assert {claims[0].id, claims[2].id, claims[4].id} == {each.job_id for each in settled.moved}
    for claim in (claims[1], claims[3]):
        assert before[claim.id] == after[claim.id]
    assert ["succeeded", "ready", "succeeded"] == [store.job(claims[n].id).state for n in (0, 2, 4)]


# ------------------------------------------------------------------------------------------------------- leases


def _released(store: Harness, claim) -> None:
    store.end(claim, Released("shutdown"))


def _cancelled(store: Harness, claim) -> None:
    store.cancel(claim.id)


def _swept(store: Harness, claim) -> None:
    store.wait(10**9)
    store.sweep()


def _taken_over(store: Harness, claim) -> None:
    _swept(store, claim)
    store.take(worker=store.worker("other:1"))


def _finished_by_another(store: Harness, claim) -> None:
    _swept(store, claim)
    store.end(store.take(worker=store.worker("other:1")), Succeeded(b'"new"'))


def _snoozed_and_taken_again(store: Harness, claim) -> None:
    store.end(claim, Snoozed(seconds(1800)))
    store.wait(1800)
    store.take()


BEFORE = [_released, _cancelled, _swept, _taken_over, _finished_by_another, _snoozed_and_taken_again]


@pytest.mark.parametrize("happened", BEFORE, ids=lambda each: each.__name__.strip("_"))
@outcomes("success", "result", "failure", "fatal", "release", "expired")
def test_a_stale_outcome_changes_nothing(store: Harness, happened, outcome: Outcome):
    """Endings under a lost lease, however it was lost, change no state, result, history or catch."""
    claim = store.take(new(retry="5 1s catch mend"))
    happened(store, claim)
    before = store.everything()

    settled = store.settle((claim, outcome))

    assert ((), {claim.lease_id}) == (settled.moved, settled.lost)
    assert (happened is _cancelled) == (claim.lease_id in settled.cancelled)
    assert before == store.everything()


@outcomes("success", "result", "hinted", "failure", "fatal", "snooze", "cancel", "lost")
def test_a_repeated_settle_of_the_same_outcome_is_not_lost(store: Harness, outcome: Outcome):
    """Settling the same ending again after a lost reply changes nothing and is not reported as lost."""
    claim = store.take(new(retry="5 1s catch mend"))
    first = store.settle((claim, outcome))
    before = store.everything()

    assert Settled(first.moved, frozenset()) == store.settle((claim, outcome))
    assert before == store.everything()


@outcomes("release", "unknown", "expired")
def test_a_repeated_settle_of_a_release_changes_nothing(store: Harness, outcome: Outcome):
    """Endings without an execution leave no line: settled again, they are lost and change nothing."""
    claim = store.take(new(retry="5 1s catch mend"))
    store.settle((claim, outcome))
    before = store.everything()

    assert Settled((), frozenset({claim.lease_id})) == store.settle((claim, outcome))
    assert before == store.everything()


def test_a_repeated_settle_is_recognized_after_the_next_claim(store: Harness):
    """Settling again after the retry was claimed is recognised and does not affect the new attempt."""
    claim = store.take(new(retry="5 1s"))
    store.end(claim, failed())
    store.wait(1)
    again = store.take()
    settled = store.settle((claim, failed()))

    assert frozenset() == settled.lost
    assert again.lease_id == store.job(claim.id).lease_id
    assert 1 == len(store.history(claim.id))


def test_another_outcome_under_a_settled_lease_is_lost(store: Harness):
    """Leases that were settled as failed cannot be settled as succeeded."""
    claim = store.take(new(retry="5 1s"))
    store.end(claim, failed())
    before = store.everything()

    assert Settled((), frozenset({claim.lease_id})) == store.settle((claim, Succeeded(b"1")))
    assert before == store.everything()


def test_one_of_concurrent_outcomes_is_written(store: Harness):
    """Of simultaneous successes and failures of one attempt, one is written, once."""
    for _ in range(20):
        claim = store.take(new(retry="5 1s"))
        rivals = [Succeeded(b"1"), failed(), Succeeded(b"1"), failed()]
        settled = store.at_once([leases.settle([leases.Ending(claim, each, 0.0)], now=store.now) for each in rivals])
        (line,) = store.history(claim.id)
        won = line.outcome is AttemptOutcome.SUCCEEDED

        assert [won, not won, won, not won] == [bool(each.moved) for each in settled]
        store.cancel(claim.id)


# ---------------------------------------------------------------------------------------------------- catch


def test_the_catch_job_is_written_with_the_death(store: Harness):
    """Final failures create the catch job at once, on its queue, with its policy."""
    parent = store.take(new("send", retry="2 1s catch mend", queue="mail", priority=4))
    store.wait(3)
    store.end(parent, FATAL)
    dead, child = store.jobs()

    assert (State.DEAD, None) == (dead.state, dead.caught_at)
    assert ("mend", "mail", 4, State.READY, parent.id) == (
        child.task, child.queue, child.priority, child.state, child.parent_id,
    )  # fmt: skip
    assert (store.now, store.now, None) == (child.enqueued_at, child.scheduled_at, child.hold)
    assert dead.policy == child.policy
    assert None is store.take().payload


def test_a_caught_job_has_the_time_of_its_catch(store: Harness):
    """After its catch job has succeeded, a dead job is stamped as caught and stays dead."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.wait(5)
    store.end(store.take())
    parent, child = store.jobs()

    assert (State.DEAD, store.now) == (parent.state, parent.caught_at)
    assert (State.SUCCEEDED, None) == (child.state, child.caught_at)


def test_a_failing_catch_is_tried_until_it_succeeds(store: Harness):
    """Failing catch jobs are retried without limit: at the parent's last delay, and more slowly from the sixth on."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    waits = [seconds(wait) for wait in (4, 4, 4, 4, 4, 8, 16, 32, 64)]
    for wait in waits:
        store.end(store.take(), failed())
        assert None is store.job(1).caught_at
        store.now += wait - timedelta(milliseconds=1)
        assert () == store.claim()
        store.now += timedelta(milliseconds=1)
    store.end(store.take())

    assert store.now == store.job(1).caught_at
    assert [*waits, None] == [attempt.delay for attempt in store.history(2)]


def test_a_dead_catch_job_is_not_caught(store: Harness):
    """Dead catch jobs create no further catch job, and their parent stays uncaught."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.end(store.take(), failed(reason="BAD_PAYLOAD", permanent="no such parameter"))

    assert [State.DEAD, State.DEAD] == [job.state for job in store.jobs()]
    assert None is store.job(1).caught_at


def test_a_catch_job_survives_crashes_and_is_shown_as_stuck(store: Harness):
    """Catch jobs that crash workers stay ready with growing delays, and are marked as stuck from the fifth."""
    store.end(store.take(new(retry="1 1s catch mend")), FATAL)
    waits = []
    for _ in range(5):
        moved = store.end(store.take(), Lost("gone"))
        waits.append(moved.scheduled_at - store.now)
        store.wait(waits[-1].total_seconds())

    assert [seconds(n) for n in (0, 0, 2, 4, 8)] == waits
    assert (State.READY, 5, 5) == (store.job(2).state, store.job(2).failures, store.job(2).crashes)
    assert "catch again in 8s after crash 5; stuck: 5 failures" == store.job(2).note


def test_attempts_interrupted_by_a_shutdown_are_recorded(store: Harness):
    """Jobs that a shutdown interrupts get a history line; those that may not be repeated are dead."""
    again, once = store.enqueue(new(retry="1 1s catch mend"), new(retry="1 1s catch mend", idempotent=False))
    for claim in store.claim(2):
        store.end(claim, Released("worker 1 shut down", started=True))

    assert (State.READY, 0, 0) == (store.job(again).state, store.job(again).attempt, store.job(again).failures)
    assert (State.DEAD, "LOST_IN_FLIGHT") == (store.job(once).state, store.job(once).reason)
    assert [("released", None), ("lost", "LOST_IN_FLIGHT")] == [
        (each.outcome, each.reason) for number in (again, once) for each in store.history(number)
    ]
    assert ["mend"] == [job.task for job in store.jobs() if job.parent_id == once]


def test_an_expired_job_is_caught(store: Harness):
    """Jobs that expire before their start create their catch job too."""
    store.end(store.take(new(retry="2 1s catch mend", deadline="90s")), Expired())

    assert ["send", "mend"] == [job.task for job in store.jobs()]
    assert () == store.history(1)


def test_a_success_leaves_no_catch_job(store: Harness):
    """Succeeded jobs create no catch job."""
    store.end(store.take(new(retry="2 1s catch mend")))

    assert 1 == len(store.jobs())


def test_a_job_with_unreadable_arguments_dies_in_time(store: Harness):
    """Jobs with unreadable arguments wait a quarter of an hour, spend nothing, and are then dead."""
    claim = store.take(new(retry="2 1s catch mend"))
    ends = store.now + seconds(900)
    while True:
        moved = store.end(claim, Unreadable("no field 'amount'"))
        if moved.state is not State.READY:
            break
        store.wait((store.job(claim.id).scheduled_at - store.now).total_seconds())
        claim = store.take()

    assert (ends, State.DEAD, "BAD_PAYLOAD") == (store.now, moved.state, store.job(claim.id).reason)
    assert ["send", "mend"] == [job.task for job in store.jobs()]
    assert 1 == len(store.history(claim.id))


@pytest.mark.parametrize("end", ["redriven", "given back"])
def test_a_redriven_job_waits_for_other_code_from_the_beginning(store: Harness, end: str):
    """Redriven jobs with unreadable arguments get the full time again; released ones keep the remainder."""
    worker = store.worker()
    first = store.take(new(), worker=worker)
    store.end(first, Unreadable("no field 'amount'"))
    store.wait(60)
    if end == "redriven":
        store.cancel(first.id)
        store.redrive(Filter(state=State.CANCELLED))
    else:
        store.take(worker=worker)
        store.leave(worker)

    assert (None if end == "redriven" else T0) == store.take().unreadable_at


def test_a_history_line_names_its_attempt(store: Harness):
    """History lines of a success contain the lease, the number, the worker and the two instants."""
    claim = store.take(new())
    store.wait(2)
    store.end(claim, Succeeded(b"1"))
    expected = AttemptRecord(claim.id, claim.lease_id, 1, store.me, T0, T0 + seconds(2), AttemptOutcome.SUCCEEDED)

    assert (expected,) == store.history(claim.id)


def test_a_job_that_waits_is_held_for_its_reason(store: Harness):
    """Jobs that wait after an attempt have its reason as their hold."""
    holds = []
    for outcome in (failed(), Snoozed(seconds(1)), Released("x"), Released("x", hold=Hold.UNKNOWN_TASK), Lost("x")):
        claim = store.take(new(retry="5 1s"))
        store.end(claim, outcome)
        holds.append(store.job(claim.id).hold)
        store.cancel(claim.id)

    assert [Hold.RETRY, Hold.SNOOZE, Hold.RELEASE, Hold.UNKNOWN_TASK, Hold.LOST] == holds
