"""Stores on PostgreSQL through psycopg 3 for ``run`` and asyncpg for ``arun``, for any number of processes and hosts.

Runners
-------

Each colour has a small runner with its own connections: `sync` uses psycopg, `aio` asyncpg. Both execute the
statements of a `script`: one transaction for every operation, READ COMMITTED (REPEATABLE READ and READ ONLY if it only
reads), rolled back if the operation fails. Connections are opened when they are needed, at most ``pool`` of each
library (of asyncpg: for each event loop), and kept. A connection that died while it was idle is replaced; one that dies
within an operation raises `StoreUnreachable`, and the server rolls back. If the statement that commits was sent and its
answer is lost, `StoreOutcomeUnknown` is raised.

Many processes write at once, so each statement guards itself: a claim skips rows that others have locked, a settle
names its leases, ids come from sequences.

Round trips
-----------

Most of the time of a short operation is spent on round trips. So writes of one operation that do not need each other's
results are one statement (`Batch`). A header of a statement file declares that the statement needs no transaction, or
is one by itself (``transaction``, see `redrive.stores.dialects.loader`). See ADR 0010 and ADR 0011.

Stopped processes and servers
-----------------------------

A process that is stopped (SIGSTOP, a frozen container) within a transaction keeps its rows locked. If it is silent
between two statements, the server ends its session after five seconds. asyncpg prepares a new statement in two steps,
and between them the server does not call the session idle; the rescuer of any worker ends such sessions.

A server process that is stopped does not answer, and its kernel acknowledges all data. So each wait for an answer has a
deadline of redrive's own (``timeout``), in both colours. After it the connection is closed at once, without a ROLLBACK;
the outcome of a write is then unknown.

Notifications
-------------

A transaction that makes a job due ends with NOTIFY, unless this process has sent one in the last few milliseconds;
listeners check again after that time (`listener`). One connection of each worker process listens, and holds a lock by
which others detect the death of its process. Without a listener (``notify=off``, or a lost connection) workers poll
every second. Notifications only shorten the time until a worker polls.
"""

from __future__ import annotations

from redrive.stores.drivers.postgres.settings import PostgresSettings, parse_url
from redrive.stores.drivers.postgres.store import PostgresStore

__all__ = ["PostgresSettings", "PostgresStore", "parse_url"]
