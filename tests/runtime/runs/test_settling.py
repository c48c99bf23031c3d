"""When a body with named calls gives its worker back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Flow, GiveUp
from redrive.engine.lifecycle import FINAL
from redrive.engine.runs import StepOutcome
from redrive.errors import ConfigurationError, IllegalMove
from redrive.runtime.runs import keyed
from redrive.runtime.worker import Worker
from redrive.testing import drain

pytestmark = pytest.mark.realtime


def work(app: App, **options: Any) -> None:
    """Run a worker of real time until all runs have ended."""

    async def run() -> None:
        worker = Worker(app, **options)
        running = asyncio.create_task(worker.run())
        runs = [app.runs.get(each.workflow, each.id) for each in await app.runs.aselect()]
        while [each for each in runs if await each.astate() not in FINAL]:  # noqa: ASYNC110 - of the database
            await asyncio.sleep(0.02)  # noqa: TID251 - real time is the subject
        worker.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.fixture
def timed(tmp_path: Path) -> App:
    """Return an app with the system's clock."""
    return App(f"sqlite:///{tmp_path}/runs.db?synchronous=normal")


def shaky(fails: int) -> Callable[[], Awaitable[int]]:
    """Return the function of a step that fails so often before it returns the number of its tries."""
    tries = []

    async def act() -> int:
        tries.append(1)
        if len(tries) <= fails:
            raise OSError("down")
        return len(tries)

    return act


def test_short_waits_are_kept_in_memory(timed: App):
    """Retries after some hundred milliseconds take one pass, as long as they are shorter than `linger`."""
    passes = []
    steps = [shaky(2) for _ in range(3)]

    @timed.workflow()
    async def body(flow: Flow) -> list[int]:
        passes.append(1)
        calls = [flow.named(str(place)).step(act, retry="5 100ms") for place, act in enumerate(steps)]
        return list(await asyncio.gather(*calls))

    run = body.start()
    work(timed)

    assert run.result("5s") == [3, 3, 3]
    assert passes == [1]


def test_no_wait_is_kept_if_none_may_linger(timed: App):
    """With `linger` zero each wait gives the worker back."""
    passes = []
    act = shaky(1)

    @timed.workflow()
    async def body(flow: Flow) -> int:
        passes.append(1)
        return await flow.named("shaky").step(act, retry="5 100ms")

    run = body.start()
    work(timed, linger=timedelta(0))

    assert run.result("5s") == 2
    assert passes == [1, 1]
    with pytest.raises(ConfigurationError, match="linger"):
        Worker(timed, linger=timedelta(seconds=-1))


def test_a_body_that_needs_longer_to_come_to_its_next_call_has_longer(timed: App):
    """A pass without a new row doubles the time for which the body settles in this worker."""
    passes = []

    @timed.workflow()
    async def body(flow: Flow) -> str:
        passes.append(1)

        async def act() -> None:
            never.cancel()

        never = asyncio.ensure_future(flow.named("never").wait_for("never"))
        await asyncio.sleep(0.3)  # noqa: TID251 - a body that does something of its own
        await flow.named("late").step(act)
        return "done"

    async def run() -> str:
        worker = Worker(timed)
        running, started = asyncio.create_task(worker.run()), await body.astart()
        while await started.astate() != "succeeded":
            await asyncio.sleep(0.2)  # noqa: TID251 - as above
            with contextlib.suppress(IllegalMove):
                await started.job.aretry()
        worker.stop()
        await running
        return await started.aresult("1s")

    assert asyncio.run(asyncio.wait_for(run(), 30)) == "done"
    assert len(passes) > 3


def test_code_that_waits_for_what_it_cut_off_before_is_held(app: App, monkeypatch: pytest.MonkeyPatch):
    """The step was dropped after a time limit, and the code has no limit now."""
    monkeypatch.setattr(keyed, "HELD_AFTER", 0.2)
    limits = [0.01]

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def slow() -> None:
            await asyncio.Event().wait()

        try:
            async with asyncio.timeout(limits[0] if limits else None):
                await flow.named("slow").step(slow)
        except TimeoutError:
            limits.clear()
            await flow.named("pause").sleep("1h")
        return "done"

    run = body.start()
    drain(app, within="3h")

    assert "the code has cut off step" in (run.record.held or "") or "does not ask for it" in (run.record.held or "")
    assert [row.outcome for row in run.timeline()] == [StepOutcome.DROPPED, StepOutcome.WAITING]


def test_a_thread_that_the_body_has_cut_off_keeps_its_effect(timed: App):
    """A `def` function ends after its call was cut off: what it returns is undone if the run fails."""
    undone: list[object] = []
    go = threading.Event()

    @timed.workflow()
    async def body(flow: Flow) -> None:
        def slow() -> int:
            go.wait(5)
            return 7

        task = asyncio.ensure_future(flow.named("slow").step(slow, undo=undone.append))
        await flow.named("short").step(shaky(0))
        task.cancel()
        go.set()
        await asyncio.wait({task})
        await flow.named("pause").sleep("1200ms")
        raise GiveUp("no")

    run = body.start()
    work(timed)

    assert run.state == "dead"
    assert undone == [7]
    (row,) = (each for each in run.timeline() if each.name == "slow")
    assert (row.outcome, row.result) == (StepOutcome.DROPPED, b"7")


def test_a_long_time_limit_of_the_body_is_waited_for_in_a_replay(app: App, monkeypatch: pytest.MonkeyPatch):
    """The row of what was cut off has its time, so that nothing is held while the limit runs again."""
    monkeypatch.setattr(keyed, "HELD_AFTER", 0.1)
    passes = []

    @app.workflow()
    async def body(flow: Flow) -> int:
        passes.append(1)

        async def slow() -> None:
            await asyncio.Event().wait()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await flow.named("slow").step(slow)
        first = await flow.named("behind").step(shaky(0))
        await flow.named("pause").sleep("1h")
        return first

    run = body.start()
    drain(app)

    assert run.result("2s") == 1
    assert passes == [1, 1]


def test_a_worker_that_stops_drops_nothing(timed: App):
    """The stop of a worker cuts off every task of a body; the next worker takes the open steps anew."""
    begun: list[int] = []

    @timed.workflow()
    async def body(flow: Flow) -> list[int]:
        async def slow() -> int:
            begun.append(1)
            if len(begun) <= 2:
                await asyncio.Event().wait()
            return len(begun)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_awaited(flow.named("slow").step(slow))) for _ in range(2)]
        return [each.result() for each in tasks]

    async def stop() -> None:
        worker = Worker(timed, shutdown_timeout=timedelta(0))
        running = asyncio.create_task(worker.run())
        while len(begun) < 2:  # noqa: ASYNC110 - of the function of a step
            await asyncio.sleep(0.02)  # noqa: TID251 - of the function of a step
        worker.stop()
        await running

    run = body.start()
    asyncio.run(asyncio.wait_for(stop(), 30))
    assert run.timeline() == ()
    work(timed)

    assert sorted(run.result("5s")) == [3, 4]
    assert [row.outcome for row in run.timeline()] == [StepOutcome.OK] * 2


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call
