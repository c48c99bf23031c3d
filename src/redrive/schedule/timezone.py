"""Conversion between instants and wall-clock times. PURE.

A time in the *gap*, which the clock skips, does not exist; a time in the *fold*, in which the clock is set back, exists
twice. RFC 5545 has two rules for the gap: 3.3.10 leaves such an occurrence out, and 3.3.5 reads the time by the offset
before the gap, so that 02:30 becomes 03:30. The second one is the default, because a daily job must not lose a day; the
first one is the option. In the fold the first of the two instants counts.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from redrive.errors import ScheduleError

E = TypeVar("E", bound=StrEnum)

_UTC = ZoneInfo("UTC")
# Abbreviations that are often written for a time zone, with a place in it. Each is the name of an offset, some of
# several, and does not change with the season; only messages use them.
ABBREVIATIONS = {
    short: place
    for place, shorts in {
        "America/New_York": "EST EDT ET",
        "America/Chicago": "CST CDT CT",
        "America/Denver": "MST MDT MT",
        "America/Los_Angeles": "PST PDT PT",
        "America/Anchorage": "AKST AKDT",
        "Pacific/Honolulu": "HST",
        "Europe/London": "GMT BST",
        "Europe/Lisbon": "WET WEST",
        "Europe/Berlin": "CET CEST",
        "Europe/Kyiv": "EET EEST",
        "Europe/Moscow": "MSK",
        "Asia/Kolkata": "IST",
        "Asia/Tokyo": "JST",
        "Asia/Seoul": "KST",
        "Australia/Sydney": "AEST AEDT",
        "Pacific/Auckland": "NZST NZDT",
    }.items()
    for short in shorts.split()
}

# No clock has ever been changed by more than a day, changes of the date line included.
_NEARBY = timedelta(hours=26)


class Gap(StrEnum):
    """The treatment of an occurrence at a wall-clock time that does not exist."""

    SHIFT = "shift"
    """The occurrence is later by as much as the clock is advanced (RFC 5545, 3.3.5)."""

    SKIP = "skip"
    """The occurrence is skipped (RFC 5545, 3.3.10)."""


def zone(name: str) -> ZoneInfo:
    """Return a time zone by its name in the IANA database; raise `ScheduleError` if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, TypeError, ValueError, OSError) as error:
        raise ScheduleError(
            f"{name!r} is not a time zone; write the name of a place, such as "
            f"{ABBREVIATIONS.get(str(name).upper(), 'Europe/Kyiv')}, or UTC"
        ) from error


def aware(name: str, at: datetime) -> datetime:
    """Return an instant; raise `ScheduleError` if it has no time zone."""
    if not isinstance(at, datetime):
        raise ScheduleError(f"{name}={at!r} is not an instant: write datetime(..., tzinfo=UTC)")
    if at.tzinfo is None:
        raise ScheduleError(f"{name}={at!r} has no time zone, so it is not an instant: write datetime(..., tzinfo=UTC)")
    return at


def member(kind: type[E], field: str, value: str) -> E:
    """Return the member that a caller has passed, as itself or as its text; raise `ScheduleError` with the values."""
    # A text equals the member with ``==`` but not with ``is``, so it is converted.
    try:
        return kind(value)
    except ValueError as error:
        raise ScheduleError(f"{field} is {', '.join(repr(each.value) for each in kind)}, not {value!r}") from error


# Instants are aware and in UTC, and all arithmetic is done with them. Python's arithmetic within one zone is that of
# the wall clock: from 00:30 to 02:30 over the end of summer time it counts two hours although three pass. So a
# wall-clock time is naive, and only this module maps it to an instant.
def instant(local: datetime, place: ZoneInfo, gap: Gap = Gap.SHIFT) -> datetime | None:
    """Return the instant of a wall-clock time in UTC: the first one in a fold; None in a gap under `Gap.SKIP`."""
    found = local.replace(tzinfo=place, fold=0).astimezone(UTC)
    if gap is Gap.SKIP and wall(found, place) != local:
        return None
    return found


def instants(local: datetime, place: ZoneInfo) -> list[datetime]:
    """Return the instants of a wall-clock time in UTC, in order: none in a gap, two in a fold."""
    first, second = (local.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1))
    if wall(first, place) != local:
        return []
    return [first] if first == second else [first, second]


def changes(at: datetime, place: ZoneInfo) -> timedelta:
    """Return by how much the wall clock is changed within about a day of an instant; not negative."""
    if not MINYEAR < at.year < MAXYEAR:
        return timedelta(0)
    offsets = [wall(each, place) - wall(each, _UTC) for each in (at - _NEARBY, at, at + _NEARBY)]
    return max(offsets) - min(offsets)


def wall(at: datetime, place: ZoneInfo) -> datetime:
    """Return the wall-clock time of an instant, naive."""
    return at.astimezone(place).replace(tzinfo=None, fold=0)
