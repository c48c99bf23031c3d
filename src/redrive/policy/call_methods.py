"""The verbs of a policy: carry out a call under it, in this process.

Deciding is pure and lives here; waiting and calling is not, and lives in `redrive.retrying`. These methods only hand
the policy over, through the seam `redrive.seams.in_process`, so that there is one class of policies and not a deciding
one and a calling one. What the other side must be able to do is the Protocol `Runner`.

Every verb needs ``on`` (or ``on_result``): retrying every exception hides programming errors. All counters belong to
the call, never to the policy, so that one policy can serve any number of threads and tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

from redrive.policy.failure import Failure
from redrive.policy.outcome import Outcome
from redrive.seams import in_process

__all__ = ["AttemptProtocol", "CallMethods", "Runner"]

P = ParamSpec("P")
T = TypeVar("T")


class AttemptProtocol(Protocol):
    """One attempt of a block: ``for attempt in policy: with attempt: ...``."""

    result: Any
    """What the block came to, if the policy has ``on_result``; set it inside the block."""

    @property
    def number(self) -> int:
        """Counted from 1."""
        ...

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline of this attempt, not below 0; None without one."""
        ...

    @property
    def deadline(self) -> datetime | None:
        """The instant at which this attempt should have ended, aware; None without one."""
        ...

    @property
    def previous(self) -> Failure | None:
        """Why the attempt before this one failed; None for the first."""
        ...

    @property
    def uid(self) -> str:
        """The same for all attempts of one call and for no other call: an idempotency key."""
        ...

    def __enter__(self) -> Self:
        """Start the attempt."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool:
        """End the attempt; a failure that will be retried is taken."""
        ...


class Runner(Protocol):
    """Who carries out calls: `redrive.retrying.runner`.

    ``policy`` is a `redrive.policy.Policy`, which inherits from `CallMethods` and so cannot be named here.
    """

    def call(self, policy: Any, function: Callable[..., T], args: Any, kwargs: Any) -> T:
        """See `CallMethods.call`."""
        ...

    def acall(
        self, policy: Any, function: Callable[..., Awaitable[T]], args: Any, kwargs: Any
    ) -> Coroutine[Any, Any, T]:
        """See `CallMethods.acall`."""
        ...

    def outcome(self, policy: Any, function: Callable[..., T], args: Any, kwargs: Any) -> Outcome[T]:
        """See `CallMethods.outcome`."""
        ...

    def aoutcome(
        self, policy: Any, function: Callable[..., Awaitable[T]], args: Any, kwargs: Any
    ) -> Coroutine[Any, Any, Outcome[T]]:
        """See `CallMethods.aoutcome`."""
        ...

    def attempts(self, policy: Any) -> Iterator[AttemptProtocol]:
        """See `CallMethods.__iter__`."""
        ...

    def aattempts(self, policy: Any) -> AsyncIterator[AttemptProtocol]:
        """See `CallMethods.__aiter__`."""
        ...

    def override(self, policy: Any, changes: dict[str, Any]) -> AbstractContextManager[None]:
        """See `CallMethods.override`."""
        ...


class CallMethods:
    """What a policy can do beside deciding."""

    __slots__ = ()

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function, and again while this policy says so.

        Args:
            function: what to call.
            *args: its arguments, the same at each attempt.
            **kwargs: the same.

        Returns:
            Its result; where ``on_result`` still rejects it after the last attempt, the last one.

        Raises:
            Exception: the last one that the function raised, unchanged, with one note and its record as ``__retry__``.
            PolicyValueError: the policy does not name what may be retried.
        """
        return _runner().call(self, function, args, kwargs)

    def acall(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        """The same as `call`, for a function whose result is awaited; under asyncio or trio."""
        return _runner().acall(self, function, args, kwargs)

    def outcome(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """The same as `call`, but an exception is never raised: it is a value, and so is the time line.

        Returns:
            ``Ok``, ``GaveUp`` or ``Deferred``; see `redrive.policy.outcome`. What ends a program or a task
            (``KeyboardInterrupt``, ``CancelledError``) is raised.
        """
        return _runner().outcome(self, function, args, kwargs)

    def aoutcome(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Outcome[T]]:
        """The same as `outcome`, for a function whose result is awaited; under asyncio or trio."""
        return _runner().aoutcome(self, function, args, kwargs)

    def __iter__(self) -> Iterator[AttemptProtocol]:
        """Retry a block: ``for attempt in policy: with attempt: ...``. Each loop is a new call."""
        return _runner().attempts(self)

    def __aiter__(self) -> AsyncIterator[AttemptProtocol]:
        """The same with ``async for``, under asyncio or trio; the attempt is still entered by a plain ``with``."""
        return _runner().aattempts(self)

    def override(self, **changes: Any) -> AbstractContextManager[None]:
        """Change fields of this policy for the calls made inside a ``with`` block, here and in tasks started there.

        It reaches every call under a policy that equals this one, however deep below.

        Args:
            **changes: fields by name, as in `Policy`.

        Raises:
            TypeError: there is no such field.
            PolicyValueError: the changed policy would mean nothing sensible.
        """
        return _runner().override(self, changes)


def _runner() -> Runner:
    return cast("Runner", in_process())
