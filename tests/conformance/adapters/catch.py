"""Adapter for ``ftl.json``, catch_validation: which catch tasks an app accepts, and which it refuses.

FTL's texts name verbs and its built-in module, and an app has no strict mode; so the adapter only compares whether the
app refuses, and redrive has its own message.
"""

from __future__ import annotations

import re
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any

import pytest

from redrive.app.app import App
from redrive.app.tasks.catch import CatchRequest
from redrive.errors import CatchDefinitionError
from tests.conformance.adapters.vocabulary import UnknownWord, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.loading import Case

MODULE = "test"
"""The module of the file's verbs."""


def catch_validation(case: Case) -> None:
    """Check whether an app accepts a task together with its catch."""
    read(case.shared, "event_types")  # names, which need no declaration here
    fields = ("subscriber_request", "catch_request", "catch_response", "catch_target", "catch_ref", "resolves_to")
    data = read(case.data, *fields, "errors", required=("errors",))
    data = {name: value for name, value in data.items() if value is not None}
    if "resolves_to" in data:
        _check_resolves(data)
    elif data["errors"]:
        with pytest.raises(CatchDefinitionError):
            _build(data)
    else:
        _build(data)


def _check_resolves(data: Any) -> None:
    app = App("memory://")
    _add(app, data["catch_ref"], "CatchRequest<Any>", "Unit")
    _add(app, "subscriber", data.get("subscriber_request", "Event"), "Unit", catch=data["catch_ref"])
    app.check()
    assert (True, data["errors"]) == (app.find(data["resolves_to"]) is app.find(data["catch_ref"]), [])


def _build(data: Any) -> None:
    app = App("memory://")
    catch = _target(data["catch_target"]) if "catch_target" in data else data.get("catch_ref", "recover")
    if "catch_request" in data:
        _add(app, catch, data["catch_request"], data.get("catch_response", "Unit"))
    _add(app, "subscriber", data.get("subscriber_request", "Event"), "Unit", catch=catch)
    app.check()


def _target(given: str) -> str:
    """Return the name of an object that is no task."""
    for phrase, name in TARGETS.items():
        if phrase in given:
            return name
    raise UnknownWord(f"catch_target: {given!r} (known: a text with {', '.join(TARGETS)})")


TARGETS = {"not a verb": "Event", "does not resolve": "nowhere"}
"""The file's texts for a catch that names no task, each with such a name."""


def _add(app: App, name: str, request: str, response: str, *, catch: str | None = None) -> None:
    function = _function(name, _type(request), _type(response))
    app.task(name=name, retry=f"1 1s catch {catch}" if catch else None)(function)


def _function(name: str, request: Any, response: Any) -> Callable[..., Any]:
    def takes_nothing() -> None: ...
    def takes_one(request: Any) -> None: ...

    function = takes_nothing if request is None else takes_one
    function.__name__, function.__module__ = name, MODULE
    function.__annotations__ = ({} if request is None else {"request": request}) | {"return": response}
    return function


_types: dict[str, Any] = {"Unit": None, "Any": Any}


def _type(text: str) -> Any:
    """Return the Python type of a type of the file; each unknown name is a distinct event type."""
    found = re.fullmatch(r"(?:(?:builtin\.)?CatchRequest<(?:\w+\.)?(\w+)>|(?:\w+\.)?(\w+))", text)
    if not found:
        raise UnknownWord(f"{text!r} (known: a name, CatchRequest<name>)")
    name = found[1] or found[2]
    if name not in _types:
        _types[name] = make_dataclass(name, [("id", int)])
    return CatchRequest[_types[name]] if found[1] else _types[name]
