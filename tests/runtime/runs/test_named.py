"""Named calls: libraries with asyncio tasks in the body of a workflow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

import redrive
from redrive import App, CancelRequested, Flow, GiveUp
from redrive.engine.runs import StepKind, StepOutcome
from redrive.errors import ConfigurationError, FlowMisused, NonDeterminism, PayloadError, TimedOut
from redrive.stores.query import Query, Statements, writes
from redrive.testing import drain, replay
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


# ------------------------------------------------------------------------------------------------ what else may happen


async def _three(flow: Flow, steps: Steps, last: Callable[[], Awaitable[Any]], undone: list[str]) -> list[str]:
    """Take three steps with undos at once, then do something else beside a task that never ends."""

    async def idle() -> None:
        await asyncio.Event().wait()

    def undo(name: str) -> None:
        undone.append(name)

    async def one(name: str) -> str:
        async def act() -> str:
            for _ in range(3 * ord(name) - 290):
                await turn()
            steps[name] += 1
            return name

        return await flow.named(name).step(act, undo=undo)

    task = asyncio.create_task(idle())
    found = list(await asyncio.gather(*map(one, "cab")))
    await last()
    task.cancel()
    return found


@every_store
def test_named_steps_are_taken_back_in_the_reverse_order_of_their_ends(app: App, steps: Steps):
    """A later pass that goes on with the undos replays the body, and ends its tasks."""
    undone: list[str] = []

    @app.workflow(retry="1 1s")
    async def body(flow: Flow) -> None:
        async def bad() -> None:
            raise GiveUp("no seat")

        def undo_first(_: None) -> None:
            undone.append("first")
            if undone.count("first") < 2:
                raise OSError("closed")

        async def last() -> None:
            await flow.named("pause").sleep("1h")
            await flow.named("first").step(turn, retry="2 1h", undo=undo_first)
            async with asyncio.TaskGroup() as group:
                group.create_task(_awaited(flow.named("bad").step(bad)))
                group.create_task(_awaited(flow.named("beside").sleep("2h")))

        await _three(flow, steps, last, undone)

    run = body.start()
    drain(app)

    assert run.state == "dead"
    assert undone == ["first", "first", "c", "b", "a"] == [*undone[:2], *reversed(["a", "b", "c"])]
    assert steps.once()


@every_store
def test_a_cancellation_arrives_in_every_open_call(app: App, steps: Steps):
    """Each task receives it once, cleans up by named steps, and the run is cancelled with its undos."""
    undone: list[str] = []
    cleaned: list[str] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def wait(name: str) -> None:
            try:
                await flow.named(name).wait_for(name)
            except CancelRequested:
                cleaned.append(await flow.named("clean", inputs=name).step(lambda: name))
                raise

        async def last() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait("one"))
                group.create_task(wait("two"))

        await _three(flow, steps, last, undone)

    run = body.start()
    drain(app)
    run.cancel("not needed")
    drain(app)

    assert run.state == "cancelled"
    assert {"one", "two"} >= set(cleaned)
    assert cleaned
    assert sorted(undone) == ["a", "b", "c"]


@every_store
def test_a_paused_run_goes_on_with_its_tasks(app: App, steps: Steps):
    """A pause holds every task at its next call."""

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        async def one(name: str) -> str:
            await flow.named(name).sleep("1h")
            return await steps.call(flow, name)

        return list(await asyncio.gather(one("a"), one("b")))

    run = body.start()
    drain(app, within="1m")
    run.pause()
    drain(app, within="2h")
    assert not steps
    run.resume()
    drain(app)

    assert run.result("2s") == ["a!", "b!"]


@every_store
def test_a_fork_begins_at_a_named_step(app: App, steps: Steps):
    """It has the ends that the body had received before, and executes the others anew."""

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        async def one(name: str) -> str:
            return await steps.call(flow, f"{name}1") + await steps.call(flow, f"{name}2", name == "b")

        return list(await asyncio.gather(one("a"), one("b")))

    run = body.start()
    drain(app)
    fork = run.fork("a2", id="again")
    drain(app)

    assert fork.result("2s") == run.result("2s") == ["a1!a2!", "b1!b2!"]
    assert steps["a1"] == steps["b1"] == 1
    assert steps["a2"] == 2


def test_a_history_with_named_calls_is_replayed(app: App, steps: Steps):
    """The code of an app is compared with an exported run, finished or not, and another name is found."""
    names = {"last": "last"}

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        async def idle() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(idle())
        found = list(await asyncio.gather(*[steps.call(flow, each) for each in "ab"]))
        async with asyncio.TaskGroup() as group:
            group.create_task(_awaited(flow.named("go").wait_for("go")))
        found.append(await steps.call(flow, names["last"]))
        task.cancel()
        return found

    run = body.start()
    drain(app)
    replay(app, run.history())
    run.signal("go")
    drain(app)
    assert '"form": 1' in run.history().to_json()
    replay(app, run.history().to_json())

    names["last"] = "other"
    with pytest.raises(NonDeterminism, match=r"`last`; the code now asks for `other` \(.*test_named.py:"):
        replay(app, run.history())


@every_store
def test_a_child_that_is_cut_off_is_cancelled(app: App, steps: Steps):
    """A race that another call has won drops the child run, and its row has the run."""
    passes = []

    @app.workflow()
    async def child(flow: Flow) -> None:
        await flow.sleep("10d")

    @app.workflow()
    async def body(flow: Flow) -> str:
        passes.append(1)
        called = asyncio.ensure_future(flow.named("child").call(child))
        await asyncio.wait(
            {called, asyncio.ensure_future(flow.named("pause").sleep("1h"))}, return_when="FIRST_COMPLETED"
        )
        called.cancel()
        await asyncio.wait({called})
        await flow.named("pause").sleep("1h")
        return await steps.call(flow, "last")

    run = body.start()
    drain(app)

    assert run.result("2s") == "last!"
    (row,) = (each for each in run.timeline() if each.kind is StepKind.CALL)
    assert (row.outcome, child.run(run.job and app.runs.select(workflow="child")[0].id).state) == (
        StepOutcome.DROPPED,
        "cancelled",
    )


def test_a_recorded_failure_in_a_group_is_final(app: App):
    """Another attempt of the run would raise it again, so that its policy does not try."""
    passes = []

    @app.workflow(retry="5 1s")
    async def body(flow: Flow) -> None:
        passes.append(1)

        async def bad() -> None:
            raise OSError("down")

        async with asyncio.TaskGroup() as group:
            group.create_task(_awaited(flow.named("bad").step(bad)))

    run = body.start()
    drain(app)

    assert run.state == "dead"
    assert passes == [1]


def test_an_error_of_the_code_drops_nothing_for_good(app: App, steps: Steps):
    """What an unrecorded error has cut off is taken anew in the next attempt of the run."""
    passes = []

    @app.workflow(retry="5 1s")
    async def body(flow: Flow) -> str:
        passes.append(1)

        async def fails() -> None:
            await flow.named("short").sleep("1s")
            if len(passes) < 3:
                raise ValueError("of the code")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(_awaited(steps.call(flow, "beside", 1)))
            group.create_task(fails())
        return task.result()

    run = body.start()
    drain(app)

    assert run.result("2s") == "beside!"
    assert [row.outcome for row in run.timeline()] == [StepOutcome.OK] * 2


def test_a_dead_run_starts_again_without_what_its_failure_has_cut_off(app: App, steps: Steps):
    """The failed step and those that it has cut off are taken anew."""
    down = [True]

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def shaky() -> None:
            if down:
                raise OSError(f"down {down.pop()}")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(_awaited(steps.call(flow, "beside", 1)))
            group.create_task(_awaited(flow.named("shaky").step(shaky)))
        return task.result()

    run = body.start()
    drain(app)
    assert run.state == "dead"
    run.job.retry()
    drain(app)

    assert run.result("2s") == "beside!"


def test_rows_that_a_failover_has_lost_are_executed_anew(app: App, steps: Steps):
    """A database loses the last rows: their steps are called again, and the others are not."""

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        async def one(name: str) -> str:
            return await steps.call(flow, f"{name}1") + await steps.call(flow, f"{name}2")

        found = list(await asyncio.gather(one("a"), one("b")))
        await flow.named("go").wait_for("go")
        return found

    run = body.start()
    drain(app)
    rows = [row for row in run.timeline() if row.kind is StepKind.STEP]
    # It was written last.
    lost = [row.path for row in run.timeline()[2:]]
    app.store.run(_lose(run.job.id, lost))
    run.job.retry()
    run.signal("go")
    drain(app)

    assert run.result("2s") == ["a1!a2!", "b1!b2!"]
    assert [steps[row.name] for row in rows] == [1, 1, 2, 2]


@writes
def _lose(run_id: int, paths: list[str]) -> Statements[None]:
    yield Query("steps_again", {"run_id": run_id, "paths": paths})


def test_tasks_that_a_body_leaves_over_are_cancelled(app: App, steps: Steps):
    """They end with the pass, and what they wait for is not recorded."""
    ends: list[str] = []

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def left() -> None:
            try:
                await flow.named("never").wait_for("never")
            finally:
                ends.append(flow.named("x").__repr__())
                with pytest.raises(FlowMisused, match="after the branch has ended"):
                    await flow.named("late").sleep("1s")

        task = asyncio.create_task(left())
        result = await steps.call(flow, "step")
        assert not task.done()
        return result

    run = body.start()
    drain(app)

    assert run.result("2s") == "step!"
    assert ends == ["<calls of flow with the name 'x'>"]
    assert [row.name for row in run.timeline() if row.is_final] == ["step"]


def test_a_named_call_belongs_into_a_task_of_the_body(app: App):
    """Steps and threads make none, and each is awaited once."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def inner() -> None:
            await flow.named("inner").sleep("1s")

        def in_thread() -> None:
            asyncio.run(inner())

        with pytest.raises(FlowMisused, match="a step inside the step 'outer'"):
            await flow.named("outer").step(inner)
        with pytest.raises(FlowMisused, match="outside of the body"):
            await asyncio.to_thread(in_thread)
        call = flow.named("twice").sleep("1s")
        await call
        with pytest.raises(FlowMisused, match="can be awaited once"):
            await call

    run = body.start()
    drain(app)
    assert run.result("2s") is None


