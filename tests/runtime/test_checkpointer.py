"""The checkpointer: its reports, their frequency, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from redrive import App
from redrive.errors import StoreBusy
from redrive.runtime.timekeeper import EVERY, WARNINGS, Checkpointer
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, repeat, working


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory."""
    app = App("memory://")
    yield app
    app.close()


def looks(app: App, monkeypatch: pytest.MonkeyPatch, *answers: int | Exception) -> None:
    """Run a pass of the checkpointer for each answer of the store."""
    left = list(answers)
    ended = asyncio.Event()

    async def trim_log() -> int:
        """Return the sizes that the test prescribes."""
        answer = left.pop(0)
        if not left:
            ended.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run() -> None:
        """Run the duty."""
        clock = VirtualClock()
        running = asyncio.create_task(repeat(Checkpointer(app, clock).duty, clock))
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    monkeypatch.setattr(app.store, "trim_log", trim_log)
    asyncio.run(run())


def test_a_log_that_cannot_be_emptied_is_reported_once_a_minute(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """Log the size and the cause as a warning, and do not repeat it at each pass."""
    looks(app, monkeypatch, *[139_000_000] * (round(WARNINGS / EVERY) + 2))

    assert 2 == len(caplog.messages)
    assert "the log of the database has 139 MB and grows" in caplog.messages[0]
    assert "has had a transaction open" in caplog.messages[0]


def test_a_small_log_is_not_reported(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """Log no message while the log is small."""
    looks(app, monkeypatch, 0, 0, 0)

    assert [] == caplog.messages


def test_the_checkpointer_continues_after_an_error(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """After an error of a busy store, the next pass tries again."""
    looks(app, monkeypatch, StoreBusy("locked"), 139_000_000, 0)

    assert "emptying the log of the database waits: locked" == caplog.messages[0]
    assert 2 == len(caplog.messages)


def test_a_worker_runs_the_checkpointer(filed: App, monkeypatch: pytest.MonkeyPatch):
    """Workers run the checkpointer as one of their duties."""
    looked = asyncio.Event()

    async def trim_log() -> int:
        """Take note."""
        looked.set()
        return 0

    async def run() -> None:
        """Run a worker until its duty has run."""
        async with working(filed), asyncio.timeout(PATIENCE):
            await looked.wait()

    monkeypatch.setattr(filed.store, "trim_log", trim_log)
    asyncio.run(run())
