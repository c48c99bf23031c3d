"""The options of a task from its function and from the settings.

The settings override the code, and settings of one task override those of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from redrive.contrib.django.options import BackendOptions
from redrive.errors import PolicyError, TaskDefinitionError
from redrive.policy import Policy

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__redrive__"

CRONS: dict[str, dict[str, tuple[Callable[..., Any], str, dict[str, Any]]]] = {}
"""Crons by the alias of their backend and the path of their function: the function, the pattern, the options."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of a task; see `retries`."""

    retry: Policy | None = None
    timeout: timedelta | float | str | None = None
    soft_timeout: timedelta | float | str | None = None
    idempotent: bool | None = None
    keep_for: timedelta | float | str | None = None


def retries(
    retry: Policy | str | None = None,
    *,
    timeout: timedelta | float | str | None = None,
    soft_timeout: timedelta | float | str | None = None,
    idempotent: bool | None = None,
    keep_for: timedelta | float | str | None = None,
) -> Callable[[F], F]:
    """Set the options of a task, *below* Django's ``@task``, at the function. See `redrive.App.task`.

    Args:
        retry: a directive such as ``"5 1s 1m"``, or a `Policy`; None for the policy of the settings.
        timeout: the time limit of an attempt: a ``timedelta``, seconds, or text; by default an hour.
        soft_timeout: the time after which an attempt is asked to stop.
        idempotent: False if a job must not run again after its worker died; it then runs at most once.
        keep_for: how long its ended jobs are kept; None for the settings' value.

    Raises:
        PolicyError: the directive cannot be read; the message names the function.
        TaskDefinitionError: the decorator is above ``@task``.
    """

    def mark(function: F) -> F:
        if not hasattr(function, "__qualname__"):
            message = f"@retries belongs below @task, at the function itself, not above {function!r}"
            raise TaskDefinitionError(message)
        where = f"{function.__module__}.{function.__qualname__}"
        options = TaskOptions(_read(retry, f"task {where}"), timeout, soft_timeout, idempotent, keep_for)
        setattr(function, _MARK, options)
        return function

    return mark


def cron(pattern: str, *, backend: str = "default", **options: object) -> Callable[[F], F]:
    """Declare a cron in a ``tasks`` module: a function that workers run at the occurrences of a pattern.

    The function takes no arguments, or a `redrive.Context`. `redrive.App.cron` describes the pattern and the options.

    Args:
        pattern: such as ``"0 3 * * *"``.
        backend: the alias in TASKS of the backend with its jobs.
        **options: ``tz``, ``retry``, ``overlap``, ``catch_up`` and the others; the name is the path of the function.
    """

    def declare(function: F) -> F:
        CRONS.setdefault(backend, {})[f"{function.__module__}.{function.__qualname__}"] = (function, pattern, options)
        return function

    return declare


def task_options(function: Callable[..., Any], path: str, options: BackendOptions) -> TaskOptions:
    """Return the options of a task by its function, the path of that, and the options of the backend."""
    declared: TaskOptions = getattr(function, _MARK, TaskOptions())
    if path in options.policies:
        return replace(declared, retry=_read(options.policies[path], f"{options.where}['policies'][{path!r}]"))
    return (
        declared
        if declared.retry is not None
        else replace(declared, retry=_read(options.retry, f"{options.where}['retry']"))
    )


def _read(retry: Policy | str | None, where: str) -> Policy | None:
    try:
        return Policy.parse(retry) if isinstance(retry, str) else retry
    except PolicyError as error:
        raise error.within(where) from error
