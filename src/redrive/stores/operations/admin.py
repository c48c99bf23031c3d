"""Operators' queries and actions: select, count, cancel and skip jobs. PURE.

These need no lease: an operator takes precedence over the worker, which then finds its lease lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.lifecycle import LifecycleEvent, State, next_state
from redrive.engine.records import COUNTED, NEWEST, Filter, Hold, JobRecord, Stats
from redrive.engine.search import ValueSearch
from redrive.engine.secrets import ErrorSearch
from redrive.errors import StoreOpenError
from redrive.stores.operations.audit import UNKNOWN, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import cancel_jobs
from redrive.stores.operations.jobs import Documents, documents_of, lock
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
def select(wanted: Filter, *, now: datetime | None = None) -> Statements[tuple[JobRecord, ...]]:
    """Return the jobs that match a filter, in its order."""
    return tuple((yield from selected(wanted, now=now)))


# Each way reads an index in order, so that nothing is sorted. Unfinished and dead jobs have partial indexes: while they
# are few, their ids are read there. Otherwise the table is scanned in the order of the filter, where many of them come
# early. The newest dead jobs may be older than millions of others, so they are always read from their index. Succeeded
# and cancelled jobs are found by a scan, unless few jobs have the tag of the filter, or belong to its run.
def selected(
    wanted: Filter, *, restarting: bool = False, unfinished: bool = False, now: datetime | None = None
) -> Statements[Sequence[JobRecord]]:
    """Return the jobs that match a filter, in its order, as a part of a larger operation.

    With `unfinished` those that have ended may be left out, so that few others are found without reading them.
    """
    inside = _Inside(wanted)
    params = yield from _params(wanted, restarting=restarting, now=now)
    if not _names_jobs(wanted):
        if wanted.hold is not None and not wanted.oldest_first:
            return (yield from _matching(Query("jobs_held", params, into=JobRecord), inside))
        if wanted.state is State.DEAD and not wanted.oldest_first:
            return (yield from _newest_dead(wanted, params, inside))
        if _is_dead_group(wanted):
            members = yield from _grouped(wanted)
            if len(members) < FEW:
                params["ids"] = [row[0] for row in members]
                return (yield from _matching(Query("jobs_these", params, into=JobRecord), inside))
        if wanted.state is State.DEAD and wanted.caught is False:
            return (yield from _matching(Query("jobs_dead", params, into=JobRecord), inside))
    params["ids"] = yield from few(wanted, unfinished=unfinished)
    if params["ids"] is not None:
        return (yield from _matching(Query("jobs_these", params, into=JobRecord), inside))
    if wanted.oldest_first:
        return (yield from _matching(Query("jobs_oldest", params, into=JobRecord), inside))
    return (yield from _matching(Query("jobs_select", params, into=JobRecord), inside))


# A statement that compares errors sees them as they are stored, secrets included. If its rows were the answer, a reader
# who is not shown a secret could find it letter by letter; and if only its rows were read further, by the time of the
# search. For such a reader it has the other conditions only, so that the rows that are read do not depend on secrets.
# Arguments are never compared by a statement, for the same reason, and because a value is not a part of their text.
class _Inside:
    """The conditions of a search on what no statement compares: the arguments of jobs, and their errors.

    Args:
        wanted: the filter.
        word: a value of which one of the arguments, the key or the partition is meant.
        known: jobs that an index has found by the word.
    """

    def __init__(self, wanted: Filter, word: str | None = None, known: Sequence[int] = ()) -> None:
        self.wanted = wanted
        self.word = word
        self.known = frozenset(known)
        texts = [] if wanted.error is None else [wanted.error]
        self._errors = [ErrorSearch(text, hidden=wanted.hidden) for text in texts]
        self._no_errors = [ErrorSearch(text, hidden=wanted.hidden) for text in wanted.excluded("error")]
        self._arguments = [] if wanted.args is None else [ValueSearch(wanted.args)]
        self._no_arguments = [ValueSearch(text) for text in wanted.excluded("args")]
        self._value = None if word is None else ValueSearch(word)

    def __bool__(self) -> bool:
        """Return True if rows have to be read further."""
        return bool(self.wanted.error is not None or self.wanted.reads_documents or self.word is not None)

    @property
    def error(self) -> str | None:
        """What a statement may compare with errors: each error has the empty text, and jobs without one have none."""
        if not self._errors:
            return None
        return "" if self.wanted.reads_errors else self._errors[0].part

    @property
    def reads_all(self) -> bool:
        """True if rows that match the statement may be many more than those that are found."""
        return self.wanted.reads_documents or self.word is not None

    def has(self, job: JobRecord, documents: Documents) -> bool:
        """Return True if a job that a statement has found is meant."""
        if not all(each.finds(job.error, documents.all) for each in self._errors):
            return False
        if any(each.finds(job.error, documents.all) for each in self._no_errors):
            return False
        if not all(self._finds(each, documents) for each in self._arguments):
            return False
        if any(self._finds(each, documents) for each in self._no_arguments):
            return False
        return self._value is None or job.id in self.known or self._is_named(job) or self._finds(self._value, documents)

    def _is_named(self, job: JobRecord) -> bool:
        return self.word in {job.key, job.partition}

    def _finds(self, search: ValueSearch, documents: Documents) -> bool:
        return not self.wanted.hidden and search.finds(documents.payload, documents.all)


def _matching(query: Query, inside: _Inside) -> Statements[Sequence[JobRecord]]:
    """Return the rows of a statement that match, also where errors and arguments are searched as they are shown."""
    rows: Sequence[JobRecord]
    if not inside:
        rows = yield query
        return rows
    count = query.params["count"]
    params = {**query.params, "error": inside.error}
    most = _AT_ONCE if inside.reads_all and count else count
    found: list[JobRecord] = []
    while True:
        rows = yield replace(query, params={**params, "count": most})
        found += yield from _found(inside, rows)
        if len(found) >= count or len(rows) < most:
            return found[:count]
        if query.name == "jobs_held":
            # Its order is that of due times, so that no id says where to go on.
            found, most = [], min(most * _MORE, NEWEST)
        else:
            params["after_id" if inside.wanted.oldest_first else "before_id"] = rows[-1].id


def _found(inside: _Inside, rows: Sequence[JobRecord]) -> Statements[list[JobRecord]]:
    """Return the jobs that a search means."""
    found: list[JobRecord] = []
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        documents = yield from documents_of({job.id: job.parent_id for job in some})
        found += [job for job in some if inside.has(job, documents[job.id])]
    return found


# The conditions of a filter that a statement takes as they are.
_SAME = (
    "state", "task", "queue", "hold", "reason", "error", "group", "caught", "skipped", "tag", "key", "partition",
    "schedule", "since", "until", "finished_before", "after_id", "before_id", "oldest_first",
)  # fmt: skip

# Those of which a statement takes the values that a job must not have.
_EXCLUDED = ("state", "task", "queue", "hold", "reason", "group", "tag", "key", "partition", "schedule")

# Those that few filters have: a statement tests once whether one of them does.
_NARROW = ("key", "partition", "schedule", "worker", "since", "until", "attempts", "took")


def _params(wanted: Filter, *, restarting: bool = False, now: datetime | None = None) -> Statements[dict[str, object]]:
    """Return the parameters of the statements that select jobs."""
    asks_for_dead = restarting or wanted.state is State.DEAD or wanted.caught is not None or wanted.skipped
    names_them = wanted.refreshes or wanted.ids is not None or wanted.schedule is not None
    params: dict[str, object] = {name: getattr(wanted, name) for name in _SAME}
    params |= {
        "count": wanted.most,
        "ids": None,
        "refreshes": names_them or not asks_for_dead,
        "narrow": bool(wanted.without) or any(getattr(wanted, name) is not None for name in _NARROW),
        "now": now,
        "workers": None if wanted.worker is None else (yield from _workers([wanted.worker])),
        "not_workers": (yield from _workers(wanted.excluded("worker"))),
        "not_ids": (yield from _of_runs(wanted.excluded("run"))),
    }
    params |= {f"not_{name}": [str(each) for each in wanted.excluded(name)] for name in _EXCLUDED}
    attempts, took = wanted.attempt_bounds, wanted.took_bounds
    params |= {"attempts_least": attempts.least, "attempts_most": attempts.most}
    return params | {"took_least": _span(took.least), "took_most": _span(took.most)}


def _span(micros: int | None) -> timedelta | None:
    return None if micros is None else timedelta(microseconds=micros)


def _workers(names: Sequence[str]) -> Statements[list[int]]:
    """Return the ids of workers that are given by their ids or names."""
    if not names:
        return []
    numbers = [int(each) for each in names if each.isascii() and each.isdigit() and len(each) < len(str(NEWEST))]
    rows = yield Query("workers_named", {"names": list(names)})
    return sorted({*numbers, *(row[0] for row in rows)})


def _of_runs(ids: Sequence[str]) -> Statements[list[int]]:
    """Return the jobs of the runs with these ids, and of the runs that they have called."""
    if not ids:
        return []
    return [row[0] for row in (yield Query("runs_called", {"names": list(ids)}))]


def _names_jobs(wanted: Filter) -> bool:
    """Return True if the ids of all jobs that may match are known at once."""
    return wanted.ids is not None or wanted.run is not None


def few(wanted: Filter, *, unfinished: bool = False) -> Statements[list[int] | None]:
    """Return the ids among which all matches are, if they are known or found in an index and few."""
    if wanted.run is not None:
        ids = yield from _of_runs([wanted.run])
        return ids if wanted.ids is None else sorted({*ids} & {*wanted.ids})
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
    # In one order, whatever the order of the index: what is read by the ids does not depend on it.
    return sorted(found) if len(found) < FEW else None


def _is_dead_group(wanted: Filter) -> bool:
    return wanted.group is not None and wanted.state is State.DEAD and wanted.caught is False


def _grouped(wanted: Filter) -> Statements[Rows]:
    window = {"after_id": wanted.after_id, "before_id": wanted.before_id}
    return (yield Query("jobs_grouped", {"group": wanted.group, **window, "most": FEW}))


def _newest_dead(wanted: Filter, params: dict[str, object], inside: _Inside) -> Statements[Sequence[JobRecord]]:
    """Return the newest dead jobs that match; only dead jobs are read."""
    found: list[JobRecord] = []
    while True:
        ids = [row[0] for row in (yield from _dead(wanted))]
        some = params | {"ids": ids, "count": wanted.most - len(found)}
        found += yield from _matching(Query("jobs_these", some, into=JobRecord), inside)
        if len(ids) < FEW or len(found) == wanted.most:
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
        by_index: True if older ones than that were found as far as an index has them.
    """

    jobs: tuple[JobRecord, ...]
    searched_to: int | None = None
    by_index: bool = False


