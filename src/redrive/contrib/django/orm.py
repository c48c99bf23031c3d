"""The end of an execution inside a transaction of the ORM.

The engine ends an attempt in a transaction (`redrive.stores.transaction`). Here Django opens it: the
connection is the one that the ORM uses in this thread, and the transaction is its ``atomic()``.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import connections, transaction

from redrive.app.attempt_handle import AttemptHandle
from redrive.app.transaction import Transaction
from redrive.errors import ConfigurationError
from redrive.stores.query import Operation
from redrive.stores.store import Store
from redrive.stores.transaction import AsyncStoreTransaction, StoreTransaction

__all__ = ["AtomicEnd"]

R = TypeVar("R")


class AtomicEnd(Transaction):
    """What ``context.transaction()`` answers: ``transaction.atomic()``, and the end of the job in it.

    Args:
        link: the execution.
        database: alias of the database that has the jobs.
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
    """Django's own connection in a transaction; see `redrive.stores.transaction.StoreTransaction`."""

    def __init__(self, store: Store, database: str) -> None:
        self._store = store
        self._database = database
        # durable: were there a transaction around it, the end of the job would wait for that one's.
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
        """Commit; what was written is there when this returns, and not if it raises."""
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        """Undo everything."""
        if self.connection.in_atomic_block:
            transaction.set_rollback(True, using=self._database)
            self._atomic.__exit__(None, None, None)
