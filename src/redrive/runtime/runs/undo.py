"""The compensation of a run that ends otherwise than by success.

The undos of its finished steps run in reverse order, each as a recorded step. Their beginning is recorded first; see
`redrive.engine.undoing`. A later pass that finds this record replays the body, which must not take new steps, to
receive the functions again, and goes on with the undos that are not recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from redrive.app.flows.calls import StepFunction, Undo
from redrive.app.flows.run_errors import rebuilt, stored
from redrive.app.tasks.failures import failed
from redrive.engine.outcome import Cancelled, Expired, Failed, Held, Outcome, Parked
from redrive.engine.runs import UNDO_MARK, StepError, StepKind, StepOutcome, StepRecord, undo_path
from redrive.engine.settle import DEADLINE
from redrive.engine.undoing import UndonePath, UndoPlan, given_up, new_plan, newest, not_undone, plan_of, standing
from redrive.errors import GiveUp
from redrive.policy import Failure, Policy
from redrive.runtime.runs.branches import CURRENT, Branch
from redrive.runtime.runs.conductor import Conductor
from redrive.runtime.runs.steps import Tries, call_function, stricter

_CANCELLED = "CANCELLED"


class _Entry(msgspec.Struct, frozen=True):
    row: StepRecord
    undo: Undo
    policy: Policy
    step: StepFunction


class Undos:
    """The undos of one run."""

    def __init__(self, rows: Iterable[StepRecord]) -> None:
        self._rows = {row.path: row for row in rows}
        self._entries: dict[str, _Entry] = {}
        self._unstored: dict[str, Any] = {}
        self._mark = self._rows.get(UNDO_MARK)

    @property
    def begun(self) -> bool:
        """True if the undos of the run have begun."""
        return self._mark is not None

    def add(self, row: StepRecord, undo: Undo, policy: Policy, step: StepFunction) -> None:
        """Note the undo of a step that has had its effect; a later row of it takes the place of an earlier one."""
        self._entries[row.path] = _Entry(row, undo, policy, step)

    def keep(self, path: str, value: object) -> None:
        """Keep what the function of a step has returned, which cannot be stored, for its undo in this pass."""
        self._unstored[path] = value

    def _value(self, entry: _Entry) -> Any:
        """Return what the function of a step has returned."""
        if not entry.row.is_unstored:
            return entry.step.returns.read(entry.row.result)
        if entry.row.path not in self._unstored:
            raise GiveUp("what the step returned could not be stored, and is lost")
        return self._unstored[entry.row.path]

    async def run(self, conductor: Conductor, main: Branch, outcome: Outcome, error: BaseException | None) -> Outcome:
        """Begin and run the undos of a run that ends with this outcome, and return what it ends with."""
        first = _first(outcome, error)
        if not self._entries:
            if conductor.errors.has_reacted(error):
                # A run that starts again forgets what the body did about the failure.
                await self._begin(conductor, first, conductor.errors.path_of(error))
            await conductor.writes.rows.flush()
            return _ended(outcome)
        await self._begin(conductor, first, conductor.errors.path_of(error))
        if conductor.is_late:
            _later(conductor)
        report = await self._undo_all(conductor, main)
        return _reported(first, report, outcome)

    async def go_on(self, conductor: Conductor, main: Branch) -> Outcome:
        """Run the undos that are left, and return what the run ends with."""
        assert self._mark is not None  # they have begun
        first = self._mark.error or StepError((), "no error was recorded", "ERROR")
        problem = self._problem(conductor)
        if problem is not None:
            return await self._cannot(conductor, first, problem)
        if plan_of(self._mark) is None:
            await self._begin(conductor, first, None)
        report = await self._undo_all(conductor, main)
        return _reported(first, report, None)

    async def _begin(self, conductor: Conductor, first: StepError, path: str | None) -> None:
        """Record that the undos begin, and which they are."""
        steps = tuple(UndonePath(each.row.path, each.row.name) for each in self._ordered())
        self._mark = await conductor.writes.record(new_plan(first, UndoPlan(steps, path)))

    def _ordered(self) -> list[_Entry]:
        return sorted(self._entries.values(), key=lambda entry: newest(entry.row))

    # ---------------------------------------------------------------- code that does not fit

    def _problem(self, conductor: Conductor) -> str | None:
        """Return why the code does not have all undos that are left; None if it has."""
        left = [row for row in standing(list(self._rows.values())) if not self._is_final(row)]
        if plan_of(self._mark) is None:
            reached = {row.path for row in conductor.replay.unreached()}
            left = [row for row in left if row.path in reached]
        missing = [row for row in left if row.path not in self._entries]
        if not missing:
            return None
        names = ", ".join(f"{row.name} ({row.path})" for row in missing)
        return conductor.mismatch or f"{conductor.describe()}: the code does not reach the undo of {names}"

    def _is_final(self, row: StepRecord) -> bool:
        undo = self._rows.get(undo_path(row.path))
        return undo is not None and undo.is_final

    async def _cannot(self, conductor: Conductor, first: StepError, problem: str) -> Outcome:
        """Hold a run until its code fits, unless its second cancellation is to end it in any case."""
        if first.reason != _CANCELLED or plan_of(self._mark) is not None:
            return Held(problem)
        rows = list(self._rows.values())
        error = StepError((), f"the run was cancelled, and its code does not fit: {problem}", _CANCELLED)
        ends = given_up(rows, error)
        if ends:
            await conductor.writes.record(*ends)
        return Cancelled(f"{first.message}; {not_undone(rows)}; {problem}", undone=True)

    # ---------------------------------------------------------------- one after the other

    async def _undo_all(self, conductor: Conductor, main: Branch) -> list[str]:
        """Run the undos that are not recorded, and return a text about the end of each."""
        main.shields += 1
        main.replay_only = False
        main.joining = False
        token = CURRENT.set(main)
        report: list[str] = []
        ran = False
        try:
            with conductor.listed(main):
                for entry in self._ordered():
                    row = self._rows.get(undo_path(entry.row.path))
                    if row is None or not row.is_final:
                        if ran and conductor.is_late:
                            _later(conductor)
                        row, ran = await self._undo(conductor, main, entry, row), True
                    report.append(_text(entry, row))
        finally:
            CURRENT.reset(token)
        return report

    async def _undo(self, conductor: Conductor, main: Branch, entry: _Entry, row: StepRecord | None) -> StepRecord:
        """Run one undo, and return its row."""

        async def undo() -> Any:
            # A value that cannot be read is a failure of this undo, and does not stop the others.
            function = entry.undo.function
            called = tries.within(function) if conductor.app.hooks.around else function
            call = functools.partial(called, self._value(entry))
            return await call_function(conductor, entry.undo.name, call)

        path = undo_path(entry.row.path)
        policy = stricter(entry.policy, once=entry.undo.once)
        tries = Tries(conductor, main, path, StepKind.UNDO, entry.undo.name, policy)
        tries.function = undo
        return await tries.run(row)


def _later(conductor: Conductor) -> None:
    """End the pass, so that the undos that are left have the time of a new attempt."""
    conductor.ends_with(Parked(conductor.now_at(), "its undos go on in a new attempt"))


def _text(entry: _Entry, row: StepRecord) -> str:
    if row.outcome is StepOutcome.FAILED:
        why = "" if row.error is None else f": {row.error.message}"
        return f"{entry.row.name} not undone{why}"
    return f"{entry.row.name} undone"


def _first(outcome: Outcome, error: BaseException | None) -> StepError:
    """Return the error with which the undos begin."""
    match outcome:
        case Cancelled(why):
            return StepError(("redrive.errors.CancelRequested",), why, _CANCELLED)
        case Failed():
            return stored(outcome, error)
        case _:
            assert error is not None  # that of the deadline
            return structs.replace(stored(failed(error), error), reason=DEADLINE)


def _ended(outcome: Outcome) -> Outcome:
    """Return the outcome of a run that has nothing left to take back."""
    match outcome:
        case Failed() | Cancelled() | Expired():
            return structs.replace(outcome, undone=True)
        case _:  # pragma: no cover - no other outcome ends a run
            return outcome


def _reported(first: StepError, report: list[str], outcome: Outcome | None) -> Outcome:
    """Return the outcome of the run: its first error with the report about the undos."""
    text = f"{first.message} ({', '.join(report)})" if report else first.message
    if first.reason == _CANCELLED:
        return Cancelled(text, undone=True)
    known = outcome if isinstance(outcome, Failed) else failed(rebuilt("of the run", first))
    failure = known.failure
    kept = Failure(first.types or failure.types, text, first.reason, failure.stage, permanent=text)
    return structs.replace(known, failure=kept, undone=True)
