"""A recurrence with all of its parts becomes a schedule, or a contradiction between two of them is an error."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule.english import meaning
from redrive.schedule.english.notes import Pieces, wrong
from redrive.schedule.english.recurrences import FORMS, Recurrence
from redrive.schedule.english.tokens import Place
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.schedule import ANCHOR, Schedule
from redrive.schedule.timezone import Gap


def complete(found: Recurrence, whole: Pieces, start: datetime | None) -> Schedule:
    """Return the schedule of a recurrence; raise `ScheduleSyntaxError` if its parts contradict each other."""
    place: Place = whole.place("schedule")
    begin: datetime = whole.get("start", ANCHOR if start is None else start)
    if start is not None and "start" not in whole:
        whole.put("start", start, place)
    if "start" in whole and "until" in whole and whole.get("until") < begin:
        ends = f"{whole.place('until')} is before {whole.place('start')}"
        wrong(whole.place("until"), ends, "starting 2026-01-01", "until 2026-12-31")
    rules = _exact_rules(found, whole, place) if _is_exact(found) else _rules(found, whole)
    try:
        return Schedule(
            start=begin,
            rules=rules,
            crons=tuple(found.crons),
            times=tuple(found.times),
            except_times=frozenset(_left_out(found, rules)),
            tz=whole.get("tz", "UTC"),
            gap=whole.get("gap", Gap.SHIFT),
        )
    except ScheduleSyntaxError:
        raise
    except ScheduleError as error:
        if "never occurs" in str(error):
            wrong(place, "it never occurs", "on the last day of the month", FORMS[0])
        wrong(place, str(error), *FORMS)


def _is_exact(found: Recurrence) -> bool:
    return bool(found.rules or found.crons or found.times)


def _exact_rules(found: Recurrence, whole: Pieces, place: Place) -> tuple[RecurrenceRule, ...]:
    if len(found.parts) > 1 or set(found.part) != {"exact"} or "until" in whole:
        wrong(
            place,
            "rules, cron expressions and times in quotes stand alone",
            'by rule "FREQ=DAILY;BYHOUR=6"',
            'by cron "0 6 * * *"',
        )
    return tuple(found.rules)


def _rules(found: Recurrence, whole: Pieces) -> tuple[RecurrenceRule, ...]:
    if len(found.parts) > 1:
        _check_common(found)
    for name in ("except_days", "except_months"):
        if f"not_{name}" in whole:
            for part in found.parts:
                part.put(name, whole.get(f"not_{name}"), whole.place(f"not_{name}"))
    lists = [meaning.rules(each, whole) for each in found.parts]
    if len(lists) > 1:
        _check_parts(found, lists)
    rules = tuple(each for made in lists for each in made)
    return _merged(rules) if len(lists) > 1 else rules


def _check_common(found: Recurrence) -> None:
    """Refuse months and exceptions beside several recurrences: they could be about one of them or about all."""
    for part in found.parts:
        if "months" in part or "except_days" in part or "except_months" in part:
            at = part.place("months", "except_days", "except_months")
            wrong(at, f"it is not clear whether {at} is about all of the recurrences", "one of them only")


def _check_parts(found: Recurrence, lists: list[list[RecurrenceRule]]) -> None:
    """Check that it is clear at what time each of several recurrences is, and that none is there twice."""
    for part, made in zip(found.parts, lists, strict=True):
        place = part.place(*part)
        needs_time = not made[0].freq.is_elapsed and "clocks" not in part
        if needs_time and any("clocks" in each for each in found.parts):
            wrong(
                place,
                f"it is not clear at what time {place} is",
                "every Monday at 9 AM and every Friday at 5 PM",
                "every Monday and Friday at 9 AM",
            )
    plain = [
        part
        for part, made in zip(found.parts, lists, strict=True)
        if made[0].freq.is_elapsed and not made[0].by_day and not made[0].by_hour
    ]
    if len(plain) > 1:
        at = plain[1].place(*plain[1])
        wrong(
            at,
            f"not understood: {at.text!r}: there are two intervals",
            "every 2 hours",
            "every 2 hours on weekdays and every 3 hours on weekends",
        )
    slots = _slots(each for made in lists for each in made)
    if len(set(slots)) < len(slots):
        at = found.part.place(*found.part)
        wrong(at, f"{at} is there twice", "each recurrence once")


def _left_out(found: Recurrence, rules: tuple[RecurrenceRule, ...]) -> list[datetime]:
    """Return the times that are left out: those in quotes, and those of the rules on the dates."""
    times_of = _times_on(rules, found.except_days)
    if found.except_days and (times_of is None or _is_exact(found)):
        wrong(
            next(iter(found.except_days.values())),
            "a date can be left out of a recurrence that has times of day",
            "every day at 9 AM except 2026-12-25",
            "every hour except Sundays",
        )
    return [*found.except_times, *(times_of or ())]


def _slots(made: Iterable[RecurrenceRule]) -> list[tuple[RecurrenceRule, int, int]]:
    """Return the times of day of rules, each with its rule without times; a rule of elapsed time once."""
    found = []
    for each in made:
        base = replace(each, by_hour=(), by_minute=(), by_second=())
        if each.freq.is_elapsed:
            found.append((each, 0, 0))
        else:
            found += [(base, *time) for time in itertools.product(each.by_hour, each.by_minute)]
    return found


def _merged(made: Sequence[RecurrenceRule]) -> tuple[RecurrenceRule, ...]:
    """Return rules of which none differs from another in its times alone, unless they have several minutes."""
    groups: dict[RecurrenceRule, list[tuple[int, int]]] = {}
    for each in made:
        if each.freq.is_elapsed or each.by_set_pos or len(each.by_minute) > 1:
            groups[each] = []
        else:
            base = replace(each, by_hour=(), by_minute=(), by_second=())
            groups.setdefault(base, []).extend((hour, each.by_minute[0]) for hour in each.by_hour)
    found: list[RecurrenceRule] = []
    for base, times in groups.items():
        if not times:
            found.append(base)
        for minute, hours in meaning.grouped(base, sorted(set(times))):
            found.append(replace(base, by_hour=hours, by_minute=(minute,), by_second=(0,)))
    return tuple(found)


def _times_on(made: Iterable[RecurrenceRule], dates: Iterable[datetime]) -> list[datetime] | None:
    """Return the times of rules on some dates; None if a rule has no times of day."""
    found = []
    for rule, date in itertools.product(made, dates):
        if rule.freq.is_elapsed or not rule.by_hour or not rule.by_minute:
            return None
        found += [date + timedelta(hours=hour, minutes=minute) for hour in rule.by_hour for minute in rule.by_minute]
    return found
