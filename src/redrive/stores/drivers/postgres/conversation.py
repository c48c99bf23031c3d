"""What is said to PostgreSQL for an operation, and in which order. PURE; the runners of both colours say it.

Each answer is a round trip, and a short operation consists of little else. So what can be left out is left out, on
sessions that are ours alone (behind a pool for transactions there are none):

* What is the same for all transactions is set once for each session (`session`).
* A query that is `free` goes before the transaction, since it is as good there. A worker that looks and finds
  nothing due has then asked one thing.
* A query that is the `last`, before which no transaction had to begin, is a transaction by itself. The news for the
  workers travels with it.
* A query that is `complete`, before which no transaction had to begin, is a transaction by itself as well. What
  follows, if anything does, is the next one.

So ``enqueue`` of jobs without keys says two things: what it wants to know, and what it writes.

========================== ======================================================
operation                  what is said
========================== ======================================================
enqueue                    gate; all that is written, and the news
enqueue with a key         gate; BEGIN; keys_take; all that is written; COMMIT
claim that finds nothing   next_due
claim of plain queues      next_due; heartbeat and claim
heartbeat of a worker      clock; worker_beat; leases_of
anything else              BEGIN; ...; COMMIT
on a user's connection     ...
========================== ======================================================

What was said first may be said again on another connection, where the first one turns out to have died while nobody
used it: it is either BEGIN, or free.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from redrive.errors import StoreError
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import begin, said
from redrive.stores.query import Operation, Query, Rows, Steps

__all__ = ["Statement", "Talk", "part", "whole"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Statement:
    """Something to be said to the server.

    Attributes:
        text: one statement with ``$1``, ``$2``; or several without parameters.
        values: of the parameters; None where there are several statements.
        into: the record that each row becomes; without it rows are tuples.
        commits: the operation of which this commits something, or of which something has been committed before. If
            the answer is lost, it is unknown whether, or how far, the operation took effect.
    """

    text: str
    values: Sequence[Any] | None = None
    into: type | None = None
    commits: str | None = None


Talk: TypeAlias = Generator[Statement, Rows | None, R]
"""The whole of it; what is sent are the rows."""


def part(steps: Steps[R], settings: Settings) -> Talk[R]:
    """Say what an operation asks, within a transaction that somebody else begins and ends.

    Args:
        steps: the operation.
        settings: which schema.

    Returns:
        The conversation.
    """
    return _talk(steps, settings, None, bool)


def whole(operation: Operation[R], settings: Settings, is_news: Callable[[], bool]) -> Talk[R]:
    """Say all that an operation needs, from the beginning of its transaction to the end.

    Args:
        operation: what is to be run.
        settings: which schema, and what kind of sessions.
        is_news: asked at the end of an operation that wakes, whether workers are to be told.

    Returns:
        The conversation. Where it is left in the middle the transaction is to be undone.
    """
    return _talk(operation.steps, settings, operation, is_news)


def _stands_alone(query: Query) -> bool:
    return query.free or query.last or query.complete


def _talk(steps: Steps[R], settings: Settings, own: Operation[R] | None, is_news: Callable[[], bool]) -> Talk[R]:
    began = own is None
    name = own.name if own is not None and own.writes else None
    committed: str | None = None
    channel = settings.channel if own is not None and own.wakes and settings.notify else None
    try:
        query = next(steps)
        while True:
            if own is not None and not began and (settings.pgbouncer or not _stands_alone(query)):
                yield Statement(begin(settings, writes=own.writes), commits=committed)
                began = True
            alone = query.last and not began
            commits = name if not began and (query.last or query.complete) else committed
            news = channel if alone and channel and is_news() else None
            try:
                rows = yield Statement(*said(query, settings.schema, news), query.into, commits)
            except StoreError as error:
                query = steps.throw(error)
            else:
                committed = commits
                query = steps.send(rows or ())
                if alone:
                    raise RuntimeError(f"{query.name} follows a query that was said to be the last, and is committed")
    except StopIteration as stop:
        result: R = stop.value
    if own is not None and began:
        yield Statement(f'NOTIFY "{channel}"; COMMIT' if channel and is_news() else "COMMIT", commits=name)
    return result
