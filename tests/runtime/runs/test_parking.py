"""Parking: how a body is left, and what a body must not do then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context

import pytest

from redrive import App, Flow, Policy, SyncFlow
from redrive.engine.runs import StepKind
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, Refusing, every_store, turn


@every_store
@pytest.mark.case("W6")
def test_parking_is_not_swallowed(app: App, calls: Calls):
    """`except Exception` does not catch it, and a step in `finally` runs once, at the real end."""
    cleanup, work = calls.step("cleanup"), calls.step("work")

    @asynccontextmanager
    async def connection(flow: Flow) -> AsyncIterator[None]:
        try:
            yield
        finally:
            calls.append("parked" if flow.parking else "closed")

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            for number in range(3):
                try:
                    async with connection(flow):
                        await flow.sleep("1h")
                except Exception:  # noqa: BLE001 - as users write
                    calls.append("swallowed")
                await flow.step(work, number)
        finally:
            await flow.step(cleanup)
        return "done"

    run = body.start()
    drain(app)

    assert "done" == run.result("2s")
    assert 3 == calls.count("parked")
    assert 3 == calls.count("work")
    assert ["cleanup"] == calls[-1:]
    assert 1 == calls.count("cleanup")
    assert "swallowed" not in calls


def test_a_body_that_goes_on_after_parking_is_held(app: App):
    """Bodies that catch the exception and return are held with the reason, and nothing of that pass is written."""
    waits = [True]

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.sleep("1h")
        except BaseException:
            if not waits:
                raise
        return "early"

    run = body.start()
    drain(app)

    assert "held" in run.why
    assert "its body caught the exception that parks it, and went on (ParkingSwallowed)" in run.why
    assert [] == list(run.timeline())
    waits.clear()
    drain(app)
    assert "early" == run.result("2s")


def test_an_error_during_the_teardown_does_not_end_the_run(app: App, caplog: pytest.LogCaptureFixture):
    """Errors that a body raises while it is torn down are logged, and the run is parked."""
    raised = [True]

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.sleep("1h")
        finally:
            if flow.parking and raised:
                raised.pop()
                raise ValueError("cannot close")
        return "done"

    run = body.start()
    drain(app)

    assert "done" == run.result("2s")
    assert not raised


def test_parking_arrives_in_a_group_of_exceptions(app: App):
    """Bodies that wait inside a TaskGroup are parked, although the interrupt arrives in a group."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(turn())
            await flow.sleep("1h")
        return "done"

    run = body.start()
    drain(app)

    assert "done" == run.result("2s")


def test_branches_are_left_in_their_order(app: App, calls: Calls):
    """The interrupt is thrown into the branches in the order of their paths."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def branch(name: str) -> None:
            try:
                await flow.sleep("1h")
            finally:
                if flow.parking:
                    calls.append(name)

        await flow.gather(branch("a"), branch("b"), branch("c"))

    body.start()
    drain(app)

    assert ["a", "b", "c"] == calls


def test_a_thread_is_left_by_the_same_exception(app: App, calls: Calls):
    """Bodies of `def` workflows are left on their own thread, and their `finally` blocks take no step."""
    cleanup = calls.step("cleanup")

    @app.workflow()
    def body(flow: SyncFlow) -> str:
        try:
            flow.sleep("1h")
        finally:
            flow.step(cleanup)
        return "done"

    run = body.start()
    drain(app)

    assert "done" == run.result("2s")
    assert ["cleanup"] == calls


def test_a_body_is_not_left_while_a_branch_works(app: App, calls: Calls):
    """Runs are parked when every branch waits, and not while the function of a step runs."""
    go = asyncio.Event()

    async def works() -> str:
        calls.append("begins")
        await turn()
        await turn()
        calls.append("ends")
        go.set()
        return "x"

    @app.workflow()
    async def body(flow: Flow) -> list[str | None]:
        return await flow.gather(flow.sleep("1h"), flow.step(works))

    run = body.start()
    drain(app)

    assert [None, "x"] == run.result("2s")
    assert ["begins", "ends"] == calls


def test_a_wait_that_cannot_be_stored_fails_its_attempt(app: App, calls: Calls, refusing: Refusing):
    """The row of a wait is written while another branch works; if that is refused, the wait raises the error."""
    refused = refusing(StepKind.SLEEP)

    async def works() -> str:
        while not refused:
            await turn()
        return "x"

    @app.workflow(retry="1 1s")
    async def body(flow: Flow) -> list[str | None]:
        return await flow.gather(flow.sleep("1h"), flow.step(works))

    run = body.start()
    drain(app)

    assert [None, "x"] == run.result("2s")
    assert ["failed", "succeeded"] == [each.outcome for each in run.job.attempts]
    assert "refused" in str(run.job.attempts[0].error)


def test_an_operator_pauses_and_resumes_a_run(app: App, calls: Calls):
    """Paused runs take no new step, also when their wait is over, and go on when they are resumed."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> int:
        await flow.sleep("1h")
        return await flow.step(step, 1)

    run = body.start()
    drain(app, within="1m")
    run.pause("the bank is closed")
    drain(app, within="2h")

    assert [] == calls
    assert "paused: the bank is closed" in run.why
    assert run.resume()
    assert not run.resume()
    drain(app)
    assert 1 == run.result("2s")


@every_store
def test_a_resume_during_the_parking_of_a_paused_run_is_not_lost(app: App, calls: Calls):
    """Runs that are resumed after their worker has read the pause, and before they are parked, go on."""
    first, second = calls.step("first"), calls.step("second")

    def paused() -> None:
        run.pause()

    @app.workflow()
    async def body(flow: Flow) -> int:
        try:
            await flow.step(first)
            await flow.step(paused)
            return await flow.step(second, 2)
        finally:
            if flow.parking and run.record.paused_at is not None:
                # As an operator would, at the worst moment: in the context of the body it is refused.
                answers.append(Context().run(run.resume))

    answers: list[bool] = []
    run = body.start()
    drain(app)

    assert (2, [True], ["first", "second"]) == (run.result("2s"), answers, calls)


def test_a_branch_that_is_paused_receives_the_cancellation_of_its_run(app: App, calls: Calls):
    """Cancellations end the pause of a branch that waits beside another one; it takes no further step."""
    before, after = calls.step("before"), calls.step("after")
    paused = asyncio.Event()

    def pause() -> None:
        run.pause()

    async def cancel() -> None:
        await paused.wait()
        run.cancel()

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def one() -> None:
            await flow.step(before)
            await flow.step(pause)
            paused.set()
            await flow.step(after)

        # A pause would interrupt a step that may run twice.
        await flow.gather(one(), flow.step(cancel, retry=Policy(attempts=1, idempotent=False)))

    run = body.start()
    drain(app)

    assert ("cancelled", ["before"]) == (run.state, calls)


def test_a_pause_ends_at_its_instant(app: App, calls: Calls):
    """Runs that are paused until an instant go on by themselves."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.step(step, 1)

    run = body.start()
    until = app.clock.now().replace(hour=5)
    run.pause(until=until)
    drain(app)

    assert 1 == run.result("2s")
    assert until <= app.clock.now()
