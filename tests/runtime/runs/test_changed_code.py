"""Code that has changed while runs wait: held runs, patches, versions and forks."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Flow
from redrive.app.workflow import Workflow
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls


def deploy(app: App, body: Any, **options: Any) -> Workflow[Any, Any, Any]:
    """Replace the code of the workflow ``body`` as a new process would have it."""
    app._registry.tasks.pop("body", None)
    return app.workflow(name="body", **options)(body)


@pytest.mark.case("W7")
@pytest.mark.case("D49")
@pytest.mark.parametrize("change", ["returns early", "swaps two steps"])
def test_runs_are_held_until_fitting_code_comes(app: App, calls: Calls, change: str):
    """Changed code runs no effect; the text names both steps and the line; the old code finishes all runs."""
    one, two, three, four = (calls.step(name) for name in ("one", "two", "three", "four"))

    async def old(flow: Flow) -> str:
        await flow.step(one)
        await flow.step(two)
        await flow.step(three)
        await flow.step(four)
        await flow.sleep("1h")
        return "done"

    async def changed(flow: Flow) -> str:
        await flow.step(one)
        if change == "returns early":
            await flow.step(two)
            await flow.step(three)
            return "early"
        await flow.step(three)
        await flow.step(two)
        return ""

    runs = [deploy(app, old).start(id="r0"), *(app.find("body").start(id=f"r{number}") for number in range(1, 20))]
    drain(app, within="1m")
    calls.clear()
    deploy(app, changed)
    drain(app, within="3h")

    text = {
        "returns early": "step 4 was `four` and 1 more, and the code has ended without it",
        "swaps two steps": "step 2 was `two`; the code now asks for `three` (runs/test_changed_code.py:",
    }[change]
    assert all(f"body {run.id} (version 1): {text}" in run.why for run in runs)
    assert [] == calls
    assert 20 == len(app.runs.select(hold="held"))
    deploy(app, old)
    drain(app)
    assert {"done"} == {run.result("2s") for run in runs}
    assert [] == calls


def test_a_patch_is_taken_by_runs_that_have_not_passed_it(app: App, calls: Calls):
    """Runs that have passed the place keep the old way, new runs take the patch, in each pass."""
    one, two, new = calls.step("one"), calls.step("two"), calls.step("new")

    async def old(flow: Flow) -> str:
        await flow.step(one)
        await flow.sleep("1h")
        await flow.step(two)
        return "old"

    async def patched(flow: Flow) -> str:
        takes = flow.patched("new-first")
        await flow.step(new if takes else one)
        await flow.sleep("1h")
        await flow.step(two)
        return "new" if takes else "old"

    async def removed(flow: Flow) -> str:
        await flow.step(new)
        await flow.sleep("1h")
        await flow.step(two)
        return "removed"

    before = deploy(app, old).start()
    drain(app, within="1m")
    after = deploy(app, patched).start()
    drain(app)
    assert ("old", "new") == (before.result("2s"), after.result("2s"))
    late = app.find("body").start()
    drain(app, within="1m")
    deploy(app, removed)
    drain(app)

    assert "removed" == late.result("2s")


def test_a_run_continues_with_the_function_of_its_version(app: App, calls: Calls):
    """Functions of one name and several versions are one workflow; new runs have the highest version."""
    one = calls.step("one")

    @app.workflow(name="body", version=1)
    async def first(flow: Flow) -> str:
        await flow.step(one)
        await flow.sleep("1h")
        return "first"

    early = first.start()
    drain(app, within="1m")

    @app.workflow(name="body", version=2)
    async def second(flow: Flow) -> str:
        return "second"

    late = app.find("body").start()
    drain(app)

    assert ("first", "second") == (early.result("2s"), late.result("2s"))
    assert (1, 2) == (early.record.version, late.record.version)


def test_a_run_waits_for_a_worker_with_its_version(app: App):
    """Runs of a version that no code has are held with the versions of this worker."""

    async def body(flow: Flow) -> str:
        await flow.sleep("1h")
        return "done"

    run = deploy(app, body, version=1).start()
    drain(app, within="1m")
    deploy(app, body, version=2)
    drain(app, within="2h")

    assert "body " + run.id + " (version 1): this worker has the code of version 2 only" in run.why
    deploy(app, body, version=1)
    drain(app)
    assert "done" == run.result("2s")


def test_a_fork_runs_again_from_a_step(app: App, calls: Calls):
    """Forks have the recorded steps before one of them, and an id of their own; the first run stays as it is."""
    one, two = calls.step("one"), calls.step("two", OSError("no route"))

    @app.workflow()
    async def body(flow: Flow) -> int:
        await flow.step(one)
        return await flow.step(two, 2)

    run = body.start()
    drain(app)
    fork = run.fork(from_step="two", id="again")
    drain(app)

    assert ("dead", 2) == (run.state, fork.result("2s"))
    assert ["one", "two", "two"] == calls
    assert run.job.id == fork.record.forked_from


def test_many_runs_are_forked_at_a_rate(app: App, calls: Calls):
    """Forks of many runs start so many in a time."""
    step = calls.step("step", *(OSError("no route") for _ in range(4)))

    @app.workflow()
    async def body(flow: Flow, number: int) -> int:
        return await flow.step(step, number)

    runs = [body.start(number) for number in range(4)]
    drain(app)
    forks = app.runs.fork(runs, rate="2/1m")
    drained = drain(app)

    assert [0, 1, 2, 3] == [fork.result("2s") for fork in forks]
    assert 90 <= drained.took.total_seconds() <= 120


def test_an_operator_supplies_the_result_of_a_failed_step(app: App, calls: Calls):
    """Dead runs go on with a result that an operator gives in the place of a failed step."""
    charge, mail = calls.step("charge", OSError("no route")), calls.step("mail")

    @app.workflow()
    async def body(flow: Flow) -> int:
        number = await flow.step(charge)
        return await flow.step(mail, number)

    run = body.start()
    drain(app)
    assert "dead" == run.state
    run.supply("charge", 42)
    drain(app)

    assert 42 == run.result("2s")
    assert ["charge", "mail"] == calls
