"""Operators' queries and actions: select, count, cancel and skip jobs. PURE.

These need no lease: an operator takes precedence over the worker, which then finds its lease lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import asdict, replace

from redrive.engine.lifecycle import LifecycleEvent, State, next_state
from redrive.engine.records import COUNTED, NEWEST, Filter, Hold, JobRecord, Stats
from redrive.engine.secrets import ErrorSearch
from redrive.errors import StoreOpenError
from redrive.stores.operations.audit import UNKNOWN, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import cancel_jobs
from redrive.stores.operations.jobs import documents_of, lock
from redrive.stores.query import Query, Rows, Statements, reads, wakes

# The number of jobs up to which ids are read from a partial index first. If there are more, the table is scanned.
FEW = 5_000

# The number of the newest jobs that a list for a person reads at once; `page` has the id from which to read on.
BUDGET = 20_000

# How many times as many rows are read if too few of them match, and the jobs whose documents are read at once.
_MORE = 4
_AT_ONCE = 500

_UNFINISHED = (State.READY, State.RUNNING, State.WAITING)

_INDEXED = frozenset({*_UNFINISHED, State.DEAD})


class BulkResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an action on many jobs: cancel, redrive, repolicy, delete or archive.

    Attributes:
        ids: the jobs that were changed, or would be in a dry run; oldest first.
        kept: the jobs that match but stay as they are, each with the reason. A repolicy does not list jobs that have
            the present policy already.
        last_id: the last job that was read; None when no more match.
    """

    ids: tuple[int, ...]
    kept: tuple[tuple[int, str], ...] = ()
    last_id: int | None = None


@reads
def select(wanted: Filter) -> Statements[tuple[JobRecord, ...]]:
    """Return the jobs that match a filter, in its order."""
    return tuple((yield from selected(wanted)))


# Each way reads an index in order, so that nothing is sorted. Unfinished and dead jobs have partial indexes: while they
# are few, their ids are read there. Otherwise the table is scanned in the order of the filter, where many of them come
# early. The newest dead jobs may be older than millions of others, so they are always read from their index. Succeeded
# and cancelled jobs are found by a scan, unless few jobs have the tag of the filter.
def selected(wanted: Filter, *, restarting: bool = False, unfinished: bool = False) -> Statements[Sequence[JobRecord]]:
    """Return the jobs that match a filter, in its order, as a part of a larger operation.

    With `unfinished` those that have ended may be left out, so that few others are found without reading them.
    """
    params = _params(wanted, restarting=restarting)
    if wanted.ids is None and wanted.hold is not None and not wanted.oldest_first:
        return (yield from _matching(Query("jobs_held", params, into=JobRecord), wanted))
    if wanted.ids is None and wanted.state is State.DEAD and not wanted.oldest_first:
        return (yield from _newest_dead(wanted, params))
    if wanted.ids is None and _is_dead_group(wanted):
        members = yield from _grouped(wanted)
        if len(members) < FEW:
            return (
                yield from _matching(
                    Query("jobs_these", params | {"ids": [row[0] for row in members]}, into=JobRecord), wanted
                )
            )
    if wanted.ids is None and wanted.state is State.DEAD and wanted.caught is False:
        return (yield from _matching(Query("jobs_dead", params, into=JobRecord), wanted))
    params["ids"] = yield from few(wanted, unfinished=unfinished)
    if params["ids"] is not None:
        return (yield from _matching(Query("jobs_these", params, into=JobRecord), wanted))
    if wanted.oldest_first:
        return (yield from _matching(Query("jobs_oldest", params, into=JobRecord), wanted))
    return (yield from _matching(Query("jobs_select", params, into=JobRecord), wanted))


