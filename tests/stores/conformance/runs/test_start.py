"""Starting runs: idempotent by id, all or none; forks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.runs import RunFlags, RunState
from redrive.errors import DuplicateRun, RunNotFound
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.managing_runs import RunFilter
from redrive.stores.operations.runs import start
from tests.stores.helpers import T0, Harness, seconds
from tests.stores.runs import begin, begun, claimed, park, record, rows, run, sleep, step, tried, view, wait


def test_a_run_is_a_job_of_its_workflow(store: Harness):
    """Started runs are jobs of the task of their workflow, with the run as origin."""
    (started,) = begin(store)
    job = store.job(started.job_id)

    assert ("order-42", True, T0) == (started.id, started.created, started.at)
    assert ("checkout", "run:checkout/order-42", b"{}") == (job.task, job.origin, store.take().payload)


def test_a_run_without_an_id_is_named_after_its_job(store: Harness):
    """Runs without an id get one made from the number of their job."""
    first, second = begin(store, run(None), run(None))

    assert [f"run-{first.job_id}", f"run-{second.job_id}"] == [first.id, second.id]


def test_the_same_start_is_the_same_run(store: Harness):
    """Starts with the id and the arguments of a run return this run, also within one call and after its end."""
    first, second = begin(store, run(), run())
    store.end(store.take())
    (third,) = begin(store)

    assert [True, False, False] == [first.created, second.created, third.created]
    assert {first.job_id} == {second.job_id, third.job_id}
    assert 1 == len(store.jobs())


def test_equal_ids_of_two_workflows_are_two_runs(store: Harness):
    """Ids are unique in their workflow."""
    started = begin(store, run(), run(workflow="return"))

    assert 2 == len({each.job_id for each in started})


def test_an_id_with_other_arguments_is_an_error(store: Harness):
    """Starts with the id of a run and other arguments are refused with the job of the run, and start nothing."""
    (first,) = begin(store)

    with pytest.raises(DuplicateRun, match=f"checkout has a run 'order-42', job {first.job_id}, with other") as caught:
        begin(store, run("order-43"), run(digest=8))

    assert (first.job_id, "order-42") == (caught.value.job_id, caught.value.id)
    assert [first.job_id] == [job.id for job in store.jobs()]


def test_nothing_is_started_for_nothing(store: Harness):
    """Starts of no run return no run."""
    assert [] == store.do(start.start([], now=T0))


def test_one_of_many_simultaneous_starts_creates_the_run(shared: Harness):
    """Simultaneous starts with one id create one run, and all return it."""
    answers = shared.at_once([start.start([run()], now=T0) for _ in range(4)])

    assert 1 == len({each.job_id for (each,) in answers})
    assert 1 == sum(each.created for (each,) in answers)


def test_a_claimed_run_has_its_row(store: Harness):
    """Claims of a new run answer the run without steps, and claims of other jobs no run."""
    begin(store)
    store.put()
    found = store.claimed(2)
    mine = [claim.id for claim in found.claims if claim.task == "checkout"]

    assert mine == list(found.runs)
    (state,) = found.runs.values()
    assert ("checkout", "order-42", 1, 7, 0) == (
        state.run.workflow, state.run.id, state.run.version, state.run.digest, state.run.epoch
    )  # fmt: skip
    assert ((), (), (), ()) == (state.steps, state.signals, state.emits, state.children)
    assert RunFlags() == state.flags
    assert isinstance(state, RunState)


def test_runs_are_listed_newest_first(store: Harness):
    """Lists of runs are newest first, by workflow, state and hold, in pages."""
    begin(store, run("a"), run("b"), run("c"), run("d", workflow="return"))
    claim, _ = claimed(store)
    park(store, claim, sleep())
    every = [each.run.id for each in store.do(manage.select(RunFilter()))]
    checkouts = store.do(manage.select(RunFilter(workflow="checkout", limit=2)))
    rest = store.do(manage.select(RunFilter(workflow="checkout", before_id=checkouts[-1].run.job_id)))

    assert ["d", "c", "b", "a"] == every
    assert ["c", "b"] == [each.run.id for each in checkouts]
    assert ["a"] == [each.run.id for each in rest]
    assert ["a"] == [each.run.id for each in store.do(manage.select(RunFilter(hold="parked")))]
    assert () == store.do(manage.select(RunFilter(state="dead")))


def test_an_unknown_run_is_an_error(store: Harness):
    """Questions about a run that does not exist raise an error that names it."""
    with pytest.raises(RunNotFound, match="checkout has no run 'order-43': none was started"):
        store.do(manage.get("checkout", "order-43"))


# -------------------------------------------------------------------------------------------------------------- forks


def forked(store: Harness, before: str | None, **how: object) -> dict[str, object]:
    """Fork the run, and return the recorded rows of the fork."""
    store.do(start.fork("checkout", {"order-42": "again"}, before=before, now=store.now, **how))
    return rows(store, "again")


def test_a_fork_has_the_steps_before_it(store: Harness):
    """Forks begin with the recorded steps before theirs, and with the arguments of the run."""
    claim = begun(store, run(payload=b'{"n":1}'))
    record(store, claim, step("1", result=b"1"), step("2"), step("3"))
    store.end(claim)
    fork = forked(store, "2")
    again, state = claimed(store)

    assert ["1"] == list(fork)
    assert (b"1", b'{"n":1}') == (state.steps[0].result, again.payload)
    assert (claim.id, 7) == (state.run.forked_from, state.run.digest)


def test_a_fork_from_a_branch_has_the_other_branches(store: Harness):
    """Forks from a step of a branch keep the rows of the other branches of the same call, and not the call."""
    claim = begun(store)
    record(store, claim, *(step(path) for path in ("1", "2", "2.0.1", "2.0.2", "2.1.1", "2.1.2", "3")))

    assert {"1", "2.0.1", "2.1.1", "2.1.2"} == set(forked(store, "2.0.2"))


def test_a_fork_from_the_beginning_has_no_steps(store: Harness):
    """Forks from the beginning have no steps, and rows that wait are not copied."""
    claim = begun(store)
    record(store, claim, step("1"), wait("2"), tried("3"))
    without = forked(store, None)
    store.do(start.fork("checkout", {"order-42": None}, before="9", now=store.now))
    (named, _, _) = store.do(manage.select(RunFilter()))

    assert {} == without
    store.do(start.fork("checkout", {"order-42": "empty"}, before="1", now=store.now))
    assert {} == rows(store, "empty")
    assert f"run-{named.run.job_id}" == named.run.id
    assert ["1"] == list(rows(store, named.run.id))


def test_many_forks_start_one_after_the_other(store: Harness):
    """Forks in bulk are due one spacing after the other."""
    begin(store, run("a"), run("b"), run("c"))
    sources = {"a": None, "b": None, "c": None}
    forks = store.do(start.fork("checkout", sources, before=None, spacing=seconds(2), now=store.now))

    assert [0, 2, 4] == [(store.job(each.job_id).scheduled_at - T0).total_seconds() for each in forks]


def test_a_fork_needs_a_run_and_an_id_of_its_own(store: Harness):
    """Forks of unknown runs, and forks under the id of another run, are refused."""
    begin(store)

    with pytest.raises(RunNotFound, match="checkout has no run 'order-43'"):
        store.do(start.fork("checkout", {"order-43": None}, before=None, now=T0))
    with pytest.raises(DuplicateRun, match="checkout has a run 'order-42' already"):
        store.do(start.fork("checkout", {"order-42": "order-42"}, before=None, now=T0))
    assert view(store).run.forked_from is None
    assert replace(run(), id=None).id is None
