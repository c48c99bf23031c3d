"""The duty that takes turns for machines, in a worker and by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive import App, Context, Machine
from redrive.engine.machine import MoveStatus
from redrive.runtime.machines import turn, warn_of_stranded
from redrive.runtime.worker import Worker
from redrive.stores.operations.machines import send as sending
from redrive.stores.operations.machines.rows import MachineEvent
from redrive.testing import VirtualClock, drain
from tests.runtime.helpers import app_on, until, working


@dataclass
class Begin:
    """The first event."""


@dataclass
class Go:
    """The next event."""


@dataclass
class Late:
    """The event of a timeout."""


def doors(app: App) -> Machine:
    """Return a machine with a state that times out after 50 ms."""
    machine = app.machine("door", busy="queue")

    @machine.start
    async def opened(event: Begin, ctx: Context) -> None:
        pass

    @machine.state(after=[opened], timeout=("50ms", Late()))
    def held(event: Go) -> None:
        pass

    @machine.state(after=[held])
    async def closed(event: Late) -> None:
        pass

    return machine


def test_a_worker_takes_the_turns_of_waiting_events_and_timeouts(tmp_path: Path):
    """Workers run a transition, the event that waits behind it, and the timeout of its state."""
    app = app_on(tmp_path)
    machine = doors(app)

    async def play() -> None:
        async with working(app):
            await machine.asend("a", Begin())
            await machine.asend("a", Go())
            await until(lambda: machine.get("a").state == "closed")

    asyncio.run(play())
    assert ["opened", "held", "closed"] == [move.to_state for move in reversed(machine.get("a").history())]
    app.close()


def test_a_worker_that_ends_when_idle_takes_turns_first(tmp_path: Path):
    """Workers with ``until_empty`` end only after a look has found no event to start."""
    app = app_on(tmp_path)
    machine = doors(app)
    waits = MachineEvent("door", "a", "Begin", b"{}", "x")
    app.store.run(sending.send(waits, lambda _: pytest.fail("it only waits"), busy=sending.Busy.QUEUE))
    asyncio.run(Worker(app, until_empty=True).run())

    assert "opened" == machine.get("a").state
    app.close()


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def test_refused_events_are_logged(app: App, caplog: pytest.LogCaptureFixture):
    """Refused events and timeouts, which have no sender, are logged as warnings."""
    machine = doors(app)
    machine.send("a", Begin())
    drain(app, within=0)
    machine.send("a", Go())
    drain(app, within=0)
    machine._states.__dict__.pop("definition")
    for name in ("held", "closed"):
        task = machine.tasks[name]
        task.state = type(task.state)(after="opened")
    assert app.clock is not None
    app.clock.sleep(1)
    waits = MachineEvent("door", "a", "Begin", b"{}", "x")
    app.store.run(sending.send(waits, lambda _: pytest.fail("it only waits"), busy=sending.Busy.QUEUE, now=app.now()))
    caplog.clear()
    done = asyncio.run(turn(app))

    assert (2, True) == (done.done, done.waiting)
    assert {MoveStatus.REFUSED} == {move.status for move in machine.get("a").history()[:2]}
    lines = [record.getMessage() for record in caplog.records]
    assert "machine door: the timeout Late of a was refused: no transition found from state held" in lines[0]
    assert "machine door: the event Begin of a was refused: no transition found from state held" in lines[1]


def test_an_app_without_machines_has_no_turns(app: App):
    """Turns of an app without machines do nothing."""
    done = asyncio.run(turn(app))

    assert (0, None, False) == (done.done, done.rest_for, done.waiting)


def test_stranded_instances_are_logged(app: App, caplog: pytest.LogCaptureFixture):
    """Workers log the number of instances in states that their code does not have."""
    machine = doors(app)
    machine.send("a", Begin())
    drain(app, within=0)
    del machine.tasks["opened"]
    machine._states.__dict__.pop("definition")
    held = machine.tasks["held"]
    held.state = type(held.state)(start=True)
    with caplog.at_level(logging.WARNING):
        asyncio.run(warn_of_stranded(app))

    assert "machine door: 1 instance is in the state 'opened', which the code does not have" in caplog.text
