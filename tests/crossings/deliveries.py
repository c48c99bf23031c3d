"""Deliveries of topics: the factors, the handlers, and how a scenario is played."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from redrive import Context, Filter, GiveUp
from redrive.app.topics.subscription import SubscriptionHandle
from redrive.errors import RedriveError
from tests.crossings.arrays import LONG, Row, Table, Void
from tests.crossings.model import deaths, forecast_events
from tests.crossings.world import TENANT, Process, World, world

EVENTS = 6
"""Events of a scenario; the first one is slow, the second one fails, if the row says so."""

MANY = 1300
"""Events behind a slow one: more than one crash may repeat."""

LOOKS, EVERY = 1000, 0.0005
"""Looks of a slow handler without another event that is done until it goes on, and the seconds between two."""

DELIVERIES = Table(
    "deliveries",
    {
        "order": ("strict", "key", "none"),
        "head": ("quick", "slow"),
        "fails": ("never", "once", "for_good"),
        "effect": ("plain", "transaction", "publish"),
        "colour": ("async", "def"),
        "event": (
            "none", "kill", "term", "pause", "move", "redrive", "skip", "reshard", "backlog", "crowd", "deploy",
            "clock", "lock",
        ),
        "moment": ("queued", "delivering", "writing", "ahead", "ended"),
        "again": ("none", "kill", "term", "move"),
        "store": ("sqlite", "postgres"),
    },
    (
        Void("only a slow event has later ones that are done", {"moment": ["ahead"], "head": ["quick"]}),
        Void("no event is delivered that could be ahead of the first one", {"moment": ["ahead"], "order": ["strict"]}),
        Void("no worker has the shard that could end", {"event": ["kill", "term"], "moment": ["queued", "ended"]}),
        Void("a worker with old code is stopped first: that is `term`",
             {"event": ["deploy"], "moment": ["delivering", "writing", "ahead"]}),
        Void("nothing is written that could meet a lock", {"event": ["lock"], "moment": ["queued", "ended"]}),
        Void("nothing has failed that could be redriven or skipped",
             {"event": ["redrive", "skip"], "fails": ["never"]}),
        Void("nothing has failed yet", {"event": ["redrive", "skip"], "moment": ["queued", "delivering", "writing"]}),
        Void("a position is moved by an operator, while no delivery waits for the answer",
             {"event": ["move"], "moment": ["delivering", "writing", "ahead"]}),
        Void("the events of a backlog are published before they are delivered",
             {"event": ["backlog"], "moment": ["delivering", "writing", "ahead", "ended"]}),
        Void("a crowd shows how many events come again after a death, behind a slow one",
             {"event": ["crowd"], "moment": ["delivering", "writing", "ahead", "ended"]}),
        Void("the same", {"event": ["crowd"], "head": ["quick"]}),
        Void("the same", {"event": ["crowd"], "order": ["strict"]}),
        Void("the same", {"event": ["crowd"], "again": ["none", "term", "move"]}),
        Void("thousands of transactions take too long", {"event": ["crowd"], "effect": ["transaction", "publish"]}),
        Void("the events behind a failed one of their key become jobs, and thousands of jobs take too long",
             {"event": ["crowd"], "order": ["key"], "fails": ["once", "for_good"]}),
        Void("one shard keeps the order of a topic", {"event": ["reshard"], "order": ["strict"]}),
    ),
    triples=True,
)  # fmt: skip


class Scene:
    """The state of one scenario that its functions share, in all processes."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.world: World
        self.published = 0
        self.order: list[int] = []
        self.done: set[int] = set()
        self.tries: Counter[int] = Counter()
        self.refused: list[str] = []
        self.slow = row["head"] == "slow"

    @property
    def others(self) -> int:
        """The number of events that are done while the first one is slow."""
        return 0 if self.row["order"] == "strict" else self.published - 1


