"""How a task is retried: what stands at its function, what stands in the settings, and which of them holds.

The settings hold over the code, since they are what one changes in a hurry; what is said of one task holds over what
is said of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from redrive.contrib.django.options import Options
from redrive.errors import PolicyError, TaskDefinitionError
from redrive.policy import Policy

__all__ = ["Manner", "manner_of", "retries"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__redrive__"


@dataclass(frozen=True, slots=True)
class Manner:
    """How the jobs of a task are run.

    Attributes:
        retry: the policy; None for one attempt.
        timeout: how long one attempt may take.
        soft_timeout: when an attempt is asked to come to an end.
        idempotent: may it run again when its worker vanished halfway?
        keep_for: how long its ended jobs are kept; None for as long as the settings say.
    """

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
    """Say how a task is retried; stands *below* Django's ``@task``, at the function. See `redrive.App.task`.

    Args:
        retry: a directive such as ``"5 1s 1m"``, or a `Policy`; None for what the settings say of all tasks.
        timeout: how long one attempt may take: a ``timedelta``, seconds, or text; by default an hour.
        soft_timeout: when an attempt is asked to come to an end.
        idempotent: may it run again when its worker vanished halfway? With False it runs at most once.
        keep_for: how long its ended jobs are kept.

    Returns:
        The decorator; it leaves the function as it is.

    Raises:
        PolicyError: the directive cannot be read; the message names the function.
        TaskDefinitionError: it stands above ``@task``.
    """

    def mark(function: F) -> F:
        if not hasattr(function, "__qualname__"):
            message = f"@retries stands below @task, at the function itself, not above {function!r}"
            raise TaskDefinitionError(message)
        where = f"{function.__module__}.{function.__qualname__}"
        manner = Manner(_read(retry, f"task {where}"), timeout, soft_timeout, idempotent, keep_for)
        setattr(function, _MARK, manner)
        return function

    return mark


def manner_of(function: Callable[..., Any], path: str, options: Options) -> Manner:
    """Find out how a task is retried.

    Args:
        function: of the task.
        path: of the function.
        options: of the backend.

    Returns:
        What holds.

    Raises:
        PolicyError: a directive in the settings cannot be read.
    """
    said: Manner = getattr(function, _MARK, Manner())
    if path in options.policies:
        return replace(said, retry=_read(options.policies[path], f"{options.where}['policies'][{path!r}]"))
    return said if said.retry is not None else replace(said, retry=_read(options.retry, f"{options.where}['retry']"))


def _read(retry: Policy | str | None, where: str) -> Policy | None:
    try:
        return Policy.parse(retry) if isinstance(retry, str) else retry
    except PolicyError as error:
        raise error.within(where) from error
