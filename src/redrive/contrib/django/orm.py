"""The connections of the ORM around a job, and the end of an attempt inside a transaction of the ORM."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections, reset_queries, transaction

from redrive.app.attempts.context import Transaction
from redrive.app.attempts.handle import AttemptHandle
from redrive.errors import ConfigurationError
from redrive.stores.query import Operation
from redrive.stores.store import AsyncStoreTransaction, Store, StoreTransaction

R = TypeVar("R")


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that closes old connections before and after it runs, as for a task."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def arun(*args: object, **kwargs: object) -> Any:
            """Run the function; old connections are closed before and after it."""
            await sync_to_async(_reset_connections)()
            try:
                return await function(*args, **kwargs)
            finally:
                await sync_to_async(close_old_connections)()

        return arun

    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> Any:
        with connections_of_a_job():
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def connections_of_a_job() -> Iterator[None]:
    """Close old and broken connections of this thread, before and after."""
    _reset_connections()
    try:
        yield
    finally:
        close_old_connections()


def _reset_connections() -> None:
    reset_queries()
    close_old_connections()


class AtomicTransaction(Transaction):
    """The block of ``context.transaction()``: ``transaction.atomic()``, with the end of the job in it."""

    def __init__(self, link: AttemptHandle, database: str) -> None:
        super().__init__(link)
        self._database = database

    def _lend(self) -> StoreTransaction:
        loan = _DjangoTransaction(self._link.store, self._database)
        try:
            loan.is_current = loan.run(self._link.is_current())
        except BaseException:
            loan.rollback()
            raise
        return loan

    async def _alend(self) -> AsyncStoreTransaction:
        message = "context.transaction() is for tasks that are `def`: Django's transactions are synchronous"
        raise ConfigurationError(message)


class _DjangoTransaction:
    """Django's own connection in a transaction; see `redrive.stores.store.StoreTransaction`."""

    def __init__(self, store: Store, database: str) -> None:
        self.is_current = True
        self._store = store
        self._database = database
        # Durable: inside another transaction, the end of the job would wait for the end of that one.
        self._atomic = transaction.atomic(using=database, durable=True)
        self._atomic.__enter__()

    @property
    def connection(self) -> Any:
        """Django's connection."""
        return connections[self._database]

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        return self._store.run(operation, using=self.connection.connection)

    def commit(self) -> None:
        """Commit the transaction; its writes are stored only if this returns."""
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        """Roll the transaction back."""
        if self.connection.in_atomic_block:
            transaction.set_rollback(True, using=self._database)
            self._atomic.__exit__(None, None, None)
