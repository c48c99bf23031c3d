"""The end of a run by an error or a cancellation: undos, clean-up, shields."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CancelRequested, Flow, GiveUp, SyncFlow
from redrive.app.flows.run import Run
from redrive.errors import JobCancelled, JobDead
from redrive.runtime.runs.passes import Pass
from redrive.runtime.runs.steps import _Thread
from redrive.runtime.worker import Worker
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, every_store


@every_store
@pytest.mark.case("W10")
def test_undos_run_in_reverse_order_by_the_policies_of_their_steps(app: App, calls: Calls):
    """Undos run once each, wait between their tries, and the run ends with its first error and their report."""
    steps = [calls.step(name) for name in ("one", "two", "three")]
    undos = [calls.step("undo one", OSError("a"), OSError("b")), calls.step("undo two"), calls.step("undo three")]
    for undo, name in zip(undos, ("undo_one", "undo_two", "undo_three"), strict=True):
        undo.__name__ = name
    fails = calls.step("fails", GiveUp("no seat"))

    @app.workflow()
    async def body(flow: Flow) -> None:
        for step, undo in zip(steps, undos, strict=True):
            await flow.step(step, undo=undo, retry="5 1m")
        await flow.step(fails)

    run = body.start()
    drained = drain(app)

    with pytest.raises(JobDead, match=r"no seat \(three undone, two undone, one undone\)"):
        run.result("2s")
    assert ["undo three", "undo two", "undo one", "undo one", "undo one"] == calls[4:]
    assert ["u1", "u2", "u3"] == [row.path for row in run.timeline() if row.path.startswith("u")]
    assert timedelta(minutes=1) < drained.took


def test_an_undo_that_fails_does_not_stop_the_others(app: App, calls: Calls):
    """The report names the undos that have failed for good."""
    one, two, undo_one = calls.step("one"), calls.step("two"), calls.step("undo_one")
    undo_two = calls.step("undo_two", OSError("closed"))
    fails = calls.step("fails", GiveUp("no seat"))

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(one, undo=undo_one)
        await flow.step(two, undo=undo_two)
        await flow.step(fails)

    run = body.start()
    drain(app)

    assert "no seat (two not undone: closed, one undone)" == run.job.refresh().record.error


def test_the_undo_receives_the_result_of_its_step(app: App):
    """Undos are called with the recorded result."""
    seen: list[int] = []

    def charge(cents: int) -> int:
        return cents * 2

    def refund(charged: int) -> None:
        seen.append(charged)

    def fails() -> None:
        raise OSError("no")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(charge, 7, undo=refund)
        await flow.step(fails)

    body.start()
    drain(app)

    assert [14] == seen


def test_a_run_that_is_retried_or_catches_runs_no_undo(app: App, calls: Calls):
    """Undos run when the run ends, and not for errors that the body or its policy handles."""
    one, undo, fails = calls.step("one"), calls.step("undo"), calls.step("fails", OSError("a"))
    flaky = calls.step("flaky", OSError("b"))

    @app.workflow(retry="1 1s")
    async def body(flow: Flow) -> str:
        await flow.step(one, undo=undo)
        try:
            await flow.step(fails)
        except OSError:
            flaky()
        return "done"

    run = body.start()
    drain(app)

    assert "done" == run.result("2s")
    assert "undo" not in calls


def test_a_dropped_branch_is_undone(app: App, calls: Calls):
    """Finished steps of a branch that an error has dropped are taken back, also in a later pass."""
    one, undo = calls.step("one"), calls.step("undo", OSError("a"))
    fails = calls.step("fails", OSError("no route"))

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def first() -> None:
            await flow.step(one, undo=undo, retry="5 1m")
            await flow.sleep("1h")

        async def second() -> None:
            await flow.sleep("1m")
            await flow.step(fails)

        await flow.gather(first(), second())

    run = body.start()
    drain(app)

    assert "dead" == run.state
    assert ["one", "fails", "undo", "undo"] == calls


def test_a_cancellation_is_delivered_once_where_the_run_waits(app: App, calls: Calls):
    """The body can clean up by steps, then the undos run, and the run is cancelled with its reason."""
    one, undo, cleanup = calls.step("one"), calls.step("undo"), calls.step("cleanup")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(one, undo=undo)
        try:
            await flow.sleep("1d")
        except CancelRequested as interrupt:
            calls.append(str(interrupt))
            raise
        finally:
            await flow.step(cleanup)
            await flow.sleep("1m")

    run = body.start()
    drain(app, within="1m")
    assert run.cancel("not wanted")
    drain(app)

    assert ["one", "not wanted", "cleanup", "not wanted", "undo"] == calls
    with pytest.raises(JobCancelled, match=r"not wanted \(one undone\)"):
        run.result("2s")


def test_a_shield_puts_a_cancellation_off(app: App, calls: Calls):
    """Inside a shield no cancellation arrives; it arrives at the first step behind it."""
    one, two = calls.step("one"), calls.step("two")

    @app.workflow()
    async def body(flow: Flow) -> None:
        with flow.shield():
            await flow.sleep("1h")
            await flow.step(one)
        await flow.step(two)

    run = body.start()
    drain(app, within="1m")
    run.cancel()
    drain(app)

    assert ["one"] == calls
    assert "cancelled" == run.state


def test_a_body_can_catch_a_cancellation(app: App, calls: Calls):
    """Bodies that return after a cancellation have succeeded."""
    one = calls.step("one")

    @app.workflow()
    async def body(flow: Flow) -> int:
        try:
            await flow.wait_for("never")
        except CancelRequested:
            return await flow.step(one, 1)
        return 0

    run = body.start()
    drain(app)
    run.cancel()
    drain(app)

    assert 1 == run.result("2s")


def test_a_cancellation_reaches_every_branch(app: App, calls: Calls):
    """Each branch receives the cancellation, and the gather raises it."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def branch(name: str) -> None:
            try:
                await flow.sleep("1h")
            except CancelRequested:
                calls.append(name)
                raise

        try:
            await flow.gather(branch("a"), branch("b"))
        except CancelRequested:
            calls.append("body")
            raise

    run = body.start()
    drain(app, within="1m")
    run.cancel()
    drain(app)

    assert ["a", "b", "body"] == calls
    assert "cancelled" == run.state


