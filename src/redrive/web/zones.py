"""The time zone in which a viewer reads times, and the words for an instant. PURE."""

from __future__ import annotations

from datetime import UTC as _UTC
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UTC: Final = ZoneInfo("UTC")

#: The cookie with the name of the zone, and how long a browser keeps it, in seconds.
COOKIE: Final = "redrive_zone"
KEPT: Final = 365 * 24 * 3600

_LONGEST: Final = 60
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def zone_of(name: str) -> ZoneInfo | None:
    """Return the zone of an IANA name, such as ``Europe/Kyiv``; None if there is none."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= _LONGEST else None
    except (ValueError, OSError, ZoneInfoNotFoundError):  # also a name that is no file, such as that of a folder
        return None


def short(instant: datetime, zone: ZoneInfo, at: datetime) -> str:
    """Write an instant: the time of this day, else the date and the time, and the year if it is another one."""
    local, today = instant.astimezone(zone), at.astimezone(zone)
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%a} {local.day} {local:%b, %H:%M}" if local.year == today.year else f"{local:%Y-%m-%d %H:%M}"


def exact(instant: datetime, zone: ZoneInfo) -> str:
    """Write an instant with microseconds in UTC, and in the zone."""
    text = instant.astimezone(_UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    if zone.key == UTC.key:
        return text
    return f"{text}, {instant.astimezone(zone):%Y-%m-%d %H:%M:%S} {zone.key}"


def offset(at: datetime, zone: ZoneInfo) -> str:
    """Write the offset of a zone at an instant, such as ``+02:00``."""
    text = f"{at.astimezone(zone):%z}"
    return f"{text[:3]}:{text[3:5]}"


def ago(instant: datetime, at: datetime) -> str:
    """Write how long ago an instant was, or how far it is."""
    distance = (instant - at).total_seconds()
    number = -(-distance // 1) if distance > 0 else -distance
    size, name = next((each for each in _UNITS if number >= each[0]), _UNITS[-1])
    text = f"{int(number // size)}\N{NO-BREAK SPACE}{name}"
    return f"in {text}" if distance > 0 else f"{text} ago"
