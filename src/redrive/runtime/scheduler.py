"""A background duty that starts due occurrences of crons and due refreshes.

Every worker does this for the schedules in its own code, and for the crons that were created at run time; no leader is
needed, because a start takes a lock in the transaction that creates its job, and a second worker finds nothing due. Of
workers with the same tasks the younger ones poll a moment later and less often (`redrive.runtime.fleet`).
`turn` is one poll and the starts that follow from it; the drain of `redrive.testing` calls it directly.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from redrive.app.app import App
from redrive.app.events import emit_fired
from redrive.app.recurring.refresh import Refresh
from redrive.engine.origin import Kind
from redrive.errors import ScheduleNotFound
from redrive.runtime import log, rng
from redrive.runtime.fleet import Fleet
from redrive.runtime.supervision import Duty, Turn
from redrive.schedule import RefreshOutcome, RefreshPolicy
from redrive.schedule.refresh import TOLERANCE
from redrive.stores.operations import crons, schedules
from redrive.stores.operations.refresh import finish, start
from redrive.stores.operations.refresh.start import replan, set_back
from redrive.stores.operations.schedules import ScheduleStatus

# A poll costs a few index probes per schedule, independent of the number of tracked items. It is made when the next
# known item is due, and each second at the latest, since another process may have tracked an item in between. Overdue
# attempts of all refreshes are swept here too; the logical time of the sweep is the deadline, so it may be late.
#
# The longest rest between two polls.
NET = timedelta(seconds=1)

# The same for a worker without schedules in its code, which only starts crons that are created at run time.
NET_CREATED = timedelta(seconds=5)

# Items of one transaction, so that a settle never waits long for a start.
BUDGET = 1000

# The rest if an item is due that cannot be started: another worker has locked it, or only a newer redrive reads it.
BUSY = timedelta(milliseconds=100)


class Scheduler:
    """The background duty that starts due occurrences and refreshes."""

    def __init__(self, app: App, fleet: Fleet | None = None) -> None:
        self._app = app
        self._fleet = fleet or Fleet()
        self._declared = False
        #: True once a poll has found nothing to start.
        self.quiet: bool = False
        self._latest: datetime | None = None
        self.duty: Duty = Duty("scheduling", self._step)

    def again(self) -> None:
        """Declare the schedules again, because the database may have lost them."""
        self._declared = False

    async def _step(self) -> float:
        if not self._declared:
            await declare(self._app)
            self._declared = True
            await repair(self._app, rng.sample, seen=False)
        made = await turn(self._app, rng.sample)
        await self._watch(made.at)
        self.quiet = self.quiet or not made.done
        return _seconds(made, NET if self._app.schedules.declared else NET_CREATED, self._fleet)

    async def _watch(self, at: datetime | None) -> None:
        """Repair the schedules if the clock of the database was set back since the last turn."""
        if at is None:
            return
        if self._latest is not None and self._latest - at > TOLERANCE:
            log.warning("the clock of the database was set back by %s", self._latest - at)
            await repair(self._app, rng.sample, seen=True)
        self._latest = at


def _seconds(made: Turn, net: timedelta, fleet: Fleet) -> float:
    if made.done:
        return 0.0
    longest = fleet.interval(net.total_seconds())
    if made.rest_for is None:
        return longest
    rest = made.rest_for if made.rest_for > timedelta(0) else BUSY
    return min(rest.total_seconds() + fleet.lag, longest)


async def declare(app: App) -> None:
    """Write the definitions of the schedules of an app."""
    definitions = [each.definition for each in app.schedules.declared.values()]
    if not definitions:
        return
    for name in await app.store.arun(schedules.declare(definitions, now=app.now())):
        log.warning("the code declares the schedule %s, which was created at run time: the code replaces it", name)


# If the clock of the database is set back, items wait for an instant too far ahead. The scheduler detects that when it
# starts, and when the database returns an earlier instant than before; then it computes the instants again and logs
# what it has changed.
async def repair(app: App, sample: Callable[[], float], *, seen: bool) -> None:
    """Compute again the instants that are too far ahead because the clock of the database was set back.

    If this process has not `seen` the clock go back, the items of a refresh are read only if the earliest of them waits
    for longer than until the next planned refresh, because that reads all of them.
    """
    for each in await app.store.arun(schedules.status(now=app.now())):
        task = app.schedules.declared.get(each.name)
        if isinstance(task, Refresh):
            if seen or _is_ahead(task.refresh_policy, each):
                await _repair_items(app, each, sample)
        elif (task is not None or each.created) and each.due_at is not None and each.due_at > each.now:
            earlier = await app.store.arun(crons.set_back(each.name, now=app.now()))
            if earlier is not None:
                log.warning("cron %s: the clock was set back; the next occurrence is %s earlier", each.name, earlier)


def _is_ahead(policy: RefreshPolicy, look: ScheduleStatus) -> bool:
    """Return True if all items that wait for a start wait for longer than until the next planned refresh."""
    late = look.now + TOLERANCE
    latest = None if policy.schedule is None else policy.schedule.next(late, after=late)
    return latest is not None and look.due_at is not None and look.due_at > latest + policy.jitter


async def _repair_items(app: App, look: ScheduleStatus, sample: Callable[[], float]) -> None:
    moved, after = 0, ""
    while True:
        page = await app.store.arun(set_back(look.name, iter(sample, None), after=after, now=app.now()))
        moved += page.moved
        if page.last is None:
            break
        after = page.last
    if moved:
        log.warning("refresh %s: the clock was set back; %d keys are planned again", look.name, moved)


async def turn(app: App, sample: Callable[[], float]) -> Turn:
    """Start what is due once."""
    looks = await app.store.arun(schedules.status(now=app.now()))
    declared = app.schedules.declared
    if not declared.keys() <= {each.name for each in looks}:
        # The database may have lost them with its server, where that cannot be seen, or may have been emptied.
        await declare(app)
        looks = await app.store.arun(schedules.status(now=app.now()))
    own = [each for each in looks if each.created or each.name in declared]
    # The workers with the code of a refresh sweep.
    sweeps = [each.sweep_at for each in looks[:1] if declared]
    done = 0
    for each in own:
        if each.is_stale:
            done += await app.store.arun(replan(each.name, BUDGET, iter(sample, None), now=app.now()))
        if each.due_at is not None and each.due_at <= each.now:
            done += await (_fire(app, each) if each.kind is Kind.CRON else _start(app, each, sample))
    if any(each is not None and each <= looks[0].now for each in sweeps):
        done += await app.store.arun(finish.end_overdue(BUDGET, iter(sample, None), now=app.now()))
    instants = [each.due_at for each in own] + sweeps
    earliest = min((each for each in instants if each is not None), default=None)
    at = looks[0].now if looks else None
    return Turn(done, None if earliest is None or at is None else earliest - at, at)


async def _fire(app: App, look: ScheduleStatus) -> int:
    try:
        fired = await app.store.arun(crons.fire(look.name, now=app.now()))
    except ScheduleNotFound:
        # It was deleted after the poll.
        return 0
    emit_fired(fired)
    return len(fired)


async def _start(app: App, look: ScheduleStatus, sample: Callable[[], float]) -> int:
    started = await app.store.arun(start.start_due(look.name, BUDGET, iter(sample, None), now=app.now()))
    for each in started:
        if each.outcome is RefreshOutcome.GAVE_UP:
            log.warning("refresh %s/%s was given up: %s", look.name, each.key, each.why)
    return len(started)
