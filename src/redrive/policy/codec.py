"""Policies as JSON-able data.

All fields are written, defaults included, and all are required when a policy is read, so that a stored policy keeps
its meaning when a default changes. Durations are text (``"1m30s"``) where that is exact, otherwise seconds as a number.
Functions and objects without a key are refused when a policy is written.

::

    {"version": 1, "on": ["httpx.TransportError"], "attempts": 3, "deadline": "45s", "attempt_timeout": null,
     "backoff": {"kind": "exponential", "initial": "100ms", "maximum": "5s", "factor": 2.0}, "jitter": "full", ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeVar

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.backoff import KINDS, Backoff
from redrive.policy.decider import Decider
from redrive.policy.duration import format_duration, span
from redrive.policy.jitter import Jitter
from redrive.policy.rule import Rule

__all__ = ["VERSION", "backoff_from_dict", "backoff_to_dict", "combined_to_dict", "policy_from_dict", "policy_to_dict"]

VERSION = 1

_P = TypeVar("_P", bound=Decider)
_T = TypeVar("_T")

_KEYS = (
    "on",
    "attempts",
    "deadline",
    "attempt_timeout",
    "backoff",
    "jitter",
    "rules",
    "catch",
    "hints",
    "max_hint",
    "over_deadline",
    "nested",
    "groups",
    "idempotent",
    "budget",
    "breaker",
    "hedge",
)
_PLAIN = ("attempts", "catch", "hints", "over_deadline", "nested", "groups", "idempotent")
_SPANS = ("attempt_timeout", "max_hint")
_RESOURCES = ("budget", "breaker", "hedge")
_SECONDS = ("value", "initial", "maximum", "step", "limit")  # fields of backoffs that are durations
_PARTS = ("of", "left", "right")  # fields of backoffs that are backoffs


def policy_to_dict(policy: Decider) -> dict[str, Any]:
    """See `redrive.policy.Policy.to_dict`."""
    if callable(policy.on):
        raise PolicyValueError("on: a classifier is a function and cannot be stored; name types or reasons instead")
    if policy.on_result is not None:
        raise PolicyValueError("on_result: a predicate is a function and cannot be stored")
    data: dict[str, Any] = {"on": None if policy.on is None else list(policy.on)}
    data |= {name: getattr(policy, name) for name in _PLAIN}
    data |= {name: _span_out(getattr(policy, name)) for name in _SPANS}
    data |= {name: _resource_out(name, getattr(policy, name)) for name in _RESOURCES}
    data["deadline"] = _span_out(policy.deadline) if policy.deadline_given else "default"
    data["backoff"] = backoff_to_dict(policy.backoff)
    data["jitter"] = _jitter_out(policy.jitter)
    data["rules"] = [_rule_out(rule) for rule in policy.rules]
    return {"version": VERSION} | {name: data[name] for name in _KEYS}


def combined_to_dict(operator: str, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Return two policies and an operator as JSON-able data."""
    return {"version": VERSION, "op": operator, "of": [left, right]}


def policy_from_dict(data: object, make: Callable[..., _P], operators: Mapping[str, Callable[[_P, _P], _P]]) -> _P:
    """See `redrive.policy.Policy.from_dict`."""
    return _Reader(make, operators).policy(data, "policy")


class _Reader(Generic[_P]):
    """A reader of stored policies. Its arguments build them, because this module is below `redrive.policy.policy`."""

    def __init__(self, make: Callable[..., _P], operators: Mapping[str, Callable[[_P, _P], _P]]) -> None:
        self._make = make
        self._operators = operators

    def policy(self, data: object, path: str) -> _P:
        mapping = _mapping(data, path)
        _check_version(mapping, path)
        if "op" in mapping:
            return self._combined(_keys(mapping, ("version", "op", "of"), path), path)
        found = _keys(mapping, ("version", *_KEYS), path)
        arguments = {name: found[name] for name in (*_PLAIN, *_SPANS)}
        arguments |= {name: _resource_in(found[name], f"{path}.{name}") for name in _RESOURCES}
        arguments["on"] = None if found["on"] is None else _names(found["on"], f"{path}.on")
        arguments["deadline"] = ... if found["deadline"] == "default" else found["deadline"]
        arguments["backoff"] = _backoff(found["backoff"], f"{path}.backoff")
        arguments["jitter"] = _jitter(found["jitter"], f"{path}.jitter")
        rules = _list(found["rules"], f"{path}.rules")
        arguments["rules"] = [_rule(rule, f"{path}.rules[{at}]") for at, rule in enumerate(rules)]
        return _build(path, lambda: self._make(**arguments))

    def _combined(self, data: Mapping[str, Any], path: str) -> _P:
        operator = self._operators.get(str(data["op"]))
        if operator is None:
            raise PolicyValueError(f"{path}.op: {data['op']!r} is not one of {', '.join(self._operators)}")
        parts = _list(data["of"], f"{path}.of")
        if len(parts) != 2:  # noqa: PLR2004 - operators are binary
            raise PolicyValueError(f"{path}.of: an operator joins two policies, not {len(parts)}")
        left, right = (self.policy(part, f"{path}.of[{at}]") for at, part in enumerate(parts))
        return _build(path, lambda: operator(left, right))


def _check_version(data: Mapping[str, Any], path: str) -> None:
    if "version" not in data:
        raise PolicyValueError(f"{path}: the key 'version' is missing")
    version = data["version"]
    if version != VERSION or isinstance(version, bool):
        raise PolicyValueError(f"{path}.version: {version!r} is not {VERSION}, the only version that is known here")


