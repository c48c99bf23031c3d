"""The end of an attempt inside a transaction of the ORM."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import connections, transaction

from redrive.app.attempt_handle import AttemptHandle
from redrive.app.context import Transaction
from redrive.errors import ConfigurationError
from redrive.stores.query import Operation
from redrive.stores.store import AsyncStoreTransaction, Store, StoreTransaction

R = TypeVar("R")


class AtomicTransaction(Transaction):
    """The block of ``context.transaction()``: ``transaction.atomic()``, with the end of the job in it.

    Args:
        link: the connection to the worker.
        database: alias of the database of the jobs.
    """

    def __init__(self, link: AttemptHandle, database: str) -> None:
        super().__init__(link)
        self._database = database

    def _lend(self) -> StoreTransaction:
        return _DjangoTransaction(self._link.store, self._database)

    async def _alend(self) -> AsyncStoreTransaction:
        message = "context.transaction() is for tasks that are `def`: Django's transactions are synchronous"
        raise ConfigurationError(message)


class _DjangoTransaction:
    """Django's own connection in a transaction; see `redrive.stores.store.StoreTransaction`."""

    def __init__(self, store: Store, database: str) -> None:
        self._store = store
        self._database = database
        # Durable: inside another transaction, the end of the job would wait for the end of that one.
        self._atomic = transaction.atomic(using=database, durable=True)
        self._atomic.__enter__()

    @property
    def connection(self) -> Any:  # noqa: ANN401 - Django's
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
