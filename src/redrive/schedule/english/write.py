"""A policy becomes a text, one sentence a line, each of which is read back as what it was."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import time, timedelta
from typing import Any

from msgspec.structs import replace

from redrive.errors import ScheduleError
from redrive.schedule import options
from redrive.schedule.english import read
from redrive.schedule.english.spans import written, written_ordinal
from redrive.schedule.english.tokens import quoted
from redrive.schedule.english.words import DAY_NAMES, MONTH_NAMES, WEEKEND, WORKDAYS
from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay
from redrive.schedule.schedule import ANCHOR, Schedule
from redrive.schedule.timezone import Gap

_STRATEGIES = {
    options.Strategy.WHICHEVER_FIRST: "Retry or refresh whichever comes first",
    options.Strategy.PLANNED_ONLY: "Retry only at scheduled refreshes",
}
_UNITS = {
    each: each.name.lower().removesuffix("ly") for each in Freq if each is not Freq.DAILY
} | {Freq.DAILY: "day"}  # fmt: skip
_END = time(23, 59, 59)
# A window is written for at least so many times of day.
_MANY = 4


def sentences(policy: options.PolicyFields) -> Iterator[str]:
    """Yield a policy as sentences."""
    if policy.schedule is not None:
        yield f"Refresh {recurrence(policy.schedule)}"
    yield f"Allow {written(policy.timeout)} to complete"
    if policy.catch_up is not None:
        yield f"Start at most {written(policy.catch_up)} late"
    if policy.jitter:
        yield f"Spread starts over {written(policy.jitter)}"
    yield from _retries(policy)
    yield from _overlap(policy)
    last = written_ordinal(len(policy.delays) + 1)
    if policy.on_exhausted is options.Exhausted.WAIT_NEXT:
        yield f"On the {last} failure, reset attempt_no and wait until the next scheduled refresh"
    elif options.usual_ending(policy) is not options.Exhausted.GIVE_UP or _waits_alone(policy):
        yield f"On the {last} failure, give up"
    if policy.give_up_after is not None:
        limit = written(policy.give_up_after)
        if policy.give_up_since is options.GiveUpSince.LAST_SUCCESS:
            yield f"Give up {limit} after the last success"
        else:
            yield f"Give up after {limit} without success"
    for each in policy.on_give_up:
        yield _action(each)


def understood_sentences(found: read.Understood[Any]) -> Iterator[str]:
    """Yield a policy as sentences, with the name of what is refreshed as it was written."""
    written_as = sentences(found.policy)
    subject = found.subject
    if subject is None:
        yield from written_as
        return
    name = subject if found.is_task else f"Refresh {subject}"
    if found.policy.schedule is None:
        yield name
    else:
        yield f"{name} {next(written_as).removeprefix('Refresh ')}"
    yield from written_as


def _waits_alone(policy: options.PolicyFields) -> bool:
    return policy.strategy is options.Strategy.PLANNED_ONLY and policy.schedule is not None and not policy.delays


def _retries(policy: options.PolicyFields) -> Iterator[str]:
    delays = policy.delays[:-1] if policy.repeat_last else policy.delays
    number = 1
    for delay, same in itertools.groupby(delays):
        count = len(list(same))
        last = number + count - 1
        if count == 1:
            which = f"{written_ordinal(number)} failure"
        elif number == 1:
            which = f"first {count} failures"
        else:
            which = f"{written_ordinal(number)} to {written_ordinal(last)} failures"
        yield f"On the {which}, retry {_wait(delay)}"
        number = last + 1
    if policy.repeat_last:
        which = "On any further failure" if delays else "On each failure"
        yield f"{which}, retry {_wait(policy.delays[-1])}"


def _overlap(policy: options.PolicyFields) -> Iterator[str]:
    """Yield the sentence of a strategy; the usual one has none."""
    if policy.strategy is options.Strategy.UNTIL_SUCCESS:
        even = "Make retries even when they overlap with scheduled refreshes"
        yield "Keep retrying until it succeeds" if policy.repeat_last else even
    elif policy.strategy is options.Strategy.UNTIL_PLANNED:
        anew = "Count attempts anew at each scheduled refresh"
        yield "Retry until the next scheduled refresh" if policy.delays else anew
    elif isinstance(policy.strategy, options.FunctionStrategy):
        yield f"Use the strategy {quoted(policy.strategy.label)}"
    elif policy.strategy in _STRATEGIES:
        yield _STRATEGIES[policy.strategy]


def _wait(delay: timedelta) -> str:
    return f"after {written(delay)}" if delay else "immediately"


def _action(action: options.Action) -> str:
    if action.to is None:
        return {"disable": "Disable auto-refresh"}.get(action.name, action.name.capitalize())
    tries = (_told(action, to, text) for to in (action.to, quoted(action.to)) for text in (None, action.text))
    return next(each for each in tries if _means(each, action))


def _told(action: options.Action, to: str, in_quotes: str | None) -> str:
    """Return the sentence of an action to a recipient, perhaps in quotes; so is its text if ``in_quotes`` is given."""
    if action.name == "mark":
        return f"Mark the {to} with {quoted(action.text or '')}"
    said = "" if action.text is None else f" that {action.text if in_quotes is None else quoted(in_quotes)}"
    return f"{action.name.capitalize()} {to}{said}"


def _means(sentence: str, action: options.Action) -> bool:
    """Return whether a sentence is read back as an action."""
    try:
        found = read.parse(sentence, _fields)
    except ScheduleError:
        return False
    return found["on_give_up"] == (action,) and len(sentence.splitlines()) == 1


def _fields(**given: object) -> dict[str, Any]:
    return given


def recurrence(schedule: Schedule) -> str:
    """Return when a schedule occurs, in English; parts without a sentence are in quotes."""
    end = _until(schedule)
    more = "".join(f" {each}" for each in (*_except(schedule), *([end] if end else ()), *_whole(schedule)))
    said = _sentence([replace(each, until=None) for each in schedule.rules]) if end is not None else None
    if said is not None and not (schedule.crons or schedule.times):
        found = _read(f"{said}{more}", schedule)
        if found:
            return found
    return " ".join([_exact(schedule), *_whole(schedule)])


def _read(said: str, schedule: Schedule) -> str | None:
    """Return a text if it is read back as a schedule."""
    try:
        return said if read.parse(f"Refresh {said}", _fields)["schedule"] == schedule else None
    except ScheduleError:
        return None


def _whole(schedule: Schedule) -> Iterator[str]:
    """Yield what belongs to all parts of a schedule."""
    if schedule.tz != "UTC":
        yield f"in {schedule.tz}"
    if schedule.gap is Gap.SKIP:
        yield "leaving out times that do not exist"
    if schedule.start != ANCHOR:
        is_midnight = schedule.start.time() == ANCHOR.time()
        yield f"starting {schedule.start:%Y-%m-%d}" if is_midnight else f'starting "{schedule.start.isoformat()}"'


def _until(schedule: Schedule) -> str | None:
    """Return the end that all rules have; empty if they have none, and None if they differ."""
    ends = {each.until for each in schedule.rules}
    if len(ends) != 1:
        return None
    (end,) = ends
    if end is None or end.tzinfo is not None:
        return None if end else ""
    return f"until {end:%Y-%m-%d}" if end.time() == _END else f'until "{end.isoformat()}"'


def _except(schedule: Schedule) -> Iterator[str]:
    """Yield the times that are left out: dates without any time left, and others in quotes."""
    left = sorted(schedule.except_times)
    if not left:
        return
    times = {time(hour, minute) for each in schedule.rules for hour in each.by_hour for minute in each.by_minute}
    days = {each: {at.time() for at in left if at.date() == each} for each in {at.date() for at in left}}
    whole = sorted(each for each, found in days.items() if times and found == times)
    names = [each.isoformat() for each in whole]
    names += [f'"{each.isoformat()}"' for each in left if each.date() not in whole]
    yield f"except {_and(names)}"


def _exact(schedule: Schedule) -> str:
    """Write a schedule that has no sentence as quoted parts."""
    parts = [f'rule "{each}"' for each in schedule.rules]
    parts += [f"cron {quoted(str(each))}" for each in schedule.crons]
    parts += [f'time "{each.isoformat()}"' for each in schedule.times]
    said = f"by {' and '.join(parts)}"
    if schedule.except_times:
        said += "".join(f' except "{each.isoformat()}"' for each in sorted(schedule.except_times))
    return said


def _sentence(rules: Sequence[RecurrenceRule]) -> str | None:
    """Return a sentence for rules, of which several that differ only in their times are one recurrence."""
    parts = [list(same) for _, same in itertools.groupby(rules, key=_timeless)]
    said = [_part(each) for each in parts]
    return " and ".join(each for each in said if each) if all(said) else None


def _timeless(rule: RecurrenceRule) -> RecurrenceRule:
    return rule if rule.freq.is_elapsed else replace(rule, by_hour=(), by_minute=(), by_second=())


def _part(rules: Sequence[RecurrenceRule]) -> str | None:
    first = rules[0]
    if first.freq.is_elapsed:
        minutes = f" at {_and([f':{each:02}' for each in first.by_minute])}" if first.by_minute else ""
        return f"{_often(first)}{minutes}{_window(first)}{_days(first)}{_months(first)}"
    clocks = sorted((hour, minute) for each in rules for hour in each.by_hour for minute in each.by_minute)
    if not clocks:
        return None
    stepped = _stepped(clocks) if first.freq in {Freq.DAILY, Freq.WEEKLY} and first.interval == 1 else None
    if stepped is not None:
        return f"{stepped}{_days(first)}{_months(first)}"
    at = f" at {_and([f'{hour:02}:{minute:02}' for hour, minute in clocks])}"
    if first.freq is Freq.YEARLY:
        return f"{_often(first)} on the {_month_days(first)} of {_and(_month_names(first))}{_without(first)}{at}"
    if first.freq is Freq.MONTHLY:
        return f"{_often(first)} on the {_month_days(first)} of the month{_without(first)}{_months(first)}{at}"
    days = _days(first)
    often = days.removeprefix(" ") if first.freq is Freq.WEEKLY and first.interval == 1 else f"{_often(first)}{days}"
    return f"{often}{_months(first)}{at}"


def _often(rule: RecurrenceRule) -> str:
    name = _UNITS[rule.freq]
    return f"every {name}" if rule.interval == 1 else f"every {rule.interval} {name}s"


def _stepped(clocks: Sequence[tuple[int, int]]) -> str | None:
    """Return times of day that are equally far apart as steps in a window."""
    minutes = _rotated([60 * hour + minute for hour, minute in clocks])
    steps = {later - earlier for earlier, later in itertools.pairwise(minutes)}
    if len(minutes) < _MANY or len(steps) > 1:
        return None
    (step,) = steps
    # The roundest end that has the same times.
    later = range(minutes[-1] + 1, minutes[-1] + step + 1)
    end = next(each for size in (60, 30, 15, 5, 1) for each in reversed(later) if each % size == 0) % (24 * 60)
    often = f"every {step // 60} hours" if step % 60 == 0 else f"every {step} minutes"
    often = {60: "every hour", 1: "every minute"}.get(step, often)
    return f"{often} between {minutes[0] // 60:02}:{minutes[0] % 60:02} and {end // 60:02}:{end % 60:02}"


def _rotated(minutes: list[int]) -> list[int]:
    """Return minutes of a day from the one after the longest gap on, those after midnight counted on."""
    gaps = [(later - earlier) % (24 * 60) for earlier, later in itertools.pairwise([*minutes, minutes[0]])]
    first = (gaps.index(max(gaps)) + 1) % len(minutes)
    return [*minutes[first:], *(each + 24 * 60 for each in minutes[:first])]


def _and(names: Iterable[str]) -> str:
    listed = list(names)
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def _days(rule: RecurrenceRule) -> str:
    found = tuple(each.day for each in rule.by_day)
    if not found:
        return ""
    named = {WORKDAYS: "weekdays", WEEKEND: "weekends"}.get(found)
    return f" on {named or _and(DAY_NAMES[each] for each in found)}"


def _window(rule: RecurrenceRule) -> str:
    hours = rule.by_hour
    if not hours:
        return ""
    begin = next((each for each in hours if (each - 1) % 24 not in hours), hours[0])
    return f" between {begin:02}:00 and {(begin + len(hours)) % 24:02}:00"


def _months(rule: RecurrenceRule) -> str:
    return f" in {_and(_month_names(rule))}" if rule.by_month else ""


def _month_names(rule: RecurrenceRule) -> list[str]:
    return [MONTH_NAMES[each - 1] for each in rule.by_month]


def _without(rule: RecurrenceRule) -> str:
    """Return the days of the week that are left out of days of a month."""
    if not (rule.by_month_day and rule.by_day):
        return ""
    left_out = tuple(each for each in range(7) if each not in {day.day for day in rule.by_day})
    named = {WORKDAYS: "weekdays", WEEKEND: "weekends"}.get(left_out)
    return f" except {named or _and(DAY_NAMES[each] for each in left_out)}"


def _month_days(rule: RecurrenceRule) -> str:
    if rule.by_set_pos:
        return (
            f"{_and(_nth(each) for each in sorted(rule.by_set_pos, key=lambda place: (place < 0, place)))} business day"
        )
    if rule.by_month_day:
        days = sorted(rule.by_month_day, key=lambda day: (day < 0, day))
        return _and("last day" if each == -1 else f"{_nth(each)}{' day' if each < 0 else ''}" for each in days)
    return _and(_named(each) for each in rule.by_day)


def _nth(number: int) -> str:
    return {-1: "last", -2: "second to last"}.get(number) or written_ordinal(max(number, 1))


def _named(day: WeekDay) -> str:
    return f"{_nth(day.nth or 1)} {DAY_NAMES[day.day]}"
