"""What a library brings to a transaction, and conversations with it.

A conversation is a generator: it yields calls, is sent what they return, and returns a value itself. So what happens is
written once, and the two functions at the end carry it out in one colour or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

__all__ = ["LOST", "NOT_RENEWABLE", "OPEN_ALREADY", "SWALLOWED", "Link", "Steps", "adrive", "drive"]

T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any], Any, T]
"""A conversation that returns a value."""

SWALLOWED = (
    "a statement of this transaction has failed, and its error was caught inside: nothing can be committed, and "
    "nothing was. Let the error out, or put the statement into a savepoint"
)
OPEN_ALREADY = (
    "a transaction is open on this connection already: a failed one accepts nothing more, so put the retry around the "
    "whole transaction, and open it inside"
)
LOST = "this connection has been lost, and there is no way to another: give a pool, or a function that connects"
NOT_RENEWABLE = "transactional() takes a pool or a function that connects: a lost connection cannot be used again"


class Link(Protocol):
    """A library's side: one connection or session, for one transaction. Its verbs are conversations (`Steps`)."""

    @property
    def spares(self) -> int:
        """How many other connections the pool may have that are as dead as this one."""
        ...

    @property
    def renewable(self) -> bool:
        """Whether another connection can be had."""
        ...

    def code_of(self, error: BaseException) -> str | None:
        """The SQLSTATE of an error of the library, or that of what has happened to the connection."""
        ...

    def another(self) -> Link:
        """A link to the same database over another connection, not yet opened."""
        ...

    def open(self) -> Steps[Any]:
        """Take a connection; what the user works with.

        Raises:
            RuntimeError: a transaction is open on it.
        """
        ...

    def begin(self, isolation: str | None) -> Steps[None]:
        """Begin the transaction."""
        ...

    def ask(self, statement: str, value: str | None = None) -> Steps[tuple[Any, ...]]:
        """Ask for one row.

        Args:
            statement: what to ask, with ``{value}`` where the value goes.
            value: is sent apart, so that a statement which is remembered is not remembered for each value.
        """
        ...

    def ready(self, question: str | None) -> Steps[tuple[Any, ...]]:
        """Write what was held back, ask the last question, and fail if COMMIT would be answered with a rollback.

        Args:
            question: asks for one row, which is returned; None: there is none, and an empty row is returned.

        Raises:
            RuntimeError: a statement has failed before; see `SWALLOWED`.
        """
        ...

    def commit(self) -> Steps[None]:
        """Send COMMIT, and await the answer."""
        ...

    def rollback(self, error: BaseException) -> Steps[bool]:
        """Undo everything; whether the error was only meant to ask for that."""
        ...

    def close(self, *, usable: bool) -> Steps[None]:
        """Give the connection back, or close it for good."""
        ...


def drive(steps: Steps[T]) -> T:
    """Hold a conversation in plain code."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _plain(step())
            except BaseException as error:  # noqa: BLE001 - it goes where it belongs
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _plain(answer: Any) -> Any:  # noqa: ANN401 - whatever the library returns
    if not hasattr(answer, "__await__"):
        return answer
    if hasattr(answer, "close"):
        answer.close()
    raise TypeError("this database speaks async: write `async with`, or `async def` below the decorator")


async def adrive(steps: Steps[T]) -> T:
    """Hold a conversation in async code: what can be awaited is."""
    try:
        step = next(steps)
        while True:
            try:
                answer = step()
                if hasattr(answer, "__await__"):
                    answer = await answer
            except BaseException as error:  # noqa: BLE001 - it goes where it belongs
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
