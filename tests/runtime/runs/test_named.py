"""Named calls: libraries with asyncio tasks in the body of a workflow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import redrive
from redrive import App, Flow
from redrive.engine.runs import StepKind, StepOutcome
from redrive.testing import drain
from tests.runtime.runs.conftest import every_store, turn


class Steps(Counter[str]):
    """Named steps, and how often each has ended; the first tries of some fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: Counter[str] = Counter()

    def call(self, flow: Flow, name: str, fail: int = 0, retry: str | None = "5 1h") -> Awaitable[str]:
        """Return a named call that returns its name."""

        async def body() -> str:
            await turn()
            if self.failed[name] < fail:
                self.failed[name] += 1
                raise OSError(f"{name} is down")
            self[name] += 1
            return f"{name}!"

        return flow.named(name).step(body, retry=retry)

    def once(self) -> bool:
        """Return True if no step has ended twice."""
        return set(self.values()) <= {1}


@pytest.fixture
def steps() -> Steps:
    """Return no steps."""
    return Steps()


Body = Callable[[Flow, Steps], Awaitable[Any]]


async def _gathered(flow: Flow, steps: Steps) -> list[str]:
    return list(await asyncio.gather(*[steps.call(flow, f"g{each}", each % 2) for each in range(4)]))


async def _grouped(flow: Flow, steps: Steps) -> list[str]:
    async def one(number: int) -> str:
        first = await steps.call(flow, f"t{number}", number % 2)
        return first + await steps.call(flow, f"u{number}", (number + 1) % 2)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in range(4)]
    return [each.result() for each in tasks]


async def _streamed(flow: Flow, steps: Steps) -> list[str]:
    out = []
    send, receive = anyio.create_memory_object_stream[str](0)

    async def produce(number: int, stream: Any) -> None:
        async with stream:
            await stream.send(await steps.call(flow, f"a{number}", number % 2))

    async with anyio.create_task_group() as group, receive:
        for each in range(4):
            group.start_soon(produce, each, send.clone())
        send.close()
        async for each in receive:
            out.append(await steps.call(flow, f"got {each}", 1))  # noqa: PERF401 - one after the other
    return sorted(out)


async def _queued(flow: Flow, steps: Steps) -> list[str]:
    todo: asyncio.Queue[int] = asyncio.Queue()
    done = []

    async def work() -> None:
        while True:
            number = await todo.get()
            done.append(await steps.call(flow, f"q{number}", number % 2))
            todo.task_done()

    workers = [asyncio.create_task(work()) for _ in range(3)]
    for each in range(6):
        todo.put_nowait(each)
    await todo.join()
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return sorted(done)


async def _shielded(flow: Flow, steps: Steps) -> list[str]:
    got = []

    async def put(number: int) -> None:
        try:
            got.append(await steps.call(flow, f"n{number}", number % 2))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await turn()
            raise
        finally:
            await turn()

    with anyio.CancelScope():
        async with anyio.create_task_group() as group:
            for each in range(4):
                group.start_soon(put, each)
    return sorted(got)


async def _mixed(flow: Flow, steps: Steps) -> list[str]:
    async def branch(number: int) -> list[str]:
        return list(await asyncio.gather(*[steps.call(flow, f"m{number}{each}", each) for each in range(2)]))

    parts = await flow.gather(branch(0), branch(1))
    await flow.sleep("1h")
    return [*(each for part in parts for each in part), await steps.call(flow, "last", 1)]


WANTED: dict[Body, list[str]] = {
    _gathered: [f"g{each}!" for each in range(4)],
    _grouped: [f"t{each}!u{each}!" for each in range(4)],
    _streamed: sorted(f"got a{each}!!" for each in range(4)),
    _queued: [f"q{each}!" for each in range(6)],
    _shielded: [f"n{each}!" for each in range(4)],
    _mixed: ["m00!", "m01!", "m10!", "m11!", "last!"],
}


@every_store
@pytest.mark.parametrize("body", WANTED, ids=lambda body: body.__name__.strip("_"))
def test_libraries_with_tasks_run_in_a_body(app: App, steps: Steps, body: Body):
    """Tasks, groups, streams, queues and shields go on after a park, and no step has ended twice."""
    passes = []

    @app.workflow()
    async def work(flow: Flow) -> list[str]:
        passes.append(flow.parking)
        result: list[str] = await body(flow, steps)
        return result

    run = work.start()
    drain(app)

    assert WANTED[body] == run.result("2s")
    assert steps.once()
    assert len(passes) >= 2
    rows = [row for row in run.timeline() if row.path.startswith("@")]
    assert [row.seq for row in rows] == sorted(row.seq or 0 for row in rows)


