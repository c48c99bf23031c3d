"""Claims from queues that are paused, limited, rate limited, ordered, or shared by partitions. PURE.

`redrive.engine.queue` decides which jobs of such a queue may start; this module reads the rows for that decision. A
queue costs a claim nothing while none of its jobs is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.queue import Due, Key, PartitionUse, QueueSettings, keys, serve
from redrive.engine.records import Claim
from redrive.stores.query import Query, Statements

# **Bounded cost.** A claim reads the first `WINDOW` due jobs of each priority. In most queues these are all due jobs.
# If there are more, one partition may hide behind another: the claim then scans the partitions by index probes, from
# the one that was served last, at most `VISITS` of them. If a scan does not get around, because hundreds of partitions
# wait for retries or are blocked, the worker's next claim continues it. The position is a value (`QueueScan`) that the
# claim returns and the worker passes on. It is not stored, because each commit wakes every worker.
#
# The number of due jobs of each priority that a claim reads before it scans partitions.
WINDOW = 100

# The largest number of partitions that one claim visits.
VISITS = 200

# The time after which a worker continues a scan that has found nothing yet.
RESUME_AFTER = timedelta(milliseconds=20)

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


class ClaimFilter:
    """The queues and tasks that a worker serves; None means all, without the queues of ``excluded``."""

    def __init__(
        self, queues: Sequence[str] | None, tasks: Collection[str] | None, excluded: Sequence[str] | None = None
    ) -> None:
        self.parameters: dict[str, list[str] | None] = {
            "queues": None if queues is None else list(queues),
            "excluded": None if excluded is None else list(excluded),
            "tasks": None if tasks is None else list(tasks),
        }
        self._tasks = tasks

    def has(self, task: str) -> bool:
        """Return True if jobs of this task may be claimed."""
        return self._tasks is None or task in self._tasks


class QueueScan(msgspec.Struct, frozen=True, gc=False):
    """The position of a scan through the partitions of a queue."""

    queue: str
    began_at: datetime
    start: str  # the partition after which it began
    at: str  # the partition that was visited last
    wrapped: bool = False  # True if it has continued with the first partition


class Offer(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a limited queue that a claim may take."""

    settings: QueueSettings
    jobs: tuple[Due, ...] = ()  # those that may start, in order
    full: bool = False  # True if the queue has no slot for more than these
    next_at: datetime | None = None  # when it or one of its partitions has, if only time is needed
    scan: QueueScan | None = None  # where the next claim continues; None if this one has seen everything
    since: datetime | None = None  # jobs that became due after this instant may not have been seen


