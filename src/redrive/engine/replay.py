"""The comparison of a body with the recorded steps of its run. PURE.

A run is replayed from its beginning whenever a worker continues it: the body asks for its steps in the same order, and
receives recorded values instead of calls. `Replay` finds the row of each request by the path of its branch and its
position there, and compares name, kind and the digest of the arguments. Three findings hold the run, because an effect
would be repeated or lost otherwise:

* another step, or the same one with other arguments, was recorded at this position;
* the request is new, and steps behind it were recorded;
* the body has ended, or opens fewer branches, and recorded steps were not reached.

Named calls have no position, and are found by their kind, name and inputs. A new one in front of recorded ones is no
finding: it waits until all of these were asked for, as `redrive.runtime.runs.keyed` says.

The text of a finding names the recorded step, the requested one and the line of the code. Rows of patches are skipped
where the code asks no longer for them. Undos and markers of the engine have paths that no request has; they are not
compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from redrive.engine.runs import RunRecord, StepKind, StepOutcome, StepRecord, in_order, is_named, next_path, path_order

#: The kinds of steps in texts.
_WORDS = {
    StepKind.STEP: "",
    StepKind.UNDO: "the undo of ",
    StepKind.SLEEP: "a sleep",
    StepKind.WAIT: "a wait for the signal ",
    StepKind.EVENT: "a wait for the event ",
    StepKind.CALL: "a call of the workflow ",
    StepKind.GATHER: "",
    StepKind.PATCH: "the patch ",
    StepKind.VALUE: "the value ",
    StepKind.CANCEL: "the cancellation ",
}

_REMEDY = "The run is held; a worker with the earlier code, a patch (flow.patched) or redrive runs fork lets it go on."
_CHANGING = (
    "A time or a random value among the arguments is another one in each pass: take flow.now(), flow.random or "
    "flow.uuid()."
)


class StepRequest(msgspec.Struct, frozen=True, gc=False):
    """A step that the body asks for.

    Attributes:
        kind: the kind of the step.
        name: the name of the function, signal, event or workflow.
        digest: of its arguments; None if they are not compared.
        line: the place in the code, as ``file:number``.
        aka: earlier names of the function.
        branches: the number of branches that it opens; None if they are not compared.
    """

    kind: StepKind
    name: str
    digest: int | None = None
    line: str = ""
    aka: tuple[str, ...] = ()
    branches: int | None = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The result of a request.

    Attributes:
        path: of the step.
        position: of the step in its branch; the next request of the branch has the next one.
        row: what was recorded; None if the step is new.
        mismatch: why the run must be held; None if the code fits.
    """

    path: str
    position: int
    row: StepRecord | None = None
    mismatch: str | None = None


