"""Decorators: how a function becomes a task, a cron or a refresh of an App."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from redrive.app.context import Pending
from redrive.app.cron import Cron
from redrive.app.enqueue import Options, durable_policy
from redrive.app.protocol import AppProtocol
from redrive.app.refresh import Refresh
from redrive.app.registry import Registry
from redrive.app.task import Task, Traits
from redrive.clock import SystemClock
from redrive.engine.frozen import freeze
from redrive.engine.lease import limit_of
from redrive.errors import ConfigurationError, PolicyError, TaskDefinitionError
from redrive.policy import Policy, parse_duration
from redrive.schedule import Schedule

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Task[Any, Any, Any])

Span: TypeAlias = timedelta | float | str

FOREVER = "forever"
"""The value of ``keep_for`` under which jobs are never deleted."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The arguments of a decorator; see `redrive.App.task`."""

    retry: Policy | str | None = None
    queue: str = "default"
    timeout: Span | None = None
    name: str | None = None
    priority: int = 0
    idempotent: bool | None = None
    soft_timeout: Span | None = None
    keep_for: Span | None = None
    aka: str | Iterable[str] = ()


class TaskDecorator(Protocol):
    """The type of ``@app.task(...)``, which keeps the parameters and the result of the function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R | Pending], /) -> Task[P, R, R]: ...


class CronDecorator(Protocol):
    """The type of ``@app.cron(...)``."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, None]], /
    ) -> Cron[P, None, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, function: Callable[P, None], /) -> Cron[P, None, None]: ...


class RefreshDecorator(Protocol):
    """The type of ``@app.refresh(...)``."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Refresh[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R | Pending], /) -> Refresh[P, R, R]: ...


class Registrar:
    """The decorators of one App.

    Args:
        app: the App that the tasks belong to.
        registry: its tasks.
    """

    def __init__(self, app: AppProtocol, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    def task(self, function: Callable[..., Any], declaration: Declaration) -> Task[Any, Any, Any]:
        """Register a function as a task."""
        if not inspect.isroutine(function):
            message = f"{function!r} is no function; a task is made by @app.task or @app.task(retry=..., queue=...)"
            raise TaskDefinitionError(message)
        return self._define(function, declaration, Task)

    def cron(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        **settings: Any,  # noqa: ANN401 - those of its class
    ) -> Cron[Any, Any, Any]:
        """Register a function as a cron."""
        _check_function(function, "cron", declaration.name)
        cron: Cron[Any, Any, Any] = self._define(function, declaration, Cron, **settings)
        try:
            _ = cron.signature.hints
        except TaskDefinitionError:
            pass  # annotations that name what is defined further down are checked at the first use
        else:
            cron.check_signature()
        self._warn_if_over(f"cron {cron.name!r}", cron.definition.schedule)
        return cron

    def refresh(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        **settings: Any,  # noqa: ANN401 - those of its class
    ) -> Refresh[Any, Any, Any]:
        """Register a function as a refresh."""
        _check_function(function, "refresh", declaration.name)
        refresh: Refresh[Any, Any, Any] = self._define(function, declaration, Refresh, **settings)
        self._warn_if_over(f"refresh {refresh.name!r}", refresh.refresh_policy.schedule)
        return refresh

    def _define(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        kind: Callable[..., K],
        **settings: Any,  # noqa: ANN401 - those of the kind
    ) -> K:
        label = declaration.name or function.__name__
        policy = _policy(declaration, f"{function.__module__}.{function.__qualname__}")
        options = Options(declaration.queue, declaration.priority, freeze(policy))
        task = kind(self._app, label, function, options, traits=_traits(label, declaration, policy), **settings)
        self._registry.add(task)
        return task

    def _warn_if_over(self, what: str, schedule: Schedule | None) -> None:
        # A warning, because an error would stop a program on the day after its last occurrence.
        if schedule is not None and schedule.next(self._app.now() or SystemClock().now()) is None:
            message = f"{what} has no occurrence any more: its schedule lies in the past"
            warnings.warn(message, RuntimeWarning, stacklevel=4)


def _policy(declaration: Declaration, where: str) -> Policy:
    policy = durable_policy(declaration.retry, where)
    changes: dict[str, Any] = {"idempotent": False} if declaration.idempotent is False else {}
    if declaration.timeout is not None:
        changes["attempt_timeout"] = declaration.timeout
    try:
        return policy.with_(**changes) if changes else policy
    except PolicyError as error:
        raise error.within(f"task {where}") from error


def _traits(name: str, declaration: Declaration, policy: Policy) -> Traits:
    retry, idempotent = declaration.retry, declaration.idempotent
    traits = Traits(
        idempotent=retry.idempotent if idempotent is None and isinstance(retry, Policy) else idempotent,
        aka=_earlier_names(name, declaration.aka),
    )
    if declaration.keep_for is not None:
        traits = replace(traits, keep_for=retention_time(declaration.keep_for, f"task {name!r}: keep_for"))
    if declaration.soft_timeout is not None:
        soft, hard = parse_duration(declaration.soft_timeout), limit_of(policy)
        if not timedelta(0) < soft < hard:
            message = (
                f"task {name!r}: its soft timeout ({soft}) must be positive, and shorter than its timeout ({hard})"
            )
            raise TaskDefinitionError(message)
        traits = replace(traits, soft_timeout=soft)
    return traits


def _earlier_names(name: str, aka: str | Iterable[str]) -> tuple[str, ...]:
    names = (aka,) if isinstance(aka, str) else tuple(aka)
    for each in names:
        if not isinstance(each, str) or not each or each == name or names.count(each) > 1:
            message = f"task {name!r}: aka= takes earlier names of the task, each another text and once, got {aka!r}"
            raise TaskDefinitionError(message)
    return names


def _check_function(function: object, kind: str, name: str | None) -> None:
    if isinstance(function, Task):
        message = (
            f"{function.name!r} is a task already, and one function is one task: make another function for the {kind}"
        )
        raise TaskDefinitionError(message)
    if not inspect.isroutine(function):
        message = f"{function!r} is no function; a {kind} is made by @app.{kind}(...) above a function"
        raise TaskDefinitionError(message)
    label = name or function.__name__
    if "/" in label:
        message = f"the {kind} {label!r} has a slash in its name, which separates the name from the key of an item"
        raise TaskDefinitionError(message)


def retention_time(value: Any, where: str) -> timedelta | None:  # noqa: ANN401 - a span, or "forever"
    """Read how long jobs are kept: None for ever.

    Args:
        value: a ``timedelta``, seconds, text such as ``"7d"``, or ``"forever"``.
        where: the setting, for messages.

    Raises:
        ConfigurationError: it cannot be read, or is not positive.
    """
    if value == FOREVER:
        return None
    span = parse_duration(value)
    if span <= timedelta(0):
        message = f"{where} must be positive, got {value!r}; {FOREVER!r} keeps all"
        raise ConfigurationError(message)
    return span
