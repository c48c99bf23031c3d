"""Branches: gather, map and first."""

from __future__ import annotations

import asyncio
import inspect
import random  # noqa: TID251 - seeded
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import json

from redrive import App, Flow, GiveUp, SyncFlow
from redrive.engine.steps import StepEnd
from redrive.errors import JobDead
from redrive.runtime.runs.recorder import StoreRecorder
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, every_store, turn


def test_a_gather_returns_the_results_of_its_branches_in_their_order(app: App):
    """Branches that wait for different times are joined in their order."""

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        async def branch(name: str, span: str) -> str:
            await flow.sleep(span)
            return name

        return await flow.gather(branch("a", "3h"), branch("b", "1h"), branch("c", "2h"))

    run = body.start()

    assert timedelta(hours=3) == drain(app).took
    assert ["a", "b", "c"] == run.result("2s")
    assert ["1.0.1", "1.1.1", "1.2.1"] == [row.path for row in run.timeline()]


def test_branches_that_a_parked_body_cannot_start_are_closed(app: App):
    """A body that opens branches while it is torn down leaves no coroutine that was never awaited."""
    made: list[Coroutine[Any, Any, None]] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def nothing() -> None:
            """Do nothing."""

        try:
            await flow.sleep("1h")
        finally:
            made.append(nothing())
            await flow.gather(made[-1])

    run = body.start()

    assert timedelta(hours=1) == drain(app).took
    assert run.result("2s") is None
    assert [inspect.CORO_CLOSED] * 2 == [inspect.getcoroutinestate(each) for each in made]


ORDERS = {"memory": 200, "sqlite": 60, "turso": 20, "postgresql": 40}
"""Random orders of branches by the kind of the store."""


@every_store
@pytest.mark.case("W1")
def test_paths_do_not_depend_on_the_order_of_the_branches(app: App, monkeypatch: pytest.MonkeyPatch):
    """Recorded steps ran once, and paths are the same, in any order of the branches and whenever the process dies."""
    executions: Counter[str] = Counter()
    recorded: dict[str, str] = {}
    write = StoreRecorder.record

    async def dying(recorder: StoreRecorder, ends: Sequence[StepEnd], values: bytes | None) -> Any:
        # As for a process that died, nothing of the first pass is written from some row on.
        claim = recorder._claim
        if claim.attempt == 1 and lives[claim.id] <= 0:
            raise OSError("killed")
        lives[claim.id] -= 1
        answer = await write(recorder, ends, values)
        if claim.attempt == 1:
            recorded.update((f"{claim.id} {row.name}", row.result.decode()) for row in answer[0])
        return answer

    @app.workflow(retry="5 1s")
    async def body(flow: Flow, seed: int) -> list[list[str]]:
        chance = random.Random(f"{seed} {len(executions)}")

        def step(name: str) -> Any:
            async def act(run: str) -> str:
                for _ in range(chance.randrange(6)):
                    await turn()
                executions[f"{run} {name}"] += 1
                return f"{name} {executions[f'{run} {name}']}"

            act.__name__ = name
            return act

        async def branch(name: str) -> list[str]:
            run = str(runs[seed].job.id)
            return [await flow.step(step(f"{name}{number}"), run) for number in (1, 2)]

        return await flow.gather(branch("a"), branch("b"), branch("c"), on_error="wait")

    monkeypatch.setattr(StoreRecorder, "record", dying)
    runs = [body.start(seed, id=f"r{seed}") for seed in range(ORDERS[app.url.partition(":")[0]])]
    lives = {run.job.id: random.Random(number).randrange(6) for number, run in enumerate(runs)}
    drain(app)

    paths = {f"1.{branch}.{number}": f"{'abc'[branch]}{number}" for branch in range(3) for number in (1, 2)}
    for run in runs:
        rows = run.timeline()
        assert paths == {row.path: row.name for row in rows}
        assert [each for pair in run.result("2s") for each in pair] == [
            json.decode(row.result) for row in sorted(rows, key=lambda row: row.path)
        ]
    assert {1} == {executions[step] for step in recorded}
    assert recorded == {
        f"{run.job.id} {row.name}": row.result.decode()
        for run in runs
        for row in run.timeline()
        if f"{run.job.id} {row.name}" in recorded
    }
    assert len(runs) < len(recorded) < 6 * len(runs)
    assert max(executions.values()) == 2