class Code:
    """The topic and the subscription of one process."""

    def __init__(self, scene: Scene, process: Process) -> None:
        self.scene, self.process, self.ledger = scene, process, process.world.ledger
        self.numbers = process.app.topic("numbers", int)
        self.echoes = process.app.topic("echoes", int)
        take: Callable[..., Any] = self.ahandler() if scene.row["colour"] == "async" else self.dhandler()
        self.sink = self.numbers.subscribe("sink", order=scene.row["order"], retry="5 1s")(take)
        self.echo = self.echoes.subscribe("log")(self.log())

    def log(self) -> Callable[[int], None]:
        """Return the handler of what the first one publishes."""

        def log(number: int) -> None:
            self.ledger.call(f"echo {number}")

        return log

    def ahandler(self) -> Callable[..., Any]:
        """Return the handler in ``async def``."""

        async def sink(number: int, ctx: Context) -> None:
            self.begin(number)
            if number == 0 and self.scene.slow:
                for _ in self.looks():
                    await asyncio.sleep(EVERY)
                await self.scene.world.areach(self.process, "ahead", "again")
            else:
                await self.scene.world.areach(self.process, "delivering")
            self.fail(number)
            if self.scene.row["effect"] == "publish":
                await self.echoes.apublish(number)
            if self.scene.row["effect"] == "transaction":
                async with ctx.transaction() as connection:
                    answer = connection.execute(self.insert(number))
                    if hasattr(answer, "__await__"):
                        await answer
            self.finish(number)

        return sink

    def dhandler(self) -> Callable[..., Any]:
        """Return the handler in ``def``."""

        def sink(number: int, ctx: Context) -> None:
            self.begin(number)
            if number == 0 and self.scene.slow:
                for _ in self.looks():
                    threading.Event().wait(EVERY)
                self.scene.world.reach(self.process, "ahead", "again")
            else:
                self.scene.world.reach(self.process, "delivering")
            self.fail(number)
            if self.scene.row["effect"] == "publish":
                self.echoes.publish(number)
            if self.scene.row["effect"] == "transaction":
                with ctx.transaction() as connection:
                    connection.execute(self.insert(number))
            self.finish(number)

        return sink

    def looks(self) -> Iterator[None]:
        """Yield while a slow handler has to wait for other events; let the time of retries come."""
        scene, left, seen = self.scene, LOOKS, -1
        most = scene.others - (scene.row["fails"] == "for_good")
        while left and not self.process.ends and len(scene.done) < most:
            scene.world.clock.advance("1s")
            left = left - 1 if len(scene.done) == seen else LOOKS
            seen = len(scene.done)
            yield

    def insert(self, number: int) -> str:
        """Return the statement of an effect."""
        return f"INSERT INTO {self.scene.world.table} VALUES ('{number}')"  # noqa: S608 - made by the test

    def begin(self, number: int) -> None:
        """Note a call and its context."""
        self.ledger.look(f"event {number}")
        TENANT.set(f"tenant {number}")
        self.ledger.call(f"call {number}")

    def fail(self, number: int) -> None:
        """Fail as the row says."""
        fails = self.scene.row["fails"]
        self.scene.tries[number] += 1
        if number == 1 and fails == "for_good" and not self.scene.world.healthy:
            raise GiveUp("for good")
        if number == 1 and fails == "once" and self.scene.tries[1] == 1:
            raise OSError("not yet")
        # The next event of a line may start while the rest of a handler runs behind its transaction.
        self.scene.order.append(number)

    def finish(self, number: int) -> None:
        """Note that the work of an event is done."""
        if not self.process.dead:
            self.scene.done |= {number} - {0}
            self.ledger.call(f"event {number}")


# ------------------------------------------------------------------------------------------------------------ the play


def play(row: Row, url: str) -> None:
    """Play the scenario of a row on an empty database, and compare its end with the forecast."""
    scene = Scene(row)
    # In the long form, all that is killed is a process of its own.
    with world(url, lambda process, _: Code(scene, process), forks=LONG and "kill" in row.values()) as stage:
        scene.world = stage
        stage.memory.append(scene)
        if "transaction" in row.values():
            stage.create_table()
        stage.operator.app.topics.declare()
        _publish(scene, EVENTS)
        _play(scene)
        _compare(scene)


def _publish(scene: Scene, count: int) -> None:
    code: Code = scene.world.operator.parts
    numbers = range(scene.published, scene.published + count)
    scene.published += count
    code.numbers.publish_many(list(numbers), key=key_of)


def key_of(number: int) -> str:
    """Return the key of an event: the first one has its own."""
    return "slow" if number == 0 else f"k{number % 2}"


