"""The methods of a policy that carry out a call in this process.

The pure layer decides; `redrive.retrying` waits and calls. These methods load it at their first use through
`redrive.seams.in_process`. Each call has counters of its own, so that any number of threads and tasks can share a
policy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

from redrive.policy.decision import Defer, GiveUp
from redrive.policy.failure import Failure
from redrive.policy.outcome import Outcome
from redrive.seams import in_process

P = ParamSpec("P")
T = TypeVar("T")


class AttemptProtocol(Protocol):
    """One attempt of a block: ``for attempt in policy: with attempt: ...``."""

    result: Any
    """The result of the block, if the policy has ``on_result``; set it inside the block."""

    @property
    def number(self) -> int:
        """The number of the attempt, from 1."""
        ...

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline of this attempt, at least 0; None without a deadline."""
        ...

    @property
    def deadline(self) -> datetime | None:
        """The instant at which this attempt should end, aware; None without a deadline."""
        ...

    @property
    def previous(self) -> Failure | None:
        """The failure of the attempt before this one; None for the first."""
        ...

    @property
    def gave_up(self) -> GiveUp | Defer | None:
        """The decision by which the block ended without success, with ``why``; None if it goes on or has succeeded.

        Read it after a loop under ``on_result``: a result that is still rejected after the last attempt ends the loop
        without an exception, as ``policy.call`` returns it.
        """
        ...

    @property
    def uid(self) -> str:
        """An idempotency key: the same for all attempts of one call, and unique to that call."""
        ...

    def __enter__(self) -> Self:
        """Start the attempt."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool:
        """End the attempt; suppress a failure that will be retried."""
        ...


class Runner(Protocol):
    """The interface of `redrive.retrying.runner`, which carries out calls."""

    # `policy` is a `redrive.policy.Policy`, which inherits from `CallMethods` and so cannot be named here.

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
    """The methods of a policy that carry out calls."""

    __slots__ = ()

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function, and repeat the call with the same arguments while this policy decides so.

        Returns:
            Its result; if ``on_result`` still rejects it after the last attempt, the last result.

        Raises:
            Exception: the last exception of the function, unchanged, with one note and its record as ``__retry__``.
            PolicyValueError: the policy does not name which failures may be retried; or the function is a coroutine
                function, which `acall` calls.
        """
        return _runner().call(self, function, args, kwargs)

    def acall(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        """Do the same as `call` for a function with an awaitable result; under asyncio or trio.

        Raises:
            PolicyValueError: the function has returned nothing that can be awaited; it is not called again.
        """
        return _runner().acall(self, function, args, kwargs)

    def outcome(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Do the same as `call`, but return failures as values.

        Returns:
            ``Ok``, ``GaveUp`` or ``Deferred``; see `redrive.policy.outcome`. Exceptions that end a program or a task
            (``KeyboardInterrupt``, ``CancelledError``) are raised.
        """
        return _runner().outcome(self, function, args, kwargs)

    def aoutcome(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Outcome[T]]:
        """Do the same as `outcome` for a function with an awaitable result; under asyncio or trio."""
        return _runner().aoutcome(self, function, args, kwargs)

    def __iter__(self) -> Iterator[AttemptProtocol]:
        """Retry a block: ``for attempt in policy: with attempt: ...``. Each loop is a new call.

        Raises:
            RuntimeError: the loop is in a coroutine, where its waits would stop the event loop: use ``async for``.
        """
        return _runner().attempts(self)

    def __aiter__(self) -> AsyncIterator[AttemptProtocol]:
        """Retry a block with ``async for``, under asyncio or trio; the attempt is still entered by a plain ``with``."""
        return _runner().aattempts(self)

    def override(self, **changes: Any) -> AbstractContextManager[None]:
        """Change fields of this policy for the calls made inside a ``with`` block and in tasks started there.

        The change applies to every call under a policy that equals this one, at any depth.

        Args:
            **changes: fields by name, as in `Policy`.

        Raises:
            TypeError: a field does not exist.
            PolicyValueError: the changed policy is not valid.
        """
        return _runner().override(self, changes)


def _runner() -> Runner:
    return cast("Runner", in_process())