class Replay:
    """The recorded steps of one run, and which of them the body has reached."""

    def __init__(self, run: RunRecord, steps: Iterable[StepRecord]) -> None:
        self._run = run
        self._rows = {row.path: row for row in steps if path_order(row.path)[0] == 0}
        #: The steps that the body has not reached.
        self._left = {
            row.path
            for row in self._rows.values()
            if row.kind is not StepKind.PATCH and row.outcome is not StepOutcome.DROPPED
        }
        #: The last position of each branch that has a row, or that has opened branches with rows.
        self._last: dict[str, int] = {}
        #: The calls that have opened branches with rows.
        self._opened: set[str] = set()
        #: True if the body was given a step that is new.
        self._has_new = False
        for path in self._rows:
            if not is_named(path):
                self._note(path)

    def _note(self, path: str) -> None:
        parts = path.split(".")
        for size in range(len(parts), 0, -2):
            branch, position = ".".join(parts[: size - 1]), int(parts[size - 1])
            self._last[branch] = max(self._last.get(branch, 0), position)
            if size < len(parts):
                self._opened.add(".".join(parts[:size]))

    def ask(self, branch: str, position: int, request: StepRequest) -> Answer:
        """Find the step that a branch asks for at a position, from 1."""
        path = next_path(branch, position)
        row = self._rows.get(path)
        while row is not None and row.kind is StepKind.PATCH and not _is_same(row, request):
            # The code asks for this patch no longer, which is the end of every patch.
            position += 1
            path = next_path(branch, position)
            row = self._rows.get(path)
        if request.kind is StepKind.PATCH and not (row is not None and _is_same(row, request)):
            return Answer(path, position)
        if row is None:
            mismatch = self._new(branch, position, request)
            if mismatch is None and request.branches is not None:
                mismatch = self._closed(path, request, request.branches)
            # A group does nothing by itself.
            self._has_new |= mismatch is None and request.kind is not StepKind.GATHER
            return Answer(path, position, mismatch=mismatch)
        if not _is_same(row, request):
            return Answer(path, position, row, self._text(f"step {path} was {_shown(row)}", request))
        if row.digest is not None and request.digest is not None and row.digest != request.digest:
            problem = f"step {path}, {_shown(row)}, was recorded with other arguments"
            return Answer(path, position, row, f"{self._text(problem, request)} {_CHANGING}")
        self._left.discard(path)
        mismatch = None if request.branches is None else self._closed(path, request, request.branches)
        return Answer(path, position, row, mismatch)

    def is_new(self, branch: str, position: int) -> bool:
        """Return True if no step of a branch is recorded at this position or behind it."""
        return self._last.get(branch, 0) < position

    def _new(self, branch: str, position: int, request: StepRequest) -> str | None:
        """Return why a step without a row does not fit; None if it does."""
        # A gather has no row of its own while its branches run, and none if they record nothing.
        if request.kind is StepKind.GATHER or self.is_new(branch, position):
            return None
        path = next_path(branch, position)
        if path in self._opened:
            return self._text(f"step {path} has opened branches", request)
        behind = min(
            (row for row in self._rows.values() if _is_behind(row.path, branch, position)),
            key=lambda row: path_order(row.path),
        )
        return self._text(f"step {path} is new, and step {behind.path} behind it was {_shown(behind)}", request)

    def _closed(self, path: str, request: StepRequest, count: int) -> str | None:
        """Return the text about a recorded step behind the ``count`` branches that the call opens; None without one."""
        if path not in self._opened:
            return None
        level = len(path_order(path)[1])
        left = (
            row
            for row in self._rows.values()
            if row.path.startswith(f"{path}.") and path_order(row.path)[1][level] >= count
        )
        first = min((row for row in left if not self._is_kept(row)), key=lambda row: path_order(row.path), default=None)
        if first is None:
            return None
        opened = f"{count} branch{'' if count == 1 else 'es'}"
        return self._text(f"step {first.path} was {_shown(first)}, and step {path} opens {opened}", request)

    def drop(self, branch: str) -> None:
        """Count the rows of a branch as reached: a decision that was recorded has ended it."""
        self._left -= self.below(branch)

    def below(self, branch: str) -> set[str]:
        """Return the paths of the recorded steps of a branch, and of those that it has opened."""
        return {path for path in self._rows if path.startswith(f"{branch}.")}

    def is_left(self, path: str) -> bool:
        """Return True if a step is recorded and was not reached."""
        return path in self._left

    @property
    def misses(self) -> bool:
        """True if the body has not reached a recorded step that it must reach."""
        return any(not self._is_kept(self._rows[path]) for path in self._left)

    def unreached(self) -> tuple[StepRecord, ...]:
        """Return the recorded steps that the body has not reached, in order."""
        return tuple(in_order(self._rows[path] for path in self._left))

    def missing(self, line: str = "") -> str | None:
        """Return why the end of the body does not fit; None if it does."""
        left = [row for row in self.unreached() if not self._is_kept(row)]
        if not left:
            return None
        place = f" ({line})" if line else ""
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return (
            f"{describe_run(self._run)}: step {left[0].path} was {_shown(left[0])}{more}, and the code has ended "
            f"without it{place}. {self._remedy()}"
        )

    def left_out(self, request: StepRequest | None) -> str:
        """Return why a body does not fit that waits without having asked for a recorded step; nothing new was run.

        Args:
            request: the first new step that it asks for; None if there is none.
        """
        row = next(row for row in self.unreached() if not self._is_kept(row))
        if request is not None and _is_same(row, request):
            problem = f"step {row.path}, {_shown(row)}, was recorded with other inputs"
            return f"{self._text(problem, request, ran=False)} {_CHANGING}"
        problem = f"step {row.path} was {_shown(row)}"
        if request is not None:
            return self._text(problem, request, ran=False)
        return f"{describe_run(self._run)}: {problem}; the code does not ask for it now. Nothing was run. {_REMEDY}"

    def not_cut_off(self, path: str) -> str:
        """Return why a body does not fit that waits for a step which it has cut off before."""
        row = self._rows[path]
        run, step = describe_run(self._run), _shown(row)
        return f"{run}: the code has cut off step {path}, {step}, and waits for it now. {_REMEDY}"

    # A run that starts again executes what was undone anew and keeps what it recorded behind that. If it fails earlier
    # now, or takes another way, these rows are not reached.
    def _is_kept(self, row: StepRecord) -> bool:
        """Return True if a step before a recorded one was executed after it, or will be."""
        return any(
            (each.lease_id > row.lease_id or each.is_renewed) and _is_before(each, row) for each in self._rows.values()
        )

    def _text(self, problem: str, request: StepRequest, *, ran: bool | None = None) -> str:
        place = f" ({request.line})" if request.line else ""
        asked = shown(request.kind, request.name)
        return f"{describe_run(self._run)}: {problem}; the code now asks for {asked}{place}. {self._remedy(ran)}"

    def _remedy(self, ran: bool | None = None) -> str:  # noqa: FBT001 - as `_text` passes it
        return _REMEDY if (self._has_new if ran is None else ran) else f"Nothing was run. {_REMEDY}"


