"""Starts what is due: occurrences of crons, and refreshes.

Every worker does this for the schedules that its own code has; no leader is needed, because a start is made under a
lock, in the transaction that makes its job, and whoever comes second finds nothing due. A schedule that no worker's
code has any more is not started, and stays listed.

A look costs a few probes of indexes for each schedule, however many things are tracked. It is made when the next thing
known is due, and each second at the latest, since another process may have tracked something in between. Overdue
attempts are swept here too, whosever they are; the sweep's logical time is the deadline, so it may be late.

A clock that was set back leaves what waits for an instant ahead of it. The scheduler sees that when it starts, and when
an instant of the database is earlier than one before it; then it reckons anew, and logs what it has changed.

`turn` is one look and what follows from it. The drain of `redrive.testing` takes such turns by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redrive.app.app import App
from redrive.app.events import emit_fired
from redrive.app.refresh import Refresh
from redrive.engine.occurrence import OccurrenceDecision
from redrive.engine.origin import Kind
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import logger
from redrive.runtime import rng
from redrive.runtime.supervision import Duty
from redrive.schedule import RefreshOutcome, RefreshPolicy
from redrive.schedule.refresh import TOLERANCE
from redrive.stores.operations import crons, refreshes, schedules, set_back
from redrive.stores.operations.schedules import ScheduleStatus

__all__ = ["Scheduler", "Turn", "declare", "turn"]

log = logger("redrive.worker")

NET = timedelta(seconds=1)
"""The longest rest between two looks."""

BUDGET = 1000
"""Things of one transaction: a settle never waits long behind a start."""

BUSY = timedelta(milliseconds=100)
"""The rest where something is due that cannot be had: others have it in hand, or only a newer redrive can read it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn came to.

    Attributes:
        done: how many things it has moved.
        rest_for: how long it is until something is due; None where nothing is planned.
        at: the instant of the look, by the clock of the database; None where there are no schedules.
    """

    done: int
    rest_for: timedelta | None
    at: datetime | None = field(default=None, compare=False)


class Scheduler:
    """Starts what is due.

    Args:
        app: whose schedules.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared = False
        self._latest: datetime | None = None

    @property
    def duty(self) -> Duty:
        """Declare the schedules of the code, and start what is due."""
        return Duty("scheduling", self._step)

    async def _step(self) -> float:
        if not self._declared:
            await declare(self._app)
            self._declared = True
            await mend(self._app, rng.roll, seen=False)
        made = await turn(self._app, rng.roll)
        await self._watch(made.at)
        return _seconds(made)

    async def _watch(self, at: datetime | None) -> None:
        """See whether the clock of the database was set back since the last turn."""
        if at is None:
            return
        if self._latest is not None and self._latest - at > TOLERANCE:
            log.warning("the clock of the database was set back by %s", self._latest - at)
            await mend(self._app, rng.roll, seen=True)
        self._latest = at


def _seconds(made: Turn) -> float:
    if made.done:
        return 0.0
    if made.rest_for is None:
        return NET.total_seconds()
    return (min(made.rest_for, NET) if made.rest_for > timedelta(0) else BUSY).total_seconds()


async def declare(app: App) -> None:
    """Write what the code of an app says of its schedules.

    Args:
        app: whose schedules.

    Raises:
        StoreError: the database refused.
    """
    definitions = [each.definition for each in app.schedules.values()]
    await app.store.arun(schedules.declare(definitions, now=app.now()))


async def mend(app: App, roll: Callable[[], float], *, seen: bool) -> None:
    """Reckon anew what waits for an instant too far ahead, since the clock of the database was set back.

    Args:
        app: whose schedules.
        roll: answers random numbers in [0, 1), for jitter.
        seen: True if this process has seen the clock go back. Otherwise the things of a refresh are only looked at if
            the earliest of them waits for longer than until the next planned refresh: looking walks all of them.

    Raises:
        StoreError: the database refused.
    """
    for each in await app.store.arun(schedules.look(now=app.now())):
        task = app.schedules.get(each.name)
        if isinstance(task, Refresh):
            if seen or _is_ahead(task.refresh_policy, each):
                await _mend_things(app, each, roll)
        elif task is not None and each.due_at is not None and each.due_at > each.now:
            earlier = await app.store.arun(set_back.cron(each.name, now=app.now()))
            if earlier is not None:
                log.warning("cron %s: it waited for a clock that was set back; it waits %s less", each.name, earlier)


def _is_ahead(policy: RefreshPolicy, look: ScheduleStatus) -> bool:
    """Return whether all things that wait for their start wait for longer than until the next planned refresh."""
    late = look.now + TOLERANCE
    latest = None if policy.schedule is None else policy.schedule.next(late, after=late)
    return latest is not None and look.due_at is not None and look.due_at > latest + policy.jitter


async def _mend_things(app: App, look: ScheduleStatus, roll: Callable[[], float]) -> None:
    moved, after = 0, ""
    while True:
        page = await app.store.arun(set_back.things(look.name, iter(roll, None), after=after, now=app.now()))
        moved += page.moved
        if page.last is None:
            break
        after = page.last
    if moved:
        log.warning("refresh %s: %d keys waited for a clock that was set back; they are planned anew", look.name, moved)


async def turn(app: App, roll: Callable[[], float], *, budget: int = BUDGET) -> Turn:
    """Look what is due, and start it.

    Args:
        app: whose schedules.
        roll: answers random numbers in [0, 1), for jitter.
        budget: things of one transaction.

    Returns:
        What was done, and when the next thing is due.

    Raises:
        StoreError: the database refused.
    """
    looks = await app.store.arun(schedules.look(now=app.now()))
    own = [each for each in looks if each.name in app.schedules]
    done = 0
    for each in own:
        if each.is_stale:
            done += await app.store.arun(refreshes.replan(each.name, budget, iter(roll, None), now=app.now()))
        if each.due_at is not None and each.due_at <= each.now:
            done += await (_fire(app, each) if each.kind is Kind.CRON else _start(app, each, roll, budget))
    if any(each.sweep_at is not None and each.sweep_at <= each.now for each in looks[:1]):
        done += await app.store.arun(refreshes.sweep(budget, iter(roll, None), now=app.now()))
    instants = [each.due_at for each in own] + [each.sweep_at for each in looks[:1]]
    earliest = min((each for each in instants if each is not None), default=None)
    at = looks[0].now if looks else None
    return Turn(done, None if earliest is None or at is None else earliest - at, at)


async def _fire(app: App, look: ScheduleStatus) -> int:
    fired = await app.store.arun(crons.fire(look.name, now=app.now()))
    for each in fired:
        level = logging.INFO if each.decision is OccurrenceDecision.STARTED else logging.WARNING
        said = f": {each.note}" if each.note else ""
        log.log(level, "cron %s: the occurrence of %s was %s%s", look.name, each.occurs_at, each.decision, said)
    if fired and LISTENERS:
        emit_fired(fired)
    return len(fired)


async def _start(app: App, look: ScheduleStatus, roll: Callable[[], float], budget: int) -> int:
    started = await app.store.arun(refreshes.start(look.name, budget, iter(roll, None), now=app.now()))
    for each in started:
        if each.outcome is RefreshOutcome.GAVE_UP:
            log.warning("refresh %s/%s was given up: %s", look.name, each.key, each.why)
    return len(started)
