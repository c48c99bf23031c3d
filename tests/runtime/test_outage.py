"""What the log has of an outage of the database: first failures, a line a minute, and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from redrive.errors import StoreUnreachable
from redrive.runtime.supervision import Duty, Outage, Supervisor
from redrive.testing import VirtualClock

AWAY = StoreUnreachable("connection refused")


class Lines:
    """The lines of the log, each with its level."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def read(self) -> list[str]:
        """Return the lines so far."""
        return [f"{each.levelname} {each.getMessage()}" for each in self._caplog.records]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """Return the lines that a worker logs."""
    with caplog.at_level(logging.INFO, "redrive.worker"):
        yield Lines(caplog)


def test_an_outage_of_three_minutes_is_a_few_lines(lines: Lines):
    """Two duties that try every 5 seconds: a first failure each, a line each minute, and one at the end."""
    clock = VirtualClock(datetime(2026, 3, 1, 2, 14, 7, tzinfo=UTC))
    outage = Outage(clock)
    for _ in range(36):
        outage.failed("claiming", AWAY)
        outage.failed("sweeping", AWAY)
        clock.advance(5)
    outage.worked("claiming")
    outage.worked("sweeping")
    since = "WARNING since 2026-03-01 02:14:07 UTC"

    assert [
        "WARNING claiming waits: connection refused",
        "WARNING sweeping waits: connection refused",
        f"{since} (1m) 25 tries have failed: claiming 13, sweeping 12; the last error: connection refused",
        f"{since} (2m) 49 tries have failed: claiming 25, sweeping 24; the last error: connection refused",
        "INFO the database is back: after 3m nothing waits for it; 72 tries have failed: claiming 36, sweeping 36",
    ] == lines.read()


def test_the_next_outage_is_counted_anew(lines: Lines):
    """It has first failures of its own."""
    outage = Outage(VirtualClock())
    for _ in range(2):
        outage.failed("claiming", AWAY)
        outage.worked("claiming")

    assert [
        "WARNING claiming waits: connection refused",
        "INFO the database is back: after 0ms nothing waits for it; 1 try has failed: claiming 1",
    ] * 2 == lines.read()


def test_a_duty_that_works_is_no_end_while_another_one_waits(lines: Lines):
    """Writes fail on a full disk, and reads do not; what fails again is no first failure."""
    clock = VirtualClock()
    outage = Outage(clock)
    for _ in range(2):
        outage.failed("claiming", AWAY)
        outage.failed("settling", AWAY)
        outage.worked("claiming")
        outage.worked("watching")

    assert ["WARNING claiming waits: connection refused", "WARNING settling waits: connection refused"] == lines.read()


def test_a_duty_that_tries_no_more_does_not_hide_the_end(lines: Lines):
    """One that was cancelled in the outage, or that tries once a minute, is not waited for."""
    clock = VirtualClock()
    outage = Outage(clock)
    outage.failed("delivering mail", AWAY)
    clock.advance(14)
    outage.failed("claiming", AWAY)
    outage.worked("claiming")
    before = len(lines.read())
    clock.advance(1)
    outage.worked("claiming")

    assert 2 == before
    assert lines.read()[2:] == [
        "INFO the database is back: after 15s nothing waits for it; 2 tries have failed: claiming 1, delivering mail 1"
    ]


def test_duties_under_a_supervisor_share_an_outage(lines: Lines):
    """Fifteen duties that fail for five minutes leave fifteen first failures, a line a minute, and the end."""
    clock = VirtualClock()
    supervisor = Supervisor(clock)

    async def step() -> float | None:
        """Fail for five minutes."""
        if clock.monotonic() < 300:
            raise AWAY
        return None

    async def run() -> None:
        """Run all of them."""
        await asyncio.gather(*(supervisor.run(Duty(f"duty {number}", step)) for number in range(15)))

    asyncio.run(run())
    found = lines.read()

    assert 15 == sum(" waits: " in each for each in found)
    assert 3 <= sum(each.startswith("WARNING since ") for each in found) <= 5
    assert found[-1].startswith("INFO the database is back: ")
