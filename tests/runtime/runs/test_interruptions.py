"""Cancellations and pauses of runs, stops and time limits, while the function of a step runs in a worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Flow, Policy, Run, SyncFlow
from redrive.errors import BranchDropped
from redrive.runtime import handlers
from redrive.runtime.handlers import TimeLimits
from redrive.runtime.runs import conductor
from redrive.runtime.runs.conductor import Conductor
from redrive.runtime.runs.writes import Writes
from redrive.runtime.worker import Worker
from tests import postgres
from tests.runtime.helpers import ManualClock, came, ended, until, working
from tests.runtime.runs.conftest import turn

HOUR = timedelta(hours=1)


class Stage:
    """The functions of steps, which wait for the end of the test, and what has become of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lasting = 1
        self.go = threading.Event()

    async def long(self) -> str:
        """Last, in the first calls, until it is interrupted."""
        self.lines.append("began")
        if self.lines.count("began") <= self.lasting:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.lines.append("interrupted")
                raise
        self.lines.append("ended")
        return "result"

    def thread(self) -> str:
        """Last until the test lets it go on."""
        self.lines.append("began")
        self.go.wait()
        self.lines.append("ended")
        return "result"

    def first(self) -> None:
        """Do something that is undone."""

    def undo(self, _: object) -> None:
        """Record that it was undone."""
        self.lines.append("undone")


@pytest.fixture
def stage() -> Stage:
    """Return a stage without lines."""
    return Stage()


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """Yield an app whose workers look often for what operators ask."""
    file = contextlib.nullcontext(f"sqlite:///{tmp_path}/runs.db?synchronous=normal")
    with postgres.lent() if request.param == "postgres" else file as url:
        app = App(url, heartbeat_every="50ms", lease_for="20s")
        yield app
        app.close()


def declared(app: App, stage: Stage, colour: str, **options: Any) -> Callable[[], Run[Any]]:
    """Declare a workflow whose second step is long, and return its start."""

    @app.workflow(name="async")
    async def body(flow: Flow) -> str:
        await flow.step(stage.first, undo=stage.undo)
        return await flow.step(stage.long, **options)

    @app.workflow(name="sync")
    def plain(flow: SyncFlow) -> str:
        flow.step(stage.first, undo=stage.undo)
        return flow.step(stage.long, **options)

    @app.workflow(name="branches")
    async def branches(flow: Flow) -> str:
        await flow.step(stage.first, undo=stage.undo)
        return (await flow.gather(flow.step(stage.long, **options), flow.wait_for("go")))[0]

    return lambda: {"async": body, "sync": plain, "branches": branches}[colour].start(id="r")


def scene(app: App, scenario: Callable[[Worker], Any]) -> None:
    """Run a scenario beside a worker."""

    async def run() -> None:
        async with working(app) as worker:
            await scenario(worker)

    asyncio.run(run())


@pytest.mark.parametrize("colour", ["async", "sync", "branches"])
def test_a_cancelled_run_interrupts_the_function_of_its_step(app: App, stage: Stage, colour: str):
    """The coroutine of a step is cancelled, as the handler of a cancelled job is, and earlier steps are undone."""
    start = declared(app, stage, colour)

    async def scenario(_: Worker) -> None:
        run = start()
        await until(lambda: "began" in stage.lines)
        await asyncio.to_thread(run.cancel, "no longer wanted")
        await ended(run.job)
        record = run.job.refresh().record
        assert ("cancelled", "no longer wanted") == (record.state, (record.note or "").partition(" (")[0])
        assert ["began", "interrupted", "undone"] == stage.lines

    scene(app, scenario)


@pytest.mark.parametrize("colour", ["async", "sync", "branches"])
def test_a_paused_run_interrupts_its_step_and_begins_it_again(app: App, stage: Stage, colour: str):
    """The step is called again when the run goes on, and the interruption counts as no failed try."""
    start = declared(app, stage, colour)

    async def scenario(_: Worker) -> None:
        run = start()
        if colour == "branches":
            run.signal("go")
        await until(lambda: "began" in stage.lines)
        await asyncio.to_thread(run.pause, "wait")
        await until(lambda: run.job.refresh().record.hold == "paused")
        assert ["began", "interrupted"] == stage.lines
        await asyncio.to_thread(run.resume)
        assert "result" == await run.aresult("60s")
        assert ["began", "interrupted", "began", "ended"] == stage.lines
        assert 1 == next(row.tries for row in run.timeline() if row.name == "long")

    scene(app, scenario)


def test_a_pause_does_not_interrupt_a_step_that_may_not_run_twice(app: App, stage: Stage):
    """A step with ``idempotent=False`` goes on during a pause, and a cancellation interrupts it."""
    paused_and_cancelled(app, stage, declared(app, stage, "async", retry=Policy(attempts=1, idempotent=False)))


