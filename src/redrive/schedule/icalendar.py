"""Schedules as lines of iCalendar (RFC 5545): ``DTSTART``, ``RRULE``, ``RDATE`` and ``EXDATE``. PURE."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from redrive.errors import ScheduleError
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.timezone import wall, zone

# A line: its name, parameters, and value. The value of a rule may stand alone.
_LINE = re.compile(r"(?:(?P<name>[A-Za-z]+)(?P<parameters>(?:;[^:]*)?):)?(?P<value>.*)")
_FOLD = re.compile(r"\r?\n[ \t]")
_FORM = "write DTSTART:20260105T090000Z and RRULE:FREQ=HOURLY;INTERVAL=2, for example, each on its line"


def fields_of(text: str, tz: str) -> dict[str, Any]:
    """Return the fields of the schedule that lines of iCalendar describe; see `redrive.schedule.Schedule.parse`."""
    if not isinstance(text, str):
        raise ScheduleError(f"a schedule is parsed from a text, not from {text!r}")
    lines = [_split(line) for line in _FOLD.sub("", text).splitlines() if line.strip()]
    # A time with Z beside DTSTART is an instant of any time zone; DTSTART also decides on which clock rules count.
    utc = {"UTC" for name, _, value in lines if name == "DTSTART" and value.strip().upper().endswith("Z")}
    places = {place for _, place, _ in lines if place} | utc
    if len(places) > 1:
        raise ScheduleError(f"a schedule has one time zone, and these lines have {' and '.join(sorted(places))}")
    found: dict[str, Any] = {"tz": places.pop() if places else tz}
    for name, _, value in lines:
        if name == "RRULE":
            found["rules"] = [*found.get("rules", ()), RecurrenceRule.parse(value)]
        elif name == "DTSTART":
            if "start" in found:
                raise ScheduleError("DTSTART is there twice")
            found["start"] = _time(value, found["tz"])
        else:
            field = {"RDATE": "times", "EXDATE": "except_times"}[name]
            found[field] = [*found.get(field, ()), *(_time(each, found["tz"]) for each in value.split(","))]
    return found


def _split(line: str) -> tuple[str, str, str]:
    """Return the name of a line, its time zone or an empty text, and its value."""
    match = _LINE.fullmatch(line.strip())
    assert match is not None  # the value takes any text
    name = (match["name"] or "RRULE").upper()
    if name not in {"DTSTART", "RRULE", "RDATE", "EXDATE"}:
        raise ScheduleError(f"the line {line.strip()!r} is not understood: {_FORM}")
    place = ""
    for parameter in (match["parameters"] or "").split(";")[1:]:
        key, _, value = parameter.partition("=")
        bare = value.removeprefix('"').removesuffix('"')
        if key.upper() == "TZID" and name != "RRULE":
            place = zone(bare).key
        elif (key.upper(), bare.upper()) not in {("VALUE", "DATE"), ("VALUE", "DATE-TIME")}:
            raise ScheduleError(f"the line {line.strip()!r} has a parameter that is not understood: {parameter!r}")
    return name, place, match["value"]


def _time(value: str, tz: str) -> datetime:
    """Return a time on the wall clock of a time zone; one that ends with Z is converted."""
    bare = value.strip().upper()
    try:
        read = datetime.strptime(bare.removesuffix("Z"), "%Y%m%dT%H%M%S" if "T" in bare else "%Y%m%d")
    except ValueError as error:
        raise ScheduleError(
            f"{value!r} is not a time of iCalendar: write 20260105T090000, or 20260105T090000Z"
        ) from error
    return wall(read.replace(tzinfo=UTC), zone(tz)) if bare.endswith("Z") else read
