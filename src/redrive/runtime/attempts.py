"""The attempts that a worker runs: its slots, their leases, and the end of each attempt.

Every attempt ends in exactly one of two ways: with an outcome, which is settled, or because its lease was lost. Where
an attempt ends without either, the callback of its asyncio task supplies an outcome.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from redrive.app.app import App
from redrive.app.attempts.context import Stop
from redrive.app.attempts.resources import NO_RESOURCES
from redrive.app.events import emit_lost
from redrive.app.tasks.failures import failed
from redrive.clock import Clock
from redrive.engine.origin import is_feeder
from redrive.engine.outcome import Lost, Outcome, Released
from redrive.engine.records import Claim
from redrive.engine.runs import RunState
from redrive.errors.foreign import trace
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import Block
from redrive.runtime import log, rng
from redrive.runtime.ahead import Ahead, is_suspect, may_wait
from redrive.runtime.executor import Executor
from redrive.runtime.feeders import Feeders
from redrive.runtime.handlers import was_cancelled
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.settler import Settler, is_once
from redrive.runtime.step_writer import StepWriter
from redrive.runtime.supervision import Outage
from redrive.runtime.threads import Pool
from redrive.runtime.tracing import kept, report_settled
from redrive.stores.operations import leases
from redrive.stores.operations.attempts import ProgressReport
from redrive.stores.operations.leases import Ending, Settled
from redrive.stores.operations.workers import Asked

if TYPE_CHECKING:
    from redrive.runtime.counting import Counting
    from redrive.runtime.processes import Processes

# The delay of a job when the worker's own code raised an error before its attempt could start.
_RELEASED_FOR = timedelta(seconds=5)


def _nothing() -> None:
    """Do nothing."""


# The event loop runs the attempts. The threads of the heartbeat call `lost`, `asked`, `expired`, `held`, `reports` and
# `doubt`.
class Attempts:
    """The attempts of one worker.

    Attributes:
        ahead: the jobs that have no slot yet.
        steps: the duty that writes the steps of running runs.
        settler: the duty that writes how attempts end.
        outage: what the log has about a database that does not answer.
        feeders: the feeders of subscriptions.
        claim_again: set when the claimer has a reason to claim: a free slot, a change, or an unknown lease.
        doubted: True if the database may hold leases for this worker that it does not have.
        closed: True from a stop on: nothing more is started.
    """

    def __init__(
        self,
        app: App,
        clock: Clock,
        registration: WorkerRegistration,
        *,
        concurrency: int,
        pool: Pool,
        resources: Mapping[str, Any] = NO_RESOURCES,
        processes: Processes | None = None,
        linger: float = 0.0,
    ) -> None:
        self.claim_again: asyncio.Event = asyncio.Event()
        self.doubted: bool = False
        self.closed: bool = False
        self._app, self._clock, self._registration = app, clock, registration
        self._concurrency, self._processes = concurrency, processes
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self.ahead: Ahead = Ahead(app, clock, registration)
        self.outage: Outage = Outage(clock)
        self.steps: StepWriter = StepWriter(app, clock, self._era, self.outage)
        self._executor = Executor(
            app,
            pool,
            begins=self._begins,
            cut_off=self._is_cut_off,
            resources=resources,
            write_steps=self.steps.put,
            processes=processes,
            era=self._era,
            linger=linger,
        )
        self._contexts = self._executor.contexts
        self.feeders = self._executor.feeders = Feeders(app, clock, pool, resources, self.outage)
        self.feeders.era = self._era
        self.settler: Settler = Settler(
            app, clock, self, self.steps, threads=self._executor.threads, era=self._era, outage=self.outage
        )
        self._running: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, Claim] = {}
        """Attempts that have not ended, by their leases."""
        self._begun: dict[int, Claim] = {}
        """Attempts with handlers that have begun, and with ends that are not written."""
        self._cancelled: dict[int, str] = {}
        """Leases of the attempts that this worker has cancelled, with what the worker did then."""
        self._lost: set[int] = set()
        self._ended = self._suspect = 0
        #: Called after ends of attempts were written.
        self.after_settle: Callable[[], None] = _nothing

    @functools.cached_property
    def counting(self) -> Counting:
        """The duty that writes how many attempts ended."""
        # Not at the start of a command, which may end without a worker.
        from redrive.runtime.counting import Counting

        return Counting(self._app, self._registration)

    # ---------------------------------------------------------------- slots

    @property
    def free(self) -> int:
        """The number of slots without a handler that no claimed job waits for; 0 once the worker stops."""
        return max(self._room(self._concurrency), 0)

    @property
    def room_ahead(self) -> int:
        """The number of jobs to claim besides those for the free slots."""
        wanted = self.ahead.wanted
        return max(self._room(self._concurrency + wanted) - self.free, 0) if wanted else 0

    # A further job would wait here, while another worker may have a child process for it.
    def apart(self, room: int) -> tuple[int, frozenset[str]] | None:
        """Return how many of so many jobs may be of tasks that need child processes, and the names of these tasks.

        None if all may be.
        """
        if self._processes is None:
            return None
        claims = (*self._open.values(), *(each.claim for each in tuple(self.ahead.waiting)))
        share = min(self._processes.room(claims), self.free)
        return None if share >= room else (share, self._processes.tasks)

    def _room(self, size: int) -> int:
        if self.closed:
            return 0
        # An attempt returns its slot when it ends and not when its end has been written, so that the next claim joins
        # the transaction of the settle. If the store is slow, at most as many ends as there are places are unwritten.
        held = self.count
        return min(size - held + self._ended, 2 * size - held)

    @property
    def _startable(self) -> int:
        """The number of attempts that can start now."""
        held = len(self._running) - self.feeders.count
        return min(self._concurrency - held + self._ended, 2 * self._concurrency + self.ahead.size - held)

    @property
    def count(self) -> int:
        """The number of claimed jobs with ends that are not written, without feeders, which take no slots."""
        return len(self._running) + len(self.ahead.waiting) - self.feeders.count

    @property
    def linger(self) -> float:
        """The seconds for which an end waits for others before it is written."""
        return self.ahead.linger

    @property
    def quiet(self) -> bool:
        """True if no attempt runs but feeders that have nothing to deliver."""
        return not self.count and self.feeders.resting == self.feeders.count

    @property
    def all(self) -> int:
        """The number of attempts with ends that are not written, feeders included."""
        return len(self._running)

    @property
    def runs_suspect(self) -> bool:
        """True while a job runs of which one more crash would be the last."""
        return self._suspect in self._running

    def held(self) -> frozenset[int]:
        """Return the leases of the claimed jobs with ends that are not written. Safe to call from any thread."""
        return frozenset((*self._running, *self.ahead.leases()))

    def of_task(self, task: asyncio.Task[Any]) -> Claim | None:
        """Return the attempt that an asyncio task executes; None if it executes none. Safe to call from any thread."""
        running = tuple(self._running.items())
        return next((self._open.get(lease_id) for lease_id, each in running if each is task), None)

    def _era(self) -> int | None:
        return self._registration.era

    def drop(self) -> tuple[frozenset[int], dict[int, int]]:
        """Stop the attempts whose leases are to be given back, because a new server may lack what they rely on.

        Return all leases that are held, and the jobs of attempts that go on, by their leases: they have begun, and must
        not run twice.
        """
        held = self.held()
        kept = {lease_id: claim.id for lease_id, claim in self._begun.items() if lease_id in held and is_once(claim)}
        self.lost(held - kept.keys())
        return held, kept

    def close(self) -> None:
        """Start nothing more, and have the claimer end."""
        self.closed = True
        self.claim_again.set()

    # ---------------------------------------------------------------- the life of one attempt

    def start(self, claims: Iterable[Claim], runs: Mapping[int, RunState]) -> list[Claim]:
        """Start the attempts of claimed jobs; keep those without a slot until there is one.

        Args:
            claims: the claimed jobs.
            runs: what is stored of those that are runs, by id.

        Returns:
            The jobs that have no slot and may not wait: they must be given back.
        """
        back = []
        room = 0 if self.ahead.waiting else self._startable
        for claim in claims:
            if is_feeder(claim.origin):
                self._start(claim, None)
            elif room > 0:
                self._start(claim, runs.get(claim.id))
                room -= 1
            elif may_wait(claim):
                self.ahead.put(claim, runs.get(claim.id))
            else:
                back.append(claim)
        return back

    def _start_waiting(self) -> None:
        """Start jobs that were claimed ahead, as many as there are slots."""
        if self.closed:
            return
        for _ in range(self._startable):
            waiting = self.ahead.pop()
            if waiting is None:
                return
            self._start(waiting.claim, waiting.state)

    def _start(self, claim: Claim, state: RunState | None) -> None:
        claim = self._executor.functions.present(claim)
        # The caller may be an attempt that ends, and its context variables are not those of the next one.
        attempt = self._loop.create_task(self._attempt(claim, state), context=self._context.copy())
        self._open[claim.lease_id] = claim
        self._running[claim.lease_id] = attempt
        attempt.add_done_callback(functools.partial(self._done, claim), context=self._context)
        if claim.crashes and is_suspect(claim):
            self._suspect = claim.lease_id

    def give_back(self, claim: Claim, _: RunState | None = None) -> None:
        """Return a claimed job to its queue without starting it."""
        self.settler.put(Ending(claim, Released(f"worker {self._registration.id} shut down"), 0.0))

    def _begins(self, claim: Claim) -> None:
        self._begun[claim.lease_id] = claim

    def _is_cut_off(self, lease_id: int) -> bool:
        return lease_id in self._cancelled

    async def _attempt(self, claim: Claim, state: RunState | None) -> None:
        began = self._clock.monotonic()
        try:
            outcome = await self._executor.run(claim, state=state)
        except asyncio.CancelledError:
            self._interrupted(claim)
            raise
        except GeneratorExit as error:
            # A future that carries it closes the handler and the executor's coroutines, which so cannot return.
            self._end(claim, failed(error))
        except BaseException as error:  # noqa: BLE001 - one that leaves this task may end the event loop
            self._failed(claim, error)
        else:
            self.ahead.ended(began)
            self._end(claim, outcome)

    def _failed(self, claim: Claim, error: BaseException) -> None:
        """End an attempt with an unknown outcome, because the worker's own code raised an error."""
        if claim.lease_id in self._begun:
            self._end(claim, Lost(f"worker {self._registration.id} itself failed during attempt {claim.attempt}"))
        else:
            self._end(claim, Released("the worker itself failed", _RELEASED_FOR))
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

    def _interrupted(self, claim: Claim) -> None:
        """End an attempt that was cancelled: by a stop, or because its lease is lost or ends."""
        if claim.lease_id in self._lost:
            self._lost.discard(claim.lease_id)
            self._forget(claim)
            self._begun.pop(claim.lease_id, None)
            self._running.pop(claim.lease_id, None)
            self.settler.let_go(claim.lease_id)
            emit_lost(claim)
            self._start_waiting()
            self.claim_again.set()
        else:
            why = f"worker {self._registration.id} {self._cancelled.get(claim.lease_id, 'shut down')}"
            self._end(claim, Released(why, started=claim.lease_id in self._begun))

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        self._forget(claim)
        self._ended += 1
        self.settler.put(Ending(claim, outcome, rng.sample(), kept() if LISTENERS else None))
        if self.ahead.waiting:
            self._start_waiting()

    def _forget(self, claim: Claim) -> None:
        self._open.pop(claim.lease_id, None)
        if self._cancelled:
            self._cancelled.pop(claim.lease_id, None)

    def settled(self, endings: Sequence[Ending], settled: Settled) -> None:
        """Free the slots of attempts with ends that are written; log the new states of their jobs and emit events."""
        for ending in endings:
            self._begun.pop(ending.claim.lease_id, None)
            if self._running.pop(ending.claim.lease_id, None) is not None:
                self._ended -= 1
        if settled.lost or self._lost:
            self._lost.difference_update(ending.claim.lease_id for ending in endings)
        self.ahead.measure()
        self._start_waiting()
        self.feeders.ask()
        self.counting.add(settled.moved)
        report_settled(self._app, endings, settled, self._executor.functions)
        self.after_settle()
        self.claim_again.set()

    # ---------------------------------------------------------------- stop

    def ask_to_stop(self) -> None:
        """Set ``ctx.should_stop`` for all handlers."""
        self._executor.stop(Stop.SHUTDOWN)

    def cancel_all(self) -> None:
        """Cancel every attempt; each ends as given back."""
        for lease_id in list(self._running):
            self._cancel(lease_id)

    def _cancel(self, lease_id: int, what: str = "shut down") -> None:
        self._cancelled[lease_id] = what
        self._running[lease_id].cancel()

    async def finish_hooks(self) -> None:
        """Wait for the hooks of policies that run."""
        await self._executor.functions.finish()

    async def settle_begun(self, *, crashed: bool) -> None:
        """Settle the attempts with handlers that have begun and with ends that are not written.

        The rest is given back when the worker leaves. An attempt that has ended is settled as it ended, another one as
        given back. If the store refuses that, the worker must not leave: the jobs are lost when its lease runs out.

        Args:
            crashed: True if the worker ends because of an error. Attempts that have not ended are lost then, because
                one of them may be the reason.
        """
        ended = self.settler.unwritten
        cut: Outcome = Released(f"worker {self._registration.id} shut down", started=True)
        if crashed:
            # What ends the event loop cancels every task, and not only the one that failed.
            cut = Lost(f"worker {self._registration.id} failed")
            ended = tuple(each for each in ended if not was_cancelled(each.outcome))
        known = {ending.claim.lease_id: ending for ending in ended}
        endings = [known.get(lease_id) or Ending(claim, cut, rng.sample()) for lease_id, claim in self._begun.items()]
        # Those that take keys come last: they may wait for a transaction of a user.
        for _, group in groupby(sorted(endings, key=leases.takes_keys), leases.takes_keys):
            ends = tuple(group)
            settled = await self._app.store.arun(leases.settle(ends, now=self._app.now()))
            self.counting.add(settled.moved)
            report_settled(self._app, ends, settled, self._executor.functions)

    # ---------------------------------------------------------------- called in the threads of the heartbeat

    def doubt(self) -> None:
        """Have the claimer give back leases that the database holds for this worker and the worker does not have."""
        self._loop.call_soon_threadsafe(self._doubt)

    def _doubt(self) -> None:
        self.doubted = True
        self.claim_again.set()

    def reports(self) -> list[ProgressReport]:
        """Take the progress and heartbeats of handlers that are not written yet."""
        return self._contexts.unwritten()

    def asked(self, asked: Mapping[int, Asked]) -> None:
        """Have runs read what operators ask of them; a step whose run is cancelled or paused is interrupted."""
        if asked:
            self._loop.call_soon_threadsafe(self._executor.asked, asked)

    def lost(self, lease_ids: frozenset[int]) -> None:
        """Stop the attempts that have lost their leases."""
        # At once, because a handler may block the loop, and be the one that reads ctx.should_stop.
        lease_ids = frozenset(each for each in lease_ids if not self._contexts.ends_by_itself(each))
        self._executor.stop(Stop.LOST, lease_ids)
        self._loop.call_soon_threadsafe(self._interrupt, lease_ids)

    def _interrupt(self, lease_ids: frozenset[int]) -> None:
        for claim in self.ahead.drop(lease_ids):
            log.info("job %d (%s) has lost its lease %d before it started", claim.id, claim.task, claim.lease_id)
        for lease_id in lease_ids:
            attempt = self._running.get(lease_id)
            if attempt is not None and not attempt.done():
                log.info("%s has lost its lease %d; its handler is stopped", self._described(lease_id), lease_id)
                self._lost.add(lease_id)
                self._cancel(lease_id)

    def _described(self, lease_id: int) -> str:
        claim = self._open.get(lease_id)
        return f"the attempt of lease {lease_id}" if claim is None else f"job {claim.id} ({claim.task})"

    def expired(self) -> None:
        """Stop the attempts that may run twice, because the lease of the worker is about to end."""
        # An attempt that must not run twice goes on: no other worker may start it, and the lease may be extended yet.
        ends = {each for each, claim in list(self._open.items()) if claim.policy.idempotent is not False}
        ends = {each for each in ends if each not in self._cancelled and not self._contexts.ends_by_itself(each)}
        ends.update(self.ahead.leases())
        if ends:
            self._executor.stop(Stop.LOST, ends)
            self._loop.call_soon_threadsafe(self._give_up, ends)

    def _give_up(self, lease_ids: Collection[int]) -> None:
        self.ahead.drop(lease_ids)
        for lease_id in lease_ids:
            if lease_id in self._open:
                why = "%s: its lease ends, since no heartbeat was written; its handler is stopped"
                log.warning(why, self._described(lease_id))
                self._cancel(lease_id, "could not write a heartbeat in time")
