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
"""

from redrive.contrib.transactions.adapter import LOST, OPEN_ALREADY, SWALLOWED, Adapter, Steps
from redrive.contrib.transactions.block import LEVELS, TransactionBlock, decorator
from redrive.contrib.transactions.commit_status import PATIENCE

__all__ = [
    "LEVELS",
    "LOST",
    "OPEN_ALREADY",
    "PATIENCE",
    "SWALLOWED",
    "Adapter",
    "Steps",
    "TransactionBlock",
    "decorator",
]
