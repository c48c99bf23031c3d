"""Validation of the fields of a policy; each function returns the value to keep, and its errors name the field."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.classify import Classifier, On, Predicate, names_of
from redrive.policy.duration import ZERO, Duration, parse_duration
from redrive.policy.jitter import Jitter
from redrive.policy.rule import Rule

__all__ = ["On", "bound", "candidates", "choice", "flag", "jitter", "resource", "rules", "schedule", "span", "task"]

_CHOICES = {
    "hints": ("obey", "ignore"),
    "over_deadline": ("give_up", "defer", "truncate"),
    "nested": ("outer", "both"),
    "groups": ("all", "any", "never"),
}


def candidates(on: On | None, on_result: Predicate | None) -> tuple[str, ...] | Classifier | None:
    """Check ``on``: names, a classifier, or None for any exception; ``()`` beside ``on_result`` means no exception."""
    if on is None:
        return None
    if callable(on) and not isinstance(on, type):
        return on
    if on_result is not None and on == ():
        return ()
    return names_of(on, "on")


def bound(value: Duration | None, field: str) -> timedelta | None:
    """Check ``deadline`` and ``attempt_timeout``: a span above zero, or None for no limit."""
    if value is None:
        return None
    kept = span(value, field)
    if kept == ZERO:
        raise PolicyValueError(f"{field}={value!r} leaves no time at all; None means no bound")
    return kept


def span(value: Duration, field: str) -> timedelta:
    """Check ``max_hint`` and other spans; errors name the field."""
    try:
        return parse_duration(value)
    except PolicyError as error:
        problem = f"{field}: {error.problem}"
        raise type(error)(f"{field}: {error}", text=error.text, at=error.at, problem=problem) from None


def schedule(value: Backoff) -> Backoff:
    """Check ``backoff``."""
    if not isinstance(value, Backoff):
        raise PolicyValueError(
            f"backoff={value!r} is not a Backoff: build one with Backoff.exponential(...) or its like"
        )
    return value


def jitter(value: Jitter | str | None, backoff: Backoff) -> Jitter:
    """Check ``jitter``: full by default, none for a backoff that draws its own delays."""
    if value is None:
        return Jitter.none if backoff.draws else Jitter.full
    kept = Jitter(value) if isinstance(value, str) else value
    if not isinstance(kept, Jitter):
        raise PolicyValueError(f"jitter={value!r}: use none, full, equal, Jitter.plus(fraction) or Jitter.added(span)")
    if backoff.draws and kept != Jitter.none:
        raise PolicyValueError(f"a {backoff.kind} backoff draws its delays by itself: leave out jitter={kept.kind!r}")
    return kept


def rules(value: Iterable[Rule]) -> tuple[Rule, ...]:
    """Check ``rules``."""
    kept = tuple(value)
    for rule in kept:
        if not isinstance(rule, Rule):
            raise PolicyValueError(f"rules: {rule!r} is not a Rule")
    return kept


def task(name: str | None) -> str | None:
    """Check ``catch``, the name of a task."""
    if name is not None and not (isinstance(name, str) and all(part.isidentifier() for part in name.split("."))):
        raise PolicyValueError(f"catch={name!r}: the catch task is named 'task' or 'module.task'")
    return name


def choice(field: str, value: str) -> str:
    """Check a field with a fixed set of words."""
    if value not in _CHOICES[field]:
        raise PolicyValueError(f"{field}={value!r}: it can be {', '.join(_CHOICES[field])}")
    return value


def flag(field: str, value: bool | None) -> bool | None:  # noqa: FBT001 - the value of a field
    """Check a field that is True, False, or None for the default of the place."""
    if value is not None and not isinstance(value, bool):
        raise PolicyValueError(f"{field}={value!r}: it can be True or False, or None for the default of the place")
    return value


def resource(field: str, value: object) -> object:
    """Check ``budget``, ``breaker`` and ``hedge``: a key, an object, or None."""
    if value == "":
        raise PolicyValueError(f"{field}='' is empty: give a key, an object, or None")
    return value
