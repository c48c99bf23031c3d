"""The states of a job, the events of its life, and the one table of what follows from what. PURE.

A job is one row. At each instant it is in exactly one `State`, and it leaves that state only by a `LifecycleEvent`.
`TABLE` alone defines where an event leads: code looks the next state up with `next_state`, SQL writes the result, and
the diagram in the documentation is generated from the table.

``ready`` covers jobs that are due now, *scheduled* for later, and *retrying* after a failure. They differ by
``scheduled_at`` and ``hold``, not by state: a wait is a row with a due time, and nothing happens when it becomes due.

``dead`` means that the job gave up. If its policy names a catch task, the transaction that writes ``dead`` also inserts
the catch job. When that job succeeds, the event ``catch`` sets ``caught_at``, and the job stays ``dead``. A dead job
that is not caught can be *redriven*.

``waiting`` is an open attempt that no worker runs: the handler has started an external operation and returned
`Pending`. The lease stays, because `App.complete` and `App.fail` name it in their token; a token of an earlier attempt
is refused like any stale lease. At ``scheduled_at`` the attempt fails with the reason ``TIMEOUT``, and the policy
decides.

``succeeded`` is the only state without an exit. A ``cancelled`` job can be redriven.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from redrive.errors import IllegalMove


class State(StrEnum):
    """The state of a job."""

    READY = "ready"
    """Runs as soon as it is due and a worker has a free slot."""
    RUNNING = "running"
    """A worker holds its lease."""
    WAITING = "waiting"
    """The attempt is open, but no worker runs it; an external completion or the end of the wait ends it."""
    SUCCEEDED = "succeeded"
    """The handler returned; the result is stored."""
    DEAD = "dead"
    """Gave up: the retries are exhausted, the error is permanent, or there were too many crashes."""
    CANCELLED = "cancelled"
    """Ended by an operator or by its own handler."""


class LifecycleEvent(StrEnum):
    """An event in the life of a job."""

    CLAIM = "claim"
    """A worker claimed the job: a new lease, a new attempt."""
    SUCCEED = "succeed"
    """The handler returned."""
    RETRY = "retry"
    """The attempt failed and the policy grants another one."""
    DIE = "die"
    """The attempt failed and the policy grants no other one."""
    WAIT = "wait"
    """The handler returned `Pending`; an external completion ends the attempt."""
    SNOOZE = "snooze"
    """The handler asked to be called later; no retry is spent."""
    PARK = "park"
    """The run waits for an instant, a signal or another run; no attempt is spent, and no worker is occupied."""
    RELEASE = "release"
    """The worker gave the job back unfinished (shutdown, unknown task); no retry is spent."""
    SET_ASIDE = "set_aside"
    """The attempt is over, but the policy of the job, which decides what follows, cannot be decoded."""
    LOSE = "lose"
    """The worker died; the job runs again without spending a retry."""
    CANCEL = "cancel"
    """An operator or the handler cancelled the job."""
    HASTEN = "hasten"
    """An operator made a ready job due now."""
    CATCH = "catch"
    """The catch task of the dead job succeeded."""
    SKIP = "skip"
    """An operator let the jobs pass that this dead job of an ordered queue blocks."""
    REDRIVE = "redrive"
    """An operator started an ended job again."""


TABLE: Final[Mapping[State, Mapping[LifecycleEvent, State]]] = {
    State.READY: {
        LifecycleEvent.CLAIM: State.RUNNING,
        LifecycleEvent.HASTEN: State.READY,
        LifecycleEvent.CANCEL: State.CANCELLED,
    },
    State.RUNNING: {
        LifecycleEvent.SUCCEED: State.SUCCEEDED,
        LifecycleEvent.RETRY: State.READY,
        LifecycleEvent.SNOOZE: State.READY,
        LifecycleEvent.PARK: State.READY,
        LifecycleEvent.RELEASE: State.READY,
        LifecycleEvent.LOSE: State.READY,
        LifecycleEvent.SET_ASIDE: State.RUNNING,
        LifecycleEvent.DIE: State.DEAD,
        LifecycleEvent.WAIT: State.WAITING,
        LifecycleEvent.CANCEL: State.CANCELLED,
    },
    State.WAITING: {
        LifecycleEvent.SUCCEED: State.SUCCEEDED,
        LifecycleEvent.RETRY: State.READY,
        LifecycleEvent.DIE: State.DEAD,
        LifecycleEvent.SET_ASIDE: State.WAITING,
        LifecycleEvent.CANCEL: State.CANCELLED,
    },
    State.SUCCEEDED: {},
    State.DEAD: {
        LifecycleEvent.CATCH: State.DEAD,
        LifecycleEvent.SKIP: State.DEAD,
        LifecycleEvent.REDRIVE: State.READY,
    },
    State.CANCELLED: {LifecycleEvent.REDRIVE: State.READY},
}

# What operators may ask of a job in the wrong state, in their words.
_ACTIONS: Final[Mapping[LifecycleEvent, str]] = {
    LifecycleEvent.REDRIVE: "run again; only a dead or cancelled job can",
    LifecycleEvent.SKIP: "be skipped; only a dead job can",
}

#: The states that only an operator can end.
FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})


# Every event out of ``running`` carries the lease of the attempt that caused it. If that lease is no longer current the
# store changes nothing and raises `redrive.errors.LeaseLost`; so two workers never both settle a job.
def next_state(state: State, event: LifecycleEvent) -> State:
    """Return the state to which the event leads.

    Raises:
        IllegalMove: the table has no such move; the message has the possible ones.
    """
    moves = TABLE[state]
    if event not in moves and event in _ACTIONS:
        instead = ": enqueue a new one" if event is LifecycleEvent.REDRIVE and state is State.SUCCEEDED else ""
        raise IllegalMove(f"a {state} job cannot {_ACTIONS[event]}{instead}")
    if event not in moves:
        possible = ", ".join(moves) or "nothing: it is finished for good"
        raise IllegalMove(f"a {state} job cannot {event}; possible from here: {possible}")
    return moves[event]
