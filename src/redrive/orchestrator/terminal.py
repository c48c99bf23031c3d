"""Failing fast on what will not go away: the draft of RFC 0049's revision 16 (November 2025, unmerged), to opt in.

Best effort retries a wrong password for 2.5 s and then says "timeout". The draft gives such causes reasons of their own
and a strategy that ends on them. The reasons are about *connections*, though, and a request meets no connection: it
fails for `NODE_NOT_AVAILABLE`. So `TerminalErrors` remembers what the connections that watch the cluster are failing
from, each until it succeeds, and answers with the reason that a request should fail for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from redrive.errors import (
    AuthenticationFailure,
    CollectionNotFound,
    PolicyValueError,
    ScopeNotFound,
    TerminalFailure,
)
from redrive.orchestrator.action import RetryAction
from redrive.orchestrator.backoff import Calculator
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request
from redrive.orchestrator.strategy import BestEffort
from redrive.policy import Reason

__all__ = ["TERMINAL", "FailFastOnTerminalError", "TerminalErrors"]

TERMINAL: Mapping[str, type[TerminalFailure]] = {
    "AUTHENTICATION_ERROR": AuthenticationFailure,
    "TLS_ERROR": TerminalFailure,
    "BUCKET_ACCESS_ERROR": TerminalFailure,
    "SCOPE_NOT_FOUND": ScopeNotFound,
    "COLLECTION_NOT_FOUND": CollectionNotFound,
}
"""The terminal reasons, in the draft's order, and the errors that they become."""


class FailFastOnTerminalError(BestEffort):
    """Best effort, except that it ends on a terminal reason with an error that says what is wrong.

    Args:
        backoff: see `BestEffort`.
        errors: the terminal reasons by name, and what makes an error of the message for each; by default `TERMINAL`.
            Where several connections fail, the first in this order is said.
        nth: which terminal failure of a request ends it; the ones before are retried, in case they pass.

    Raises:
        PolicyValueError: ``nth`` is below 1.
    """

    def __init__(
        self,
        backoff: Calculator | None = None,
        *,
        errors: Mapping[str, Callable[[str], Exception]] = TERMINAL,
        nth: int = 1,
    ) -> None:
        super().__init__(backoff)
        if nth < 1:
            message = f"nth={nth!r}: the first terminal failure is the earliest that can end a request"
            raise PolicyValueError(message)
        self.errors = errors
        self.nth = nth

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """See `RetryStrategy.retry_after`."""
        error = self.errors.get(reason.name)
        if error is None:
            return await super().retry_after(request, reason)
        earlier = sum(each.delay is not None and _name(each.reason) in self.errors for each in request.history)
        if earlier + 1 < self.nth:
            return await super().retry_after(request, reason)
        message = f"{request.operation} is not retried: {reason.name}"
        return RetryAction.no_retry(lambda _: error(message))


def _name(reason: Reason | None) -> str:
    return "" if reason is None else reason.name


class TerminalErrors:
    """What the connections that watch the cluster are failing from.

    Args:
        order: names of the terminal reasons, the one to say first at the beginning; by default those of `TERMINAL`.
    """

    def __init__(self, order: Mapping[str, object] = TERMINAL) -> None:
        self._order = tuple(order)
        self._failing: dict[Hashable, str] = {}

    def failed(self, connection: Hashable, reason: Reason) -> None:
        """Note that a connection could not be made or used; a reason that is not terminal is not noted.

        Args:
            connection: which, as anything that names it.
            reason: why.
        """
        if reason.name in self._order:
            self._failing[connection] = reason.name

    def succeeded(self, connection: Hashable) -> None:
        """Note that it works, or that there is no such connection any more.

        Args:
            connection: which.
        """
        self._failing.pop(connection, None)

    def reason_for(self, reason: Reason) -> RetryReason:
        """The reason that a request should fail for.

        Args:
            reason: why it could not be sent.

        Returns:
            The first terminal reason that some connection fails from; the same reason if none does.
        """
        failing = set(self._failing.values())
        first = next((name for name in self._order if name in failing), None)
        return RetryReason(*reason) if first is None else RetryReason.of(first)
