"""A slow reckoning of crons and hourly rules: every minute of some days, and what the wall clock shows then.

It shares no code with `redrive.schedule`, and nothing but `zoneinfo` with its algorithms.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MINUTE = timedelta(minutes=1)
DAYS = 3

CHANGES = {
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),  # half an hour
    "Asia/Colombo": ("2006-04-14", "2026-01-01"),  # from +06:00 to +05:30, for good
    "Asia/Kathmandu": ("2026-01-01",),  # +05:45
    "Pacific/Apia": ("2011-12-29", "2011-09-23"),  # a day was left out
    "America/Sao_Paulo": ("2018-02-17", "2018-11-03"),  # at midnight
    "Africa/Cairo": ("2026-04-23", "2026-10-29"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Europe/Kyiv": ("2026-03-28", "2026-10-24"),
    "Pacific/Chatham": ("2026-04-04", "2026-09-26"),  # +12:45
    "America/Caracas": ("2016-04-30", "2007-12-08"),  # by half an hour
}
"""Places, and days on which their clocks are changed."""


@st.composite
def places(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw a place and an instant on a day before its clocks are changed, or on that day."""
    tz = draw(st.sampled_from(sorted(CHANGES)))
    day = datetime.fromisoformat(draw(st.sampled_from(CHANGES[tz]))).replace(tzinfo=ZoneInfo(tz))
    return tz, day.astimezone(UTC) + draw(st.integers(-12 * 60, 24 * 60)) * MINUTE


def shown(tz: str, begin: datetime, days: int = DAYS) -> Iterator[tuple[datetime, datetime]]:
    """Yield each minute from an instant on, in UTC and as the wall clock shows it."""
    place = ZoneInfo(tz)
    for number in range(days * 24 * 60):
        at = begin + number * MINUTE
        yield at, at.astimezone(place).replace(tzinfo=None)


def whenever(tz: str, begin: datetime, fits: Callable[[datetime], bool]) -> list[datetime]:
    """Return the minutes at which the clock shows what fits."""
    return [at for at, local in shown(tz, begin) if fits(local)]


def once(tz: str, begin: datetime, fits: Callable[[datetime], bool]) -> list[datetime]:
    """Return the first minute at which the clock shows each time that fits, or has leapt over it."""
    found: dict[datetime, None] = {}
    past = begin - 2 * timedelta(days=1)
    minutes = list(shown(tz, past, DAYS + 4))
    seen: set[datetime] = set()
    latest = minutes[0][1]
    for at, local in minutes:
        missed = (latest + number * MINUTE for number in range(1, (local - latest) // MINUTE))
        if any(fits(each) for each in missed) or (local not in seen and local >= latest and fits(local)):
            found[at] = None
        seen.add(local)
        latest = max(latest, local)
    return [each for each in found if begin <= each < begin + timedelta(days=DAYS)]


def within(found: Iterable[datetime], begin: datetime) -> list[datetime]:
    """Return the occurrences that the reckoning covers."""
    listed = []
    for each in found:
        if each >= begin + timedelta(days=DAYS):
            break
        listed.append(each)
    return listed
