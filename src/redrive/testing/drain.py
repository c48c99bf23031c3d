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
from redrive.app.events import emit_cancelled, emit_moved, emit_settled
from redrive.app.recurring.cron import Cron
from redrive.app.recurring.refresh import Refresh
from redrive.engine import outcome as outcomes
from redrive.engine.outcome import Outcome
from redrive.engine.records import Claim
from redrive.engine.runs import RunState, is_far
from redrive.engine.steps import StepBatch, StepsWritten
from redrive.errors import ConfigurationError
from redrive.policy import parse_duration
from redrive.runtime import machines, rng
from redrive.runtime.executor import Executor
from redrive.runtime.feeder import Feeder
from redrive.runtime.feeders import Feeders
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.hooks import HookRunner
from redrive.runtime.scheduler import declare, turn
from redrive.runtime.tracing import kept
from redrive.stores.operations import attempts, leases, queues, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.limited_queues import QueueScan
from redrive.stores.operations.runs import steps, waits
from redrive.stores.operations.topics import feed
from redrive.testing.app import VirtualClock

MAX_ATTEMPTS = 100_000

# A lease without heartbeats that outlives all virtual time.
LEASE_FOR = timedelta(days=36500)


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
    return asyncio.run(adrain(app, within=within, sample=sample, resources=resources))


async def adrain(
    app: App,
    *,
    within: timedelta | float | str | None = None,
    sample: Callable[[], float] = rng.sample,
    resources: Mapping[str, Any] | None = None,
) -> Drained:
    """Run all jobs until none is left; see `drain`."""
    clock = app.clock
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


async def _drain(
    app: App, clock: VirtualClock, span: timedelta | None, sample: Callable[[], float], resources: Mapping[str, Any]
) -> Drained:
    await declare(app)
    began = clock.now()
    horizon = None if span is None else began + span
    if app.queues.declared:
        await app.store.arun(queues.declare(app.queues.declared, now=clock.now()))
    await app.topics.adeclare()
    worker = await app.store.arun(
        workers.register("drain", concurrency=1, lease_for=LEASE_FOR, tasks=app.served(), now=clock.now())
    )
    attempts = 0
    scans: list[QueueScan] = []
    held = HeldRuns()
    feeding = Feeding(app, clock, worker, sample, resources)
    try:
        while attempts < MAX_ATTEMPTS:
            delivered = await feeding.step()
            attempts += delivered
            if delivered:
                continue
            ran, rest = await _step(app, clock, worker, sample, scans, held=held, resources=resources)
            attempts += ran
            if rest is not None and is_far(clock.now() + rest):
                # Only runs are left that wait for what a test has to send.
                rest = None
            if held.all_again:
                return Drained(attempts, clock.now() - began, None if rest is None else clock.now() + rest)
            if rest is None or (horizon is not None and clock.now() + rest > horizon):
                return Drained(attempts, clock.now() - began, None if rest is None else clock.now() + rest)
            clock.advance(rest)
        raise ConfigurationError(
            f"drain() stopped after {MAX_ATTEMPTS} attempts: some job never ends; limit it by within="
        )
    finally:
        await feeding.stop()
        await app.store.arun(workers.leave(worker, now=clock.now()))
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


class Feeding:
    """The feeders of a drain: they deliver the events that can be delivered, one after the other."""

    def __init__(
        self, app: App, clock: VirtualClock, worker: int, sample: Callable[[], float], resources: Mapping[str, Any]
    ) -> None:
        self._app = app
        self._clock = clock
        self._worker = worker
        self._sample = sample
        self._resources = resources
        self._feeders: dict[int, Feeder] = {}

    async def step(self) -> int:
        """Deliver events until none can be delivered now; return the number of calls of handlers."""
        names = {each.feeder for each in self._app.topics.subscriptions.values()}
        if not names:
            return 0
        claimed = await self._app.store.arun(
            leases.claim(self._worker, 1000, lease_for=LEASE_FOR, tasks=names, now=self._clock.now())
        )
        runner = Feeders(self._app, self._clock, None, self._resources)
        for claim in claimed.claims:
            subscription = self._app.topics.fed_by(claim.task)
            assert subscription is not None  # only these tasks are claimed
            self._feeders[claim.id] = runner.feeder(claim, subscription, self._sample)
        delivered = 0
        if self._feeders:
            for look in await self._app.store.arun(feed.look(list(self._feeders))):
                self._feeders[look.job_id].see(look)
        for number, feeder in list(self._feeders.items()):
            before = feeder.delivered
            ended = await feeder.drain()
            delivered += feeder.delivered - before
            if ended is not None:
                del self._feeders[number]
                ending = Ending(feeder.claim, ended, 0.0)
                await self._app.store.arun(leases.settle([ending], now=self._clock.now()))
        return delivered

    async def stop(self) -> None:
        """Write the positions, and give the feeders back."""
        for feeder in self._feeders.values():
            await feeder.leave()


