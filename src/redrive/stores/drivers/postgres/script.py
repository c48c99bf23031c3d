"""The statements that an operation sends to PostgreSQL, and their order. PURE; both runners execute them.

A short operation spends most of its time on round trips. So on sessions that belong to redrive (not behind a pool that
gives each transaction another session) settings that all transactions share are set once for each session, and the
headers of statements (`redrive.stores.statements.loader`) permit to leave out BEGIN and COMMIT:

========================== ==============================================================
operation                  statements
========================== ==============================================================
enqueue of one job         enqueue, with the notification
start of one run           run_start, with the notification
enqueue of several         gate; all writes with the notification
enqueue with a key         gate; BEGIN; keys_take; all writes; COMMIT
claim that finds nothing   next_due
claim of plain queues      next_due; heartbeat and claim
settle of successes        clock; settle_succeeded
heartbeat of a worker      heartbeat; leases_of
record of finished steps   steps_put
any other operation        BEGIN; ...; COMMIT
on a user's connection     ...
========================== ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

import msgspec

from redrive.errors import StoreError
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import (
    before_completion,
    begin,
    composed,
    counted,
    handler_transaction,
    inlined,
    prepared,
)
from redrive.stores.query import Compound, Operation, Query, R, Rows, Statements
from redrive.stores.statements import loader


class Statement(msgspec.Struct, frozen=True):
    """A message to the server."""

    text: str  # one statement with ``$1``, ``$2``; or several without parameters
    values: Sequence[Any] | None = None  # values of the parameters; None where there are several statements
    into: type | None = None  # the record type that each row becomes; None for tuples
    # Name of the operation, if this statement commits a part of it, or an earlier one has. If the answer is lost, it is
    # unknown whether, or how far, the operation took effect.
    commits: str | None = None
    counts: bool = False  # True if several statements answer with the rows of the last one, which are only counted


Script: TypeAlias = Generator[Statement, Rows | None, R]
"""A generator of statements that receives their rows and returns the result of the operation."""


def inner_script(steps: Statements[R], settings: PostgresSettings, first: Query | Compound | None = None) -> Script[R]:
    """Return the script of an operation in a transaction that the caller begins and ends.

    ``first`` is its first query, if the caller has taken it already.
    """
    return _script(steps, settings, None, bool, first)


def notifies(query: Query | Compound, settings: PostgresSettings) -> bool:
    """Return True if a query is a whole operation, and itself notifies workers and checks the id of the database."""
    return isinstance(query, Query) and "channel" in prepared(settings.schema)[query.name].names


def lent_statement(query: Query, operation: Operation[R], settings: PostgresSettings, uid: str) -> Statement:
    """Return the statement of a query that `notifies` on a connection of the user."""
    # It always notifies: the instant when the user commits is unknown. PostgreSQL sends the notifications of a
    # transaction once.
    channel = settings.channel if operation.wakes and settings.notify else None
    return Statement(*composed(query, settings.schema, channel, uid), query.into)


def lent_script(operation: Operation[R], settings: PostgresSettings) -> Script[R]:
    """Return the script of an operation in the transaction of a handler.

    An operation that writes locks the row of the job, and ends the transaction of the handler soon.
    """
    before = before_completion() if operation.writes else None
    try:
        query = next(operation.steps)
    except StopIteration as stop:
        nothing: R = stop.value
        return nothing
    if before is None or not counted(query):
        if before is not None:
            yield Statement(before)
        return (yield from inner_script(operation.steps, settings, query))
    rows = yield Statement(f"{before}; {inlined(*composed(query, settings.schema))}", counts=True)
    return (yield from _answered(operation.steps, rows or (), settings))


def _answered(steps: Statements[R], rows: Rows, settings: PostgresSettings) -> Script[R]:
    """Send the first answer to an operation, and return the script of the rest."""
    try:
        query = steps.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result
    return (yield from inner_script(steps, settings, query))


class Opening:
    """The message that begins the transaction of a handler, and asks something.

    Args:
        asked: an operation of one statement, of which only the number of rows is used; None for none.
    """

    def __init__(self, asked: Operation[bool] | None, settings: PostgresSettings) -> None:
        self.era: int | None = None if asked is None else asked.era
        text = handler_transaction(settings)
        self._steps = None if asked is None else asked.steps
        if self._steps is not None:
            text = f"{text}; {inlined(*composed(next(self._steps), settings.schema))}"
        self.statement: Statement = Statement(text, counts=asked is not None)

    def answer(self, rows: Rows) -> bool:
        """Return the answer of the operation; True if nothing was asked."""
        if self._steps is None:
            return True
        try:
            self._steps.send(rows)
        except StopIteration as stop:
            return bool(stop.value)
        raise RuntimeError("an operation that is asked first has one statement")


def full_script(operation: Operation[R], settings: PostgresSettings, should_notify: Callable[[], bool]) -> Script[R]:
    """Return the script of an operation with its own transaction; if it is cut short, the caller rolls back."""
    return _script(operation.steps, settings, operation, should_notify)


# The first statement may be sent again on another connection, if the first connection has died while it was idle: the
# statement is either BEGIN, or has ``transaction: none``.
def _script(
    steps: Statements[R],
    settings: PostgresSettings,
    own: Operation[R] | None,
    should_notify: Callable[[], bool],
    first: Query | Compound | None = None,
) -> Script[R]:
    began = own is None
    name = own.name if own is not None and own.writes else None
    committed: str | None = None
    channel = settings.channel if own is not None and own.wakes and settings.notify else None
    try:
        query = first or next(steps)
        while True:
            final = query.queries[-1] if isinstance(query, Compound) else query
            kind = "own" if final.own else loader.headers("postgres")[final.name].get("transaction")
            if own is not None and not began and (settings.pgbouncer or kind is None):
                yield Statement(begin(settings, writes=own.writes), commits=committed)
                began = True
            alone = kind == "last" and not began
            commits = name if not began and kind in {"last", "own"} else committed
            # A statement that others may follow notifies if it has the parameter.
            whole = alone or (kind == "own" and not began and notifies(query, settings))
            notify = channel if whole and channel and should_notify() else None
            try:
                rows = yield Statement(*composed(query, settings.schema, notify), final.into, commits)
            except StoreError as error:
                query = steps.throw(error)
            else:
                committed = commits
                query = steps.send(rows or ())
                if alone:
                    raise RuntimeError(f"{query} follows a query that was declared the last, and is committed")
    except StopIteration as stop:
        result: R = stop.value
    if own is not None and began:
        tells = channel and (result or not own.if_any) and should_notify()
        yield Statement(f'NOTIFY "{channel}"; COMMIT' if tells else "COMMIT", commits=name)
    return result
