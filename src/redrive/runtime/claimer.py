"""Takes due jobs, as many as there are free slots; rests until there is a reason to look again.

One claimer serves the whole process: contenders for the same rows only get in each other's way. It takes no more than
can start at once, so that a crash costs the jobs that were running and not their neighbours in a queue in memory.

A job whose last two leases were both lost is a *suspect*: one more crash, and it is presumed to kill its workers. But
a crash is charged to all that the worker was running, and nobody knows which of them it was. So suspects do not run
together: a worker runs one of them at a time and gives the others back before that one starts. The one that kills dies
alone, and its former neighbours find out that they are healthy (conformance D19).

Most claims begin where the last one found something: at the floors of `redrive.stores.operations.floors`, which says
what they are for, and why nothing gets lost below them. Now and then a claim looks without them, and the claimer does
not rest longer than until then.

Every few seconds it looks whether the schema of the database has changed. Where a newer redrive has migrated it to one
that this worker cannot work with, it claims nothing until that has changed, and says so in the log.

Reasons to look again: the notifier saw a change, the settler writes what has ended, the next job known to be due is
due, or `NET` has passed, because every notification can get lost.

The worker claims jobs of the tasks that it has and leaves the others where they are, for workers that have them.

A claim whose reply is lost leaves leases behind that nobody knows, under a worker that lives: nobody would ever take
them from it. The keeper sees such leases; but it also sees those of a claim that is just coming in. Between two claims
the claimer can tell the one from the other, and gives back what it did not take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from redrive.app.app import App
from redrive.app.events import emit_moved, emit_settled
from redrive.clock import Clock
from redrive.engine.lease import POISON_LIMIT, UNKNOWN_TASK_DELAY
from redrive.engine.outcome import Released
from redrive.engine.records import Claim
from redrive.engine.transition import Transition
from redrive.errors import StoreError
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import logger
from redrive.runtime import failpoints
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import log_undecided
from redrive.stores.operations import floors, leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.limited_queues import QueueScan

__all__ = ["Claimer", "suspect"]

log = logger("redrive.worker")

NET = timedelta(seconds=1)

SCHEMA_LOOK = 10.0
"""Seconds after which the claimer looks again whether the schema of the database is one that it can work with."""

SUSPECT_DELAY = timedelta(seconds=1)
"""How long a suspect waits before it may ask again whether it is its turn."""


def suspect(claim: Claim) -> bool:
    """Would one more crash of this job be its last?"""
    return claim.crashes >= POISON_LIMIT - 1


def _is_first_look(held: Transition) -> bool:
    assert held.scheduled_at is not None  # noqa: S101 - it waits for its next look
    return held.unreadable_at is not None and held.scheduled_at - held.unreadable_at <= UNKNOWN_TASK_DELAY


class Claimer:
    """Takes jobs.

    Args:
        app: whose store.
        clock: to rest by while the store is away.
        worker_id: for whom; asked each time, since a worker may have to register again.
        free: how many slots are free.
        start: called with each claim.
        forgotten: called when the store does not know the worker any more; registers it again.
        give_back: called with each claim that arrives after `stop`; its attempt never starts.
        suspect_runs: does the worker run a suspect?
        running: the leases that the worker knows.
        queues: from which queues; None means all.
        idle: set while the claimer waits for news: it has free slots, and nothing is due.
        extended: called after a claim, which is a heartbeat too, with the instant of the clock before it was sent.
    """

    def __init__(  # noqa: PLR0913 - its neighbours
        self,
        app: App,
        clock: Clock,
        *,
        worker_id: Callable[[], int],
        free: Callable[[], int],
        start: Callable[[Claim], None],
        forgotten: Callable[[], Awaitable[None]],
        give_back: Callable[[Claim], None],
        suspect_runs: Callable[[], bool],
        running: Callable[[], frozenset[int]] = frozenset,
        queues: Sequence[str] | None,
        idle: asyncio.Event | None = None,
        extended: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._extended = extended
        self._app = app
        self._clock = clock
        self._worker_id = worker_id
        self._free = free
        self._start = start
        self._forgotten = forgotten
        self._give_back = give_back
        self._suspect_runs = suspect_runs
        self._running = running
        self._doubt = False
        self._stopped = False
        self._queues = queues
        self._walks: tuple[QueueScan, ...] = ()
        self._floors: tuple[floors.LaneCursor, ...] = ()
        self._whole_at = float("-inf")  # by the monotonic clock: when to look without floors again
        self._fits_until = float("-inf")  # by the monotonic clock: when to look at the schema again
        self._ahead = 0
        self._wake = asyncio.Event()
        self._idle = idle or asyncio.Event()

    def wake(self) -> None:
        """Give a reason to look again."""
        self._wake.set()

    def doubt(self) -> None:
        """Look soon whether the worker holds leases that it does not know."""
        self._doubt = True
        self._wake.set()

    def stop(self) -> None:
        """Take no more jobs; the duty ends when a claim that is under way has been given back."""
        self._stopped = True
        self._wake.set()

    @property
    def duty(self) -> Duty:
        """Take jobs until stopped."""
        return Duty("claiming", self._step)

    async def _step(self) -> float | None:
        if self._stopped:
            return None
        self._wake.clear()
        free = self._free()
        if free <= 0 and not self._doubt:
            await self._wake.wait()
            return 0.0
        await self._forsake()
        known = await self._claim(free) if free > 0 else None
        await self._rest(known)
        return 0.0

    async def _forsake(self) -> None:
        """Give back what is held and not known. No claim is under way here, so it is not just coming in."""
        if not self._doubt:
            return
        unknown = await self._app.store.arun(workers.held(self._worker_id())) - self._running()
        if unknown:
            given = await self._app.store.arun(workers.forsake(self._worker_id(), unknown, now=self._app.now()))
            log.warning("the reply to a claim was lost; %d jobs are given back", len(given))
        self._doubt = False

    async def _check_schema(self, at: float) -> None:
        """Check that no newer redrive has migrated the database to what this worker cannot work with."""
        ahead = await self._app.store.acheck_schema()
        if ahead > self._ahead:
            log.warning(
                "the database was migrated by a newer redrive; this worker goes on, since it can work with that"
            )
        self._fits_until, self._ahead = at + SCHEMA_LOOK, ahead

    async def _claim(self, free: int) -> timedelta | None:
        began = self._clock.monotonic()
        if began >= self._fits_until:
            await self._check_schema(began)
            began = self._clock.monotonic()
        known = self._floors if began < self._whole_at else ()
        claimed = await self._app.store.arun(
            leases.claim(
                self._worker_id(),
                free,
                lease_for=self._app.terms.lease_for,
                queues=self._queues,
                tasks=self._app.served(),
                walks=self._walks,
                floors=known,
                now=self._app.now(),
            )
        )
        self._walks = claimed.walks
        self._floors = floors.raised(self._floors, claimed.claims)
        ended = self._clock.monotonic()
        if not known:
            self._whole_at = ended + min(floors.PATIENCE * (ended - began), floors.FULL_LOOK.total_seconds())
        if not claimed.known:
            await self._forgotten()
            return timedelta(0)
        for held, trace in claimed.held:
            if _is_first_look(held):  # the job is looked at again and again; once is enough for the log
                log_undecided(held, trace)
        if claimed.held and LISTENERS:
            emit_moved([held for held, _ in claimed.held])
        if claimed.claims:
            failpoints.at("after_claim")
            self._extended(began)
        claims = await self._one_suspect(claimed.claims)
        take = self._give_back if self._stopped else self._start
        for claim in claims:
            take(claim)
        if not known:
            return claimed.rest_for
        # What is below the floors is due, perhaps: there is a reason to look when it is time to look without them.
        look = timedelta(seconds=max(self._whole_at - ended, 0.0))
        return look if claimed.rest_for is None else min(claimed.rest_for, look)

    async def _one_suspect(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Give back all suspects but the first, or all if one is running; see the module. Answer the rest."""
        suspects = [claim for claim in claims if suspect(claim)]
        spare = suspects if self._suspect_runs() else suspects[1:]
        if not spare:
            return claims
        out = Released("its worker was lost twice while it ran; it waits for its turn to run alone", SUSPECT_DELAY)
        endings = [Ending(claim, out, 0.0) for claim in spare]
        try:
            settled = await self._app.store.arun(leases.settle(endings, now=self._app.now()))
        except StoreError:
            for claim in claims:
                self._give_back(claim)
            return ()
        if LISTENERS:
            emit_settled(endings, settled)
        return [claim for claim in claims if claim not in spare]

    async def _rest(self, known: timedelta | None) -> None:
        seconds = (NET if known is None else min(known, NET)).total_seconds()
        if seconds <= 0 or self._stopped:
            await self._clock.asleep(0)  # what was taken starts before the next look is prepared
            return
        self._idle.set()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._idle.clear()
