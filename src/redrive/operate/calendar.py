"""The calendar of a cron: its occurrences in a week, decided and planned, in any time zone."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from http import HTTPStatus
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.occurrence import Occurrence
from redrive.engine.recurring import CronDefinition
from redrive.operate.charts import calendar
from redrive.operate.charts.calendar import DAYS, YEARS, Day, Mark
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Page, Refusal, Request, Site
from redrive.operate.schedule_view import ScheduleView, view
from redrive.schedule.timezone import zone
from redrive.stores.operations import clock, schedules

#: Decided occurrences of a week that are read.
MOST: Final = 1000


class CalendarQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a calendar.

    Attributes:
        tz: a time zone such as ``Europe/Kyiv``; by default that of the cron.
        week: a day of the week, such as ``2026-11-23``; by default today.
    """

    tz: str | None = None
    week: str | None = None


class Calendar(msgspec.Struct, frozen=True, gc=False):
    """A week of a cron.

    Attributes:
        tz: the time zone of the days; by default that of the cron.
        zones: time zones to choose from.
        words: a cron expression in words; None for another pattern.
        cut: True if the week has more decided occurrences than are shown, the latest 1,000.
        before: the parameter ``week`` of the week before, and ``after`` that of the next one.
    """

    at: datetime
    name: str
    when: str
    words: str | None
    tz: str
    zones: tuple[str, ...]
    paused_at: datetime | None
    days: tuple[Day, ...]
    cut: bool
    week: date
    before: date
    after: date

    @property
    def drawing(self) -> Picture:
        """The days as a picture."""
        return calendar.draw(self.days)


def week(site: Site, request: Request) -> Procedure[Page]:
    """Show a week of a cron."""
    name = request.places["name"]
    seen: ScheduleView = yield from view(site.app, name)
    cron = seen.definition
    if not isinstance(cron, CronDefinition):
        raise Refusal(HTTPStatus.NOT_FOUND, f"{name} is no cron that this version can read: it has no calendar")
    tz = request.query.get("tz", "").strip() or cron.tz
    place = zone(tz)
    at: datetime = yield clock.present(site.app.now())
    first = _monday(request.query.get("week", "").strip(), at.astimezone(place).date())
    begin, end = (calendar.midnight(first + timedelta(days=number), place) for number in (0, DAYS))
    found: tuple[Occurrence, ...] = yield schedules.occurrences(name, before=end, limit=MOST + 1)
    decided = [
        Mark(each.occurs_at, each.occurs_at.astimezone(place), each.decision.value, each.note)
        for each in reversed(found[:MOST])
        if each.occurs_at >= begin
    ]
    data = Calendar(
        at=at,
        name=name,
        when=seen.when,
        words=seen.words,
        tz=tz,
        zones=tuple(dict.fromkeys((cron.tz, "UTC", tz))),
        paused_at=seen.paused_at,
        days=calendar.week(cron.schedule, decided, first, place, now=at, paused=seen.paused_at is not None),
        cut=len(found) > MOST and found[MOST].occurs_at >= begin,
        week=first,
        before=first - timedelta(days=DAYS),
        after=first + timedelta(days=DAYS),
    )
    return Page(f"{name}, week of {first}", data)


def _monday(text: str, today: date) -> date:
    """Return the Monday of the week of a day; by default of today."""
    try:
        day = date.fromisoformat(text) if text else today
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"week={text[:40]!r} is not a day such as 2026-11-23") from error
    if day.year not in YEARS:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"week={text[:40]!r}: the calendar has the years 1970 to 2099")
    return day - timedelta(days=day.weekday())