@every_store
def test_a_signal_comes_beside_a_retry(app: App, steps: Steps):
    """A named wait and a named step wait at once; the signal ends the first, the time the second."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(_awaited(flow.named("approve").wait_for("ok", str)))
            beside = group.create_task(_awaited(steps.call(flow, "beside", 2)))
        return asked.result() + beside.result()

    run = body.start()
    drain(app)
    run.signal("ok", "yes ")
    drain(app)

    assert run.result("2s") == "yes beside!"
    assert steps.once()
    assert [(row.kind, row.name) for row in run.timeline()] == [(StepKind.STEP, "beside"), (StepKind.WAIT, "ok")]


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


def test_the_flow_is_found_in_every_task_of_a_body(app: App):
    """`current_flow` returns the flow in the body and its tasks, and None in steps and outside."""
    found: list[object] = []

    @app.workflow()
    async def body(flow: Flow) -> list[bool]:
        async def look() -> bool:
            return redrive.current_flow() is flow

        async def inside() -> None:
            found.append(redrive.current_flow())

        def in_thread() -> None:
            found.append(redrive.current_flow())

        await flow.step(inside)
        await flow.named("thread").step(in_thread)
        return [await look(), await asyncio.create_task(look()), *await flow.gather(look())]

    run = body.start()
    drain(app)

    assert run.result("2s") == [True, True, True]
    assert found == [None, None]
    assert redrive.current_flow() is None


def test_a_step_that_the_body_has_cut_off_is_recorded_and_cut_off_again(app: App, steps: Steps):
    """A time limit of asyncio ends the step in each pass; its function is called once."""
    begun = []

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def slow() -> None:
            begun.append(1)
            await asyncio.Event().wait()

        try:
            async with asyncio.timeout(0.01):
                await flow.named("slow").step(slow)
        except TimeoutError:
            await flow.named("pause").sleep("1h")
        return await steps.call(flow, "after", 1)

    run = body.start()
    drain(app)

    assert run.result("2s") == "after!"
    assert begun == [1]
    assert [(row.name, row.outcome) for row in run.timeline()] == [
        ("pause", StepOutcome.OK),
        ("after", StepOutcome.OK),
        ("slow", StepOutcome.DROPPED),
    ]


def test_a_body_that_swallows_the_park_is_held(app: App, steps: Steps):
    """A task that turns the cancellation into a value would go on with a wrong state."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def swallowing() -> str:
            try:
                return await steps.call(flow, "step", 1)
            except BaseException:  # noqa: BLE001 - the fault
                return "wrong"

        return await asyncio.create_task(swallowing())

    run = body.start()
    drain(app, within="1s")

    assert "ParkingSwallowed" in (run.record.held or "")


@pytest.mark.parametrize("change", ["renamed", "removed", "added", "inputs"])
def test_changed_code_is_held_and_runs_nothing(app: App, steps: Steps, change: str):
    """A renamed, removed or added named step holds the run before anything is run, and the old code goes on."""
    code = {"new": False}

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def one(number: int) -> str:
            changed = code["new"] and number == 1
            name = "renamed" if changed and change == "renamed" else f"x{number}"
            first = ""
            if changed and change == "inputs":
                first = await flow.named(name, inputs=[1]).step(lambda: steps.update(["inputs"]))
            elif not (changed and change == "removed"):
                first = await steps.call(flow, name)
            if changed and change == "added":
                first += await steps.call(flow, "added")
                await asyncio.Event().wait()
            if number == 0:
                await flow.named("go").wait_for("go")
            return first + await steps.call(flow, f"y{number}")

        return "".join(await asyncio.gather(*[one(each) for each in range(3)]))

    run = body.start()
    drain(app)
    before = dict(steps)
    run.signal("go")
    code["new"] = True
    drain(app, within="1s")

    assert dict(steps) == before
    assert "Nothing was run" in (run.record.held or "")
    code["new"] = False
    drain(app)
    assert run.result("2s") == "x0!y0!x1!y1!x2!y2!"
    assert steps.once()
