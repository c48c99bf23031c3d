"""The undo of a run as it is stored, and what a run that starts again or is forked keeps of its steps. PURE.

The row `redrive.engine.runs.UNDO_MARK` records that the run ends: its ``error`` is why. Code that ends a run without
its body, such as the operation that finds that its worker was killed three times, writes the row *waiting*; the next
pass of the body takes no new step and finds the undos. A pass that knows the undos writes the row as final, with a
`UndoPlan`. Of a step at ``3`` the row ``u3`` records what became of its undo: it is *ok* if the step is undone, and
*failed* if the step is still in effect and its undo is not tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from redrive.engine import runs
from redrive.engine.lifecycle import LifecycleEvent, State, next_state
from redrive.engine.outcome import RunChange, Settlement
from redrive.engine.records import AttemptOutcome, Claim, Hold
from redrive.engine.steps import NewStep

#: The error in its row.
AGAIN = runs.StepError((), "it was undone, and is executed anew", runs.UNDONE)

# The kinds of rows that belong to no call of the body.
_MARKS = frozenset({runs.StepKind.UNDO, runs.StepKind.CANCEL})

_ENDED = frozenset({runs.StepOutcome.FAILED, runs.StepOutcome.TIMED_OUT})


class UndonePath(msgspec.Struct, frozen=True, gc=False):
    """A step that a run takes back: its path and its name."""

    path: str
    name: str


class UndoPlan(msgspec.Struct, frozen=True, gc=False):
    """The result of the row that records the beginning of the undos.

    Attributes:
        steps: the steps to take back, in the order of their undos.
        failed: the path of the recorded failure with which the body ended; None if it ended otherwise.
    """

    steps: tuple[UndonePath, ...] = ()
    failed: str | None = None


def new_mark(error: runs.StepError, at: datetime) -> NewStep:
    """Return the row that lets the next pass of a run begin with its undos."""
    return NewStep(runs.UNDO_MARK, runs.StepKind.UNDO, runs.UNDO_MARK, runs.StepOutcome.WAITING, due_at=at, error=error)


def new_plan(error: runs.StepError, plan: UndoPlan) -> NewStep:
    """Return the row that records the beginning of the undos."""
    return NewStep(runs.UNDO_MARK, runs.StepKind.UNDO, runs.UNDO_MARK, result=msgspec.json.encode(plan), error=error)


def plan_of(mark: runs.StepRecord | None) -> UndoPlan | None:
    """Return the plan of a run; None if no pass has made it."""
    if mark is None or mark.result is None:
        return None
    return msgspec.json.decode(mark.result, type=UndoPlan)


def mark_of(rows: Iterable[runs.StepRecord]) -> runs.StepRecord | None:
    """Return the row that records that the run ends; None if it goes on."""
    return next((row for row in rows if row.path == runs.UNDO_MARK), None)


def standing(rows: Sequence[runs.StepRecord]) -> tuple[runs.StepRecord, ...]:
    """Return the finished steps that may have to be taken back and are not, in the order of their undos.

    Without a plan these are all finished steps, because only the code has the undos.
    """
    by_path = {row.path: row for row in rows}
    plan = plan_of(by_path.get(runs.UNDO_MARK))
    if plan is None:
        found = sorted((row for row in rows if row.has_effect), key=newest)
    else:
        found = [by_path[each.path] for each in plan.steps if each.path in by_path]
    return tuple(row for row in found if not _is_undone(row, by_path))


def newest(row: runs.StepRecord) -> tuple[float, int, tuple[int, ...]]:
    """Return a key that sorts steps in the order of their undos."""
    return -row.at.timestamp(), -(row.seq or 0), tuple(-each for each in runs.path_order(row.path)[1])


def _is_undone(row: runs.StepRecord, by_path: Mapping[str, runs.StepRecord]) -> bool:
    undo = by_path.get(runs.undo_path(row.path))
    return undo is not None and undo.kind is runs.StepKind.UNDO and undo.outcome is runs.StepOutcome.OK


def given_up(rows: Sequence[runs.StepRecord], error: runs.StepError) -> tuple[NewStep, ...]:
    """Return the rows of the undos that are left and will not be tried again."""
    by_path = {row.path: row for row in rows}
    return tuple(
        _failed_undo(row, error)
        for row in standing(rows)
        if (undo := by_path.get(runs.undo_path(row.path))) is None or not undo.is_final
    )


def _failed_undo(row: runs.StepRecord, error: runs.StepError) -> NewStep:
    return NewStep(
        runs.undo_path(row.path), runs.StepKind.UNDO, f"of {row.name}", runs.StepOutcome.FAILED, tries=1, error=error
    )


def not_undone(rows: Sequence[runs.StepRecord]) -> str:
    """Return a text that lists the steps that were not taken back; empty if there are none."""
    left = standing(rows)
    if not left:
        return ""
    unsure = "" if plan_of(mark_of(rows)) is not None else ", as far as they have undos"
    return f"not undone{unsure}: {', '.join(f'{row.name} ({row.path})' for row in left)}"


# ------------------------------------------------------------------------------------------- ends without the code


def undo_first(claim: Claim, dead: Settlement, error: runs.StepError, now: datetime) -> Settlement:
    """Return the transition of a run that would end now, and is to take its steps back before."""
    lost = dead.closed is not None and dead.closed.outcome is AttemptOutcome.LOST
    return _goes_on(claim, dead, now, (new_mark(error, now),), lost=lost)


def _goes_on(claim: Claim, dead: Settlement, now: datetime, steps: tuple[NewStep, ...], *, lost: bool) -> Settlement:
    event = LifecycleEvent.LOSE if lost else LifecycleEvent.PARK
    return replace(
        dead,
        event=event,
        state=next_state(State.RUNNING, event),
        attempt=claim.attempt if dead.closed is not None else claim.attempt - 1,
        failures=claim.failures,
        crashes=0,
        scheduled_at=now,
        hold=Hold.PARKED,
        note=f"takes its steps back: {dead.error}",
        catch=None,
        report=None,
        seen=None,
        max_attempts=None,
        run=RunChange(steps),
    )


def die_undoing(dead: Settlement, rows: Sequence[runs.StepRecord], error: runs.StepError) -> Settlement:
    """Return the transition of a run that ends although not all of its steps are taken back."""
    text = not_undone(rows)
    note = f"{dead.note}; {text}" if text else dead.note
    why = f"{dead.error}; {text}" if text else dead.error
    return replace(dead, note=note, error=why, run=RunChange(given_up(rows, error)))


def lost_undoing(
    claim: Claim, dead: Settlement, rows: Sequence[runs.StepRecord], error: runs.StepError, now: datetime
) -> Settlement:
    """Return the transition of a run that was lost too often in one undo: this one has failed, and the others run."""
    by_path = {row.path: row for row in rows}
    left = (row for row in standing(rows) if runs.undo_path(row.path) not in by_path or not _final(row, by_path))
    running = next(left, None)
    if plan_of(by_path[runs.UNDO_MARK]) is None or running is None:
        return die_undoing(dead, rows, error)
    return _goes_on(claim, dead, now, (_failed_undo(running, error),), lost=True)


def _final(row: runs.StepRecord, by_path: Mapping[str, runs.StepRecord]) -> bool:
    return by_path[runs.undo_path(row.path)].is_final


# ------------------------------------------------------------------------------------------------- starting again


class Again(msgspec.Struct, frozen=True, gc=False):
    """What changes in the rows of a run that starts again, by paths.

    Attributes:
        forget: the rows that go.
        renew: the steps that are executed anew.
        loosen: the finished steps behind them, which are kept whatever their arguments are now.
    """

    forget: tuple[str, ...] = ()
    renew: tuple[str, ...] = ()
    loosen: tuple[str, ...] = ()


# The failure that has ended the body goes, and so do the steps behind it, which the body has taken in answer to it:
# another step is called at their positions now. The same holds for a cancellation.
def again(rows: Sequence[runs.StepRecord]) -> Again:
    """Return what a run that starts again forgets and repeats of its rows.

    It forgets what has ended it: the failure behind which no step was recorded, the cancellation and the undos. A step
    that is undone is executed anew. One with an undo that has failed is still in effect, and is kept.
    """
    by_path = {row.path: row for row in rows}
    plan, body = plan_of(by_path.get(runs.UNDO_MARK)), _Order(rows)
    cuts = {row.path.removeprefix(f"{row.name} "): row.lease_id for row in rows if row.kind is runs.StepKind.CANCEL}
    if plan is not None and plan.failed in by_path:
        cuts[plan.failed] = by_path[plan.failed].lease_id
    # A step that was kept when the run started again before is older, and is no answer.
    answers = {row.path for cut, lease in cuts.items() for row in body.behind([cut]) if row.lease_id >= lease}
    ended = {
        row.path
        for row in body.rows
        if row.outcome in _ENDED and row.path not in answers and (row.path in cuts or body.is_last(row))
    }
    forget = {row.path for row in rows if row.kind in _MARKS} | answers | ended
    forget |= {path for path in body.decided_by(ended) if path in by_path}
    # The children of these calls were cancelled when the run ended.
    dropped = {row.path for row in body.rows if row.is_dropped}
    forget |= {path for path in dropped if all(row.path in forget for row in body.behind([path]))}
    # What the failure has cut off is not cut off again. The effect of one whose function had ended stays.
    since = min((at for path in {*cuts, *ended} if (at := body.at(path)) is not None), default=None)
    forget |= {
        row.path
        for row in body.rows
        if row.outcome is runs.StepOutcome.DROPPED and not row.has_effect and since is not None and row.at >= since
    }
    # A failure with kept steps behind it leaves no gap: it is executed anew like an undone step.
    failed = {path for path in ended if any(row.path not in forget for row in body.behind([path]))}
    forget -= failed
    renew = {row.path for row in body.rows if _is_undone(row, by_path) and row.path not in forget} | failed
    kept = {row.path for row in body.behind(renew) if row.digest is not None}
    return Again(tuple(sorted(forget)), tuple(sorted(renew)), tuple(sorted(kept - renew - forget)))


# Which branch has won a race stays decided: one that has ended it by its failure wins it with the value.
def supplied(rows: Sequence[runs.StepRecord], path: str) -> Again:
    """Return what a run forgets whose failed step at this path is given a value.

    It forgets which branch has failed first, if that was the branch of the step, and the calls of child runs that were
    dropped for it.
    """
    body = _Order(rows)
    decided = body.decided_by([path])
    forget = {row.path for row in rows if row.path in decided and row.name != runs.RACE}
    forget |= {
        row.path for row in body.rows if row.is_dropped and any(row.path.startswith(f"{each}.") for each in forget)
    }
    return Again(tuple(sorted(forget)))


def forked(rows: Sequence[runs.StepRecord], before: str) -> tuple[tuple[str, ...], Again]:
    """Return the paths of the rows that a fork copies, and what changes in the copies."""
    by_path = {row.path: row for row in rows}
    copied = [row for row in runs.rows_before(rows, before) if row.kind not in _MARKS]
    renew = {row.path for row in copied if _is_undone(row, by_path)}
    body = _Order(copied)
    kept = {row.path for row in body.behind(renew) if row.digest is not None}
    return tuple(row.path for row in copied), Again((), tuple(sorted(renew)), tuple(sorted(kept - renew)))


class _Order:
    """The rows of the calls of a body, in the order in which the body reaches them."""

    def __init__(self, rows: Iterable[runs.StepRecord]) -> None:
        rows = list(rows)
        self.rows = [row for row in rows if row.kind not in _MARKS and runs.path_order(row.path)[0] == 0]
        self._parts = {row.path: runs.path_order(row.path)[1] for row in self.rows}
        self._at = {row.path.removeprefix(f"{row.name} "): row for row in rows if row.kind is runs.StepKind.CANCEL}
        self._at |= {row.path: row for row in self.rows}

    def at(self, path: str) -> datetime | None:
        """Return when a call ended, or when it received the cancellation; None if that is not recorded."""
        return self._at[path].at if path in self._at else None

    def is_last(self, row: runs.StepRecord) -> bool:
        """Return True if no call behind this one was recorded since; other branches of a call are not behind it."""
        return all(each.lease_id < row.lease_id for each in self.behind([row.path]))

    def behind(self, paths: Iterable[str]) -> list[runs.StepRecord]:
        """Return the rows of the calls behind any of these."""
        first: dict[tuple[int, ...], int] = {}
        ends = []
        for path in paths:
            ends += [self._at[path]] if path in self._at else []
            if runs.is_named(path):
                continue
            for branch, position in _places(runs.path_order(path)[1]):
                first[branch] = min(first.get(branch, position), position)
        return [
            row
            for row in self.rows
            if any(self._follows(row, end) for end in ends)
            or (
                not runs.is_named(row.path)
                and any(position > first.get(branch, position) for branch, position in _places(self._parts[row.path]))
            )
        ]

    @staticmethod
    def _follows(row: runs.StepRecord, end: runs.StepRecord) -> bool:
        """Return True if one of two calls is named, and the first has begun after the end of the other."""
        if not (runs.is_named(row.path) or runs.is_named(end.path)) or row.seq is None or end.seq is None:
            return False
        began = row.at - row.took if row.history is None else row.history.started_at
        return row.seq > end.seq and began >= end.at

    def decided_by(self, paths: Iterable[str]) -> set[str]:
        """Return the calls with branches that were decided by the end of a branch with one of these calls."""
        numbers = {
            row.path: int(msgspec.json.decode(row.result or b"0"))
            for row in self.rows
            if row.kind is runs.StepKind.GATHER
        }
        found = set()
        for path in paths:
            parts = path.split(".")
            for size in range(len(parts) - 2, 0, -2):
                call, number = ".".join(parts[:size]), int(parts[size])
                if numbers.get(call, number) != number:
                    # What has ended this call is another branch, which has decided the calls around it, too.
                    break
                if call in numbers:
                    found.add(call)
        return found


def _places(parts: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """Return the branches above a call, each with the position in it; a branch is given by the parts of its path."""
    return [(parts[:size], parts[size]) for size in range(0, len(parts), 2)]
