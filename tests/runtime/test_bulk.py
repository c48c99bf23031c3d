"""The background duty that carries out bulk operations."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App, Filter
from redrive.engine.bulk import BulkState
from redrive.errors import StoreBusy
from redrive.runtime.bulk import IDLE, BulkRunner
from redrive.stores.operations import bulk


def _app() -> App:
    """Return an App with two jobs for later."""
    app = App("memory://")

    @app.task
    def later() -> None:
        """Do nothing."""

    app.open()
    later.options(delay="1h").enqueue_many([(), ()])
    return app


def test_a_worker_carries_an_operation_out():
    """The duty writes batches until none is due, and then rests."""
    app = _app()
    app.operations.start(app.operations.preview("cancel", Filter(task="later")))
    rests = [asyncio.run(BulkRunner(app).duty.step()) for _ in range(2)]

    assert [0.0, IDLE] == rests
    assert (BulkState.DONE, 2) == ((found := app.operations.get(1)).state, found.done)
    app.close()


def test_a_defect_is_stored_with_its_operation(monkeypatch: pytest.MonkeyPatch):
    """Batches that raise are tried again later; an error of the store goes to the supervisor."""
    app = _app()
    app.operations.start(app.operations.preview("cancel", Filter(task="later")))

    def broken(_: int, *, now: object) -> None:
        raise ZeroDivisionError("a defect")

    def busy(_: int, *, now: object) -> None:
        raise StoreBusy("locked")

    monkeypatch.setattr(bulk, "carry_out", busy)
    with pytest.raises(StoreBusy):
        asyncio.run(app.operations.aturn())
    monkeypatch.setattr(bulk, "carry_out", broken)
    assert 0.0 == asyncio.run(app.operations.aturn())
    assert "ZeroDivisionError: a defect" == app.operations.get(1).last_error
    assert 1.0 == asyncio.run(app.operations.aturn())
    app.close()