def test_a_cancellation_reaches_child_runs(app: App, calls: Calls):
    """Children that a run waits for are cancelled with it."""

    @app.workflow()
    async def child(flow: Flow) -> None:
        try:
            await flow.sleep("1h")
        except CancelRequested:
            calls.append("child")
            raise

    @app.workflow()
    async def parent(flow: Flow) -> None:
        await flow.call(child)

    run = parent.start(id="p")
    drain(app, within="1m")
    run.cancel()
    drain(app)

    assert ["child"] == calls
    assert ["cancelled", "cancelled"] == [run.state, app.runs.get("child", "parent/p/1").state]


def test_a_second_cancellation_ends_the_run_at_once(app: App, calls: Calls):
    """While undos run a first cancellation changes nothing, and a second one ends the run."""
    one = calls.step("one")
    undo = calls.step("undo", *(OSError("a") for _ in range(9)))
    fails = calls.step("fails", OSError("no route"))

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(one, undo=undo, retry="9 1h")
        await flow.step(fails)

    run = body.start()
    drain(app, within="30m")
    assert 1 == calls.count("undo")
    run.cancel("enough")
    drain(app, within="2h")
    assert 2 <= calls.count("undo")
    count = calls.count("undo")
    run.cancel("now")
    drain(app)

    assert "cancelled" == run.state
    assert count == calls.count("undo")


def test_a_run_that_passes_its_deadline_takes_its_steps_back(app: App, calls: Calls):
    """Runs with a deadline are dead after it, and their undos run."""
    one, undo = calls.step("one"), calls.step("undo")

    @app.workflow(deadline="1h")
    async def body(flow: Flow) -> None:
        await flow.step(one, undo=undo)
        await flow.sleep("2h")

    run = body.start()
    drain(app)

    assert ["one", "undo"] == calls
    assert "dead" == run.state
    assert "the deadline of the run has passed (one undone)" == run.job.refresh().record.error


@pytest.mark.parametrize("kind", ["gather", "first"])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_step_of_a_dropped_branch_that_has_ended_is_undone(  # noqa: C901, PLR0915 - one run, in both colours
    tmp_path: Path, kind: str, *, is_async: bool
):
    """Functions in threads end after their branch was dropped; their steps are recorded, and undone with the others."""
    app = App(f"sqlite:///{tmp_path}/runs.db?synchronous=normal")
    started, dropped = threading.Event(), threading.Event()
    done: list[str] = []

    def book() -> str:
        started.set()
        assert dropped.wait(20)
        done.append("booked")
        return "room"

    def cancel(room: str) -> None:
        done.append(f"cancelled {room}")

    def fails() -> None:
        assert started.wait(20)
        raise GiveUp("full")

    def free() -> None:
        dropped.set()
        raise GiveUp("full")

    def wins() -> bool:
        return started.wait(20)

    def branches(flow: Any) -> tuple[Any, Any]:
        return lambda: flow.step(book, undo=cancel), lambda: flow.step(wins if kind == "first" else fails)

    if is_async:

        @app.workflow()
        async def body(flow: Flow) -> None:
            run_all = flow.first if kind == "first" else flow.gather
            try:
                await run_all(*(each() for each in branches(flow)))
            except GiveUp:
                dropped.set()
                raise
            await flow.step(free)

    else:

        @app.workflow()
        def body(flow: SyncFlow) -> None:
            run_all = flow.first if kind == "first" else flow.gather
            try:
                run_all(*branches(flow))
            except GiveUp:
                dropped.set()
                raise
            flow.step(free)

    run = body.start()
    _work_until_dead(app, run)

    assert ("dead", ["booked", "cancelled room"]) == (run.state, done)
    assert {"1.0.1": "ok", "u1.0.1": "ok"} == {
        row.path: row.outcome for row in run.timeline() if row.path.endswith("1.0.1")
    }
    app.close()


