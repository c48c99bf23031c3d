"""A worker that starts while its database is away waits for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redrive import App
from redrive.engine.lifecycle import State
from redrive.errors import (
    ConfigurationError,
    SchemaTooNew,
    StoreBusy,
    StoreOpenError,
    StoreOutcomeUnknown,
    StoreUnreachable,
)
from redrive.runtime.notifier import Notifier
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.worker import Worker
from redrive.testing import VirtualClock

AWAY = StoreUnreachable("PostgreSQL h1,h2/shop cannot be reached (h1:5432: no answer within 2.0 s)")

STEPS = {"opening": (App, "aopen"), "watching": (Notifier, "open"), "registering": (WorkerRegistration, "register")}

Failing = Callable[..., list[float]]


class StoppingClock(VirtualClock):
    """A clock that stops a worker when it rests."""

    worker: Worker

    async def asleep(self, seconds: float) -> None:
        """Stop it, and advance."""
        self.worker.stop()
        await super().asleep(seconds)


@pytest.fixture(name="clock")
def _clock() -> VirtualClock:
    """Return the clock of the worker, which a rest advances."""
    return VirtualClock()


@pytest.fixture(name="failing")
def _failing(monkeypatch: pytest.MonkeyPatch, clock: VirtualClock) -> Failing:
    """Return a function that lets a step of the start fail so many times; it returns when that step was tried."""

    def failing(step: str, times: float, error: Exception = AWAY) -> list[float]:
        owner, name = STEPS[step]
        original, tried = getattr(owner, name), []

        async def attempt(self: Any) -> Any:
            tried.append(clock.monotonic())
            if len(tried) <= times:
                raise error
            return await original(self)

        monkeypatch.setattr(owner, name, attempt)
        return tried

    return failing


def run(app: App, clock: VirtualClock, **options: Any) -> Worker:
    """Run a worker until it has found nothing to do."""
    worker = Worker(app, until_empty=True, clock=clock, **options)
    asyncio.run(asyncio.wait_for(worker.run(), 60))
    return worker


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_waits_at_each_step_of_its_start(
    app: App, clock: VirtualClock, failing: Failing, caplog: pytest.LogCaptureFixture, step: str
):
    """It logs what it waits for, once, rests longer each time, and runs the jobs when the database is back."""
    caplog.set_level(logging.INFO)
    send = app.task(name="send")(lambda: None)
    job = send.enqueue()
    tried = failing(step, 3)
    run(app, clock)

    assert State.SUCCEEDED == job.state
    assert [0.1, 0.2, 0.4] == [round(later - earlier, 3) for earlier, later in itertools.pairwise(tried)]
    waits = [each for each in caplog.messages if "waits for its database" in each]
    assert f"the worker waits for its database, at most 60 s more: {AWAY}" == waits[0]
    assert 1 == len(waits)
    assert 1 == caplog.messages.count("the database can be reached")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("wait", "tries"), [(0, 1), (0.15, 3), (60, 65)])
def test_the_wait_has_an_end(app: App, clock: VirtualClock, failing: Failing, step: str, wait: float, tries: int):
    """Then the error is raised; zero is one try."""
    tried = failing(step, float("inf"))
    with pytest.raises(StoreUnreachable):
        run(app, clock, wait=timedelta(seconds=wait))

    assert wait <= tried[-1] - tried[0] < wait + 1
    assert tries - 2 <= len(tried) <= tries


def test_the_steps_share_one_wait(app: App, clock: VirtualClock, failing: Failing):
    """A database that comes and goes does not prolong it."""
    failing("opening", 4)
    tried = failing("registering", float("inf"))
    with pytest.raises(StoreUnreachable):
        run(app, clock, wait=timedelta(seconds=2))

    assert 1.5 <= tried[0] <= tried[-1] <= 2


@pytest.mark.parametrize("error", [StoreOutcomeUnknown("lost"), StoreBusy("locked")])
def test_a_registration_without_an_answer_is_repeated(
    app: App, clock: VirtualClock, failing: Failing, error: Exception
):
    """The connection may be lost with the commit; a row that is left over expires like that of a dead worker. Or the
    commits of others wait for a synchronous standby, and keep their locks."""
    tried = failing("registering", 1, error)
    run(app, clock)

    assert 2 == len(tried)


@pytest.mark.parametrize(
    "error", [StoreOpenError("wrong password"), SchemaTooNew("9 > 8"), ConfigurationError("no such setting")]
)
def test_other_failures_end_the_worker_at_once(app: App, clock: VirtualClock, failing: Failing, error: Exception):
    """What waiting does not cure."""
    tried = failing("opening", 1, error)
    with pytest.raises(type(error)):
        run(app, clock)

    assert [0.0] == tried


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_waits_can_be_stopped(app: App, failing: Failing, step: str):
    """It ends without an error."""
    failing(step, float("inf"))
    stopping = StoppingClock()
    stopping.worker = Worker(app, clock=stopping, wait=timedelta(days=365))
    asyncio.run(asyncio.wait_for(stopping.worker.run(), 60))

    assert not stopping.worker.registered.is_set()
    assert () == app.workers.select()


@pytest.mark.parametrize("wait", [timedelta(seconds=-1), 60, None])
def test_the_wait_is_a_span(app: App, wait: Any):
    """Zero or more."""
    with pytest.raises(ConfigurationError, match="wait is a timedelta, zero or more"):
        Worker(app, wait=wait)
