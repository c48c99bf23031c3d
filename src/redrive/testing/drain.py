"""Run all jobs of an app in the calling thread, with virtual time.

Claims, leases, decisions and transactions are those of a worker, on the app's own store. When no job is due, the app's
`VirtualClock` advances to the next due time. Jobs run one at a time, in the order in which a worker would claim them.

``def`` handlers, steps and undos are called in that thread, too, so that they may use what belongs to it, such as a
connection of sqlite3. As in a thread of a worker no event loop runs there for them, and they may call `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.recurring.cron import Cron
from redrive.app.recurring.refresh import Refresh
from redrive.engine.outcome import Held, Outcome
from redrive.engine.records import Claim
from redrive.engine.runs import RunState, is_far
from redrive.engine.steps import StepBatch, StepsWritten
from redrive.errors import ConfigurationError
from redrive.policy import parse_duration
from redrive.runtime import machines, rng, run_wakes, scheduler, timeouts
from redrive.runtime.claimer import report_held
from redrive.runtime.executor import Executor
from redrive.runtime.feeder import Feeder
from redrive.runtime.feeders import Feeders
from redrive.runtime.hooks import HookRunner
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.tracing import kept, report_settled
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Claimed, Ending
from redrive.stores.operations.limited_queues import QueueScan
from redrive.stores.operations.runs import steps
from redrive.testing.app import VirtualClock

MAX_ATTEMPTS = 100_000

_NONE = timedelta(0)

# A lease without heartbeats that outlives all virtual time.
LEASE_FOR = timedelta(days=36500)

# What a worker does beside running jobs: each does what is due once. A test may send what the first ones wait for, so
# that the clock does not go on to the end of such a wait; it goes on to what the others have planned.
WAITS = (run_wakes.turn, timeouts.turn)
PLANS = (scheduler.turn, machines.turn)


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain.

    Attributes:
        next_due_at: the due time of the next job, if the drain stopped before it.
    """

    attempts: int
    took: timedelta
    next_due_at: datetime | None


def drain(
    app: App,
    *,
    within: timedelta | float | str | None = None,
    sample: Callable[[], float] = rng.sample,
    resources: Mapping[str, Any] | None = None,
) -> Drained:
    """Run all jobs until none is left.

    Virtual time passes only while all that is left waits for it. It stands while the function of a job or of a step
    runs, whatever that takes in real time. A branch of a workflow whose step waits for another branch is the exception:
    if no branch has gone on for a second, the clock advances to the end of the next wait.

    Args:
        app: an App inside `using_app`, or one made with ``clock=VirtualClock()``.
        within: the largest virtual time to pass; without it, go on to the end. Crons and planned refreshes need it,
            because they have no end.
        sample: returns the random numbers from [0, 1) for jitter; a constant makes delays exact.
        resources: the ``ctx.resources`` of handlers, such as fakes. Without it the app's start hooks run first, and its
            stop hooks at the end, as in a worker.

    Raises:
        ConfigurationError: the app has no virtual clock, or its jobs never end.
        StartHookError: a start hook failed.
    """
    refuse_loop("drain", "adrain")
    return asyncio.run(adrain(app, within=within, sample=sample, resources=resources))


