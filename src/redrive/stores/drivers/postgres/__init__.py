"""Stores on PostgreSQL through psycopg 3 for ``run`` and asyncpg for ``arun``, for any number of processes and hosts.

Each colour has a small runner with its own connections, at most ``pool`` of each library (of asyncpg: for each event
loop). Both execute the statements of a `script`: one transaction for every operation, READ COMMITTED (REPEATABLE READ
and READ ONLY if it only reads). A connection that died while it was idle is replaced; one that dies within an operation
raises `StoreUnreachable`, and the server rolls back. If the statement that commits was sent and its answer is lost,
`StoreOutcomeUnknown` is raised. Many processes write at once, so each statement guards itself: a claim skips rows that
others have locked, a settle names its leases, ids come from sequences.

A process that is stopped (SIGSTOP, a frozen container) within a transaction keeps its rows locked. If it is silent
between two statements, the server ends its session after five seconds. asyncpg prepares a new statement in two steps,
and between them the server does not call the session idle; the rescuer of any worker ends such sessions. A server
process that is stopped does not answer, and its kernel acknowledges all data. So each wait for an answer has a deadline
of redrive's own (``timeout``). After it the connection is closed at once; the outcome of a write is then unknown.

A URL may have several servers (`servers`). Both libraries get one at a time, the last good one first. A session whose
answer is late asks whether its server is there (`liveness`). If it is not, or does not write any more, no session from
before is used again, of either library.

A transaction that makes a job due ends with NOTIFY, unless this process has sent one in the last few milliseconds;
listeners check again after that time (`listener`). Without a listener (``notify=off``, or a lost connection) workers
poll every second.
"""

from redrive.stores.drivers.postgres.settings import PostgresSettings, parse_url
from redrive.stores.drivers.postgres.store import PostgresStore

__all__ = ["PostgresSettings", "PostgresStore", "parse_url"]
