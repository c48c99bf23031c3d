"""Who holds a unique key, and when. PURE.

A job with ``key=`` is the only one of its task with that key as long as it *holds* the key:

=============  ===========================  ==========================
key_until      holds its key while it is    may run beside another one
=============  ===========================  ==========================
``end``        ready, running, waiting      never
``start``      ready                        while it runs
=============  ===========================  ==========================

So a job whose key is held until its start gives it back when it is claimed, and takes it again when it has to run once
more: after a failure, a snooze, a crash, a worker that shut down. Meanwhile another job may have taken the key. Both
cannot wait under one key, and the other one is the newer request: the old job is *superseded*. It is cancelled with the
reason `SUPERSEDED` and a note that names the other job, in the same transaction, and nothing else is held up by it
(conformance D20, D43: at peers, one such conflict stops the rescue of all).

Where an operator starts an ended job again, and another one holds its key, nothing happens to either: the operator is
told why.
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from redrive.engine.lifecycle import FINAL, LifecycleEvent, State, next_state
from redrive.engine.records import KeyUntil
from redrive.engine.transition import Transition

__all__ = ["SUPERSEDED", "KeyChange", "holds", "idempotency_key", "key_change", "superseded", "superseded_note"]

SUPERSEDED = "SUPERSEDED"
"""The reason of a job that could not have its key back."""


class KeyChange(Enum):
    """What a move does to the key of a job."""

    KEEP = "keep"
    TAKE = "take"
    DROP = "drop"


def holds(until: KeyUntil | None, state: State) -> bool:
    """Does a job hold its unique key in this state?

    Args:
        until: how long it keeps the key to itself; None for a job without a key.
        state: of the job.

    Returns:
        Whether no other job may have the key.
    """
    match until:
        case None:
            return False
        case KeyUntil.START:
            return state is State.READY
        case KeyUntil.END:  # pragma: no branch - the last one; mypy proves that all are here
            return state not in FINAL


def key_change(until: KeyUntil | None, before: State, after: State) -> KeyChange:
    """Say what a move does to the key of a job.

    Args:
        until: how long the job keeps the key to itself; None for a job without a key.
        before: the state that it leaves.
        after: the state that it enters.

    Returns:
        Whether the key is to be taken, dropped, or left as it is.
    """
    held, wanted = holds(until, before), holds(until, after)
    if held == wanted:
        return KeyChange.KEEP
    return KeyChange.TAKE if wanted else KeyChange.DROP


def superseded(transition: Transition, key: str, holder: int) -> Transition:
    """Close a job that cannot have its key back.

    Args:
        transition: what would have become of it: ready again.
        key: its key.
        holder: the job that has taken the key meanwhile.

    Returns:
        What becomes of it instead. The attempt is closed as it was.
    """
    return replace(
        transition,
        event=LifecycleEvent.CANCEL,
        state=next_state(transition.state, LifecycleEvent.CANCEL),
        hold=None,
        scheduled_at=None,
        note=superseded_note(key, holder),
        reason=SUPERSEDED,
    )


def superseded_note(key: str, holder: int) -> str:
    """Say why a job was superseded.

    Args:
        key: its key.
        holder: the job that holds the key.

    Returns:
        A sentence.
    """
    return f"superseded by job {holder}, which holds its key {key!r}"


def idempotency_key(uid: str, number: int, salt: int) -> str:
    """Write the key under which a job's handler asks other services for effects.

    Args:
        uid: of the database.
        number: of the job. A database that was restored from a backup gives the number to another job.
        salt: of the job; random.

    Returns:
        The same text for all attempts of the job, and for no other job.
    """
    return f"{uid}-{number}-{salt:x}"
