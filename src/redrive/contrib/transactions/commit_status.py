"""The outcome of a COMMIT without an answer: its receipt, and the call of ``pg_xact_status``."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import NamedTuple, cast

from redrive.contrib.sqlstate import condition_of
from redrive.contrib.transactions.adapter import Adapter, Steps
from redrive.errors.foreign import is_a
from redrive.retrying.context import SCOPE, SYSTEM

# A server that was restarted is usually back by then; if it is not, the caller waits that long without an answer.
# How long the outcome of a COMMIT is looked up, unless a deadline ends it sooner.
PATIENCE = timedelta(seconds=10)

# The results of pg_xact_status.
COMMITTED, ABORTED, _RUNNING = "committed", "aborted", "in progress"

# Seconds between two calls.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

_TIMELINE = (
    "(SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()"
    " WHERE NOT pg_is_in_recovery())"
)

# The query for the receipt of the present transaction.
QUESTION = f"SELECT CAST(pg_current_xact_id_if_assigned() AS text), {_TIMELINE}"

_STATUS = f"SELECT CASE WHEN {_TIMELINE} = '{{timeline}}' THEN pg_xact_status('{{number}}') END"


class Receipt(NamedTuple):
    """The identity of a transaction."""

    #: The transaction id as text; None if the transaction has written nothing.
    number: str | None
    #: The cluster and its timeline; None on a standby.
    timeline: str | None


def transaction_status(adapter: Adapter, receipt: Receipt, *, is_async: bool) -> Steps[str | None]:
    """Return the outcome of a transaction: `COMMITTED` or `ABORTED`, which are final, or another value if unknown."""
    if receipt.number is None:
        # It has written nothing, so it can be repeated.
        return ABORTED
    if receipt.timeline is None:
        return None
    question = _STATUS.format(timeline=receipt.timeline, number=int(receipt.number))
    scope = SCOPE.get()
    clock = SYSTEM if scope is None else scope.clock
    patience, left = PATIENCE.total_seconds(), seconds_left()
    until = clock.monotonic() + (patience if left is None else min(patience, left))
    pause = _FIRST_PAUSE
    while True:
        answer = yield from _ask(adapter.another(), question)
        if answer != _RUNNING or clock.monotonic() + pause > until:
            return answer
        yield partial(clock.asleep if is_async else clock.sleep, pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _ask(adapter: Adapter, question: str) -> Steps[str | None]:
    """Read the status once; return "in progress" after a transient error, so that the call is repeated."""
    try:
        yield from adapter.open()
        yield from adapter.begin(None)
        row = yield from adapter.ask(question)
        yield from adapter.rollback(RuntimeError("the transaction was only there to ask"))
    except Exception as error:  # noqa: BLE001 - the answer is about another error
        yield from adapter.close(usable=False)
        code = adapter.code_of(error)
        transient = is_a(error, OSError) if code is None else condition_of(code).transient
        return _RUNNING if transient else None
    yield from adapter.close(usable=True)
    return cast("str | None", row[0])


def seconds_left() -> float | None:
    """Return the seconds until the nearest explicit deadline of a call around this code, or None."""
    # The default deadline of 45 s ends the retries of a call, but no statement: it does not count here.
    scope = SCOPE.get()
    call = None if scope is None else scope.call
    bounds = []
    while call is not None:
        if call.live and call.ends is not None and (call.plan.has_deadline or call.plan.timeout is not None):
            bounds.append(call.ends - call.clock.monotonic())
        call = call.outer
    return min(bounds, default=None)
