"""Signals and branches: each signal that was sent is received once, in its order, or stays unread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random  # noqa: TID251 - seeded
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json

from redrive import App, Flow, GiveUp, SyncFlow
from redrive.engine.steps import StepEnd
from redrive.errors import TimedOut
from redrive.runtime.runs import receipts
from redrive.runtime.runs.recorder import StoreRecorder
from redrive.testing import VirtualClock, drain
from tests.runtime.runs.conftest import every_store, turn

NAMES = "abc"


class Got(list[tuple[str, int]]):
    """What a pass of a body has received.

    Args:
        seen: receives what no pass has received before."""

    def __init__(self, seen: list[tuple[str, int]]) -> None:
        super().__init__()
        self.seen = seen

    def append(self, received: tuple[str, int]) -> None:
        """Note a signal."""
        super().append(received)
        if received not in self.seen:
            self.seen.append(received)


class Call(NamedTuple):
    """One call of a random body: its kind, and the names of the signals that its branches wait for."""

    kind: str
    names: str


KINDS = (
    "wait",
    "first",
    "first_code",
    "first_timer",
    "first_step",
    "twice",
    "gather",
    "gather_fails",
    "timeout",
    "nested",
)

calls_ = st.lists(
    st.builds(Call, st.sampled_from(KINDS), st.text(NAMES, min_size=2, max_size=2)), min_size=1, max_size=6
)

# What happens outside: signals (by their names), a park, some time, the death of the process in its next writes.
events = st.lists(
    st.one_of(
        st.text(NAMES, min_size=1, max_size=4),
        st.just("park"),
        st.just("time"),
        st.integers(0, 4).map(lambda n: f"kill {n}"),
    ),
    min_size=1,
    max_size=12,
)


def ok() -> int:
    """Succeed."""
    return 1


def fails() -> None:
    """Fail for good."""
    raise GiveUp("no")


async def play(flow: Flow, plan: Sequence[Call], got: Got) -> None:
    """Carry out the calls of a body, and note each signal that its code receives."""

    async def take(name: str) -> int:
        value = await flow.wait_for(name, int)
        got.append((name, value))
        return value

    async def twice(name: str) -> None:
        await take(name)
        await flow.step(ok)
        await take(name)

    async def fail(one: str, other: str) -> None:
        with contextlib.suppress(GiveUp):
            await flow.gather(take(one), flow.step(fails), take(other))

    async def late(one: str, other: str) -> None:
        with contextlib.suppress(TimedOut):
            number, value = await flow.first(flow.wait_for(one, int, timeout="10s"), twice(other))
            if number == 0:
                got.append((one, value))

    async def first(*names: str) -> None:
        number, value = await flow.first(*(flow.wait_for(name, int) for name in names))
        got.append((names[number], value))

    calls: dict[str, Callable[[str, str], Awaitable[object]]] = {
        "wait": lambda one, _: take(one),
        "first": first,
        "first_code": lambda *names: flow.first(*map(take, names)),
        "first_timer": lambda one, other: flow.first(take(one), flow.sleep("10s"), take(other)),
        "first_step": lambda one, other: flow.first(take(one), flow.step(ok), take(other)),
        "twice": lambda *names: flow.first(*map(twice, names)),
        "gather": lambda *names: flow.gather(*map(take, names)),
        "gather_fails": fail,
        "timeout": late,
        "nested": lambda *names: flow.first(flow.gather(*map(take, names)), flow.first(*map(take, names))),
    }
    for kind, names in plan:
        await calls[kind](*names)
    await flow.wait_for("end")


async def play_direct(flow: Flow, plan: Sequence[Call], got: Got) -> None:
    """Race waits without code of their own around them, again and again."""
    while True:
        for _, names in plan:
            number, value = await flow.first(*(flow.wait_for(name, int) for name in names))
            got.append((names[number], value))


def play_sync(flow: SyncFlow, plan: Sequence[Call], got: Got) -> None:
    """Carry out calls in threads."""

    def take(name: str) -> int:
        value = flow.wait_for(name, int)
        got.append((name, value))
        return value

    def twice(name: str) -> None:
        take(name)
        flow.step(ok)
        take(name)

    for kind, names in plan:
        branches = [functools.partial(twice if kind == "twice" else take, name) for name in names]
        if kind == "first_step":
            branches.insert(1, functools.partial(flow.step, ok))
        elif kind == "first_timer":
            branches.insert(1, functools.partial(flow.sleep, "10s"))
        if kind.startswith("gather"):
            flow.gather(*branches)
        else:
            flow.first(*branches)
    flow.wait_for("end")


class World:
    """A run with a random body, and all that was sent to it."""

    def __init__(self, app: App, plan: Sequence[Call], body: Callable[..., Any], id: str = "r") -> None:
        self.app = app
        self.sent: list[tuple[str, int]] = []
        self.seen: list[tuple[str, int]] = []
        self.got = Got(self.seen)
        self.threads = body is play_sync
        #: Writes until the process dies; None if it lives on.
        self.lives: int | None = None

        if self.threads:

            @app.workflow(name=f"played-{id}", retry="1000 1s")
            def played(flow: SyncFlow) -> None:
                self.got = Got(self.seen)
                body(flow, plan, self.got)

        else:

            @app.workflow(name=f"played-{id}", retry="1000 1s")
            async def played(flow: Flow) -> None:
                self.got = Got(self.seen)
                await body(flow, plan, self.got)

        self.run = played.start(id=id)

    def play(self, events: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Send signals, let time pass, and let the process die."""
        write = StoreRecorder.record

        async def dying(recorder: StoreRecorder, ends: Sequence[StepEnd], values: bytes | None) -> Any:
            if self.lives is not None:
                self.lives -= 1
                if self.lives < 0:
                    raise OSError("killed")
            return await write(recorder, ends, values)

        with monkeypatch.context() as patch:
            patch.setattr(StoreRecorder, "record", dying)
            # On a busy machine a thread may need more than the second for which its signal holds up the others.
            patch.setattr(receipts, "HOLDS", 60.0)
            for event in events:
                self._happen(event)
            self.lives = None
            drain(self.app, within="1m")

    def _happen(self, event: str) -> None:
        kind, _, count = event.partition(" ")
        if kind == "kill":
            self.lives = int(count)
            drain(self.app, within=0)
            self.lives = None
        elif kind == "park":
            drain(self.app, within=0)
        elif kind == "time":
            drain(self.app, within="20s")
        else:
            for name in event:
                self.sent.append((name, len(self.sent)))
                self.run.signal(name, self.sent[-1][1])

    def check(self) -> None:
        """Check that each signal was received once, in the order of its name, or is unread."""
        unread = [(each.name, json.decode(each.payload)) for each in self.run.signals()]
        # In a replay, a branch in a thread that has lost may be dropped before it comes to its wait again.
        before = [each for each in self.seen if each not in (*self.got, *unread)] if self.threads else []
        assert sorted(self.sent) == sorted([*self.got, *before, *unread])
        for name in NAMES:
            mine = [number for each, number in self.seen if each == name]
            assert sorted(mine) == mine
            assert all(number > max(mine, default=-1) or number in mine for each, number in unread if each == name)


