"""A whole transaction as the unit of a retry, in PostgreSQL, for whatever library talks to it.

Answers: what became of a transaction that failed, and how is it run again? May import: `redrive.contrib.sqlstate`,
`redrive.retrying` and below. Must never: import a library (each brings a `Link`), or repeat a transaction of which it
is not known that nothing was stored.

A statement that has failed takes its transaction with it, so the transaction is what can be repeated, and with it the
reads that its writes are based on. Each attempt takes a connection, begins, calls the user's function, and commits::

    NOT BEGUN --begin--> OPEN --the function returns--> COMMITTING --answered--> done
        |                  |                                |
        | no connection    | anything fails                 | an error was answered: rolled back
        v                  v                                | the connection was lost: **unknown**
     nothing was sent    rolled back, by us, or by          v
                         the server when the session ends   `OutcomeUnknown`, or the proof (below)

Everything left of COMMITTING may be repeated although the transaction is not idempotent: nothing was stored. Only a
COMMIT whose answer is lost is ambiguous. It is raised as `redrive.errors.OutcomeUnknown`, and repeated only under a
policy with ``idempotent=True``. What is known is noted on the exception (`redrive.contrib.sqlstate.marked`), since a
policy sees nothing else.

**A proof** (``prove=True``). PostgreSQL keeps, for each transaction that has written, whether it was committed. Its
number is read before the COMMIT, which costs a round trip; if the answer is lost, another connection asks
``pg_xact_status``. *Committed*: the block ends as if nothing had happened. *Aborted*: it is repeated. *In progress*:
the old session has not noticed yet; it is asked again for `PATIENCE`. The number alone would not be enough: a standby
that was promoted without the last transactions gives their numbers to others. So the receipt also has the identity of
the cluster and its timeline, and another one proves nothing. A transaction without a number has written nothing, and
is repeated. (NOTIFY alone gives it none before COMMIT; a listener may be told twice.)

Traps, each with a test:

* COMMIT of a transaction in which a statement has failed, and whose error was caught inside, is answered without an
  error: by ``ROLLBACK``. psycopg and asyncpg take that for success, and psycopg also ends a block in silence whose
  connection was lost. Here both are errors (`Link.ready`).
* A connection on which anything remained open is not used again: it is closed, and a pool replaces it. One that the
  pool kept over a restart of the server fails at its BEGIN; it is replaced without costing an attempt.
* A cancelled attempt (``attempt_timeout``) gives its connection up. Before COMMIT it may be repeated; what the timeout
  raises has the cancellation as its cause, and the note is on that.

================  =====================================================================
`link`            what a library brings, and conversations with it in both colours
`room`            how much time a call around has left
`proof`           the receipt, and the question after a lost COMMIT
`unit`            one transaction: `TransactionBlock`
`functions`       whole functions: `decorator`
================  =====================================================================
"""

from __future__ import annotations

from redrive.contrib.transactions.adapter import LOST, NOT_RENEWABLE, OPEN_ALREADY, SWALLOWED, Link, Steps
from redrive.contrib.transactions.block import LEVELS, TransactionBlock
from redrive.contrib.transactions.commit_status import PATIENCE
from redrive.contrib.transactions.functions import decorator

__all__ = [
    "LEVELS",
    "LOST",
    "NOT_RENEWABLE",
    "OPEN_ALREADY",
    "PATIENCE",
    "SWALLOWED",
    "Link",
    "Steps",
    "TransactionBlock",
    "decorator",
]