@reads
def page(
    wanted: Filter, *, budget: int, word: str | None = None, also: int | None = None, now: datetime | None = None
) -> Statements[JobPage]:
    """Return the newest jobs that match, from at most `budget` rows of the table.

    A condition that few jobs meet would otherwise read all of them. Jobs in an index that are few are always found, and
    dead jobs are read from their index, however many they are.

    With a word those that have it as a tag, key, partition or argument, or the id of their run; `also` is a job that
    counts among those.
    """
    params = yield from _params(wanted, now=now)
    known = [] if _names_jobs(wanted) else (yield from _known(wanted, word, params["workers"]))
    if also is not None and also < wanted.before_id:
        known = sorted({*known, also}, reverse=True)
    inside = _Inside(wanted, word, known)
    is_dead = wanted.state is State.DEAD and not _names_jobs(wanted)
    if is_dead:
        ids = [row[0] for row in (yield from _dead(wanted))]
        rows = yield from _matching(Query("jobs_these", params | {"ids": ids}, into=JobRecord), inside)
        searched_to = ids[-1] if len(ids) == FEW and len(rows) < wanted.most else None
    elif (some := (yield from few(wanted))) is not None:
        these = Query("jobs_these", params | {"ids": some}, into=JobRecord)
        return JobPage(tuple((yield from _matching(these, inside))))
    else:
        rows, searched_to = yield from _newest(wanted, params, inside, budget)
    if searched_to is None or not known:
        return JobPage(tuple(rows), searched_to, by_index=searched_to is not None and _has_index(wanted, word))
    # Those of an index that are older than what was read.
    older = [number for number in known if number < searched_to]
    rest = params | {"ids": older, "count": wanted.most - len(rows)}
    found = yield from _matching(Query("jobs_these", rest, into=JobRecord), inside)
    return JobPage((*rows, *found), searched_to, by_index=True)