def _play(scene: Scene) -> None:
    row, stage = scene.row, scene.world
    event, moment, again = row["event"], row["moment"], row["again"]
    steps: list[Callable[[], object]] = [lambda: stage.clock.advance("5s")] * 2
    if again in {"kill", "term"} and scene.slow:
        for _ in range(deaths(row)):
            stage.at("again", Process.kill if again == "kill" else Process.term)
    if moment == "queued":
        _happen(scene, event, None)
    elif moment == "writing":
        stage.at("delivering", lambda process: stage.hooks.update(turn=lambda: _happen(scene, event, process)))
    elif moment != "ended":
        stage.at(moment, lambda process: _happen(scene, event, process))
    if event == "pause":
        steps.append(_sink(scene).resume)
    steps.append(lambda: setattr(stage, "healthy", True))
    if moment == "ended":
        steps.append(lambda: _happen(scene, event, None))
    if event == "pause" and moment == "ended":
        steps.append(_sink(scene).resume)
    if again == "move":
        steps.append(lambda: _happen(scene, "move", None))
    steps.append(lambda: _publish(scene, 1))
    stage.work(*steps, *[lambda: stage.clock.advance("1h")] * 4)


def _sink(scene: Scene) -> SubscriptionHandle:
    return scene.world.operator.app.topics.subscription("numbers", "sink")


def _happen(scene: Scene, event: str, process: Process | None) -> None:
    stage, sink = scene.world, _sink(scene)
    actions: dict[str, Callable[[], object]] = {
        # A step that follows ends a pause of which no delivery waits for the end.
        "pause": lambda: sink.pause() if process is None else _pause(sink),
        "move": lambda: sink.move("beginning"),
        "redrive": sink.redrive,
        "skip": sink.skip,
        "reshard": lambda: sink.reshard(2),
        "backlog": lambda: _publish(scene, 30),
        "crowd": lambda: _publish(scene, MANY),
        "deploy": stage.deploy,
        "clock": lambda: stage.step_back("30m"),
        "lock": stage.lock_jobs,
    }
    if event in {"kill", "term"}:
        assert process is not None
        (process.kill if event == "kill" else process.term)()
    elif event in actions:
        with contextlib.suppress(RedriveError):
            actions[event]()


def _pause(sink: SubscriptionHandle) -> None:
    """Pause the subscription; the feeder of a delivery that waits for the end of the pause is never idle."""
    sink.pause()
    threading.Timer(0.05, sink.resume).start()


# ------------------------------------------------------------------------------------------------------------ the laws


def _compare(scene: Scene) -> None:
    row, ledger, app = scene.row, scene.world.ledger, scene.world.operator.app
    forecast = forecast_events(row)
    done = {number: ledger.calls[f"event {number}"] for number in range(scene.published)}
    missing = [number for number, count in done.items() if not count and not (number == 1 and forecast.may_miss)]
    assert [] == missing, f"never delivered: {missing}"
    assert [] == ledger.leaks
    assert 0 == _sink(scene).status().lag.events
    jobs = Counter(str(each.origin) for each in app.jobs.select(Filter(task="numbers.sink", limit=1000)))
    assert max(jobs.values(), default=0) <= forecast.rounds, f"jobs of one event: {jobs.most_common(1)}"
    again = sum(count - 1 for count in done.values() if count > 1)
    assert again <= forecast.again, f"{again} events came again"
    if row["effect"] == "transaction":
        effects = Counter(map(int, scene.world.rows()))
        wrong = {number: count for number, count in effects.items() if count > forecast.rounds}
        assert {} == wrong, "effects of transactions"
        assert sorted(effects) == sorted(number for number in done if done[number])
    if row["effect"] == "publish":
        echoes = {number: ledger.calls[f"echo {number}"] for number in done if done[number]}
        # An event that is skipped while its handler runs publishes nothing.
        skipped = {1} if row["event"] == "skip" else set()
        missing = [number for number, count in echoes.items() if not count and number not in skipped]
        assert [] == missing, "what a handler published is missing"
    if row["order"] != "none" and not forecast.is_moved:
        _compare_order(scene)
    assert () == app.database.verify()


def _compare_order(scene: Scene) -> None:
    """Compare the order in which events of one line were first done with that of their numbers."""
    first = list(dict.fromkeys(scene.order))
    # An event that has died is followed by the others, and delivered out of order when it is redriven.
    first = [number for number in first if not (number == 1 and scene.row["fails"] == "for_good")]
    for key in {key_of(number) for number in first} if scene.row["order"] == "key" else {None}:
        line = [number for number in first if key is None or key_of(number) == key]
        assert sorted(line) == line
