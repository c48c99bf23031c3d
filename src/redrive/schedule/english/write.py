"""A policy becomes a text, one sentence a line, each of which is read back as what it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from redrive.errors import ScheduleError
from redrive.schedule.english.failures import action as take_action
from redrive.schedule.english.notes import Notes
from redrive.schedule.english.recurrences import DAY_NAMES, recurrence
from redrive.schedule.english.spans import written, written_ordinal
from redrive.schedule.english.tokens import Reader, lines, quoted
from redrive.schedule.options import Action, Exhausted, PolicyFields, Strategy, usual_ending
from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay
from redrive.schedule.schedule import ANCHOR, Schedule
from redrive.schedule.timezone import Gap

_STRATEGIES = {
    Strategy.UNTIL_SUCCESS: "Keep retrying until it succeeds",
    Strategy.UNTIL_PLANNED: "Retry until the next scheduled refresh",
    Strategy.WHICHEVER_FIRST: "Retry or refresh whichever comes first",
    Strategy.PLANNED_ONLY: "Retry only at scheduled refreshes",
}


def sentences(policy: PolicyFields) -> Iterator[str]:
    """Yield a policy as sentences."""
    if policy.schedule is not None:
        yield f"Refresh {_recurrence(policy.schedule)}"
    yield f"Allow {written(policy.timeout)} to complete"
    if policy.catch_up is not None:
        yield f"Start at most {written(policy.catch_up)} late"
    if policy.jitter:
        yield f"Spread starts over {written(policy.jitter)}"
    yield from _retries(policy)
    if policy.strategy in _STRATEGIES:
        yield _STRATEGIES[policy.strategy]
    last = written_ordinal(len(policy.delays) + 1)
    if policy.on_exhausted is Exhausted.WAIT_NEXT:
        yield f"On the {last} failure, reset attempt_no and wait until the next scheduled refresh"
    elif usual_ending(policy) is not Exhausted.GIVE_UP:
        yield f"On the {last} failure, give up"
    if policy.give_up_after is not None:
        yield f"Give up after {written(policy.give_up_after)} without success"
    for each in policy.on_give_up:
        yield _action(each)


def _retries(policy: PolicyFields) -> Iterator[str]:
    delays = policy.delays[:-1] if policy.repeat_last else policy.delays
    for number, delay in enumerate(delays, 1):
        yield f"On the {written_ordinal(number)} failure, retry {_wait(delay)}"
    if policy.repeat_last:
        yield f"On any further failure, retry {_wait(policy.delays[-1])}"


def _wait(delay: timedelta) -> str:
    return f"after {written(delay)}" if delay else "immediately"


def _action(action: Action) -> str:
    if action.to is None:
        return {"disable": "Disable auto-refresh"}.get(action.name, action.name.capitalize())
    tries = (_told(action, to, text) for to in (action.to, quoted(action.to)) for text in (None, action.text))
    return next(each for each in tries if _means(each, action))


def _told(action: Action, to: str, in_quotes: str | None) -> str:
    """Return the sentence of an action to a recipient, perhaps in quotes; so is its text if ``in_quotes`` is given."""
    if action.name == "mark":
        return f"Mark the {to} with {quoted(action.text or '')}"
    said = "" if action.text is None else f" that {action.text if in_quotes is None else quoted(in_quotes)}"
    return f"{action.name.capitalize()} {to}{said}"


def _means(sentence: str, action: Action) -> bool:
    """Return whether a sentence is read back as an action."""
    found = lines(sentence)
    if len(found) != 1:
        return False
    reader, notes = Reader(found[0]), Notes()
    try:
        read = take_action(reader, notes)
    except ScheduleError:
        return False
    return read and reader.next is None and notes.actions == [action]


def _recurrence(schedule: Schedule) -> str:
    parts = [_plain(schedule) or _exact(schedule)]
    if schedule.tz != "UTC":
        parts.append(f"in {schedule.tz}")
    if schedule.gap is Gap.SKIP:
        parts.append("leaving out times that do not exist")
    if schedule.start != ANCHOR:
        is_midnight = schedule.start.time() == ANCHOR.time()
        parts.append(
            f"starting {schedule.start:%Y-%m-%d}" if is_midnight else f'starting "{schedule.start.isoformat()}"'
        )
    return " ".join(parts)


def _exact(schedule: Schedule) -> str:
    """Write a schedule that has no sentence as quoted parts."""
    parts = [f'rule "{each}"' for each in schedule.rules]
    parts += [f"cron {quoted(str(each))}" for each in schedule.crons]
    parts += [f'time "{each.isoformat()}"' for each in schedule.times]
    said = f"by {' and '.join(parts)}"
    if schedule.except_times:
        said += "".join(f' except "{each.isoformat()}"' for each in sorted(schedule.except_times))
    return said


def _plain(schedule: Schedule) -> str | None:
    """Write a sentence for a schedule of rules, if there is one that parses to these rules."""
    if schedule.crons or schedule.times or schedule.except_times:
        return None
    said = _sentence(schedule.rules)
    if said is None:
        return None
    try:
        read = recurrence(Reader(lines(said)[0]), None)
    except ScheduleError:
        return None
    return said if read.rules == schedule.rules else None


def _sentence(rules: Sequence[RecurrenceRule]) -> str | None:
    first = rules[0]
    name = _UNITS.get(first.freq)
    if name is None:
        return None
    often = f"every {name}" if first.interval == 1 else f"every {first.interval} {name}s"
    days = _days(first)
    if first.freq.is_elapsed:
        return f"{often}{_window(first)}{days}"
    if first.freq is Freq.WEEKLY and first.interval == 1:
        often, days = days.strip(), ""
    elif first.freq is Freq.MONTHLY:
        days = _month_days(first)
    clocks = sorted((hour, minute) for each in rules for hour in each.by_hour for minute in each.by_minute)
    return f"{often}{days} at {_and([f'{hour:02}:{minute:02}' for hour, minute in clocks])}"


_UNITS = {each: each.name.lower().removesuffix("ly") for each in (Freq.SECONDLY, Freq.MINUTELY, Freq.HOURLY)} | {
    Freq.DAILY: "day", Freq.WEEKLY: "week", Freq.MONTHLY: "month",
}  # fmt: skip


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _days(rule: RecurrenceRule) -> str:
    found = tuple(each.day for each in rule.by_day)
    if not found:
        return ""
    named = {(0, 1, 2, 3, 4): "weekdays", (5, 6): "weekends"}.get(found)
    return f" on {named or _and([DAY_NAMES[each] for each in found])}"


def _month_days(rule: RecurrenceRule) -> str:
    days = sorted(rule.by_month_day, key=lambda day: (day < 0, day))
    names = ["last day" if each == -1 else written_ordinal(each) for each in days]
    names += [_nth(each) for each in rule.by_day]
    return f" on the {_and(names)} of the month" if names else ""


def _nth(day: WeekDay) -> str:
    return f"{'last' if day.nth == -1 else written_ordinal(max(day.nth or 1, 1))} {DAY_NAMES[day.day]}"


def _window(rule: RecurrenceRule) -> str:
    hours = rule.by_hour
    if not hours:
        return ""
    begin = next((each for each in hours if (each - 1) % 24 not in hours), hours[0])
    return f" between {begin:02}:00 and {(begin + len(hours)) % 24:02}:00"