@settings(deadline=None, max_examples=60)
@given(plan=calls_, events=events, direct=st.booleans())
def test_signals_are_received_once_or_stay_unread(plan: list[Call], events: list[str], *, direct: bool):
    """Bodies of branches that win, lose, fail and are repeated receive each signal once, in its order, or leave it."""
    app = App("memory://", clock=VirtualClock())
    world = World(app, plan, play_direct if direct else play)
    with pytest.MonkeyPatch.context() as patch:
        world.play(events, patch)
    world.check()
    app.close()


STORES = {"memory": 10, "sqlite": 4, "turso": 2, "postgresql": 2}
"""Random runs by the kind of the store."""


@every_store
@pytest.mark.parametrize("body", [play, play_direct, play_sync])
def test_signals_are_received_once_on_each_store(app: App, monkeypatch: pytest.MonkeyPatch, body: Callable[..., Any]):
    """Branches of coroutines and of threads receive each signal once, in its order, or leave it unread."""
    chance = random.Random(0)
    for number in range(STORES[app.url.partition(":")[0]]):
        plan = [Call(chance.choice(KINDS), "".join(chance.choices(NAMES, k=2))) for _ in range(chance.randrange(1, 6))]
        events = [
            chance.choice(["park", "time", f"kill {chance.randrange(4)}", "".join(chance.choices(NAMES, k=3))])
            for _ in range(10)
        ]
        world = World(app, plan, body, f"r{number}")
        world.play(events, monkeypatch)
        world.check()


