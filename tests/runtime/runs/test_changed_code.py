"""Code that has changed while runs wait: held runs, patches, versions and forks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive import App, Flow
from redrive.app.flows.workflow import Workflow
from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, every_store


def deploy(app: App, body: Any, **options: Any) -> Workflow[Any, Any, Any]:
    """Replace the code of the workflow ``body`` as a new process would have it."""
    app._registry.tasks.pop("body", None)
    return app.workflow(name="body", **options)(body)


@every_store
@pytest.mark.case("W7")
@pytest.mark.case("D49")
def test_runs_are_held_until_fitting_code_comes(app: App, calls: Calls):
    """Changed code runs no effect; the text names both steps and the line; the old code finishes all runs."""
    one, two, three, four = (calls.step(name) for name in ("one", "two", "three", "four"))

    async def old(flow: Flow) -> str:
        await flow.step(one)
        await flow.step(two)
        await flow.step(three)
        await flow.step(four)
        await flow.sleep("1h")
        return "done"

    async def early(flow: Flow) -> str:
        await flow.step(one)
        await flow.step(two)
        await flow.step(three)
        return "early"

    async def swapped(flow: Flow) -> str:
        await flow.step(one)
        await flow.step(three)
        await flow.step(two)
        return ""

    workflow = deploy(app, old)
    # A commit of Turso takes some milliseconds.
    runs = [workflow.start(id=f"r{number}") for number in range(20 if app.url.startswith("turso") else 100)]
    drain(app, within="1m")
    calls.clear()

    for body, within, text in (
        (early, "1h", "step 4 was `four` and 1 more, and the code has ended without it"),
        (swapped, "2m", "step 2 was `two`; the code now asks for `three` (runs/test_changed_code.py:"),
    ):
        deploy(app, body)
        drain(app, within=within)
        held = app.runs.select(hold="held", limit=200)
        assert {run.id for run in runs} == {run.id for run in held}
        assert all(f"body {run.id} (version 1): {text}" in (run.held or "") for run in held)
    deploy(app, old)
    drain(app)

    assert len(runs) == len(app.runs.select(state="succeeded", limit=200))
    assert {"done"} == {run.result("2s") for run in runs[:5]}
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


def test_a_renamed_step_continues_its_runs(app: App, calls: Calls):
    """Steps, those of a map and child workflows continue under new names that have the earlier ones."""
    one, two, child = calls.step("one"), calls.step("two"), calls.step("child")

    def new_body(step: Any, mapped: Any, called: Any) -> Any:
        async def body(flow: Flow) -> int:
            first = await flow.step(step, 1)
            many = await flow.map(mapped, [2, 3])
            return first + sum(many) + await flow.call(called) + await flow.step(step, 4)

        return body

    @app.workflow()
    async def packing(flow: Flow) -> int:
        await flow.sleep("1h")
        return await flow.step(child, 5)

    run = deploy(app, new_body(one, two, packing)).start()
    drain(app, within="1m")
    app._registry.tasks.pop("packing")
    packed = app.workflow(name="packed", aka="packing")(packing.function)
    renamed = app.step(name="first", aka=["uno", "one"])(calls.step("first"))
    mapped = app.step(name="second", aka="two")(calls.step("second"))
    deploy(app, new_body(renamed, mapped, packed))
    drain(app)

    assert 1 + 2 + 3 + 5 + 4 == run.result("2s")
    assert ["one", "two", "two", "child", "first"] == calls
    assert ["one", "two", "two", "packing", "first"] == [row.name for row in run.timeline()]


def test_a_renamed_step_continues_a_map_that_failed(app: App, calls: Calls):
    """The recorded failure of a map belongs to its step under the new name, too."""

    def new_body(mapped: Any) -> Any:
        async def body(flow: Flow) -> str:
            try:
                await flow.map(mapped, [1])
            except ValueError:
                await flow.sleep("1h")
            return "done"

        return body

    run = deploy(app, new_body(calls.step("two", ValueError("odd")))).start()
    drain(app, within="1m")
    deploy(app, new_body(app.step(name="second", aka="two")(calls.step("second"))))
    drain(app)

    assert "done" == run.result("2s")
    assert ["two"] == calls
    assert ["map two", "two", "sleep"] == [row.name for row in run.timeline()]


def test_a_step_has_its_declared_name(app: App):
    """Functions with a declared name are recorded under it: methods, lambdas and undos, too."""

    class Shop:
        @app.step(name="charge-card")
        def charge(self) -> str:
            return "charged"

    @app.step
    def plain() -> None:
        """Do nothing."""

    refund = app.step(name="refund-card")(lambda _: None)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(Shop().charge, undo=refund)
        await flow.step(plain)
        await flow.step(app.step(name="ends")(lambda: 1 // 0))

    run = body.start()
    drain(app)

    assert ["charge-card", "plain", "ends"] == [row.name for row in run.timeline() if row.path in {"1", "2", "3"}]
    assert "refund-card" in [row.name for row in run.timeline()]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"name": ""}, ConfigurationError, "the name"),
        ({"name": ":undo"}, ConfigurationError, "begins with a colon"),
        ({"name": 7}, ConfigurationError, "the name"),
        ({"aka": "one"}, TaskDefinitionError, "step 'one': aka= takes earlier names of the step"),
        ({"aka": [7]}, TaskDefinitionError, "aka= takes earlier names"),
    ],
)
def test_wrong_names_of_steps_are_refused(app: App, calls: Calls, options: Any, error: type[Exception], text: str):
    """Names that cannot be recorded are errors at the decorator."""
    with pytest.raises(error, match=text):
        app.step(**options)(calls.step("one"))


def test_only_functions_have_names_of_steps(app: App):
    """Tasks have names of their own, and values have none."""

    @app.task
    def task() -> None:
        """Do nothing."""

    with pytest.raises(TaskDefinitionError, match=r"'task' is a task.*give name= and aka= to @app\.task"):
        app.step(name="other")(task)
    with pytest.raises(TaskDefinitionError, match=r"@app\.step\(\) stands above a function, got 7"):
        app.step(name="other")(7)  # type: ignore[type-var]
    with pytest.raises(TaskDefinitionError, match="has no name; give one"):
        app.step(lambda: None)


@every_store
def test_a_group_with_fewer_branches_is_held_before_a_step_behind_it_runs(app: App, calls: Calls):
    """Code with fewer branches runs nothing, and the code before it finishes the run."""
    a, b, c = (calls.step(name) for name in "abc")

    async def old(flow: Flow) -> str:
        await flow.gather(flow.step(a), flow.step(b))
        await flow.sleep("1h")
        await flow.step(c)
        return "done"

    async def fewer(flow: Flow) -> str:
        await flow.gather(flow.step(a))
        await flow.sleep("1h")
        await flow.step(c)
        return "done"

    run = deploy(app, old).start()
    drain(app, within="1m")
    calls.clear()
    deploy(app, fewer)
    drain(app, within="2h")

    assert "step 1.1.1 was `b`, and step 1 opens 1 branch; the code now asks for `gather`" in str(run.record.held)
    assert [] == calls
    deploy(app, old)
    drain(app)
    assert ("done", ["c"]) == (run.result("2s"), calls)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_body_that_cuts_off_a_step_itself_must_not_go_on(app: App, goes_on: bool):
    """A replay would not be cut off at the same place, so the next call is refused, with both lines and the remedy."""
    never: list[str] = []

    async def slowly() -> None:
        await asyncio.Event().wait()

    def after() -> None:
        never.append("after")

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            async with asyncio.timeout(0.01):
                await flow.step(slowly)
        except TimeoutError:
            if goes_on:
                await flow.step(after)
        return "ended"

    run = body.start()
    drain(app, within="1m")

    if not goes_on:
        assert "ended" == run.result("2s")
        return
    error = str(run.job.refresh().record.error)
    assert State.DEAD == run.state
    assert [] == never
    assert re.search(r"test_changed_code.py:\d+: the step before \(runs/test_changed_code.py:\d+\) was cut off", error)
    assert "flow.step(..., timeout=...)" in error


@pytest.mark.parametrize("call", ["gather", "nested", "map", "first", "sleep"])
def test_a_body_that_cuts_off_another_call_must_not_go_on(app: App, call: str):
    """As with a step: a replay would take the other branch, or make the effect of a step in it again."""
    charged: list[int] = []

    async def charge(number: int) -> None:
        charged.append(number)
        await asyncio.Event().wait()

    def after() -> None:
        charged.append(0)

    async def nested(flow: Flow) -> None:
        await flow.step(charge, 1)

    cuts: dict[str, Callable[[Flow], Awaitable[Any]]] = {
        "gather": lambda flow: flow.gather(flow.step(charge, 1)),
        "nested": lambda flow: flow.gather(nested(flow)),
        "map": lambda flow: flow.map(charge, [1]),
        "first": lambda flow: flow.first(flow.step(charge, 1), flow.sleep("1h")),
        "sleep": lambda flow: flow.sleep("1h"),
    }

    async def goes_on(flow: Flow) -> None:
        try:
            async with asyncio.timeout(0.01):
                await cuts[call](flow)
        except TimeoutError:
            await flow.step(after)

    @app.workflow()
    async def body(flow: Flow) -> None:
        if call == "sleep":
            # The other branch works, so that the run does not park.
            await flow.gather(goes_on(flow), flow.step(charge, 1))
        await goes_on(flow)

    run = body.start()
    drain(app, within="1m")

    error = str(run.job.refresh().record.error)
    assert (State.DEAD, [1]) == (run.state, charged)
    assert re.search(r"test_changed_code.py:\d+: the step before \(runs/test_changed_code.py:\d+\) was cut off", error)