# Jobs that wait for `App.complete` or `App.fail` keep waiting: a test can call these and drain again. If the clock has
# passed the end of the wait, the drain ends it. Crons and refreshes occur too, and events of topics are delivered.
async def _step(
    app: App,
    clock: VirtualClock,
    worker: int,
    sample: Callable[[], float],
    scans: list[QueueScan],
    *,
    held: HeldRuns,
    resources: Mapping[str, Any],
) -> tuple[int, timedelta | None]:
    """Run a due job, if there is one; return the number of jobs, and the time until the next one if there is one."""
    tasks = app.served() - {each.feeder for each in app.topics.subscriptions.values()}
    claimed = await app.store.arun(
        leases.claim(worker, 1, lease_for=LEASE_FOR, tasks=tasks, scans=scans, now=clock.now())
    )
    scans[:] = claimed.scans
    for claim in claimed.claims:
        functions = PolicyFunctions(app)
        claim = functions.present(claim)  # noqa: PLW2901 - the same claim
        outcome, trace = await _attempt(app, claim, claimed.runs.get(claim.id), resources, functions)
        held.see(claim.id, is_held=isinstance(outcome, outcomes.Held))
        ending = Ending(claim, outcome, sample(), trace)
        settled = await app.store.arun(leases.settle([ending], now=clock.now()))
        emit_settled([ending], settled)
        app.settled(settled.moved, settled.lost)
        functions.report([ending], settled.moved)
        await functions.finish()
        return 1, timedelta(0)
    if (await app.store.arun(waits.wake(now=clock.now()))).runs:
        return 0, timedelta(0)
    lapsed = await app.store.arun(attempts.expire_waits(1, iter(sample, None), now=clock.now()))
    emit_moved(lapsed)
    if lapsed:
        app.settled(lapsed)
        return 0, timedelta(0)
    expired = await app.store.arun(attempts.expire(1, now=clock.now()))
    emit_cancelled(expired)
    if expired:
        return 0, timedelta(0)
    made = await turn(app, sample)
    if made.rest_for is not None and made.rest_for <= timedelta(0) and not made.done:
        # Another process has started this occurrence; take the time of the next one.
        made = await turn(app, sample)
    taken, _ = await machines.turn(app, budget=1)
    if made.done or taken.done:
        return 0, timedelta(0)
    rests = [
        each for each in (claimed.rest_for, made.rest_for, taken.rest_for) if each is not None and each > timedelta(0)
    ]
    return 0, min(rests, default=None)


async def _attempt(
    app: App, claim: Claim, state: RunState | None, resources: Mapping[str, Any], functions: PolicyFunctions
) -> tuple[Outcome, str | None]:
    """Run an attempt in a task of its own: a handler that cancels its task must not end the drain."""
    drain = asyncio.current_task()
    executor = Executor(
        app,
        None,
        cut_off=lambda _: drain is not None and drain.cancelling() > 0,
        resources=resources,
        write_steps=lambda batch: _write_steps(app, batch),
    )
    executor.functions = functions

    async def run() -> tuple[Outcome, str | None]:
        return await executor.run(claim, state=state), kept()

    return await asyncio.create_task(run())


async def _write_steps(app: App, batch: StepBatch) -> StepsWritten:
    (written,) = await app.store.arun(steps.record([batch], now=app.now()))
    return written


def _recurs(app: App) -> bool:
    return any(
        isinstance(each, Cron) or (isinstance(each, Refresh) and each.refresh_policy.schedule is not None)
        for each in app.schedules.declared.values()
    )
