"""The compensation of a run that has failed for good or was cancelled.

The undos of its finished steps run in reverse order, each as a recorded step. Their beginning is recorded first. A
later pass that finds this record replays the body, which must not take new steps, to receive the functions again, and
goes on with the undos that are not recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import structs

from redrive.app.failures import failed
from redrive.app.flow_calls import StepFunction, Undo
from redrive.app.run_errors import rebuilt, stored
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Failed
from redrive.engine.runs import UNDO_MARK, StepError, StepKind, StepOutcome, StepRecord, path_order, undo_path
from redrive.engine.settle import decide
from redrive.engine.steps import NewStep
from redrive.errors import CancelRequested
from redrive.policy import Failure, Policy
from redrive.runtime.handlers import outcome_of
from redrive.runtime.runs.branches import CURRENT, Branch
from redrive.runtime.runs.conductor import Conductor
from redrive.runtime.runs.steps import Tries, call_function


@dataclass(frozen=True, slots=True)
class _Entry:
    row: StepRecord
    undo: Undo
    policy: Policy
    step: StepFunction


class Undos:
    """The undos of one run."""

    def __init__(self, rows: Iterable[StepRecord]) -> None:
        self._rows = {row.path: row for row in rows}
        self._entries: list[_Entry] = []
        self._mark = self._rows.get(UNDO_MARK)

    @property
    def begun(self) -> bool:
        """True if the undos of the run have begun."""
        return self._mark is not None

    def add(self, row: StepRecord, undo: Undo, policy: Policy, step: StepFunction) -> None:
        """Note the undo of a finished step."""
        self._entries.append(_Entry(row, undo, policy, step))

    async def run(self, conductor: Conductor, main: Branch, error: BaseException, *, reason: str | None = None) -> None:
        """Run the undos if the run ends with this error, and raise what it ends with.

        A ``reason`` is given if the run ends independently of its policy.
        """
        if not self._entries or not (self.begun or reason is not None or _is_final(conductor, error)):
            return
        first = await self._begin(conductor, error, reason)
        main.shields += 1
        main.replay_only = False
        main.joining = False
        token = CURRENT.set(main)
        try:
            with conductor.listed(main):
                report = [await self._undo(conductor, main, entry) for entry in sorted(self._entries, key=_newest)]
        finally:
            CURRENT.reset(token)
        conductor.ends_with(self._end(first, report))

    async def _begin(self, conductor: Conductor, error: BaseException, reason: str | None) -> StepError:
        """Record that the undos begin, and return the error of the body."""
        if self._mark is not None:
            return msgspec.json.decode(self._mark.result or b"", type=StepError)
        if isinstance(error, CancelRequested):
            first = StepError(("redrive.errors.CancelRequested",), str(error), "CANCELLED")
        else:
            outcome = outcome_of(error)
            first = stored(outcome if isinstance(outcome, Failed) else failed(error), error)
            first = structs.replace(first, reason=reason or first.reason)
        end = NewStep(UNDO_MARK, StepKind.VALUE, UNDO_MARK, result=msgspec.json.encode(first))
        self._mark = await conductor.record(end)
        return first

    async def _undo(self, conductor: Conductor, main: Branch, entry: _Entry) -> str:
        """Run one undo, and return a text about its end."""
        path = undo_path(entry.row.path)
        row = self._rows.get(path)
        if row is None or not row.is_final:
            name, value = entry.undo.name, entry.step.returns.read(entry.row.result)
            function = functools.partial(call_function, conductor, name, entry.undo.function, value)
            tries = Tries(conductor, main, path, function, kind=StepKind.UNDO, name=name, policy=entry.policy)
            row = await tries.run(row)
        if row.outcome is StepOutcome.FAILED:
            why = "" if row.error is None else f": {row.error.message}"
            return f"{entry.row.name} not undone{why}"
        return f"{entry.row.name} undone"

    def _end(self, first: StepError, report: list[str]) -> Cancelled | Failed:
        """Return the outcome of the run: its first error with the report about the undos."""
        text = f"{first.message} ({', '.join(report)})"
        if first.reason == "CANCELLED":
            return Cancelled(text)
        described = failed(rebuilt("of the run", first))
        failure = described.failure
        kept = Failure(first.types or failure.types, text, first.reason, failure.stage, permanent=text)
        return structs.replace(described, failure=kept)


def _is_final(conductor: Conductor, error: BaseException) -> bool:
    """Return True if no further attempt of the run follows this error."""
    if isinstance(error, CancelRequested):
        return True
    outcome = conductor.outcome_of(error)
    return decide(conductor.claim, outcome, conductor.now_at(), 0.0).state in (State.DEAD, State.CANCELLED)


def _newest(entry: _Entry) -> tuple[float, tuple[int, ...]]:
    order = path_order(entry.row.path)[1]
    return -entry.row.at.timestamp(), tuple(-each for each in order)
