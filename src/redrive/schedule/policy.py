"""The refresh policy. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import force_setattr

from redrive.errors import ScheduleError
from redrive.policy.duration import Duration
from redrive.schedule import codec, options
from redrive.schedule.schedule import Schedule
from redrive.schedule.timezone import aware, member

_NONE = timedelta(0)


class RefreshPolicy(options.PolicyFields, frozen=True):
    """When a refresh runs, how often it is retried, and when it is given up.

    Spans may be a ``timedelta``, seconds, or text such as ``"1h30m"``, ``"1 hour"`` or ``"PT1H"``; they are kept as a
    ``timedelta``.

    Attributes:
        schedule: the planned refreshes: a `Schedule`, or lines of iCalendar that `Schedule.parse` reads; None for a
            refresh that only users start.
        timeout: time limit of one attempt.
        delays: the delay before each retry; their number is the number of retries. Those of a backoff are
            ``backoff.delays(6)``.
        repeat_last: True to continue with the last delay without end.
        strategy: the treatment of a retry that does not fit before the next planned refresh: a `Strategy`, its value,
            or a function that returns one of them for each retry: ``function(retry_at, planned_at, failures)`` with the
            time of the retry, the next planned refresh, and the failed attempts in this cycle, from 1. It is pure: it
            reads no clock and draws no random numbers. A policy that is stored, as that of ``@app.refresh``, takes the
            name of a function that `Strategy.register` has registered. A function that raises is a reason to give up.
            After construction the field is a `Strategy` or a `FunctionStrategy`.
        on_exhausted: what happens when all retries are used: an `Exhausted`, or its value. By default the refresh waits
            for the next planned one if ``give_up_after`` limits the time and there is a schedule, and gives up
            otherwise. After construction the field is never None.
        give_up_after: how long it may fail; None means no limit.
        give_up_since: the instant from which that is counted, a `GiveUpSince` or its value: by default the first start
            that failed.
        catch_up: how late a planned refresh may start; None means without limit, once.
        jitter: maximum random delay of planned refreshes, those that are late included.
        on_give_up: the actions when it is given up.

    Raises:
        ScheduleError: a span is negative or longer than a hundred years, a strategy or an ending is not known, or the
            parts contradict each other.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            schedule: Schedule | str | None = ...,
            timeout: Duration = ...,
            delays: Iterable[Duration] = ...,
            repeat_last: bool = ...,
            strategy: options.Strategy | options.FunctionStrategy | options.StrategyFunction | str = ...,
            on_exhausted: options.Exhausted | str | None = ...,
            give_up_after: Duration | None = ...,
            give_up_since: options.GiveUpSince | str = ...,
            catch_up: Duration | None = ...,
            jitter: Duration = ...,
            on_give_up: Sequence[options.Action] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        self._read_spans()
        self._check_types()
        force_setattr(self, "strategy", options.read_strategy(self.strategy))
        force_setattr(self, "give_up_since", member(options.GiveUpSince, "give_up_since", self.give_up_since))
        ending = options.usual_ending(self) if self.on_exhausted is None else self.on_exhausted
        force_setattr(self, "on_exhausted", member(options.Exhausted, "on_exhausted", ending))
        if self.timeout <= _NONE:
            raise ScheduleError(f"timeout={self.timeout}: the timeout must be positive")
        spans = (*self.delays, self.jitter, self.catch_up or _NONE)
        if any(each < _NONE for each in spans):
            raise ScheduleError(f"a span of time is negative: {min(spans)}")
        longest = max(*spans, self.timeout, self.give_up_after or _NONE)
        if longest > options.LONGEST:
            raise ScheduleError(f"a span of time is longer than a hundred years: {longest.days} days")
        if self.give_up_after is not None and self.give_up_after <= _NONE:
            raise ScheduleError(f"give_up_after={self.give_up_after}: the time must be positive")
        if self.give_up_after is None and self.give_up_since is not options.GiveUpSince.FIRST_FAILURE:
            raise ScheduleError(f"give_up_since='{self.give_up_since}' needs a limit that is counted: give_up_after")
        if self.repeat_last and not self.delays:
            raise ScheduleError("repeat_last=True needs a delay to repeat")
        if self.on_exhausted is options.Exhausted.WAIT_NEXT and self.schedule is None:
            raise ScheduleError("on_exhausted='wait_next': there is no scheduled refresh to wait for")
        if self.on_exhausted is options.Exhausted.WAIT_NEXT and self.repeat_last:
            raise ScheduleError("on_exhausted='wait_next': retries that go on for ever are never exhausted")

    def _check_types(self) -> None:
        """Refuse wrong types now, not when the policy is written or stored."""
        if not isinstance(self.repeat_last, bool):
            raise ScheduleError(f"repeat_last={self.repeat_last!r}: write True or False")
        if isinstance(self.schedule, str):
            force_setattr(self, "schedule", _parsed(self.schedule))
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise ScheduleError(f"schedule={self.schedule!r} is not a Schedule; RefreshPolicy.parse reads English")
        actions = self.on_give_up
        if not isinstance(actions, list | tuple) or not all(isinstance(each, options.Action) for each in actions):
            raise ScheduleError(f"on_give_up={actions!r}: write a list of actions, such as [Action('disable')]")
        if len(set(actions)) < len(actions):
            raise ScheduleError(f"on_give_up={actions!r} has an action twice: each is carried out once")
        force_setattr(self, "on_give_up", tuple(actions))

    def _read_spans(self) -> None:
        """Convert spans that are given as seconds or as text."""
        for name in ("timeout", "give_up_after", "catch_up", "jitter"):
            value = getattr(self, name)
            if value is not None or name in {"timeout", "jitter"}:
                force_setattr(self, name, options.read_span(name, value))
        if isinstance(self.delays, str) or not isinstance(self.delays, Iterable):
            raise ScheduleError(
                f"delays={self.delays!r}: write a list of durations, such as ['0s', '5m'], or those of a backoff, such "
                "as Backoff.exponential('1m').delays(6)"
            )
        force_setattr(self, "delays", tuple(options.read_span("delays", each) for each in self.delays))

    def delay(self, failures: int) -> timedelta | None:
        """Return the delay after a number of failed attempts in this cycle, from 1; None if there is no retry."""
        if failures <= len(self.delays):
            return self.delays[failures - 1]
        return self.delays[-1] if self.repeat_last else None

    def lint(self, *, now: datetime | None = None) -> tuple[str, ...]:
        """Return warnings about a policy that is valid but questionable, such as retries that can never fit.

        Args:
            now: the present instant, aware. Without it the end of the schedule and clock changes are not checked.

        Returns:
            Warnings, each a sentence or two, with the figures and a remedy.
        """
        from redrive.schedule.lint import lint

        return lint(self, None if now is None else aware("now", now))

    @classmethod
    def parse(cls, text: str, *, start: datetime | None = None) -> RefreshPolicy:
        """Parse a policy written in English; the reference describes the grammar.

        Args:
            text: sentences, one on each line or separated by semicolons, also as a list.
            start: the start of a schedule that does not name one ("every two weeks"), naive; by default a Monday long
                ago, so that a program means the same after each deployment. For text that a user has typed, pass the
                midnight of the day on which it is saved.

        Raises:
            ScheduleSyntaxError: a part is not understood; the error has the line and the column.
        """
        from redrive.schedule.english import read

        return read.parse(text, cls, start=start)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON-able data, defaults included.

        Returns:
            Data that `from_dict` reads as an equal policy, in every later version too.
        """
        return codec.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RefreshPolicy:
        """Build a policy from the data that `to_dict` returned.

        Raises:
            ScheduleError: a key is missing or unknown, or a value is wrong; the message names the key.
        """
        return codec.from_dict(data, cls)

    def __str__(self) -> str:
        """Return the policy in English; parsing it gives an equal policy."""
        from redrive.schedule.english import write

        return "\n".join(write.sentences(self))


def _parsed(text: str) -> Schedule:
    try:
        return Schedule.parse(text)
    except ScheduleError as error:
        raise ScheduleError(
            f"schedule={text!r} is not a Schedule; RefreshPolicy.parse reads English, and Schedule.parse reads lines "
            f"of iCalendar: {error}"
        ) from error
