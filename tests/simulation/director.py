"""Carries out a plan, then ends all faults, waits until every job has ended, and stops the workers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

from redrive import App, Filter
from redrive.engine.lifecycle import FINAL
from redrive.errors import RedriveError, StoreError
from tests.simulation import product
from tests.simulation.faults import ACTIVE, AT_MOST_ONCE, Step
from tests.simulation.flow_invariants import Owed
from tests.simulation.flows import ITEM, TOUR, TRIP

__all__ = ["Director"]

CALM = 90.0
"""Seconds of virtual time after the faults in which all jobs have to end."""

SOME = 5
"""One of this number of seeds waits for the cron and verifies the database by the product: both take long."""

STOP = 30.0
"""Seconds in which a worker has to stop."""


class Director:
    """The execution of the plan of one simulation, with a method for each kind of step: ``_do_`` and the kind.

    Args:
        simulation: the simulation with the plan."""

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self._left = 0
        self._calm_at = 0.0

    def run(self) -> None:
        """Carry out the plan, end all faults, wait for the jobs, and stop the workers."""
        for step in self._simulation.plan.steps:
            self._simulation.scheduler.sleep(max(0.0, step.at - self._simulation.scheduler.now))
            getattr(self, f"_do_{step.kind}")(step)
        self._simulation.scheduler.sleep(max(0.0, ACTIVE - self._simulation.scheduler.now))
        frozen = (each.frozen_until for each in self._simulation.processes.values())
        until = max((*frozen, *self._simulation.disturbances.behind.values()), default=0.0)
        self._simulation.scheduler.sleep(max(0.0, until - self._simulation.scheduler.now))
        self._calm()
        until = self._simulation.scheduler.now + CALM
        while self._unfinished() or not self._has_ticked() or self._unregistered():
            if self._simulation.scheduler.now >= until:
                self._not_drained()
                return
            self._simulation.scheduler.sleep(0.25)
        if self._simulation.plan.seed % SOME == 0:
            self._as_client(self._verify, again=True)
        while self._left:
            self._simulation.scheduler.sleep(0.1)
        self._stop()
        self._simulation.observer.finished()
        if self._simulation.flows is not None:
            self._simulation.flows.finished()
        self._simulation.phase = "done"

    def _calm(self) -> None:
        self._simulation.disturbances.clear()
        for member in self._simulation.members.values():
            if member.process is not None:
                member.process.offset = 0.0
        self._calm_at = self._simulation.scheduler.now
        for queue in ("default", product.LIMITED):
            self._as_client(lambda app, queue=queue: app.queue(queue).resume(), again=True)
        if self._simulation.flows is not None:
            self._as_client(self._track, again=True)

    def _unfinished(self) -> list[Any]:
        rows = self._simulation.observer.jobs.values()
        left: list[Any] = [row for row in rows if row.state not in FINAL and not product.is_endless(row)]
        if self._simulation.flows is not None:
            left += self._simulation.flows.undelivered()
        return left + [self._left] * self._left

    def _has_ticked(self) -> bool:
        """Return True if a run of the cron, and of the refresh, has started since the faults ended."""
        if self._simulation.plan.seed % SOME:
            return True
        started = {
            self._simulation.observer.jobs[job].task
            for job, starts in self._simulation.observer.ledger.starts.items()
            if starts and starts[0].at >= self._calm_at
        }
        return started >= ({product.CRON, product.REFRESH} if self._simulation.profile.flows else {product.CRON})

    def _verify(self, app: App) -> None:
        findings = app.database.verify()
        if findings:
            self._simulation.observer.violated("inconsistent", str(findings[0]))

    def _not_drained(self) -> None:
        left = self._unfinished()
        if left:
            name = "event_skipped" if all(isinstance(each, Owed) for each in left) else "not_drained"
            self._simulation.observer.violated(name, f"after {CALM:g} s: {left[:3]}")
        elif self._unregistered():
            self._simulation.observer.violated("worker_unknown", f"after {CALM:g} s: {self._unregistered()}")
        else:
            self._simulation.observer.violated("cron_silent", f"no occurrence has run for {CALM:g} s")

    def _unregistered(self) -> list[str]:
        """Return the names of workers that run and are not in the database under an id of their own."""
        if not self._simulation.generation:
            return []
        known = self._simulation.observer.registered()
        return [
            member.name
            for member in self._simulation.members.values()
            if member.name != "client" and known.get(member.number) != member.process.number
        ]

    def _stop(self) -> None:
        self._simulation.phase = "stopping"
        members = [member for member in self._simulation.members.values() if member.worker is not None]
        for member in members:
            self._request_stop(member)
        until = self._simulation.scheduler.now + STOP
        while any(not member.process.dead for member in members):
            if self._simulation.scheduler.now >= until:
                names = [member.name for member in members if not member.process.dead]
                self._simulation.observer.violated("stop_hangs", f"{', '.join(names)} did not stop within {STOP:g} s")
                return
            self._simulation.scheduler.sleep(0.2)

    def _request_stop(self, member: Any) -> None:
        member.stopping = True
        if not member.process.dead and member.loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the worker has ended by itself
                member.loop.call_soon_threadsafe(member.worker.stop)

    def _as_client(self, call: Callable[[App], Any], *, again: bool = False) -> None:
        """Let the client call the app in a thread of its own; with ``again``, until the database has answered."""
        member = self._simulation.members["client"]
        self._left += 1

        def work() -> None:
            while True:
                try:
                    call(member.app)
                except (RedriveError, LookupError):
                    if again:
                        self._simulation.scheduler.sleep(0.2)
                        continue
                break
            self._left -= 1

        self._simulation.scheduler.spawn(member.process, work, "caller")

    # ---------------------------------------------------------------- the steps of a plan

    def _do_enqueue(self, step: Step) -> None:
        def enqueue(app: App) -> None:
            task: Any = app.tasks[step.target]
            call = (
                task.options(key=f"key-{step.number % 3}", on_conflict="existing") if step.target == "keyed" else task
            )
            generation = self._simulation.generation
            job = call.enqueue(step.number)
            if generation != self._simulation.generation:
                return  # the answer may be that of the server that has gone
            self._simulation.observer.ledger.acknowledged[step.number] = job.id
            if job.id not in self._simulation.observer.jobs:
                self._simulation.observer.violated(
                    "acknowledged_job_lost", f"job {job.id} was acknowledged and is not there"
                )

        self._as_client(enqueue)

    def _do_publish(self, step: Step) -> None:
        self._create(step, lambda app: product.topic(app).publish(step.number))

    def _do_start(self, step: Step) -> None:
        self._create(step, lambda app: app.tasks[TRIP].start(step.number, id=f"run-{step.number}"))

    def _do_tour(self, step: Step) -> None:
        self._create(step, lambda app: app.tasks[TOUR].start(step.number, id=f"run-{step.number}"))

    def _create(self, step: Step, call: Callable[[App], Any]) -> None:
        def create(app: App) -> None:
            generation = self._simulation.generation
            call(app)
            if generation == self._simulation.generation:
                self._simulation.flows.acknowledged[step.number] = step.kind

        self._as_client(create)

    def _do_track(self, step: Step) -> None:
        self._as_client(self._track, again=True)

    def _track(self, app: App) -> None:
        """Track the item of the refresh, if it is not tracked."""
        try:
            app.tasks[product.REFRESH].get(ITEM)
        except LookupError:
            app.tasks[product.REFRESH].track(ITEM, 1)

    def _do_failover(self, step: Step) -> None:
        """Let another server take over, which each process reaches at a time of its own."""
        simulation = self._simulation
        simulation.fail_over(step.number)
        until = simulation.disturbances.away_until = simulation.scheduler.now + step.seconds
        for member in simulation.members.values():
            late = max(0.0, member.process.rng.uniform(-simulation.profile.behind, simulation.profile.behind))
            simulation.disturbances.behind[member.name] = until + late

    def _do_cancel(self, step: Step) -> None:
        self._as_client(lambda app: app.job(self._simulation.observer.ledger.acknowledged[step.number]).cancel())

    def _do_redrive(self, step: Step) -> None:
        acknowledged = self._simulation.observer.ledger.acknowledged

        def redrive(app: App) -> None:
            if self._simulation.observer.jobs[acknowledged[step.number]].task != AT_MOST_ONCE:
                app.jobs.redrive(Filter(ids=(acknowledged[step.number],)))

        self._as_client(redrive)

    def _do_pause(self, step: Step) -> None:
        def pause(app: App) -> None:
            app.queue(step.target).pause()
            self._simulation.scheduler.sleep(step.seconds)
            app.queue(step.target).resume()

        self._as_client(pause)

    def _do_crash(self, step: Step) -> None:
        self._simulation.disturbances.crashes[step.target] = step.number

    def _do_freeze(self, step: Step) -> None:
        self._simulation.scheduler.freeze(self._simulation.members[step.target].process, step.seconds)

    def _do_stall(self, step: Step) -> None:
        self._simulation.disturbances.stalls.append(
            (step.target, step.how, self._simulation.scheduler.now + step.seconds)
        )

    def _do_mute(self, step: Step) -> None:
        """Stop the server process of this connection, so that the next heartbeat is never answered."""
        self._simulation.disturbances.mutes.add((step.target, "beat"))

    def _do_silence(self, step: Step) -> None:
        """Suppress the replies to all heartbeats of this process for a while; its other requests are answered."""
        until = self._simulation.scheduler.now + step.seconds
        self._simulation.disturbances.stalls += [(step.target, how, until) for how in ("beat", "held")]

    def _do_slow(self, step: Step) -> None:
        self._simulation.disturbances.delays.append(
            (step.target, step.how, step.seconds, self._simulation.scheduler.now + 5)
        )

    def _do_lost_reply(self, step: Step) -> None:
        self._simulation.disturbances.replies[step.target] = step.number

    def _do_lost_request(self, step: Step) -> None:
        self._simulation.disturbances.requests[step.target] = step.number

    def _do_outage(self, step: Step) -> None:
        self._simulation.disturbances.away_until = max(
            self._simulation.disturbances.away_until, self._simulation.scheduler.now + step.seconds
        )

    _do_long_outage = _do_outage

    def _do_step(self, step: Step) -> None:
        self._simulation.members[step.target].process.offset += step.seconds

    _do_jump = _do_step

    def _do_restart(self, step: Step) -> None:
        self._request_stop(self._simulation.members[step.target])

    def _do_starve(self, step: Step) -> None:
        """Another program holds the lock of the database for a while."""

        def hold() -> None:
            if self._simulation.connection_queue is not None:
                with contextlib.suppress(StoreError):
                    self._simulation.connection_queue.acquire(self._simulation.truth)
                    self._simulation.scheduler.sleep(step.seconds)
                    self._simulation.connection_queue.release(commit=False)
                return
            connection = self._simulation.connect(self._simulation.path)
            cursor = connection.cursor()
            with contextlib.suppress(sqlite3.Error):
                cursor.execute("BEGIN IMMEDIATE")
                self._simulation.scheduler.sleep(step.seconds)
                cursor.execute("ROLLBACK")

        self._simulation.scheduler.spawn(self._simulation.truth, hold, "other program")
