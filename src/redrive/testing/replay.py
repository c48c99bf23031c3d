"""The comparison of a workflow's code with the history of a run, without a database.

The body is replayed by the conductor of a worker. Recorded steps return their recorded results, and nothing is called.
Where the history ends, the replay ends. The time, random numbers and UUIDs of Python differ in each pass, so a body
that uses them is refused.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - its functions are refused here
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from redrive.app.app import App
from redrive.app.flows.calls import ChildCall, StepCall
from redrive.app.flows.history import RunHistory
from redrive.app.flows.workflow import Workflow
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Held
from redrive.engine.records import Claim
from redrive.engine.replay import describe_run, shown
from redrive.engine.runs import RunFlags, RunRecord, RunState, SignalRecord, StepKind, StepRecord
from redrive.engine.steps import NewStep, StepEnd, StepMark
from redrive.errors import BranchDropped, ConfigurationError, NonDeterminism
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.runs.attempt import new_conductor
from redrive.runtime.runs.branches import CURRENT
from redrive.runtime.runs.conductor import Conductor, RunEnded
from redrive.runtime.runs.keyed import Patience
from redrive.runtime.runs.passes import Pass
from redrive.runtime.threads import carry_context
from redrive.stores.operations.runs.waits import RunNews
from redrive.testing.drain import refuse_loop

#: What a body must not use, with what it uses instead.
_CHANGING: dict[tuple[Any, str], str] = {
    (time, "time"): "flow.now()",
    (uuid, "uuid1"): "flow.uuid()",
    (uuid, "uuid4"): "flow.uuid()",
    **{
        (random, name): f"flow.random.{name}()"
        for name in ("random", "randint", "randrange", "uniform", "choice", "choices", "sample", "shuffle")
    },
}

_OURS = str(Path(__file__).parents[1])


def replay(app: App, *histories: RunHistory | str | bytes | Path) -> None:
    """Check that the code of an app fits the histories of runs. No step is called, and no database is opened.

    For CI: export runs of production by ``redrive runs export``, and replay them before a deploy.

    Args:
        app: the app with the workflows.
        *histories: what `Run.history` returns, its JSON, or the path of a file with it.

    Raises:
        NonDeterminism: a body asks for another step than was recorded, ends without a recorded one, returns another
            result, or uses the time or random numbers of Python. The message names the run, the steps and the line.
        ConfigurationError: a history cannot be read, or the app has no such workflow or version.
    """
    refuse_loop("replay", "areplay")
    _check(histories)
    for each in histories:
        asyncio.run(_replay(app, _read(each)))


async def areplay(app: App, *histories: RunHistory | str | bytes | Path) -> None:
    """Check that the code of an app fits the histories of runs; see `replay`."""
    _check(histories)
    for each in histories:
        await asyncio.create_task(_replay(app, _read(each)))


def _check(histories: Sequence[object]) -> None:
    if not histories:
        raise ConfigurationError("replay() without a history checks nothing: replay(app, run.history())")


def _read(history: object) -> RunHistory:
    if isinstance(history, RunHistory):
        return history
    if isinstance(history, Path):
        return RunHistory.from_json(history.read_bytes())
    if isinstance(history, str | bytes):
        return RunHistory.from_json(history)
    raise ConfigurationError(f"replay() takes histories of runs, as Run.history() returns them, got {history!r}")


async def _replay(app: App, history: RunHistory) -> None:
    run = history.run
    task = app.find(history.task)
    code = task.of_version(run.version) if isinstance(task, Workflow) else None
    if code is None:
        what = f"version {run.version} of the workflow {history.task!r}"
        raise ConfigurationError(f"replay() of {describe_run(run)}: the app has no {what}")
    conductor = _conductor(app, code, history)
    carry_context()
    try:
        with _changing_refused(run):
            result = await Pass(conductor).compare(code.signature.read(history.arguments.encode()))
    except (RunEnded, BranchDropped, Exception) as error:
        problem = _problem(history, conductor, error)
        if problem is not None:
            raise NonDeterminism(problem) from error
    else:
        _compare(code, history, result)


def _problem(history: RunHistory, conductor: Conductor, error: BaseException) -> str | None:
    """Return why an end of the body does not fit the history."""
    run, succeeded = history.run, history.state is State.SUCCEEDED
    if isinstance(error.__cause__, NonDeterminism):
        # The body used what is refused, and has ended early therefore.
        return str(error.__cause__)
    match error:
        case RunEnded(outcome=Held(why)):
            return why
        case NonDeterminism():
            return str(error)
        case BranchDropped():
            return _more(run, conductor) if succeeded else None
        case Exception():
            return f"{describe_run(run)}: the run succeeded, and the code now fails: {error!r}" if succeeded else None
        case _:
            return None


def _more(run: RunRecord, conductor: Conductor) -> str:
    asked = conductor.asked
    what = "" if asked is None else f": {shown(asked.kind, asked.name)} ({asked.line})"
    return f"{describe_run(run)}: the run has ended, and the code now asks for another step{what}"


def _compare(code: Workflow[Any, Any, Any], history: RunHistory, result: object) -> None:
    if history.state is not State.SUCCEEDED:
        return
    raw = code.returns.check(result)
    recorded = None if history.result is None else history.result.encode()
    if _canonical(raw) != _canonical(recorded):
        now = (b"null" if raw is None else raw).decode()
        raise NonDeterminism(
            f"{describe_run(history.run)}: the run returned {history.result or 'null'}, and the code now returns {now}"
        )


def _canonical(raw: bytes | None) -> bytes | None:
    return None if raw is None else msgspec.json.encode(msgspec.json.decode(raw), order="deterministic")


@contextmanager
def _changing_refused(run: RunRecord) -> Iterator[None]:
    """Refuse functions with another result in each pass, where the body calls them."""
    with ExitStack() as stack:
        for (module, name), instead in _CHANGING.items():
            original = getattr(module, name)
            stack.enter_context(mock.patch.object(module, name, _refusing(run, module, original, instead)))
        yield


def _refusing(run: RunRecord, module: Any, original: Callable[..., Any], instead: str) -> Callable[..., Any]:  # noqa: ANN401 - a module
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the original
        frame = sys._getframe(1)  # as in `redrive.app.flows.calls`
        file = frame.f_code.co_filename
        if CURRENT.get() is None or file.startswith(_OURS) or frame.f_globals.get("__name__", "").startswith("asyncio"):
            return original(*args, **kwargs)
        place = f"{'/'.join(Path(file).parts[-2:])}:{frame.f_lineno}"
        raise NonDeterminism(
            f"{describe_run(run)}: the body calls {module.__name__}.{original.__name__}() ({place}), which returns "
            f"something else in each pass: use {instead}, or call it in a step"
        )

    return call


class _NoRecorder:
    """Ends the replay where it would write."""

    before: StepMark | None = None
    gap = False

    async def record(self, ends: Sequence[StepEnd], values: bytes | None) -> tuple[Sequence[StepRecord], RunFlags]:  # noqa: ARG002 - a part of the protocol
        raise BranchDropped

    async def arrived(self) -> RunNews | None:
        return None

    async def signals(self, name: str) -> Sequence[SignalRecord]:  # noqa: ARG002 - as above
        return ()

    async def start_child(self, run: RunRecord, path: str, call: ChildCall) -> StepRecord:  # noqa: ARG002 - as above
        raise BranchDropped

    async def transacted(self, end: NewStep, call: StepCall) -> StepRecord:  # noqa: ARG002 - as above
        raise BranchDropped

    async def recorded(self, path: str) -> StepRecord | None:  # noqa: ARG002 - as above
        return None


def _conductor(app: App, code: Workflow[Any, Any, Any], history: RunHistory) -> Conductor:
    instants = [each for row in history.steps for each in (row.at, row.due_at if row.kind is StepKind.SLEEP else None)]
    began, last = history.started_at, max((each for each in instants if each), default=history.started_at)
    claim = Claim(
        id=history.run.job_id,
        lease_id=1,
        task=code.name,
        queue=code.defaults.queue,
        started_at=began,
        claimed_at=began,
        payload=None,
        policy=code.policy,
    )
    state = RunState(history.run, steps=history.steps)
    return new_conductor(
        claim,
        code,
        state,
        _NoRecorder(),
        app=app,
        functions=PolicyFunctions(app),
        now=lambda: last,
        start_thread=None,
        asleep=_never,
        cut_off=lambda: False,
        patience=Patience(),
    )


async def _never(_: float) -> None:
    raise BranchDropped