def test_names_and_inputs_are_checked(app: App):
    """A name is a text, and inputs can be written as JSON."""

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        with pytest.raises(ConfigurationError, match="colon"):
            flow.named(":cancel")
        with pytest.raises(PayloadError, match=r"flow.named\('x'\): inputs"):
            flow.named("x", inputs=object())
        with pytest.raises(PayloadError):
            flow.named("x", inputs={1, 2})
        same = [flow.named("sum", inputs={"b": 1, "a": 2}), flow.named("sum", inputs={"a": 2, "b": 1})]
        return [await each.step(lambda: 3) for each in same]

    run = body.start()
    drain(app)

    assert run.result("2s") == [3, 3]
    assert len({row.path.partition(".")[0] for row in run.timeline()}) == 1


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_a_transaction_has_a_name_and_a_place_in_the_order(app: App, steps: Steps):
    """Its row and its effect commit together."""

    @app.workflow()
    async def body(flow: Flow) -> list[Any]:
        def write(connection: Any, number: int) -> int:
            connection.execute("CREATE TABLE IF NOT EXISTS mine (number INTEGER)")
            connection.execute("INSERT INTO mine VALUES (?)", (number,))
            return number

        async def awrite(connection: Any) -> int:
            del connection
            return 5

        return list(
            await asyncio.gather(
                flow.named("write").transaction(write, 3),
                flow.named("awrite").transaction(awrite),
                steps.call(flow, "beside", 1),
            )
        )

    run = body.start()
    drain(app)

    assert run.result("2s") == [3, 5, "beside!"]
    assert [1, 2, 3] == [row.seq for row in run.timeline()]


