"""The translation of the case files' policies into redrive's.

Every name of another system's backoff, jitter or combinator stands in one of the tables below, once, with its
equivalent here. Three translations are more than a renaming:

* *Proportional* jitter, d (1 - p + 2 p u), is jitter on top of a backoff that is shorter by the same factor:
  d (1 - p) (1 + u 2p / (1 - p)). So the lengths are multiplied by 1 - p, and the jitter is ``plus(2p / (1 - p))``.
* ``U(a, b)`` is a delay of b with a floor of a under full jitter.
* The floor of *additive* jitter lies over the jitter; that is ``Policy.at_least``, and not ``Backoff.floor``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from redrive.policy import Backoff, Failure, GiveUp, History, Jitter, Policy, Retry
from tests.conformance.adapters.vocabulary import UnknownWord, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["FAILURE", "START", "delays", "drawn", "policy_of"]

START = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = Failure(("builtins.OSError", "builtins.Exception"), "it failed")
MANY = 10**9
"""Attempts of a policy that is bounded by its backoff, if at all."""

_UNIFORM = re.compile(r"U\(([\w.]+), *([\w.]+)\)")
Json = dict[str, Any]


@dataclass(frozen=True)
class _Spread:
    """A jitter, and the factor by which all lengths are multiplied to make room for it."""

    jitter: Jitter | None
    scale: float = 1.0


def policy_of(data: Json) -> Policy:
    """Build the policy that a case describes.

    Args:
        data: ``{"backoff": ...}`` or ``{"op": ...}``; a field that is null is not given.

    Returns:
        A policy without deadline, with the attempts of its backoff.

    Raises:
        UnknownWord: the case has a word that is not in the tables.
    """
    data = _given(data)
    spread = _spread(data)
    backoff = _backoff(data, spread.scale)
    policy = Policy(attempts=MANY, deadline=None, backoff=backoff, jitter=spread.jitter)
    return policy.at_least(data["floor"]) if _lies_over_jitter(data) else policy


def _given(data: Any) -> Json:
    if not isinstance(data, dict):
        raise UnknownWord(f"{data!r} (known: an object with 'backoff' or 'op')")
    given = {name: value for name, value in data.items() if value is not None}
    if "of" in given:
        of = given["of"]
        given["of"] = [_given(part) for part in of] if isinstance(of, list) else _given(of)
    return given


def delays(policy: Policy, count: int, draws: Sequence[float] | None) -> list[float | None]:
    """Return the delays before the first retries, in seconds, None where the policy gives up.

    Args:
        policy: the policy.
        count: how many retries.
        draws: the samples, one for each retry; None to ask for the nominal delays.

    Returns:
        As many as asked for.
    """
    found: list[float | None] = list(policy.delays(count)) if draws is None else list(drawn(policy, draws))
    return found + [None] * (count - len(found))


def drawn(policy: Policy, draws: Sequence[float], *, first: int = 1) -> Iterator[float | None]:
    """Yield the answers of `Policy.decide` to one failure after the other.

    Args:
        policy: the policy.
        draws: the samples, one for each failure.
        first: how many executions have failed at the first of them.

    Yields:
        The delay in seconds, or None where it gives up.
    """
    history = History(first, START)
    for sample in draws:
        match policy.decide(history, FAILURE, START, sample):
            case Retry(delay=delay):
                yield delay.total_seconds()
                history = policy.advance(history, FAILURE, delay, now=START, sample=sample)
            case GiveUp():
                yield None


# ------------------------------------------------------------------------------------------------------------- backoffs


def _backoff(data: Json, scale: float) -> Backoff:
    if "op" in data:
        return word(data["op"], _OPERATORS)(data, scale)
    if "backoff" not in data:
        raise UnknownWord(f"{data!r} (known: an object with 'backoff' or 'op')")
    backoff = word(data["backoff"], _BACKOFFS)(data, scale)
    for name, limit in _LIMITS.items():
        if name in data:
            backoff = limit(backoff, data[name], scale)
    return backoff


_UNCAPPED = 10.0**9


def _exponential(data: Json, scale: float) -> Backoff:
    jitter = data.get("jitter")
    if jitter in _DRAWING:
        data = _fields(data, "base", "factor", "cap")
        if jitter == "polly_decorrelated_v2":
            options = {"maximum": data["cap"]} if "cap" in data else {}
            return Backoff.smooth(data["base"], **options)
        longest = data.get("cap", _UNCAPPED)
        return Backoff.decorrelated(min(data["base"], longest), longest)
    data = _fields(data, "base", "factor", "cap", "floor")
    backoff = exponential(data["base"] * scale, _scaled(data, "cap", scale), data.get("factor", 2))
    return _floored(backoff, data, scale)


def exponential(initial: float, longest: float | None, factor: float = 2) -> Backoff:
    """Return exponential backoff. redrive refuses a first delay beyond the longest one, which other libraries cut."""
    return Backoff.exponential(initial if longest is None else min(initial, longest), longest, factor)


def _linear(data: Json, scale: float) -> Backoff:
    data = _fields(data, "start", "increment", "cap", "floor")
    start, longest = data["start"] * scale, _scaled(data, "cap", scale)
    backoff = Backoff.linear(start if longest is None else min(start, longest), data["increment"] * scale, longest)
    return _floored(backoff, data, scale)


def _constant(data: Json, scale: float) -> Backoff:
    if isinstance(data.get("value"), str):
        low, high = _uniform(_fields(data, "value", "min", "max"))
        return Backoff.constant(high).floor(low)
    return Backoff.constant(_fields(data, "value")["value"] * scale)


def _sequence(data: Json, scale: float) -> Backoff:
    data = _fields(data, "values", "end")
    if not all(isinstance(value, int | float) for value in data["values"]):
        raise UnknownWord(f"values {data['values']!r} (known: numbers)")
    return Backoff.listed([value * scale for value in data["values"]], end=data.get("end", "repeat"))


def _fibonacci(data: Json, scale: float) -> Backoff:
    data = _fields(data, "base", "cap")
    backoff = Backoff.named("fibonacci", base=data["base"] * scale)
    return backoff.cap(data["cap"] * scale) if "cap" in data else backoff


def _decay(data: Json, scale: float) -> Backoff:
    data = _fields(data, "initial", "rate", "floor")
    return _floored(Backoff.named("decay", initial=data["initial"] * scale, rate=data["rate"]), data, scale)


def _urllib3(data: Json, scale: float) -> Backoff:
    data = _fields(data, "backoff_factor", "cap")
    backoff = Backoff.constant(0).take(1) >> Backoff.exponential(2 * data["backoff_factor"] * scale)
    return backoff.cap(data["cap"] * scale) if "cap" in data else backoff


_BACKOFFS: dict[str, Callable[[Json, float], Backoff]] = {
    "exponential": _exponential,
    "linear": _linear,
    "constant": _constant,
    "sequence": _sequence,
    "fibonacci": _fibonacci,
    "decay": _decay,
    "urllib3": _urllib3,
}

_LIMITS: dict[str, Callable[[Backoff, Any, float], Backoff]] = {
    "max_retries": lambda backoff, count, _: backoff.take(count),
    "max_total_delay": lambda backoff, total, scale: backoff.up_to(total * scale, end="within"),
}


def _cap(data: Json, scale: float) -> Backoff:
    return _only(data, scale, "cap").cap(data["cap"] * scale)


def _concat(data: Json, scale: float) -> Backoff:
    return reduce(Backoff.__rshift__, _parts(data, scale))


def _sum(data: Json, scale: float) -> Backoff:
    uniform = any(isinstance(part.get("value"), str) for part in _each(data))
    parts = _parts(data, scale)
    if uniform:  # a part that is not drawn is its own floor, so that only the others spread
        parts = [_summand(entry, part) for entry, part in zip(_each(data), parts, strict=True)]
    return reduce(Backoff.__add__, parts)


_OPERATORS: dict[str, Callable[[Json, float], Backoff]] = {
    "take": lambda data, scale: _only(data, scale, "n").take(data["n"]),
    "take_until": lambda data, scale: _only(data, scale, "cumulative").up_to(data["cumulative"] * scale, end="past"),
    "cap": _cap,
    "give_up_if_delay_over": lambda data, scale: _only(data, scale, "threshold").give_up_over(
        data["threshold"] * scale
    ),
    "sum": _sum,
    "concat": _concat,
}

_OF_OPERATORS = ("op", "of", "jitter", "p", "j")


def _only(data: Json, scale: float, field: str) -> Backoff:
    data = read(data, *_OF_OPERATORS, field)
    if isinstance(data["of"], list):
        raise UnknownWord(f"'of' of {data['op']!r} is a list (known: one policy)")
    _ = data[field]
    return _backoff(data["of"], scale)


def _parts(data: Json, scale: float) -> list[Backoff]:
    read(data, *_OF_OPERATORS)
    return [_backoff(part, scale) for part in _each(data)]


def _each(data: Json) -> list[Json]:
    of = read(data, *_OF_OPERATORS, "n", "cap", "cumulative", "threshold")["of"]
    parts: list[Json] = of if isinstance(of, list) else [of]
    if not parts:
        raise UnknownWord("'of' is empty")
    return parts


def _summand(entry: Json, backoff: Backoff) -> Backoff:
    if isinstance(entry.get("value"), str):
        return backoff
    if entry.get("backoff") != "constant":
        raise UnknownWord("a sum of a drawn delay and one that is not constant")
    return backoff.floor(entry["value"])


def _fields(data: Json, *fields: str) -> Json:
    return read(data, "backoff", "jitter", "p", "j", *_LIMITS, *fields)


def _scaled(data: Json, name: str, scale: float) -> float | None:
    return data[name] * scale if name in data else None


def _floored(backoff: Backoff, data: Json, scale: float) -> Backoff:
    return backoff.floor(data["floor"] * scale) if "floor" in data and not _lies_over_jitter(data) else backoff


def _lies_over_jitter(data: Json) -> bool:
    # "additive": max(floor, min(cap, exp + u*j)); in all other formulas the jitter is drawn above the floor.
    return "floor" in data and data.get("jitter") == "additive"


# --------------------------------------------------------------------------------------------------------------- jitter


def _spread(data: Json) -> _Spread:
    for parameter, owner in {"p": "proportional", "j": "additive"}.items():
        if (parameter in data) != (data.get("jitter") == owner):
            raise UnknownWord(f"{parameter!r} and jitter={data.get('jitter')!r} (known: {parameter!r} of {owner!r})")
    if isinstance(data.get("value"), str):
        if "jitter" in data:
            raise UnknownWord("jitter on a uniform delay")
        return _Spread(Jitter.full)
    if "op" not in data or "jitter" in data:
        if data.get("jitter") in _DRAWING and data.get("backoff") != "exponential":
            raise UnknownWord(f"jitter={data['jitter']!r} on what is not exponential")
        if "op" in data and any(_spread(part) != _NONE for part in _each(data)):
            raise UnknownWord("jitter on a policy whose parts are drawn")
        return word(data.get("jitter", "none"), _JITTERS)(data)
    return _spread_of_parts(data)


def _spread_of_parts(data: Json) -> _Spread:
    spreads = [_spread(part) for part in _each(data)]
    if all(each == _NONE for each in spreads):
        return _NONE
    if data["op"] == "sum":
        if any(each not in (_NONE, _Spread(Jitter.full)) for each in spreads):
            raise UnknownWord("a sum of parts with a jitter")
        return _Spread(Jitter.full)
    if data["op"] not in ("take", "concat") or any(each != spreads[0] for each in spreads):
        raise UnknownWord(f"{data['op']!r} of parts that are drawn (known: take, and concat of parts with one jitter)")
    return spreads[0]


def _proportional(data: Mapping[str, Any]) -> _Spread:
    part = data["p"]
    if not 0 <= part < 1:
        raise UnknownWord(f"p={part!r} (known: from 0 to below 1)")
    return _Spread(Jitter.plus(2 * part / (1 - part)), 1 - part)


_NONE = _Spread(Jitter.none)
_DRAWING = ("decorrelated", "decorrelated_smithy", "polly_decorrelated_v2")
_JITTERS: dict[str, Callable[[Mapping[str, Any]], _Spread]] = {
    "none": lambda _: _NONE,
    "full": lambda _: _Spread(Jitter.full),
    "equal": lambda _: _Spread(Jitter.equal),
    "backon": lambda _: _Spread(Jitter.plus(1.0)),
    "proportional": _proportional,
    "additive": lambda data: _Spread(Jitter.added(data["j"])),
    **dict.fromkeys(_DRAWING, lambda _: _Spread(None)),
}


def _uniform(data: Mapping[str, Any]) -> tuple[float, float]:
    found = _UNIFORM.fullmatch(data["value"])
    if not found:
        raise UnknownWord(f"{data['value']!r} (known: U(a,b))")
    low, high = (_bound(data, name) for name in found.groups())
    return low, high


def _bound(data: Mapping[str, Any], name: str) -> float:
    if name in data:
        return float(data[name])
    try:
        return float(name)
    except ValueError:
        raise UnknownWord(f"{data['value']!r} names {name!r}, which is no number and no field") from None
