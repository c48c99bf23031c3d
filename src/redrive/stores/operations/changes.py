"""What has changed besides the numbers of jobs, for open pages. PURE."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.stores.query import Query, Statements, reads


class Latest(msgspec.Struct, frozen=True, gc=False):
    """The largest ids of rows that are inserted when something changes; zero where there is none.

    Attributes:
        audit: of the audit log, which has each action of an operator, such as a pause.
        signals: of signals to runs.
        moves: of moves of instances.
        events: of events of topics.
        worker: of workers that have not left.
        workers: the number of these workers.
    """

    audit: int
    signals: int
    moves: int
    events: int
    worker: int
    workers: int


@reads
def latest() -> Statements[Latest]:
    """Return the latest changes; each number is read from the end of an index, or from few rows."""
    rows: Sequence[Latest] = yield Query("latest", into=Latest)
    return rows[0]
