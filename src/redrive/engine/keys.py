"""Unique keys: which jobs hold theirs, and what a settlement does to them. PURE.

A job with ``key=`` is the only one of its task with that key as long as it *holds* the key:

=============  ===========================  ==========================
key_until      holds its key while it is    may run beside another one
=============  ===========================  ==========================
``end``        ready, running, waiting      never
``start``      ready                        while it runs
=============  ===========================  ==========================

A job that holds its key until its start gives the key back when it is claimed and takes it again when it becomes ready
again: after a failure, a snooze, a crash or a release. If another job has taken the key by then, the other one is the
newer request, and the old job is *superseded*: the same transaction cancels it with the reason `SUPERSEDED` and a note
that names the other job. Other jobs of the transaction are not affected.

If an operator redrives a job with a key that another job holds, neither job changes, and the operator gets an error.
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from redrive.engine.lifecycle import FINAL, LifecycleEvent, State, next_state
from redrive.engine.outcome import Settlement
from redrive.engine.records import KeyUntil

#: The reason of a job that was cancelled because another job has taken its key.
SUPERSEDED = "SUPERSEDED"


class KeyChange(Enum):
    """The effect of a settlement on the unique key of a job."""

    KEEP = "keep"
    TAKE = "take"
    DROP = "drop"


def holds(until: KeyUntil | None, state: State) -> bool:
    """Return True if a job in this state holds its unique key."""
    match until:
        case None:
            return False
        case KeyUntil.START:
            return state is State.READY
        case KeyUntil.END:  # pragma: no branch - the last one; mypy proves that all are here
            return state not in FINAL


def key_change(until: KeyUntil | None, before: State, after: State) -> KeyChange:
    """Return the effect of a settlement on the unique key of the job."""
    held, wanted = holds(until, before), holds(until, after)
    if held == wanted:
        return KeyChange.KEEP
    return KeyChange.TAKE if wanted else KeyChange.DROP


def superseded(settlement: Settlement, key: str, holder: int) -> Settlement:
    """Return the settlement of a job that cannot take its key back; it closes the attempt as the given one does."""
    return replace(
        settlement,
        event=LifecycleEvent.CANCEL,
        state=next_state(settlement.state, LifecycleEvent.CANCEL),
        hold=None,
        scheduled_at=None,
        note=superseded_note(key, holder),
        reason=SUPERSEDED,
    )


def superseded_note(key: str, holder: int) -> str:
    """Return the note of a superseded job."""
    return f"superseded by job {holder}, which holds its key {key!r}"


def idempotency_key(uid: str, number: int, salt: int) -> str:
    """Return the idempotency key that a handler passes to other services: the same for all attempts of the job only."""
    # The random salt distinguishes jobs that get the same number after a backup was restored.
    return f"{uid}-{number}-{salt:x}"
