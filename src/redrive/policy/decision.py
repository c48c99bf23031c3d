"""The decision after a failure, and the history on which it is based."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

__all__ = ["Decision", "Defer", "GiveUp", "History", "Retry"]


class History(NamedTuple):
    """The past of a call.

    Attributes:
        attempts: executions charged so far, the failed one included; at least 1.
        started_at: start of the first attempt, aware.
        last_delay: the wait before the attempt that just failed, or None if it was the first.
        by_rule: for each rule of the policy, the number of *earlier* failures that it matched; after these the numbers
            that schedules keep (`redrive.policy.backoff_kinds.Smooth`). `Policy.advance` maintains it; () means that no
            numbers were kept.
    """

    attempts: int
    started_at: datetime
    last_delay: timedelta | None = None
    by_rule: tuple[int, ...] = ()


class Retry(NamedTuple):
    """Wait, then call again.

    Attributes:
        delay: the wait, counted from the moment of the failure.
        nominal: the backoff before jitter and hints.
        rule: the source of the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``; or ``deadline``: wait,
            then time out *without* calling (``over_deadline="truncate"``, RFC 0049).
    """

    delay: timedelta
    nominal: timedelta
    rule: str


class Defer(NamedTuple):
    """The next attempt is beyond the deadline: hand the call over to a durable job.

    Attributes:
        at: when the call may be repeated, aware.
        rule: the source of the delay, as in `Retry`.
    """

    at: datetime
    rule: str


class GiveUp(NamedTuple):
    """Do not call again; the *signal* of that name is `redrive.errors.GiveUp`.

    Attributes:
        why: a sentence for logs.
        rule: a stable word: ``attempts``, ``backoff`` (its delays are used up), ``deadline``, ``hint`` (longer than
            ``max_hint``), ``permanent``, ``not_matched``, ``not_idempotent``, or ``rule 2 (httpx.ReadTimeout)``.
    """

    why: str
    rule: str


Decision: TypeAlias = Retry | Defer | GiveUp
