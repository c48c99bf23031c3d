"""Tests of the virtual clock, which advances only by `advance` and by sleeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
import trio

from redrive.clock import Clock, SystemClock
from redrive.errors import PolicySyntaxError, PolicyValueError
from redrive.testing import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_virtual_time_does_not_advance_by_itself():
    """Virtual time starts at the beginning of 2026 and does not advance by itself."""
    clock = VirtualClock()

    assert (START, START, 0.0) == (clock.now(), clock.now(), clock.monotonic())


def test_any_aware_instant_is_a_start():
    """Any aware instant is a start, and the clock returns it in UTC."""
    clock = VirtualClock(datetime(2026, 6, 1, 2, tzinfo=timezone(timedelta(hours=2))))

    assert (datetime(2026, 6, 1, tzinfo=UTC), UTC) == (clock.now(), clock.now().tzinfo)


def test_a_start_without_a_time_zone_is_refused():
    """Naive instants are refused."""
    with pytest.raises(ValueError, match=r"a clock needs an aware instant, got datetime\.datetime\(2026, 1, 1, 0, 0\)"):
        VirtualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - the subject


@pytest.mark.parametrize("by", ["1h30m", 5400, 5400.0, timedelta(hours=1, minutes=30)])
def test_advancing_moves_the_time(by):
    """Advancing takes a span in any form and returns the instant after it."""
    clock = VirtualClock()
    after = clock.advance(by)

    assert (START + timedelta(minutes=90), after, 5400.0) == (after, clock.now(), clock.monotonic())


@pytest.mark.parametrize(
    ("by", "error"), [(-1, PolicyValueError), ("-1s", PolicySyntaxError), ("soon", PolicySyntaxError)]
)
def test_time_does_not_go_back(by, error):
    """Negative and unreadable spans are refused, and the time stays."""
    clock = VirtualClock()

    with pytest.raises(error):
        clock.advance(by)
    assert START == clock.now()


@pytest.mark.parametrize(("seconds", "expected"), [(1.5, 1.5), (0, 0.0), (-3, 0.0)])
def test_sleeping_advances_the_time(seconds, expected):
    """In both colours; a negative sleep is none."""
    clock, other = VirtualClock(), VirtualClock()
    clock.sleep(seconds)
    asyncio.run(other.asleep(seconds))

    assert (expected, expected) == (clock.monotonic(), other.monotonic())


def test_other_tasks_run_before_the_time_advances():
    """Before time advances, all tasks run that are ready at the present instant."""
    clock = VirtualClock()
    seen: list[float] = []

    async def look() -> None:
        """Look at the clock."""
        seen.append(clock.monotonic())

    async def run() -> None:
        """Run it on an event loop."""
        looking = asyncio.create_task(look())
        await clock.asleep(60)
        await looking

    asyncio.run(run())

    assert [0.0] == seen


def test_both_clocks_are_clocks():
    """Virtual and system clock have the same public members."""
    members = {name for name in vars(Clock) if not name.startswith("_")}

    assert {"asleep", "monotonic", "now", "sleep"} == members
    assert set() == members - set(dir(VirtualClock)) == members - set(dir(SystemClock))


def test_sleeping_under_trio_advances_the_time():
    """Under trio, too, an hour of sleep passes at once."""
    clock = VirtualClock()

    trio.run(clock.asleep, 3600.0)

    assert START + timedelta(hours=1) == clock.now()
