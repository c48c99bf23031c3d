"""A background duty that starts the transitions of due timeouts and of events that wait for their turn.

Every worker does this for the machines in its own code; an instance is locked while its transition begins, and one that
is locked is left to the worker that has locked it. `turn` is one poll and what follows from it; the drain of
`redrive.testing` calls it directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from redrive.app.app import App
from redrive.clock import Clock
from redrive.engine.machine import InstanceRecord, MoveSource, MoveStatus
from redrive.runtime import log, rng
from redrive.runtime.fleet import Fleet
from redrive.runtime.scheduler import BUSY
from redrive.runtime.supervision import Duty, Turn, first
from redrive.stores.operations.machines import manage, turns
from redrive.stores.operations.machines.rows import Choice

# The longest rest between two polls of the oldest worker: another process may have put an event into line, or set a
# timeout, in between. A commit wakes the duty where the database notifies.
NET = timedelta(seconds=1)

# Instances of one transaction, so that a settle never waits long for it.
BUDGET = 100


class MachineTurns:
    """The background duty that starts due timeouts and waiting events."""

    def __init__(self, app: App, clock: Clock, fleet: Fleet | None = None) -> None:
        self._app = app
        self._clock = clock
        self._fleet = fleet or Fleet()
        self._changed = asyncio.Event()
        self._checked = False
        self._waiting = False
        #: True once a poll has found nothing to start.
        self.quiet: bool = False
        self.duty: Duty = Duty("taking the turns of machines", self._step)

    def changed(self) -> None:
        """Poll again, because another process has changed the database."""
        self._changed.set()

    def settled(self) -> None:
        """Poll again, if events wait, because a transition may have ended."""
        if self._waiting:
            self._changed.set()

    async def _step(self) -> float:
        if not self._checked:
            await warn_of_stranded(self._app)
            self._checked = True
        self._changed.clear()
        made = await turn(self._app)
        self._waiting = made.waiting
        self.quiet = self.quiet or not made.done
        if made.done:
            return 0.0
        rest = self._fleet.interval(NET.total_seconds())
        if made.rest_for is not None:
            rest = min(max(made.rest_for, BUSY).total_seconds() + self._fleet.lag, rest)
        await first(self._changed.wait(), self._clock.asleep(rest))
        return 0.0


async def warn_of_stranded(app: App) -> None:
    """Log what waits for a state or a class of events that the code does not have."""
    for each in await app.store.arun(manage.stranded(app.machines.known)):
        log.warning("machine %s: %s, which the code does not have: %s", each.machine, each.text, each.advice("APP"))


async def turn(app: App, _: Callable[[], float] = rng.sample) -> Turn:
    """Start what is due once."""
    known = app.machines.known
    if not known.machines:
        return Turn(0)
    look = await app.store.arun(turns.look(known, now=app.now()))
    rest = None if look.timeout_at is None else look.timeout_at - look.now
    if not look.events and (rest is None or rest > timedelta(0)):
        return Turn(0, rest, look.now, look.waiting)

    def resolve(instance: InstanceRecord, event: str, payload: bytes) -> Choice:
        """Choose the transition of a stored event."""
        choice: Choice = app.machines.declared[instance.machine].resolve(instance, event, payload)
        return choice

    taken = await app.store.arun(turns.take_turns(known, resolve, budget=BUDGET, now=app.now()))
    for each in taken.turns:
        if each.status is MoveStatus.RUNNING:
            app.machines.declared[each.machine].emit_begun(each.key, each.id, each.to_state)
        elif each.status is MoveStatus.REFUSED:
            what = "timeout" if each.source is MoveSource.TIMEOUT else "event"
            log.warning(
                "machine %s: the %s %s of %s was refused: %s", each.machine, what, each.event, each.key, each.error
            )
    # The poll may have found only marks of events that have ended since. They are removed now, so the next poll returns
    # when a timeout is due.
    return Turn(len(taken.turns) or taken.marked, timedelta(0), look.now, look.waiting)
