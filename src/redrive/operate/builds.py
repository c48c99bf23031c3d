"""What changed with the newest build: the attempts of each task before and after workers began to run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.counters import KEPT_FOR, MINUTE, TIERS, floor
from redrive.operate.exchange import Page, Request, Site
from redrive.operate.history import ALERT
from redrive.stores.operations import clock, counters, workers
from redrive.stores.operations.counters import Sides, TaskSums
from redrive.stores.operations.workers import BegunWorker, Build

#: The time before and after the first start of a build within which attempts are compared.
COMPARED: Final = timedelta(hours=24)


class Attempts(msgspec.Struct, frozen=True, gc=False):
    """Ended attempts, without those that were lost with a worker: another worker, of any build, counts them.

    Attributes:
        ended: all of them.
        died: after which the job gave up.
        failing: the share that failed of those that succeeded or failed, in percent; None without any.
    """

    ended: int
    failed: int
    died: int
    failing: float | None


class TaskChange(msgspec.Struct, frozen=True, gc=False):
    """The attempts of a task before and after a build.

    Attributes:
        difference: of the shares that failed, in percent points; None if one of them is not known.
        worse: True if it fails more than before, and at least at the rate that is a problem.
    """

    task: str
    before: Attempts
    after: Attempts
    difference: float | None
    worse: bool


class OtherBuild(msgspec.Struct, frozen=True, gc=False):
    """A build that live workers run beside the newest one."""

    build: str
    workers: int


class BuildsPage(msgspec.Struct, frozen=True, gc=False):
    """The comparison of the newest build with the one before it, for the tasks of the code.

    Attributes:
        build: of the worker that started last, among those that have a task of the code; None if none has one.
        since: when workers began to run it.
        is_back: True if workers had run it before, and then another one: a rollback.
        before: the build that they ran before; None if it is not known.
        before_from: the beginning of the attempts before.
        until: the end of the attempts after.
        others: builds that other live workers run, as during a deploy; their attempts are told apart by worker.
        unclear_until: the end of a time in which both were running, and whose attempts are left out, because the rows
            of their workers were added up since; None if none were.
        items: the tasks with attempts, those that fail more than before first.
    """

    at: datetime
    build: str | None = None
    since: datetime | None = None
    is_back: bool = False
    before: str | None = None
    before_from: datetime | None = None
    until: datetime | None = None
    others: tuple[OtherBuild, ...] = ()
    unclear_until: datetime | None = None
    items: tuple[TaskChange, ...] = ()


class _Period(msgspec.Struct, frozen=True, gc=False):
    """A time in which workers ran a build without a break in which others ran another one."""

    since: datetime
    until: datetime
    ids: frozenset[int]


def builds(site: Site, _: Request) -> Procedure[Page]:
    """Compare the attempts of each task before and after the newest build."""
    return (yield from site.shared.read("builds", _read(site)))


class _Replaced(msgspec.Struct, frozen=True, gc=False):
    """The newest build with the one that it has replaced; of that, None stands for what is not known."""

    build: str
    period: _Period
    before: str | None
    former: _Period | None
    is_back: bool


def _read(site: Site) -> Procedure[Page]:
    served = site.app.served()
    at: datetime = yield clock.present(site.app.now())
    known: tuple[BegunWorker, ...] = yield workers.begun()
    mine = [each for each in known if each.tasks is None or not served.isdisjoint(each.tasks)]
    if not mine:
        return Page("No build", BuildsPage(at))
    foreign = {each.build for each in known} - {each.build for each in mine}
    starts: tuple[Build, ...] = yield workers.builds(at - KEPT_FOR)
    found = _replaced(mine, [each for each in starts if each.build not in foreign], at)
    sides, unclear_until = _sides(found, mine, at)
    sums: tuple[TaskSums, ...] = yield counters.compared(sides)
    living = Counter(
        each.build for each in mine if each.is_present and each.ended_at > at and each.build != found.build
    )
    data = BuildsPage(
        at=at,
        build=found.build,
        since=found.period.since,
        is_back=found.is_back,
        before=found.before,
        before_from=sides.begin,
        until=sides.until,
        others=tuple(OtherBuild(name, number) for name, number in living.most_common()),
        unclear_until=unclear_until,
        items=_changes(sums, served),
    )
    return Page(f"build {found.build}", data)


def _replaced(mine: Sequence[BegunWorker], starts: Sequence[Build], at: datetime) -> _Replaced:
    """Return the build of the worker that started last, and what it has replaced.

    Args:
        mine: workers, the latest start first.
        starts: the first starts of builds, the latest first; rows of workers are deleted a day after they left.
        at: the present instant.
    """
    build = mine[0].build
    period = _period(mine, build, at)
    earlier = [each for each in mine if each.id not in period.ids and each.started_at < period.since]
    first = next((each.first_at for each in starts if each.build == build), period.since)
    others = [each for each in starts if each.build != build and each.first_at < period.since]
    is_back = any(each.first_at > first for each in others)
    if not earlier and not is_back:
        period = msgspec.structs.replace(period, since=min(period.since, first))
    before = next((each.build for each in earlier if each.build != build), None)
    if before is not None:
        former = _period([each for each in earlier if each.build == before], before, at)
        return _Replaced(build, period, before, former, is_back)
    name = next((each.build for each in others if each.first_at < period.since), None)
    return _Replaced(build, period, name, None, is_back)


def _sides(found: _Replaced, mine: Sequence[BegunWorker], at: datetime) -> tuple[Sides, datetime | None]:
    """Return what is compared, and the end of the time that is left out, if there is one."""
    since, ids = found.period.since, found.period.ids
    old: frozenset[int] = frozenset() if found.former is None else found.former.ids
    begin = since - COMPARED
    if found.former is not None and found.former.since < since:
        begin = max(begin, found.former.since)
    width = _width(at - since)
    mixed = [each.ended_at for each in mine if each.id not in ids and each.ended_at > since]
    clear = floor(max((since, *mixed)) - timedelta.resolution, width) + width
    sides = Sides(
        begin=begin,
        until=min(at, since + COMPARED),
        before_until=floor(since, width),
        after_from=clear,
        before=sorted(old),
        after=sorted(ids),
        others=sorted({each.id for each in mine} - ids - old),
    )
    return sides, clear if mixed and width != MINUTE and clear > since + width else None


def _width(age: timedelta) -> timedelta:
    """Return the width of the rows of attempts that ended so long ago."""
    return next((width for least, width in reversed(TIERS) if age > least), MINUTE)


def _period(known: Sequence[BegunWorker], build: str, at: datetime) -> _Period:
    """Return the latest time in which workers ran a build; a pause between two workers of it is no break.

    Args:
        known: workers, the latest start first.
        build: of one of them.
        at: the present instant.
    """
    mine = [each for each in known if each.build == build]
    since, ids = mine[0].started_at, {mine[0].id}
    until = max(mine[0].ended_at, mine[0].started_at)
    for each in mine[1:]:
        if each.ended_at < since and _others_ran(known, build, each.ended_at, since):
            break
        since, until = each.started_at, max(until, each.ended_at)
        ids.add(each.id)
    return _Period(since, min(until, at), frozenset(ids))


def _others_ran(known: Iterable[BegunWorker], build: str, begin: datetime, end: datetime) -> bool:
    return any(each.build != build and each.started_at < end and each.ended_at > begin for each in known)


def _changes(sums: Iterable[TaskSums], served: Collection[str]) -> tuple[TaskChange, ...]:
    found: dict[str, dict[bool, Attempts]] = {}
    for each in sums:
        if each.task in served:
            found.setdefault(each.task, {})[each.is_after] = _attempts(each)
    changes = [_change(task, sides.get(False, _NONE), sides.get(True, _NONE)) for task, sides in found.items()]
    return tuple(sorted(changes, key=lambda each: (not each.worse, -(each.difference or 0.0), each.task)))


_NONE: Final = Attempts(0, 0, 0, None)


def _attempts(sums: TaskSums) -> Attempts:
    failed = sums.retried + sums.died
    whole = failed + sums.succeeded
    ended = whole + sums.snoozed + sums.cancelled
    return Attempts(ended, failed, sums.died, 100 * failed / whole if whole else None)


def _change(task: str, before: Attempts, after: Attempts) -> TaskChange:
    if before.failing is None or after.failing is None:
        return TaskChange(task, before, after, None, worse=before.ended > 0 and _is_bad(after))
    difference = after.failing - before.failing
    return TaskChange(task, before, after, difference, worse=difference > 0 and _is_bad(after))


def _is_bad(attempts: Attempts) -> bool:
    return attempts.failing is not None and attempts.failing >= ALERT
