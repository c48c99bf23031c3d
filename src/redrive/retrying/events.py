"""What a call tells while it is made: the events of `redrive.observe`.

A call looks at `LISTENERS` first; while that is empty, nothing here is run. While it is not, a call takes no short cut
when it fails (see `redrive.retrying.run.Run.failed`), so that every retry is decided, and told, in one place.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.observe.listeners import LISTENERS
from redrive.policy import Defer, Failure, GiveUp, Retry
from redrive.policy.duration import ZERO
from redrive.retrying.record import Line, lines_since, wait_in
from redrive.retrying.story import Story

if TYPE_CHECKING:
    from redrive.retrying.guard import Guard

__all__ = ["Telling"]


class Telling(Story):
    """A story that is also told as it happens.

    Attributes:
        wait: what sinks have around the next wait.
        is_copy: whether this is one copy of a hedged call: its retries are told, its end is not the end of the call.
    """

    __slots__ = ()
    guard: Guard | None
    wait: AbstractContextManager[None] = nullcontext()
    is_copy = False
    _counted = 0
    _heard: Line | None = None
    _total = ZERO

    def emit_retry(self, failure: Failure, decision: Retry) -> None:
        """Tell that an attempt failed and another one follows; its line is written already."""
        from redrive import observe

        waited = self._waited() - decision.delay
        self.wait = observe.around(
            observe.CallRetryScheduled(
                name=self.name,
                attempt=self._counted,
                failure=failure,
                delay=decision.delay,
                rule=decision.rule,
                waited=waited,
                elapsed=self._elapsed,
            )
        )
        if not decision.delay:
            with self.wait:
                """Nothing is waited for."""

    def emit_end(self, error: Exception | None = None) -> None:
        """Tell how the call has ended, if that is news.

        Args:
            error: what it raises.
        """
        ended = self.ended
        if self.is_copy or not LISTENERS:
            return
        if ended is None:
            if error is None and self.number > 1:
                self._tell_success()
        elif ended.rule not in ("disabled", "nested") and (self.number > 1 or ended.rule != "not_matched"):
            self._tell_failed(ended, error)

    def _tell_success(self) -> None:
        from redrive import observe

        elapsed, waited = self._elapsed, self._waited()
        observe.emit(observe.CallSucceeded(name=self.name, attempts=self.number, elapsed=elapsed, waited=waited))

    def _tell_failed(self, ended: GiveUp | Defer, error: Exception | None) -> None:
        from redrive import observe

        elapsed, waited = self._elapsed, self._waited()
        attempts, failure = self._counted, self.previous
        if isinstance(ended, GiveUp):
            told: observe.Event = observe.CallGaveUp(
                name=self.name,
                attempts=attempts,
                elapsed=elapsed,
                waited=waited,
                rule=ended.rule,
                why=ended.why,
                failure=failure,
                error=error,
            )
        else:
            told = observe.CallDeferred(
                name=self.name,
                attempts=attempts,
                elapsed=elapsed,
                waited=waited,
                at=ended.at,
                rule=ended.rule,
                failure=failure,
                error=error,
            )
        observe.emit(told)

    @property
    def _elapsed(self) -> timedelta:
        return timedelta(0, self._monotonic() - self.started)

    def _waited(self) -> timedelta:
        """All waits that were decided on so far, the next one included."""
        fresh = lines_since(self._heard, self.last)
        self._heard, self._counted = self.last, self._counted + len(fresh)
        self._total += sum((wait_in(line) for line in fresh), ZERO)
        return self._total

    def _attach(self, error: Exception) -> None:
        super()._attach(error)
        self.emit_end(error)

    def _returned(self) -> None:
        """The call returns, with a result that is good or is not retried."""
        if self.guard is not None:
            self.guard.finish(self.ended)
        self.emit_end()