@pytest.mark.case("W5")
def test_a_branch_is_retried_while_another_one_works(app: App):
    """Steps that fail in one branch are tried again at their time by the live process; the other is not cut off."""
    began = app.clock.now()
    ran: list[tuple[str, float]] = []
    done = asyncio.Event()

    def note(name: str) -> None:
        ran.append((name, (app.clock.now() - began).total_seconds()))

    async def fails_once() -> None:
        note("a")
        if len(ran) < 3:
            raise OSError("no route")
        done.set()

    async def long() -> str:
        note("b")
        await done.wait()
        return "done"

    @app.workflow()
    async def body(flow: Flow) -> list[str | None]:
        return await flow.gather(flow.step(fails_once, retry="1 5s 5s"), flow.step(long))

    run = body.start()
    drain(app)

    assert [None, "done"] == run.result("2s")
    assert ["a", "b", "a"] == [name for name, _ in ran]
    assert 5.0 <= ran[2][1] < 7.0
    assert 1 == len(run.job.attempts)


def test_the_first_error_drops_the_other_branches(app: App, calls: Calls):
    """By default a gather raises the first error at once; the decision is recorded, and stays so."""
    fails, later = calls.step("fails", OSError("no route")), calls.step("later")

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def slow() -> None:
            await flow.sleep("1h")
            await flow.step(later)

        try:
            await flow.gather(slow(), flow.step(fails))
        except OSError as error:
            await flow.sleep("2h")
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert "no route" == run.result("2s")
    assert ["fails"] == calls
    assert ["1", "1.0.1", "1.1.1", "2"] == [row.path for row in run.timeline()]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("swallows", [False, True])
def test_a_coroutine_in_a_branch_of_a_sync_body_ends_when_its_branch_is_dropped(
    app: App, calls: Calls, *, swallows: bool, nested: bool
):
    """It is cancelled before the body goes on; one that returns all the same is recorded, and undone with the run."""
    after, began = calls.step("after", GiveUp("full")), asyncio.Event()

    async def charge() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append("interrupted")
            if not swallows:
                raise
        return "receipt"

    def refund(receipt: str) -> None:
        calls.append(f"refund {receipt}")

    async def quick() -> None:
        await began.wait()

    @app.workflow()
    def body(flow: SyncFlow) -> None:
        def loses() -> str:
            return flow.step(charge, undo=refund)

        flow.first((lambda: flow.gather(loses)) if nested else loses, lambda: flow.step(quick))
        flow.step(after)

    run = body.start()
    drain(app)

    assert "dead" == run.state
    assert ["interrupted", "after", *["refund receipt"] * swallows] == calls


def test_a_gather_waits_for_all_and_raises_the_first_in_order(app: App, calls: Calls):
    """With `on_error="wait"` all branches end, and the error of the first failed one is raised."""
    one, two, three = calls.step("one", OSError("b")), calls.step("two", OSError("a")), calls.step("three")

    @app.workflow()
    async def body(flow: Flow) -> None:
        async def slow() -> None:
            await flow.sleep("1h")
            await flow.step(one)

        await flow.gather(slow(), flow.step(two), flow.step(three), on_error="wait")

    run = body.start()
    drain(app)

    with pytest.raises(JobDead, match="gave up: b"):
        run.result("2s")
    assert ["two", "three", "one"] == calls


