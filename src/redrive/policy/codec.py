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
from typing import Any, TypeVar

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.algebra import OPERATORS
from redrive.policy.backoff import KINDS, Backoff, Called
from redrive.policy.decider import Decider
from redrive.policy.duration import format_duration, span
from redrive.policy.fields import FIELDS, VERSION, Rule
from redrive.policy.jitter import Jitter
from redrive.policy.policy import Policy

_T = TypeVar("_T")

_KEYS = tuple(name for name, field in FIELDS.items() if field.stored)
# Fields of backoffs that are durations.
_SECONDS = ("value", "initial", "maximum", "step", "limit")
# Fields of backoffs that are backoffs.
_PARTS = ("of", "left", "right")


def policy_to_dict(policy: Decider) -> dict[str, Any]:
    """See `redrive.policy.Policy.to_dict`."""
    if callable(policy.on):
        raise PolicyValueError("on: a classifier is a function and cannot be stored; name types or reasons instead")
    if policy.on_result is not None:
        raise PolicyValueError("on_result: a predicate is a function and cannot be stored")
    return {"version": VERSION} | {name: _field_out(policy, name) for name in _KEYS}


def _field_out(policy: Decider, name: str) -> Any:  # noqa: ANN401 - each field has its own form
    value = getattr(policy, name)
    match FIELDS[name].stored:
        case "names":
            return None if value is None else list(value)
        case "default span":
            return _span_out(value) if getattr(policy, f"{name}_given") else "default"
        case "span":
            return _span_out(value)
        case "backoff":
            return backoff_to_dict(value)
        case "jitter":
            return _jitter_out(value)
        case "rules":
            return [_rule_out(rule) for rule in value]
        case "resource" | "default resource" as form:
            # Null means no key; so were policies stored before there was a default.
            is_none = form != "resource" and value is None and getattr(policy, f"{name}_given")
            return False if is_none else _resource_out(name, value)
    return value


def policy_from_dict(data: object) -> Policy:
    """See `redrive.policy.Policy.from_dict`."""
    return _policy(data, "policy")


def _policy(data: object, path: str) -> Policy:
    mapping = _mapping(data, path)
    _check_version(mapping, path)
    if "op" in mapping:
        return _combined(_keys(mapping, ("version", "op", "of"), path), path)
    found = _keys(mapping, ("version", *_KEYS), path)
    arguments = {name: _field_in(FIELDS[name].stored, found[name], f"{path}.{name}") for name in _KEYS}
    return _build(path, lambda: Policy(**arguments))


def _field_in(stored: str | None, value: object, path: str) -> Any:  # noqa: ANN401 - each field has its own form
    match stored:
        case "names":
            return None if value is None else _names(value, path)
        case "default span":
            return ... if value == "default" else value
        case "backoff":
            return backoff_from_dict(value, path)
        case "jitter":
            return _jitter(value, path)
        case "rules":
            return [_rule(rule, f"{path}[{at}]") for at, rule in enumerate(_list(value, path))]
        case "resource":
            return _resource_in(value, path)
        case "default resource":
            return None if value is False else ... if value is None else _resource_in(value, path)
    # Plain values and spans are checked by the constructor.
    return value


def _combined(data: Mapping[str, Any], path: str) -> Policy:
    operator = OPERATORS.get(str(data["op"]))
    if operator is None:
        raise PolicyValueError(f"{path}.op: {data['op']!r} is not one of {', '.join(OPERATORS)}")
    parts = _list(data["of"], f"{path}.of")
    if len(parts) != 2:  # noqa: PLR2004 - operators are binary
        raise PolicyValueError(f"{path}.of: an operator joins two policies, not {len(parts)}")
    left, right = (_policy(part, f"{path}.of[{at}]") for at, part in enumerate(parts))
    return _build(path, lambda: operator(left, right))


def _check_version(data: Mapping[str, Any], path: str) -> None:
    if "version" not in data:
        raise PolicyValueError(f"{path}: the key 'version' is missing")
    version = data["version"]
    if version != VERSION or isinstance(version, bool):
        raise PolicyValueError(f"{path}.version: {version!r} is not {VERSION}, the only version that is known here")


# ------------------------------------------------------------------------------------------------------------- backoffs


def backoff_to_dict(value: Backoff) -> dict[str, Any]:
    """Return a backoff as JSON-able data: its kind and its fields."""
    if isinstance(value, Called):
        raise PolicyValueError(
            f"backoff: the function {value.label} cannot be stored: Backoff.register(name, function) gives it a name "
            "in each program, and Backoff.named(name) the schedule"
        )
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


def backoff_from_dict(data: object, path: str = "backoff") -> Backoff:
    """Build a backoff from the result of `backoff_to_dict`; errors name the path."""
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
            arguments[name] = backoff_from_dict(value, f"{path}.{name}")
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
    schedule = None if found["backoff"] is None else backoff_from_dict(found["backoff"], f"{path}.backoff")
    return _build(path, lambda: Rule(on, backoff=schedule, attempts=found["attempts"]))


def _jitter_out(jitter: Jitter) -> str | dict[str, Any]:
    limit = {} if jitter.within is None else {"within": _seconds_out(jitter.within)}
    match jitter.kind:
        case "plus":
            return {"plus": jitter.fraction} | limit
        case "added":
            return {"added": _seconds_out(jitter.span)} | limit
    return jitter.kind


def _jitter(data: object, path: str) -> Jitter:
    if isinstance(data, Mapping):
        kind = "added" if "added" in data else "plus"
        found = _keys(data, (kind, "within") if "within" in data else (kind,), path)
        make = Jitter.added if kind == "added" else Jitter.plus
        return _build(path, lambda: make(found[kind], within=found.get("within")))
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