def describe_run(run: RunRecord) -> str:
    """Return the workflow, the id and the version of a run, for a message."""
    return f"{run.workflow} {run.id} (version {run.version})"


def shown(kind: StepKind, name: str) -> str:
    """Return a step for a message, such as ``a wait for the signal `shipped```."""
    if kind is StepKind.SLEEP:
        return _WORDS[kind] if name == "sleep" else f"the sleep `{name}`"
    return f"{_WORDS[kind]}`{name}`"


def _shown(row: StepRecord) -> str:
    return shown(row.kind, row.name)


def _is_same(row: StepRecord, request: StepRequest) -> bool:
    return row.kind == request.kind and (row.name == request.name or row.name in request.aka)


def _is_behind(path: str, branch: str, position: int) -> bool:
    """Return True if a path belongs to a later position of a branch, or to a branch that such a position opened."""
    prefix = f"{branch}." if branch else ""
    if is_named(path) or not path.startswith(prefix):
        return False
    return int(path[len(prefix) :].partition(".")[0]) > position


def _place(row: StepRecord) -> float:
    """Return the place of an end beside named calls; what has no number came before them, or has not ended."""
    if row.seq is not None:
        return row.seq
    return math.inf if is_named(row.path) else 0


def _is_before(row: StepRecord, other: StepRecord) -> bool:
    """Return True if a call comes before another one; two in different branches of one call do not."""
    if is_named(row.path) or is_named(other.path):
        return _place(row) < _place(other)
    parts, others = path_order(row.path)[1], path_order(other.path)[1]
    level = next((level for level, (mine, its) in enumerate(zip(parts, others, strict=False)) if mine != its), None)
    return level is not None and level % 2 == 0 and parts[level] < others[level]
