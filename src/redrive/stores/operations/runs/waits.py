"""Signals, emitted values and ends of child runs, and waking the runs that wait for them. PURE.

A sender only inserts a row, perhaps in a transaction of the application that stays open. It neither reads nor locks the
row of the run, so that it delays no other write. Two transactions find the runs that wait:

* `wake`, which a duty of the workers calls after a notification and at intervals, for runs that are parked;
* the transaction that parks a run (`runs_parked`), for what arrived while the run was running.

A row is *pending* until `wake` has offered it to a run that does not run. So it is found in both orders of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.engine.lifecycle import FINAL
from redrive.engine.origin import OriginResult
from redrive.engine.records import JobRecord
from redrive.engine.runs import CHILD_SIGNAL, RunFlags, RunRecord, SignalRecord
from redrive.errors import ConfigurationError, IllegalMove, RunNotFound
from redrive.stores.operations import jobs
from redrive.stores.operations.audit import record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.runs import steps
from redrive.stores.operations.runs.steps import ENDED, Arrivals, arrivals, drop_calls
from redrive.stores.query import Compound, Query, Statements, reads, wakes, writes

#: The signals, and the emitted values, that one transaction offers.
BUDGET = 1_000

#: The time for which an emitted value is kept by default.
KEPT_FOR = timedelta(days=30)


class Woken(msgspec.Struct, frozen=True, gc=False):
    """The result of a wake."""

    runs: frozenset[int]  # the jobs that are due now
    more: bool  # True if the budget was used up


def find(workflow: str, run_id: str) -> Statements[RunRecord]:
    """Return a run as a part of a larger operation; raise `RunNotFound`."""
    rows: Sequence[RunRecord] = yield Query("runs_named", {"workflow": workflow, "ids": [run_id]}, into=RunRecord)
    if not rows:
        raise not_found(workflow, run_id)
    return rows[0]


def not_found(workflow: str, run_id: str) -> RunNotFound:
    """Return the error about a run that does not exist."""
    return RunNotFound(f"{workflow} has no run {run_id!r}: none was started, or its start is not committed yet")


@wakes
def signal(
    workflow: str,
    run_id: str,
    name: str,
    payload: bytes | None,
    *,
    key: str | None = None,
    actor: str | None = None,
    now: datetime | None = None,
) -> Statements[int | None]:
    """Send a signal to a run, and return its number; None if the run has one with this name and key.

    With an actor it is the signal of an operator, which the audit log has. Raise `RunNotFound`, `IllegalMove` if the
    run has ended, or `ConfigurationError` for a reserved name.
    """
    _check_name(name)
    run = yield from find(workflow, run_id)
    job: JobRecord = yield from jobs.find(run.job_id)
    if job.state in FINAL:
        raise IllegalMove(f"run {run_id!r} of {workflow} is {job.state}: it receives no signal")
    at = yield from instant(now)
    params = {"run_id": run.job_id, "name": name, "key": key, "payload": payload, "now": at}
    rows = yield Query("signal_insert", params)
    if rows and actor is not None:
        yield from record(at, actor, "signal_run", ids=[run.job_id], name=name, key=key)
    return rows[0][0] if rows else None


@wakes
def emit(
    name: str, payload: bytes | None, *, keep: timedelta = KEPT_FOR, now: datetime | None = None
) -> Statements[bool]:
    """Emit a value to all runs that wait for its name, now or later; return False if the name has a value already."""
    _check_name(name)
    at = yield from instant(now)
    rows = yield Query("emit_insert", {"name": name, "payload": payload, "now": at, "expires_at": at + keep})
    return bool(rows)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"the name of a signal or of an emitted value is a text, not empty; got {name!r}")
    if name.startswith(":"):
        raise ConfigurationError(f"the name {name!r} is reserved: names of signals do not begin with a colon")


def child_ended(reports: Sequence[OriginResult], at: datetime) -> Statements[None]:
    """Send a signal to the runs that wait for these ended ones, and cancel the runs that these wait for."""
    ids = [each.job_id for each in reports]
    yield Compound((Query("child_ended", {"ids": ids, "name": CHILD_SIGNAL, "now": at}), *drop_calls(ids, ENDED, at)))


@reads
def is_pending() -> Statements[bool]:
    """Return True if `wake` has something to offer."""
    rows = yield Query("wakes_pending")
    return bool(rows[0][0])


@wakes
def wake(*, budget: int = BUDGET, now: datetime | None = None) -> Statements[Woken]:
    """Make parked runs due that wait for what has arrived."""
    at = yield from instant(now)
    woken: set[int] = set()
    fresh = yield Query("signals_fresh", {"count": budget, "child": CHILD_SIGNAL})
    if fresh:
        ids = [row[0] for row in fresh]
        params = {"ids": ids, "run_ids": sorted({row[1] for row in fresh}), "child": CHILD_SIGNAL, "now": at}
        woken.update(row[0] for row in (yield Query("signals_wake", params)))
        cancelled = sorted({row[1] for row in fresh if row[2]})
        if cancelled:
            woken.update(row[0] for row in (yield Query("runs_due", {"ids": cancelled, "now": at})))
        yield Query("signals_offered", {"ids": ids})
    limits = {"count": budget, "now": at}
    by_values = yield Query("emits_wake", limits)
    woken.update(row[0] for row in by_values)
    yield Query("emits_offered", limits)
    return Woken(frozenset(woken), more=budget in (len(fresh), len(by_values)))


class RunNews(msgspec.Struct, frozen=True, gc=False):
    """What has arrived for a running run since it was claimed, and what operators ask of it."""

    arrived: Arrivals  # unread signals, emitted values that it waits for, ends of children that it waits for
    flags: RunFlags


@reads
def news(run_ids: Sequence[int], *, now: datetime | None = None) -> Statements[dict[int, RunNews]]:
    """Return what has arrived for running runs, for their live waits."""
    at = yield from instant(now)
    rows = yield Query("runs_flags", {"ids": list(run_ids), "now": at})
    flags = {number: RunFlags(why, bool(paused)) for number, why, paused in rows}
    found = yield from arrivals(run_ids, run_ids)
    return {number: RunNews(found[number], flags.get(number, RunFlags())) for number in run_ids}


@reads
def unread(run_id: int, name: str) -> Statements[tuple[SignalRecord, ...]]:
    """Return the first unread signals of a name; `news` and a claim return the first ones of all names."""
    return tuple((yield from steps.unread([run_id], name)))


@writes
def forget_emits(*, count: int = BUDGET, now: datetime | None = None) -> Statements[int]:
    """Delete emitted values that have expired, and return their number; none are left if it is less than `count`."""
    at = yield from instant(now)
    return len((yield Query("emits_forget", {"now": at, "count": count})))
