"""Adapter for ``ftl.json``, catch_validation: which catch tasks an app takes, and which it refuses.

FTL's texts speak of verbs and of its built-in module, and an app has no strict mode to say them; so the adapter asks
whether the app refuses, and redrive has its own message.
"""

from __future__ import annotations

import re
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any

import pytest

from redrive.app.app import App
from redrive.app.catch import CatchRequest
from redrive.errors import CatchDefinitionError
from tests.conformance.adapters.vocabulary import UnknownWord, read, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.loading import Case

MODULE = "test"
"""Where the file's verbs stand."""


def catch_validation(case: Case) -> None:
    """Whether an app takes a task together with its catch."""
    read(case.shared, "event_types")
    fields = ("subscriber_request", "catch_request", "catch_response", "catch_target", "catch_ref", "resolves_to")
    data = read(case.data, *fields, "errors")
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
    catch = word(data["catch_target"], TARGETS) if "catch_target" in data else "recover"
    if "catch_request" in data:
        _add(app, catch, data["catch_request"], data["catch_response"])
    _add(app, "subscriber", data.get("subscriber_request", "Event"), "Unit", catch=catch)
    app.check()


TARGETS = {
    "a data type, not a verb": "Event",
    "name that does not resolve in own module": "nowhere",
}
"""What a catch can name that is no task."""


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
    """The Python type of a type of the file: any name is an event type of its own."""
    found = re.fullmatch(r"(?:CatchRequest<(\w+)>|(\w+))", text)
    if not found:
        raise UnknownWord(f"{text!r} (known: a name, CatchRequest<name>)")
    name = found[1] or found[2]
    if name not in _types:
        _types[name] = make_dataclass(name, [("id", int)])
    return CatchRequest[_types[name]] if found[1] else _types[name]
