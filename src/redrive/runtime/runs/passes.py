"""The parts of one pass of a body, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from redrive.app.app import App
from redrive.app.flow_calls import Asked, ChildCall, GatherCall, SleepCall, StepCall, WaitCall
from redrive.app.workflow import Workflow
from redrive.engine.records import Claim
from redrive.engine.runs import RunState
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.runs.body import BodyCalls
from redrive.runtime.runs.branches import Branch
from redrive.runtime.runs.conductor import Conductor, StartThread
from redrive.runtime.runs.groups import run_group
from redrive.runtime.runs.recorder import Recorder
from redrive.runtime.runs.steps import run_step
from redrive.runtime.runs.undo import Undos
from redrive.runtime.runs.waits import call_child, sleep, wait_for


def new_pass(  # noqa: PLR0913 - the parts of a worker that a run needs
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
    within: Callable[[Awaitable[Any]], Awaitable[Any]],
    cut_off: Callable[[], bool],
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
        within=within,
        cut_off=cut_off,
    )


def _carry_out(conductor: Conductor, branch: Branch, asked: Asked) -> Coroutine[Any, Any, Any]:
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