def test_events_and_timeouts_of_waits_are_received_in_tasks(app: App):
    """An emitted value, a time limit of a signal, and a sleep until an instant."""

    @app.workflow()
    async def body(flow: Flow) -> list[Any]:
        async def late() -> str:
            try:
                return await flow.named("never").wait_for("never", str, timeout="1h")
            except TimedOut:
                return "late"

        until = flow.now() + timedelta(hours=2)
        return list(
            await asyncio.gather(
                flow.named("ready").wait_for_event("ready", int), late(), flow.named("until").sleep_until(until)
            )
        )

    run = body.start()
    drain(app, within="1m")
    app.emit("ready", 3)
    drain(app)

    assert run.result("2s") == [3, "late", None]


def test_an_unawaited_named_call_is_logged(app: App, caplog: pytest.LogCaptureFixture):
    """A task may have been cancelled before it came to it, so that it is no error."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        flow.named("forgotten").sleep("1s")
        return 3

    run = body.start()
    drain(app)

    assert run.result("2s") == 3
    assert "never awaited" in caplog.text


@every_store
@pytest.mark.parametrize("method", ["first", "gather"])
def test_a_branch_with_named_calls_loses(app: App, steps: Steps, method: str):
    """A loser whose tasks never end by themselves is dropped in each replay, and its open call is not taken again."""
    begun = []

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def loser() -> str:
            async def slow() -> None:
                begun.append(1)
                await asyncio.Event().wait()

            await steps.call(flow, "one")
            worker = asyncio.create_task(_awaited(flow.named("slow").step(slow)))
            await asyncio.Event().wait()
            return str(worker)

        async def winner() -> str:
            await flow.named("wait").step(turn)
            result = await steps.call(flow, "two", 1, retry="5 1ms")
            if method == "gather":
                await flow.step(_full)
            return result

        if method == "first":
            _, result = await flow.first(loser(), winner())
        else:
            with pytest.raises(GiveUp):
                await flow.gather(loser(), winner())
            result = "two!"
        await flow.sleep("1h")
        return result + await steps.call(flow, "three", 1)

    run = body.start()
    drain(app)

    assert run.result("2s") == "two!three!"
    assert begun == [1]
    assert steps.once()


async def _full() -> None:
    raise GiveUp("full")


@every_store
def test_a_signal_is_received_once_across_a_restart(app: App):
    """What a named wait has received belongs to the epoch that ends."""

    @app.workflow()
    async def body(flow: Flow, got: list[int]) -> list[int]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_awaited(flow.named("n").wait_for("n", int)))
        got = [*got, task.result()]
        if len(got) < 3:
            flow.restart(got)
        return got

    run = body.start([])
    for each in range(3):
        run.signal("n", each)
    drain(app)

    assert run.result("2s") == [0, 1, 2]
