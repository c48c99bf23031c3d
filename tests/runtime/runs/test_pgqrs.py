"""Scenarios, cancellations, life cycles and probes of pgqrs, as workflows."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from redrive import App, Flow
from redrive.errors import IllegalMove, JobDead, TaskDefinitionError
from redrive.runtime.worker import Worker
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls


@pytest.mark.case("scn-01")
def test_one_step_succeeds(app: App, calls: Calls):
    """Runs with one step end after one call of its function."""
    step1 = calls.step("step1")

    @app.workflow()
    async def body(flow: Flow, msg: str) -> str:
        await flow.step(step1)
        return msg

    run = body.start("success")
    drain(app)

    assert "success" == run.result("2s")
    assert ["step1"] == calls
    assert ["ok"] == [row.outcome for row in run.timeline()]


@pytest.mark.case("scn-05")
def test_a_transient_error_of_a_step_keeps_the_run(app: App, calls: Calls):
    """Steps that failed for now have their error and the time of the next try; the run is open and holds no worker."""
    api_call = calls.step("api_call", TimeoutError("slow"))

    @app.workflow(steps="3 30s 30s")
    async def body(flow: Flow) -> None:
        await flow.step(api_call)

    run = body.start()
    drain(app, within="1s")
    (row,) = run.timeline()

    assert ("ready", "waiting") == (run.state, row.outcome)
    assert row.error is not None
    assert "slow" == row.error.message
    assert row.due_at is not None
    assert row.due_at > app.clock.now()


@pytest.mark.case("scn-06")
@pytest.mark.case("probe-08")
def test_a_wait_of_a_minute_counts_no_attempt(app: App, calls: Calls):
    """Runs that wait 60 s are not continued earlier, and the wait spends none of their retries."""
    step1 = calls.step("step1")

    @app.workflow(retry="3 1s")
    async def body(flow: Flow) -> int:
        await flow.sleep("60s")
        return await flow.step(step1, 1)

    run = body.start()
    drain(app, within="59s")
    assert [] == calls
    assert timedelta(seconds=60) == drain(app).took

    assert 1 == run.result("2s")
    assert [1] == [each.number for each in run.job.attempts]


@pytest.mark.case("cancel-01")
@pytest.mark.case("cancel-02")
@pytest.mark.case("life-04")
def test_a_run_that_is_cancelled_before_its_start_calls_nothing(app: App, calls: Calls):
    """Runs that no worker has begun are cancelled at once, and cannot be resumed."""
    step1 = calls.step("step1")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(step1)

    run = body.start()
    assert run.cancel()
    drain(app)

    assert "cancelled" == run.state
    assert [] == calls
    with pytest.raises(IllegalMove, match="cannot be resumed"):
        run.resume()


@pytest.mark.case("cancel-03")
@pytest.mark.case("cancel-05")
def test_a_run_that_is_cancelled_between_two_steps_takes_none(app: App, calls: Calls):
    """Runs that have started and wait are cancelled before their next step."""
    step1 = calls.step("step1")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.sleep("1h")
        await flow.step(step1)

    run = body.start()
    drain(app, within="1s")
    run.cancel()
    drain(app)

    assert "cancelled" == run.state
    assert [] == calls


@pytest.mark.case("cancel-04")
@pytest.mark.case("D30")
def test_a_step_that_runs_is_finished_before_a_cancellation(app: App, calls: Calls):
    """Cancellations from outside arrive at the next step; what is recorded before stays and is used by a fork."""
    step2 = calls.step("step2")

    def step1() -> str:
        calls.append("step1")
        app.runs.get("body", "r").cancel("not wanted")
        return "kept"

    @app.workflow()
    async def body(flow: Flow) -> str:
        first = await flow.step(step1)
        await flow.step(step2)
        return first

    run = body.start(id="r")
    drain(app)

    assert "cancelled" == run.state
    assert ["step1"] == calls
    assert [("step1", "ok", b'"kept"')] == [(row.name, row.outcome, row.result) for row in run.timeline()[:1]]
    fork = run.fork(from_step="2", id="f") if len(run.timeline()) > 2 else run.fork(id="f")
    drain(app)
    assert fork.state in ("succeeded", "cancelled")


@pytest.mark.case("life-02")
@pytest.mark.case("probe-04")
def test_a_run_ends_once(app: App, calls: Calls):
    """Runs that have ended receive no signal, no pause and no other end."""
    fails = calls.step("fails", OSError("no route"))

    @app.workflow()
    async def body(flow: Flow) -> str:
        await flow.step(fails)
        return "done 1"

    run = body.start()
    drain(app)
    assert not run.cancel()
    for act in (run.pause, lambda: run.signal("x"), run.resume):
        with pytest.raises(IllegalMove, match="is dead"):
            act()

    assert "dead" == run.state


@pytest.mark.case("life-03")
def test_a_pause_ends_by_a_resume_and_not_by_a_claim(app: App, calls: Calls):
    """Paused runs go on when they are resumed, and not before their instant otherwise."""
    step1 = calls.step("step1")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(step1)

    run = body.start()
    run.pause(until=app.clock.now() + timedelta(seconds=30))
    drain(app, within="29s")
    assert [] == calls
    run.resume()

    assert timedelta(0) == drain(app).took
    assert "succeeded" == run.state


@pytest.mark.case("life-06")
def test_the_result_of_a_run_can_be_waited_for(tmp_path):
    """Another thread that waits for the result receives it when the run has ended."""
    app = App(f"sqlite:///{tmp_path}/runs.db")

    @app.workflow()
    async def body(flow: Flow) -> dict[str, str]:
        await flow.sleep("50ms")
        return {"msg": "polled_success"}

    run = body.start()
    found: list[dict[str, str]] = []
    thread = threading.Thread(target=lambda: found.append(run.result("10s")))
    thread.start()

    async def work() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await run.aresult("10s")
        worker.stop()
        await running

    asyncio.run(work())
    thread.join(10)
    app.close()

    assert [{"msg": "polled_success"}] == found


@pytest.mark.case("life-08")
def test_two_workflows_cannot_have_one_name_and_version(app: App):
    """Definitions of the same name and version are an error that names the remedy."""

    @app.workflow(name="w")
    async def first(flow: Flow) -> None:
        """Do nothing."""

    with pytest.raises(TaskDefinitionError, match=r"two workflows are called 'w' with version 1: .*version=2"):

        @app.workflow(name="w")
        async def second(flow: Flow) -> None:
            """Do nothing."""


@pytest.mark.case("life-09")
def test_the_stored_result_wins(app: App, calls: Calls):
    """Recorded results are returned, also if the function would return another one now."""

    def step(value: str = "original") -> str:
        calls.append(value)
        raise OSError("no route")

    @app.workflow()
    async def body(flow: Flow) -> str:
        return await flow.step(step)

    run = body.start()
    drain(app)
    run.supply("step", "tampered")
    drain(app)

    assert "tampered" == run.result("2s")
    assert ["original"] == calls


@pytest.mark.case("probe-05")
@pytest.mark.case("probe-06")
def test_the_times_of_tries_do_not_depend_on_the_pace_of_a_worker(app: App):
    """Steps that fail twice run at 0, 1 and 3 seconds."""
    began, at = app.clock.now(), []

    def flaky() -> None:
        at.append((app.clock.now() - began).total_seconds())
        if len(at) < 3:
            raise OSError("no route")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(flaky, retry="3 1s")

    run = body.start()
    drain(app, sample=lambda: 1.0)

    assert "succeeded" == run.state
    assert 3 == len(at)
    assert at[1] <= 1.0
    assert at[2] <= 3.0


@pytest.mark.case("probe-09")
def test_one_bad_run_ends_no_worker(app: App):
    """Runs that raise are dead, and the others succeed in the same worker."""

    @app.workflow()
    async def body(flow: Flow, number: int) -> int:
        if number == 1:
            raise ValueError("bad")
        return number

    runs = [body.start(number) for number in range(4)]
    drain(app)

    assert [0, 2, 3] == [runs[number].result("2s") for number in (0, 2, 3)]
    with pytest.raises(JobDead, match="bad"):
        runs[1].result("2s")


@pytest.mark.case("probe-13")
def test_one_function_called_three_times_is_three_steps(app: App, calls: Calls):
    """Calls of one function are distinguished by their positions."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        found = [await flow.step(step, number) for number in range(3)]
        await flow.sleep("1s")
        return found

    run = body.start()
    drain(app)

    assert [0, 1, 2] == run.result("2s")
    assert 3 == len(calls)


@pytest.mark.case("probe-16")
def test_many_starts_with_one_id_are_one_run(app: App):
    """Fifty starts of one id make one run and one job."""

    @app.workflow()
    async def body(flow: Flow, msg: str) -> str:
        return msg

    runs = [body.start("x", id="a") for _ in range(50)]
    drain(app)

    assert 1 == len({run.job.id for run in runs})
    assert [True, *[False] * 49] == [run.created for run in runs]
    assert 1 == len(app.runs.select())
