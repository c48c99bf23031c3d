"""A request as the call around what sends it, so that `redrive.deadline` below it knows its deadline.

It also counts as a retried call: one layer retries, so a policy inside the sending function makes one attempt and
leaves an error that the orchestrator classifies to the orchestrator, unless the policy has ``nested="both"``. Whether
the strategy then retries is not known here, since to ask it would run code of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from redrive.orchestrator.request import Request
from redrive.policy import Policy
from redrive.retrying.context import SCOPE, Call, Scope
from redrive.retrying.plan import Plan

__all__ = ["published"]

_PLAN = Plan(Policy(on=Exception), "the orchestrator")  # of it only `retries` is asked, and it does


class _Under:
    """A `redrive.retrying.context.Call` that is a request."""

    plan = _PLAN

    def __init__(self, request: Request, outer: Call | None, retries: Callable[[Exception], bool]) -> None:
        self.clock = request.clock
        self.outer = outer
        self.live = True
        self._request = request
        self._retries = retries

    @property
    def name(self) -> str:
        """What is called."""
        return self._request.operation

    @property
    def number(self) -> int:
        """The number of its present attempt."""
        return self._request.attempt.number

    @property
    def ends(self) -> float | None:
        """When it should have ended, on its clock."""
        return self._request.ends

    def repeats(self, error: Exception | None, result: object) -> bool:  # noqa: ARG002 - it judges errors only
        """See `redrive.retrying.context.Call`."""
        return error is not None and self._retries(error)


@contextmanager
def published(request: Request, retries: Callable[[Exception], bool]) -> Iterator[None]:
    """Have a request be the call around what is done inside a ``with`` block, and in tasks started there.

    Args:
        request: the request.
        retries: returns True for an error of the sending function that the orchestrator does not raise at once.
    """
    scope = SCOPE.get() or Scope()
    call = _Under(request, scope.call, retries)
    token = SCOPE.set(scope.with_(call=call))
    try:
        yield
    finally:
        call.live = False
        with suppress(ValueError):  # a coroutine that the garbage collector closes is closed in another context
            SCOPE.reset(token)