# A statement that compares errors sees them as they are stored, secrets included. If its rows were the answer, a reader
# who is not shown a secret could find it letter by letter; and if only its rows were read further, by the time of the
# search. For such a reader it has the other conditions only, so that the rows that are read do not depend on secrets.
def _matching(query: Query, wanted: Filter) -> Statements[Sequence[JobRecord]]:
    """Return the rows of a statement that match a filter, also where errors are searched as they are shown."""
    rows: Sequence[JobRecord]
    if wanted.error is None:
        rows = yield query
        return rows
    search, count = ErrorSearch(wanted.error, hidden=wanted.hidden), query.params["count"]
    # Each error has the empty text, and jobs without an error have none.
    params = {**query.params, "error": "" if wanted.reads_errors else search.part}
    most = _AT_ONCE if wanted.reads_errors and count else count
    found: list[JobRecord] = []
    while True:
        rows = yield replace(query, params={**params, "count": most})
        found += yield from _found(search, rows)
        if len(found) >= count or len(rows) < most:
            return found[:count]
        if query.name == "jobs_held":
            # Its order is that of due times, so that no id says where to go on.
            found, most = [], min(most * _MORE, NEWEST)
        else:
            params["after_id" if wanted.oldest_first else "before_id"] = rows[-1].id


def _found(search: ErrorSearch, rows: Sequence[JobRecord]) -> Statements[list[JobRecord]]:
    """Return the jobs with an error in which a search finds its text."""
    found: list[JobRecord] = []
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        documents = yield from documents_of({job.id: job.parent_id for job in some})
        found += [job for job in some if search.finds(job.error, documents[job.id].all)]
    return found


def _params(wanted: Filter, *, restarting: bool = False) -> dict[str, object]:
    params = asdict(wanted)
    params["count"] = params.pop("limit")
    asks_for_dead = restarting or wanted.state is State.DEAD or wanted.caught is not None
    params["refreshes"] = wanted.refreshes or wanted.ids is not None or not asks_for_dead
    del params["all"], params["hidden"], params["redacted"]
    return params


def few(wanted: Filter, *, unfinished: bool = False) -> Statements[list[int] | None]:
    """Return the ids among which all matches are, if they are known or found in an index and few."""
    if wanted.ids is not None:
        return list(wanted.ids)
    found: list[int] = []
    if wanted.hold is not None or wanted.state in _INDEXED:
        states: Sequence[State | None] = [wanted.state]
    elif wanted.tag is not None:
        window = {"after_id": wanted.after_id, "before_id": wanted.before_id}
        found = [row[0] for row in (yield Query("jobs_tagged", {"tag": wanted.tag, **window, "most": FEW}))]
        states = []
    elif unfinished and wanted.state is None:
        states = _UNFINISHED
    else:
        return None
    for state in states:
        rows = yield Query("jobs_few", {"state": state, "hold": wanted.hold, "most": FEW - len(found)})
        found += [row[0] for row in rows]
        if len(found) == FEW:
            break
    return found if len(found) < FEW else None


def _is_dead_group(wanted: Filter) -> bool:
    return wanted.group is not None and wanted.state is State.DEAD and wanted.caught is False


def _grouped(wanted: Filter) -> Statements[Rows]:
    window = {"after_id": wanted.after_id, "before_id": wanted.before_id}
    return (yield Query("jobs_grouped", {"group": wanted.group, **window, "most": FEW}))


def _newest_dead(wanted: Filter, params: dict[str, object]) -> Statements[Sequence[JobRecord]]:
    """Return the newest dead jobs that match; only dead jobs are read."""
    found: list[JobRecord] = []
    while True:
        ids = [row[0] for row in (yield from _dead(wanted))]
        some = params | {"ids": ids, "count": wanted.limit - len(found)}
        found += yield from _matching(Query("jobs_these", some, into=JobRecord), wanted)
        if len(ids) < FEW or len(found) == wanted.limit:
            return found
        wanted = replace(wanted, before_id=ids[-1])


def _dead(wanted: Filter) -> Statements[Rows]:
    """Return the ids of the newest dead jobs, of an error group if one is wanted."""
    if _is_dead_group(wanted):
        return (yield from _grouped(wanted))
    window = {"after_id": wanted.after_id, "before_id": wanted.before_id}
    return (yield Query("dead_ids", {"caught": wanted.caught, **window, "most": FEW}))


class JobPage(msgspec.Struct, frozen=True, gc=False):
    """The answer to `page`.

    Attributes:
        jobs: the newest jobs that match.
        searched_to: the id down to which jobs were read; None if all were.
    """

    jobs: tuple[JobRecord, ...]
    searched_to: int | None = None


