"""Sentences beside the schedule: its time zone, the business hours, and days without refreshes."""

from __future__ import annotations

from redrive.schedule.english import elapsed, places, times
from redrive.schedule.english.days import listed, month_list, week_days
from redrive.schedule.english.notes import Pieces
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import WORKDAYS


def definitions(reader: Reader, notes: Pieces) -> bool:
    """Take a sentence about the time zone or the business hours; return False if the text is another clause."""
    begin = reader.place
    if reader.take("the time zone is", "time zone :", "timezone :", "time zone is", "times are", "all times are"):
        reader.take("in") if not reader.sees("in") else None
        if not places.zone_phrase(reader, notes):
            places.refuse_place(reader)
            reader.lost("a time zone belongs here", "Time zone: Europe/Kyiv", "Time zone: UTC")
        return True
    if reader.take("business hours are", "business hours :", "our business hours are", "the business hours are"):
        _business(reader, notes, begin)
        return True
    return _never(reader, notes, begin)


def _never(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take days or months without refreshes: ``Do not refresh on weekends``."""
    if not reader.take("do not refresh", "don't refresh", "never refresh", "do not run", "don't run", "never run"):
        return False
    reader.take("on", "in", "during")
    week = listed(reader, week_days, "on")
    months = month_list(reader) if week is None else None
    if week is None and months is None:
        reader.lost("days of the week or months belong here", "Do not refresh on weekends", "Do not refresh in August")
    name = "not_except_months" if week is None else "not_except_days"
    notes.put(name, frozenset(week or months or ()), reader.said(begin))
    return True


def _business(reader: Reader, notes: Pieces, begin: int) -> None:
    days: tuple[int, ...] | None = None
    window: times.DayWindow | None = None
    while days is None or window is None:
        at = reader.place
        reader.take(",")
        if window is None and (window := times.window(reader)) is not None:
            continue
        if days is None and (reader.take("on") or True) and (days := listed(reader, week_days)) is not None:
            continue
        reader.place = at
        break
    if window is None or window.begin is None:
        reader.lost(
            "business hours have a beginning and an end",
            "Business hours are Monday to Friday from 9 AM to 5 PM",
            "Business hours are 8:00 to 18:00",
        )
    value = (tuple(sorted(days or WORKDAYS)), elapsed.bounds(window))
    if value[1][0] >= value[1][1]:
        reader.refuse(begin, "business hours end before midnight", "Business hours are 8:00 to 18:00")
    notes.put("business", value, reader.said(begin))
