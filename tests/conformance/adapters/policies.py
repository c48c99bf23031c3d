"""The language in which the case files write policies, in redrive's words.

Every name of another system's backoff, jitter or combinator stands in one of the tables below, once, with what it is
here. Three translations are more than a renaming:

* *Proportional* jitter, d (1 - p + 2 p u), is jitter on top of a backoff that is shorter by the same factor:
  d (1 - p) (1 + u 2p / (1 - p)). So the lengths are multiplied by 1 - p, and the jitter is ``plus(2p / (1 - p))``.
* ``U(a, b)`` is a delay of b with a floor of a under full jitter.
* The floor of *additive* jitter lies over the jitter; that is ``Policy.at_least``, and not ``Backoff.floor``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
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

_UNIFORM = re.compile(r"U\((\w+),(\w+)\)")
Json = dict[str, Any]


@dataclass(frozen=True)
class _Spread:
    """A jitter, and what all lengths are multiplied by to make room for it."""

    jitter: Jitter | None
    scale: float = 1.0


def policy_of(data: Json) -> Policy:
    """Build the policy that a case describes.

    Args:
        data: ``{"backoff": ...}`` or ``{"op": ...}``.

    Returns:
        A policy without deadline whose attempts end only with its backoff.

    Raises:
        UnknownWord: the case says something that is not in the tables.
    """
    spread = _spread(data)
    backoff = _backoff(data, spread.scale)
    policy = Policy(attempts=MANY, deadline=None, backoff=backoff, jitter=spread.jitter)
    return policy.at_least(data["floor"]) if _lies_over_jitter(data) else policy


def delays(policy: Policy, count: int, draws: Sequence[float] | None) -> list[float | None]:
    """The delays before the first retries, in seconds, None where the policy gives up.

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
    """What `Policy.decide` answers to one failure after the other.

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
    backoff = word(data["backoff"], _BACKOFFS)(data, scale)
    for name, limit in _LIMITS.items():
        if name in data:
            backoff = limit(backoff, data[name])
    return backoff


def _exponential(data: Json, scale: float) -> Backoff:
    _fields(data, "base", "factor", "cap", "floor", "j")
    match data.get("jitter"):
        case "decorrelated" | "decorrelated_smithy":
            return Backoff.decorrelated(data["base"] * scale, data["cap"] * scale)
        case "polly_decorrelated_v2":
            options = {"maximum": data["cap"]} if "cap" in data else {}
            return Backoff.smooth(data["base"], **options)
    backoff: Backoff = Backoff.exponential(data["base"] * scale, _scaled(data, "cap", scale), data.get("factor", 2))
    return _floored(backoff, data, scale)


def _linear(data: Json, scale: float) -> Backoff:
    _fields(data, "start", "increment", "cap", "floor")
    backoff = Backoff.linear(data["start"] * scale, data["increment"] * scale, _scaled(data, "cap", scale))
    return _floored(backoff, data, scale)


def _constant(data: Json, scale: float) -> Backoff:
    _fields(data, "value", "min", "max")
    value = data["value"]
    if isinstance(value, str):
        low, high = _uniform(data)
        return Backoff.constant(high).floor(low)
    return Backoff.constant(value * scale)


def _sequence(data: Json, scale: float) -> Backoff:
    _fields(data, "values")
    return Backoff.listed([value * scale for value in data["values"]])


def _fibonacci(data: Json, scale: float) -> Backoff:
    _fields(data, "base", "cap")
    backoff = Backoff.named("fibonacci", base=data["base"] * scale)
    return backoff.cap(data["cap"] * scale) if "cap" in data else backoff


def _decay(data: Json, scale: float) -> Backoff:
    _fields(data, "initial", "rate", "floor")
    return _floored(Backoff.named("decay", initial=data["initial"] * scale, rate=data["rate"]), data, scale)


def _urllib3(data: Json, scale: float) -> Backoff:
    _fields(data, "backoff_factor", "cap")
    doubling = Backoff.exponential(2 * data["backoff_factor"] * scale)
    return (Backoff.constant(0).take(1) >> doubling).cap(data["cap"] * scale)


_BACKOFFS: dict[str, Callable[[Json, float], Backoff]] = {
    "exponential": _exponential,
    "linear": _linear,
    "constant": _constant,
    "sequence": _sequence,
    "fibonacci": _fibonacci,
    "decay": _decay,
    "urllib3": _urllib3,
}

_LIMITS: dict[str, Callable[[Backoff, Any], Backoff]] = {
    "max_retries": lambda backoff, count: backoff.take(count),
    "max_total_delay": lambda backoff, total: backoff.up_to(total, end="within"),
}

_OPERATORS: dict[str, Callable[[Json, float], Backoff]] = {
    "take": lambda data, scale: _only(data, scale, "n").take(data["n"]),
    "take_until": lambda data, scale: _only(data, scale, "cumulative").up_to(data["cumulative"], end="past"),
    "cap": lambda data, scale: _only(data, scale, "cap").cap(data["cap"]),
    "give_up_if_delay_over": lambda data, scale: _only(data, scale, "threshold").give_up_over(data["threshold"]),
    "sum": lambda data, scale: _sum([_summand(part, scale) for part in read(data, "op", "of")["of"]]),
    "concat": lambda data, scale: _chain([_backoff(part, scale) for part in read(data, "op", "of")["of"]]),
}


def _only(data: Json, scale: float, *fields: str) -> Backoff:
    return _backoff(read(data, "op", "of", *fields)["of"], scale)


def _chain(parts: list[Backoff]) -> Backoff:
    first, *others = parts
    for other in others:
        first = first >> other
    return first


def _sum(parts: list[Backoff]) -> Backoff:
    first, *others = parts
    return sum(others, start=first)


def _summand(data: Json, scale: float) -> Backoff:
    # In a sum a part without luck is its own floor: only the others spread.
    backoff = _backoff(data, scale)
    return backoff if isinstance(data.get("value"), str) else backoff.floor(data["value"])


def _fields(data: Json, *fields: str) -> None:
    read(data, "backoff", "jitter", "p", *_LIMITS, *fields)


def _scaled(data: Json, name: str, scale: float) -> float | None:
    return data[name] * scale if name in data else None


def _floored(backoff: Backoff, data: Json, scale: float) -> Backoff:
    return backoff.floor(data["floor"] * scale) if "floor" in data and not _lies_over_jitter(data) else backoff


def _lies_over_jitter(data: Json) -> bool:
    # "additive": max(floor, min(cap, exp + u*j)); in all other formulas the jitter is drawn above the floor.
    return "floor" in data and data.get("jitter") == "additive"


# --------------------------------------------------------------------------------------------------------------- jitter


def _spread(data: Mapping[str, Any]) -> _Spread:
    if isinstance(data.get("value"), str):
        if "jitter" in data:
            raise UnknownWord("jitter on a uniform delay")
        return _Spread(Jitter.full)
    if "op" in data:
        return _Spread(Jitter.full if data["op"] == "sum" else Jitter.none)
    return word(data.get("jitter", "none"), _JITTERS)(data)


def _proportional(data: Mapping[str, Any]) -> _Spread:
    part = data["p"]
    return _Spread(Jitter.plus(2 * part / (1 - part)), 1 - part)


_JITTERS: dict[str, Callable[[Mapping[str, Any]], _Spread]] = {
    "none": lambda _: _Spread(Jitter.none),
    "full": lambda _: _Spread(Jitter.full),
    "equal": lambda _: _Spread(Jitter.equal),
    "backon": lambda _: _Spread(Jitter.plus(1.0)),
    "proportional": _proportional,
    "additive": lambda data: _Spread(Jitter.added(data["j"])),
    "decorrelated": lambda _: _Spread(None),
    "decorrelated_smithy": lambda _: _Spread(None),
    "polly_decorrelated_v2": lambda _: _Spread(None),
}


def _uniform(data: Mapping[str, Any]) -> tuple[float, float]:
    found = _UNIFORM.fullmatch(data["value"])
    if not found:
        raise UnknownWord(f"{data['value']!r} (known: U(a,b))")
    low, high = (float(data[name]) if name in data else float(name) for name in found.groups())
    return low, high
