"""THE TABLE: which states a job can be in and which events move it.

Theory of operation
-------------------

A job is one row. At each instant it is in exactly one `State`. It leaves that state only by a `JobEvent`, and the table
below is the only place in the project that says where an event leads (the habit of h11's ``_state.py``): code looks a
move up with `move`, SQL writes what the move answered, and the diagram in the documentation is generated from here.

Every event out of ``running`` carries the lease of the attempt that caused it. Where the lease is no longer current
the store changes nothing and answers `redrive.errors.LeaseLost`; the table is not even asked. So two workers can never
both settle a job, whatever the network did in between (invariants I1 and I2 of the conformance cases).

``ready`` covers three things that people like to tell apart: due now, *scheduled* for a later instant, and *retrying*,
which is waiting for its next attempt after a failure. They differ by ``scheduled_at`` and by why the row waits
(``hold``), not by state: nothing has to happen to a retry when it becomes due (law 7: a wait is a row with a due time).

``dead`` means that the job gave up. If its policy names a catch task, the same transaction that wrote ``dead`` also
inserted the catch job; when that one succeeds, the event ``catch`` stamps ``caught_at`` and the job stays ``dead``.
A dead job that is not caught can be *redriven*.

``waiting`` is an open attempt that no worker runs: the handler has started something outside and returned `Pending`.
The lease goes on, because it names the answer that may end the attempt: `App.complete` and `App.fail` bring it back as
a token, and one of an earlier attempt is refused like any stale lease. ``scheduled_at`` is when the wait is over, at
which the attempt fails with the reason ``TIMEOUT`` and the policy decides.

``succeeded`` is the only state with no way out. ``cancelled`` has one, because operators make mistakes.
"""

from __future__ import annotations

from enum import StrEnum

from redrive.errors import IllegalMove

__all__ = ["FINAL", "TABLE", "JobEvent", "State", "diagram", "move"]


class State(StrEnum):
    """What a job is doing."""

    READY = "ready"
    """Runs as soon as it is due and a worker has a free slot."""
    RUNNING = "running"
    """A worker holds its lease."""
    WAITING = "waiting"
    """Its attempt is open, but nobody runs it: an answer from outside ends it, or the end of its wait."""
    SUCCEEDED = "succeeded"
    """The handler returned; the result is kept."""
    DEAD = "dead"
    """Gave up: retries exhausted, a permanent error, or too many crashes."""
    CANCELLED = "cancelled"
    """Ended by an operator or by its own handler."""


class JobEvent(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    """A worker took the job: a new lease, a new attempt."""
    SUCCEED = "succeed"
    """The handler returned."""
    RETRY = "retry"
    """The attempt failed and the policy grants another one, later."""
    DIE = "die"
    """The attempt failed and the policy grants no other."""
    WAIT = "wait"
    """The handler returned `Pending`: somebody else will say how it ended."""
    SNOOZE = "snooze"
    """The handler asked to be called later; nothing is spent."""
    RELEASE = "release"
    """The worker gave the job back unfinished (shutdown, unknown task); nothing is spent."""
    SET_ASIDE = "set_aside"
    """The attempt is over, but what follows cannot be decided, because the policy of the job cannot be read."""
    LOSE = "lose"
    """The worker vanished with the job; it runs again without spending a retry."""
    CANCEL = "cancel"
    """An operator, or the handler itself, wants the job no more."""
    HASTEN = "hasten"
    """An operator makes a waiting job due now."""
    CATCH = "catch"
    """The catch task has taken the dead job."""
    SKIP = "skip"
    """An operator lets those pass that a dead job of an ordered queue holds up."""
    REDRIVE = "redrive"
    """An operator starts an ended job again."""


TABLE: dict[State, dict[JobEvent, State]] = {
    State.READY: {
        JobEvent.CLAIM: State.RUNNING,
        JobEvent.HASTEN: State.READY,
        JobEvent.CANCEL: State.CANCELLED,
    },
    State.RUNNING: {
        JobEvent.SUCCEED: State.SUCCEEDED,
        JobEvent.RETRY: State.READY,
        JobEvent.SNOOZE: State.READY,
        JobEvent.RELEASE: State.READY,
        JobEvent.LOSE: State.READY,
        JobEvent.SET_ASIDE: State.RUNNING,
        JobEvent.DIE: State.DEAD,
        JobEvent.WAIT: State.WAITING,
        JobEvent.CANCEL: State.CANCELLED,
    },
    State.WAITING: {
        JobEvent.SUCCEED: State.SUCCEEDED,
        JobEvent.RETRY: State.READY,
        JobEvent.DIE: State.DEAD,
        JobEvent.SET_ASIDE: State.WAITING,
        JobEvent.CANCEL: State.CANCELLED,
    },
    State.SUCCEEDED: {},
    State.DEAD: {
        JobEvent.CATCH: State.DEAD,
        JobEvent.SKIP: State.DEAD,
        JobEvent.REDRIVE: State.READY,
    },
    State.CANCELLED: {
        JobEvent.REDRIVE: State.READY,
    },
}

FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
"""States in which nothing happens by itself any more."""


def move(state: State, event: JobEvent) -> State:
    """Look up where ``event`` leads from ``state``.

    Args:
        state: the present state of the job.
        event: what happened or is asked for.

    Returns:
        The next state.

    Raises:
        IllegalMove: the table has no such move; the message lists those it has.
    """
    moves = TABLE[state]
    if event not in moves:
        possible = ", ".join(moves) or "nothing: it is finished for good"
        message = f"a {state} job cannot {event}; possible from here: {possible}"
        raise IllegalMove(message)
    return moves[event]


def diagram() -> str:
    """Draw the table as a Mermaid state diagram, for the documentation.

    Returns:
        The lines of a ``stateDiagram-v2``.
    """
    lines = ["stateDiagram-v2", "    [*] --> ready : enqueue"]
    for state, moves in TABLE.items():
        lines += [f"    {state} --> {target} : {event}" for event, target in moves.items()]
    lines += [f"    {state} --> [*]" for state in TABLE if state in FINAL]
    return "\n".join(lines)
