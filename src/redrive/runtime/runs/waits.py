"""Sleeps, and waits for signals, for emitted values and for child runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from redrive.app.flows.calls import ChildCall, SleepCall, WaitCall, read_value
from redrive.app.flows.run_errors import stored
from redrive.app.tasks.failures import failed
from redrive.engine.lifecycle import State
from redrive.engine.replay import StepRequest, shown
from redrive.engine.runs import StepError, StepKind, StepOutcome, StepRecord
from redrive.engine.steps import NewStep, StepEnd
from redrive.errors import (
    ChildFailed,
    LeaseLost,
    PayloadEncoded,
    PayloadError,
    StoreError,
    TaskDefinitionError,
    TimedOut,
)
from redrive.policy import format_duration
from redrive.runtime.runs.branches import Branch
from redrive.runtime.runs.conductor import Conductor

_ZERO = timedelta(0)


async def sleep(conductor: Conductor, branch: Branch, call: SleepCall) -> None:
    """Wait until the recorded end of a sleep. Its row is final at once: only the due time matters."""
    name, digest = ("sleep", None) if call.key is None else (call.key.name, call.key.digest)
    answer = conductor.ask(branch, StepRequest(StepKind.SLEEP, name, digest, call.line))
    row = answer.row
    await conductor.ready(branch, answer)
    if row is None:
        await conductor.edge(branch, answer.path)
        end = NewStep(answer.path, StepKind.SLEEP, name, delay=call.span, due_at=call.until, digest=digest)
        if _is_over(conductor, conductor.writes.expected(end)):
            row = await conductor.writes.record_for(branch, end)
        else:
            if conductor.keyed is not None:
                # Its end will have a number.
                end = replace(end, outcome=StepOutcome.WAITING)
            row = await conductor.waits.wait_with(branch, end, "sleeps")
    while not _is_over(conductor, row):
        await conductor.edge(branch, answer.path)
        await conductor.waits.wait(branch, row.due_at, "sleeps", answer.path)
    if not row.is_final:
        took = _waited(conductor, row)
        end = NewStep(row.path, row.kind, row.name, took=took, due_at=row.due_at, digest=digest)
        conductor.writes.end_with_next(branch, end)
    branch.reached(row.due_at or row.at)


def _waited(conductor: Conductor, row: StepRecord | None) -> timedelta:
    """Return how long a call beside named ones has waited: the row of its end replaces that of its begin."""
    if conductor.keyed is None or row is None:
        return _ZERO
    return max(conductor.now_at() - row.at, _ZERO)


def _is_over(conductor: Conductor, row: StepRecord) -> bool:
    return row.due_at is None or row.due_at <= conductor.now_at()


async def wait_for(conductor: Conductor, branch: Branch, call: WaitCall) -> Any:
    """Return the value of the next unread signal of a name, or of an emitted value; raise `TimedOut` without one."""
    digest = None if call.key is None else call.key.digest
    answer = conductor.ask(branch, StepRequest(call.kind, call.name, digest, call.line))
    row = answer.row
    await conductor.ready(branch, answer)
    if row is None or not row.is_final:
        row = await _received(conductor, branch, answer.path, call, row)
    branch.received = row.kind is StepKind.WAIT and row.ref is not None
    if row.outcome is StepOutcome.TIMED_OUT:
        error = TimedOut(f"{conductor.describe()}: {shown(call.kind, call.name)} ended without an answer")
        conductor.errors.note(error, answer.path)
        raise error
    if row.outcome is StepOutcome.FAILED:
        raise conductor.errors.of(row)
    return _read(call, row.result)


def _read(call: WaitCall, raw: bytes | None) -> Any:
    return read_value(raw, call.hint, f"the value of {_what(call)}")


def _misfit(read: Callable[[], object]) -> StepError | None:
    """Return why a value does not fit its type, as the row of a failure has it; None if it does."""
    try:
        read()
    except PayloadEncoded:
        # Another worker can read it.
        raise
    except PayloadError as error:
        # Its place is in redrive.
        return replace(stored(failed(error), error), place=None)
    return None


async def _received(
    conductor: Conductor, branch: Branch, path: str, call: WaitCall, row: StepRecord | None
) -> StepRecord:
    """Wait for the end of a wait, and return its row, which is written."""
    made: StepEnd
    if row is not None and row.is_renewed:
        # It begins anew, with its time limit.
        row = None
    while True:
        if call.kind is StepKind.WAIT:
            await _look(conductor, branch, call)
        # A branch that was dropped, now or before, receives nothing.
        conductor.check_receives(branch)
        # What has arrived in time is received, although the run has continued later.
        if call.kind is StepKind.WAIT:
            received = _signal(conductor, branch, path, call, row)
            if received is not None:
                return received
        else:
            found = _emitted(conductor, path, call, row)
            if found is not None:
                made = found
                break
        if row is not None and row.due_at is not None and row.due_at <= conductor.now_at():
            took = _waited(conductor, row)
            made = NewStep(path, call.kind, call.name, StepOutcome.TIMED_OUT, took, due_at=row.due_at)
            break
        await conductor.edge(branch, path)
        why = f"waits for {_what(call)}" + (
            "" if call.timeout is None else f", {format_duration(call.timeout)} at most"
        )
        if row is None:
            digest = None if call.key is None else call.key.digest
            end = NewStep(path, call.kind, call.name, StepOutcome.WAITING, delay=call.timeout, digest=digest)
            row = await conductor.waits.wait_with(branch, end, why)
        else:
            await conductor.waits.wait(branch, row.due_at, why, path)
    written = await conductor.writes.record_for(branch, made)
    branch.reached(written.at)
    return written


def _what(call: WaitCall) -> str:
    return f"the {'signal' if call.kind is StepKind.WAIT else 'event'} {call.name!r}"


def _emitted(conductor: Conductor, path: str, call: WaitCall, row: StepRecord | None) -> NewStep | None:
    """Return the end of a wait for an emitted value, if it has come in time."""
    emit = conductor.inbox.emits.get(call.name)
    if emit is None or _is_late(emit.at, row):
        return None
    return _value(NewStep(path, call.kind, call.name, took=_waited(conductor, row)), call, emit.payload)


def _value(end: NewStep, call: WaitCall, raw: bytes | None) -> NewStep:
    """Return the row of a wait with its value; failed if that does not fit the type."""
    error = _misfit(lambda: _read(call, raw))
    if error is None:
        return replace(end, result=raw)
    return replace(end, outcome=StepOutcome.FAILED, error=error)


async def _look(conductor: Conductor, branch: Branch, call: WaitCall) -> None:
    """Wait until the branch may receive a signal, and read more of its name if not all were read."""
    inbox = conductor.inbox
    if inbox.is_partial and not any(each.name == call.name for each in inbox.signals):
        inbox.add_signals(await conductor.recorder.signals(call.name))
    await conductor.receipts.turn(branch)


def _signal(
    conductor: Conductor, branch: Branch, path: str, call: WaitCall, row: StepRecord | None
) -> StepRecord | None:
    """Receive the next signal, if one has come in time; its row is written with what the branch does next."""
    signal = conductor.inbox.first(call.name, None if row is None else row.due_at)
    if signal is None:
        return None
    digest = None if call.key is None else call.key.digest
    took, at = _waited(conductor, row), conductor.now_at()
    end = NewStep(path, call.kind, call.name, took=took, ref=signal.id, at=at, digest=digest)
    end = _value(end, call, signal.payload)
    receipts = conductor.receipts if conductor.keyed is None else conductor.keyed
    receipts.receive(branch, end, signal)
    return conductor.writes.expected(end)


def _is_late(at: datetime, row: StepRecord | None) -> bool:
    return row is not None and row.due_at is not None and at > row.due_at


async def call_child(conductor: Conductor, branch: Branch, call: ChildCall) -> Any:
    """Start a child run, wait for its end, and return its result."""
    name, *earlier = call.workflow.names
    answer = conductor.ask(branch, StepRequest(StepKind.CALL, name, call.digest, call.line, tuple(earlier)))
    row = answer.row
    await conductor.ready(branch, answer)
    if row is None:
        await conductor.edge(branch, answer.path, has_effect=True)
        row = await _started(conductor, branch, answer.path, call)
    if not row.is_final:
        row = await _ended(conductor, branch, row, call)
    if row.outcome is StepOutcome.FAILED:
        raise conductor.errors.of(row)
    return call.workflow.returns.read(row.result)


async def _started(conductor: Conductor, branch: Branch, path: str, call: ChildCall) -> StepRecord:
    """Start a child run, and return the row of its call; a child that cannot be started has failed."""
    name = call.workflow.name
    try:
        if conductor.app.find(name) is None:
            raise TaskDefinitionError(  # noqa: TRY301 - recorded like the errors of the start
                f"flow.call(): {name!r} is a workflow of another app, and a run calls those of its own app: "
                "start it in a step, with an id"
            )
        return await conductor.writes.start_child(branch, path, call)
    except (LeaseLost, StoreError):
        raise
    except Exception as error:  # noqa: BLE001 - a hook of the application may raise anything
        why = stored(failed(error), error)
    made = NewStep(path, StepKind.CALL, name, StepOutcome.FAILED, digest=call.digest, error=why)
    return await conductor.writes.record_for(branch, made)


async def _ended(conductor: Conductor, branch: Branch, row: StepRecord, call: ChildCall) -> StepRecord:
    """Wait for the end of a child run, and return the row of the call, which is written."""
    while True:
        conductor.check_receives(branch)
        end = None if row.ref is None else conductor.inbox.children.get(row.ref)
        if end is not None and end.state is not State.CANCELLED:
            break
        # A run is cancelled with its children, and receives that before their ends.
        await conductor.edge(branch, row.path)
        if end is not None:
            break
        await conductor.waits.wait(branch, None, f"waits for the run {row.ref} of {row.name}", row.path)
    result, error = end.result, None
    if end.state is State.SUCCEEDED:
        error = _misfit(lambda: call.workflow.returns.read(result))
    else:
        word = "was cancelled" if end.state is State.CANCELLED else "failed for good"
        text = f"the child run {end.job_id} of {row.name} {word}: {end.error or 'no reason was given'}"
        error = StepError((_CHILD_FAILED,), text, end.reason or "ERROR")
    made = NewStep(row.path, row.kind, row.name, digest=row.digest, ref=row.ref)
    if error is None:
        made = replace(made, took=_waited(conductor, row), result=result)
    else:
        made = replace(made, outcome=StepOutcome.FAILED, error=error)
    written = await conductor.writes.record_for(branch, made)
    branch.reached(written.at)
    return written


_CHILD_FAILED = f"{ChildFailed.__module__}.{ChildFailed.__qualname__}"
