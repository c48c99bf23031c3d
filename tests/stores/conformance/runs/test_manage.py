"""Operators' actions on runs: cancel with cascade, pause, resume, supply a value, start again, list retries."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Held
from redrive.engine.records import Filter, Hold
from redrive.engine.runs import FAR, RESULT_LIMIT, RunFlags, StepKind, StepOutcome
from redrive.engine.steps import NewStep
from redrive.engine.undoing import UndoPlan, new_plan
from redrive.errors import IllegalMove, JobNotFound, ResultTooLarge, RunNotFound
from redrive.stores.operations import checks, retention
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.audit import audit
from redrive.stores.operations.managing_runs import RunFilter
from redrive.stores.operations.retention import RetentionTimes
from redrive.stores.operations.runs import gate, start
from tests.stores.helpers import FATAL, T0, Harness, new, seconds
from tests.stores.runs import (
    ERROR,
    begin,
    begun,
    call,
    claimed,
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
    wake,
)


def cancel(store: Harness, id: str = "order-42", why: str | None = None) -> bool:
    """Cancel a run."""
    return store.do(manage.cancel("checkout", id, why=why, actor="kim", now=store.now))


def pause(store: Harness, **how: object) -> None:
    """Pause the run."""
    store.do(manage.pause("checkout", "order-42", actor="kim", now=store.now, **how))


def resume(store: Harness) -> bool:
    """Resume the run."""
    return store.do(manage.resume("checkout", "order-42", actor="kim", now=store.now))


# -------------------------------------------------------------------------------------------------------------- cancel


def test_a_run_that_has_not_started_is_cancelled_at_once(store: Harness):
    """Runs that no worker has claimed end at once, and their body never runs."""
    begin(store)

    assert cancel(store, why="no longer wanted")
    assert (State.CANCELLED, "no longer wanted") == (view(store).job.state, view(store).job.note)
    assert () == store.claim()
    assert not cancel(store)


def test_a_sleeping_run_receives_its_cancellation_at_once(store: Harness):
    """Parked runs are due as soon as they are cancelled, and their claim has the reason."""
    park(store, begun(store), sleep())
    cancel(store, why="enough")
    claim, state = claimed(store)

    assert (RunFlags("enough"), T0) == (state.flags, state.run.cancel_at)
    store.end(claim, Cancelled("enough"))
    assert State.CANCELLED is view(store).job.state


def test_a_cancellation_is_delivered_once(store: Harness):
    """Runs that have received their cancellation can wait while they clean up; before that they are due."""
    claim = begun(store)
    cancel(store)
    park(store, claim, sleep("1"))
    again, _ = claimed(store)
    park(store, again, NewStep("2", StepKind.CANCEL, "charge"), sleep("3"))

    assert T0 + seconds(60) == view(store).job.scheduled_at


def test_a_second_cancellation_ends_a_run(store: Harness):
    """Runs that are cancelled twice end at once, and their worker loses the lease."""
    claim = begun(store)

    assert [True, True, False] == [cancel(store, why="enough"), cancel(store, why="now"), cancel(store)]
    assert (State.CANCELLED, "now") == (view(store).job.state, view(store).job.note)
    assert ("enough", ()) == (view(store).run.cancel_why, store.settle((claim, FATAL)).moved)


def test_a_cancellation_reaches_the_children(store: Harness):
    """Cancellations reach the runs that the run has called, and those that they have called, each in its own way."""
    parent = begun(store)
    (running,) = begin(store, replace(run("a"), parent_id=parent.id, parent_path="1"))
    (waiting,) = begin(store, replace(run("b"), parent_id=running.job_id, parent_path="1"))
    (other,) = begin(store, run("c"))
    park(store, parent, call(running.job_id))
    child, _ = claimed(store)
    cancel(store, why="enough")

    assert (State.RUNNING, "enough") == (view(store, "a").job.state, view(store, "a").run.cancel_why)
    assert (State.CANCELLED, State.READY) == (view(store, "b").job.state, view(store, "c").job.state)
    assert (T0, None) == (view(store).job.scheduled_at, view(store, "c").run.cancel_why)
    assert RunFlags("enough") == record(store, child, step()).flags
    assert [running.job_id] == [each.job_id for each in timeline(store).children]
    assert waiting.job_id != other.job_id


def test_a_run_that_ended_is_not_cancelled(store: Harness):
    """Cancellations of ended runs change nothing, and unknown runs are an error."""
    store.end(begun(store))

    assert not cancel(store)
    with pytest.raises(RunNotFound):
        cancel(store, "order-43")


# --------------------------------------------------------------------------------------------------- pause and resume


def test_a_parked_run_that_is_paused_does_not_go_on(store: Harness):
    """Paused runs are not due at the end of their waits; resumed they are due at once."""
    park(store, begun(store), sleep())
    pause(store, why="the bank is closed")
    paused = view(store)
    store.wait(10**6)
    idle = store.claim()
    answers = [resume(store), resume(store)]

    assert (Hold.PAUSED, FAR, "paused: the bank is closed") == (
        paused.job.hold, paused.job.scheduled_at, paused.job.note
    )  # fmt: skip
    assert (T0, "the bank is closed") == (paused.run.paused_at, paused.run.paused_why)
    assert ((), [True, False]) == (idle, answers)
    assert RunFlags() == claimed(store)[1].flags


def test_a_running_run_that_is_paused_is_held_when_it_parks(store: Harness):
    """Running runs are kept at their next park, until the end of their pause if it has one."""
    claim = begun(store)
    pause(store, until=T0 + seconds(500))
    park(store, claim, sleep())
    store.wait(400)
    early = store.claim()
    store.wait(100)

    assert (Hold.PAUSED, ()) == (view(store).job.hold, early)
    _, state = claimed(store)
    assert (RunFlags(), T0 + seconds(500)) == (state.flags, state.run.paused_until)


@pytest.mark.parametrize("ended", ["resumed", "until", "replaced", "cancelled"])
def test_a_pause_that_ends_while_its_run_parks_is_over(store: Harness, ended: str):
    """Runs that park because of a pause are due at once if that has ended since; their worker cannot know it."""
    claim = begun(store)
    pause(store, until=T0 + seconds(5) if ended == "until" else None)
    if ended == "resumed":
        resume(store)
    elif ended == "replaced":
        pause(store, until=T0 + seconds(5))
    elif ended == "cancelled":
        cancel(store)
    if ended != "replaced":
        store.wait(5)
    park(store, claim, why="paused", paused=True)
    early = view(store).job.scheduled_at
    store.wait(5)
    again, _ = claimed(store)
    park(store, again, NewStep(":cancel 1", StepKind.CANCEL, ":cancel"), wait())

    assert T0 + seconds(5) == early
    assert (FAR, Hold.PARKED) == (view(store).job.scheduled_at, view(store).job.hold)


def test_a_cancellation_ends_a_pause(store: Harness):
    """Paused runs that are cancelled are due, to receive their cancellation."""
    park(store, begun(store), wait())
    pause(store)
    cancel(store, why="enough")

    assert RunFlags("enough") == claimed(store)[1].flags


def test_a_run_that_ended_is_neither_paused_nor_resumed(store: Harness):
    """Ended runs can be neither paused nor resumed."""
    store.end(begun(store))

    with pytest.raises(IllegalMove, match="run 'order-42' of checkout is succeeded: it cannot be paused"):
        pause(store)
    with pytest.raises(IllegalMove, match="is succeeded: it cannot be resumed"):
        resume(store)


def test_a_signal_with_an_actor_is_in_the_audit_log(store: Harness):
    """Signals of programs leave no line; those of operators do. A fork of no run starts none, and leaves none."""
    begin(store, run())
    signal(store)
    signal(store, actor="ann")

    assert [] == store.do(start.fork("checkout", {}, before=None, now=store.now))
    assert [("ann", "signal_run")] == [(each.actor, each.action) for each in store.do(audit())]


def test_actions_on_runs_are_in_the_audit_log(store: Harness):
    """Pauses, resumptions, cancellations and supplied values are in the audit log, with their actor."""
    claim = begun(store)
    pause(store)
    resume(store)
    park(store, claim, tried())
    store.do(manage.supply("checkout", "order-42", "1", b"1", actor="kim", now=store.now))
    cancel(store)
    entries = store.do(audit())

    assert ["cancel_run", "supply_step", "resume_run", "pause_run"] == [each.action for each in entries]
    assert {"kim"} == {each.actor for each in entries}


# ---------------------------------------------------------------------------------------------- retries and timelines


def test_waiting_retries_are_listed_by_their_time(store: Harness):
    """Steps that wait for their next try are listed by its time, of runs and at the gate, and other waits are not."""
    begin(store, run("a"), run("b"), run("c"))
    a, b, c = store.claim(3)
    park(store, a, tried(retry="3 9s"))
    park(store, b, tried(retry="3 5s"), step("2"))
    park(store, c, wait(timeout=1), sleep("2"))
    other = store.put(new("plain"))
    at_gate = store.do(gate.acquire(other, "load", lease_for=seconds(60), now=store.now)).step
    store.do(gate.fail(at_gate, replace(tried("load", retry="3 7s"), name="load"), now=store.now))
    listed = store.do(manage.retrying())

    assert [("checkout", "b", "1", 5), ("plain", None, "load", 7), ("checkout", "a", "1", 9)] == [
        (each.task, each.id, each.path, (each.due_at - T0).total_seconds()) for each in listed
    ]
    assert (ERROR, 1, T0) == (listed[0].error, listed[0].tries, listed[0].at)
    assert ["a"] == [each.id for each in store.do(manage.retrying(task="checkout", limit=9)) if each.id != "b"]
    assert ["b"] == [each.id for each in store.do(manage.retrying(before=T0 + seconds(6)))]


def test_a_timeline_has_all_that_is_stored(store: Harness):
    """Timelines have the executions, the steps in the order of their calls, and the signals of a run."""
    claim = begun(store)
    signal(store)
    record(store, claim, *(step(path) for path in ("10", "2", "2.1.1", "2.0.1")))
    store.end(claim, FATAL)
    line = timeline(store)

    assert ["2", "2.0.1", "2.1.1", "10"] == [each.path for each in line.steps]
    assert (1, 1, ()) == (len(line.attempts), len(line.signals), line.children)


# ------------------------------------------------------------------------------------------------------- supply a value


def supply(store: Harness, path: str = "1", result: bytes | None = b'"given"') -> None:
    """Give a step a result."""
    store.do(manage.supply("checkout", "order-42", path, result, now=store.now))


def test_an_operator_supplies_the_value_of_a_failed_step(store: Harness):
    """Runs that died of a failed step go on with the value that an operator gives it."""
    claim = begun(store)
    record(store, claim, step("1"), tried("2", retry="0"))
    store.end(claim, FATAL)
    supply(store, "2")
    _, state = claimed(store)

    assert {"1": b'"ok"', "2": b'"given"'} == {row.path: row.result for row in state.steps}


def test_an_operator_supplies_the_value_of_a_step_that_waits(store: Harness):
    """Runs that wait for the next try of a step are due at once with the given value."""
    park(store, begun(store), tried())
    supply(store)

    assert [(StepOutcome.OK, b'"given"', None)] == [
        (row.outcome, row.result, row.due_at) for row in claimed(store)[1].steps
    ]


def test_the_unread_signals_of_a_run_are_named(store: Harness):
    """Each name stands once; signals that a wait has received are not among them."""
    claim = begun(store)
    for name in ("go", "stop", "stop"):
        signal(store, name)
    (go, *_) = timeline(store).signals
    record(store, claim, NewStep("1", StepKind.WAIT, "go", ref=go.id))

    assert ("stop",) == store.do(manage.unread(claim.id))


def test_a_failed_wait_is_forgotten_with_its_signal(store: Harness):
    """A run that starts again waits anew, and a signal with the same key is taken."""
    claim = begun(store)
    signal(store, "go", key="a")
    (go,) = timeline(store).signals
    wait_failed = NewStep("1", StepKind.WAIT, "go", StepOutcome.FAILED, ref=go.id, error=ERROR)
    record(store, claim, wait_failed)
    store.end(claim, FATAL)
    store.retry(claim.id)

    assert ((), ()) == (timeline(store).steps, timeline(store).signals)
    assert () == store.do(checks.check()).findings


def test_a_value_needs_a_failed_step(store: Harness):
    """Values for unknown steps, steps with a result, running runs, and values over the limit are refused."""
    claim = begun(store)
    with pytest.raises(IllegalMove, match="run 'order-42' of checkout is running: pause it first"):
        supply(store)
    park(store, claim, step(), wait("2"))

    with pytest.raises(IllegalMove, match="step 1 of run 'order-42' is ok: only a failed step takes a value"):
        supply(store)
    with pytest.raises(JobNotFound, match="run 'order-42' of checkout has no step '9'"):
        supply(store, "9")
    with pytest.raises(ResultTooLarge, match="step 1 of run 'order-42' of checkout"):
        supply(store, result=b"x" * (RESULT_LIMIT + 1))


# ------------------------------------------------------------------------------------------------------ start it again


def test_a_redriven_run_repeats_the_step_that_ended_it(store: Harness):
    """Runs that start again keep their steps but the failure that ended them; a failure that was handled stays."""
    claim = begun(store)
    record(store, claim, step("1"), tried("2", retry="0"))
    store.wait(1)
    record(store, claim, step("3"), tried("4", retry="0"))
    store.end(claim, FATAL)
    store.redrive(Filter(ids=(claim.id,)))

    assert {"1", "2", "3"} == {row.path for row in claimed(store)[1].steps}


def test_a_retried_run_tries_its_waiting_steps_at_once(store: Harness):
    """Steps that wait for their next try are due when an operator retries their run; other waits keep their times."""
    park(store, begun(store), tried(retry="3 9s"), sleep("2"), wait("3", timeout=70))
    store.wait(1)
    before = rows(store)
    store.retry(1)
    _, state = claimed(store)
    due = {row.path: row.due_at for row in state.steps}

    assert store.now == due.pop("1")
    assert due == {row.path: row.due_at for row in before.values() if row.path != "1"}
    assert () == store.do(checks.check()).findings


def test_a_redriven_run_repeats_what_was_undone(store: Harness):
    """Runs that start again repeat the steps that were undone, and their cancellation is withdrawn."""
    claim = begun(store)
    record(store, claim, step("1"), step("2", digest=7), step("3", digest=8))
    cancel(store)
    record(store, claim, NewStep(":cancel 4", StepKind.CANCEL, ":cancel"), step("5", "clean"))
    record(store, claim, new_plan(ERROR, UndoPlan()), NewStep("u2", StepKind.UNDO, "refund", tries=1))
    store.end(claim, Cancelled("enough", undone=True))
    store.retry(claim.id)
    _, state = claimed(store)
    found = {row.path: (row.outcome, row.digest, row.result) for row in state.steps}

    assert RunFlags() == state.flags
    kept = StepOutcome.OK, None, b'"ok"'
    assert {"1": kept, "2": (StepOutcome.WAITING, None, None), "3": kept} == found
    assert () == store.do(checks.check()).findings


def test_a_child_is_kept_while_its_parent_needs_it(store: Harness):
    """Ended children are not pruned before the run that called them has ended."""
    parent = begun(store)
    (child,) = begin(store, replace(run("a"), parent_id=parent.id, parent_path="1"))
    park(store, parent, call(child.job_id))
    store.end(store.take())
    wake(store)
    store.wait(10**6)
    keep = RetentionTimes(seconds(1), seconds(1))
    needed = store.do(retention.survey(0, keep, now=store.now)).ids
    store.end(store.take())
    store.wait(2)

    assert () == needed
    assert {parent.id, child.job_id} == set(store.do(retention.survey(0, keep, now=store.now)).ids)
    assert rows(store)


# -------------------------------------------------------------------------------------------------------------- checks


def busy(store: Harness) -> None:
    """Make a run with steps, a received signal and a child."""
    parent = begun(store)
    (child,) = begin(store, replace(run("a"), parent_id=parent.id, parent_path="2"))
    number = signal(store)
    received = replace(wait("1"), outcome=StepOutcome.OK, result=b"7", ref=number)
    record(store, parent, received)
    park(store, parent, call(child.job_id, "2"))


BREAKAGES = {
    "UPDATE redrive_jobs SET origin = NULL WHERE id = 1": ["has job 1, which is not there or was made for something"],
    "DELETE FROM redrive_runs WHERE job_id = 1": ["job 1 is that of a run, which is not there"],
    "UPDATE redrive_steps SET ref = 99 WHERE kind = 'call'": ["step 2 of job 1 waits for run 99, which is not there"],
    "UPDATE redrive_signals SET path = '9' WHERE path IS NOT NULL": ["signal 1 was read by step 9 of job 1, which"],
}
"""Invalid changes of the database, and what is found."""


def test_runs_of_the_engine_cause_no_finding(store: Harness):
    """Runs with steps, signals and children violate no rule, also after a part of them has ended."""
    busy(store)
    store.end(store.take())
    wake(store)

    assert () == store.do(checks.check()).findings


@pytest.mark.parametrize(("statement", "texts"), BREAKAGES.items())
def test_invalid_changes_of_runs_are_found(statement: str, texts: list[str]):
    """Each invalid change of a run is found by the rule of runs."""
    store = Harness("memory://", "sync")
    try:
        busy(store)
        store.raw.script(lambda cursor: cursor.execute(statement))
        found = store.do(checks.check()).findings

        assert {"runs"} == {each.rule for each in found}
        assert any(text in each.text for text in texts for each in found)
    finally:
        store.close()


def test_a_second_pause_replaces_the_first(store: Harness):
    """Runs that are paused again have the reason and the end of the second pause, and the beginning of the first."""
    park(store, begun(store), wait())
    pause(store, why="audit")
    store.wait(10)
    pause(store, why="strike", until=T0 + seconds(60))
    found = view(store)

    assert (T0, T0 + seconds(60), "strike") == (found.run.paused_at, found.run.paused_until, found.run.paused_why)
    assert ("paused: strike", T0 + seconds(60)) == (found.job.note, found.job.scheduled_at)


def test_a_search_reads_a_limited_number_of_runs(store: Harness):
    """Runs are found newest first among so many; the next search goes on behind them."""
    jobs = [
        begin(store, run(str(number), workflow="rare" if number == 0 else "often"))[0].job_id for number in range(5)
    ]
    rare = RunFilter(workflow="rare")
    first = store.do(manage.search(rare, budget=3))
    rest = store.do(manage.search(replace(rare, before_id=first.searched_to), budget=3))
    often = store.do(manage.search(RunFilter(workflow="often", limit=2), budget=100))

    assert ((), jobs[2]) == (first.runs, first.searched_to)
    assert (["0"], None) == ([each.run.id for each in rest.runs], rest.searched_to)
    assert (["4", "3"], None) == ([each.run.id for each in often.runs], often.searched_to)


def test_a_timeline_may_have_the_latest_steps_only(store: Harness):
    """Timelines with a limit have so many steps, in the order of their calls, the older ones left out."""
    claim = begun(store)
    for number in range(1, 4):
        store.wait(1)
        record(store, claim, step(str(number)))
    found = store.do(manage.timeline("checkout", "order-42", latest=2))

    assert ["2", "3"] == [each.path for each in found.steps]


def test_a_check_finds_a_hole_in_a_held_run(store: Harness):
    """Report a held run that lacks the row before a recorded one; a group has only the rows of its branches."""
    claim = begun(store)
    record(store, claim, step("1"), step("2.0.1"), step("3"), step("5"), step("order", "order"))
    running = store.do(checks.check()).findings
    store.end(claim, Held("the code has changed"))

    text = f"job {claim.id} is a held run with step 5, and nothing is recorded of step 4 before it"

    assert ((), [text]) == (running, [each.text for each in store.do(checks.check()).findings])