# ------------------------------------------------------------------------------------------------------------- backoffs


def backoff_to_dict(value: Backoff) -> dict[str, Any]:
    """Return a backoff as JSON-able data: its kind and its fields.

    Raises:
        PolicyValueError: the backoff's class has no ``kind``.
    """
    if KINDS.get(value.kind) is not type(value):
        raise PolicyValueError(f"backoff: {type(value).__name__} has no kind of its own and cannot be stored")
    data: dict[str, Any] = {"kind": value.kind}
    for name, field in value.arguments().items():
        if isinstance(field, Backoff):
            data[name] = backoff_to_dict(field)
        elif name in _SECONDS:
            data[name] = _seconds_out(field)
        elif name == "values":
            data[name] = [_seconds_out(number) for number in field]
        elif name == "options":
            data[name] = dict(field)
        else:
            data[name] = field
    return data


def backoff_from_dict(data: Mapping[str, Any]) -> Backoff:
    """Build a backoff from the result of `backoff_to_dict`.

    Raises:
        PolicyValueError: a key is unknown or missing, or a value is not valid; the message names the key.
    """
    return _backoff(data, "backoff")


def _backoff(data: object, path: str) -> Backoff:
    mapping = _mapping(data, path)
    if "kind" not in mapping:
        raise PolicyValueError(f"{path}: the key 'kind' is missing")
    cls = KINDS.get(str(mapping["kind"]))
    if cls is None:
        raise PolicyValueError(f"{path}.kind: {mapping['kind']!r} is not one of {', '.join(sorted(KINDS))}")
    found = _keys(mapping, ("kind", *cls._fields), path)
    arguments: dict[str, Any] = {}
    for name in cls._fields:
        value = found[name]
        if name in _PARTS:
            arguments[name] = _backoff(value, f"{path}.{name}")
        elif name == "values":
            arguments[name] = _list(value, f"{path}.{name}")
        elif name == "options":
            arguments[name] = dict(_mapping(value, f"{path}.{name}"))
        else:
            arguments[name] = value
    return _build(path, lambda: cls(**arguments))


# ------------------------------------------------------------------------------------------------------------ the parts


def _rule_out(rule: Rule) -> dict[str, Any]:
    schedule = None if rule.backoff is None else backoff_to_dict(rule.backoff)
    return {"on": list(rule.on), "backoff": schedule, "attempts": rule.attempts}


def _rule(data: object, path: str) -> Rule:
    found = _keys(data, Rule._fields, path)
    on = _names(found["on"], f"{path}.on")
    schedule = None if found["backoff"] is None else _backoff(found["backoff"], f"{path}.backoff")
    return _build(path, lambda: Rule(on, backoff=schedule, attempts=found["attempts"]))


def _jitter_out(jitter: Jitter) -> str | dict[str, Any]:
    match jitter.kind:
        case "plus":
            return {"plus": jitter.fraction}
        case "added":
            return {"added": _seconds_out(jitter.span)}
    return jitter.kind


def _jitter(data: object, path: str) -> Jitter:
    if isinstance(data, Mapping) and "added" in data:
        found = _keys(data, ("added",), path)
        return _build(path, lambda: Jitter.added(found["added"]))
    if isinstance(data, Mapping):
        found = _keys(data, ("plus",), path)
        return _build(path, lambda: Jitter.plus(found["plus"]))
    if not isinstance(data, str):
        raise PolicyValueError(
            f"{path}: {data!r} is neither the name of a jitter nor {{'plus': fraction}} or {{'added': span}}"
        )
    return _build(path, lambda: Jitter(data))


def _names(data: object, path: str) -> list[str]:
    names = _list(data, path)
    for name in names:
        if not isinstance(name, str):
            raise PolicyValueError(f"{path}: {name!r} is not a name")
    return names


def _resource_out(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise PolicyValueError(f"{name}: an object cannot be stored; register it under a key and name the key")


def _resource_in(value: object, path: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise PolicyValueError(f"{path}: {value!r} is not a key")


def _span_out(value: timedelta | None) -> str | float | None:
    return None if value is None else _seconds_out(value.total_seconds())


def _seconds_out(number: float | None) -> str | float | None:
    """Return a duration as text where that is exact, otherwise as a number."""
    if number is None:
        return None
    whole = span(number)
    exact = whole.total_seconds() == number and whole.microseconds % 1000 == 0
    return format_duration(whole) if exact else number


def _keys(data: object, wanted: tuple[str, ...], path: str) -> Mapping[str, Any]:
    mapping = _mapping(data, path)
    for name in wanted:
        if name not in mapping:
            raise PolicyValueError(f"{path}: the key {name!r} is missing")
    for name in mapping:
        if name not in wanted:
            raise PolicyValueError(f"{path}: there is no key {name!r}; there are {', '.join(wanted)}")
    return mapping


def _mapping(data: object, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise PolicyValueError(f"{path}: {data!r} is not a mapping")
    return data


def _list(data: object, path: str) -> list[Any]:
    if not isinstance(data, list | tuple):
        raise PolicyValueError(f"{path}: {data!r} is not a list")
    return list(data)


def _build(path: str, make: Callable[[], _T]) -> _T:
    try:
        return make()
    except PolicyError as error:
        raise PolicyValueError(f"{path}: {error}") from error
