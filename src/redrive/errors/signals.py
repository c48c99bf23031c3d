"""Signals: exceptions that a handler raises to choose what follows for its job."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["Cancel", "GiveUp", "RetryAfter", "Signal", "Snooze"]


class Signal(Exception):
    """The base of the signals that a handler raises."""


class RetryAfter(Signal):
    """The attempt failed, and the error sets the delay.

    The delay replaces the computed backoff and gets no downward jitter. It uses one retry.
    """

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"retry after {delay}")
        #: A ``timedelta``, seconds as a number, or text such as ``"15m"``.
        self.delay = delay
        #: The cause, for the history of the job.
        self.why = why


class GiveUp(Signal):
    """The attempt failed for good: it is not retried, and the catch task runs at once."""

    def __init__(self, why: str = "gave up") -> None:
        super().__init__(why)
        #: The cause, for the history of the job.
        self.why = why


class Snooze(Signal):
    """Run the job again later, without using a retry or recording an error."""

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"snoozed for {delay}")
        #: A ``timedelta``, seconds as a number, or text such as ``"15m"``.
        self.delay = delay
        #: A text that is shown while the job waits.
        self.why = why


class Cancel(Signal):
    """End the job as cancelled, without a retry or a catch task."""

    def __init__(self, why: str = "cancelled by its handler") -> None:
        super().__init__(why)
        #: A text that is shown on the job.
        self.why = why
