"""Runs of workflows: their steps, signals and limits as stored. PURE.

A run is a job of its workflow's task with a row of its own (`RunRecord`). Each checkpoint is one row (`StepRecord`),
identified by its run and its path. A *path* is text: numbers separated by dots, alternately a position (from 1, in the
order of the calls) and the number of a branch (from 0). ``3`` is the third call of the body; ``4.0.2`` is the second
call of the first branch of the fourth call. The undo of step ``3`` has the path ``u3``. The low-level gate
(`redrive.app.flows.steps`) stores the name that its caller gives as the path of the step.

Named calls (``flow.named``) have no position, because any task of the body makes them: ``@9f3a12cd.2`` is the second
call with this kind, name and inputs, of which the path has a digest. From the first named call on, each end has a
number, its ``seq``: the body receives recorded ends in this order.

What a row of each kind means::

    kind    waiting, and its due_at                   ok, and its result              also
    step    failed for now; tried again at due_at     the value of the function       failed, perhaps with a late value
    undo    as step                                   None                            failed
    sleep   until due_at, beside named calls          slept until due_at              -
    wait    for a signal; until due_at, or for ever   the payload; ref: the signal    timed_out
    event   for `App.emit`; as wait                   the value                       timed_out
    call    for the child run ref; with an error:     the result of the child         failed, timed_out
            the call was dropped
    gather  -                                         the number of the winner        -
    patch   -                                         True: the run takes the patch   -
    value   -                                         a recorded value                -
    cancel  -                                         the cancellation came here      -

The row of a sleep is final at once: its due time wakes the run, and nothing is updated at the end. Beside named calls
it waits, because its end has a number. A named call that the body itself has cut off is *dropped*.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.records import NewJob
from redrive.errors import ConfigurationError, ResultTooLarge

#: The due time of a run that waits without a time limit.
FAR: Final = datetime(9000, 1, 1, tzinfo=UTC)

#: Maximum size of the result of a step in bytes of its JSON, unless the App has another one.
RESULT_LIMIT: Final = 1024 * 1024

#: The number of steps at which a run is logged as long, and the number at which it fails.
WARN_STEPS: Final = 1_000
MAX_STEPS: Final = 10_000

#: The failed tries of a step that its row keeps, the last ones.
KEPT_TRIES: Final = 20

#: Maximum length of the id of a child in bytes, before a number that makes it unique.
CHILD_ID_BYTES: Final = 1_900

#: The name of the signal that a child run sends to its parent at its end; names of users do not begin with a colon.
CHILD_SIGNAL: Final = ":child"


class StepKind(StrEnum):
    """The kind of a recorded step."""

    STEP = "step"
    """A function of the application; also one with an effect that commits with the row (``flow.transaction``)."""
    UNDO = "undo"
    """The compensation of a step."""
    SLEEP = "sleep"
    """A wait for an instant."""
    WAIT = "wait"
    """A wait for a signal of this run."""
    EVENT = "event"
    """A wait for an emitted value."""
    CALL = "call"
    """A child run."""
    GATHER = "gather"
    """The winner of ``flow.first``."""
    PATCH = "patch"
    """The answer of ``flow.patched``."""
    CANCEL = "cancel"
    """The cancellation of the run, which was delivered at this call."""
    VALUE = "value"
    """A value that must be the same in each replay."""


class StepOutcome(StrEnum):
    """The state of a recorded step."""

    OK = "ok"
    """It has a result, which may be None."""
    FAILED = "failed"
    """It failed for good."""
    WAITING = "waiting"
    """It waits: for its next try, a signal, an emitted value or a child run."""
    RUNNING = "running"
    """A caller of the low-level gate executes it, until ``due_at``."""
    TIMED_OUT = "timed_out"
    """Its wait ended without an answer."""
    DROPPED = "dropped"
    """The body has cut it off, as by a time limit of asyncio. Its result, if it has one, came too late."""


class StepError(msgspec.Struct, frozen=True, gc=False):
    """The error of a step, as far as it can be stored.

    Attributes:
        types: the qualified names of the exception class and its bases, most specific first.
        message: the text of the exception.
        reason: the reason of the classified failure, one upper-case word.
        args: the arguments of the exception as JSON, if all of them could be encoded.
        place: the deepest frame in the user's code, as ``payments/client.py:41 in post``.
    """

    types: tuple[str, ...]
    message: str
    reason: str
    args: str | None = None
    place: str | None = None

    def __str__(self) -> str:
        return self.message if self.place is None else f"{self.message} (at {self.place})"


class StepTry(msgspec.Struct, frozen=True, gc=False):
    """A failed try of a step, for the timeline."""

    at: datetime
    took: timedelta
    error: StepError
    delay: timedelta | None = None  # until the next try; None after the last one
    rule: str | None = None  # the rule of the policy that decided


#: The reasons of a step whose function has returned what cannot be stored.
UNSTORED = frozenset({"BAD_RESULT", "RESULT_TOO_LARGE"})


class StepHistory(msgspec.Struct, frozen=True, gc=False):
    """What the policy of a failed step needs for its next decision, and the failed tries.

    Attributes:
        started_at: start of the first try; the deadline counts from here.
        last_delay: the delay before the next try.
        by_rule: failures matched by each rule of the policy.
        tries: the last `KEPT_TRIES` failed tries, oldest first.
    """

    started_at: datetime
    last_delay: timedelta | None = None
    by_rule: tuple[int, ...] = ()
    tries: tuple[StepTry, ...] = ()


class StepRecord(msgspec.Struct, frozen=True, gc=False):
    """A recorded step of a run; see the table at the top of the module.

    Attributes:
        run_id: the job of the run.
        path: identifies the step in its run.
        name: the name of the function, signal, emitted value or workflow, without an ordinal.
        lease_id: the lease under which the row was written last.
        at: the end of the step, or of its last try, or the start of its wait.
        took: the duration of the last try.
        tries: executions of the function, including the last one; 0 for other kinds than ``step`` and ``undo``.
        due_at: when a waiting step is tried again or its wait ends; when a sleep ends.
        digest: of the arguments (`digest_of`), to report a change of them; None if it was not computed.
        result: JSON; that of a step that has failed, or waits for its next try, is what its function returned after its
            time limit.
        ref: the job of the child run, or the id of the signal that was received.
        seq: the place of its end in the order in which the body receives ends; None before the first named call, and
            for what has not ended or was dropped.
    """

    run_id: int
    path: str
    kind: StepKind
    name: str
    outcome: StepOutcome
    lease_id: int
    at: datetime
    took: timedelta = timedelta(0)
    tries: int = 0
    due_at: datetime | None = None
    digest: int | None = None
    result: bytes | None = None
    error: StepError | None = None
    history: StepHistory | None = None
    ref: int | None = None
    seq: int | None = None

    @property
    def has_effect(self) -> bool:
        """Return True for a step whose function has returned, perhaps after its time limit."""
        return self.kind is StepKind.STEP and (
            self.outcome is StepOutcome.OK or self.result is not None or self.is_unstored
        )

    @property
    def is_unstored(self) -> bool:
        """Return True for a step that has failed only because what its function returned cannot be stored."""
        return self.outcome is StepOutcome.FAILED and self.error is not None and self.error.reason in UNSTORED

    @property
    def is_dropped(self) -> bool:
        """Return True for the call of a child run that its run does not wait for any more."""
        return self.kind is StepKind.CALL and self.outcome is StepOutcome.WAITING and self.error is not None

    @property
    def is_renewed(self) -> bool:
        """Return True for a step that was undone, and is executed anew at its place."""
        return self.error is not None and self.error.reason == UNDONE

    @property
    def is_final(self) -> bool:
        """Return True if the row does not change any more, except by an operator."""
        return self.outcome not in (StepOutcome.WAITING, StepOutcome.RUNNING)


class RunFlags(msgspec.Struct, frozen=True, gc=False):
    """What an operator asked of a running run; it rides back in the answer of each flush."""

    cancel_why: str | None = None  # None if no cancellation is requested
    paused: bool = False


def is_far(due_at: datetime) -> bool:
    """Return True for the due time of a run that waits without a time limit."""
    # The clock of an embedded database may have been set since, and the due time with it.
    return due_at.year >= FAR.year - 1


class RunRecord(msgspec.Struct, frozen=True, gc=False):
    """A run.

    Attributes:
        job_id: the job that executes it; the run has the state of this job.
        id: the id that its starter gave, unique in its workflow, or the job's number as text.
        version: the version of the workflow's code that started it.
        digest: of its arguments, to detect another start with the same id.
        parent_id: the job of the parent run, with ``parent_path``, the path of the call there.
        epoch: the number of restarts (``flow.restart``).
        paused_at: since when it takes no new step, with ``paused_why``, and ``paused_until`` if it goes on by itself.
        held: why its code and its recorded steps do not fit each other; None if they do.
        held_at: since when it is held.
        cancel_at: when its cancellation was requested, with ``cancel_why``.
        forked_from: the job of the run that it is a fork of.
        values: the values of ``flow.set``, a JSON object.
    """

    job_id: int
    workflow: str
    id: str
    version: int
    digest: int
    parent_id: int | None = None
    parent_path: str | None = None
    epoch: int = 0
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    paused_why: str | None = None
    held: str | None = None
    held_at: datetime | None = None
    cancel_at: datetime | None = None
    cancel_why: str | None = None
    forked_from: int | None = None
    values: bytes | None = None

    def flags(self, now: datetime) -> RunFlags:
        """Return what operators ask of the run."""
        paused = self.paused_at is not None and (self.paused_until is None or self.paused_until > now)
        return RunFlags(self.cancel_why, paused)


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to be started.

    Attributes:
        job: the job that executes it; its origin is set by the start.
        id: unique in the workflow; None for an id made from the number of the job.
        parent_id: the job of the run that calls it, with ``parent_path``, the path of the call.
    """

    job: NewJob
    workflow: str
    version: int
    digest: int
    id: str | None = None
    parent_id: int | None = None
    parent_path: str | None = None