@pytest.mark.parametrize("place", ["step", "retried step", "branch", "steps of the workflow"])
def test_a_pause_does_not_interrupt_a_step_whose_task_may_not_run_twice(app: App, stage: Stage, place: str):
    """The word of the task counts with a policy of the step and without one."""
    options: dict[str, Any] = {"steps": "1 1s"} if place == "steps of the workflow" else {}
    retry = "1 1s" if place == "retried step" else None

    @app.task(idempotent=False)
    async def charge() -> str:
        return await stage.long()

    @app.workflow(**options)
    async def body(flow: Flow) -> None:
        await flow.step(stage.first, undo=stage.undo)
        if place == "branch":
            await flow.gather(flow.step(charge))
        else:
            await flow.step(charge, retry=retry)

    paused_and_cancelled(app, stage, lambda: body.start(id="r"))


def paused_and_cancelled(app: App, stage: Stage, start: Callable[[], Run[Any]]) -> None:
    """Pause a run in its long step, which goes on, and cancel it, which ends the step."""

    async def scenario(_: Worker) -> None:
        looks: list[object] = []
        run = start()
        await until(lambda: "began" in stage.lines)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Conductor, "_take", seen(Conductor._take, looks))
            await asyncio.to_thread(run.pause, "wait")
            await until(lambda: bool(looks))
        # An interruption would reach the function by then.
        for _ in range(5):
            await turn()
        assert ["began"] == stage.lines
        await asyncio.to_thread(run.cancel)
        await ended(run.job)
        assert ["began", "interrupted", "undone"] == stage.lines

    scene(app, scenario)


def seen(take: Callable[[Conductor, Any], None], looks: list[object]) -> Callable[[Conductor, Any], None]:
    """Return a function that records each call of another one."""

    def called(conductor: Conductor, flags: Any) -> None:
        take(conductor, flags)
        looks.append(flags)

    return called


def test_a_function_in_a_thread_runs_to_its_end_and_is_recorded(app: App, stage: Stage):
    """Python cannot stop a thread: the cancellation comes after the step, whose effect is undone."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(stage.thread, undo=stage.undo)
        await flow.step(stage.long)

    async def scenario(_: Worker) -> None:
        run = body.start()
        await until(lambda: "began" in stage.lines)
        await asyncio.to_thread(run.cancel)
        stage.go.set()
        await ended(run.job)
        assert ["began", "ended", "undone"] == stage.lines

    scene(app, scenario)


def test_a_shield_keeps_a_cancellation_from_a_step(app: App, stage: Stage):
    """A step inside of ``flow.shield()`` runs to its end, and the next one is not begun."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        with flow.shield():
            await flow.step(waits)
        await flow.step(stage.long)

    go = asyncio.Event()

    async def waits() -> None:
        stage.lines.append("began")
        await go.wait()
        stage.lines.append("ended")

    async def scenario(_: Worker) -> None:
        looks: list[object] = []
        run = body.start()
        await until(lambda: "began" in stage.lines)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Conductor, "_take", seen(Conductor._take, looks))
            await asyncio.to_thread(run.cancel)
            await until(lambda: bool(looks))
        go.set()
        await ended(run.job)
        assert ["began", "ended"] == stage.lines

    scene(app, scenario)


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
@pytest.mark.parametrize("what", ["cancel", "pause"])
@pytest.mark.parametrize("place", ["body", "branch"])
def test_an_interrupted_transaction_is_rolled_back(app: App, stage: Stage, what: str, place: str):
    """What the function has written is not kept; after a pause it writes it once."""

    async def writes(connection: Any) -> None:
        await connection.execute("INSERT INTO receipts (number) VALUES (1)")
        await stage.long()

    @app.workflow()
    async def body(flow: Flow) -> None:
        if place == "body":
            await flow.transaction(writes)
        else:
            await flow.gather(flow.transaction(writes), flow.step(stage.first))

    on(app, "CREATE TABLE receipts (number integer)")

    async def scenario(_: Worker) -> None:
        run = body.start()
        await until(lambda: "began" in stage.lines)
        if what == "cancel":
            await asyncio.to_thread(run.cancel)
        else:
            await asyncio.to_thread(run.pause)
            await until(lambda: run.job.refresh().record.hold == "paused")
            await asyncio.to_thread(run.resume)
        await ended(run.job)
        assert 1 == stage.lines.count("interrupted")
        assert int(what == "pause") == len(await asyncio.to_thread(on, app, "SELECT number FROM receipts"))

    try:
        scene(app, scenario)
    finally:
        on(app, "DROP TABLE receipts")


def on(app: App, statement: str) -> list[Any]:
    """Execute a statement in a transaction of its own, and return its rows."""
    transaction = app.store.begin()
    cursor = transaction.connection.execute(statement)
    rows: list[Any] = cursor.fetchall() if cursor.description else []
    transaction.commit()
    return rows


