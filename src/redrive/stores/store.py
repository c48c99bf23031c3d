"""The interface of a store: a database that keeps jobs, with the methods that run operations on it."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol

from redrive.clock import Clock
from redrive.errors import StoreOutcomeUnknown
from redrive.stores import migrate
from redrive.stores.operations.schema import Schema, Versions, mismatch, schema
from redrive.stores.query import Operation, R
from redrive.stores.urls import redacted

MAY_WAIT: ContextVar[bool] = ContextVar("redrive_may_wait", default=False)
"""True in background duties that poll: their operations wait for a connection rather than open another one."""

_ENQUEUE = "enqueue"

_ADVICE = "check the state in the database before you repeat it"
_WITH_KEY = f"{_ADVICE}; an enqueue with an idempotency_key=, or with a key=, can be repeated without a second job"


def unknown(store: object, operation: str | None, text: str) -> StoreOutcomeUnknown:
    """Return the error for an operation; None means that several operations share the transaction."""
    advice = _WITH_KEY if operation in {None, _ENQUEUE} else _ADVICE
    return StoreOutcomeUnknown(
        f"{store}: the answer to the commit of {operation or 'this write'} was lost, so it is unknown whether it took "
        f"effect: {advice} ({text})"
    )


class Store(ABC):
    """A database that keeps jobs. Each driver implements it for one database library.

    Args:
        url: the URL that the store was opened with.

    Attributes:
        dialect: name of the SQL dialect of the database.
        local: True if transactions use the clock of this machine, False if they use the clock of a server.
        lasting: True if a worker has a session that lasts as long as its process, so that it can hold a lock.
    """

    dialect: ClassVar[str]
    local: ClassVar[bool]
    lasting: bool

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def run(self, operation: Operation[R], *, using: object = None, timeout: float = math.inf) -> R:
        """Run an operation in one transaction and return its result.

        Args:
            operation: the operation; its generator is used up.
            using: a connection of the user; the operation runs in its transaction.
            timeout: seconds to wait for a database server, if less than the settings of the store allow. Databases in
                files ignore it.

        Raises:
            StoreError: the database refused.
        """

    @abstractmethod
    async def arun(self, operation: Operation[R], *, using: object = None) -> R:
        """Run an operation in one transaction and return its result; see `run`."""

    @abstractmethod
    def begin(self, asked: Operation[bool] | None = None) -> StoreTransaction:
        """Begin a transaction on a connection of its own, for a handler.

        Args:
            asked: an operation of one statement that only reads, to run in it first; its answer is
                `StoreTransaction.is_current`.

        Raises:
            ConfigurationError: the store has no second connection.
            StoreError: the database refused.
        """

    @abstractmethod
    async def abegin(self, asked: Operation[bool] | None = None) -> AsyncStoreTransaction:
        """Begin a transaction on a connection of its own, for a coroutine; see `begin`."""

    @abstractmethod
    def version(self) -> int:
        """Return a number that changes when this or another process has committed a change.

        Databases without such a number return one that changes several times a second.
        """

    @abstractmethod
    def watch(
        self,
        clock: Clock,
        *,
        lock_id: int | None = None,
        idle: asyncio.Event | None = None,
        again: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[None, None]:
        """Yield at once, and then after each commit that may have made work for workers.

        Args:
            clock: clock for the pauses between two polls.
            lock_id: where `lasting`, number of a lock to hold while watching; it shows that this process is alive.
            idle: event that is set while a worker has a free slot. Stores that poll pause while it is not set.
            again: whether to yield a second time, for commits that follow a notification within 15 ms without one of
                their own; by default always. It is asked at each notification.

        Raises:
            StoreError: the database is not available.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish queued operations and close the connections. Idempotent."""

    @property
    def era(self) -> int:
        """The number of times that another server has taken over, which may lack the last commits of the one before.

        An operation that carries an era is refused in another one. A database in a file has only the first era.
        """
        return 0

    def on_new_era(self, listener: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - see there
        """Call a function when an era begins, in any thread; return a function that ends this."""
        return _nothing

    def look_at_server(self, timeout: float) -> None:  # noqa: B027 - most stores need nothing
        """Notice if another server has taken over, where connections do not show it, within so many seconds."""

    async def trim_log(self) -> int:
        """Copy the write-ahead log of a database file into the database and truncate it, if it is large.

        Returns:
            The bytes of a large log that an open transaction still reads; otherwise 0.

        Raises:
            StoreError: the database refused.
        """
        return 0

    def schema(self) -> tuple[Schema, Versions]:
        """Return the schema of the database, and those that this redrive works with.

        Raises:
            StoreError: the database has no tables of redrive.
        """
        return self.run(schema()), migrate.versions(self.dialect)

    def check_schema(self) -> int:
        """Check that this redrive can work with the schema that the database has now; see `acheck_schema`."""
        return self._newer(*self.schema())

    async def acheck_schema(self) -> int:
        """Check that this redrive can work with the schema that the database has now.

        Returns:
            The number of versions by which it is newer than the schema of this redrive.

        Raises:
            SchemaTooNew: it is too new.
            StoreError: it is too old, or there is none.
        """
        return self._newer(await self.arun(schema()), migrate.versions(self.dialect))

    def _newer(self, there: Schema, code: Versions) -> int:
        problem = mismatch(there, code, f"the store {redacted(self.url)}")
        if problem is not None:
            raise problem
        return max(0, there.version - code.latest)


def _nothing() -> None:
    """Do nothing."""


class StoreTransaction(Protocol):
    """An open transaction for a ``def`` handler; `commit` or `rollback` ends it, and the use of its connection."""

    @property
    def is_current(self) -> bool:
        """Return the answer to what `Store.begin` has asked first; True if that is nothing."""
        ...

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the database library's own
        """Return the connection that the handler uses, such as a `sqlite3.Connection`."""
        ...

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        ...

    def commit(self) -> None:
        """Commit and close; if this raises, nothing was written, except after `StoreOutcomeUnknown`."""
        ...

    def rollback(self) -> None:
        """Roll back and close."""
        ...


class AsyncStoreTransaction(Protocol):
    """An open transaction for an ``async def`` handler."""

    @property
    def is_current(self) -> bool:
        """Return the answer to what `Store.abegin` has asked first; True if that is nothing."""
        ...

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the database library's own
        """Return the connection that the handler uses."""
        ...

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        ...

    async def commit(self) -> None:
        """Commit and close; if the task is cancelled during the commit, raise ``CancelledError`` after it."""
        ...

    async def rollback(self) -> None:
        """Roll back and close, even if the task is cancelled."""
        ...


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine to its end even if the current task is cancelled; then raise its error or the cancellation."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.result()
        raise
