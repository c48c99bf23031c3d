"""The fields of a policy: one table with their validation, their stored form, and their value in a directive.

The constructor of `redrive.policy.Policy`, its codec and its directive read `FIELDS`.
Each check returns the value to keep, and its errors name the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import EllipsisType, MappingProxyType
from typing import Any, NamedTuple

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.classify import Classifier, On, Predicate, is_coroutine_function, names_of
from redrive.policy.duration import ZERO, Duration, parse_duration
from redrive.policy.jitter import Jitter
from redrive.policy.rule import Rule
from redrive.policy.value import check_attempts


def _candidates(on: On | None, on_result: Predicate | None) -> tuple[str, ...] | Classifier | None:
    """Check ``on``: names, a classifier, or None for any exception; ``()`` beside ``on_result`` means no exception."""
    if on is None:
        return None
    if callable(on) and not isinstance(on, type):
        return on
    if on_result is not None and on == ():
        return ()
    return names_of(on, "on")


def _bound(value: Duration | None, field: str) -> timedelta | None:
    """Check ``deadline`` and ``attempt_timeout``: a span above zero, or None for no limit."""
    if value is None:
        return None
    kept = span(value, field)
    if kept == ZERO:
        raise PolicyValueError(f"{field}={value!r} leaves no time at all; None means no bound")
    return kept


def _deadline(value: Duration | EllipsisType | None) -> timedelta | None:
    """Check ``deadline``: a span above zero, None for no limit, or ... for the default of the place."""
    return None if isinstance(value, EllipsisType) else _bound(value, "deadline")


# A longer hint is a mistake of the server, or a refusal.
DURABLE_MAX_HINT = timedelta(days=7)


def _max_hint(value: Duration | EllipsisType | None) -> timedelta | None:
    """Check ``max_hint``: a span, None for no limit, or ... for the default of the place."""
    if isinstance(value, EllipsisType):
        return DURABLE_MAX_HINT
    return None if value is None else span(value, "max_hint")


def span(value: Duration, field: str) -> timedelta:
    """Check ``max_hint`` and other spans; errors name the field."""
    try:
        return parse_duration(value)
    except PolicyError as error:
        problem = f"{field}: {error.problem}"
        raise type(error)(f"{field}: {error}", text=error.text, at=error.at, problem=problem) from None


def _schedule(value: Backoff) -> Backoff:
    """Check ``backoff``."""
    if not isinstance(value, Backoff):
        raise PolicyValueError(
            f"backoff={value!r} is not a Backoff: build one with Backoff.exponential(...) or its like"
        )
    return value


def _jitter(value: Jitter | str | None, backoff: Backoff) -> Jitter:
    """Check ``jitter``: full by default, none for a backoff that draws its own delays."""
    if value is None:
        return Jitter.none if backoff.draws else Jitter.full
    kept = Jitter(value) if isinstance(value, str) else value
    if not isinstance(kept, Jitter):
        raise PolicyValueError(f"jitter={value!r}: use none, full, equal, Jitter.plus(fraction) or Jitter.added(span)")
    if backoff.draws and kept != Jitter.none:
        raise PolicyValueError(f"a {backoff.kind} backoff draws its delays by itself: leave out jitter={kept.kind!r}")
    return kept


def _rules(value: Iterable[Rule]) -> tuple[Rule, ...]:
    """Check ``rules``."""
    if isinstance(value, Rule) or not isinstance(value, Iterable):
        raise PolicyValueError(f"rules={value!r} is no list of rules: write rules=[Rule(...)]")
    kept = tuple(value)
    for rule in kept:
        if not isinstance(rule, Rule):
            raise PolicyValueError(f"rules: {rule!r} is not a Rule")
    return kept


def _task(name: str | None) -> str | None:
    """Check ``catch``, the name of a task."""
    if name is not None and not (isinstance(name, str) and all(part.isidentifier() for part in name.split("."))):
        raise PolicyValueError(f"catch={name!r}: the catch task is named 'task' or 'module.task'")
    return name


def _choice(field: str, value: str, words: tuple[str, ...]) -> str:
    """Check a field with a fixed set of words."""
    if value not in words:
        raise PolicyValueError(f"{field}={value!r}: it can be {', '.join(words)}")
    return value


def _flag(field: str, value: bool | None) -> bool | None:  # noqa: FBT001 - the value of a field
    """Check a field that is True, False, or None for the default of the place."""
    if value is not None and not isinstance(value, bool):
        raise PolicyValueError(f"{field}={value!r}: it can be True or False, or None for the default of the place")
    return value


def _hook(field: str, value: object) -> object:
    """Check ``on_retry`` and ``on_give_up``: a function, or None."""
    if value is not None and not callable(value):
        raise PolicyValueError(f"{field}={value!r}: it is a function that takes the RetryDetails, or None")
    return value


def _stop(value: object) -> object:
    """Check ``stop``: an event of threads or processes, or None."""
    waits = getattr(value, "wait", None)
    if value is None or (
        callable(getattr(value, "is_set", None)) and callable(waits) and not is_coroutine_function(waits)
    ):
        return value
    raise PolicyValueError(f"stop={value!r}: give a threading.Event, also in async code, or None")


def _resource(field: str, value: object) -> object:
    """Check ``budget``, ``breaker`` and ``hedge``: a key, an object, or None."""
    if value == "":
        raise PolicyValueError(f"{field}='' is empty: give a key, an object, or None")
    if isinstance(value, int | float | bytes):
        raise PolicyValueError(
            f"{field}={value!r} is no {field}: give a key, or the result of redrive.retrying.{field}()"
        )
    return value


def _predicate(value: Predicate | None) -> Predicate | None:
    """Check ``on_result``."""
    if value is not None and not callable(value):
        raise PolicyValueError(
            f"on_result={value!r} is no function: give one that returns True for a result to retry, as in "
            "on_result=lambda result: result is None"
        )
    return value


# ----------------------------------------------------------------------------------------------------------- the table

# The version of the stored form.
VERSION = 1

# The fields that the text of a directive sets; all others have the value that `FIELDS` names.
DIRECTIVE_SETS = ("attempts", "backoff", "catch")


class Field(NamedTuple):
    """One field of a policy."""

    #: ``(value, arguments)``: returns the value to keep; ``arguments`` are those of the whole constructor.
    check: Callable[[Any, Mapping[str, Any]], object]
    #: The form in `redrive.policy.codec`; None for a field that cannot be stored.
    stored: str | None
    #: The value in every directive, unless it is one of `DIRECTIVE_SETS`.
    directive: object = None


# All fields in the order of the constructor of `Policy`, whose signature repeats the names, as do the annotations of
# `Decider` and the arguments of `redrive.retry`; a test compares them. One annotated class body cannot replace them:
# most fields accept more types than they keep (a `Duration`, one name or many), and mypy ignores the converters of
# `typing.dataclass_transform`, by which a class body could declare both.
FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "on": Field(lambda value, given: _candidates(value, given["on_result"]), "names"),
        "on_result": Field(lambda value, _: _predicate(value), None),
        "attempts": Field(lambda value, _: check_attempts(value, "attempts"), "plain"),
        "deadline": Field(lambda value, _: _deadline(value), "default span"),
        "attempt_timeout": Field(lambda value, _: _bound(value, "attempt_timeout"), "span"),
        "backoff": Field(lambda value, _: _schedule(value), "backoff"),
        "jitter": Field(lambda value, given: _jitter(value, given["backoff"]), "jitter", Jitter.none),
        "rules": Field(lambda value, _: _rules(value), "rules", ()),
        "catch": Field(lambda value, _: _task(value), "plain"),
        "hints": Field(lambda value, _: _choice("hints", value, ("obey", "ignore")), "plain", "obey"),
        "max_hint": Field(lambda value, _: _max_hint(value), "default span", DURABLE_MAX_HINT),
        "over_deadline": Field(
            lambda value, _: _choice("over_deadline", value, ("give_up", "defer", "truncate")), "plain", "give_up"
        ),
        "nested": Field(lambda value, _: _choice("nested", value, ("outer", "both")), "plain", "outer"),
        "groups": Field(lambda value, _: _choice("groups", value, ("all", "any", "never")), "plain", "all"),
        "idempotent": Field(lambda value, _: _flag("idempotent", value), "plain"),
        "budget": Field(lambda value, _: _resource("budget", value), "resource"),
        "breaker": Field(lambda value, _: _resource("breaker", value), "resource"),
        "hedge": Field(lambda value, _: _resource("hedge", value), "resource"),
        "on_retry": Field(lambda value, _: _hook("on_retry", value), None),
        "on_give_up": Field(lambda value, _: _hook("on_give_up", value), None),
        "stop": Field(lambda value, _: _stop(value), None),
    }
)
