"""Child runs whose calls were dropped: by another branch, and by the end of their parent."""

from __future__ import annotations

from typing import Any

import pytest

import redrive
from redrive import App, Flow, SyncFlow
from redrive.app.flows.run_events import events_of
from redrive.stores.operations import managing_runs as manage
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, every_store


@pytest.fixture
def slow(app: App, calls: Calls) -> Any:
    """Return a workflow that books, and then waits for long."""
    book, back = calls.step("book"), calls.step("back")

    @app.workflow()
    async def slow(flow: Flow) -> None:
        await flow.step(book, undo=back)
        await flow.sleep("30d")

    return slow


def child(app: App) -> redrive.Run[Any]:
    """Return the only run of the slow workflow."""
    (found,) = app.runs.select(workflow="slow")
    return app.runs.get("slow", found.id)


@every_store
@pytest.mark.parametrize("how", ["first", "gather", "sync"])
def test_the_child_of_a_branch_that_lost_is_cancelled_while_its_parent_goes_on(
    app: App, calls: Calls, slow: Any, how: str
):
    """It undoes its own steps, its reason names the parent, and the parent shows the call with its end."""

    def fail() -> None:
        raise redrive.GiveUp("no")

    @app.workflow()
    async def parent(flow: Flow) -> None:
        if how == "first":
            await flow.first(flow.call(slow), flow.sleep("1h"))
        else:
            with pytest.raises(redrive.GiveUp):
                await flow.gather(flow.call(slow), late(flow))
        await flow.sleep("10d")

    async def late(flow: Flow) -> None:
        await flow.sleep("1h")
        await flow.step(fail)

    @app.workflow()
    def sync_parent(flow: SyncFlow) -> None:
        flow.first(lambda: flow.call(slow), lambda: flow.sleep("1h"))
        flow.sleep("10d")

    run = (sync_parent if how == "sync" else parent).start(id="1")
    drain(app, within="2h")

    assert "cancelled" == child(app).state
    assert f"its call in {run.workflow} 1 (1.0.1) was dropped: that run goes on without it" in child(app).why
    assert ["book", "back"] == calls
    drain(app, within="20d")
    assert "succeeded" == run.state
    assert ["book", "back"] == calls


@every_store
@pytest.mark.parametrize("how", ["returns", "dies", "cancelled", "deadline"])
def test_the_children_of_a_parent_that_ends_are_cancelled(app: App, calls: Calls, slow: Any, how: str):
    """However a parent ends, its open child takes its steps back, and its children end with it."""

    @app.workflow()
    async def middle(flow: Flow) -> None:
        await flow.call(slow)

    @app.workflow(deadline="1h")
    async def parent(flow: Flow) -> None:
        await flow.first(flow.call(middle), flow.sleep("10m" if how in {"returns", "dies"} else "10d"))
        if how == "dies":
            raise redrive.GiveUp("no")

    run = parent.start(id="1")
    drain(app, within="1m")
    if how == "cancelled":
        run.cancel()
    drain(app, within="2h")

    ends = {"returns": "succeeded", "cancelled": "cancelled"}
    assert ends.get(how, "dead") == run.state
    assert "cancelled" == child(app).state
    assert ["book", "back"] == calls
    (between,) = app.runs.select(workflow="middle", parent=run)
    assert "cancelled" == app.runs.get("middle", between.id).state


@every_store
def test_a_parent_receives_its_cancellation_before_that_of_its_child(app: App, calls: Calls, slow: Any):
    """A run and its child are cancelled together; if the child ends first, the run is cancelled all the same."""
    room, release = calls.step("room"), calls.step("release")

    @app.workflow(queue="parents")
    async def parent(flow: Flow) -> None:
        await flow.step(room, undo=release)
        await flow.call(slow)

    run = parent.start(id="1")
    drain(app, within="1m")
    parents = app.queue("parents")
    parents.pause()
    run.cancel("sold out")
    drain(app, within="1m")
    assert ["room", "book", "back"] == calls
    parents.resume()
    drain(app, within="1m")

    assert "cancelled" == run.state
    assert "cancelled: sold out" in run.why
    assert ["room", "book", "back", "release"] == calls


@every_store
def test_a_retry_of_a_dead_parent_starts_another_child(app: App, calls: Calls):
    """The child was cancelled with its parent, so the call starts another one when the parent is retried."""
    fails = calls.step("fails", redrive.GiveUp("no"))

    @app.workflow()
    async def child(flow: Flow) -> str:
        await flow.sleep("2h")
        return "done"

    async def late(flow: Flow) -> int:
        await flow.sleep("1h")
        return await flow.step(fails, 7)

    @app.workflow()
    async def parent(flow: Flow) -> list[Any]:
        return await flow.gather(flow.call(child), late(flow))

    run = parent.start(id="1")
    drain(app, within="90m")
    assert "dead" == run.state
    run.job.retry()
    drain(app, within="5h")

    assert ["done", 7] == run.result("2s")
    children = [app.runs.get("child", each.id) for each in app.runs.select(workflow="child")]
    assert ["cancelled", "succeeded"] == sorted(each.state for each in children)


@every_store
def test_an_undo_begins_after_the_children_were_asked_to_end(app: App, calls: Calls, slow: Any):
    """The child is asked to end when the parent begins to take its steps back, also if the undo waits for long."""
    paid, refund = calls.step("paid"), calls.step("refund", OSError("down"))

    @app.workflow()
    async def parent(flow: Flow) -> None:
        await flow.step(paid, undo=refund, retry="3 1d")
        await flow.first(flow.call(slow), flow.sleep("1h"))
        raise redrive.GiveUp("no")

    run = parent.start(id="1")
    drain(app, within="2h")

    assert "ready" == run.state
    assert "cancelled" == child(app).state
    assert "its call in parent 1 (2.0.1) was dropped: that run takes its steps back" in child(app).why
    drain(app, within="3d")
    assert "dead" == run.state
    assert ["paid", "book", "refund", "back", "refund"] == calls


@every_store
def test_a_worker_that_dies_between_a_drop_and_the_park_leaves_no_child(app: App, slow: Any):
    """The next pass finds the branch that has won, and cancels the child of the other one when it parks."""
    deaths = [OSError("killed")]

    def dies() -> None:
        if deaths:
            raise deaths.pop()

    @app.workflow(retry="3 1m")
    async def parent(flow: Flow) -> None:
        await flow.first(flow.call(slow), flow.sleep("1h"))
        dies()
        await flow.sleep("10d")

    run = parent.start(id="1")
    drain(app, within="2h")

    assert "ready" == run.state
    assert "cancelled" == child(app).state


@every_store
def test_a_timeline_names_the_call_that_was_dropped(app: App, slow: Any):
    """The row of the call is kept, and names the child and why it is cancelled."""

    @app.workflow()
    async def parent(flow: Flow) -> None:
        await flow.first(flow.call(slow), flow.sleep("1h"))
        await flow.sleep("10d")

    run = parent.start(id="1")
    drain(app, within="2h")

    (row,) = [row for row in run.timeline() if row.path == "1.0.1"]
    assert "the call of slow parent/1/1.0.1 was dropped: that run goes on without it" == str(row.error)
    shown = events_of(app.store.run(manage.timeline("parent", "1")))
    assert f"call slow: cancelled: {row.error}" in [each.text for each in shown]
