"""What became of a call, told by its `redrive.retrying.run.Run`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from redrive.policy import Defer, Failure, GiveUp, Stage
from redrive.policy.outcome import Deferred, GaveUp, Ok, Outcome, Record
from redrive.retrying.plan import Plan
from redrive.retrying.record import Line, attach, attach_copies, failure_in, timeline
from redrive.retrying.rng import unique

__all__ = ["Story"]


class Story:
    """The part of a run that is told afterwards."""

    # What every failure looks at has a slot, which CPython makes and reads fastest; the rest are defaults of the class,
    # which cost nothing until they differ.
    __slots__ = ("__dict__", "_began", "_monotonic", "delay", "last", "number", "plan", "started")
    plan: Plan
    number: int
    delay: float
    started: float
    ended: GiveUp | Defer | None
    _monotonic: Callable[[], float]
    _began: float
    last: Line | None
    _uid: str | None = None
    _copies: tuple[Record, ...] = ()

    @property
    def name(self) -> str:
        """What is called, for messages."""
        raise NotImplementedError

    @property
    def previous(self) -> Failure | None:
        """Why the last attempt that has ended failed."""
        return None if self.last is None else failure_in(self.last)

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
        tries = timeline(self.last, self.started, self.plan.policy.backoff)
        return Record(self.name, tries, elapsed, rule, _why(self.ended), inner, self._copies)

    def outrun(self) -> Record:
        """The story of a copy of a call that another copy has ended: it is cancelled now, unless it is over."""
        if self.ended is None:
            self.ended = GiveUp("another copy of the call was first", "outrun")
            if not (self.delay and self.last and self.last[2] == self._began):  # it was not in a wait
                cut = Failure((), self.ended.why, "OUTRUN", Stage.IN_FLIGHT)
                self.last = (self.last, self._began, self._monotonic(), cut, self.ended)
        return self.record()

    def succeeded(self, value: Any) -> Outcome[Any]:
        """The outcome of a call that returned."""
        if self.ended is None:
            self.last = (self.last, self._began, self._monotonic(), None, None)
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

    def attach_copies(self, error: Exception) -> None:
        """Add the story of the other copies of a hedged call to its error, which has that of its own copy."""
        if self._copies:
            attach_copies(error, self._copies)

    def _attach(self, error: Exception) -> None:
        """Give an error its record and its note, unless it was none of the policy's business."""
        if self.number > 1 or self.ended is None or self.ended.rule != "not_matched":
            attach(error, self.record)


def _why(ended: GiveUp | Defer | None) -> str:
    if isinstance(ended, GiveUp):
        return ended.why
    return "it succeeded" if ended is None else f"the next attempt is deferred to {ended.at:%Y-%m-%d %H:%M:%S} UTC"
