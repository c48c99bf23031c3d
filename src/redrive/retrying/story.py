"""What became of a call, told by its `redrive.retrying.run.Run`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from redrive.policy import Defer, Failure, GiveUp
from redrive.policy.outcome import Deferred, GaveUp, Ok, Outcome, Record
from redrive.retrying.dice import unique
from redrive.retrying.plan import Plan
from redrive.retrying.record import Line, attach, spelt_out, timeline

__all__ = ["Story"]


class Story:
    """The part of a run that is told afterwards."""

    plan: Plan
    number: int
    started: float
    ended: GiveUp | Defer | None
    _monotonic: Callable[[], float]
    _began: float
    _lines: list[Line]
    _uid: str | None = None

    @property
    def name(self) -> str:
        """What is called, for messages."""
        raise NotImplementedError

    @property
    def previous(self) -> Failure | None:
        """Why the last attempt that has ended failed."""
        if not self._lines:
            return None
        return spelt_out(self._lines[-1], len(self._lines), self.plan.policy.backoff)[0]

    @property
    def uid(self) -> str:
        """The same for all attempts of this call and for no other."""
        if self._uid is None:
            self._uid = unique()
        return self._uid

    def record(self, inner: Record | None = None) -> Record:
        """The story so far."""
        rule = "ok" if self.ended is None else self.ended.rule
        elapsed = timedelta(0, self._monotonic() - self.started)
        tries = timeline(self._lines, self.started, self.plan.policy.backoff)
        return Record(self.name, tries, elapsed, rule, _why(self.ended), inner)

    def succeeded(self, value: Any) -> Outcome[Any]:
        """The outcome of a call that returned."""
        if self.ended is None:
            self._lines.append((self._began, self._monotonic(), None, None))
            return Ok(value, self.record())
        return self._outcome(None, value)

    def surfaced(self, error: Exception) -> Outcome[Any]:
        """The outcome of a call that raised."""
        return self._outcome(error, None)

    def _outcome(self, error: Exception | None, value: Any) -> Outcome[Any]:
        record = self.record()
        if isinstance(self.ended, Defer):
            return Deferred(self.ended.at, error, value, record)
        return GaveUp(error, value, record)

    def _attach(self, error: Exception) -> None:
        """Give an error its record and its note, unless it was none of the policy's business."""
        if self.number > 1 or self.ended is None or self.ended.rule != "not_matched":
            attach(error, self.record)


def _why(ended: GiveUp | Defer | None) -> str:
    if isinstance(ended, GiveUp):
        return ended.why
    return "it succeeded" if ended is None else f"the next attempt is deferred to {ended.at:%Y-%m-%d %H:%M:%S} UTC"
