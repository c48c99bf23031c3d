"""The worker: starts the background duties of a process and stops them in order.

The first stop *drains*: the worker claims nothing more, and running handlers may finish within ``shutdown_timeout``.
The second stop, or the end of that time, interrupts them: their jobs are given back, due at once, with nothing spent. A
job of a task with ``idempotent=False`` is not given back once its handler has begun, because it may have had its
effect: it is dead with the reason ``LOST_IN_FLIGHT``. Then the worker signs off, and its stop hooks run last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.arguments import checked_texts
from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigurationError, StoreUnreachable
from redrive.observe import WorkerStarted, WorkerStopped, emit
from redrive.runtime import log
from redrive.runtime.attempts import Attempts
from redrive.runtime.claimer import Claimer
from redrive.runtime.dead_workers import DeadWorkers, Rescuer
from redrive.runtime.heartbeat import Heartbeat
from redrive.runtime.hooks import HookRunner
from redrive.runtime.machines import MachineTurns
from redrive.runtime.notifier import Notifier
from redrive.runtime.pruner import Pruner
from redrive.runtime.quota import Quota
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.run_wakes import RunWakes, workflows
from redrive.runtime.scheduler import Scheduler
from redrive.runtime.supervision import Duty, Reporter, Supervisor, cancel, first
from redrive.runtime.timekeeper import Checkpointer, Timekeeper
from redrive.runtime.timeouts import Timeouts
from redrive.stores.urls import redacted

# Threads beyond the slots: a ``def`` handler that exceeds its timeout keeps its thread, but not its slot.
EXTRA_THREADS = 1_000

# Time for interrupted handlers to end, and for their jobs to be given back one by one.
LAST_WAIT = timedelta(seconds=5)

# Seconds that one try to sign off may take.
SIGN_OFF = 5.0

SIGN_OFF_TRIES = 2

# Characters.
LONGEST_NAME = 200


class Worker:
    """A process that runs the jobs of an app.

    Args:
        concurrency: attempts at once.
        queues: the queues to serve; None means all.
        exclude_queues: queues that it does not serve, of all the others.
        until_empty: end when no job is due that this worker could run, and none runs here. Jobs for later and retries
            that wait do not keep it; a queue that has used up its rate does.
        max_jobs: end after so many attempts, retries included; running ones finish. None for no bound.
        name: shown with the worker, by default ``host:pid``.
        shutdown_timeout: the time in which running handlers may finish after the first `stop`.

    Attributes:
        started: set when the start hooks of the app have run.

    Raises:
        ConfigurationError: a number is not positive, the name is empty, both ``queues`` and ``exclude_queues`` are
            given, or another argument is not of its type.
    """

    def __init__(  # noqa: PLR0913 - the options of a worker, by keyword
        self,
        app: App,
        *,
        concurrency: int = 50,
        queues: Sequence[str] | None = None,
        exclude_queues: Sequence[str] | None = None,
        until_empty: bool = False,
        max_jobs: int | None = None,
        name: str | None = None,
        shutdown_timeout: timedelta = timedelta(seconds=30),
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(app, App):
            raise ConfigurationError(f"Worker() takes the App whose jobs it runs, got {app!r}")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigurationError(f"a worker needs at least one slot, got concurrency={concurrency!r}")
        if max_jobs is not None and (isinstance(max_jobs, bool) or not isinstance(max_jobs, int) or max_jobs < 1):
            raise ConfigurationError(f"a worker runs at least one job, got max_jobs={max_jobs!r}; None is no bound")
        for option, names in (("queues", queues), ("exclude_queues", exclude_queues)):
            if names is not None:
                checked_texts(names, option)
        if queues and exclude_queues:
            raise ConfigurationError(
                "a worker serves the queues of queues=, or all but those of exclude_queues=; give it one of the two"
            )
        if name is not None and not (
            isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= LONGEST_NAME
        ):
            raise ConfigurationError(
                f"the name of a worker is a text of 1 to {LONGEST_NAME} printable characters, got {name!r}"
            )
        if not isinstance(shutdown_timeout, timedelta) or shutdown_timeout < timedelta(0):
            raise ConfigurationError(f"shutdown_timeout is a timedelta, zero or more, got {shutdown_timeout!r}")
        self._app = app
        self._concurrency = concurrency
        self._queues = queues
        self._excluded = exclude_queues or None
        self._name = name
        self._quota = Quota(until_empty, max_jobs, ended=self._end)
        self._shutdown_timeout = shutdown_timeout
        self._clock = clock or SystemClock()
        self._attempts: Attempts | None = None
        self._machines: MachineTurns | None = None
        self._wakes: RunWakes | None = None
        self._idle = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self.started = asyncio.Event()

    def stop(self) -> None:
        """Drain at the first call, interrupt at the second. Safe to call from a signal handler of the event loop."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        if self._attempts is not None:
            self._attempts.close()

    def _end(self, why: str) -> None:
        log.info("the worker ends: %s", why)
        self.stop()

    @property
    def abandoned(self) -> int:
        """The number of handlers that did not stop, after `run`."""
        return 0 if self._attempts is None else self._attempts.all

    async def run(self) -> None:
        """Run jobs until stopped.

        Raises:
            ConfigurationError: the app is incomplete.
            StartHookError: a start hook failed (`App.on_start`). Stop hooks have run.
            StoreError: the database cannot be opened.
        """
        self._app.check()
        hooks = HookRunner(self._app.hooks)
        try:
            await self._open(hooks)
            self.started.set()
            if not self._stopping.is_set():
                await self._run(hooks.resources)
        finally:
            await hooks.stop()

    async def _open(self, hooks: HookRunner) -> None:
        """Run the start hooks; a second stop ends the one that runs."""
        starting = asyncio.create_task(hooks.start())
        try:
            await first(starting, self._hurry.wait())
        finally:
            await cancel(starting)

    async def _run(self, resources: Mapping[str, Any]) -> None:
        pool = ThreadPoolExecutor(self._concurrency + EXTRA_THREADS, "redrive-handler")
        notifier = Notifier(self._app, self._clock, self._changed, self._idle)
        await notifier.open()
        try:
            registration = WorkerRegistration(
                self._app,
                concurrency=self._concurrency,
                queues=self._queues,
                excluded=self._excluded,
                name=self._name,
                lock_id=notifier.lock_id,
            )
            await registration.register()
            attempts = Attempts(
                self._app, self._clock, registration, concurrency=self._concurrency, pool=pool, resources=resources
            )
            self._attempts = attempts
            if self._stopping.is_set():
                attempts.close()
            self._emit_start(registration)
            await self._work(notifier, registration, attempts)
        finally:
            await self._app.finish()
            pool.shutdown(wait=False, cancel_futures=True)
            await notifier.close()
        emit(WorkerStopped(worker_id=registration.id, queues=registration.queues, abandoned=self.abandoned))

    def _emit_start(self, registration: WorkerRegistration) -> None:
        emit(
            WorkerStarted(
                worker_id=registration.id,
                queues=registration.queues,
                excluded=registration.excluded,
                concurrency=self._concurrency,
                worker=registration.name,
                database=redacted(self._app.url),
                tasks=tuple(sorted(self._app.tasks)),
            )
        )

    def _settled(self) -> None:
        """Look for what follows from ends of attempts of this worker."""
        if self._machines is not None:
            self._machines.settled()
        if self._wakes is not None:
            self._wakes.changed()

    def _changed(self) -> None:
        if self._attempts is not None:
            self._attempts.claim_again.set()
            self._attempts.feeders.wake()
        if self._machines is not None:
            self._machines.changed()
        if self._wakes is not None:
            self._wakes.changed()

    async def _work(self, notifier: Notifier, registration: WorkerRegistration, attempts: Attempts) -> None:
        reporter = Reporter(self._app, registration)
        registration.renewed = reporter.again
        supervisor = Supervisor(self._clock, reporter.failed, reporter.changed)
        heartbeat = Heartbeat(self._app, registration, attempts, supervisor)
        claimer = Claimer(self._app, self._clock, registration, attempts, idle=self._idle, quota=self._quota)
        crashed = False
        heartbeat.start()
        try:
            await self._serve(
                supervisor,
                claimer,
                attempts,
                [*self._duties(registration, attempts), notifier.duty, reporter.duty, attempts.feeders.duty],
            )
        except BaseException:
            crashed = not self._stopping.is_set()
            raise
        finally:
            heartbeat.stop()
            attempts.cancel_all()
            await self._sign_off(registration, attempts, crashed=crashed)

    def _duties(self, registration: WorkerRegistration, attempts: Attempts) -> list[Duty]:
        """Return the duties beside the heartbeat, claiming, settling, watching and reporting."""
        duties = [Rescuer(self._app).duty, DeadWorkers(self._app, registration).duty, Timeouts(self._app).duty]
        duties += [Pruner(self._app, self._clock, registration).duty]
        duties += [Checkpointer(self._app, self._clock).duty, Timekeeper(self._app).duty]
        scheduler = Scheduler(self._app)
        if self._app.machines.declared:
            machines = self._machines = MachineTurns(self._app, self._clock)
            duties.append(machines.duty)
        if workflows(self._app):
            wakes = self._wakes = RunWakes(self._app, self._clock, attempts.claim_again.set)
            duties.append(wakes.duty)
        attempts.after_settle = self._settled
        self._quota.scheduled = lambda: (
            scheduler.quiet
            and (self._machines is None or self._machines.quiet)
            and (self._wakes is None or self._wakes.quiet)
        )
        return [*duties, scheduler.duty]

    async def _serve(
        self, supervisor: Supervisor, claimer: Claimer, attempts: Attempts, others: Sequence[Duty]
    ) -> None:
        settling = asyncio.create_task(supervisor.run(attempts.settler.duty))
        claiming = asyncio.create_task(supervisor.run(claimer.duty))
        duties = [asyncio.create_task(supervisor.run(duty)) for duty in others]
        try:
            await first(self._stopping.wait(), claiming, *duties, settling)
            claimer.stop()
            attempts.ask_to_stop()
            await self._drain(attempts, claiming, settling)
        finally:
            await cancel(claiming, *duties, settling)
            await attempts.settler.close()

    async def _drain(self, attempts: Attempts, claiming: asyncio.Task[None], settling: asyncio.Task[None]) -> None:
        """Wait for the claim under way and for running handlers, then cancel them, then wait until all is settled."""
        if attempts.all:
            log.info("the worker finishes %d running job%s", attempts.all, "" if attempts.all == 1 else "s")
        emptied = asyncio.create_task(self._emptied(attempts, claiming))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._shutdown_timeout.total_seconds()):
                    await first(emptied, self._hurry.wait(), settling)
            attempts.cancel_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WAIT.total_seconds()):
                    await first(emptied, settling)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WAIT.total_seconds()):
                    await attempts.finish_hooks()
        finally:
            await cancel(emptied)
        if attempts.all:
            log.warning("%d handlers did not stop; their jobs are given back", attempts.all)

    async def _emptied(self, attempts: Attempts, claiming: asyncio.Task[None]) -> None:
        await first(claiming)
        while attempts.all or attempts.settler.waiting:
            await self._clock.asleep(0.005)

    async def _sign_off(self, registration: WorkerRegistration, attempts: Attempts, *, crashed: bool) -> None:
        async def leave() -> None:
            await attempts.settle_begun(crashed=crashed)
            await registration.leave()

        await in_time(leave, f"worker {registration.id} cannot sign off")


async def in_time(call: Callable[[], Awaitable[None]], what: str) -> None:
    """Call a function that asks the database, and once more without an answer: another connection may have one.

    The call may be cancelled at any point. Raise `StoreUnreachable` if no try ends in time.
    """
    for _ in range(SIGN_OFF_TRIES):
        try:
            async with asyncio.timeout(SIGN_OFF):
                return await call()
        except TimeoutError:
            log.warning("%s: the database has not answered within %g s", what, SIGN_OFF)
    raise StoreUnreachable(f"{what}: the database has not answered within {SIGN_OFF_TRIES} times {SIGN_OFF:g} s")