def test_a_signal_of_a_wait_that_is_cancelled_stays_unread(app: App):
    """Waits that have ended when the body cuts off the call around them leave their signal; the body may not go on."""
    got: list[object] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        main = asyncio.current_task()
        assert main is not None

        async def cancel() -> None:
            main.cancel()

        try:
            await flow.first(flow.wait_for("a"), flow.step(cancel))
        except asyncio.CancelledError:
            main.uncancel()
            got.append(await flow.wait_for("a"))

    run = body.start()
    run.signal("a", 1)
    drain(app)

    assert ([], ["a"]) == (got, [each.name for each in run.signals()])
    assert "was cut off by the body itself" in str(run.job.refresh().record.error)


@every_store
def test_a_wait_that_lost_takes_no_signal_in_later_passes(app: App):
    """Replays of a decided race leave the signal to the code behind it, also if it comes when no worker is there."""

    @app.workflow()
    async def body(flow: Flow) -> list[object]:
        late = await flow.first(flow.wait_for("a"), flow.sleep("1d"))
        return [late[0], await flow.wait_for("a", timeout="1d")]

    run = body.start()
    drain(app, within="25h")
    run.signal("a", "here")
    drain(app)

    assert [1, "here"] == run.result("2s")


def test_a_signal_before_a_restart_is_received_once(app: App):
    """Signals that a run has received just before it begins again are not received by its next epoch."""
    got: list[int] = []

    @app.workflow()
    async def body(flow: Flow, left: int) -> None:
        got.append(await flow.wait_for("a", int))
        if left:
            flow.restart(left - 1)

    run = body.start(2)
    for number in range(4):
        run.signal("a", number)
    drain(app)

    assert ("succeeded", [0, 1, 2]) == (run.state, got)
    assert ["a"] == [each.name for each in run.signals()]


def test_the_time_of_a_received_signal_is_the_same_in_each_pass(app: App):
    """`flow.now()` after a signal does not change in replays, although its row is written later."""
    seen: set[object] = set()

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.wait_for("a")
        seen.add(flow.now())
        app.clock.advance("1m")
        await flow.step(ok)
        await flow.sleep("1h")
        await flow.wait_for("b")

    run = body.start()
    run.signal("a")
    drain(app, within="2h")
    run.signal("b")
    drain(app)

    assert ("succeeded", 1) == (run.state, len(seen))


def test_a_patch_behind_a_signal_is_not_recorded_before_it(app: App):
    """Patches that a branch has taken after a signal are written with it, and not by the other branch."""
    crashed: list[int] = []

    @app.workflow(retry="3 1s")
    async def body(flow: Flow) -> list[object]:
        async def patched() -> object:
            value = await flow.wait_for("a")
            assert flow.patched("new")
            if not crashed:
                await turn()
                await turn()
                crashed.append(1)
                raise OSError("no route")
            return value

        async def busy() -> int:
            return await flow.step(ok) + await flow.step(ok)

        return await flow.gather(patched(), busy(), on_error="wait")

    run = body.start()
    run.signal("a", 7)
    drain(app)

    assert [7, 2] == run.result("2s")
