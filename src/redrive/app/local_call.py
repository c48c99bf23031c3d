"""A task as a synchronous call: here and now, in this process, under a policy of the caller's (seed 000).

There is no job, so nothing survives a crash, and the caller gets the result or the last error itself. How often to try
is the caller's to say. Whether a call *may* be repeated whose outcome nobody knows (RFC 0049's "in flight": it was cut
off by its timeout, say) is not: only the callee knows what it does. So such a call is repeated only if the task says
``idempotent=True`` in so many words, whatever the policy says.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, cast

from msgspec import UNSET, UnsetType

from redrive.app.pending import Pending
from redrive.errors import TaskDefinitionError
from redrive.policy import Policy

__all__ = ["Direct", "Traits", "earlier_names"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Traits:
    """What a function is like, whatever its jobs are told.

    Attributes:
        soft_timeout: after this an attempt is asked to come to an end.
        idempotent: does the task say that it may run twice? None where it says nothing.
        keep_for: how long its ended jobs are kept, None for ever; unset where the app decides.
        aka: earlier names of the task, under which jobs may be stored.
    """

    soft_timeout: timedelta | None = None
    idempotent: bool | None = None
    keep_for: timedelta | UnsetType | None = UNSET
    aka: tuple[str, ...] = ()


def earlier_names(name: str, aka: str | Iterable[str]) -> tuple[str, ...]:
    """Read what ``aka=`` was given.

    Args:
        name: of the task.
        aka: one name or several.

    Returns:
        The names.

    Raises:
        TaskDefinitionError: one of them is no text, is empty, is that of the task itself, or is there twice.
    """
    names = (aka,) if isinstance(aka, str) else tuple(aka)
    for each in names:
        if not isinstance(each, str) or not each or each == name or names.count(each) > 1:
            message = f"task {name!r}: aka= takes earlier names of the task, each another text and once, got {aka!r}"
            raise TaskDefinitionError(message)
    return names


class Direct(Generic[P, R, C]):
    """The part of a task that is called without a job.

    Attributes:
        name: of the task.
        function: ``def`` or ``async def``.
        traits: what it is like.
    """

    name: str
    function: Callable[P, C]
    traits: Traits

    @property
    def policy(self) -> Policy:
        """The retry policy of its jobs."""
        raise NotImplementedError

    def call(self, *args: Any, policy: Policy | str, **kwargs: Any) -> R:  # noqa: ANN401 - P cannot name `policy`
        """Call the function in this process, and again while the caller's policy says so.

        Args:
            *args: as for the function, its context included.
            policy: the caller's policy or directive. What it leaves open comes from the task: the time limit of an
                attempt, and which failures may be retried (``on=``), which is every `Exception` where the task names
                none, as in its jobs.
            **kwargs: as for the function.

        Returns:
            The result.

        Raises:
            Exception: the last one that the function raised, as by ``policy.call()``.
            PolicyError: the policy cannot be read.
            TaskDefinitionError: the function is ``async def``, has a parameter called ``policy``, or has returned
                `Pending`, which only a job can wait for.
        """
        if inspect.iscoroutinefunction(self.function):
            message = f"task {self.name!r} is async: await {self.name}.acall(...)"
            raise TaskDefinitionError(message)
        function = cast("Callable[..., R]", self.function)
        return self._result(self._callers(policy).call(function, *args, **kwargs))

    async def acall(self, *args: Any, policy: Policy | str, **kwargs: Any) -> R:  # noqa: ANN401 - see `call`
        """Call the function in this process, and again while the caller's policy says so; a ``def`` runs in a thread.

        See `call`; this one is for asyncio.
        """
        function = cast("Callable[..., Any]", self.function)
        if not inspect.iscoroutinefunction(function):
            function = functools.wraps(function)(functools.partial(asyncio.to_thread, function))
        result: R = self._result(await self._callers(policy).acall(function, *args, **kwargs))
        return result

    def _result(self, result: R) -> R:
        if isinstance(result, Pending):
            message = (
                f"task {self.name!r} returned {result!r}, but a call has no job that could wait for an answer: "
                "enqueue it, and wait for job.result()"
            )
            raise TaskDefinitionError(message)
        return result

    def _callers(self, given: Policy | str) -> Policy:
        """The caller's policy, without a say in what only the callee can know."""
        if "policy" in inspect.signature(self.function).parameters:
            message = f"task {self.name!r} has a parameter called 'policy', which call() takes itself"
            raise TaskDefinitionError(message)
        policy = Policy.parse(given) if isinstance(given, str) else given
        changes: dict[str, Any] = {"idempotent": self.traits.idempotent is True}
        if policy.on is None:
            # A task that names nothing retries every Exception in its jobs. `on_result` names something.
            named = policy.parts is not None or policy.on_result is not None
            changes["on"] = self.policy.on or (None if named else Exception)
        if policy.attempt_timeout is None:
            changes["attempt_timeout"] = self.policy.attempt_timeout
        return policy.with_(**changes)
