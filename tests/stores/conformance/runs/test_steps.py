"""Recording steps: one row each, only under the current lease, with the answers written, later and lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Held, Parked, Restarted
from redrive.engine.records import Hold
from redrive.engine.runs import FAR, RunFlags, StepKind, StepOutcome, StepRecord
from redrive.engine.steps import NewStep, StepBatch, StepsAnswer
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.runs.steps import record as write
from tests.stores.helpers import T0, Harness, failed, seconds
from tests.stores.runs import (
    ERROR,
    begin,
    begun,
    claimed,
    forget,
    gap,
    park,
    record,
    rows,
    run,
    signal,
    sleep,
    step,
    timeline,
    tried,
    view,
    wait,
)


def test_a_step_is_recorded_as_it_ended(store: Harness):
    """Rows have all that a worker gives, the lease of the run, and the time of the transaction."""
    claim = begun(store)
    store.wait(3)
    end = NewStep(
        "4.0.2", StepKind.STEP, "charge", took=seconds(1.5), tries=2, digest=-(2**63), result=b'{"a":1}', ref=None
    )
    answer = record(store, claim, end)
    expected = StepRecord(
        claim.id, "4.0.2", StepKind.STEP, "charge", StepOutcome.OK, claim.lease_id, store.now, seconds(1.5), 2,
        digest=-(2**63), result=b'{"a":1}',
    )  # fmt: skip

    assert (StepsAnswer.WRITTEN, (expected,)) == (answer.answer, answer.steps)
    assert {"4.0.2": expected} == rows(store)


def test_a_row_may_have_an_instant_of_its_own(store: Harness):
    """Rows of which the body has seen the instant keep it, whenever they are written."""
    claim = begun(store)
    store.wait(3)
    answer = record(store, claim, step(at=T0 + seconds(1)), step("2"))

    assert [T0 + seconds(1), store.now] == [row.at for row in answer.steps]
    assert answer.steps == tuple(rows(store).values())


def test_a_claim_answers_the_recorded_steps(store: Harness):
    """Claims of a run that was parked answer its steps, each run its own."""
    begin(store, run("a"), run("b"))
    for _ in range(2):
        claim, state = claimed(store)
        park(store, claim, step(name=state.run.id), sleep("2"))
    store.wait(60)
    found = store.claimed(2)

    assert {"a": {"1": "a", "2": "60 s"}, "b": {"1": "b", "2": "60 s"}} == {
        each.run.id: {row.path: row.name for row in each.steps} for each in found.runs.values()
    }


def test_several_runs_are_written_together(store: Harness):
    """Steps of several runs are one transaction, and each batch has its answer."""
    begin(store, run("a"), run("b"))
    first, second = store.claim(2)
    batches = [StepBatch(each.id, each.lease_id, (step(), step("2"))) for each in (first, second)]
    written = store.do(write(batches, now=store.now))

    assert ["written", "written"] == [each.answer for each in written]
    assert [{"1", "2"}, {"1", "2"}] == [set(rows(store, each)) for each in ("a", "b")]


@pytest.mark.case("W4")
def test_a_lost_lease_records_nothing(store: Harness):
    """Workers that lost their run before its next holder wrote a step write nothing, and their answer is LOST."""
    begin(store)
    slow, fast = store.worker(), store.worker("host:2")
    stale, _ = claimed(store, worker=slow)
    store.wait(16)
    store.beat(fast)
    store.sweep()
    current, _ = claimed(store, worker=fast)
    late = record(store, stale, step(result=b"1"))
    mine = record(store, current, step(result=b"2"))

    assert (StepsAnswer.LOST, StepsAnswer.WRITTEN) == (late.answer, mine.answer)
    assert (current.lease_id, b"2") == (rows(store)["1"].lease_id, rows(store)["1"].result)
    assert StepsAnswer.LOST == record(store, stale, step("2")).answer
    assert StepsAnswer.LOST == record(store, stale).answer
    assert ["1"] == list(rows(store))


@pytest.mark.case("W3")
def test_a_row_with_a_lost_reply_is_recorded(store: Harness):
    """Steps that are written again under their lease answer the row of the first time."""
    claim = begun(store)
    first = record(store, claim, step())
    store.wait(5)
    again = record(store, claim, step())

    assert (StepsAnswer.WRITTEN, first.steps) == (again.answer, again.steps)
    assert T0 == rows(store)["1"].at


def test_a_failed_try_is_written_again_as_it_was(store: Harness):
    """Failed tries that are written again keep the due time of the first time."""
    claim = begun(store)
    first = record(store, claim, tried())
    store.wait(0.5)

    assert [first.steps[0].due_at] == [row.due_at for row in record(store, claim, tried()).steps]


def test_a_final_row_is_not_written_again(store: Harness):
    """Steps that have ended keep their rows; another worker cannot write them."""
    claim = begun(store)
    park(store, claim, step(result=b"1"), sleep("2"))
    store.wait(60)
    again, _ = claimed(store)
    answer = record(store, again, step(result=b"2"))

    assert (StepsAnswer.LOST, b"1") == (answer.answer, rows(store)["1"].result)


def test_a_waiting_step_is_written_by_its_next_try(store: Harness):
    """Rows of steps that wait are replaced by the next try, with the tries that failed."""
    claim = begun(store)
    first = record(store, claim, tried()).steps[0]
    second = record(store, claim, tried(tries=2, last=first)).steps[0]
    done = record(store, claim, step(tries=3, history=second.history)).steps[0]

    assert (StepOutcome.WAITING, T0 + seconds(1), T0 + seconds(2)) == (first.outcome, first.due_at, second.due_at)
    assert (StepOutcome.OK, 3, None, None) == (done.outcome, done.tries, done.due_at, done.error)
    assert [ERROR, ERROR] == [each.error for each in rows(store)["1"].history.tries]


def test_an_older_try_does_not_replace_a_later_one(store: Harness):
    """Tries with a smaller number do not replace a later one."""
    claim = begun(store)
    first = record(store, claim, tried()).steps[0]
    second = record(store, claim, tried(tries=2, last=first)).steps[0]
    record(store, claim, tried())

    assert second == rows(store)["1"]


# ------------------------------------------------------------------------------------------------------------- parking


def test_a_failed_step_and_the_parking_of_its_run_are_one_transaction(store: Harness):
    """Runs are parked until their failed step is due, without an attempt, and the row has the error."""
    claim = begun(store)
    park(store, claim, tried(), why="charge is tried again")
    job = view(store).job

    assert (State.READY, Hold.PARKED, T0 + seconds(1), 0, 0) == (
        job.state, job.hold, job.scheduled_at, job.attempt, job.failures
    )  # fmt: skip
    assert (StepOutcome.WAITING, job.scheduled_at) == (rows(store)["1"].outcome, rows(store)["1"].due_at)
    assert () == store.claim()
    store.wait(1)
    _, state = claimed(store)
    assert ["1"] == [row.path for row in state.steps]


def test_a_run_that_waits_without_a_limit_is_not_due(store: Harness):
    """Runs that wait for a signal without a timeout have a far due time."""
    park(store, begun(store), wait())
    store.wait(10**9)

    assert (FAR, ()) == (view(store).job.scheduled_at, store.claim())


def test_a_sleep_is_over_at_its_time(store: Harness):
    """Sleeping runs are due at the end of their sleep, measured from the transaction that wrote it."""
    claim = begun(store)
    store.wait(7)
    park(store, claim, sleep(count=3600))

    assert T0 + seconds(3607) == view(store).job.scheduled_at == rows(store)["1"].due_at


def test_a_park_without_a_lease_writes_nothing(store: Harness):
    """Workers that lost their run neither park it nor write its rows."""
    claim = begun(store)
    assert [True, True] == [store.cancel(claim.id), store.cancel(claim.id)]
    settled = store.settle((claim, Parked(None, "waits", (step(),))))

    assert ((), {claim.lease_id}) == (settled.moved, settled.lost)
    assert {} == rows(store)


def test_values_of_a_run_are_written_with_its_steps(store: Harness):
    """Values are readable as soon as a step, a park, or they alone were written."""
    claim = begun(store)
    record(store, claim, step(), values=b'{"state":"charged"}')
    first = view(store).run.values
    record(store, claim, values=b'{"state":"waits"}')
    second = view(store).run.values
    park(store, claim, sleep("2"), values=b'{"state":"sleeps"}')

    assert [b'{"state":"charged"}', b'{"state":"waits"}', b'{"state":"sleeps"}'] == [
        first, second, view(store).run.values
    ]  # fmt: skip


def test_a_run_that_begins_again_has_no_steps(store: Harness):
    """Runs that begin again have their new arguments, no steps, their unread signals, and one more epoch."""
    claim = begun(store)
    signal(store, payload=b"1")
    second = signal(store, payload=b"2")
    first = timeline(store).signals[0].id
    record(store, claim, replace(wait(), outcome=StepOutcome.OK, result=b"1", ref=first), step("2"))
    third = signal(store, payload=b"3")
    received = replace(wait("3"), outcome=StepOutcome.OK, result=b"2", ref=second)
    store.end(claim, Restarted(b'{"n":2}', b'{"n":2}', (received,)))
    again, state = claimed(store)

    assert (b'{"n":2}', (), 1, b'{"n":2}') == (again.payload, state.steps, state.run.epoch, state.run.values)
    assert [third] == [each.id for each in state.signals]
    assert 1 == again.attempt


def test_a_held_run_waits_for_other_code(store: Harness):
    """Held runs show why, are looked at again later, and at once when a worker with their workflow starts."""
    claim = begun(store)
    store.end(claim, Held("step 3 was book_out, the code now asks for send_mail"))
    run_, job = view(store).run, view(store).job

    assert (Hold.HELD, "step 3 was book_out, the code now asks for send_mail", T0) == (
        job.hold, run_.held, run_.held_at
    )  # fmt: skip
    assert () == store.claim()
    assert 0 == store.do(manage.look_again(["return"], now=store.now))
    assert 1 == store.do(manage.look_again(["checkout"], now=store.now))
    again, state = claimed(store)
    assert (1, None) == (again.attempt, state.run.held)


def test_a_failed_run_keeps_its_steps(store: Harness):
    """Runs keep their steps for the next attempt after their body has failed."""
    claim = begun(store)
    record(store, claim, step())
    store.end(claim, failed())
    store.wait(10)

    assert ["1"] == [row.path for row in claimed(store)[1].steps]


@pytest.mark.parametrize("ended", ["pruned", "deleted"])
def test_the_rows_of_a_run_go_with_its_job(store: Harness, ended: str):
    """Deleted runs leave no step and no signal, and their ids can be used again."""
    claim = begun(store)
    signal(store)
    record(store, claim, step())
    store.end(claim)
    delete(store, claim.id, ended)

    (again,) = begin(store, run(digest=8))
    assert again.created
    assert ((), ()) == (timeline(store).steps, timeline(store).signals)


def delete(store: Harness, number: int, how: str) -> None:
    """Delete an ended job."""
    from redrive.engine.records import Filter
    from redrive.stores.operations import deleting, retention
    from redrive.stores.operations.retention import RetentionTimes

    if how == "deleted":
        store.do(deleting.delete(Filter(ids=(number,)), now=store.now))
    else:
        day = timedelta(days=1)
        store.wait(2 * 86400)
        store.do(retention.prune(store.do(retention.survey(0, RetentionTimes(day, day), now=store.now))))


def test_the_flags_of_a_run_ride_back_with_its_steps(store: Harness):
    """Requests to cancel or pause a run are in the answer to its next steps, and to an empty batch."""
    claim = begun(store)
    before = record(store, claim, step("1")).flags
    store.do(manage.pause("checkout", "order-42", now=store.now))
    paused = record(store, claim, step("2")).flags
    store.do(manage.cancel("checkout", "order-42", why="enough", now=store.now))

    assert [RunFlags(), RunFlags(None, paused=True)] == [before, paused]
    assert RunFlags("enough") == record(store, claim).flags == record(store, claim, step("3")).flags


def test_a_row_requires_the_row_before_it(store: Harness):
    """Write no row behind one that the writer has seen recorded and the database has lost."""
    claim = begun(store)
    first = record(store, claim, step()).steps[0]
    mark = first.path, first.at
    second = record(store, claim, step("2"), before=mark)
    store.do(forget(claim))
    third = record(store, claim, step("3"), step("4"), before=mark)

    assert (StepsAnswer.WRITTEN, gap(store, StepsAnswer.WRITTEN)) == (second.answer, third.answer)
    assert ([] if third.answer is StepsAnswer.GAP else ["3", "4"]) == list(rows(store))


def test_a_row_requires_the_end_of_the_row_before_it(store: Harness):
    """Write no row behind one that is stored as it was before the writer has seen it end."""
    claim = begun(store)
    first = record(store, claim, tried()).steps[0]
    second = record(store, claim, step("2"), before=(first.path, first.at))
    third = record(store, claim, step("3"), before=(first.path, first.at + seconds(1)))

    assert (StepsAnswer.WRITTEN, gap(store, StepsAnswer.WRITTEN)) == (second.answer, third.answer)


def test_a_run_with_a_lost_row_does_not_park(store: Harness):
    """Keep the lease of a run whose rows are refused, so that its worker gives it back."""
    claim = begun(store)
    first = record(store, claim, step()).steps[0]
    store.do(forget(claim))
    store.settle((claim, Parked(None, "waits", (sleep("2"),), before=(first.path, first.at))))
    is_refused = gap(store, StepsAnswer.WRITTEN) is StepsAnswer.GAP

    assert (State.RUNNING if is_refused else State.READY, not is_refused) == (view(store).job.state, bool(rows(store)))


def test_a_run_whose_recorded_wait_is_lost_is_due_at_once(store: Harness):
    """Replay a run that parks for a wait whose row was recorded before, if nothing would end the wait any more."""
    begin(store, run("kept"), run("lost"))
    kept, lost = store.claim(2)
    for each in (kept, lost):
        record(store, each, wait())
    store.do(forget(lost))
    store.settle(*((each, Parked(None, "waits", (wait("2"),), waits=("1", "2"))) for each in (kept, lost)))

    assert [lost.id] == [each.id for each in store.claim(2)]


DROPPED = StepOutcome.DROPPED


def test_a_step_that_was_cut_off_replaces_its_row(store: Harness):
    """The effect of a step that had ended stays: its result, or null, and its place in the order goes."""
    claim = begun(store)
    for path, result in (("@00000001.1", b"3"), ("@00000001.2", None)):
        record(store, claim, step(path, result=result, seq=7))
        record(store, claim, step(path, outcome=DROPPED, result=None, took=seconds(2)))

    found = rows(store)
    assert [(DROPPED, b"3", None), (DROPPED, b"null", None)] == [
        (row.outcome, row.result, row.seq) for row in found.values()
    ]
    assert all(row.has_effect for row in found.values())


def test_a_call_that_was_cut_off_has_no_effect_unless_it_had_ended(store: Harness):
    """A wait and a step that was to be tried again keep their tries, and no later row replaces that of the drop."""
    claim = begun(store)
    record(store, claim, tried("@00000001.1"), wait("@00000002.1"))
    cut = step("@00000001.1", outcome=DROPPED, result=None)
    record(store, claim, cut, replace(wait("@00000002.1"), outcome=DROPPED), replace(cut, path="@00000003.1"))
    late = record(store, claim, step("@00000001.1", result=b"1"))

    found = rows(store)
    assert StepsAnswer.WRITTEN == late.answer
    assert {DROPPED} == {row.outcome for row in found.values()}
    assert not any(row.has_effect for row in found.values())
    assert found["@00000001.1"].history is not None


def test_ends_have_numbers(store: Harness):
    """A row is written with its place in the order of the ends, and a sleep beside named calls waits for it."""
    claim = begun(store)
    due = store.now + seconds(60)
    slept = replace(sleep("@00000002.1"), due_at=due, delay=None)
    record(store, claim, step("@00000001.1", seq=1), replace(slept, outcome=StepOutcome.WAITING))
    record(store, claim, replace(slept, seq=2))

    assert [1, 2] == [row.seq for row in timeline(store).steps]
    assert [StepOutcome.OK] * 2 == [row.outcome for row in timeline(store).steps]
