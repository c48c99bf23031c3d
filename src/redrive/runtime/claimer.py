"""A background duty that claims due jobs, as many as there are free slots.

One claimer serves the whole process, because several would only compete for the same rows. It claims no more than can
start at once, so that a crash costs the jobs that were running and not those in a queue in memory. It claims again when
the notifier saw a change, when an attempt has ended, when the next known job is due, and after `NET`, because every
notification can get lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from redrive.app.app import App
from redrive.app.events import emit_moved, emit_settled, is_first_hold
from redrive.clock import Clock
from redrive.engine.origin import is_feeder
from redrive.engine.outcome import Released
from redrive.engine.records import Claim
from redrive.errors import StoreError
from redrive.runtime import failpoints, log
from redrive.runtime.attempts import Attempts, is_suspect
from redrive.runtime.quota import Quota
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import log_undecided
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.limited_queues import QueueScan

# The longest rest between two claims while slots are free.
NET = timedelta(seconds=1)

# The rest of a worker that ends when no job is due, while the due crons have not started their jobs.
SCHEDULES = timedelta(milliseconds=20)

# Seconds between two checks of the schema.
SCHEMA_CHECK = 10.0

# The delay of a suspect that is given back because another one runs.
SUSPECT_DELAY = timedelta(seconds=1)


class Claimer:
    """The background duty that claims due jobs.

    ``idle`` is set while the claimer waits with free slots and nothing is due.
    """

    def __init__(  # noqa: PLR0913 - the parts of a worker that it connects
        self,
        app: App,
        clock: Clock,
        registration: WorkerRegistration,
        attempts: Attempts,
        *,
        idle: asyncio.Event | None = None,
        quota: Quota | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._registration = registration
        self._attempts = attempts
        self._idle = idle or asyncio.Event()
        self._quota = quota or Quota()
        self._stopped = self._empty = False
        self._scans: tuple[QueueScan, ...] = ()
        self._cursors: tuple[leases.LaneCursor, ...] = ()
        # Instants of the monotonic clock: the next look without cursors, and the next check of the schema.
        self._whole_at = float("-inf")
        self._fits_until = float("-inf")
        self._ahead = 0
        self.duty = Duty("claiming", self._step)

    def stop(self) -> None:
        """Claim nothing more; the duty ends when a claim that is under way has been given back."""
        self._stopped = True
        self._attempts.claim_again.set()

    async def _step(self) -> float | None:
        if self._stopped:
            return None
        self._attempts.claim_again.clear()
        quiet = self._attempts.quiet
        if self._quota.used and quiet:
            self._quota.ended("it has run as many jobs as it should")
            return None
        free = self._quota.room(self._attempts.free)
        if free <= 0 and not self._attempts.doubted:
            await self._attempts.claim_again.wait()
            return 0.0
        await self._return_unknown()
        known = await self._claim(free, whole=quiet and self._quota.until_empty) if free > 0 else None
        if quiet and self._quota.until_empty and self._empty:
            if self._quota.scheduled():
                self._quota.ended("no job is due")
                return None
            known = SCHEDULES
        await self._rest(known)
        return 0.0

    # If the reply to a claim is lost, the database holds leases that the worker does not know, and no other worker may
    # take them while this one lives. The heartbeat sees such leases, but also those of a claim that is under way.
    # Between two claims the claimer can distinguish them, and gives back what the worker does not run.
    async def _return_unknown(self) -> None:
        """Give back leases that the worker does not know. No claim is under way here."""
        if not self._attempts.doubted:
            return
        worker = self._registration.id
        unknown = await self._app.store.arun(workers.held(worker)) - self._attempts.held()
        if unknown:
            given = await self._app.store.arun(workers.give_back(worker, unknown, now=self._app.now()))
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

    async def _claim(self, free: int, *, whole: bool = False) -> timedelta | None:
        began = self._clock.monotonic()
        if began >= self._fits_until:
            await self._check_schema(began)
            began = self._clock.monotonic()
        known = self._cursors if began < self._whole_at and not whole else ()
        claimed = await self._app.store.arun(
            leases.claim(
                self._registration.id,
                free,
                lease_for=self._app.terms.lease_for,
                queues=self._registration.queues,
                excluded=self._registration.excluded,
                tasks=self._app.served(),
                scans=self._scans,
                cursors=known,
                now=self._app.now(),
            )
        )
        self._scans = claimed.scans
        self._empty = claimed.known and not claimed.claims and not claimed.held and not claimed.soon
        self._cursors = leases.advanced(self._cursors, claimed.claims)
        ended = self._clock.monotonic()
        if not known:
            self._whole_at = ended + min(leases.PATIENCE * (ended - began), leases.FULL_SCAN_AFTER.total_seconds())
        if not claimed.known:
            await self._registration.renew()
            return timedelta(0)
        for held, trace in claimed.held:
            # A held job is looked at again and again; one line in the log is enough.
            if is_first_hold(held):
                log_undecided(held, trace)
        if claimed.held:
            emit_moved([held for held, _ in claimed.held])
        if claimed.claims:
            failpoints.at("after_claim")
            self._registration.extended(began)
        claims = await self._one_suspect(claimed.claims)
        take = self._attempts.give_back if self._stopped else self._attempts.start
        self._quota.took(len(claims) - sum(claim.origin is not None and is_feeder(claim.origin) for claim in claims))
        for claim in claims:
            take(claim, claimed.runs.get(claim.id))
        if not known:
            return claimed.rest_for
        # Jobs below the cursors may be due, so the claimer looks again when it is time to look without floors.
        look = timedelta(seconds=max(self._whole_at - ended, 0.0))
        return look if claimed.rest_for is None else min(claimed.rest_for, look)

    # A job with two lost leases in a row is a *suspect*: one more crash, and it is presumed to kill its workers. A
    # crash counts against every job that the worker was running, and no one can see which of them was the reason. So
    # suspects do not run together: a worker runs one of them at a time and gives the others back before that one
    # starts. The job that kills its worker dies alone, and the others prove that they are healthy.
    async def _one_suspect(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Give back all suspects but the first, or all if one is running. Return the other claims."""
        suspects = [claim for claim in claims if is_suspect(claim)]
        spare = suspects if self._attempts.runs_suspect else suspects[1:]
        if not spare:
            return claims
        out = Released("its worker was lost twice while it ran; it waits for its turn to run alone", SUSPECT_DELAY)
        endings = [Ending(claim, out, 0.0) for claim in spare]
        try:
            settled = await self._app.store.arun(leases.settle(endings, now=self._app.now()))
        except StoreError:
            for claim in claims:
                self._attempts.give_back(claim)
            return ()
        emit_settled(endings, settled)
        return [claim for claim in claims if claim not in spare]

    async def _rest(self, known: timedelta | None) -> None:
        seconds = (NET if known is None else min(known, NET)).total_seconds()
        if seconds <= 0 or self._stopped:
            # Claimed jobs start before the next claim is prepared.
            await self._clock.asleep(0)
            return
        self._idle.set()
        try:
            async with asyncio.timeout(seconds):
                await self._attempts.claim_again.wait()
        except TimeoutError:
            return
        finally:
            self._idle.clear()
