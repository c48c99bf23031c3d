"""Calls of child runs that were dropped: their children are cancelled. PURE.

A call is dropped when its run parks without waiting for it, begins again, takes its steps back or ends. Its child is
asked to end, so that it takes its own steps back, and the row of the call stays *waiting* with an error that names the
child. So a replay that comes to the call again waits there, as the pass before did.

The request is written into the rows of the child runs, and no job of a child is locked: a transaction that ends several
runs could otherwise wait for another one that ends their children. A child that runs finds the request by itself, and
`redrive.stores.operations.runs.waits.wake` makes the others due.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.engine.runs import CHILD_SIGNAL
from redrive.stores.query import Query

GOES_ON = "that run goes on without it"
RESTARTS = "that run begins again"
TAKES_BACK = "that run takes its steps back"
ENDED = "that run has ended"


def drop_calls(ids: Sequence[int], why: str, at: datetime, open_calls: Sequence[str] = ()) -> tuple[Query, ...]:
    """Return the statements that drop the calls of runs, but for the open ones, given as job, colon and path."""
    given = {"ids": list(ids), "open": list(open_calls)}
    # The first one reads which cancellations are not requested yet.
    return (
        Query("children_notify", {**given, "name": CHILD_SIGNAL, "now": at}),
        Query("calls_drop", {**given, "why": why}),
        Query("children_cancel", {**given, "why": why, "now": at}),
    )
