"""What handlers raise to say what should become of their job. See `redrive.errors`."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["Cancel", "GiveUp", "RetryAfter", "Signal", "Snooze"]


class Signal(Exception):
    """Raised by a handler to say what should become of its job."""


class RetryAfter(Signal):
    """The attempt failed and the error itself says when to come back.

    The delay is a floor that replaces the computed backoff; it is never jittered down. It spends one retry.

    Args:
        delay: how long to wait: a ``timedelta``, seconds as a number, or text such as ``"15m"``.
        why: what happened, for the history of the job.
    """

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"retry after {delay}")
        self.delay = delay
        self.why = why


class GiveUp(Signal):
    """The attempt failed for good: no retry is spent on it, the catch task gets it at once.

    Args:
        why: what is final about it, for the history of the job.
    """

    def __init__(self, why: str = "gave up") -> None:
        super().__init__(why)
        self.why = why


class Snooze(Signal):
    """Not now: run the job again later. Spends no retry and records no error.

    Args:
        delay: how long to wait: a ``timedelta``, seconds as a number, or text such as ``"15m"``.
        why: shown while the job waits.
    """

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"snoozed for {delay}")
        self.delay = delay
        self.why = why


class Cancel(Signal):
    """The job is no longer wanted: it ends as cancelled. No retry, no catch.

    Args:
        why: shown on the job.
    """

    def __init__(self, why: str = "cancelled by its handler") -> None:
        super().__init__(why)
        self.why = why
