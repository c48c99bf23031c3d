"""The timekeeper: a clock that was set is seen, logged once, and followed when that has lasted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import StoreBusy
from redrive.runtime import timekeeper
from redrive.runtime.timekeeper import LOOK, Timekeeper
from redrive.stores.operations.clock import ClockState
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, app_on, repeat

NONE = timedelta(0)
HOUR = timedelta(hours=1)


def looked(app: Any, *answers: ClockState | Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a check of the timekeeper for each answer; the last one is repeated."""
    left, clock = list(answers), VirtualClock()

    def keep() -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def arun(answer: ClockState) -> ClockState:
        return answer

    async def run() -> None:
        running = asyncio.create_task(repeat(Timekeeper(app).duty, clock))
        async with asyncio.timeout(PATIENCE):
            while clock.monotonic() < len(answers) * LOOK:
                await VirtualClock().asleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    monkeypatch.setattr(timekeeper, "keep", keep)
    monkeypatch.setattr(app.store, "arun", arun)
    asyncio.run(run())


@pytest.fixture
def app(tmp_path: Path):
    """Return an app on SQLite."""
    app = app_on(tmp_path)
    yield app
    app.close()


def test_a_step_is_logged_once_and_so_is_its_end(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """Log a clock step once, and its end once."""
    still = ClockState(NONE, NONE)
    looked(app, still, ClockState(HOUR, NONE), ClockState(HOUR, NONE), still, still, monkeypatch=monkeypatch)

    first, second = caplog.messages

    assert first.startswith("the clock of this machine was set by +3600.000 s; the database goes on without it, and")
    assert second == "the clock of this machine was set right again"


def test_a_step_that_is_followed_is_logged(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """Log the step in the worker that adopts it in the database, without a message at its end."""
    looked(app, ClockState(-HOUR, NONE), ClockState(NONE, -HOUR), ClockState(NONE, NONE), monkeypatch=monkeypatch)

    assert ["the clock was set, and that has lasted: the database follows it by -3600.000 s"] == caplog.messages[1:]


def test_a_failed_check_is_repeated(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """If the store is unreachable for a while, the timekeeper continues."""
    looked(app, StoreBusy("locked"), ClockState(HOUR, NONE), monkeypatch=monkeypatch)

    assert "checking the clock waits: locked" == caplog.messages[0]
    assert 2 == len(caplog.messages)


def test_a_given_clock_is_not_supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog):
    """Apps with a clock of their own, as in tests, ignore the clock of the machine."""
    app = app_on(tmp_path, clock=VirtualClock())
    asked: list[object] = []
    monkeypatch.setattr(timekeeper, "keep", lambda: asked.append(1))
    asyncio.run(Timekeeper(app).look())
    app.close()

    assert [] == asked
