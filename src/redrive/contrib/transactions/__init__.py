"""Whole PostgreSQL transactions as the unit of a retry, for any library.

An error ends the transaction of a failed statement, so the transaction is what can be repeated, including the reads
that its writes are based on. Each attempt takes a connection, begins, calls the user's function, and commits::

    NOT BEGUN --begin--> OPEN --the function returns--> COMMITTING --answered--> done
        |                  |                                |
        | no connection    | any error                      | an error was answered: rolled back
        v                  v                                | the connection was lost: **unknown**
     nothing was sent    rolled back by redrive, or by      v
                         the server when the session ends   `OutcomeUnknown`, or `prove=True` (below)

Before COMMITTING an attempt may be repeated although the transaction is not idempotent: nothing was stored. Only a
COMMIT without an answer is ambiguous. It is raised as `redrive.errors.OutcomeUnknown`, and repeated only under a
policy with ``idempotent=True``. The state of the transaction is stored on the exception
(`redrive.contrib.sqlstate.mark`) for the policy.

**Proof of the outcome** (``prove=True``). PostgreSQL keeps, for each transaction that has written, whether it was
committed. Its id is read before the COMMIT, which costs a round trip; if the answer is lost, another connection calls
``pg_xact_status``. *Committed*: the block ends without an error. *Aborted*: it is repeated. *In progress*: the old
session has not ended yet; the call is repeated for `PATIENCE`. The id alone is not enough: a standby that was promoted
without the last transactions gives their ids to others. So the receipt also has the identity of the cluster and its
timeline, and a server with another timeline proves nothing. A transaction without an id has written nothing, and is
repeated. (NOTIFY alone gives it none before COMMIT; a listener may be notified twice.)

Special cases, each with a test:

* PostgreSQL answers the COMMIT of a transaction in which a statement has failed, and in which the error was caught,
  with ``ROLLBACK`` and no error. psycopg and asyncpg report success, and psycopg also ends a block without an error if
  its connection was lost. Both are errors here (`Adapter.ready`).
* A connection with an open transaction is not used again: it is closed, and a pool replaces it. One that the pool kept
  over a restart of the server fails at its BEGIN; it is replaced without using up an attempt.
* A cancelled attempt (``attempt_timeout``) closes its connection. Before COMMIT it may be repeated; the exception of
  the timeout has the cancellation as its cause, with the state of the transaction.
"""

from __future__ import annotations

from redrive.contrib.transactions.adapter import LOST, NOT_RENEWABLE, OPEN_ALREADY, SWALLOWED, Adapter, Steps
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
    "Adapter",
    "Steps",
    "TransactionBlock",
    "decorator",
]