def _newest(
    wanted: Filter, params: dict[str, object], inside: _Inside, budget: int
) -> Statements[tuple[Sequence[JobRecord], int | None]]:
    """Return the matches among the newest rows, and the id down to which they were read; None if all were."""
    window = {"after_id": wanted.after_id, "before_id": wanted.before_id, "most": budget}
    (count, least), *_ = yield Query("jobs_window", window)
    if count == budget:
        params = params | {"after_id": least - 1}
    rows = yield from _matching(Query("jobs_select", params, into=JobRecord), inside)
    is_whole = count < budget or len(rows) == wanted.most
    return rows, None if is_whole else least


def _has_index(wanted: Filter, word: str | None) -> bool:
    """Return True if an index has some of the jobs that a search means."""
    tag = None if wanted.args is None else ValueSearch(wanted.args).tag
    return any(each is not None for each in (word, tag, wanted.key, wanted.worker))


def _known(wanted: Filter, word: str | None, workers: object) -> Statements[list[int]]:
    """Return the newest jobs that an index finds by a word, a tag, a key or a running worker; not all that match."""
    if not _has_index(wanted, word):
        return []
    value = word or wanted.args
    params = {
        "tag": None if value is None else ValueSearch(value).tag,
        "key": word or wanted.key,
        "run": word,
        "workers": workers,
        "after_id": wanted.after_id,
        "before_id": wanted.before_id,
        "most": FEW,
    }
    return [row[0] for row in (yield Query("jobs_known", params))]


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
    """Cancel the jobs that match a filter and have not ended; at most ``wanted.most`` jobs are read."""
    at = yield from instant(now)
    jobs = yield from selected(replace(wanted, oldest_first=True))
    ended = yield from cancel_jobs(jobs, at, why)
    if ended:
        yield from record(at, actor, "cancel", ids=ended, filter=conditions(wanted), why=why)
    return BulkResult(tuple(ended), last_id=jobs[-1].id if len(jobs) == wanted.most else None)


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
