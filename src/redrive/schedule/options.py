"""The words in which a refresh policy is said."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from redrive.errors import PolicyError, ScheduleError
from redrive.policy.duration import Duration, parse_duration
from redrive.schedule.schedule import Schedule

__all__ = ["LONGEST", "Action", "Exhausted", "PolicyFields", "Strategy", "read_span", "usual_ending"]

LONGEST = timedelta(days=36_525)
"""A hundred years: whoever says a longer span has mistyped it, and sums of such spans leave the calendar."""


def read_span(name: str, value: Duration) -> timedelta:
    """Read a span of time.

    Args:
        name: of the argument, for the message.
        value: a ``timedelta``, seconds as a number, or text such as ``"1h30m"``.

    Returns:
        The span; a negative ``timedelta`` is left to the caller.

    Raises:
        ScheduleError: it is none.
    """
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(value)
    except PolicyError as error:
        raise ScheduleError(f"{name}: {error}") from error


class Strategy(StrEnum):
    """What becomes of a retry that does not fit before the next planned refresh."""

    ALIGN = "retry_align_planned"
    """The planned refresh is the retry: the schedule is kept, and attempts are counted on."""

    UNTIL_SUCCESS = "retry_until_success"
    """It is made when it is due; planned refreshes that it passes are left out."""

    UNTIL_PLANNED = "retry_until_planned"
    """It is left out: the planned refresh counts its attempts from the first."""

    WHICHEVER_FIRST = "whichever_first"
    """The earlier of both, whether it fits or not."""

    PLANNED_ONLY = "planned_only"
    """There are no retries between planned refreshes; these are the retries, also if one would fit."""


class Exhausted(StrEnum):
    """What becomes of a refresh whose retries are all used up."""

    GIVE_UP = "give_up"
    WAIT_NEXT = "wait_next"
    """It waits for the next planned refresh, which counts its attempts from the first."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy wants done when it gives up. redrive hands it on; what it means is the user's affair.

    Attributes:
        name: ``disable``, ``email``, ``mark``, ``panic``.
        to: whom to write to, or what to mark.
        text: what to say.

    Raises:
        ScheduleError: of this name there is no action, or something is missing.
    """

    name: str
    to: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.name not in {"disable", "email", "mark", "notify", "panic"}:
            raise ScheduleError(f"there is no action {self.name!r}; actions: disable, email, mark, notify, panic")
        for field, value in (("to", self.to), ("text", self.text)):
            if value is not None and not _is_text(value):
                raise ScheduleError(f"{self.name}: {field}={value!r} is no text that can be stored")
        if self.name in {"email", "notify", "mark"} and not self.to:
            raise ScheduleError(f"{self.name} whom? Say to=")
        if self.name in {"disable", "panic"} and (self.to is not None or self.text is not None):
            raise ScheduleError(f"{self.name} takes neither to= nor text=: nobody is written to")
        if self.name == "mark" and not self.text:
            raise ScheduleError(f"mark {self.to} with what? Say text=")


def _is_text(value: object) -> bool:
    """Return whether a value is a text without half surrogate pairs, which UTF-8 does not have."""
    return isinstance(value, str) and value == value.encode("utf-8", "replace").decode()


class PolicyFields(Protocol):
    """What a refresh policy says. `redrive.schedule.RefreshPolicy` does; this is for what it is itself made of."""

    @property
    def schedule(self) -> Schedule | None:
        """The planned refreshes."""
        ...

    @property
    def timeout(self) -> timedelta:
        """How long one attempt may take."""
        ...

    @property
    def delays(self) -> tuple[timedelta, ...]:
        """Before each retry."""
        ...

    @property
    def repeat_last(self) -> bool:
        """Whether the last delay is repeated for ever."""
        ...

    @property
    def strategy(self) -> Strategy:
        """What becomes of a retry that does not fit."""
        ...

    @property
    def on_exhausted(self) -> Exhausted | None:
        """What becomes of it when all retries are used up."""
        ...

    @property
    def give_up_after(self) -> timedelta | None:
        """How long it may go on failing."""
        ...

    @property
    def catch_up(self) -> timedelta | None:
        """How late a planned refresh may be started."""
        ...

    @property
    def jitter(self) -> timedelta:
        """Over how long planned refreshes are spread."""
        ...

    @property
    def on_give_up(self) -> tuple[Action, ...]:
        """What is wanted done then."""
        ...


def usual_ending(policy: PolicyFields) -> Exhausted:
    """Return what becomes of a refresh whose retries are used up if its policy does not name it.

    A limit in time is the end that its author has chosen: until then it waits for the next planned refresh after the
    last retry.

    Args:
        policy: its schedule and its limits count.
    """
    is_limited = policy.give_up_after is not None and policy.schedule is not None and not policy.repeat_last
    return Exhausted.WAIT_NEXT if is_limited else Exhausted.GIVE_UP
