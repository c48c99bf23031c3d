"""The worker: starts the background duties of a process and stops them in order.

The first stop *drains*: the worker claims nothing more, and running handlers may finish within ``shutdown_timeout``.
The second stop, or the end of that time, interrupts them: their jobs are given back, due at once, with nothing spent. A
job of a task with ``idempotent=False`` is not given back once its handler has begun, because it may have had its
effect: it is dead with the reason ``LOST_IN_FLIGHT``. Then the worker signs off, and its stop hooks run last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any

from redrive.app.app import App
from redrive.app.arguments import checked_texts
from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigurationError, StoreBusy, StoreError, StoreOutcomeUnknown, StoreUnreachable
from redrive.observe import WorkerStarted, WorkerStopped, emit
from redrive.runtime import log
from redrive.runtime.attempts import Attempts
from redrive.runtime.bulk import BulkRunner
from redrive.runtime.claimer import Claimer, Quota, Together
from redrive.runtime.dead_workers import DeadWorkers, Rescuer
from redrive.runtime.feeders import Balancer
from redrive.runtime.fleet import SOON, Fleet
from redrive.runtime.heartbeat import Heartbeat
from redrive.runtime.hooks import HookRunner
from redrive.runtime.machines import MachineTurns
from redrive.runtime.notifier import Notifier
from redrive.runtime.pruner import Pruner
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.renewal import Renewal
from redrive.runtime.run_wakes import RunWakes, workflows
from redrive.runtime.scheduler import Scheduler
from redrive.runtime.supervision import Duty, Reporter, Supervisor, cancel, first, rest
from redrive.runtime.threads import ThreadPool
from redrive.runtime.timekeeper import Checkpointer, Timekeeper
from redrive.runtime.timeouts import Timeouts
from redrive.stores.store import MAY_WAIT
from redrive.stores.urls import located

if TYPE_CHECKING:
    from redrive.runtime.processes import Processes

# Threads beyond the slots: a ``def`` handler that exceeds its timeout keeps its thread, but not its slot.
EXTRA_THREADS = 1_000

# Time for interrupted handlers to end, and for their jobs to be given back one by one.
LAST_WAIT = timedelta(seconds=5)

# Seconds that one try to sign off may take.
SIGN_OFF = 5.0

SIGN_OFF_TRIES = 2

# Seconds after which the polls begin, if the first claim has had no answer.
FIRST_CLAIM = 1.0

# Seconds between two tries to reach the database at the start, at most.
LONGEST_REST = 1.0

# Characters.
LONGEST_NAME = 200


class Worker:
    """A process that runs the jobs of an app.

    Args:
        concurrency: handlers at once. A worker with short handlers claims more jobs than that.
        queues: the queues to serve; None means all.
        exclude_queues: queues that it does not serve, of all the others.
        until_empty: end when no job is due that this worker could run, and none runs here. Jobs for later and retries
            that wait do not keep it; a queue that has used up its rate does.
        max_jobs: end after so many attempts, retries included; running ones finish. None for no bound.
        name: shown with the worker, by default ``host:pid``.
        shutdown_timeout: the time in which running handlers may finish after the first `stop`.
        wait: the time in which the database may be unreachable, or read only, at the start, as during a failover; the
            worker tries again until then. Zero for one try.
        build: names the code, such as a version or a commit; by default the environment variable ``REDRIVE_BUILD``, or
            else the version of the installed distribution that has the app.
        processes: the largest number of child processes for tasks with ``executor="process"``, each of which runs one
            handler at a time; by default one for each processor that this process may use.
        linger: a workflow with named calls (`Flow.named`) keeps its worker for a wait that is shorter than this.

    Attributes:
        started: set when the start hooks of the app have run.
        registered: set when its row is in the database.
        stopping: set by the first `stop`.

    Raises:
        ConfigurationError: a number is not positive, the name is empty, both ``queues`` and ``exclude_queues`` are
            given, or another argument is not of its type.
    """

    # The next poll after a notification, until it is this worker's turn.
    _later: asyncio.TimerHandle | None = None

    def __init__(
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
        wait: timedelta = timedelta(seconds=60),
        processes: int | None = None,
        build: str | None = None,
        linger: timedelta = timedelta(seconds=1),
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(app, App):
            raise ConfigurationError(f"Worker() takes the App whose jobs it runs, got {app!r}")
        _check_counts(concurrency, max_jobs, processes)
        for option, names in (("queues", queues), ("exclude_queues", exclude_queues)):
            if names is not None:
                checked_texts(names, option)
        if queues and exclude_queues:
            raise ConfigurationError(
                "a worker serves the queues of queues=, or all but those of exclude_queues=; give it one of the two"
            )
        _check_name(name)
        _check_name(build, "the build of a worker")
        _check_span(shutdown_timeout, "shutdown_timeout")
        _check_span(wait, "wait")
        _check_span(linger, "linger")
        self._app = app
        self._concurrency, self._processes = concurrency, processes
        self._queues, self._excluded = queues, exclude_queues or None
        self._name, self._build = name, build
        self._quota = Quota(until_empty=until_empty, left=max_jobs, ended=self._end)
        self._shutdown_timeout, self._wait, self._linger = shutdown_timeout, wait, linger
        self._waits_until = float("-inf")
        self._others_work: Callable[[], bool] = lambda: False
        self._clock = clock or SystemClock()
        self._attempts: Attempts | None = None
        self._registration: WorkerRegistration | None = None
        self._machines: MachineTurns | None = None
        self._wakes: RunWakes | None = None
        self._fleet = Fleet()
        self._idle = asyncio.Event()
        self.stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self.started, self.registered = asyncio.Event(), asyncio.Event()

    def stop(self) -> None:
        """Drain at the first call, interrupt at the second. Safe to call from a signal handler of the event loop."""
        if self.stopping.is_set():
            self._hurry.set()
        self.stopping.set()
        if self._attempts is not None:
            self._attempts.close()

    def _end(self, why: str) -> None:
        log.info("the worker ends: %s", why)
        self.stop()

    def belongs_to(self, together: Together, others_work: Callable[[], bool]) -> None:
        """Make it one of several workers of a process, before it runs.

        Args:
            together: with it, ``until_empty`` ends this worker when no job is due in any app.
            others_work: whether a worker of the process works; then this one waits for its database without a limit.
        """
        together.join(self._quota)
        self._quota.together = together
        # A process that ends when no job is due must not wait for ever.
        if not self._quota.until_empty:
            self._others_work = others_work

    @property
    def abandoned(self) -> int:
        """The number of handlers that did not stop, after `run`."""
        return 0 if self._attempts is None else self._attempts.all

    @property
    def lease_ends_at(self) -> float:
        """The end of the lease of this worker, an instant of the monotonic clock; minus infinity without a lease."""
        return float("-inf") if self._registration is None else self._registration.ends_at

    async def run(self) -> None:
        """Run jobs until stopped.

        Raises:
            ConfigurationError: the app is incomplete.
            StartHookError: a start hook failed (`App.on_start`). Stop hooks have run.
            StoreUnreachable: the database could not be reached, or did not write, for the time of ``wait``.
            StoreBusy: it was locked for that time, or its commits waited for a standby.
            StoreError: the database cannot be opened.
        """
        self._waits_until = self._clock.monotonic() + self._wait.total_seconds()
        if not await self._patiently(self._app.aopen):
            return
        hooks = HookRunner(self._app.hooks)
        try:
            await self._open(hooks)
            self.started.set()
            if not self.stopping.is_set():
                await self._run(hooks.resources)
        finally:
            await hooks.stop()

    async def _patiently(self, step: Callable[[], Awaitable[object]]) -> bool:
        """Take a step of the start, again while the database is away or locked; return False if it is stopped."""
        failures, logged = 0, ("", False)
        while True:
            try:
                await step()
            except (StoreBusy, StoreUnreachable, StoreOutcomeUnknown) as error:
                left = inf if self._others_work() else self._waits_until - self._clock.monotonic()
                if self.stopping.is_set():
                    return False
                if left <= 0:
                    raise
                if logged != (str(error), left == inf):
                    logged = (str(error), left == inf)
                    limit = "" if left == inf else f", at most {left:.0f} s more"
                    log.warning("the worker waits for its database%s: %s", limit, error)
                failures += 1
                await first(self._clock.asleep(min(rest(failures), LONGEST_REST, left)), self.stopping.wait())
            else:
                if failures:
                    log.info("the database can be reached")
                return True

    async def _open(self, hooks: HookRunner) -> None:
        """Run the start hooks; a second stop ends the one that runs."""
        starting = asyncio.create_task(hooks.start())
        try:
            await first(starting, self._hurry.wait())
        finally:
            await cancel(starting)

    async def _run(self, resources: Mapping[str, Any]) -> None:
        async with self._children() as processes:
            await self._run_with(resources, processes)

    @contextlib.asynccontextmanager
    async def _children(self) -> AsyncIterator[Processes | None]:
        """Start the first child process, if a task needs one, and end all of them at the end of the block."""
        if all(task.traits.executor == "thread" for task in self._app.tasks.values()):
            yield None
            return
        # Most workers have no such task.
        from redrive.runtime.processes import Processes, processors

        processes = Processes(self._app, self._processes or processors())
        try:
            await processes.open()
            yield processes
        finally:
            await processes.close()

    async def _run_with(self, resources: Mapping[str, Any], processes: Processes | None) -> None:
        pool = ThreadPool(self._concurrency + EXTRA_THREADS, "redrive-handler")
        notifier = Notifier(self._app, self._clock, self._changed, idle=self._idle, again=self._looks_soon)
        if not await self._patiently(notifier.open):
            return
        try:
            # It needs the code of the app, which is loaded by now.
            from redrive.runtime.build import build_of

            registration = WorkerRegistration(
                self._app,
                concurrency=self._concurrency,
                queues=self._queues,
                excluded=self._excluded,
                name=self._name,
                lock_id=notifier.lock_id,
                build=build_of(self._app, self._build),
            )
            if not await self._patiently(registration.register):
                return
            self._registration = registration
            self.registered.set()
            attempts = Attempts(
                self._app,
                self._clock,
                registration,
                concurrency=self._concurrency,
                pool=pool,
                resources=resources,
                processes=processes,
                linger=self._linger.total_seconds(),
            )
            self._attempts = attempts
            if self.stopping.is_set():
                attempts.close()
            self._emit_start(registration)
            await self._work(notifier, registration, attempts)
        finally:
            await self._app.finish()
            pool.close()
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
                database=located(self._app.url),
                tasks=tuple(sorted(self._app.tasks)),
            )
        )
        if not self._app.tasks:
            log.warning(
                "the app has no tasks, so this worker runs no job: name the modules of the tasks in App(include=[...])"
            )

    def _settled(self) -> None:
        """Have the duties poll for what follows from ends of attempts of this worker."""
        if self._machines is not None:
            self._machines.settled()
        if self._wakes is not None:
            self._wakes.changed()

    def _changed(self) -> None:
        """Have the duties poll, when it is this worker's turn, because another process has changed the database."""
        if self._attempts is not None:
            # A shard of a topic has one feeder in all workers.
            self._attempts.feeders.wake()
        delay = self._fleet.delay(self._clock.now())
        if not delay:
            self._look()
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + delay
        # The turn of an earlier notification may come later than that of this one.
        if self._later is None or at < self._later.when():
            if self._later is not None:
                self._later.cancel()
            self._later = loop.call_at(at, self._look)

    def _looks_soon(self) -> bool:
        """Return True if the next poll may come before all transactions of this moment are committed."""
        if self._fleet.delay(self._clock.now()) < SOON:
            return True
        return self._later is not None and self._later.when() < asyncio.get_running_loop().time() + SOON

    def _look(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._attempts is not None:
            self._attempts.claim_again.set()
        if self._machines is not None:
            self._machines.changed()
        if self._wakes is not None:
            self._wakes.changed()

    async def _work(self, notifier: Notifier, registration: WorkerRegistration, attempts: Attempts) -> None:
        reporter = Reporter(self._app, registration)
        supervisor = Supervisor(self._clock, reporter.failed, reporter.changed, attempts.outage)
        heartbeat = Heartbeat(self._app, registration, attempts, supervisor)
        claimer = Claimer(
            self._app, self._clock, registration, attempts, idle=self._idle, quota=self._quota, fleet=self._fleet
        )
        crashed = False
        duties = self._duties(registration, attempts, reporter, notifier)
        renewal = Renewal(self._app, registration, attempts, self._rescuer.wait)
        heartbeat.start()
        try:
            await self._serve(
                supervisor,
                claimer,
                attempts,
                duties,
                [
                    renewal.duty,
                    *attempts.steps.duties,
                    notifier.duty,
                    reporter.duty,
                    attempts.feeders.duty,
                    attempts.ahead.duty,
                ],
            )
        except BaseException:
            crashed = not self.stopping.is_set()
            raise
        finally:
            renewal.close()
            heartbeat.stop()
            attempts.cancel_all()
            await self._sign_off(registration, attempts, crashed=crashed)

    def _duties(
        self, registration: WorkerRegistration, attempts: Attempts, reporter: Reporter, notifier: Notifier
    ) -> list[Duty]:
        """Return the duties beside the heartbeat, claiming, settling, watching and reporting."""
        fleet, counted = self._fleet, attempts.counting.add
        self._rescuer = Rescuer(self._app, fleet, counted)
        dead = DeadWorkers(self._app, registration, fleet, counted, session=lambda: notifier.since)
        duties = [self._rescuer.duty, dead.duty]
        duties += [Timeouts(self._app, fleet, counted).duty, attempts.counting.duty]
        duties += [Pruner(self._app, self._clock, registration).duty, BulkRunner(self._app, fleet).duty]
        duties += [Checkpointer(self._app, self._clock).duty, Timekeeper(self._app).duty]
        scheduler = Scheduler(self._app, fleet)

        def renewed() -> None:
            reporter.again()
            scheduler.again()

        registration.renewed = renewed
        if self._app.machines.declared:
            machines = self._machines = MachineTurns(self._app, self._clock, fleet)
            duties.append(machines.duty)
        if workflows(self._app):
            wakes = self._wakes = RunWakes(self._app, self._clock, attempts.claim_again.set, fleet)
            duties.append(wakes.duty)
        if self._app.topics.declared:
            duties.append(Balancer(self._app, self._clock, registration, attempts.feeders).duty)
        attempts.after_settle = self._settled
        self._quota.scheduled = lambda: (
            scheduler.quiet
            and (self._machines is None or self._machines.quiet)
            and (self._wakes is None or self._wakes.quiet)
        )
        return [*duties, scheduler.duty]

    async def _serve(
        self,
        supervisor: Supervisor,
        claimer: Claimer,
        attempts: Attempts,
        polling: Sequence[Duty],
        others: Sequence[Duty],
    ) -> None:
        settling = asyncio.create_task(supervisor.run(attempts.settler.duty))
        claiming = asyncio.create_task(supervisor.run(claimer.duty))
        duties = [asyncio.create_task(supervisor.run(duty)) for duty in others]
        duties += [asyncio.create_task(self._poll(supervisor, duty, claimer)) for duty in polling]
        try:
            await first(self.stopping.wait(), claiming, *duties, settling)
            attempts.close()
            attempts.ask_to_stop()
            await self._drain(attempts, claiming, settling)
        finally:
            await cancel(claiming, *duties, settling)
            await attempts.settler.close()

    # The first jobs do not wait for the polls, of which there are many and which open no connections.
    async def _poll(self, supervisor: Supervisor, duty: Duty, claimer: Claimer) -> None:
        """Run a duty that polls, after the first claim."""
        MAY_WAIT.set(True)
        await first(claimer.tried.wait(), self._clock.asleep(FIRST_CLAIM))
        await supervisor.run(duty)

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
        # If this fails, they are given back when the worker leaves.
        with contextlib.suppress(StoreError):
            await attempts.ahead.give_back_all()
        await first(claiming)
        while attempts.all or attempts.settler.waiting or attempts.steps.waiting:
            await self._clock.asleep(0.005)

    async def _sign_off(self, registration: WorkerRegistration, attempts: Attempts, *, crashed: bool) -> None:
        async def leave() -> None:
            await attempts.settle_begun(crashed=crashed)
            await registration.leave()

        await in_time(leave, f"worker {registration.id} cannot sign off")
        # Sums are for charts: a worker that has left waits no longer for them.
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(SIGN_OFF):
                await attempts.counting.write()


def _check_span(span: object, option: str) -> None:
    if not isinstance(span, timedelta) or span < timedelta(0):
        raise ConfigurationError(f"{option} is a timedelta, zero or more, got {span!r}")


def _check_name(name: object, what: str = "the name of a worker") -> None:
    is_name = isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= LONGEST_NAME
    if name is not None and not is_name:
        raise ConfigurationError(f"{what} is a text of 1 to {LONGEST_NAME} printable characters, got {name!r}")


def _check_counts(concurrency: object, max_jobs: object, processes: object) -> None:
    if not _is_count(concurrency):
        raise ConfigurationError(f"a worker needs at least one slot, got concurrency={concurrency!r}")
    if max_jobs is not None and not _is_count(max_jobs):
        raise ConfigurationError(f"a worker runs at least one job, got max_jobs={max_jobs!r}; None is no bound")
    if processes is not None and not _is_count(processes):
        raise ConfigurationError(
            f"a worker has at least one child process, got processes={processes!r}; None is one per processor"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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
