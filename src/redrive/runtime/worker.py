"""Starts the duties of a worker process, and stops them in order.

Stopping once *drains*: no new claims, the running handlers may finish for as long as `shutdown_timeout`. Stopping
twice, or the end of that time, interrupts them: their jobs are given back, due at once, with nothing spent. A job of a
task with ``idempotent=False`` is not given back once its handler has begun, because it may have had its effect: it is
dead with the reason ``LOST_IN_FLIGHT``. The worker signs off last. ``ctx.should_stop`` is true from the first stop on.

Every attempt ends in exactly one of two ways: with an outcome, which is settled, or because its lease was lost. A
callback of its asyncio task sees to that where the attempt itself did not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from redrive.app.app import App
from redrive.app.context import Stop
from redrive.app.events import emit_lost, emit_settled
from redrive.app.failures import failed
from redrive.clock import Clock, SystemClock
from redrive.engine.outcome import Lost, Outcome, Released
from redrive.engine.records import Claim
from redrive.engine.settle import BAD_POLICY
from redrive.errors import ConfigurationError
from redrive.errors.foreign import trace
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import Block, logger
from redrive.runtime import process, rng
from redrive.runtime.checkpointer import Checkpointer
from redrive.runtime.claimer import Claimer, suspect
from redrive.runtime.dead_workers import DeadWorkers
from redrive.runtime.executor import Executor
from redrive.runtime.heartbeat import Heartbeat
from redrive.runtime.meaning import was_cancelled
from redrive.runtime.notifier import Notifier
from redrive.runtime.patience import in_time
from redrive.runtime.pruner import Pruner
from redrive.runtime.reporter import Reporter
from redrive.runtime.rescuer import Rescuer
from redrive.runtime.scheduler import Scheduler
from redrive.runtime.settler import Settler
from redrive.runtime.supervision import Duty, Supervisor, cancel, first
from redrive.runtime.timekeeper import Timekeeper
from redrive.runtime.timeouts import Timeouts
from redrive.runtime.tracing import emit_worker_started, emit_worker_stopped, kept, log_lost, log_undecided
from redrive.stores.operations import leases, queues, workers
from redrive.stores.operations.leases import Ending, Settled

__all__ = ["Worker"]

log = logger("redrive.worker")

OVERHANG = 1_000
"""Threads beyond the slots: a `def` handler that overstays its timeout keeps its thread, but not the next job's."""

LAST_WAIT = timedelta(seconds=5)
"""How long interrupted handlers may take to end, and their jobs to be given back one by one."""


