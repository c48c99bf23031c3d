"""Claiming from queues that are paused, limited, ordered, or served by turns. PURE.

What such a queue is, and whom it serves, is decided in `redrive.engine.queue`; here the claim finds out what it has to
know for that. A queue costs a claim nothing while none of its jobs is due.

**Exact.** Whoever claims from a queue holds its row until the transaction ends (``queue_lock``; SQLite has one writer
anyway). So of two claimers the second counts what the first has taken. Places are counted and not kept as a number:
what runs is the row of a running job, so nothing can be lost or freed twice, whatever becomes of a worker. Settling
does not take the lock: a place may come back while somebody counts, and is then given away a moment later.

**Bounded.** A claim looks through the first `WINDOW` due jobs of each priority. In most queues that is all that is due,
and then it knows everything. Where there is more, somebody may hide behind a crowd: then it walks the partitions
themselves, by index probes, from the one that was served last, `VISITS` of them at most. A walk that has not come
round, because hundreds of partitions wait for retries or are blocked, is continued by the worker's next claim: where it
stands is a value (`QueueScan`) that the claim answers and the worker brings along. Nothing is written for it, because each
commit wakes every worker.

**Rest.** A queue that has no place left is worth another look when something has ended, which is a commit, and wakes
workers by itself; one that has used up its rate, when the window lets go of its oldest start; and else, when its next
job becomes due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from redrive.engine.lifecycle import State
from redrive.engine.queue import Due, Key, QueueSettings, keys, serve
from redrive.engine.records import Claim
from redrive.stores.operations.floors import ClaimFilter
from redrive.stores.query import Query, Rows

__all__ = ["Offer", "QueueScan", "choose", "held", "later", "lock", "note", "offers", "starts"]

WINDOW = 100
"""Due jobs of each priority that a claim looks through before it walks partitions."""

VISITS = 200
"""Partitions that one claim visits at most."""

LOOK_ON = timedelta(milliseconds=20)
"""How long a worker rests before it goes on with a walk that has found nothing yet."""

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueueScan:
    """How far a walk through the partitions of a queue has come.

    Attributes:
        queue: whose.
        began_at: when it began.
        start: the partition behind which it began.
        at: the partition that was visited last.
        wrapped: has it begun anew with the first partition?
    """

    queue: str
    began_at: datetime
    start: str
    at: str
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """What a queue has to offer to a claim.

    Attributes:
        settings: of the queue.
        jobs: those that may start, in the order in which they should.
        full: is there no place for more than these?
        next_at: when there will be, if only time is needed.
        walk: where the next claim goes on; None where this one has seen everything.
        since: what became due after this instant may not have been seen.
    """

    settings: QueueSettings
    jobs: tuple[Due, ...] = ()
    full: bool = False
    next_at: datetime | None = None
    walk: QueueScan | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueDue:
    """A row of the query ``queues_due``."""

    name: str
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """A row of the query ``queue_held``."""

    partition: str | None
    held: int


@dataclass(frozen=True, slots=True)
class Starts:
    """A row of the query ``queue_starts``."""

    count: int
    first_at: datetime | None


@dataclass(frozen=True, slots=True)
class Share:
    """A row of the query ``queue_shares``: a partition, a priority and a task."""

    partition: str
    priority: int
    task: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the query ``queue_lines``: a partition and its first job."""

    id: int
    partition: str
    priority: int
    task: str
    scheduled_at: datetime
    state: State


def offers(
    where: ClaimFilter, count: int, at: datetime, walks: Iterable[QueueScan] = ()
) -> Generator[Query, Rows, tuple[Offer, ...]]:
    """Ask the special queues what they have to offer.

    Args:
        where: which queues and tasks.
        count: how many jobs are wanted.
        at: the instant of the transaction.
        walks: where earlier claims of this worker have left off.

    Returns:
        The offer of each queue that has a due job.
    """
    going = {walk.queue: walk for walk in walks}
    rows: Sequence[QueueDue] = yield Query("queues_due", {**where.parameters, "after": _EVER}, into=QueueDue)
    due = [row.name for row in rows if row.due_at is not None and row.due_at <= at]
    made = []
    for name in due:
        offer = yield from _offer(name, count, at, going.get(name), where)
        made.append(offer)
    return tuple(made)