def test_an_error_of_an_interrupted_function_is_no_failed_try(app: App, stage: Stage):
    """A function may turn the interruption into an error of its own, or return all the same."""

    async def converts() -> None:
        try:
            await stage.long()
        except asyncio.CancelledError:
            if stage.lines.count("interrupted") == 1:
                raise OSError("converted") from None

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(converts)

    stage.lasting = 2

    async def scenario(_: Worker) -> None:
        run = body.start()
        for count in (1, 2):
            await until(lambda count=count: stage.lines.count("began") == count)
            await asyncio.to_thread(run.pause)
            await until(lambda count=count: stage.lines.count("interrupted") == count)
            if count == 1:
                await until(lambda: run.job.refresh().record.hold == "paused")
                await asyncio.to_thread(run.resume)
        await ended(run.job)
        assert ("succeeded", 2, 1) == (run.state, stage.lines.count("began"), run.timeline()[0].tries)

    scene(app, scenario)


def cleaning(stage: Stage, call: str) -> Callable[[Flow], Any]:
    """Return a body that is cut off in a call of its flow, or outside of one, and cleans up in a step."""

    async def body(flow: Flow) -> None:
        try:
            match call:
                case "step":
                    await flow.step(stage.long)
                case "gather":
                    await flow.gather(flow.step(stage.long))
                case "outside":
                    await stage.long()
                case "replaced":
                    try:
                        await flow.step(stage.long)
                    except asyncio.CancelledError:
                        raise OSError("the connection was closed") from None
        finally:
            await flow.step(stage.undo, None)

    return body


@pytest.mark.parametrize("call", ["step", "gather", "outside", "replaced"])
def test_a_body_that_a_stop_has_cut_off_takes_no_further_step(app: App, stage: Stage, call: str):
    """The next worker begins at the call that was cut off, so the step of a ``finally`` block is taken behind it."""
    body = app.workflow(name="body")(cleaning(stage, call))

    async def main() -> None:
        async with working(app):
            run = body.start()
            await until(lambda: "began" in stage.lines)
        assert ["began", "interrupted"] == stage.lines
        async with working(app):
            await ended(run.job)
        assert ("succeeded", 1) == (run.state, run.job.refresh().record.attempt)

    asyncio.run(main())
    assert ["began", "interrupted", "began", "ended", "undone"] == stage.lines


@pytest.mark.parametrize("call", ["step", "gather", "outside"])
def test_a_body_that_its_time_limit_has_cut_off_takes_no_further_step(
    app: App, stage: Stage, monkeypatch: pytest.MonkeyPatch, call: str
):
    """The attempt ends with its time limit, and the next one takes the step of a ``finally`` block at its place."""
    end = ended_by_hand(monkeypatch)
    body = app.workflow(name="body", retry="1 0s", timeout=HOUR)(cleaning(stage, call))

    async def scenario(_: Worker) -> None:
        run = body.start()
        await until(lambda: "began" in stage.lines)
        end()
        await ended(run.job)
        first, second = run.job.refresh().attempts
        assert "took longer than 3600 s" in str(first.error)
        assert "succeeded" == second.outcome

    scene(app, scenario)
    assert ["began", "interrupted", "began", "ended", "undone"] == stage.lines


def ended_by_hand(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what ends the attempts with a time limit of an hour."""
    time, limits, row_of = ManualClock(), [], TimeLimits._row

    def noted(self: TimeLimits, limit: timedelta) -> Any:
        limits.append(self)
        return row_of(self, limit)

    def end() -> None:
        time.seconds += HOUR.total_seconds()
        limits[0]._look(HOUR)

    monkeypatch.setattr(TimeLimits, "_row", noted)
    monkeypatch.setattr(handlers, "_monotonic", time)
    monkeypatch.setattr(conductor, "monotonic", time)
    return end


def test_a_sync_body_takes_no_step_after_its_time_limit(app: App, stage: Stage, monkeypatch: pytest.MonkeyPatch):
    """The call of its thread is refused, although the body was cut off after it had been made."""
    end = ended_by_hand(monkeypatch)
    loops: list[asyncio.AbstractEventLoop] = []
    over = threading.Event()

    @app.workflow(timeout=HOUR)
    def body(flow: SyncFlow) -> None:
        loops[0].call_soon_threadsafe(end)
        try:
            flow.step(stage.long)
        finally:
            over.set()

    async def scenario(_: Worker) -> None:
        loops.append(asyncio.get_running_loop())
        run = body.start()
        await ended(run.job)
        await came(over)
        assert "dead" == run.state

    scene(app, scenario)
    assert [] == stage.lines


def test_a_stop_during_a_function_in_a_thread_of_a_branch_reports_no_lost_exception(
    app: App, stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """The work of the branch ends with an interrupt that nothing awaits, and asyncio would report when it is freed."""
    ends: list[tuple[type, bool]] = []
    finished = Writes._finished

    def noted(self: Writes, task: asyncio.Task[Any]) -> None:
        finished(self, task)
        is_reported = task._log_traceback  # type: ignore[attr-defined]
        ends.append((type(task.exception()), is_reported))

    monkeypatch.setattr(Writes, "_finished", noted)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.gather(flow.step(stage.thread))

    async def scenario(_: Worker) -> None:
        body.start()
        await until(lambda: "began" in stage.lines)

    try:
        scene(app, scenario)
    finally:
        stage.go.set()

    assert [(BranchDropped, False)] == ends
