"""From the wall clock of a place to instants, and back.

Instants are aware and in UTC; all arithmetic is done with them (law 8). Python's own arithmetic within one zone is
that of the wall clock: from 00:30 to 02:30 over the end of summer time it counts two hours, where three go by. So a
wall-clock time is naive, and this module alone says which instant it is.

Twice a year that is a question. A time in the *gap*, which the clocks leap over, does not exist; a time in the *fold*,
in which they are set back, exists twice. RFC 5545 answers twice for the gap: 3.3.10 leaves such an occurrence out, and
3.3.5 reads the time by the offset that held before, so that 02:30 becomes 03:30. A daily job must not lose its day:
the second one is the default here, and the first one the option. In the fold the first of the two counts, once.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from redrive.errors import ScheduleError

__all__ = ["Gap", "aware", "changes", "instant", "instants", "wall", "zone"]

_UTC = ZoneInfo("UTC")
_NEARBY = timedelta(hours=26)
"""No clock has been changed by more than a day, a change of the date line included."""


class Gap(StrEnum):
    """What becomes of an occurrence that the wall clock leaps over."""

    SHIFT = "shift"
    """It comes as much later as the clocks were advanced (RFC 5545, 3.3.5)."""

    SKIP = "skip"
    """There is none (RFC 5545, 3.3.10)."""


def zone(name: str) -> ZoneInfo:
    """Find a time zone.

    Args:
        name: of the IANA database: ``Europe/Kyiv``, ``UTC``.

    Returns:
        The zone.

    Raises:
        ScheduleError: there is none of this name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(
            f"{name!r} is no time zone; write the name of a place, such as Europe/Kyiv, or UTC"
        ) from error


def aware(name: str, at: datetime) -> datetime:
    """Check that a time is an instant.

    Args:
        name: of the argument, for the message.
        at: the time.

    Returns:
        The same.

    Raises:
        ScheduleError: it has no time zone.
    """
    if not isinstance(at, datetime):
        raise ScheduleError(f"{name}={at!r} is no instant: write datetime(..., tzinfo=UTC)")
    if at.tzinfo is None:
        raise ScheduleError(f"{name}={at!r} has no time zone, so it is no instant: write datetime(..., tzinfo=UTC)")
    return at


def instant(local: datetime, place: ZoneInfo, gap: Gap = Gap.SHIFT) -> datetime | None:
    """Say which instant a time on the wall clock is.

    Args:
        local: naive.
        place: whose clock.
        gap: what a time means that does not exist.

    Returns:
        The instant in UTC, the first one where there are two; None where there is none.
    """
    found = local.replace(tzinfo=place, fold=0).astimezone(UTC)
    if gap is Gap.SKIP and wall(found, place) != local:
        return None
    return found


def instants(local: datetime, place: ZoneInfo) -> list[datetime]:
    """Return the instants at which the wall clock shows a time.

    Args:
        local: naive.
        place: whose clock.

    Returns:
        Instants in UTC, in order: none in a gap, two in a fold.
    """
    first, second = (local.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1))
    if wall(first, place) != local:
        return []
    return [first] if first == second else [first, second]


def changes(at: datetime, place: ZoneInfo) -> timedelta:
    """Return by how much the wall clock is changed within about a day of an instant, before it or after it.

    Args:
        at: aware.
        place: whose clock.

    Returns:
        The difference, not negative.
    """
    if not MINYEAR < at.year < MAXYEAR:
        return timedelta(0)
    offsets = [wall(each, place) - wall(each, _UTC) for each in (at - _NEARBY, at, at + _NEARBY)]
    return max(offsets) - min(offsets)


def wall(at: datetime, place: ZoneInfo) -> datetime:
    """Say what the wall clock shows.

    Args:
        at: an instant.
        place: whose clock.

    Returns:
        The time there, naive.
    """
    return at.astimezone(place).replace(tzinfo=None, fold=0)
