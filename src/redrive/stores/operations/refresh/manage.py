"""Tracks, changes, triggers and pauses items. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from redrive.engine.items import NEW, TrackedItem, columns
from redrive.engine.lifecycle import FINAL
from redrive.engine.records import JobRecord
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord, read_policy
from redrive.errors import IllegalMove, NotTracked
from redrive.schedule import RefreshPolicy, RefreshState, RefreshTransition, refresh
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.refresh.items import (
    ItemMove,
    MoveResult,
    begin,
    definition_of,
    found,
    lock,
    numbered,
    put_jobs,
    result_of,
    schedule,
    untracked,
    with_deadline,
    write,
)
from redrive.stores.operations.schedules import put, readable
from redrive.stores.operations.settlements import end
from redrive.stores.query import Query, Statements, wakes, writes


class NewItem(msgspec.Struct, frozen=True, gc=False):
    """An item to be tracked; `payload` has the arguments of its attempts as JSON."""

    key: str
    payload: bytes


@wakes
def track(
    definition: RefreshDefinition,
    items: Sequence[NewItem],
    samples: Iterable[float],
    *,
    own: str | None = None,
    at_once: bool = True,
    now: datetime | None = None,
) -> Statements[frozenset[str]]:
    """Track items, and return the keys of the new ones; tracked items get these arguments and this policy.

    A definition in the database takes precedence over `definition`, which is that of the code. ``own`` is a policy for
    these items as text, see `redrive.engine.recurring.policy_document`.
    """
    at = yield from instant(now)
    row = yield from schedule(definition.name)
    if row is None:
        # Read first: the transaction that inserts the row blocks all others that track items of this refresh.
        yield from put([definition], at, replaces=False)
        row = yield from schedule(definition.name)
    paused = row is not None and row.paused_at is not None
    definition = definition_of(row) or definition
    policy = _policy(definition, own)
    wanted = {each.key: each for each in sorted(items, key=lambda each: each.key)}
    known = yield from lock(definition.name, sorted(wanted))
    yield from _change(definition, own, known, wanted, samples=samples, at=at)
    new = [each for key, each in wanted.items() if key not in {item.key for item in known}]
    if not new:
        return frozenset()
    moves: list[ItemMove] = []
    for each, sample in zip(new, samples, strict=False):
        # Without jitter, all items share one move.
        if not moves or policy.jitter:
            move = refresh.update(policy, RefreshState(), now=at, at_once=at_once, sample=sample)
            if at_once and not paused:
                move = refresh.start(policy, move.state, now=at, uid=NEW, sample=sample)
        moves.append(ItemMove(_new(definition, each, own, at), policy, move))
    return (yield from _insert(definition, (yield from numbered(moves)), at))


def _policy(definition: RefreshDefinition, own: str | None) -> RefreshPolicy:
    return definition.policy if own is None else read_policy(own)


def _new(definition: RefreshDefinition, wanted: NewItem, own: str | None, at: datetime) -> TrackedItem:
    return TrackedItem(
        definition.name, wanted.key, wanted.payload, own, definition.timing, at,
        None, None, None, None, None, None, None, None, 0, 0, None,
        disabled_until_update=False, disabled_reason=None, completed=False, paused=False,
    )  # fmt: skip


def _insert(definition: RefreshDefinition, moves: Sequence[ItemMove], at: datetime) -> Statements[frozenset[str]]:
    names = ("schedule", "key", "payload", "own", "timing", "tracked_at")
    many = [
        {name: getattr(each.item, name) for name in names}
        | {"job_id": each.job_id}
        | columns(each.policy, each.move.state)
        for each in moves
    ]
    keys = frozenset(row[0] for row in (yield Query("refresh_insert", many=many)))
    yield from put_jobs(definition, [each for each in moves if each.item.key in keys and each.number is not None], at)
    return keys


def _change(
    definition: RefreshDefinition,
    own: str | None,
    known: Sequence[TrackedItem],
    wanted: dict[str, NewItem],
    *,
    samples: Iterable[float],
    at: datetime,
) -> Statements[None]:
    if not known:
        return
    name = definition.name
    policy = _policy(definition, own)
    many = [{"schedule": name, "key": each.key, "payload": wanted[each.key].payload, "own": own} for each in known]
    yield Query("refresh_change", many=many)
    other = [each for each in known if each.own != own]
    moves = [
        ItemMove(each, policy, refresh.replan(policy, each.state, now=at, sample=sample))
        for each, sample in zip(other, samples, strict=False)
    ]
    yield from write(definition, moves, at)


@writes
def untrack(name: str, key: str, *, now: datetime | None = None) -> Statements[bool]:
    """Stop tracking an item and cancel its running attempt; return True if it was tracked."""
    at = yield from instant(now)
    return (yield from remove(name, key, at))


def remove(name: str, key: str, at: datetime) -> Statements[bool]:
    """Stop tracking an item as a part of a larger operation; see `untrack`."""
    try:
        _, attempts = yield from _locked(name, key)
    except NotTracked:
        return False
    yield from _cancel(attempts, at, "its item is no longer tracked")
    return bool((yield Query("refresh_forget", {"schedule": name, "key": key})))


@wakes
def update(
    name: str, key: str, sample: float, *, at_once: bool = True, actor: str | None = None, now: datetime | None = None
) -> Statements[MoveResult]:
    """Enable an item that a user has changed, and start over; cancel its running attempt.

    Raise `NotTracked` if the item does not exist, `StoreError` if this version cannot read the definition of the
    refresh, or `ScheduleError` if this version cannot read the item's own policy.
    """
    at = yield from instant(now)
    row, definition = yield from _readable(name)
    item, attempts = yield from _locked(name, key)
    yield from _cancel(attempts, at, "its item was changed")
    policy = item.policy(definition)
    move = refresh.update(policy, item.state, now=at, at_once=at_once, sample=sample)
    if at_once and not item.paused and row.paused_at is None:
        move = refresh.start(policy, move.state, now=at, uid=NEW, sample=sample)
    (moved,) = yield from numbered([ItemMove(item, policy, move)])
    yield from begin(definition, [moved], at)
    if actor is not None:
        yield from record(at, actor, "update", schedule=name, key=key)
    return result_of(moved)


@wakes
def trigger(
    name: str, key: str, sample: float, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[MoveResult]:
    """Start an item now, even if it is not due or paused. A running attempt is superseded. Raise as `update` does.

    The outcome is STARTED; or DISABLED, and then nothing has changed.
    """
    at = yield from instant(now)
    _, definition = yield from _readable(name)
    item, attempts = yield from _locked(name, key)
    policy, state = item.policy(definition), item.state
    for job in attempts:
        if job.id == item.job_id:
            state = with_deadline(policy, state, job, now=at)
    move = refresh.trigger(policy, state, now=at, uid=NEW, sample=sample)
    (moved,) = yield from numbered([ItemMove(item, policy, move)])
    if moved.number is not None:
        yield from _cancel(attempts, at, f"superseded by another attempt, triggered by {actor}")
        yield from begin(definition, [moved], at)
        yield from record(at, actor, "trigger", schedule=name, key=key, ids=[moved.number])
    return result_of(moved)


@writes
def pause(name: str, key: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[MoveResult]:
    """Start no attempt of an item until it is resumed; a running attempt may finish. Raise as `update` does."""
    at = yield from instant(now)
    return (yield from _move(name, key, "pause", lambda _, state: refresh.pause(state), at=at, actor=actor))


@wakes
def resume(
    name: str, key: str, sample: float, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[MoveResult]:
    """Resume an item; planned refreshes during the pause are skipped. Raise as `update` does."""
    at = yield from instant(now)

    def how(policy: RefreshPolicy, state: RefreshState) -> RefreshTransition:
        return refresh.resume(policy, state, now=at, sample=sample)

    return (yield from _move(name, key, "resume", how, at=at, actor=actor))


def _move(
    name: str,
    key: str,
    action: str,
    how: Callable[[RefreshPolicy, RefreshState], RefreshTransition],
    *,
    at: datetime,
    actor: str,
) -> Statements[MoveResult]:
    _, definition = yield from _readable(name)
    items = yield from lock(name, [key])
    if not items:
        raise untracked(name, key)
    policy = items[0].policy(definition)
    moved = ItemMove(items[0], policy, how(policy, items[0].state))
    yield from write(definition, [moved], at)
    yield from record(at, actor, action, schedule=name, key=key)
    return result_of(moved)


def _readable(name: str) -> Statements[tuple[ScheduleRecord, RefreshDefinition]]:
    row = yield from schedule(name)
    if row is None:
        raise NotTracked(f"there is no refresh {name!r}, or it has never had an item")
    definition = readable(row)
    if not isinstance(definition, RefreshDefinition):
        raise IllegalMove(f"the schedule {name!r} is a cron: it has no keys")
    return row, definition


# The transaction that has locked the job may need the item, so this one must not wait for a job while it holds the
# item: it releases both and begins again. Each round means that another transaction has begun or ended an attempt.
#
# An item that is tracked, updated or triggered "now" has its job when the call returns, or when the caller's
# transaction commits. A new attempt begins under the lock of the present one, so a completion of the present attempt is
# applied either before that or not at all.
def _locked(name: str, key: str) -> Statements[tuple[TrackedItem, Sequence[JobRecord]]]:
    """Lock the job of an item's attempt, then the item; return both."""
    while True:
        before = yield from found(name, key)
        yield Query("locks_mark")
        attempts: Sequence[JobRecord] = ()
        if before.job_id is not None:
            attempts = yield Query("job_lock", {"id": before.job_id}, into=JobRecord)
        locked = yield from lock(name, [key])
        if locked and locked[0].job_id in {None, before.job_id}:
            yield Query("locks_keep")
            return (yield from found(name, key)), attempts
        yield Query("locks_release")
        yield Query("locks_keep")


def _cancel(attempts: Sequence[JobRecord], at: datetime, why: str) -> Statements[None]:
    for job in attempts:
        if job.state not in FINAL:
            yield from end(job, at, why)