def _work_until_dead(app: App, run: Run[Any]) -> None:
    """Run a worker until a run is dead."""

    async def work() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        with contextlib.suppress(JobDead):
            await run.aresult("30s")
        worker.stop()
        await running

    asyncio.run(work())


LIMITS = ("of the step", "of a try", "that the body catches", "of the attempt")


@pytest.mark.parametrize(
    ("limit", "is_async"),
    [("in the body", True), *((limit, is_async) for limit in LIMITS for is_async in (True, False))],
)
def test_a_function_that_returns_after_a_time_limit_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, *, is_async: bool
):
    """Functions in threads end after their time limit, or after that of their attempt, and are undone with the run."""
    app = App(f"sqlite:///{tmp_path}/runs.db?synchronous=normal")
    over = threading.Event()
    done: list[str] = []
    _note_calls(monkeypatch, _Thread, "ended", over)
    _note_calls(monkeypatch, Pass, "_finish_all", over)

    def book() -> str:
        assert over.wait(20)
        done.append("booked")
        return "room"

    def cancel(room: str) -> None:
        done.append(f"cancelled {room}")

    options: dict[str, Any] = {"undo": cancel, "retry": "1 0s" if limit == "of a try" else None}
    if limit not in ("of the attempt", "in the body"):
        # The function waits for its end; the undo has the same limit, and a busy machine.
        options["timeout"] = "400ms"
    caught = (TimeoutError,) if limit == "that the body catches" else ()
    # The step has begun by then.
    timeout = "1s" if limit == "of the attempt" else None

    @app.workflow(timeout=timeout)
    async def body(flow: Flow) -> None:
        with contextlib.suppress(*caught):
            async with asyncio.timeout(0.02 if limit == "in the body" else None):
                await flow.step(book, **options)
        raise GiveUp("full")

    @app.workflow(timeout=timeout)
    def plain(flow: SyncFlow) -> None:
        with contextlib.suppress(*caught):
            flow.step(book, **options)
        raise GiveUp("full")

    run = (body if is_async else plain).start()
    _work_until_dead(app, run)

    tries = 2 if limit == "of a try" else 1
    assert ("dead", [*["booked"] * tries, "cancelled room"]) == (run.state, done)
    assert "ok" == next(row.outcome for row in run.timeline() if row.path == "u1")
    app.close()


@pytest.mark.parametrize("error", [TimeoutError, OSError])
def test_a_function_that_fails_after_its_time_limit_leaves_nothing_to_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
):
    """An error of the function itself, also a time limit of its own, is no function that still runs."""
    app = App(f"sqlite:///{tmp_path}/runs.db?synchronous=normal")
    over = threading.Event()
    done: list[str] = []
    _note_calls(monkeypatch, _Thread, "ended", over)

    def book() -> str:
        assert over.wait(20)
        raise error("the hotel does not answer")

    def cancel(room: str) -> None:
        done.append(f"cancelled {room}")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=cancel, timeout="20ms")

    run = body.start()
    _work_until_dead(app, run)

    assert ("dead", []) == (run.state, done)
    assert "still runs" not in caplog.text
    app.close()


def test_a_result_that_comes_after_the_time_limit_and_cannot_be_stored_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The step has failed because of its result then, and is not tried again."""
    app = App(f"sqlite:///{tmp_path}/runs.db?synchronous=normal")
    over = threading.Event()
    done: list[Any] = []
    room = object()
    _note_calls(monkeypatch, _Thread, "ended", over)

    def book() -> str:
        assert over.wait(20)
        done.append("booked")
        return room  # type: ignore[return-value]

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=done.append, timeout="20ms", retry="1 0s")

    run = body.start()
    _work_until_dead(app, run)

    assert ("dead", ["booked", room]) == (run.state, done)
    app.close()


def _note_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, called: threading.Event) -> None:
    """Set an event at each call of a method."""
    method = getattr(owner, name)

    async def noted(self: Any) -> Any:
        called.set()
        return await method(self)

    monkeypatch.setattr(owner, name, noted)
