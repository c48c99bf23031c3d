"""Bulk operations of an App, and the events of their jobs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive import App, Filter, observe
from redrive.engine.bulk import BulkAction, BulkState
from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError
from redrive.testing import VirtualClock


@pytest.fixture
def three(app: App) -> App:
    """Return an app with three jobs for later."""

    @app.task
    def later() -> None:
        """Do nothing."""

    later.options(delay="1h").enqueue_many([(), (), ()])
    return app


def test_an_operation_is_previewed_started_and_finished(three: App):
    """Previews change nothing; the operation ends the jobs and emits an event for each."""
    events: list[observe.Event] = []
    found = three.operations.preview("cancel", Filter(task="later"), why="wrong")
    with observe.only(events.append):
        begun = three.operations.start(found, actor="ann")
        ended = three.operations.finish(begun.id)

    assert (3, BulkAction.CANCEL, "ann") == (found.matched, begun.action, begun.actor)
    assert (BulkState.DONE, 3) == (ended.state, ended.done)
    assert [1, 2, 3] == [each.job_id for each in events if isinstance(each, observe.JobCancelled)]
    assert {("wrong", State.CANCELLED)} == {(three.job(n).record.note, three.job(n).state) for n in (1, 2, 3)}


def test_operations_have_asynchronous_methods(three: App):
    """Each method has a twin that does not block the event loop."""
    on = three.operations

    async def run() -> list[tuple[int, ...]]:
        """Start, stop and undo an operation."""
        begun = await on.astart(await on.apreview("cancel", Filter(task="later")), rate="1/1h")
        await on.aturn()
        await on.astop(begun.id)
        undo = await on.aundo(begun.id)
        while await on.aturn() is not None:
            pass
        assert [2, 1] == [each.id for each in await on.aselect()]
        assert BulkState.DONE is (await on.aget(undo.id)).state
        return [each.ids async for each in on.abatches(undo.id) if each.ids]

    assert [(1,)] == asyncio.run(run())
    assert [(1,)] == [each.ids for each in on.batches(2) if each.ids]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_slow_operation_waits_by_the_clock_of_the_app(awaited: bool):
    """With a virtual clock its rate takes no real time."""
    clock = VirtualClock()
    app = App("memory://", clock=clock)

    @app.task
    def later() -> None:
        """Do nothing."""

    later.options(delay="1h").enqueue_many([(), (), ()])
    begun, on = clock.now(), app.operations
    started = on.start(on.preview("cancel", Filter(task="later")), rate="1/1m")
    ended = asyncio.run(on.afinish(started.id)) if awaited else on.finish(started.id)

    assert (BulkState.DONE, 3) == (ended.state, ended.done)
    assert timedelta(minutes=2) <= clock.now() - begun < timedelta(minutes=3)
    app.close()


@pytest.mark.parametrize(
    ("action", "options", "why"),
    [
        ("explode", {}, "the action is redrive, cancel or repolicy, not 'explode'"),
        ("cancel", {"queue": "x"}, "queue is for a redrive: a cancel moves no job"),
        ("redrive", {"why": "x"}, "why is for a cancel: a redrive has no reason"),
    ],
)
def test_wrong_parameters_are_refused(three: App, action: str, options: dict[str, str], why: str):
    """Unknown actions, and parameters of other actions, are errors."""
    with pytest.raises(ConfigurationError, match=why):
        three.operations.preview(action, Filter(task="later"), **options)