class QueueDue(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``queues_due``."""

    name: str
    due_at: datetime | None


class Starts(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``queue_starts``."""

    count: int
    first_at: datetime | None


class PartitionStarts(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``partition_starts``."""

    partition: str
    count: int
    first_at: datetime


class Share(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``queue_shares``: a partition, a priority and a task."""

    partition: str
    priority: int
    task: str
    due_at: datetime


class Line(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``queue_lines``: a partition and its first job."""

    id: int
    partition: str
    priority: int
    task: str
    scheduled_at: datetime
    state: State


def offers(
    where: ClaimFilter, count: int, at: datetime, scans: Iterable[QueueScan] = ()
) -> Statements[tuple[Offer, ...]]:
    """Return the offer of each limited queue that has a due job."""
    going = {scan.queue: scan for scan in scans}
    rows: Sequence[QueueDue] = yield Query("queues_due", {**where.parameters, "after": _EVER}, into=QueueDue)
    due = [row.name for row in rows if row.due_at is not None and row.due_at <= at]
    made = []
    for name in due:
        offer = yield from _offer(name, count, at, going.get(name), where)
        made.append(offer)
    return tuple(made)


# **Exact limits.** A claim locks the row of the queue until the transaction ends (``queue_lock``; SQLite has one
# writer), so of two claims the second counts the jobs that the first has taken. Slots are counted, not stored as a
# number: a running job is its own slot, so none is lost or freed twice when a worker dies. A settle does not take the
# lock: a slot that becomes free during a count is given away by the next claim.
def lock(name: str) -> Statements[QueueSettings]:
    """Return the settings of a queue, and block other claims from it until the transaction ends."""
    rows: Sequence[QueueSettings] = yield Query("queue_lock", {"name": name}, into=QueueSettings)
    return rows[0] if rows else QueueSettings(name)


def held(name: str) -> Statements[dict[str | None, int]]:
    """Return the number of running attempts of a limited queue, by partition."""
    return dict((yield Query("queue_held", {"queue": name})))


def starts(settings: QueueSettings, at: datetime) -> Statements[Starts]:
    """Count the starts of a queue with a rate within its window, which ends at `at`."""
    after = at - (settings.rate_for or timedelta(0))
    rows: Sequence[Starts] = yield Query("queue_starts", {"queue": settings.name, "after": after}, into=Starts)
    return rows[0]


def partition_starts(settings: QueueSettings, at: datetime) -> Statements[Sequence[PartitionStarts]]:
    """Count the starts of each partition of a queue within the window of its rate, which ends at `at`."""
    if settings.partition_rate_for is None:
        return ()
    params = {"queue": settings.name, "after": at - settings.partition_rate_for}
    rows: Sequence[PartitionStarts] = yield Query("partition_starts", params, into=PartitionStarts)
    return rows


def _next_of(
    settings: QueueSettings, begun: Sequence[PartitionStarts], waiting: Collection[str | None] | None
) -> datetime | None:
    """Return when the rate allows a start in one of these partitions that have used it up; None stands for all."""
    if settings.rate_per_partition is None:
        return None
    most, span = settings.rate_per_partition.count, settings.rate_per_partition.span
    full = (each for each in begun if each.count >= most and (waiting is None or each.partition in waiting))
    return min((each.first_at + span for each in full), default=None)


def _offer(name: str, count: int, at: datetime, scan: QueueScan | None, where: ClaimFilter) -> Statements[Offer]:
    settings = yield from lock(name)
    if settings.paused_at is not None:
        return Offer(settings, full=True)
    running = (yield from held(name)) if settings.limited else {}
    places = None if settings.concurrency is None else settings.concurrency - sum(running.values())
    if places is not None and places <= 0:
        return Offer(settings, full=True)
    begun = (yield from starts(settings, at)) if settings.rate_count is not None else Starts(0, None)
    grants = None if settings.rate_count is None else settings.rate_count - begun.count
    next_at = (begun.first_at or at) + (settings.rate_for or timedelta(0))
    if grants is not None and grants <= 0:
        return Offer(settings, full=True, next_at=next_at)
    room = min(each for each in (count, places, grants) if each is not None)
    parted = {partition: many for partition, many in running.items() if partition is not None}
    in_partitions = yield from partition_starts(settings, at)
    used = PartitionUse(parted, {each.partition: each.count for each in in_partitions})
    offer, waiting = yield from _served(settings, at, room, used, scan, where=where)
    if len(offer.jobs) == places:
        return replace(offer, full=True)
    if len(offer.jobs) == grants:
        return replace(offer, full=True, next_at=next_at)
    return replace(offer, next_at=_next_of(settings, in_partitions, waiting))


def _served(
    settings: QueueSettings,
    at: datetime,
    room: int,
    used: PartitionUse,
    scan: QueueScan | None,
    *,
    where: ClaimFilter,
) -> Statements[tuple[Offer, Collection[str | None] | None]]:
    """Return the offer of a queue, and the partitions with due jobs; None if not all of these were read."""
    params = {"queue": settings.name, "now": at, "count": room, "window": WINDOW, "ordered": settings.ordered}
    params |= {"tasks": where.parameters["tasks"]}
    window: Sequence[Due] = yield Query("queue_window", params, into=Due)
    turn = settings.turn or ""
    sizes = Counter(each.priority for each in window if each.partition is not None)
    if max(sizes.values(), default=0) < WINDOW:
        jobs = serve(window, settings, at, room=room, used=used, turn=turn)
        return Offer(settings, tuple(jobs)), {each.partition for each in window}
    scan = scan or QueueScan(settings.name, at, turn, turn)
    if settings.ordered:
        found, rest = yield from _scan_lines(settings, at, room, used, scan, where=where)
    else:
        found, rest = yield from _scan_shares(settings, at, room, used, scan, where=where)
    candidates = {each.id: each for each in [*found, *window]}.values()
    jobs = serve(candidates, settings, at, room=room, used=used, turn=scan.at)
    if rest is not None and len({each.partition for each in found}) < room:
        return Offer(settings, tuple(jobs), scan=rest), None
    return Offer(settings, tuple(jobs), since=scan.began_at), None


def _scan_shares(
    settings: QueueSettings, at: datetime, room: int, used: PartitionUse, scan: QueueScan, *, where: ClaimFilter
) -> Statements[tuple[list[Due], QueueScan | None]]:
    """Scan the partitions; return due jobs of those that may run one, and where to continue."""
    seen: dict[tuple[str, int, str], Share] = {}
    going: QueueScan | None = scan
    asked = VISITS
    while going is not None and asked > 0:
        params = {"queue": settings.name, "after": going.at, "count": asked}
        rows: Sequence[Share] = yield Query("queue_shares", params, into=Share)
        cut = len(rows) == asked
        if cut and rows[0].partition != rows[-1].partition:
            # The last partition may have more priorities or tasks than these: it is the first of the next scan.
            rows = [row for row in rows if row.partition != rows[-1].partition]
        seen |= {(row.partition, row.priority, row.task): row for row in rows if where.has(row.task)}
        going = _next_scan(going, rows[-1].partition if rows else "", cut=cut)
        asked = 0 if cut else asked - len(rows)
    free = [share for share in seen.values() if share.due_at <= at and used.left(settings, share.partition) != 0]
    first = list(dict.fromkeys(share.partition for share in free))[:room]
    wanted = [share for share in free if share.partition in first]
    if not wanted:
        return [], going
    params = {
        "queue": settings.name,
        "now": at,
        "partitions": [share.partition for share in wanted],
        "priorities": [share.priority for share in wanted],
        "tasks": [share.task for share in wanted],
        # Twice the even share: where some partitions have less, others fill their places, and the next claim the rest.
        "count": min(room - len(first) + 1, 2 * -(-room // len(first))),
    }
    found: Sequence[Due] = yield Query("queue_rows", params, into=Due)
    return list(found), going


def _scan_lines(
    settings: QueueSettings, at: datetime, room: int, used: PartitionUse, scan: QueueScan, *, where: ClaimFilter
) -> Statements[tuple[list[Due], QueueScan | None]]:
    """Scan the lines of an ordered queue; return the first jobs of those that may run one, and where to continue."""
    found: dict[int, Due] = {}
    going: QueueScan | None = scan
    asked = VISITS
    while going is not None and asked > 0 and len(found) < room:
        params = {"queue": settings.name, "after": going.at, "count": asked}
        rows: Sequence[Line] = yield Query("queue_lines", params, into=Line)
        cut = len(rows) == asked
        for row in rows:
            is_due = row.state is State.READY and row.scheduled_at <= at and where.has(row.task)
            if is_due and used.left(settings, row.partition) != 0:
                found[row.id] = Due(row.id, row.partition, row.priority, row.scheduled_at, row.id)
        going = _next_scan(going, rows[-1].partition if rows else "", cut=cut)
        asked -= len(rows)
    return list(found.values()), going


def _next_scan(scan: QueueScan, last: str, *, cut: bool) -> QueueScan | None:
    """Return a scan after it has visited all partitions up to `last`, or all there are; None when it is complete."""
    if cut:
        return None if scan.wrapped and last >= scan.start else replace(scan, at=last)
    return None if scan.wrapped or not scan.start else replace(scan, at="", wrapped=True)


def choose(heads: Sequence[Due], made: Sequence[Offer], at: datetime, count: int) -> list[int]:
    """Return the ids of the first `count` jobs of all queues in one order."""
    ranked: list[tuple[Key, int]] = [((each.priority, each.scheduled_at, each.id), each.id) for each in heads]
    for offer in made:
        ranked += zip(keys(offer.jobs, offer.settings, at), (each.id for each in offer.jobs), strict=True)
    return [number for _, number in sorted(ranked)[:count]]


def note_starts(claims: Sequence[Claim], made: Sequence[Offer], at: datetime) -> Statements[None]:
    """Write what the next claims need: the partition that was served last, and the starts of queues with a rate."""
    leases = {claim.id: claim.lease_id for claim in claims}
    for offer in made:
        settings = offer.settings
        served = [job for job in offer.jobs if job.id in leases]
        if not served:
            continue
        turn = served[-1].partition or ""
        if turn != (settings.turn or ""):
            yield Query("queue_turn", {"name": settings.name, "turn": turn})
        spans = [each for each in (settings.rate_for, settings.partition_rate_for) if each is not None]
        if spans:
            begun = [
                {"queue": settings.name, "lease_id": leases[job.id], "started_at": at, "partition": job.partition}
                for job in served
            ]
            yield Query("starts_drop", {"queue": settings.name, "before": at - max(spans)})
            yield Query("starts_put", many=begun)


def next_look(where: ClaimFilter, at: datetime, made: Sequence[Offer]) -> Statements[datetime | None]:
    """Return when the limited queues can be claimed from again if nothing changes until then."""
    known = {offer.settings.name: offer for offer in made}
    since = min([at, *(offer.since for offer in made if offer.since is not None)])
    rows: Sequence[QueueDue] = yield Query("queues_due", {**where.parameters, "after": since}, into=QueueDue)
    instants = [_next_look_of(known.get(row.name), row.due_at, at) for row in rows]
    return min((each for each in instants if each is not None), default=None)


# **Waiting.** A full queue can be claimed from again when an attempt has ended, which is a commit and wakes the
# workers. A queue that has used up its rate can be claimed from when its oldest start leaves the window, and so can a
# partition with due jobs. Any other queue can be claimed from when its next job is due.
def _next_look_of(offer: Offer | None, due_at: datetime | None, at: datetime) -> datetime | None:
    if offer is not None and offer.full:
        return offer.next_at
    if offer is not None and (offer.scan is not None or offer.since is not None) and offer.jobs:
        return at
    if offer is not None and offer.scan is not None:
        return at + RESUME_AFTER
    later = None if due_at is None else due_at if due_at > at else at + RESUME_AFTER
    freed = None if offer is None else offer.next_at
    return min((each for each in (later, freed) if each is not None), default=None)
