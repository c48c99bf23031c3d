"""PostgreSQL through asyncpg for ``arun`` and psycopg 3 for ``run``, for any number of processes on any hosts.

Two runners, one conversation
-----------------------------

Each colour has a small runner of its own, with its own connections: `sync` talks psycopg, `aio` talks asyncpg. What
they say is the same, and decided in `conversation`: the statements, whose ``:name`` is written as ``$1``, and one
transaction for every operation, READ COMMITTED (READ ONLY and REPEATABLE READ where it only reads). An operation that
fails undoes itself. Connections are opened when they are needed, at most ``pool`` of each colour (of asyncpg: for each
event loop), and kept. One that has died while nobody used it is replaced without a word; one that dies within an
operation is `StoreUnreachable`: the server undoes the transaction. Where the statement that commits was sent and its
answer is lost, it is `StoreOutcomeUnknown`.

Nothing is serialised
---------------------

SQLite has one writer, and operations were first written for it. Here many write at once, so each statement guards
itself: a claim skips rows that others have locked, a settle names its leases, numbers come from sequences.

Few words
---------

Between two statements both sides wait for each other, and with a short operation that is most of its time. So what an
operation writes without looking goes as one statement (`Query.also`); what may be asked outside of the transaction is
(`Query.free`); and where only one statement is left it needs no transaction around it (`Query.last`,
`Query.complete`). ADR 0010 and ADR 0011.

Who stops
---------

A process that is stopped (SIGSTOP, a frozen container) within a transaction keeps its rows locked. Where it is silent
between two statements the server ends its session after five seconds. asyncpg says what is new to a connection in two
steps, and between them the server does not call it idle; such sessions are ended by the rescuer of any worker.

Deadlines
---------

A server process that is stopped does not answer, and its kernel acknowledges whatever is sent to it. So each wait for
an answer has a deadline of our own (``timeout``), in both colours. After it the connection is closed at once, without a
ROLLBACK and without a wait for the server; what a write has done is then unknown.

News
----

A transaction that makes a job due ends with NOTIFY, unless this process has sent one in the last few milliseconds;
who listens looks once more after that time (`listener`). One connection of each worker process listens. It also holds
a lock, so that others see when its process has died. Where there is none to listen to (``notify=off``), or it is lost,
workers look every second. Notifications are hints: nothing depends on them but the time until somebody looks.
"""

from __future__ import annotations

from redrive.stores.drivers.postgres.driver import PostgresDriver
from redrive.stores.drivers.postgres.settings import Settings, settings

__all__ = ["PostgresDriver", "Settings", "settings"]