def refuse_loop(name: str, colour: str) -> None:
    """Raise `ConfigurationError` if an event loop runs in this thread, for which there is another colour."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(f"an event loop runs here already: `await {colour}(...)` in place of {name}(...)")


async def adrain(
    app: App,
    *,
    within: timedelta | float | str | None = None,
    sample: Callable[[], float] = rng.sample,
    resources: Mapping[str, Any] | None = None,
) -> Drained:
    """Run all jobs until none is left; see `drain`."""
    clock = _checked(app).clock
    if not isinstance(clock, VirtualClock):
        raise ConfigurationError(
            "drain() needs virtual time: call it inside `with redrive.testing.using_app(app):`, or make the app with "
            "App(..., clock=VirtualClock())"
        )
    app.check()
    if within is None and (_recurs(app) or any(each.created for each in await app.schedules.aselect())):
        raise ConfigurationError(
            "drain() of an app with crons or planned refreshes would never end: limit it by within="
        )
    span = None if within is None else parse_duration(within)
    if resources is not None:
        return await _drain(app, clock, span, sample, resources)
    hooks = HookRunner(app.hooks)
    try:
        await hooks.start()
        return await _drain(app, clock, span, sample, hooks.resources)
    finally:
        await hooks.stop()


def _checked(app: object) -> App:
    if not isinstance(app, App):
        raise ConfigurationError(f"drain() takes the App, the object, and got {app!r}")
    return app


async def _drain(
    app: App, clock: VirtualClock, span: timedelta | None, sample: Callable[[], float], resources: Mapping[str, Any]
) -> Drained:
    await scheduler.declare(app)
    began = clock.now()
    horizon = None if span is None else began + span
    worker = DrainWorker(app, clock, sample, resources)
    await worker.registration.register()
    attempts = 0
    try:
        while attempts < MAX_ATTEMPTS:
            ran, rest = await worker.step()
            attempts += ran
            if rest is not None and is_far(clock.now() + rest):
                # Only runs are left that wait for what a test has to send.
                rest = None
            due_at = None if rest is None else clock.now() + rest
            if worker.held.all_again or due_at is None or (horizon is not None and due_at > horizon):
                return Drained(attempts, clock.now() - began, due_at)
            clock.advance(due_at - clock.now())
        raise ConfigurationError(
            f"drain() stopped after {MAX_ATTEMPTS} attempts: some job never ends; limit it by within="
        )
    finally:
        await worker.leave()
        await app.finish()


class HeldRuns:
    """The runs with code that does not fit their steps, which a drain would try again without end."""

    def __init__(self) -> None:
        self._jobs: set[int] = set()
        self._in_a_row = 0

    def see(self, job_id: int, *, is_held: bool) -> None:
        """Note the end of an attempt."""
        self._in_a_row = self._in_a_row + 1 if is_held and job_id in self._jobs else 0
        if is_held:
            self._jobs.add(job_id)

    @property
    def all_again(self) -> bool:
        """True if nothing but runs that were held before has run since all of them were tried."""
        return bool(self._jobs) and self._in_a_row >= len(self._jobs)


class DrainWorker:
    """A worker without duties and threads: it does what a worker does, one thing after the other."""

    def __init__(
        self, app: App, clock: VirtualClock, sample: Callable[[], float], resources: Mapping[str, Any]
    ) -> None:
        self.registration: WorkerRegistration = WorkerRegistration(
            app, concurrency=1, name="drain", lease_for=LEASE_FOR
        )
        self.held: HeldRuns = HeldRuns()
        self._app = app
        self._clock = clock
        self._sample = sample
        self._drain = asyncio.current_task()
        self._scans: tuple[QueueScan, ...] = ()
        self._executor = Executor(
            app, None, cut_off=self._is_cut_off, resources=resources, write_steps=self._write_steps
        )
        self._feeders = Feeders(app, clock, None, resources)
        self._feeding: list[Feeder] = []
        self._feeder_tasks = frozenset(each.feeder for each in app.topics.subscriptions.values())
        self._tasks = app.served() - self._feeder_tasks

    def _is_cut_off(self, _: int) -> bool:
        return self._drain is not None and self._drain.cancelling() > 0

    # Jobs that wait for `App.complete` or `App.fail` keep waiting: a test can call these and drain again. If the clock
    # has passed the end of the wait, the drain ends it. Crons and refreshes occur too, and events of topics are
    # delivered.
    async def step(self) -> tuple[int, timedelta | None]:
        """Do what is due; return the number of attempts, and the time until more is due if that is known."""
        delivered = await self._feed()
        if delivered:
            return delivered, _NONE
        claimed = await self._claim(1, self._tasks)
        for claim in claimed.claims:
            await self._run(claim, claimed.runs.get(claim.id))
            return 1, _NONE
        rests = [claimed.rest_for]
        for turn in (*WAITS, *PLANS):
            made = await turn(self._app, self._sample)
            if not made.done and made.rest_for is not None and made.rest_for <= _NONE:
                # Another process has done it; take the time of the next one.
                made = await turn(self._app, self._sample)
            if made.done:
                return 0, _NONE
            if turn in PLANS:
                rests.append(made.rest_for)
        return 0, min((each for each in rests if each is not None and each > _NONE), default=None)

    async def _claim(self, room: int, tasks: frozenset[str]) -> Claimed:
        claimed = await self._app.store.arun(
            leases.claim(
                self.registration.id,
                room,
                lease_for=LEASE_FOR,
                tasks=tasks,
                scans=self._scans,
                now=self._clock.now(),
            )
        )
        report_held(claimed.held)
        return claimed

    async def _run(self, claim: Claim, state: RunState | None) -> None:
        """Run an attempt and settle it."""
        functions = self._executor.functions
        claim = functions.present(claim)
        # In a task of its own: a handler that cancels its task must not end the drain.
        outcome, trace = await asyncio.create_task(self._attempt(claim, state))
        self.held.see(claim.id, is_held=isinstance(outcome, Held))
        await self._settle(Ending(claim, outcome, self._sample(), trace))
        await functions.finish()

    async def _attempt(self, claim: Claim, state: RunState | None) -> tuple[Outcome, str | None]:
        return await self._executor.run(claim, state=state), kept()

    async def _settle(self, ending: Ending) -> None:
        settled = await self._app.store.arun(leases.settle([ending], now=self._clock.now()))
        report_settled(self._app, [ending], settled, self._executor.functions)

    async def _write_steps(self, batch: StepBatch) -> StepsWritten:
        (written,) = await self._app.store.arun(steps.record([batch], now=self._app.now()))
        return written

    async def _feed(self) -> int:
        """Deliver events until none can be delivered now; return the number of calls of handlers."""
        if not self._feeder_tasks:
            return 0
        for claim in (await self._claim(1000, self._feeder_tasks)).claims:
            subscription = self._app.topics.fed_by(claim.task)
            assert subscription is not None
            self._feeding.append(self._feeders.add(claim, subscription, self._sample))
        await self._feeders.look()
        delivered = 0
        for feeder in tuple(self._feeding):
            before = feeder.calls.number
            ended = await feeder.drain()
            delivered += feeder.calls.number - before
            if ended is not None:
                self._feeding.remove(feeder)
                self._feeders.drop(feeder)
                await self._settle(Ending(feeder.claim, ended, 0.0))
        return delivered

    async def leave(self) -> None:
        """Write the positions of feeders, give them back, and sign off."""
        for feeder in self._feeding:
            await feeder.leave()
        await self.registration.leave()


def _recurs(app: App) -> bool:
    return any(
        isinstance(each, Cron) or (isinstance(each, Refresh) and each.refresh_policy.schedule is not None)
        for each in app.schedules.declared.values()
    )
