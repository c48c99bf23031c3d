"""What people want of things that are kept fresh. PURE.

It is done at once and not left to the next look of a worker: a thing that is tracked, updated or triggered "now" has
its job when the call returns, or when the caller's transaction commits. A thing is begun anew under the lock of its
present attempt, so that the answer of that comes before or never; see `redrive.stores.operations.freshness`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.engine.items import NEW, TrackedItem, columns
from redrive.engine.lifecycle import FINAL
from redrive.engine.records import JobRecord
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord, read_policy
from redrive.errors import IllegalMove, NotTracked
from redrive.schedule import RefreshPolicy, RefreshState, RefreshTransition, refresh
from redrive.stores.operations import jobs
from redrive.stores.operations.audit import NOBODY, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import end
from redrive.stores.operations.freshness import (
    ItemMove,
    MoveResult,
    attempt,
    begin,
    definition_of,
    numbered,
    rows,
    schedule_of,
    timed,
    turned,
    write,
)
from redrive.stores.operations.schedules import ensure, readable
from redrive.stores.operations.tracked import found, untracked
from redrive.stores.query import Query, Rows, Steps, wakes, writes

__all__ = ["NewItem", "pause", "resume", "track", "trigger", "untrack", "update"]

TRIES = 20
"""How often a job is asked for that somebody else has in hand."""


@dataclass(frozen=True, slots=True)
class NewItem:
    """A thing that is to be kept fresh.

    Attributes:
        key: which.
        payload: the arguments of its attempts, as JSON.
    """

    key: str
    payload: bytes


@wakes
def track(  # noqa: PLR0913 - what is kept fresh, and how
    definition: RefreshDefinition,
    things: Sequence[NewItem],
    samples: Iterable[float],
    *,
    own: str | None = None,
    at_once: bool = True,
    now: datetime | None = None,
) -> Steps[frozenset[str]]:
    """Keep things fresh from now on. Those that are tracked already get these arguments, and this policy.

    Args:
        definition: of the refresh, as the code has it; the one in the database counts if there is one.
        things: what is to be kept fresh.
        samples: random numbers in [0, 1), for jitter.
        own: a policy of their own, as `redrive.engine.recurring.policy_document` has written it.
        at_once: start those that are new now, or at their next planned refresh?
        now: the instant, in tests.

    Returns:
        The keys of those that are new.
    """
    at = yield from instant(now)
    row = yield from schedule_of(definition.name)
    if row is None:  # a look first: whoever puts it holds its row, and all others that track something wait
        yield from ensure(definition, at)
        row = yield from schedule_of(definition.name)
    paused = row is not None and row.paused_at is not None
    definition = (definition_of(row) if row is not None else None) or definition
    policy = _policy(definition, own)
    wanted = {each.key: each for each in sorted(things, key=lambda each: each.key)}
    known = yield from rows(definition.name, sorted(wanted))
    yield from _change(definition, own, known, wanted, samples=samples, at=at)
    fresh = [each for key, each in wanted.items() if key not in {thing.key for thing in known}]
    if not fresh:
        return frozenset()
    moved: list[ItemMove] = []
    for each, sample in zip(fresh, samples, strict=False):
        if not moved or policy.jitter:  # without, all move alike
            move = refresh.update(policy, RefreshState(), now=at, at_once=at_once, sample=sample)
            if at_once and not paused:
                move = refresh.start(policy, move.state, now=at, uid=NEW, sample=sample)
        moved.append(ItemMove(_new(definition, each, own, at), policy, move))
    return (yield from _insert(definition, (yield from numbered(moved)), at))


def _policy(definition: RefreshDefinition, own: str | None) -> RefreshPolicy:
    return definition.policy if own is None else read_policy(own)


def _new(definition: RefreshDefinition, wanted: NewItem, own: str | None, at: datetime) -> TrackedItem:
    return TrackedItem(
        definition.name, wanted.key, wanted.payload, own, definition.timing, at,
        None, None, None, None, None, None, None, 0, 0, None,
        disabled_until_update=False, disabled_reason=None, completed=False, paused=False,
    )  # fmt: skip


def _insert(
    definition: RefreshDefinition, moved: Sequence[ItemMove], at: datetime
) -> Generator[Query, Rows, frozenset[str]]:
    names = ("schedule", "key", "payload", "own", "timing", "tracked_at")
    many = [
        {name: getattr(each.thing, name) for name in names}
        | {"job_id": each.job_id}
        | columns(each.policy, each.move.state)
        for each in moved
    ]
    keys = frozenset(row[0] for row in (yield Query("refresh_insert", many=many)))
    begun = [each for each in moved if each.thing.key in keys and each.number is not None]
    yield from jobs.put([each.number or 0 for each in begun], [attempt(definition, each) for each in begun], at)
    return keys


def _change(  # noqa: PLR0913 - what is there, and what is wanted
    definition: RefreshDefinition,
    own: str | None,
    known: Sequence[TrackedItem],
    wanted: dict[str, NewItem],
    *,
    samples: Iterable[float],
    at: datetime,
) -> Generator[Query, Rows, None]:
    if not known:
        return
    name = definition.name
    policy = _policy(definition, own)
    many = [{"schedule": name, "key": each.key, "payload": wanted[each.key].payload, "own": own} for each in known]
    yield Query("refresh_change", many=many)
    other = [each for each in known if each.own != own]
    moved = [
        ItemMove(each, policy, refresh.replan(policy, each.state, now=at, sample=sample))
        for each, sample in zip(other, samples, strict=False)
    ]
    yield from write(definition, moved, at)


@writes
def untrack(name: str, key: str, *, now: datetime | None = None) -> Steps[bool]:
    """Keep a thing fresh no longer; a running attempt is cancelled.

    Args:
        name: of the refresh.
        key: which thing.
        now: the instant, in tests.

    Returns:
        Was it tracked?
    """
    at = yield from instant(now)
    try:
        _, attempts = yield from _held(name, key)
    except NotTracked:
        return False
    yield from _cancel(attempts, at, "it is not kept fresh any more")
    return bool((yield Query("refresh_forget", {"schedule": name, "key": key})))


@wakes
def update(  # noqa: PLR0913 - which, and how
    name: str,
    key: str,
    sample: float,
    *,
    at_once: bool = True,
    actor: str | None = None,
    now: datetime | None = None,
) -> Steps[MoveResult]:
    """A person has changed the thing: it is enabled, and begins anew. A running attempt is cancelled.

    Args:
        name: of the refresh.
        key: which thing.
        sample: from 0 to 1, for jitter.
        at_once: start now, or at the next planned refresh?
        actor: who does it, where an operator does; then it stands in the audit log.
        now: the instant, in tests.

    Returns:
        What became of it.

    Raises:
        NotTracked: there is no such thing.
        StoreError: what is declared of its refresh cannot be read by this redrive.
        ScheduleError: the same for a policy of its own.
    """
    at = yield from instant(now)
    row, definition = yield from _readable(name)
    thing, attempts = yield from _held(name, key)
    yield from _cancel(attempts, at, "what it refreshes was changed")
    policy = thing.policy(definition)
    move = refresh.update(policy, thing.state, now=at, at_once=at_once, sample=sample)
    if at_once and not thing.paused and row.paused_at is None:
        move = refresh.start(policy, move.state, now=at, uid=NEW, sample=sample)
    (moved,) = yield from numbered([ItemMove(thing, policy, move)])
    yield from begin(definition, [moved], at)
    if actor is not None:
        yield from record(at, actor, "update", schedule=name, key=key)
    return turned(moved)


@wakes
def trigger(
    name: str, key: str, sample: float, *, actor: str = NOBODY, now: datetime | None = None
) -> Steps[MoveResult]:
    """Start a thing now, due or not, paused or not. A running attempt is superseded.

    Args:
        name: of the refresh.
        key: which thing.
        sample: from 0 to 1, for jitter.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        STARTED; or DISABLED, and then nothing has changed.

    Raises:
        NotTracked: there is no such thing.
        StoreError: what is declared of its refresh cannot be read by this redrive.
        ScheduleError: the same for a policy of its own.
    """
    at = yield from instant(now)
    _, definition = yield from _readable(name)
    thing, attempts = yield from _held(name, key)
    policy, state = thing.policy(definition), thing.state
    for job in attempts:
        if job.id == thing.job_id:
            state = timed(policy, state, job, now=at)
    move = refresh.trigger(policy, state, now=at, uid=NEW, sample=sample)
    (moved,) = yield from numbered([ItemMove(thing, policy, move)])
    if moved.number is not None:
        yield from _cancel(attempts, at, f"superseded by another attempt, which {actor} wanted")
        yield from begin(definition, [moved], at)
        yield from record(at, actor, "trigger", schedule=name, key=key, ids=[moved.number])
    return turned(moved)


@writes
def pause(name: str, key: str, *, actor: str = NOBODY, now: datetime | None = None) -> Steps[MoveResult]:
    """Start nothing of a thing until it is resumed; an attempt that runs may finish.

    Args:
        name: of the refresh.
        key: which thing.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        What became of it.

    Raises:
        NotTracked: there is no such thing.
        StoreError: what is declared of its refresh cannot be read by this redrive.
    """
    at = yield from instant(now)
    return (yield from _people(name, key, "pause", lambda _, state: refresh.pause(state), at=at, actor=actor))


@wakes
def resume(
    name: str, key: str, sample: float, *, actor: str = NOBODY, now: datetime | None = None
) -> Steps[MoveResult]:
    """Go on with a thing; planned refreshes that were missed meanwhile are left out.

    Args:
        name: of the refresh.
        key: which thing.
        sample: from 0 to 1, for jitter.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        What became of it.

    Raises:
        NotTracked: there is no such thing.
        StoreError: what is declared of its refresh cannot be read by this redrive.
    """
    at = yield from instant(now)

    def how(policy: RefreshPolicy, state: RefreshState) -> RefreshTransition:
        return refresh.resume(policy, state, now=at, sample=sample)

    return (yield from _people(name, key, "resume", how, at=at, actor=actor))


def _people(  # noqa: PLR0913 - who wants what
    name: str,
    key: str,
    action: str,
    how: Callable[[RefreshPolicy, RefreshState], RefreshTransition],
    *,
    at: datetime,
    actor: str,
) -> Generator[Query, Rows, MoveResult]:
    _, definition = yield from _readable(name)
    things = yield from rows(name, [key])
    if not things:
        raise untracked(name, key)
    policy = things[0].policy(definition)
    moved = ItemMove(things[0], policy, how(policy, things[0].state))
    yield from write(definition, [moved], at)
    yield from record(at, actor, action, schedule=name, key=key)
    return turned(moved)


def _readable(name: str) -> Generator[Query, Rows, tuple[ScheduleRecord, RefreshDefinition]]:
    row = yield from schedule_of(name)
    if row is None:
        message = f"there is no refresh {name!r}, since nothing was ever tracked under it"
        raise NotTracked(message)
    definition = readable(row)
    if not isinstance(definition, RefreshDefinition):
        message = f"the schedule {name!r} is a cron: it has no keys"
        raise IllegalMove(message)
    return row, definition


def _held(name: str, key: str) -> Generator[Query, Rows, tuple[TrackedItem, Sequence[JobRecord]]]:
    """Lock a thing and the jobs of its attempts, in the order in which everybody does."""
    before = yield from found(name, key)
    attempts: Sequence[JobRecord] = ()
    if before.job_id is not None:
        attempts = yield Query("job_lock", {"id": before.job_id}, into=JobRecord)
    held = yield from rows(name, [key])
    if held and held[0].job_id not in {None, before.job_id}:
        # Who has begun that one could not cancel the one before it, if that is ours.
        attempts = [*attempts, *(yield from _free(held[0].job_id))]
    return (yield from found(name, key)), attempts


def _free(number: int | None) -> Generator[Query, Rows, Sequence[JobRecord]]:
    """Lock a job that became a thing's while that was waited for.

    It is not waited for: whoever has it may want the thing, which is ours already. A claim lets go of it soon. Whoever
    does not, ends it, and then finds that another attempt has its place.
    """
    locked: Sequence[JobRecord] = ()
    for _ in range(TRIES):
        locked = yield Query("job_locks", {"ids": [number]}, into=JobRecord)
        if locked:
            break
    return locked


def _cancel(attempts: Sequence[JobRecord], at: datetime, why: str) -> Generator[Query, Rows, None]:
    for job in attempts:
        if job.state not in FINAL:
            yield from end(job, at, why)
