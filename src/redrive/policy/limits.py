"""The two limits of a call: the number of attempts and the deadline.

A wait that would end at the deadline or after it is not started (as in Spring, cats-retry and tenacity).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.errors import PolicyValueError
from redrive.policy.decision import Decision, Defer, GiveUp, Retry
from redrive.policy.duration import format_duration

__all__ = ["check_attempts", "past_deadline"]


def check_attempts(attempts: int | None, field: str) -> int | None:
    """Return a number of executions, the first included, or None for no limit.

    Raises:
        PolicyValueError: the value is not a whole number, or less than 1.
    """
    if attempts is None:
        return None
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise PolicyValueError(
            f"{field}={attempts!r}: attempts counts executions, the first included: a whole number from 1 up"
        )
    return attempts


def past_deadline(retry: Retry, now: datetime, elapsed: timedelta, deadline: timedelta, mode: str) -> Decision:
    """Return the decision for a wait that would not end before the deadline.

    Args:
        retry: the decision without a deadline.
        now: the present instant.
        elapsed: time since the first attempt started.
        deadline: the limit of the whole call.
        mode: the policy's ``over_deadline``: ``give_up``, ``defer`` or ``truncate``.
    """
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
