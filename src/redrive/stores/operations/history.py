"""What the history says under leases that are not current any more. PURE."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.records import AttemptOutcome
from redrive.engine.transition import Transition
from redrive.stores.query import Query, Rows

__all__ = ["closed_before", "said_before"]

_ANSWERS = frozenset({AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED})


def closed_before(missed: Sequence[Transition]) -> Generator[Query, Rows, dict[int, str]]:
    """Read what the history says under these leases, which are not current any more.

    Args:
        missed: what could not be written.

    Returns:
        How the attempt ended, for each lease that has a line.
    """
    params = {"job_ids": [each.job_id for each in missed], "lease_ids": [each.lease_id for each in missed]}
    return dict((yield Query("closed_before", params)))


def said_before(transition: Transition, outcome: str | None) -> bool:
    """Return whether this end was settled before under this lease, in a commit whose reply was lost.

    An attempt that is to wait for its answer may find that the answer was faster.

    Args:
        transition: what could not be written.
        outcome: how the history says that the attempt ended; None where it says nothing.
    """
    if transition.event is LifecycleEvent.WAIT:
        return outcome in _ANSWERS
    return transition.closed is not None and transition.closed.outcome.value == outcome
