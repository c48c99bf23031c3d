"""The fields of refresh policies, with their enumerations and actions. PURE."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from redrive.errors import PolicyError, ScheduleError
from redrive.policy.duration import Duration, parse_duration
from redrive.schedule.schedule import Schedule

# A hundred years: a longer span is a typing error, and sums of such spans leave the calendar.
LONGEST = timedelta(days=36_525)


def read_span(name: str, value: Duration) -> timedelta:
    """Return a span given as a ``timedelta``, as seconds or as text such as ``"1h30m"``; it may be negative.

    Raises:
        ScheduleError: the value is not a span.
    """
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(value)
    except PolicyError as error:
        raise ScheduleError(f"{name}: {error}") from error


class Strategy(StrEnum):
    """The treatment of a retry that does not fit before the next planned refresh."""

    ALIGN = "retry_align_planned"
    """The planned refresh serves as the retry: the schedule is kept, and attempts are counted on."""

    UNTIL_SUCCESS = "retry_until_success"
    """The retry starts when it is due; planned refreshes that it passes are skipped."""

    UNTIL_PLANNED = "retry_until_planned"
    """The retry is skipped: the planned refresh counts its attempts from 1."""

    WHICHEVER_FIRST = "whichever_first"
    """The earlier of both starts, whether it fits or not."""

    PLANNED_ONLY = "planned_only"
    """Planned refreshes serve as the retries, even if a retry would fit between them."""


class Exhausted(StrEnum):
    """What happens when all retries of a refresh are used."""

    GIVE_UP = "give_up"
    WAIT_NEXT = "wait_next"
    """The refresh waits for the next planned one, which counts its attempts from 1."""


class Action(msgspec.Struct, frozen=True, gc=False):
    """An action that a policy asks for when it gives up; the application carries it out.

    Attributes:
        name: ``disable``, ``email``, ``mark``, ``notify``, ``panic``.
        to: the recipient, or what to mark.

    Raises:
        ScheduleError: the action is unknown, or a field is missing.
    """

    name: str
    to: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.name not in {"disable", "email", "mark", "notify", "panic"}:
            raise ScheduleError(f"there is no action {self.name!r}; actions: disable, email, mark, notify, panic")
        for field, value in (("to", self.to), ("text", self.text)):
            if value is not None and not _is_text(value):
                raise ScheduleError(f"{self.name}: {field}={value!r} is not a text that can be stored")
        if self.name in {"email", "notify", "mark"} and not self.to:
            raise ScheduleError(f"{self.name} needs a recipient: pass to=")
        if self.name in {"disable", "panic"} and (self.to is not None or self.text is not None):
            raise ScheduleError(f"{self.name} takes neither to= nor text=: it sends no message")
        if self.name == "mark" and not self.text:
            raise ScheduleError(f"mark needs a text for {self.to}: pass text=")


def _is_text(value: object) -> bool:
    """Return True for a text without lone surrogates, which UTF-8 cannot encode."""
    return isinstance(value, str) and value == value.encode("utf-8", "replace").decode()


class PolicyFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `redrive.schedule.RefreshPolicy`, which describes them, for the modules that it imports itself."""

    schedule: Schedule | None = None
    timeout: timedelta = timedelta(minutes=10)
    delays: tuple[timedelta, ...] = ()
    repeat_last: bool = False
    strategy: Strategy = Strategy.ALIGN
    on_exhausted: Exhausted | None = None
    give_up_after: timedelta | None = None
    catch_up: timedelta | None = None
    jitter: timedelta = timedelta(0)
    on_give_up: tuple[Action, ...] = ()


def usual_ending(policy: PolicyFields) -> Exhausted:
    """Return the default of ``on_exhausted``: a policy with a time limit and a schedule goes on until that limit."""
    is_limited = policy.give_up_after is not None and policy.schedule is not None and not policy.repeat_last
    return Exhausted.WAIT_NEXT if is_limited else Exhausted.GIVE_UP
