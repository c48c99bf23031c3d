"""Bulk operations: actions on all jobs that match a filter, carried out in batches. PURE.

A bulk operation is a row. Each batch is one transaction, which changes jobs, moves the position of the operation, and
writes a line of the audit log. A process that dies therefore leaves whole batches behind, and any other one goes on.

A bulk operation changes at most the jobs that its preview has counted: those that had been enqueued, and for a redrive
had ended, at the instant of the preview, with ids up to a bound, the newest one then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.queue import Rate
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError

#: The largest number of jobs of one batch.
BATCH: Final = 500

#: The time for which one batch makes jobs due if the operation has a rate.
SPAN: Final = timedelta(seconds=5)

#: The time before its first job is due at which a batch may be written.
AHEAD: Final = timedelta(seconds=1)

#: The rest after a batch that failed.
AFTER_ERROR: Final = timedelta(seconds=30)


class BulkAction(StrEnum):
    """The change that a bulk operation makes."""

    REDRIVE = "redrive"
    """Start dead or cancelled jobs again."""
    CANCEL = "cancel"
    """End jobs that have not ended."""
    REPOLICY = "repolicy"
    """Give unfinished jobs the present policies of their tasks."""
    UNDO = "undo"
    """Take a redrive or a cancel back."""


class BulkState(StrEnum):
    """The state of a bulk operation."""

    RUNNING = "running"
    """Batches are left."""
    STOPPED = "stopped"
    """An operator has ended it."""
    DONE = "done"
    """All jobs have been read."""


class BulkOptions(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The parameters of an action.

    Attributes:
        queue: for a redrive, the queue to which the jobs go.
        why: for a cancel, the reason, shown on the jobs.
        policies: for a repolicy, the documents of the policies by task; a worker with other code must not choose them.
    """

    queue: str | None = None
    why: str | None = None
    policies: Mapping[str, str] = {}


class BulkOperation(msgspec.Struct, frozen=True, gc=False):
    """An action on many jobs, and how far it is.

    Attributes:
        wanted: the filter; its limit counts the jobs that are changed.
        undoes: the operation that this one takes back.
        undone_by: the operation that takes this one back.
        rate: the number of jobs per time, such as ``100/s``; None for no limit.
        bound_id: the newest job at the preview.
        frozen_at: the instant of the preview.
        matched: jobs that matched then; None if they were too many to be counted.
        last_id: the last job that was read; for an undo, the last line of the audit log.
        done: jobs that were changed.
        kept: jobs that match but stay as they are.
        next_at: when the next job is due.
        last_error: why the last batch failed; None if it has not.
    """

    id: int
    action: BulkAction
    wanted: Filter
    options: BulkOptions
    undoes: int | None
    undone_by: int | None
    actor: str
    rate: str | None
    state: BulkState
    bound_id: int
    frozen_at: datetime
    matched: int | None
    last_id: int
    done: int
    kept: int
    next_at: datetime
    ended_at: datetime | None
    last_error: str | None

    @property
    def spacing(self) -> timedelta:
        """The time between two jobs."""
        return timedelta(0) if self.rate is None else Rate.parse(self.rate).spacing

    @property
    def batch(self) -> Filter:
        """The filter of the next batch."""
        most = BATCH if not self.spacing else max(1, min(BATCH, SPAN // self.spacing))
        rest = replace(self.wanted, after_id=self.last_id, limit=min(most, self.wanted.most - self.done))
        return frozen(self.action, rest, self.bound_id, self.frozen_at)

    @property
    def left_for(self) -> timedelta | None:
        """The time until it is done, at its rate; None if it is not known."""
        if self.rate is None or self.matched is None or self.state is not BulkState.RUNNING:
            return None
        return self.spacing * max(0, self.matched - self.done - self.kept)

    def advanced(self, at: datetime, *, done: int, kept: int, last_id: int | None) -> BulkOperation:
        """Return the operation after a batch; ``last_id`` is None if no job is left."""
        total = self.done + done
        is_over = last_id is None or total >= self.wanted.most
        return replace(
            self,
            done=total,
            kept=self.kept + kept,
            last_id=self.last_id if last_id is None else last_id,
            next_at=max(at, self.next_at) + self.spacing * done,
            state=BulkState.DONE if is_over else self.state,
            ended_at=at if is_over else None,
            last_error=None,
        )

    def why_not_undone(self) -> str | None:
        """Return why it cannot be taken back; None if it can."""
        if self.undone_by is not None:
            return f"operation {self.undone_by} takes it back already"
        if self.action is BulkAction.REPOLICY:
            return "a repolicy cannot be undone: the policies before it are not kept"
        if self.action is BulkAction.UNDO:
            return "an undo cannot be undone: start a new operation"
        return None if self.done else "it has changed no job"


_STATES: Final[Mapping[BulkAction, frozenset[State]]] = {
    BulkAction.REDRIVE: frozenset({State.DEAD, State.CANCELLED}),
    BulkAction.CANCEL: frozenset(State) - FINAL,
    BulkAction.REPOLICY: frozenset(State) - FINAL,
}


def scoped(action: BulkAction, wanted: Filter) -> Filter:
    """Return a filter that leaves out jobs on which an action has no effect.

    A redrive means dead jobs that were neither caught nor skipped, unless the filter has a state or ids. Raise
    `ConfigurationError` if the filter has no condition, or only means jobs on which the action has no effect.
    """
    wanted = wanted.for_changes()
    states = _STATES.get(action)
    if states is None:
        raise ConfigurationError(f"an {action} takes an operation back, not jobs by filter")
    if wanted.state is not None and wanted.state not in states:
        known = ", ".join(sorted(states))
        raise ConfigurationError(f"a {action} changes jobs that are {known}; the filter asks for state {wanted.state}")
    if action is not BulkAction.REDRIVE or wanted.ids is not None:
        return replace(wanted, oldest_first=True)
    state = wanted.state or State.DEAD
    caught = False if state is State.DEAD and wanted.caught is None else wanted.caught
    skipped = False if state is State.DEAD and wanted.skipped is None else wanted.skipped
    return replace(wanted, state=state, caught=caught, skipped=skipped, all=False, oldest_first=True)


def frozen(action: BulkAction, wanted: Filter, bound_id: int, at: datetime) -> Filter:
    """Return a filter that leaves out jobs above a bound, and for a redrive those that ended after an instant."""
    before_id = min(wanted.before_id, bound_id + 1)
    if action is not BulkAction.REDRIVE:
        return replace(wanted, before_id=before_id)
    ended = at + timedelta.resolution
    before = ended if wanted.finished_before is None else min(ended, wanted.finished_before)
    return replace(wanted, before_id=before_id, finished_before=before)


def digest(
    action: BulkAction, wanted: Filter, options: BulkOptions, *, rate: str | None = None, undoes: int | None = None
) -> str:
    """Return a text that is the same for equal bulk operations; of these, one runs at a time."""
    document = msgspec.json.encode([action, wanted, options, rate, undoes], order="deterministic")
    return hashlib.blake2b(document, digest_size=16).hexdigest()
