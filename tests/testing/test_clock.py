"""The virtual clock: time that passes only when told to, or when somebody sleeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
import trio

from redrive.clock import Clock, SystemClock
from redrive.errors import PolicySyntaxError, PolicyValueError
from redrive.testing import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_time_stands_still():
    """It begins with the year 2026, and nothing passes by itself."""
    clock = VirtualClock()

    assert (START, START, 0.0) == (clock.now(), clock.now(), clock.monotonic())


def test_any_aware_instant_is_a_start():
    """It is told in UTC from then on."""
    clock = VirtualClock(datetime(2026, 6, 1, 2, tzinfo=timezone(timedelta(hours=2))))

    assert (datetime(2026, 6, 1, tzinfo=UTC), UTC) == (clock.now(), clock.now().tzinfo)


def test_a_start_without_a_time_zone_is_refused():
    """Instants are aware (law 8)."""
    with pytest.raises(ValueError, match=r"a clock needs an aware instant, got datetime\.datetime\(2026, 1, 1, 0, 0\)"):
        VirtualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - the subject


@pytest.mark.parametrize("by", ["1h30m", 5400, 5400.0, timedelta(hours=1, minutes=30)])
def test_time_passes_when_told_to(by):
    """A span is given as for everything else; the answer is the instant after it."""
    clock = VirtualClock()
    after = clock.advance(by)

    assert (START + timedelta(minutes=90), after, 5400.0) == (after, clock.now(), clock.monotonic())


@pytest.mark.parametrize(
    ("by", "error"), [(-1, PolicyValueError), ("-1s", PolicySyntaxError), ("soon", PolicySyntaxError)]
)
def test_time_does_not_go_back(by, error):
    """Nor anywhere that cannot be read."""
    clock = VirtualClock()

    with pytest.raises(error):
        clock.advance(by)
    assert START == clock.now()


@pytest.mark.parametrize(("seconds", "expected"), [(1.5, 1.5), (0, 0.0), (-3, 0.0)])
def test_sleeping_jumps(seconds, expected):
    """In both colours; a negative sleep is none."""
    clock, other = VirtualClock(), VirtualClock()
    clock.sleep(seconds)
    asyncio.run(other.asleep(seconds))

    assert (expected, expected) == (clock.monotonic(), other.monotonic())


def test_others_run_before_time_jumps():
    """A task that sleeps lets those run that are ready at the present instant."""
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
    """The virtual clock has all that the system's has."""
    members = {name for name in vars(Clock) if not name.startswith("_")}

    assert {"asleep", "monotonic", "now", "sleep"} == members
    assert set() == members - set(dir(VirtualClock)) == members - set(dir(SystemClock))


def test_sleeping_under_trio_jumps_too():
    """The clock serves both event loops: an hour of sleep under trio passes at once."""
    clock = VirtualClock()

    trio.run(clock.asleep, 3600.0)

    assert START + timedelta(hours=1) == clock.now()
