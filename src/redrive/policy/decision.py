"""The decision after a failure, and the history on which it is based."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from redrive.policy.duration import format_duration
from redrive.policy.value import NamedTuple


class History(NamedTuple):
    """The past of a call."""

    #: Executions charged so far, the failed one included; at least 1.
    attempts: int
    #: Start of the first attempt, aware.
    started_at: datetime
    #: The wait before the attempt that just failed, or None if it was the first.
    last_delay: timedelta | None = None
    #: For each rule of the policy, the number of *earlier* failures that it matched; after these the numbers that
    #: schedules keep (`redrive.policy.backoff_kinds.Smooth`). `Policy.advance` maintains it; () means that no
    #: numbers were kept.
    by_rule: tuple[int, ...] = ()


class Retry(NamedTuple):
    """Wait, then call again."""

    #: The wait, counted from the moment of the failure.
    delay: timedelta
    #: The backoff before jitter and hints.
    nominal: timedelta
    #: The source of the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``; or ``deadline``: wait, then
    #: time out *without* calling (``over_deadline="truncate"``, RFC 0049).
    rule: str


class Defer(NamedTuple):
    """The next attempt is beyond the deadline: hand the call over to a durable job."""

    #: The time at which the call may be repeated, aware.
    at: datetime
    #: The source of the delay, as in `Retry`.
    rule: str


class GiveUp(NamedTuple):
    """Do not call again; the *signal* of that name is `redrive.errors.GiveUp`."""

    #: A sentence for logs.
    why: str
    #: A stable word: ``attempts``, ``backoff`` (its delays are used up), ``deadline``, ``hint`` (longer than
    #: ``max_hint``), ``permanent``, ``not_matched``, ``not_idempotent``, ``stopped`` (the ``stop`` event is set), or
    #: ``rule 2 (httpx.ReadTimeout)``.
    rule: str


Decision: TypeAlias = Retry | Defer | GiveUp


# A wait that would end at the deadline or after it is not started, as in Spring, cats-retry and tenacity.
def past_deadline(retry: Retry, now: datetime, elapsed: timedelta, deadline: timedelta, mode: str) -> Decision:
    """Return the decision for a wait that would pass the deadline; ``mode`` is the policy's ``over_deadline``."""
    if mode == "defer":
        return Defer(now + retry.delay, retry.rule)
    whole, since = format_duration(deadline), _readable(elapsed)
    if elapsed >= deadline:
        return GiveUp(f"the deadline of {whole} has passed ({since} since the start)", "deadline")
    if mode == "truncate":
        return Retry(deadline - elapsed, retry.nominal, "deadline")
    wait = "the wait that was asked for" if retry.rule == "hint" else "the next wait"
    return GiveUp(f"{wait}, {_readable(retry.delay)}, would pass the deadline of {whole} ({since} gone)", "deadline")


def _readable(value: timedelta) -> str:
    return format_duration(round(value / timedelta(milliseconds=1)) * timedelta(milliseconds=1))
