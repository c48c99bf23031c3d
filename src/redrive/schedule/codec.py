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

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import asdict

from redrive.errors import ScheduleError
from redrive.schedule.options import Action, FunctionStrategy, PolicyFields, Strategy
from redrive.schedule.schedule import Schedule

VERSION = 1

P = TypeVar("P")
T = TypeVar("T")

_Span: TypeAlias = float | str


class _Head(msgspec.Struct):
    version: int


class _Action(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    to: str | None
    text: str | None


class _Schedule(msgspec.Struct, forbid_unknown_fields=True):
    start: datetime
    rules: list[str]
    crons: list[str]
    times: list[datetime]
    except_times: list[datetime]
    tz: str
    gap: str


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    schedule: _Schedule | None
    timeout: _Span
    give_up_after: _Span | None
    catch_up: _Span | None
    jitter: _Span
    repeat_last: bool
    strategy: str
    on_exhausted: str
    give_up_since: str
    delays: list[_Span]
    on_give_up: list[_Action]


def to_dict(policy: PolicyFields) -> dict[str, Any]:
    """See `redrive.schedule.RefreshPolicy.to_dict`."""
    document = _Policy(
        version=VERSION,
        schedule=None if policy.schedule is None else _schedule_out(policy.schedule),
        timeout=policy.timeout.total_seconds(),
        give_up_after=None if policy.give_up_after is None else policy.give_up_after.total_seconds(),
        catch_up=None if policy.catch_up is None else policy.catch_up.total_seconds(),
        jitter=policy.jitter.total_seconds(),
        repeat_last=policy.repeat_last,
        strategy=_strategy_out(policy.strategy),
        on_exhausted=str(policy.on_exhausted),
        give_up_since=policy.give_up_since,
        delays=[each.total_seconds() for each in policy.delays],
        on_give_up=[_Action(each.name, each.to, each.text) for each in policy.on_give_up],
    )
    data: dict[str, Any] = msgspec.to_builtins(document)
    return data


def from_dict(data: object, make: Callable[..., P]) -> P:
    """See `redrive.schedule.RefreshPolicy.from_dict`; ``make`` builds a policy from its fields."""
    version = _converted(data, _Head).version
    if version != VERSION:
        raise ScheduleError(f"policy.version: {version!r} is not {VERSION}, the only version that is known here")
    fields = asdict(_converted(data, _Policy))
    del fields["version"]
    if fields["schedule"] is not None:
        fields["schedule"] = _build(lambda: Schedule(**asdict(fields["schedule"])), "policy.schedule")
    fields["on_give_up"] = [
        _build(partial(Action, each.name, each.to, each.text), f"policy.on_give_up[{at}]")
        for at, each in enumerate(fields["on_give_up"])
    ]
    return _build(lambda: make(**fields), "policy")


def _converted(data: object, document: type[T]) -> T:
    try:
        return msgspec.convert(data, document)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ScheduleError(f"policy{path.rstrip('`')}: {problem}") from error


def _build(make: Callable[[], T], path: str) -> T:
    try:
        return make()
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from error


def _strategy_out(strategy: Strategy | FunctionStrategy) -> str:
    if not isinstance(strategy, FunctionStrategy):
        return strategy
    if strategy.name is None:
        raise ScheduleError(
            f"strategy: the function {strategy.label} cannot be stored: Strategy.register(name, function) gives it a "
            "name to store, and RefreshPolicy(strategy=name) refers to it"
        )
    return strategy.name


def _schedule_out(schedule: Schedule) -> _Schedule:
    return _Schedule(
        start=schedule.start,
        rules=[str(each) for each in schedule.rules],
        crons=[str(each) for each in schedule.crons],
        times=list(schedule.times),
        except_times=sorted(schedule.except_times),
        tz=schedule.tz,
        gap=schedule.gap,
    )
