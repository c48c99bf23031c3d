"""The start and stop hooks of an app, and the resources that start hooks open for handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from redrive.errors import TaskDefinitionError

F = TypeVar("F", bound=Callable[..., Any])

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
"""The kinds of the parameters that a hook may have."""


class Resources(Mapping[str, Any]):
    """The resources of a worker by name, as ``ctx.resources``: what its start hooks have returned or yielded."""

    def __init__(self, found: Mapping[str, Any] | None = None) -> None:
        self._found = dict(found or {})

    def __getitem__(self, name: str) -> Any:
        """Return a resource; raise `KeyError` with the names that exist."""
        try:
            return self._found[name]
        except KeyError:
            known = ", ".join(map(repr, self._found)) or "none"
            message = f"no start hook (@app.on_start) has returned the resource {name!r}; resources: {known}"
            raise KeyError(message) from None

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"Resources({', '.join(self._found)})"


NO_RESOURCES: Mapping[str, Any] = Resources()
"""The resources of an app without start hooks."""


class Hooks:
    """The functions that an app calls at the start and the stop of a worker, around calls, and before an enqueue.

    Each list is in the order of the code.
    """

    def __init__(self) -> None:
        self.start: list[Callable[..., Any]] = []
        self.stop: list[Callable[..., Any]] = []
        self.around: list[Callable[..., Any]] = []
        self.enqueue: list[Callable[..., Any]] = []

    def add_start(self, function: F) -> F:
        """Register a start hook; see `redrive.App.on_start`."""
        self.start.append(_checked(function, "on_start"))
        return function

    def add_stop(self, function: F) -> F:
        """Register a stop hook; see `redrive.App.on_stop`."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TaskDefinitionError(
                f"{function.__qualname__} yields, and @app.on_stop takes a plain function: "
                "decorate it with @app.on_start, which runs the part behind the yield when the worker stops"
            )
        self.stop.append(_checked(function, "on_stop"))
        return function


def takes_resources(function: Callable[..., Any]) -> bool:
    """Return True if a hook has a parameter, which receives the resources."""
    return bool(inspect.signature(function).parameters)


def _checked(function: F, kind: str) -> F:
    if not inspect.isroutine(function):
        raise TaskDefinitionError(f"{function!r} is no function; write @app.{kind} above a function")
    parameters = inspect.signature(function).parameters.values()
    if len(parameters) > 1 or any(each.kind not in POSITIONAL for each in parameters):
        raise TaskDefinitionError(
            f"the hook {function.__qualname__} takes ({', '.join(map(str, parameters))}); a hook of @app.{kind} takes "
            "nothing, or one parameter, which receives the resources so far"
        )
    return function
