"""What is to be done to keep something fresh, as a value; see `redrive.schedule.refresh`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.errors import ScheduleError
from redrive.schedule.english import read, write
from redrive.schedule.lint import lint
from redrive.schedule.schedule import Schedule
from redrive.schedule.terms import LONGEST, Action, Exhausted, Strategy

__all__ = ["RefreshPolicy"]

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPolicy:
    """When something is refreshed, how often it is tried, and when that ends.

    Attributes:
        schedule: the planned refreshes; None for one that only people start.
        timeout: how long one attempt may take.
        delays: before each retry; so many delays, so many retries.
        repeat_last: go on with the last delay for ever?
        strategy: what becomes of a retry that does not fit before the next planned refresh.
        on_exhausted: what becomes of it when all retries are used up.
        give_up_after: how long it may go on failing, from the first start that failed; None means for ever.
        catch_up: how late a planned refresh may be started; None means however late, once.
        jitter: planned refreshes start up to this much later, so that not all start at once; those that are late, too.
        on_give_up: what is wanted done then.

    Raises:
        ScheduleError: a span is negative or longer than a hundred years, or the parts contradict each other.
    """

    schedule: Schedule | None = None
    timeout: timedelta = timedelta(minutes=10)
    delays: tuple[timedelta, ...] = ()
    repeat_last: bool = False
    strategy: Strategy = Strategy.ALIGN
    on_exhausted: Exhausted = Exhausted.GIVE_UP
    give_up_after: timedelta | None = None
    catch_up: timedelta | None = None
    jitter: timedelta = _NONE
    on_give_up: tuple[Action, ...] = ()

    def __post_init__(self) -> None:
        if self.timeout <= _NONE:
            raise ScheduleError(f"timeout={self.timeout}: the timeout must be positive")
        spans = (*self.delays, self.jitter, self.catch_up or _NONE)
        if any(each < _NONE for each in spans):
            raise ScheduleError(f"a span of time is negative: {min(spans)}")
        longest = max(*spans, self.timeout, self.give_up_after or _NONE)
        if longest > LONGEST:
            raise ScheduleError(f"a span of time is longer than a hundred years: {longest.days} days")
        if self.give_up_after is not None and self.give_up_after <= _NONE:
            raise ScheduleError(f"give_up_after={self.give_up_after}: the time must be positive")
        if self.repeat_last and not self.delays:
            raise ScheduleError("repeat_last=True needs a delay to repeat")
        if self.on_exhausted is Exhausted.WAIT_NEXT and self.schedule is None:
            raise ScheduleError("on_exhausted='wait_next': there is no scheduled refresh to wait for")
        if self.on_exhausted is Exhausted.WAIT_NEXT and self.repeat_last:
            raise ScheduleError("on_exhausted='wait_next': retries that go on for ever are never exhausted")

    def delay(self, failures: int) -> timedelta | None:
        """How long to wait after a failure.

        Args:
            failures: how many attempts of this cycle have failed, from 1.

        Returns:
            The delay before the next attempt, or None if there is none.
        """
        if failures <= len(self.delays):
            return self.delays[failures - 1]
        return self.delays[-1] if self.repeat_last else None

    def lint(self, *, now: datetime | None = None) -> tuple[str, ...]:
        """Find what is allowed, but hardly meant: that no retry can ever fit, or that nothing ever ends it.

        Args:
            now: the present instant, aware. Without it nothing is said of the end of the schedule, and of nights in
                which clocks are advanced.

        Returns:
            Warnings, each a sentence or two, with the figures and what would help.
        """
        return lint(self, now)

    @classmethod
    def parse(cls, text: str, *, start: datetime | None = None) -> RefreshPolicy:
        """Read a policy that is written in English; the grammar stands in the reference.

        Args:
            text: sentences, one on each line or with semicolons between them, also as a list.
            start: from when a schedule counts that does not say it ("every two weeks"), naive; by default from a Monday
                long ago, so that a program means the same after each deployment. Give the midnight of the day of
                saving for what a person has typed in.

        Returns:
            The policy.

        Raises:
            ScheduleSyntaxError: something is not understood, with its line and its column.
        """
        return read.parse(text, cls, start=start)

    def __str__(self) -> str:
        """The policy in English; reading it gives the same policy."""
        return write.text(self)
