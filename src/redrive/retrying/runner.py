"""The other side of `redrive.policy.call_methods`: what the verbs of a policy do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from redrive.policy import Policy
from redrive.policy.call_methods import AttemptProtocol, Runner
from redrive.policy.outcome import Outcome
from redrive.retrying import aio, context, sync
from redrive.retrying.blocks import Attempts
from redrive.retrying.plan import Plan, name_of
from redrive.retrying.run import start

__all__ = ["RUNNER"]

T = TypeVar("T")


class _Runner:
    def call(self, policy: Policy, function: Callable[..., T], args: Any, kwargs: Any) -> T:
        """See `redrive.policy.call_methods.CallMethods.call`."""
        name = name_of(function)
        result: T = sync.proceed(start(_plan(policy, name), name), function, args, kwargs)
        return result

    async def acall(self, policy: Policy, function: Callable[..., Awaitable[T]], args: Any, kwargs: Any) -> T:
        """See `redrive.policy.call_methods.CallMethods.acall`."""
        name = name_of(function)
        result: T = await aio.proceed(start(_plan(policy, name), name), function, args, kwargs)
        return result

    def outcome(self, policy: Policy, function: Callable[..., T], args: Any, kwargs: Any) -> Outcome[T]:
        """See `redrive.policy.call_methods.CallMethods.outcome`."""
        name = name_of(function)
        return sync.outcome(start(_plan(policy, name), name), function, args, kwargs)

    async def aoutcome(
        self, policy: Policy, function: Callable[..., Awaitable[T]], args: Any, kwargs: Any
    ) -> Outcome[T]:
        """See `redrive.policy.call_methods.CallMethods.aoutcome`."""
        name = name_of(function)
        return await aio.outcome(start(_plan(policy, name), name), function, args, kwargs)

    def attempts(self, policy: Policy) -> Iterator[AttemptProtocol]:
        """See `redrive.policy.call_methods.CallMethods.__iter__`."""
        return _loop(policy)

    def aattempts(self, policy: Policy) -> AsyncIterator[AttemptProtocol]:
        """See `redrive.policy.call_methods.CallMethods.__aiter__`."""
        return _loop(policy)

    def override(self, policy: Policy, changes: dict[str, Any]) -> AbstractContextManager[None]:
        """See `redrive.policy.call_methods.CallMethods.override`."""
        return context.override(policy, changes)


RUNNER: Runner = _Runner()


def _loop(policy: Policy) -> Attempts:
    """The loop of a block, named after the function that contains it."""
    frame = sys._getframe(3)  # noqa: SLF001 - here, the runner, `Forms.__iter__`, the `for` statement
    name = f"the block in {frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
    return Attempts(_plan(policy, name), name)


_PLANS: dict[int, Plan] = {}
_REMEMBERED = 256  # programs have few policies; one that makes them on the fly must not fill the memory


def _plan(policy: Policy, name: str) -> Plan:
    """The plan of a policy, remembered by identity: to hash a policy costs more than a whole call.

    Raises:
        PolicyValueError: see `Plan`; it names the function.
    """
    plan = _PLANS.get(id(policy))
    if plan is None or plan.given is not policy:  # the plan holds its policy, so that no other one can have its id
        plan = Plan(policy, name)
        if len(_PLANS) >= _REMEMBERED:
            _PLANS.clear()
        _PLANS[id(policy)] = plan
    return plan