class SignalRecord(msgspec.Struct, frozen=True, gc=False):
    """A signal that was sent to a run.

    Attributes:
        id: its number; a run reads the signals of one name in the order of their numbers.
        key: signals of one run and name with equal keys are one signal.
        payload: JSON.
        path: the path of the step that read it; None while it is unread.
    """

    id: int
    run_id: int
    name: str
    key: str | None
    payload: bytes | None
    at: datetime
    path: str | None = None


class EmitRecord(msgspec.Struct, frozen=True, gc=False):
    """An emitted value: the first write of a name wins, and every waiter receives it."""

    name: str
    payload: bytes | None
    at: datetime


class ChildEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a child run.

    Attributes:
        job_id: the ``ref`` of the step that waits for it.
        state: a final state.
        result: JSON; None unless it succeeded.
        error: the text of its error, if it is dead, or the reason of its cancellation.
        reason: one upper-case word.
    """

    job_id: int
    state: State
    result: bytes | None = None
    error: str | None = None
    reason: str | None = None


class RunState(msgspec.Struct, frozen=True, gc=False):
    """What is stored of a run, read when a worker claims it.

    Attributes:
        run: the run itself.
        flags: what operators ask of it.
        steps: its rows, in no particular order.
        signals: its unread signals, by number.
        emits: the emitted values that its waiting steps wait for.
        children: the child runs that its waiting steps wait for, if they have ended.
    """

    run: RunRecord
    flags: RunFlags = RunFlags()
    steps: tuple[StepRecord, ...] = ()
    signals: tuple[SignalRecord, ...] = ()
    emits: tuple[EmitRecord, ...] = ()
    children: tuple[ChildEnd, ...] = ()


# ---------------------------------------------------------------------------------------------------------------- paths


def next_path(branch: str, position: int) -> str:
    """Return the path of a call: its branch (``""`` for the body itself), and its position there, from 1."""
    return f"{branch}.{position}" if branch else str(position)


def branch_path(path: str, number: int) -> str:
    """Return the branch with this number, from 0, that the call at this path opens."""
    return f"{path}.{number}"


def named_branch(kind: StepKind, name: str, digest: int) -> str:
    """Return what the paths of the named calls with this kind, name and digest of the inputs begin with."""
    identity = f"{kind} {name} {digest}".encode()
    return f"@{hashlib.blake2b(identity, digest_size=4).hexdigest()}"


def is_named(path: str) -> bool:
    """Return True for the path of a named call."""
    return path.startswith("@")


# Other runs may have this id: those of users, and the children of a deleted run with the id of this parent. Then the
# operation that starts the child appends a number.
def child_id(parent: RunRecord, path: str) -> str:
    """Return the id of the child that a call at this path starts, such as ``checkout/order-42/3``.

    After restarts of the parent it ends with the number of them: ``checkout/order-42/3.1``.
    """
    call = f"/{path}.{parent.epoch}" if parent.epoch else f"/{path}"
    caller = f"{parent.workflow}/{parent.id}".encode()
    return caller[: CHILD_ID_BYTES - len(call)].decode(errors="ignore") + call


#: The path and the name of the row that records the beginning of the undos, with the error of the body.
UNDO_MARK: Final = ":undo"


# Behind all positions.
_BEHIND: Final = 1 << 31
_NAMED_PATH: Final = re.compile(r"@([0-9a-f]{8})\.([0-9]+)")

#: The name in the row of a call of ``flow.first``.
RACE: Final = "first"


#: The reason in the row of a step that was undone, and is executed anew.
UNDONE: Final = "UNDONE"


def undo_path(path: str) -> str:
    """Return the path of the undo of a step."""
    return f"u{path}"


def parent_path(path: str) -> str | None:
    """Return the path of the call that opened the branch of this step; None for a step of the body itself."""
    parts = path.rsplit(".", 2)
    return parts[0] if len(parts) == 3 else None  # noqa: PLR2004 - call, branch, position


def path_order(path: str) -> tuple[int, tuple[int, ...], str]:
    """Return a key that sorts paths in the order of the calls: steps, then undos, then names of the gate.

    Named calls come behind the others, in no order; `in_order` knows that of their ends.
    """
    call = path.removeprefix("u")
    named = _NAMED_PATH.fullmatch(call)
    if named is not None:
        return int(path.startswith("u")), (_BEHIND, int(named[1], 16), int(named[2])), ""
    digits = call.split(".")
    if all(each.isascii() and each.isdigit() for each in digits):
        return int(path.startswith("u")), tuple(map(int, digits)), ""
    return 2, (), path


def in_order(steps: Iterable[StepRecord]) -> list[StepRecord]:
    """Return steps in the order of the calls, with undos last; beside named calls in the order of the ends.

    There, what ended before the first named call comes first, and what has no end comes last, by its time.
    """
    rows = sorted(steps, key=lambda row: path_order(row.path))
    if all(row.seq is None and not is_named(row.path) for row in rows):
        return rows

    def place(row: StepRecord) -> tuple[int, int, float]:
        group = path_order(row.path)[0]
        if group or row.seq is not None:
            return group, 1, row.seq or 0
        is_open = not row.is_final or is_named(row.path)
        return group, (2 if is_open else 0), (row.at.timestamp() if is_open else 0)

    return sorted(rows, key=place)


def check_gate_name(name: str) -> None:
    """Check the name of a step that the low-level gate uses as its path.

    Raises:
        ConfigurationError: it is empty, or it could be the path of a step of a workflow.
    """
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"the name of a step is a text, not empty; got {name!r}")
    if path_order(name)[0] != 2:  # noqa: PLR2004 - see there
        raise ConfigurationError(f"a step cannot be named {name!r}: paths of steps in workflows have this form")


# --------------------------------------------------------------------------------------------------- values and limits


def digest_of(canonical: bytes) -> int:
    """Return a signed number of 64 bits for arguments as JSON with sorted keys."""
    return int.from_bytes(hashlib.blake2b(canonical, digest_size=8).digest(), signed=True)


def check_size(what: str, result: bytes | None, limit: int = RESULT_LIMIT) -> None:
    """Check the size of a result in bytes; ``what`` names the step or the run in the error.

    Raises:
        ResultTooLarge: it is larger than the limit.
    """
    if result is not None and len(result) > limit:
        raise ResultTooLarge(
            f"the result of {what} has {len(result):,} bytes of JSON, and the limit is {limit:,} "
            "(App(max_payload=...)): store the content elsewhere and return a reference to it"
        )


def check_values(name: str, size: int, limit: int = RESULT_LIMIT) -> None:
    """Check the size of all values of a run, in bytes of JSON; ``name`` is the value that was set last.

    Raises:
        ResultTooLarge: they are larger than the limit.
    """
    if size > limit:
        raise ResultTooLarge(
            f"flow.set({name!r}, ...): the values of the run would have {size:,} bytes of JSON, and the limit is "
            f"{limit:,} (App(max_payload=...)): store the content elsewhere and set a reference to it"
        )


def kept_tries(history: StepHistory | None, failed: StepTry) -> tuple[StepTry, ...]:
    """Return the failed tries to keep after another one."""
    earlier = () if history is None else history.tries
    return (*earlier, failed)[-KEPT_TRIES:]


def rows_before(rows: Iterable[StepRecord], path: str) -> list[StepRecord]:
    """Return the rows that a fork from the step at this path copies.

    These are the final rows of calls before it. If the step is in a branch, the rows of the other branches of the same
    call are among them; the call itself, which has not ended before the step, is not.

    Beside named calls, these are the rows of the ends that the body has received before that of the step; before a
    step without an end it has received all of them.
    """
    rows = list(rows)
    if any(is_named(row.path) for row in rows):
        return [row for row in rows if row.is_final and _ends_before(row, _row_at(rows, path), path)]
    start = path_order(path)
    opened = {path}
    while (call := parent_path(path)) is not None:
        opened.add(call)
        path = call
    return [row for row in rows if row.is_final and row.path not in opened and _comes_before(row.path, start)]


def _row_at(rows: Iterable[StepRecord], path: str) -> StepRecord | None:
    return next((row for row in rows if row.path == path), None)


def _ends_before(row: StepRecord, step: StepRecord | None, path: str) -> bool:
    """Return True if a body with named calls has received the end of a row before that of the step at this path."""
    if row.path == path:
        return False
    if row.outcome is StepOutcome.DROPPED:
        return step is None or row.at <= step.at
    if step is not None and step.is_final and step.seq is None and not is_named(path):
        # It has ended before the first named call.
        return row.seq is None and _comes_before(row.path, path_order(path))
    return row.seq is None or step is None or step.seq is None or row.seq < step.seq


def _comes_before(path: str, start: tuple[int, tuple[int, ...], str]) -> bool:
    kind, parts, _ = path_order(path)
    if kind or start[0]:
        return path_order(path) < start
    for level, (mine, other) in enumerate(zip(parts, start[1], strict=False)):
        if mine != other:
            # Positions are ordered; the branches of one call (every second number) are not.
            return mine < other or level % 2 == 1
    return False
