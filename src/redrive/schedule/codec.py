"""Refresh policies as JSON-able data. PURE.

The database keeps this form. All fields are written, defaults included, so that a stored policy means the same after an
upgrade that changes a default; therefore every key is required when it is read. Spans are seconds, exact to the
microsecond; texts such as ``"PT1H"`` are read, too. Times of a schedule are naive, on its wall clock; rules are RFC
5545, and crons are as written::

    {"version": 1, "schedule": {"start": "2001-01-01T00:00:00", "rules": ["FREQ=HOURLY;INTERVAL=2"], "crons": [],
     "times": [], "except_times": [], "tz": "UTC", "gap": "shift"}, "timeout": 600.0, "delays": [0.0, 60.0], ...,
     "on_give_up": [{"name": "email", "to": "customer", "text": "it was disabled"}]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from redrive.errors import ScheduleError
from redrive.schedule.cron import CronExpression
from redrive.schedule.options import Action, FunctionStrategy, PolicyFields, read_span
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.schedule import Schedule

VERSION = 1

P = TypeVar("P")
T = TypeVar("T")

_CHOICES = ("strategy", "on_exhausted", "give_up_since")
_SPANS = ("timeout", "give_up_after", "catch_up", "jitter")
_KEYS = ("version", "schedule", "delays", "on_give_up", "repeat_last", *_CHOICES, *_SPANS)
_SCHEDULE = ("start", "rules", "crons", "times", "except_times", "tz", "gap")
_ACTION = ("name", "to", "text")


def to_dict(policy: PolicyFields) -> dict[str, Any]:
    """See `redrive.schedule.RefreshPolicy.to_dict`."""
    data: dict[str, Any] = {"version": VERSION, "schedule": None}
    if policy.schedule is not None:
        data["schedule"] = _schedule_out(policy.schedule)
    data |= {name: _span_out(getattr(policy, name)) for name in _SPANS}
    data |= {"repeat_last": policy.repeat_last}
    data |= {name: _choice_out(getattr(policy, name)) for name in _CHOICES}
    data["delays"] = [_span_out(each) for each in policy.delays]
    data["on_give_up"] = [{name: getattr(each, name) for name in _ACTION} for each in policy.on_give_up]
    return data


def from_dict(data: object, make: Callable[..., P]) -> P:
    """See `redrive.schedule.RefreshPolicy.from_dict`; ``make`` builds a policy from its fields."""
    version = _mapping(data, "policy").get("version")
    if type(version) is not int or version != VERSION:
        raise ScheduleError(f"policy.version: {version!r} is not {VERSION}, the only version that is known here")
    found = _keys(data, _KEYS, "policy")
    schedule = found["schedule"]
    given: dict[str, Any] = {name: _text(found[name], f"policy.{name}") for name in _CHOICES}
    needed = {name for name in _SPANS if found[name] is not None} | {"timeout", "jitter"}
    given |= {name: _span(found[name], f"policy.{name}") for name in needed}
    given["repeat_last"] = _truth(found["repeat_last"], "policy.repeat_last")
    given["schedule"] = None if schedule is None else _schedule(schedule, "policy.schedule")
    given["delays"] = _each(found["delays"], _span, "policy.delays")
    given["on_give_up"] = _each(found["on_give_up"], _action, "policy.on_give_up")
    return _build(lambda: make(**given), "policy")


def _choice_out(value: object) -> str:
    if not isinstance(value, FunctionStrategy):
        return str(value)
    if value.name is None:
        raise ScheduleError(
            f"strategy: the function {value.label} cannot be stored: Strategy.register(name, function) gives it a name "
            "to store, and RefreshPolicy(strategy=name) refers to it"
        )
    return value.name


def _schedule_out(schedule: Schedule) -> dict[str, Any]:
    return {
        "start": schedule.start.isoformat(),
        "rules": [str(each) for each in schedule.rules],
        "crons": [str(each) for each in schedule.crons],
        "times": [each.isoformat() for each in schedule.times],
        "except_times": [each.isoformat() for each in sorted(schedule.except_times)],
        "tz": schedule.tz,
        "gap": schedule.gap.value,
    }


def _schedule(data: object, path: str) -> Schedule:
    found = _keys(data, _SCHEDULE, path)
    given: dict[str, Any] = {name: _text(found[name], f"{path}.{name}") for name in ("tz", "gap")}
    given["start"] = _time(found["start"], f"{path}.start")
    given["rules"] = _each(found["rules"], _parsed(RecurrenceRule.parse), f"{path}.rules")
    given["crons"] = _each(found["crons"], _parsed(CronExpression.parse), f"{path}.crons")
    given["times"] = _each(found["times"], _time, f"{path}.times")
    given["except_times"] = frozenset(_each(found["except_times"], _time, f"{path}.except_times"))
    return _build(lambda: Schedule(**given), path)


def _parsed(parse: Callable[[str], T]) -> Callable[[object, str], T]:
    return lambda data, path: _build(partial(parse, _text(data, path)), path)


def _action(data: object, path: str) -> Action:
    found = _keys(data, _ACTION, path)
    given = {name: None if found[name] is None else _text(found[name], f"{path}.{name}") for name in _ACTION}
    return _build(lambda: Action(**given), path)  # type: ignore[arg-type] # it refuses a name that is None


def _span_out(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def _span(data: object, path: str) -> timedelta:
    if isinstance(data, str):
        return read_span(path, data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise ScheduleError(f"{path}: {data!r} is not a number of seconds, nor a text such as 'PT1H'")
    try:
        return timedelta(seconds=data)
    except (ValueError, OverflowError) as error:
        raise ScheduleError(f"{path}: {data!r} seconds is not a span of time") from error


def _time(data: object, path: str) -> datetime:
    try:
        return datetime.fromisoformat(_text(data, path))
    except ValueError as error:
        raise ScheduleError(f"{path}: {data!r} is not a time such as 2026-01-31T16:30:00") from error


def _text(data: object, path: str) -> str:
    if not isinstance(data, str):
        raise ScheduleError(f"{path}: {data!r} is not a text")
    return data


def _truth(data: object, path: str) -> bool:
    if not isinstance(data, bool):
        raise ScheduleError(f"{path}: {data!r} is neither true nor false")
    return data


def _each(data: object, read: Callable[[object, str], T], path: str) -> tuple[T, ...]:
    if not isinstance(data, list | tuple):
        raise ScheduleError(f"{path}: {data!r} is not a list")
    return tuple(read(each, f"{path}[{at}]") for at, each in enumerate(data))


def _mapping(data: object, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ScheduleError(f"{path}: {data!r} is not a mapping")
    return data


def _keys(data: object, wanted: tuple[str, ...], path: str) -> Mapping[str, Any]:
    mapping = _mapping(data, path)
    missing = next((name for name in wanted if name not in mapping), None)
    if missing is not None:
        raise ScheduleError(f"{path}: the key {missing!r} is missing")
    unknown = next((name for name in mapping if name not in wanted), None)
    if unknown is not None:
        raise ScheduleError(f"{path}: there is no key {unknown!r}; there are {', '.join(wanted)}")
    return mapping


def _build(make: Callable[[], T], path: str) -> T:
    try:
        return make()
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from error