def lock(name: str) -> Generator[Query, Rows, QueueSettings]:
    """Read what is set for a queue, and keep others from claiming from it until the transaction ends.

    Args:
        name: of the queue.

    Returns:
        Its settings; all open where nothing is stored of it.
    """
    rows: Sequence[QueueSettings] = yield Query("queue_lock", {"name": name}, into=QueueSettings)
    return rows[0] if rows else QueueSettings(name)


def held(name: str) -> Generator[Query, Rows, dict[str | None, int]]:
    """Count the running attempts of a limited queue.

    Args:
        name: of the queue.

    Returns:
        How many run, by partition.
    """
    rows: Sequence[Held] = yield Query("queue_held", {"queue": name}, into=Held)
    return {row.partition: row.held for row in rows}


def starts(settings: QueueSettings, at: datetime) -> Generator[Query, Rows, Starts]:
    """Count the starts of a queue within its window.

    Args:
        settings: of the queue, with a rate.
        at: the end of the window.

    Returns:
        How many, and the first.
    """
    after = at - (settings.rate_for or timedelta(0))
    rows: Sequence[Starts] = yield Query("queue_starts", {"queue": settings.name, "after": after}, into=Starts)
    return rows[0]


def _offer(
    name: str, count: int, at: datetime, walk: QueueScan | None, where: ClaimFilter
) -> Generator[Query, Rows, Offer]:
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
    offer = yield from _served(settings, at, room, parted, walk, where=where)
    if len(offer.jobs) == places:
        return replace(offer, full=True)
    if len(offer.jobs) == grants:
        return replace(offer, full=True, next_at=next_at)
    return offer


def _served(  # noqa: PLR0913 - what the choice depends on
    settings: QueueSettings,
    at: datetime,
    room: int,
    running: Mapping[str, int],
    walk: QueueScan | None,
    *,
    where: ClaimFilter,
) -> Generator[Query, Rows, Offer]:
    params = {"queue": settings.name, "now": at, "count": room, "window": WINDOW, "ordered": settings.ordered}
    params |= {"tasks": where.parameters["tasks"]}
    window: Sequence[Due] = yield Query("queue_window", params, into=Due)
    turn = settings.turn or ""
    crowds = Counter(each.priority for each in window if each.partition is not None)
    if max(crowds.values(), default=0) < WINDOW:
        jobs = serve(window, settings, at, room=room, held=running, turn=turn)
        return Offer(settings, tuple(jobs))
    walk = walk or QueueScan(settings.name, at, turn, turn)
    if settings.ordered:
        found, went = yield from _lines(settings, at, room, walk, where)
    else:
        found, went = yield from _shares(settings, at, room, running, walk, where=where)
    everybody = {each.id: each for each in [*found, *window]}.values()
    jobs = serve(everybody, settings, at, room=room, held=running, turn=walk.at)
    if went is not None and len({each.partition for each in found}) < room:
        return Offer(settings, tuple(jobs), walk=went)
    return Offer(settings, tuple(jobs), since=walk.began_at)


def _shares(  # noqa: PLR0913 - what the choice depends on
    settings: QueueSettings, at: datetime, room: int, running: Mapping[str, int], walk: QueueScan, *, where: ClaimFilter
) -> Generator[Query, Rows, tuple[list[Due], QueueScan | None]]:
    """Walk the partitions; answer due jobs of those that may run one, and where to go on."""
    seen: dict[tuple[str, int, str], Share] = {}
    going: QueueScan | None = walk
    asked = VISITS
    while going is not None and asked > 0:
        params = {"queue": settings.name, "after": going.at, "count": asked}
        rows: Sequence[Share] = yield Query("queue_shares", params, into=Share)
        cut = len(rows) == asked
        if cut and rows[0].partition != rows[-1].partition:
            # The last partition may have more priorities or tasks than these: it is the first of the next walk.
            rows = [row for row in rows if row.partition != rows[-1].partition]
        seen |= {(row.partition, row.priority, row.task): row for row in rows if where.has(row.task)}
        going = _moved(going, rows[-1].partition if rows else "", cut=cut)
        asked = 0 if cut else asked - len(rows)
    most = settings.per_partition
    free = [
        share
        for share in seen.values()
        if share.due_at <= at and (most is None or running.get(share.partition, 0) < most)
    ]
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


