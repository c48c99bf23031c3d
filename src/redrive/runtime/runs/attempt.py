"""One attempt of a run: from its claim to its outcome."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.attempts.effects import CURRENT as EFFECTS
from redrive.app.flows.calls import ChildCall, GatherCall, OneCall, SleepCall, StepCall, WaitCall
from redrive.app.flows.workflow import Workflow
from redrive.app.tasks.failures import ERROR_TEXT, clean
from redrive.clock import SystemClock
from redrive.engine.lease import limit_of
from redrive.engine.outcome import Held, Outcome, Parked, Released, Unreadable
from redrive.engine.records import Claim
from redrive.engine.replay import describe_run
from redrive.engine.runs import RunState
from redrive.engine.steps import StepBatch, StepsWritten
from redrive.errors import ConfigurationError, PayloadEncoded, PayloadError
from redrive.runtime import layers, log
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.handlers import TimeLimits
from redrive.runtime.runs.body import BodyCalls
from redrive.runtime.runs.branches import Branch
from redrive.runtime.runs.conductor import Conductor, StartThread, encoded
from redrive.runtime.runs.groups import run_group
from redrive.runtime.runs.keyed import MOST_QUIET, QUIET, Patience
from redrive.runtime.runs.passes import Pass
from redrive.runtime.runs.recorder import Recorder, StoreRecorder
from redrive.runtime.runs.steps import run_step
from redrive.runtime.runs.undo import Undos
from redrive.runtime.runs.waits import call_child, sleep, wait_for
from redrive.runtime.threads import Threads
from redrive.stores.operations.workers import Asked


def new_conductor(
    claim: Claim,
    workflow: Workflow[Any, Any, Any],
    state: RunState,
    recorder: Recorder,
    *,
    app: App,
    functions: PolicyFunctions,
    now: Callable[[], datetime],
    start_thread: StartThread | None,
    asleep: Callable[[float], Coroutine[Any, Any, None]],
    cut_off: Callable[[], bool],
    patience: Patience,
) -> Conductor:
    """Return the conductor of one pass; see `Conductor`."""
    return Conductor(
        claim,
        workflow,
        state,
        recorder,
        calls=lambda conductor: BodyCalls(conductor, _carry_out),
        undos=Undos(state.steps),
        app=app,
        functions=functions,
        now=now,
        start_thread=start_thread,
        asleep=asleep,
        cut_off=cut_off,
        patience=patience,
    )


def _carry_out(conductor: Conductor, branch: Branch, asked: OneCall) -> Coroutine[Any, Any, Any]:
    """Return the coroutine that carries out what a branch asks for."""
    match asked:
        case StepCall():
            return run_step(conductor, branch, asked)
        case SleepCall():
            return sleep(conductor, branch, asked)
        case WaitCall():
            return wait_for(conductor, branch, asked)
        case ChildCall():
            return call_child(conductor, branch, asked)
        case GatherCall():
            return run_group(conductor, branch, asked)


_GAP = "the database has lost a recorded step, as after a failover; the run is replayed from what is stored"


# Runs without progress in their last pass that a worker remembers.
_MOST_KEPT = 10_000


class RunAttempts:
    """Runs the bodies of workflows in one worker.

    Args:
        app: the app with the workflows.
        threads: for ``def`` bodies and steps; None in drain mode.
        write: writes rows of running runs.
        functions: the functions of policies.
        cut_off: returns True if the caller has cancelled the attempt of a lease.
        limits: the time limits of attempts.
        linger: the seconds of a wait that a body with named calls keeps in memory.
    """

    def __init__(  # noqa: PLR0917 - the parts of an executor that it uses
        self,
        app: App,
        threads: Threads | None,
        write: Callable[[StepBatch], Awaitable[StepsWritten]],
        functions: PolicyFunctions,
        cut_off: Callable[[int], bool],
        limits: TimeLimits,
        linger: float,
    ) -> None:
        self._app = app
        self._threads = threads
        self._write = write
        self._functions = functions
        self._cut_off = cut_off
        self._limits, self._linger = limits, linger
        #: The seconds for which bodies with named calls settle, by their runs, where a pass has recorded nothing.
        self._quiet: dict[int, float] = {}
        self._running: dict[int, Conductor] = {}

    def asked(self, asked: Mapping[int, Asked]) -> None:
        """Have runs, by their leases, read what operators ask of them."""
        for lease_id, what in asked.items():
            conductor = self._running.get(lease_id)
            if conductor is not None:
                conductor.asked_to(what)

    async def run(
        self, workflow: Workflow[Any, Any, Any], claim: Claim, state: RunState, *, expired: bool = False
    ) -> Outcome:
        """Continue a run, and return how its attempt ended; an ``expired`` one only runs its undos.

        Raise `asyncio.CancelledError` if the caller has cancelled the attempt, which so has no outcome.
        """
        version = state.run.version
        code = workflow.of_version(version)
        if code is None:
            known = ", ".join(map(str, sorted(workflow.versions)))
            why = f"{describe_run(state.run)}: this worker has the code of version {known} only"
            return Held(why, began=False)
        undecoded = encoded(state.run, state.steps, (state.signals, state.emits, state.children))
        if undecoded is not None:
            return Held(undecoded, began=False)
        try:
            arguments = code.signature.read(claim.payload or b"{}")
        except (PayloadError, ConfigurationError) as error:
            return Unreadable(clean(error, ERROR_TEXT), encoded=isinstance(error, PayloadEncoded))
        conductor = self._running[claim.lease_id] = self._conductor(claim, code, state)
        token, layer = EFFECTS.set(None), layers.begin(workflow.name, claim.policy, claim.claimed_at)
        try:
            within = functools.partial(self._limits.within, limit_of(claim.policy))
            outcome = await Pass(conductor).run(arguments, within, expired=expired)
        except BaseException as error:
            if issubclass(type(error), asyncio.CancelledError) and self._cut_off(claim.lease_id):
                raise
            outcome = conductor.errors.outcome_of(error)
        finally:
            EFFECTS.reset(token)
            layers.end(layer)
            del self._running[claim.lease_id]
        self._note_progress(claim, conductor, outcome)
        if conductor.recorder.gap:
            # Whatever the body has made of that: it is the database that has failed, and not the code.
            log.warning("%s: %s", conductor.describe(), _GAP)
            return Released(_GAP, began=True)
        return outcome

    def _note_progress(self, claim: Claim, conductor: Conductor, outcome: Outcome) -> None:
        """Let a body settle for longer in its next pass if this one has parked without a new row."""
        before = self._quiet.pop(claim.id, QUIET)
        if (
            conductor.keyed is not None
            and isinstance(outcome, Parked)
            and not (conductor.recorder.before or outcome.steps)
        ):
            if len(self._quiet) >= _MOST_KEPT:
                del self._quiet[next(iter(self._quiet))]
            self._quiet[claim.id] = min(before * 2, MOST_QUIET)

    def _conductor(self, claim: Claim, code: Workflow[Any, Any, Any], state: RunState) -> Conductor:
        clock, threads = self._app.clock, self._threads
        began = SystemClock.monotonic()

        def start_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
            assert threads is not None
            return threads.start(claim.lease_id, call)

        in_thread = None if threads is None else start_thread
        recorder = StoreRecorder(self._app, claim, self._write, clock or SystemClock(), in_thread=in_thread)
        # The clock of the database was read for the claim, and time has passed since: the sum is never ahead of it.
        return new_conductor(
            claim,
            code,
            state,
            recorder,
            app=self._app,
            functions=self._functions,
            now=lambda: self._app.now() or claim.claimed_at + timedelta(seconds=SystemClock.monotonic() - began),
            start_thread=in_thread,
            asleep=(clock or SystemClock()).asleep,
            cut_off=functools.partial(self._cut_off, claim.lease_id),
            patience=Patience(self._quiet.get(claim.id, QUIET), self._linger),
        )
