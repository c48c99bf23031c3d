"""The attempts that a worker runs: its slots, their leases, and the end of each attempt.

Every attempt ends in exactly one of two ways: with an outcome, which is settled, or because its lease was lost. Where
an attempt ends without either, the callback of its asyncio task supplies an outcome.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.context import Stop
from redrive.app.events import emit_lost, emit_settled
from redrive.app.failures import failed
from redrive.app.resources import NO_RESOURCES
from redrive.clock import Clock
from redrive.engine.lease import POISON_LIMIT
from redrive.engine.origin import is_feeder
from redrive.engine.outcome import Lost, Outcome, Released
from redrive.engine.records import Claim
from redrive.engine.runs import RunState
from redrive.engine.settle import BAD_POLICY
from redrive.engine.steps import StepBatch, StepsWritten
from redrive.errors.foreign import trace
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import Block
from redrive.runtime import log, rng
from redrive.runtime.executor import Executor
from redrive.runtime.feeders import Feeders
from redrive.runtime.handlers import was_cancelled
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.settler import Settler
from redrive.runtime.tracing import kept, log_undecided
from redrive.stores.operations import leases
from redrive.stores.operations.attempts import ProgressReport
from redrive.stores.operations.leases import Ending, Settled

# The delay of a job whose attempt could not start because the worker's own code raised an error.
_RELEASED_FOR = timedelta(seconds=5)


def _nothing() -> None:
    """Do nothing."""


def is_suspect(claim: Claim) -> bool:
    """Return True if one more crash of this job would be its last."""
    return claim.crashes >= POISON_LIMIT - 1 and not is_feeder(claim.origin)


# The event loop runs the attempts. The threads of the heartbeat call `lost`, `expired`, `held`, `reports` and `doubt`.
class Attempts:
    """The attempts of one worker.

    Attributes:
        settler: the duty that writes how attempts end.
        feeders: the feeders of subscriptions.
        claim_again: set when the claimer has a reason to claim: a free slot, a change, or an unknown lease.
        doubted: True if the database may hold leases for this worker that it does not know.
    """

    def __init__(  # noqa: PLR0913 - the parts of a worker that it connects
        self,
        app: App,
        clock: Clock,
        registration: WorkerRegistration,
        *,
        concurrency: int,
        pool: Pool,
        resources: Mapping[str, Any] = NO_RESOURCES,
    ) -> None:
        self.claim_again = asyncio.Event()
        self.doubted = self._closed = False
        self._app = app
        self._registration = registration
        self._concurrency = concurrency
        self._loop = asyncio.get_running_loop()
        self._executor = Executor(
            app,
            pool,
            begins=self._begins,
            cut_off=self._is_cut_off,
            resources=resources,
            write_steps=self._write_steps,
        )
        self.feeders = self._executor.feeders = Feeders(app, clock, pool, resources)
        self.settler = Settler(app, clock, self, threads=self._executor.threads)
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

    # ---------------------------------------------------------------- slots

    @property
    def free(self) -> int:
        """The number of slots without a handler; 0 once the worker stops."""
        if self._closed:
            return 0
        # An attempt returns its slot when it ends and not when its end has been written, so that the next claim joins
        # the transaction of the settle. If the store is slow, at most as many ends as there are slots are unwritten.
        held = self.count
        return min(self._concurrency - held + self._ended, 2 * self._concurrency - held)

    @property
    def count(self) -> int:
        """The number of attempts with ends that are not written, without feeders, which take no slots."""
        return len(self._running) - self.feeders.count

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
        """Return the leases of the attempts with ends that are not written. Safe to call from any thread."""
        return frozenset(self._running)

    def close(self) -> None:
        """Free no more slots, so that a stop during a claim is not followed by another claim."""
        self._closed = True

    # ---------------------------------------------------------------- the life of one attempt

    def start(self, claim: Claim, state: RunState | None = None) -> None:
        """Start the attempt of a claimed job; ``state`` is what is stored of a run."""
        claim = self._executor.functions.present(claim)
        attempt = self._loop.create_task(self._attempt(claim, state))
        self._open[claim.lease_id] = claim
        self._running[claim.lease_id] = attempt
        attempt.add_done_callback(functools.partial(self._done, claim))
        if is_suspect(claim):
            self._suspect = claim.lease_id

    def give_back(self, claim: Claim, _: RunState | None = None) -> None:
        """Return a claimed job to its queue without starting it."""
        self.settler.put(Ending(claim, Released(f"worker {self._registration.id} shut down"), 0.0))

    async def _write_steps(self, batch: StepBatch) -> StepsWritten:
        return await self.settler.write_steps(batch)

    def _begins(self, claim: Claim) -> None:
        self._begun[claim.lease_id] = claim

    def _is_cut_off(self, lease_id: int) -> bool:
        return lease_id in self._cancelled

    async def _attempt(self, claim: Claim, state: RunState | None) -> None:
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
            self._end(claim, outcome)

    def _failed(self, claim: Claim, error: BaseException) -> None:
        """End an attempt whose outcome is unknown because the worker's own code raised an error."""
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
            self.claim_again.set()
        else:
            why = f"worker {self._registration.id} {self._cancelled.get(claim.lease_id, 'shut down')}"
            self._end(claim, Released(why, started=claim.lease_id in self._begun))

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        self._forget(claim)
        self._ended += 1
        self.settler.put(Ending(claim, outcome, rng.sample(), kept() if LISTENERS else None))

    def _forget(self, claim: Claim) -> None:
        self._open.pop(claim.lease_id, None)
        self._cancelled.pop(claim.lease_id, None)

    def settled(self, endings: Sequence[Ending], settled: Settled) -> None:
        """Free the slots of attempts with ends that are written; log the new states of their jobs and emit events."""
        for ending in endings:
            self._begun.pop(ending.claim.lease_id, None)
            if self._running.pop(ending.claim.lease_id, None) is not None:
                self._ended -= 1
        if settled.lost or self._lost:
            self._lost.difference_update(ending.claim.lease_id for ending in endings)
        emit_settled(endings, settled)
        self._app.settled(settled.moved, settled.lost)
        self._executor.functions.report(endings, settled.moved)
        for moved in settled.moved:
            if moved.reason == BAD_POLICY:
                log_undecided(moved)
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
        if endings:
            settled = await self._app.store.arun(leases.settle(endings, now=self._app.now()))
            emit_settled(endings, settled)
            self._app.settled(settled.moved, settled.lost)

    # ---------------------------------------------------------------- called in the threads of the heartbeat

    def doubt(self) -> None:
        """Have the claimer give back leases that the database holds for this worker and the worker does not know."""
        self._loop.call_soon_threadsafe(self._doubt)

    def _doubt(self) -> None:
        self.doubted = True
        self.claim_again.set()

    def reports(self) -> list[ProgressReport]:
        """Take the progress and heartbeats of handlers that are not written yet."""
        return self._executor.unwritten()

    def lost(self, lease_ids: frozenset[int]) -> None:
        """Stop the attempts that have lost their leases."""
        # At once, because a handler may block the loop, and be the one that reads ctx.should_stop.
        lease_ids = frozenset(each for each in lease_ids if not self._executor.ends_by_itself(each))
        self._executor.stop(Stop.LOST, lease_ids)
        self._loop.call_soon_threadsafe(self._interrupt, lease_ids)

    def _interrupt(self, lease_ids: frozenset[int]) -> None:
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
        ends = {each for each in ends if each not in self._cancelled and not self._executor.ends_by_itself(each)}
        if ends:
            self._executor.stop(Stop.LOST, ends)
            self._loop.call_soon_threadsafe(self._give_up, ends)

    def _give_up(self, lease_ids: Iterable[int]) -> None:
        for lease_id in lease_ids:
            if lease_id in self._open:
                why = "%s: its lease ends, since no heartbeat was written; its handler is stopped"
                log.warning(why, self._described(lease_id))
                self._cancel(lease_id, "could not write a heartbeat in time")
