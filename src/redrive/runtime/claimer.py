"""A background duty that claims due jobs, as many as there are free slots.

One claimer serves the whole process, because several would only compete for the same rows. Besides the jobs for the
free slots it claims those that will start within a moment (`redrive.runtime.ahead`). Jobs that need a child process
are claimed only for free children. It claims again when the notifier saw a change, when an attempt has ended, when the
next known job is due, and after `NET`, because every notification can get lost. Of workers with the same queues and
tasks, one claims at once and the others a moment later (`redrive.runtime.fleet`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from redrive.app.app import App
from redrive.app.events import emit_moved, emit_settled, is_first_hold
from redrive.clock import Clock
from redrive.engine.origin import is_feeder
from redrive.engine.outcome import Released, Settlement
from redrive.engine.records import Claim
from redrive.errors import StoreError
from redrive.runtime import failpoints, log
from redrive.runtime.ahead import is_suspect, may_wait
from redrive.runtime.attempts import Attempts
from redrive.runtime.fleet import Fleet
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import log_undecided
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.limited_queues import QueueScan
from redrive.stores.store import MAY_WAIT


class Together:
    """Whether the workers of a process have nothing left to do, all at the same time.

    A job of one app may enqueue jobs of another one. So each worker has to look once more when the last one of them has
    become idle. A *round* begins whenever a worker becomes idle.
    """

    def __init__(self) -> None:
        self._round = 0
        # The round in which the last look of each worker began; None while it looks, or has found something.
        self._idle: dict[Quota, int | None] = {}

    def join(self, member: Quota) -> None:
        """Add a worker, which has not looked."""
        self._idle[member] = None

    def look(self, member: Quota) -> tuple[int, bool]:
        """Begin a look; return the round, and whether the last look of this worker had found nothing."""
        was_idle = self._idle[member] is not None
        self._idle[member] = None
        return self._round, was_idle

    def found_nothing(self, member: Quota, look: tuple[int, bool]) -> bool:
        """Record that a look has found nothing. Return True if the looks of all workers have, in the present round."""
        begun, was_idle = look
        if not was_idle:
            self._round += 1
        self._idle[member] = begun
        return all(each == self._round for each in self._idle.values())


class Quota:
    """The work of one worker until it ends by itself.

    Attributes:
        until_empty: True if the worker ends when no job is due.
        left: the number of attempts that it may still start; None for no bound.
        scheduled: returns True once the due crons and refreshes have started their jobs.
        together: the workers of the process, which end together when no job of any is due; None for a single one.
        ended: called with the reason when the worker shall end.
    """

    def __init__(
        self, *, until_empty: bool = False, left: int | None = None, ended: Callable[[str], None] = lambda _: None
    ) -> None:
        self.until_empty = until_empty
        self.left = left
        self.scheduled: Callable[[], bool] = lambda: True
        self.together: Together | None = None
        self.ended = ended

    def room(self, free: int) -> int:
        """Return how many of the free slots may be used."""
        return free if self.left is None else min(free, self.left)

    @property
    def used(self) -> bool:
        """True if no further attempt may start."""
        return self.left == 0


# The longest rest between two claims while slots are free, and in multiples of it that of a young worker in a fleet.
NET, LONGEST = timedelta(seconds=1), 2

# The rest of a worker that ends when no job is due, while the due crons have not started their jobs, and while other
# workers of the process have jobs.
SCHEDULES, OTHERS = timedelta(milliseconds=20), timedelta(milliseconds=200)

# Seconds between two checks of the schema.
SCHEMA_CHECK = 10.0

# The delay of a suspect that is given back because another one runs, and of each further one that was claimed with one
# that starts: of many quick jobs, one runs every so often, and no claim takes them all again.
SUSPECT_DELAY, SUSPECT_TURN = timedelta(seconds=1), timedelta(milliseconds=50)


class Scope(NamedTuple):
    """What a claim may take: this number of jobs, of these tasks."""

    room: int
    tasks: frozenset[str]
    left_out: frozenset[str] = frozenset()


class Claimer:
    """The background duty that claims due jobs.

    It ends when the attempts are closed and a claim that is under way has been given back. ``idle`` is set while the
    claimer waits with free slots and nothing is due.
    """

    def __init__(
        self,
        app: App,
        clock: Clock,
        registration: WorkerRegistration,
        attempts: Attempts,
        *,
        idle: asyncio.Event | None = None,
        quota: Quota | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._registration = registration
        self._attempts = attempts
        self._idle = idle or asyncio.Event()
        self._quota = quota or Quota()
        self._fleet = fleet or Fleet()
        self._empty = False
        # True if the last claim has taken as many jobs as it might, of all tasks.
        self._filled = False
        # The scans of the last claims, by the tasks that were left out.
        self._scans: dict[frozenset[str], tuple[QueueScan, ...]] = {}
        self._cursors: tuple[leases.LaneCursor, ...] = ()
        # Instants of the monotonic clock: the next claim without cursors, and the next check of the schema.
        self._whole_at = float("-inf")
        self._fits_until = float("-inf")
        # The same: when the suspects that this worker has given back are due again.
        self._turn_at = float("-inf")
        self._ahead = 0
        self._is_poll = False
        #: Set when the first claim was answered, or has failed.
        self.tried: asyncio.Event = asyncio.Event()
        self.duty: Duty = Duty("claiming", self._step)

    async def _step(self) -> float | None:
        if self._attempts.closed:
            return None
        self._attempts.claim_again.clear()
        quiet = self._attempts.quiet
        if self._quota.used and quiet:
            self._quota.ended("it has run as many jobs as it should")
            return None
        scope = self._scope(self._quota.room(self._attempts.free + self._attempts.room_ahead))
        if scope.room <= 0 and not self._attempts.doubted:
            await self._attempts.claim_again.wait()
            return 0.0
        together = self._quota.together
        look = None if together is None else together.look(self._quota)
        MAY_WAIT.set(self._is_poll)
        try:
            await self._return_unknown()
            known = await self._claim(scope, whole=quiet and self._quota.until_empty) if scope.room > 0 else None
        finally:
            self.tried.set()
        if quiet and self._quota.until_empty and self._empty and self._clock.monotonic() >= self._turn_at:
            known = SCHEDULES
            if self._quota.scheduled():
                if together is None or look is None or together.found_nothing(self._quota, look):
                    self._quota.ended("no job is due")
                    return None
                known = OTHERS
        await self._rest(known)
        return 0.0

    # If the reply to a claim is lost, the database holds leases that the worker does not have, and no other worker may
    # take them while this one lives. The heartbeat sees such leases, but also those of a claim that is under way.
    # Between two claims the claimer can distinguish them, and gives back what the worker does not run.
    async def _return_unknown(self) -> None:
        """Give back leases that the worker does not have. No claim is under way here."""
        if not self._attempts.doubted:
            return
        # After a change of the server they may be attempts whose ends are lost (`redrive.runtime.renewal`). Where that
        # cannot be seen, ends that must not be lost are written again here.
        worker, era = self._registration.id, self._registration.era
        unknown = await self._app.store.arun(replace(workers.held(worker), era=era)) - self._attempts.held()
        if unknown:
            await self._attempts.settler.write_again()
            why = f"the reply to the claim of worker {worker} was lost"
            back = workers.give_back(worker, unknown, why, now=self._app.now())
            given = await self._app.store.arun(replace(back, era=era))
            log.warning("the reply to a claim was lost; %d jobs are given back", len(given))
        self._attempts.doubted = False

    # Every few seconds the claimer checks the schema of the database. If a newer redrive has migrated it to one that
    # this worker cannot work with, the worker claims nothing until that has changed, and logs it.
    async def _check_schema(self, at: float) -> None:
        """Check that this worker can work with the schema of the database."""
        ahead = await self._app.store.acheck_schema()
        if ahead > self._ahead:
            log.warning(
                "the database was migrated by a newer redrive; this worker goes on, since it can work with that"
            )
        self._fits_until, self._ahead = at + SCHEMA_CHECK, ahead

    # If a worker has fewer free children than slots, a claim of all tasks that has taken as many jobs as there are free
    # children is followed by one of the other tasks, for the other slots.
    def _scope(self, room: int) -> Scope:
        """Return what the next claim may take, if there is room for this number of jobs."""
        tasks = self._attempts.feeders.claimable(self._app.served())
        apart = self._attempts.apart(room)
        if apart is None:
            return Scope(room, tasks)
        share, needing = apart
        if needing.issuperset(tasks) or (share and not self._filled):
            return Scope(share, tasks)
        return Scope(room, tasks - needing, needing)

    async def _claim(self, scope: Scope, *, whole: bool = False) -> timedelta | None:
        began = self._clock.monotonic()
        if began >= self._fits_until:
            await self._check_schema(began)
            began = self._clock.monotonic()
        known = self._cursors if began < self._whole_at and not whole else ()
        free = min(self._attempts.free, scope.room)
        number = self._registration.id
        operation = leases.claim(
            number,
            free,
            ahead=scope.room - free,
            lease_for=self._app.terms.lease_for,
            queues=self._registration.queues,
            excluded=self._registration.excluded,
            tasks=scope.tasks,
            scans=self._scans.get(scope.left_out, ()),
            cursors=known,
            now=self._app.now(),
        )
        claimed = await self._app.store.arun(replace(operation, era=self._registration.era))
        self._scans[scope.left_out] = claimed.scans
        unseen = bool(scope.left_out) and self._filled
        self._filled = not scope.left_out and len(claimed.claims) == scope.room
        self._fleet.polled(self._clock.now(), in_vain=claimed.nothing)
        self._empty = claimed.nothing and not unseen
        self._cursors = leases.advanced(self._cursors, claimed.claims)
        ended = self._clock.monotonic()
        if not known:
            self._whole_at = ended + min(leases.PATIENCE * (ended - began), leases.FULL_SCAN_AFTER.total_seconds())
        if not claimed.known:
            self._registration.renew_soon(number)
            return None
        report_held(claimed.held)
        if claimed.claims:
            failpoints.at("after_claim")
            self._registration.extended(began)
        await self._start(await self._one_suspect(claimed.claims), claimed)
        if unseen:
            return timedelta(0)
        if not known:
            return claimed.rest_for
        # Jobs below the cursors may be due, so the claimer claims again when it is time to claim without floors.
        look = timedelta(seconds=max(self._whole_at - ended, 0.0))
        return look if claimed.rest_for is None else min(claimed.rest_for, look)

    async def _start(self, claims: Sequence[Claim], claimed: leases.Claimed) -> None:
        """Start claimed jobs; give back those that have no slot and may not wait for one, and all after a stop."""
        if self._attempts.closed:
            for claim in claims:
                self._attempts.give_back(claim)
            return
        back = self._attempts.start(claims, claimed.runs)
        # While such jobs come first, a claim ahead would only take them to give them back.
        self._attempts.ahead.scarce = claimed.scarce or bool(back) or not all(map(may_wait, claims))
        if self._quota.left is not None:
            self._quota.left -= len(claims) - len(back) - sum(is_feeder(claim.origin) for claim in claims)
        why = f"worker {self._registration.id} has no free slot"
        await self._attempts.ahead.give_back([claim.lease_id for claim in back], why)

    # A job with two lost leases in a row is a *suspect*: one more crash, and it is presumed to kill its workers. A
    # crash counts against every job that the worker was running, and no one can see which of them was the reason. So
    # suspects do not run together: a worker runs one of them at a time and gives the others back before that one
    # starts. The job that kills its worker dies alone, and the others prove that they are healthy.
    async def _one_suspect(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Give back all suspects but the first, or all if one is running. Return the other claims."""
        suspects = [claim for claim in claims if claim.crashes and is_suspect(claim)]
        is_busy = self._attempts.runs_suspect
        spare = suspects if is_busy else suspects[1:]
        if not spare:
            return claims
        why = "its worker was lost twice while it ran; it waits for its turn to run alone"
        turns = (min(number * SUSPECT_TURN, SUSPECT_DELAY) for number in range(1, len(spare) + 1))
        delays = [SUSPECT_DELAY if is_busy else turn for turn in turns]
        endings = [Ending(claim, Released(why, delay), 0.0) for claim, delay in zip(spare, delays, strict=True)]
        try:
            settled = await self._app.store.arun(leases.settle(endings, now=self._app.now()))
        except StoreError:
            for claim in claims:
                self._attempts.give_back(claim)
            return ()
        self._turn_at = self._clock.monotonic() + max(delays).total_seconds()
        emit_settled(endings, settled)
        return [claim for claim in claims if claim not in spare]

    async def _rest(self, known: timedelta | None) -> None:
        net = timedelta(seconds=self._fleet.interval(NET.total_seconds(), LONGEST))
        rest = net if known is None else min(known, net)
        self._is_poll = False
        # Not all idle workers claim at the instant at which the next job is due.
        late = self._fleet.delay(self._clock.now() + rest) if rest > timedelta(0) else 0.0
        seconds = rest.total_seconds() + late
        if seconds <= 0 or self._attempts.closed:
            # Claimed jobs start before the next claim is prepared.
            await self._clock.asleep(0)
            return
        self._idle.set()
        try:
            async with asyncio.timeout(seconds):
                await self._attempts.claim_again.wait()
        except TimeoutError:
            # Nothing is known to be due.
            self._is_poll = rest in {net, SCHEDULES}
        finally:
            self._idle.clear()


def report_held(held: Sequence[tuple[Settlement, str]]) -> None:
    """Log and emit that jobs were held."""
    for settlement, trace in held:
        # A held job is examined again and again; one line in the log is enough.
        if is_first_hold(settlement):
            log_undecided(settlement, trace)
    if held:
        emit_moved([settlement for settlement, _ in held])
