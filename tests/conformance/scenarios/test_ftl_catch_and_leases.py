"""FTL's cases of catch requests and of leases, for redrive's catch tasks and workers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from redrive.app.attempts.context import Context
from redrive.app.tasks.catch import CatchRequest
from redrive.engine.lifecycle import State
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import ManualWorker, sweep


@dataclass(frozen=True)
class OrderRequest:
    """The request of the failing task."""

    number: int


@pytest.mark.case("ftl.catch_request")
def test_a_catch_request_contains_the_failed_task_and_its_error(app):
    """Catch tasks receive the failed task, its request, the request's type, and the task's last error, never their
    own."""
    received = []

    @app.task(retry="1 1s catch recover")
    def ship(order: OrderRequest, context: Context) -> None:
        raise RuntimeError(f"E{context.attempt}")

    @app.task
    def recover(request: CatchRequest[OrderRequest], context: Context) -> None:
        received.append((request.task, request.request, request.request_type, request.error))
        if context.attempt == 1:
            raise RuntimeError("an error of the catch task")

    ship.enqueue(OrderRequest(7))
    drain(app)

    assert [("ship", OrderRequest(7), "OrderRequest", "E2")] * 2 == received


@pytest.mark.case("ftl.catch_request")
def test_a_catch_task_may_take_any_request(app):
    """Catch tasks that take any CatchRequest receive the request as plain data, and its type by name."""
    received = []

    @app.task(retry="0 catch recover")
    def ship(order: OrderRequest) -> None:
        raise RuntimeError("E1")

    @app.task
    def recover(request: CatchRequest) -> None:
        received.append((request.request, request.request_type))

    ship.enqueue(OrderRequest(7))
    drain(app)

    assert [({"number": 7}, "OrderRequest")] == received


@pytest.mark.case("ftl.catch_request")
def test_an_error_without_a_text_is_unknown(app):
    """In a catch request the message of an error without a text is "unknown error"."""
    received = []

    @app.task(retry="0 catch recover")
    def ship(order: OrderRequest) -> None:
        raise RuntimeError

    @app.task
    def recover(request: CatchRequest[OrderRequest]) -> None:
        received.append(request.error)

    ship.enqueue(OrderRequest(7))
    drain(app)

    assert ["unknown error"] == received


@pytest.fixture
def job(app):
    """Return a job to be held."""

    @app.task
    def ship() -> None: ...

    return ship.enqueue()


@pytest.fixture
def owner(app):
    """Return a worker with leases of 5 s."""
    return ManualWorker(app, "owner", lease_for="5s")


@pytest.mark.case("ftl.leases: hold ttl 5s for 6s")
def test_a_worker_that_beats_keeps_its_lease(app, clock, owner, job):
    """Leases of 5 s are still held after 6 s if their worker beat every 2.5 s, and no sweep takes them."""
    held = owner.take()
    for span in ("2500ms", "2500ms", "1s"):
        clock.advance(span)

        assert {held.lease_id} == owner.beat().leases
        assert () == sweep(app)

    assert (State.RUNNING, held.lease_id) == (job.refresh().state, job.record.lease_id)


@pytest.mark.case("ftl.leases: owner stops renewing, 6s later expire job")
def test_a_silent_worker_loses_its_lease(app, clock, owner, job):
    """Leases of 5 s are swept 6 s after the last heartbeat, not earlier, and another worker can claim the job."""
    held = owner.take()
    clock.advance("4999ms")

    assert () == sweep(app)

    clock.advance("1001ms")

    assert [(job.id, held.lease_id)] == [(swept.job_id, swept.lease_id) for swept in sweep(app)]
    assert (State.READY, None) == (job.refresh().state, job.record.lease_id)

    taken = ManualWorker(app, "other").take()

    assert (job.id, True) == (taken.id, taken.lease_id > held.lease_id)
