"""The interface of a database library for transactions, and the runners of its steps.

A method of an adapter is a generator: it yields calls, receives their results, and returns a value. So each sequence of
calls is written once, and `drive` and `adrive` execute it in one colour or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any], Any, T]
"""A generator of calls that receives their results and returns a value."""

SWALLOWED = (
    "a statement of this transaction has failed, and its error was caught inside: nothing can be committed, and "
    "nothing was. Let the error out, or put the statement into a savepoint"
)
OPEN_ALREADY = (
    "a transaction is open on this connection already: a failed one accepts no more statements, so put the retry "
    "around the whole transaction, and open it inside"
)
LOST = "this connection has been lost, and there is no way to another: give a pool, or a function that connects"


class Adapter(Protocol):
    """One connection or session of a library, for one transaction."""

    @property
    def spares(self) -> int:
        """Return the number of other connections in the pool that may be as dead as this one."""

    @property
    def is_postgres(self) -> bool:
        """Return False if the connection is one to another database."""

    @property
    def renewable(self) -> bool:
        """Return True if `another` can open another connection."""

    def code_of(self, error: BaseException) -> str | None:
        """Return the SQLSTATE of an error of the library, or the one that describes the state of the connection."""

    def another(self) -> Adapter:
        """Return an adapter for another connection to the same database, not yet opened."""

    def open(self) -> Steps[Any]:
        """Take a connection and return the object for the user; raise `RuntimeError` if a transaction is open on it."""

    def begin(self, isolation: str | None) -> Steps[None]:
        """Begin the transaction."""

    def ask(self, statement: str, value: str | None = None) -> Steps[tuple[Any, ...]]:
        """Execute a statement with ``{value}`` as placeholder, and return its only row."""
        # The value is a parameter, so that a prepared statement can be used again with another value.

    def ready(self, question: str | None) -> Steps[tuple[Any, ...]]:
        """Flush pending writes, and return the row of ``question``, or an empty row.

        Raises:
            RuntimeError: a statement has failed before, so that COMMIT would roll back; see `SWALLOWED`.
        """

    def commit(self) -> Steps[None]:
        """Send COMMIT, and wait for the answer."""

    def rollback(self, error: BaseException) -> Steps[bool]:
        """Roll back; return True if the error only asked for that, such as `psycopg.Rollback`."""

    def close(self, *, usable: bool, cancelled: bool = False) -> Steps[None]:
        """Give the connection back, or close it; if the task was cancelled, end its statement on the server, too."""


def drive(steps: Steps[T]) -> T:
    """Execute the steps synchronously and return their result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _plain(step())
            except BaseException as error:  # noqa: BLE001 - the steps handle it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _plain(answer: object) -> Any:  # noqa: ANN401 - whatever the library returns
    if not hasattr(answer, "__await__"):
        return answer
    if hasattr(answer, "close"):
        answer.close()
    raise TypeError("this connection is asynchronous: write `async with`, or `async def` below the decorator")


async def adrive(steps: Steps[T]) -> T:
    """Execute the steps, awaiting each awaitable, and return their result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = step()
                if hasattr(answer, "__await__"):
                    answer = await answer
            except BaseException as error:  # noqa: BLE001 - the steps handle it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
