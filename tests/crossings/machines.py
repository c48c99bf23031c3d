"""Instances of state machines: the factors, the machine, and how a scenario is played."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redrive import CatchRequest, Filter, GiveUp
from redrive.app.machines.machines import MachineHandle
from redrive.errors import RedriveError
from tests.crossings.arrays import Row, Table, Void
from tests.crossings.model import forecast_instance
from tests.crossings.world import TENANT, Process, World, world

NEIGHBOURS = 20
"""Other instances."""

MACHINES = Table(
    "machines",
    {
        "feature": ("transition", "retry", "timeout", "waiting", "catch"),
        "colour": ("async", "def"),
        "event": (
            "none", "cancel", "retry", "redrive", "skip", "reset", "delete", "kill", "term", "deploy", "clock", "lock",
            "backlog",
        ),
        "moment": ("queued", "working", "settling", "ended"),
        "ending": ("moves", "fails"),
        "second": ("none", "retry", "skip", "redrive"),
        "store": ("sqlite", "postgres"),
    },
    (
        Void("no worker has the transition that could end", {"event": ["kill", "term"], "moment": ["queued", "ended"]}),
        Void("a worker with old code is stopped first: that is `term`",
             {"event": ["deploy"], "moment": ["working", "settling"]}),
        Void("nothing is written that could meet a lock", {"event": ["lock"], "moment": ["queued", "ended"]}),
        Void("a catch task runs after a failure only", {"feature": ["catch"], "ending": ["moves"]}),
    ),
)  # fmt: skip


@dataclass
class Begun:
    """The first event."""


@dataclass
class Paid:
    """The event of the transition under test."""

    n: int = 0


@dataclass
class Closed:
    """The last event."""


class Scene:
    """The state of one scenario that its functions share, in all processes."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.world: World
        self.tries = 0

    @property
    def handle(self) -> MachineHandle:
        """The machine, as an operator sees it."""
        return self.world.operator.app.machines.machine("order")

    @property
    def send(self) -> Callable[..., Any]:
        """The function that sends an event to an instance."""
        send: Callable[..., Any] = self.world.operator.parts.machine.send
        return send


class Code:
    """The machine of one process."""

    def __init__(self, scene: Scene, process: Process) -> None:
        self.scene, self.process, self.ledger = scene, process, process.world.ledger
        app, feature = process.app, scene.row["feature"]

        @app.task(name="caught", retry="1 1s")
        def caught(request: CatchRequest) -> None:
            self.ledger.call("caught")

        machine = self.machine = app.machine("order", retry="3 10m")

        @machine.start
        def begun(event: Begun) -> None:
            self.ledger.look("begun")
            self.ledger.call("begun")

        catch = " catch caught" if feature == "catch" else ""
        timeout: Any = ("3h", Closed()) if feature == "timeout" else None
        pay = self.apaid() if scene.row["colour"] == "async" else self.dpaid()
        paid = machine.state(after=[begun], retry=f"3 10m{catch}", **({"timeout": timeout} if timeout else {}))(pay)

        @machine.state(after=[paid])
        def closed(event: Closed) -> None:
            self.ledger.call("closed")

    def apaid(self) -> Callable[..., Any]:
        """Return the handler of the transition under test."""

        async def paid(event: Paid) -> None:
            if event.n == 0:
                await self.scene.world.areach(self.process, "working")
            self.pay(event)

        return paid

    def dpaid(self) -> Callable[..., Any]:
        """Return the same handler as a ``def`` function."""

        def paid(event: Paid) -> None:
            if event.n == 0:
                self.scene.world.reach(self.process, "working")
            self.pay(event)

        return paid

    def pay(self, event: Paid) -> None:
        """Fail as the row says, or note that the work is done."""
        self.ledger.look(f"paid {event.n}")
        TENANT.set(f"tenant {event.n}")
        if event.n == 0:
            self.scene.tries += 1
            if self.scene.row["feature"] == "retry" and self.scene.tries <= 2:
                raise OSError("not yet")
            if self.scene.row["ending"] == "fails" and not self.scene.world.healthy:
                raise GiveUp("for good")
        if not self.process.dead:
            self.ledger.call(f"paid {event.n}")


# ------------------------------------------------------------------------------------------------------------ the play


def play(row: Row, url: str) -> None:
    """Play the scenario of a row on an empty database, and compare its end with the forecast."""
    scene = Scene(row)
    with world(url, lambda process, _: Code(scene, process), concurrency=3) as stage:
        scene.world = stage
        scene.send("one", Begun())
        stage.work()
        scene.send("one", Paid())
        if row["feature"] == "waiting":
            scene.send("one", Closed(), busy="queue")
        _play(scene)
        _compare(scene)


def _play(scene: Scene) -> None:
    row, stage = scene.row, scene.world
    event, moment = row["event"], row["moment"]
    stage.arrange(moment, functools.partial(_happen, scene, event))
    steps: list[Callable[[], object]] = [lambda: stage.clock.advance("1h")] * 2
    steps.append(lambda: setattr(stage, "healthy", True))
    if moment == "ended":
        steps.append(lambda: _happen(scene, event, None))
    steps.append(lambda: _happen(scene, row["second"], None))
    stage.work(*steps, *[lambda: stage.clock.advance("2h")] * 4)


def _happen(scene: Scene, event: str, process: Process | None) -> None:
    app, handle = scene.world.operator.app, scene.handle
    actions: dict[str, Callable[[], object]] = {
        "cancel": lambda: app.jobs.cancel(Filter(task="order.paid"), why="by the test"),
        "retry": lambda: handle.retry("one"),
        "redrive": lambda: app.jobs.redrive(Filter(task="order.paid")),
        "skip": lambda: handle.skip("one"),
        "reset": lambda: handle.reset("one", "begun"),
        "delete": lambda: handle.delete("one"),
        "clock": lambda: scene.world.step_back("30m"),
        "deploy": scene.world.deploy,
        "lock": scene.world.lock_jobs,
        "backlog": lambda: [scene.send(f"n{n}", Begun()) for n in range(NEIGHBOURS)],
    }
    if event in {"kill", "term"}:
        assert process is not None
        (process.kill if event == "kill" else process.term)()
    elif event in actions:
        with contextlib.suppress(RedriveError):
            actions[event]()


# ------------------------------------------------------------------------------------------------------------ the laws


def _compare(scene: Scene) -> None:
    row, ledger = scene.row, scene.world.ledger
    forecast = forecast_instance(row)
    found = [each for each in scene.handle.select(limit=100) if each.key == "one"]
    state = f"{found[0].state} {found[0].status}" if found else "gone"
    assert state in forecast.states
    assert [] == ledger.leaks
    assert ledger.calls["paid 0"] <= forecast.most
    assert ledger.calls["closed"] <= 1
    if state == "closed completed":
        assert ledger.calls["paid 0"] >= 1
        assert 1 == ledger.calls["closed"]
    assert ledger.calls["caught"] <= 1 + (forecast.most - 1)
    if row["event"] == "backlog":
        assert NEIGHBOURS + 1 == ledger.calls["begun"]
    assert () == scene.world.operator.app.database.verify()