def _lines(
    settings: QueueSettings, at: datetime, room: int, walk: QueueScan, where: ClaimFilter
) -> Generator[Query, Rows, tuple[list[Due], QueueScan | None]]:
    """Walk the lines of an ordered queue; answer the first jobs of those that may run it, and where to go on."""
    found: dict[int, Due] = {}
    going: QueueScan | None = walk
    asked = VISITS
    while going is not None and asked > 0 and len(found) < room:
        params = {"queue": settings.name, "after": going.at, "count": asked}
        rows: Sequence[Line] = yield Query("queue_lines", params, into=Line)
        cut = len(rows) == asked
        for row in rows:
            if row.state is State.READY and row.scheduled_at <= at and where.has(row.task):
                found[row.id] = Due(row.id, row.partition, row.priority, row.scheduled_at, row.id)
        going = _moved(going, rows[-1].partition if rows else "", cut=cut)
        asked -= len(rows)
    return list(found.values()), going


def _moved(walk: QueueScan, last: str, *, cut: bool) -> QueueScan | None:
    """Where a walk stands when it has visited all up to ``last``, or all there are; None when it has come round."""
    if cut:
        return None if walk.wrapped and last >= walk.start else replace(walk, at=last)
    return None if walk.wrapped or not walk.start else replace(walk, at="", wrapped=True)


def choose(heads: Sequence[Due], made: Sequence[Offer], at: datetime, count: int) -> list[int]:
    """Put the jobs of all queues into one order.

    Args:
        heads: the first of the plain queues.
        made: what the special queues offer.
        at: the instant of the transaction.
        count: how many are wanted.

    Returns:
        The ids of the first.
    """
    ranked: list[tuple[Key, int]] = [((each.priority, each.scheduled_at, each.id), each.id) for each in heads]
    for offer in made:
        ranked += zip(keys(offer.jobs, offer.settings, at), (each.id for each in offer.jobs), strict=True)
    return [number for _, number in sorted(ranked)[:count]]


def note(claims: Sequence[Claim], made: Sequence[Offer], at: datetime) -> Generator[Query, Rows, None]:
    """Write down what the next claims have to know: whose turn it was, and what has started.

    Args:
        claims: what was taken.
        made: what was offered.
        at: the instant of the transaction.
    """
    leases = {claim.id: claim.lease_id for claim in claims}
    for offer in made:
        settings = offer.settings
        served = [job for job in offer.jobs if job.id in leases]
        if not served:
            continue
        turn = served[-1].partition or ""
        if turn != (settings.turn or ""):
            yield Query("queue_turn", {"name": settings.name, "turn": turn})
        if settings.rate_for is not None:
            begun = [{"queue": settings.name, "lease_id": leases[job.id], "started_at": at} for job in served]
            yield Query("starts_drop", {"queue": settings.name, "before": at - settings.rate_for})
            yield Query("starts_put", many=begun)


def later(where: ClaimFilter, at: datetime, made: Sequence[Offer]) -> Generator[Query, Rows, datetime | None]:
    """Say when the special queues are worth another look, if nothing happens until then.

    Args:
        where: which queues and tasks.
        at: the instant of the transaction.
        made: what they have offered, and what has been taken as a whole.

    Returns:
        When; None where only an event can make a difference.
    """
    known = {offer.settings.name: offer for offer in made}
    since = min([at, *(offer.since for offer in made if offer.since is not None)])
    rows: Sequence[QueueDue] = yield Query("queues_due", {**where.parameters, "after": since}, into=QueueDue)
    instants = [_again(known.get(row.name), row.due_at, at) for row in rows]
    return min((each for each in instants if each is not None), default=None)


def _again(offer: Offer | None, due_at: datetime | None, at: datetime) -> datetime | None:
    if offer is not None and offer.full:
        return offer.next_at
    if offer is not None and (offer.walk is not None or offer.since is not None) and offer.jobs:
        return at
    if offer is not None and offer.walk is not None:
        return at + LOOK_ON
    return None if due_at is None else due_at if due_at > at else at + LOOK_ON