class Worker:
    """Runs the jobs of an app in this process.

    Args:
        app: whose jobs.
        concurrency: attempts at once.
        queues: which queues; None means all.
        shutdown_timeout: how long running handlers may take to finish after the first `stop`.
        clock: to rest by.

    Raises:
        ConfigurationError: the concurrency is not positive.
    """

    def __init__(
        self,
        app: App,
        *,
        concurrency: int = 50,
        queues: Sequence[str] | None = None,
        shutdown_timeout: timedelta = timedelta(seconds=30),
        clock: Clock | None = None,
    ) -> None:
        if concurrency < 1:
            message = f"a worker needs at least one slot, got concurrency={concurrency}"
            raise ConfigurationError(message)
        self._app = app
        self._concurrency = concurrency
        self._queues = queues
        self._shutdown_timeout = shutdown_timeout
        self._clock = clock or SystemClock()
        self._id = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, Claim] = {}
        """Attempts that have not ended, by their leases."""
        self._begun: dict[int, Claim] = {}
        """Attempts whose handlers have begun and whose end is not written."""
        self._cut_off: dict[int, str] = {}
        """Leases of the attempts that this worker has cancelled, and what it did then."""
        self._ended = self._suspect = 0
        self._lost: set[int] = set()
        self._crashed = False
        self._idle = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Stop: the first time drain, the second time interrupt. Safe to call from a signal handler of the loop."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    @property
    def abandoned(self) -> int:
        """After `run`: how many handlers ignored that they were told to stop."""
        return len(self._running)

    async def run(self) -> None:
        """Run jobs until stopped.

        Raises:
            ConfigurationError: the app is not whole.
            StoreError: the database cannot be opened.
        """
        self._app.check()
        self._loop = asyncio.get_running_loop()
        self._notifier = Notifier(self._app, self._clock, self._wake, self._idle)
        await self._notifier.open()
        try:
            self._id = await self._register()
            if LISTENERS:
                emit_worker_started(self._id, self._queues, self._concurrency)
            await self._work()
        finally:
            await self._notifier.close()
        if LISTENERS:
            emit_worker_stopped(self._id, self._queues, self.abandoned)

    async def _work(self) -> None:
        pool = ThreadPoolExecutor(self._concurrency + OVERHANG, "redrive-handler")
        self._reporter = Reporter(self._app, lambda: self._id, self._queues)
        self._supervisor = Supervisor(self._clock, self._reporter.failed, self._reporter.changed)
        self._executor = Executor(self._app, pool, begins=self._begins, cut_off=self._cut_off.__contains__)
        running, threads = self._running.__len__, self._executor.threads
        self._settler = Settler(self._app, self._clock, running, self._on_settled, self._wake, threads=threads)
        self._keeper = Heartbeat(
            self._app,
            lambda: self._id,
            lambda: frozenset(self._running),
            self._on_lost,
            self._on_forgotten,
            unknown=self._on_unknown,
            unsaid=self._executor.unsaid,
            expired=self._on_expired,
            supervisor=self._supervisor,
        )
        self._claimer = Claimer(
            self._app,
            self._clock,
            worker_id=lambda: self._id,
            free=self._free,
            start=self._start,
            forgotten=self._register_again,
            give_back=self._give_back,
            suspect_runs=lambda: self._suspect in self._running,
            running=lambda: frozenset(self._running),
            queues=self._queues,
            idle=self._idle,
            extended=self._keeper.extended,
        )
        self._keeper.start()
        try:
            await self._serve()
        except BaseException:
            self._crashed = not self._stopping.is_set()
            raise
        finally:
            self._keeper.stop()
            for lease_id in self._running:
                self._cut(lease_id)
            pool.shutdown(wait=False, cancel_futures=True)
            await in_time(self._sign_off, f"worker {self._id} cannot sign off")

    async def _serve(self) -> None:
        run = self._supervisor.run
        settling = asyncio.create_task(run(self._settler.duty))
        claiming = asyncio.create_task(run(self._claimer.duty))
        duties = [asyncio.create_task(run(duty)) for duty in self._duties()]
        log.info("worker %d serves %s", self._id, ", ".join(self._queues) if self._queues else "all queues")
        try:
            await first(self._stopping.wait(), claiming, *duties, settling)
            self._claimer.stop()
            self._executor.stop(Stop.SHUTDOWN)
            await self._drain(claiming, settling)
        finally:
            await cancel(claiming, *duties, settling)
            await self._settler.close()

    def _duties(self) -> list[Duty]:
        """All that a worker does beside claiming, running and settling."""
        duties = [Rescuer(self._app).duty, DeadWorkers(self._app, lambda: self._id).duty, Timeouts(self._app).duty]
        duties += [self._notifier.duty, Pruner(self._app, self._clock, lambda: self._id).duty]
        duties += [Checkpointer(self._app, self._clock).duty, Timekeeper(self._app).duty]
        duties += [Scheduler(self._app).duty] if self._app.schedules else []
        return [*duties, self._reporter.duty]

    async def _drain(self, claiming: asyncio.Task[None], settling: asyncio.Task[None]) -> None:
        """Let the claim under way and running handlers finish; then take their slots away; then see all settled."""
        if self._running:
            log.info("worker %d finishes %d running jobs", self._id, len(self._running))
        emptied = asyncio.create_task(self._emptied(claiming))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._shutdown_timeout.total_seconds()):
                    await first(emptied, self._hurry.wait(), settling)
            for lease_id in list(self._running):
                self._cut(lease_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WAIT.total_seconds()):
                    await first(emptied, settling)
        finally:
            await cancel(emptied)
        if self._running:
            log.warning("%d handlers do not stop when told to; their jobs are given back", len(self._running))

    async def _settle_begun(self) -> None:
        """Settle the attempts whose handlers have begun and whose ends are not written, before the rest is given back.

        An attempt that has ended is settled as it ended, another one as cut off; or as lost, if it was not a stop that
        ended the worker, because the attempt may be what has done so. If the store refuses that, the worker must not
        give them back either: they are lost when its lease runs out.
        """
        ended = self._settler.unwritten
        cut: Outcome = Released(f"worker {self._id} shut down", started=True)
        if self._crashed:
            # What ends the event loop cancels every task, and not only the one that failed.
            cut = Lost(f"worker {self._id} failed")
            ended = tuple(each for each in ended if not was_cancelled(each.outcome))
        known = {ending.claim.lease_id: ending for ending in ended}
        endings = [known.get(lease_id) or Ending(claim, cut, rng.roll()) for lease_id, claim in self._begun.items()]
        if endings:
            settled = await self._app.store.arun(leases.settle(endings, now=self._app.now()))
            if LISTENERS:
                emit_settled(endings, settled)

    async def _sign_off(self) -> None:
        await self._settle_begun()
        await self._app.store.arun(workers.leave(self._id, now=self._app.now()))

    async def _emptied(self, claiming: asyncio.Task[None]) -> None:
        await first(claiming)
        while self._running or self._settler.waiting:
            await self._clock.asleep(0.005)

    # ---------------------------------------------------------------- one attempt

    def _free(self) -> int:
        """Return the number of slots without a handler; none once the worker stops.

        An attempt gives its slot back when it ends and not when its end has been written: so the next claim travels in
        the same transaction as the settle. No more ends than there are slots may be unwritten, if the store is slow.
        """
        if self._stopping.is_set():
            return 0
        held = len(self._running)
        return min(self._concurrency - held + self._ended, 2 * self._concurrency - held)

    def _wake(self) -> None:
        self._claimer.wake()

    def _start(self, claim: Claim) -> None:
        attempt = self._loop.create_task(self._attempt(claim))
        self._open[claim.lease_id] = claim
        self._running[claim.lease_id] = attempt
        attempt.add_done_callback(functools.partial(self._done, claim))
        if suspect(claim):
            self._suspect = claim.lease_id

    def _give_back(self, claim: Claim) -> None:
        self._settler.put(Ending(claim, Released(f"worker {self._id} shut down"), 0.0))

    def _begins(self, claim: Claim) -> None:
        self._begun[claim.lease_id] = claim

    async def _attempt(self, claim: Claim) -> None:
        try:
            outcome = await self._executor.run(claim)
        except asyncio.CancelledError:
            self._interrupted(claim)
            raise
        except GeneratorExit as error:
            # A future that carries it closes the handler and the executor's coroutines, which so cannot return.
            self._end(claim, failed(error))
        except BaseException as error:  # noqa: BLE001 - one that leaves this task may end the event loop
            self._failed(claim, error)
        else:
            self._end(claim, outcome)

    def _failed(self, claim: Claim, error: BaseException) -> None:
        """End an attempt whose outcome is unknown because the worker's own code raised an error."""
        if claim.lease_id in self._begun:
            self._end(claim, Lost(f"worker {self._id} itself failed during attempt {claim.attempt}"))
        else:
            self._end(claim, Released("the worker itself failed", timedelta(seconds=5)))
        log.error("job %d: the worker itself failed%s", claim.id, Block(trace(error)))

    def _done(self, claim: Claim, attempt: asyncio.Task[None]) -> None:
        """End an attempt that did not do so itself, such as one that was cancelled before its first step."""
        if claim.lease_id not in self._open:
            return
        error = None if attempt.cancelled() else attempt.exception()
        if error is None:
            self._interrupted(claim)
        else:
            self._failed(claim, error)

    def _cut(self, lease_id: int, what: str = "shut down") -> None:
        """Cancel an attempt."""
        self._cut_off[lease_id] = what
        self._running[lease_id].cancel()

    def _interrupted(self, claim: Claim) -> None:
        """End an attempt that was cancelled: by a stop, or because its lease is lost or ends."""
        if claim.lease_id in self._lost:
            self._lost.discard(claim.lease_id)
            self._forget(claim)
            self._begun.pop(claim.lease_id, None)
            self._running.pop(claim.lease_id, None)
            self._settler.let_go(claim.lease_id)
            if LISTENERS:
                emit_lost(claim)
            self._claimer.wake()
        else:
            why = f"worker {self._id} {self._cut_off.get(claim.lease_id, 'shut down')}"
            self._end(claim, Released(why, started=claim.lease_id in self._begun))

    def _forget(self, claim: Claim) -> None:
        self._open.pop(claim.lease_id, None)
        self._cut_off.pop(claim.lease_id, None)

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        self._forget(claim)
        self._ended += 1
        self._settler.put(Ending(claim, outcome, rng.roll(), kept() if LISTENERS else None))

    def _on_settled(self, endings: Sequence[Ending], settled: Settled) -> None:
        for ending in endings:
            self._begun.pop(ending.claim.lease_id, None)
            if self._running.pop(ending.claim.lease_id, None) is not None:
                self._ended -= 1
        if settled.lost or self._lost:
            self._lost.difference_update(ending.claim.lease_id for ending in endings)
            log_lost(endings, settled)
        if LISTENERS:
            emit_settled(endings, settled)
        for moved in settled.moved:
            if moved.reason == BAD_POLICY:
                log_undecided(moved)
            elif moved.note:
                log.info("job %d: %s: %s", moved.job_id, moved.error or moved.event, moved.note)
        self._claimer.wake()

    # ---------------------------------------------------------------- from the keeper's threads

    def _on_lost(self, lease_ids: frozenset[int]) -> None:
        # At once, because a handler may keep the loop busy, and be just the one that looks at ctx.should_stop.
        lease_ids = frozenset(each for each in lease_ids if not self._executor.ends_by_itself(each))
        self._executor.stop(Stop.LOST, lease_ids)
        self._loop.call_soon_threadsafe(self._interrupt, lease_ids)

    def _interrupt(self, lease_ids: frozenset[int]) -> None:
        for lease_id in lease_ids:
            attempt = self._running.get(lease_id)
            if attempt is not None and not attempt.done():
                log.warning("lease %d was lost; its handler is stopped", lease_id)
                self._lost.add(lease_id)
                self._cut(lease_id)

    def _on_expired(self) -> None:
        # An attempt that must not run twice goes on: no other worker may start it, and the lease may be extended yet.
        ends = {each for each, claim in list(self._open.items()) if claim.policy.idempotent is not False}
        ends = {each for each in ends if each not in self._cut_off and not self._executor.ends_by_itself(each)}
        if ends:
            self._executor.stop(Stop.LOST, ends)
            self._loop.call_soon_threadsafe(self._give_up, ends)

    def _give_up(self, lease_ids: set[int]) -> None:
        for lease_id in lease_ids & self._open.keys():
            log.warning("lease %d ends, since no heartbeat was written; its handler is stopped", lease_id)
            self._cut(lease_id, "could not write a heartbeat in time")

    def _on_forgotten(self) -> None:
        asyncio.run_coroutine_threadsafe(self._register_again(), self._loop)

    def _on_unknown(self) -> None:
        self._loop.call_soon_threadsafe(self._claimer.doubt)

    async def _register_again(self) -> None:
        log.warning("the store has forgotten worker %d; registering again", self._id)
        self._id = await self._register()
        self._reporter.again()

    async def _register(self) -> int:
        if self._app.declared:
            await self._app.store.arun(queues.declare(self._app.declared, now=self._app.now()))
        return await self._app.store.arun(
            workers.register(
                f"{socket.gethostname()}:{os.getpid()}",
                concurrency=self._concurrency,
                lease_for=self._app.terms.lease_for,
                queues=self._queues,
                tasks=self._app.served(),
                process=process.present(),
                lock_id=self._notifier.lock_id,
                now=self._app.now(),
            )
        )