@reads
def page(wanted: Filter, *, budget: int) -> Statements[JobPage]:
    """Return the newest jobs that match, from at most `budget` rows of the table.

    A condition that few jobs meet would otherwise read all of them. Jobs in an index that are few are always found, and
    dead jobs are read from their index, however many they are.
    """
    params = _params(wanted)
    if wanted.ids is None and wanted.state is State.DEAD:
        ids: list[int] = [row[0] for row in (yield from _dead(wanted))]
        found = tuple((yield from _matching(Query("jobs_these", params | {"ids": ids}, into=JobRecord), wanted)))
        is_whole = len(ids) < FEW or len(found) == wanted.limit
        return JobPage(found, None if is_whole else ids[-1])
    params["ids"] = yield from few(wanted)
    if params["ids"] is not None:
        return JobPage(tuple((yield from _matching(Query("jobs_these", params, into=JobRecord), wanted))))
    window = {"after_id": wanted.after_id, "before_id": wanted.before_id, "most": budget}
    (count, least), *_ = yield Query("jobs_window", window)
    if count == budget:
        params["after_id"] = least - 1
    rows = yield from _matching(Query("jobs_select", params, into=JobRecord), wanted)
    is_whole = count < budget or len(rows) == wanted.limit
    return JobPage(tuple(rows), None if is_whole else least)


# Why a job waits for its due time, without retries, which `stats` counts by themselves.
_SCHEDULED = [each.value for each in Hold if each is not Hold.RETRY]


@reads
def stats(
    *, after_id: int = 0, task: str | None = None, most: int = COUNTED, now: datetime | None = None
) -> Statements[Stats]:
    """Count jobs by state, of one task if given, with ids larger than `after_id`; no count exceeds `most`."""
    # Succeeded and cancelled jobs have no index of their own, which every job would have to pay for: they are counted
    # among the newest jobs, as many as `most`.
    at = yield from instant(now)
    params = {"now": at, "after_id": after_id, "task": task, "most": most, "holds": _SCHEDULED}
    rows = yield Query("stats", params, into=Stats)
    counted: Stats = rows[0]
    return counted


@wakes
def cancel(
    job_id: int, *, why: str | None = None, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[bool]:
    """Cancel a job, and return True if this call changed something. A final job stays as it is.

    The worker that runs it loses the lease, so a late completion changes nothing. A run takes its steps back before it
    ends; see `redrive.stores.operations.ending`. Raise `JobNotFound`.
    """
    at = yield from instant(now)
    job = yield from lock(job_id)
    if not (yield from cancel_jobs([job], at, why)):
        return False
    yield from record(at, actor, "cancel", ids=[job_id], why=why)
    return True


@wakes
def cancel_all(
    wanted: Filter, *, why: str | None = None, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[BulkResult]:
    """Cancel the jobs that match a filter and have not ended; at most ``wanted.limit`` jobs are read."""
    at = yield from instant(now)
    jobs = yield from selected(replace(wanted, oldest_first=True))
    ended = yield from cancel_jobs(jobs, at, why)
    if ended:
        yield from record(at, actor, "cancel", ids=ended, filter=conditions(wanted), why=why)
    return BulkResult(tuple(ended), last_id=jobs[-1].id if len(jobs) == wanted.limit else None)


@wakes
def skip(job_id: int, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[bool]:
    """Unblock the partition of an ordered queue that a dead job blocks. The job stays dead.

    Return True if the job blocked its partition; one that was skipped before or was caught does not. Raise
    `JobNotFound`, or `IllegalMove` if it is not dead.
    """
    at = yield from instant(now)
    job = yield from lock(job_id)
    next_state(job.state, LifecycleEvent.SKIP)
    if not (yield Query("skip", {"id": job_id, "now": at})):
        return False
    yield from record(at, actor, "skip", ids=[job_id])
    return True


@reads
def server() -> Statements[str | None]:
    """Return the server and the timeline of its log; None if it is a standby, or the database is a file."""
    value: str | None = (yield Query("server"))[0][0]
    return value


@reads
def identify(key: str) -> Statements[str]:
    """Return a value of the table ``redrive_meta``, such as ``uid``, the name of this database in idempotency keys.

    Raise `StoreOpenError` if there is none.
    """
    rows = yield Query("meta", {"key": key})
    if not rows:
        raise StoreOpenError(f"the table redrive_meta has no {key}: it belongs to another program, or is damaged")
    value: str = rows[0][0]
    return value
