"""The proof that a transaction was committed, or was not: its receipt, and the question after a lost COMMIT."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import NamedTuple, cast

from redrive.contrib.sqlstate import row_of
from redrive.contrib.transactions.adapter import Link, Steps
from redrive.contrib.transactions.deadline import clock_in_force, room

__all__ = ["ABORTED", "COMMITTED", "PATIENCE", "QUESTION", "Receipt", "inquire"]

PATIENCE = timedelta(seconds=10)
"""For how long a lost COMMIT is asked after, unless a deadline ends it sooner. Our choice: a server that was restarted
is back by then, mostly, and one that is not leaves the caller without an answer for that long."""

COMMITTED, ABORTED, _RUNNING = "committed", "aborted", "in progress"  # as pg_xact_status says it
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two questions

_PLACE = (
    "(SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()"
    " WHERE NOT pg_is_in_recovery())"
)

QUESTION = f"SELECT CAST(pg_current_xact_id_if_assigned() AS text), {_PLACE}"
"""Asks for the receipt of the present transaction."""

_STATUS = f"SELECT CASE WHEN {_PLACE} = '{{place}}' THEN pg_xact_status('{{number}}') END"


class Receipt(NamedTuple):
    """How to find a transaction again.

    Attributes:
        number: as text; None if it has written nothing.
        place: the cluster and its timeline; None on a standby.
    """

    number: str | None
    place: str | None


def inquire(link: Link, receipt: Receipt, *, is_async: bool) -> Steps[str | None]:
    """Ask what became of a transaction.

    Args:
        link: the connection that was lost; others like it are asked.
        receipt: of the transaction.
        is_async: whether pauses are awaited.

    Returns:
        `COMMITTED` or `ABORTED`, for good; anything else is no answer.
    """
    if receipt.number is None:
        return ABORTED  # nothing was written: there is nothing that could be there twice
    if receipt.place is None:
        return None
    question = _STATUS.format(place=receipt.place, number=int(receipt.number))
    clock = clock_in_force()
    patience, left = PATIENCE.total_seconds(), room()
    until = clock.monotonic() + (patience if left is None else min(patience, left))
    pause = _FIRST_PAUSE
    while True:
        answer = yield from _ask(link.another(), question)
        if answer != _RUNNING or clock.monotonic() + pause > until:
            return answer
        yield partial(clock.asleep if is_async else clock.sleep, pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _ask(link: Link, question: str) -> Steps[str | None]:
    """Ask once; what cannot be asked now counts as running, and is asked again."""
    try:
        yield from link.open()
        yield from link.begin(None)
        row = yield from link.ask(question)
        yield from link.rollback(RuntimeError("the transaction was only there to ask"))
    except Exception as error:  # noqa: BLE001 - the answer is about another error
        yield from link.close(usable=False)
        code = link.code_of(error)
        transient = isinstance(error, OSError) if code is None else row_of(code).transient
        return _RUNNING if transient else None
    yield from link.close(usable=True)
    return cast("str | None", row[0])