def test_a_gather_collects_errors(app: App, calls: Calls):
    """With `on_error="collect"` errors are in the places of results."""
    one, two = calls.step("one", OSError("no route")), calls.step("two")

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        return [str(each) for each in await flow.gather(flow.step(one), flow.step(two, 2), on_error="collect")]

    run = body.start()
    drain(app)

    assert ["no route", "2"] == run.result("2s")


def test_a_map_runs_so_many_at_once(app: App):
    """Maps start the next item when one has ended, and return results in the order of the items."""
    running: list[int] = []
    most: list[int] = []

    async def work(item: int) -> int:
        running.append(item)
        most.append(len(running))
        await turn()
        running.remove(item)
        return item * 10

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        return await flow.map(work, range(7), at_once=3)

    run = body.start()
    drain(app)

    assert [0, 10, 20, 30, 40, 50, 60] == run.result("2s")
    assert 3 == max(most)


def test_the_winner_of_first_is_recorded(app: App, calls: Calls):
    """The first branch that ends wins in each pass, also when the other one would end earlier in a later pass."""
    fast, slow = calls.step("fast"), calls.step("slow")

    @app.workflow()
    async def body(flow: Flow) -> tuple[int, int]:
        async def late() -> int:
            await flow.sleep("1h")
            return await flow.step(slow, 1)

        winner = await flow.first(late(), flow.step(fast, 2))
        await flow.sleep("3h")
        return winner

    run = body.start()
    drain(app)

    assert (1, 2) == run.result("2s")
    assert ["fast"] == calls


def test_an_empty_gather_is_an_empty_list(app: App):
    """Gathers without branches return at once."""

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        return await flow.gather()

    run = body.start()
    drain(app)

    assert [] == run.result("2s")


def plain(number: int) -> int:
    """Return the number."""
    return number


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda flow: flow.gather(1), "a branch is an awaitable"),
        (lambda flow: flow.gather(on_error="never"), "on_error is 'first', 'wait', 'collect', not 'never'"),
        (lambda flow: flow.first(), "takes at least one branch"),
        (lambda flow: flow.map(plain, {1, 2}), "pass sorted"),
        (lambda flow: flow.map(plain, [], at_once=0), "at_once must be a whole number above zero"),
        (lambda flow: flow.gather(asyncio.get_running_loop().create_future()), "which runs already"),
    ],
)
def test_wrong_branches_are_refused(app: App, make, text: str):
    """Branches and options that cannot be used are errors at the line of the call."""
    seen: list[str] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            make(flow)
        except Exception as error:  # noqa: BLE001 - any
            seen.append(str(error))

    body.start()
    drain(app)

    assert 1 == len(seen)
    assert text in seen[0]


def test_a_dropped_wait_does_not_continue_the_run(app: App, calls: Calls):
    """Signals for a wait that lost against another branch do not continue the run, which waits for another one."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        calls.append("pass")

        async def signalled() -> str:
            return await flow.wait_for("never", str)

        async def slept() -> str:
            await flow.sleep("1h")
            return "slept"

        await flow.first(signalled(), slept())
        return await flow.wait_for("go", str)

    run = body.start()
    drain(app)
    before = calls.count("pass")
    run.signal("never", "late")
    drain(app)
    unread = calls.count("pass")
    run.signal("go", "went")
    drain(app)

    assert "went" == run.result("2s")
    assert before == unread


def test_a_short_wait_is_overtaken_by_the_next_try(app: App, calls: Calls):
    """Steps may succeed before the row of their failed try is written, because another branch writes at that time."""
    quick = calls.step("quick", OSError("a"), OSError("b"))

    async def busy(number: int) -> int:
        for _ in range(number):
            await turn()
        return number

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        async def many() -> int:
            for number in range(12):
                await flow.step(busy, number)
            return 12

        return await flow.gather(flow.step(quick, 1, retry="5 1ms 1ms"), many())

    run = body.start()
    drain(app)

    assert [1, 12] == run.result("2s")
    assert 3 == calls.count("quick")
