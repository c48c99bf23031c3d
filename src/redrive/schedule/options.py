"""The fields of refresh policies, with their enumerations and actions. PURE."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from redrive.errors import PolicyError, ScheduleError
from redrive.policy.classify import is_coroutine_function
from redrive.policy.duration import Duration, parse_duration
from redrive.schedule.schedule import Schedule

# A hundred years: a longer span is a typing error, and sums of such spans leave the calendar.
LONGEST = timedelta(days=36_525)

# Characters of a text of the user in a message.
_SHOWN = 200


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

    @staticmethod
    def register(name: str, function: StrategyFunction) -> None:
        """Register a function under a name for the whole process, so that policies that use it can be stored.

        ``RefreshPolicy(strategy=name)`` refers to it. Register it in the module of the app: a process without the
        function cannot read the policy.

        Args:
            name: the name, which is not that of a strategy.
            function: as for `redrive.schedule.RefreshPolicy`.

        Raises:
            ScheduleError: the name is taken or is no text, or the function cannot be called as a strategy.
        """
        if not _is_text(name) or not name:
            raise ScheduleError(f"Strategy.register({name!r}, ...): the name is a text that can be stored")
        if name in {*Strategy} or _REGISTERED.get(name, function) != function:
            raise ScheduleError(f"Strategy.register({name!r}, ...): the name is taken by another strategy")
        _REGISTERED[name] = FunctionStrategy(function, name).function


StrategyFunction: TypeAlias = Callable[[datetime, datetime, int], Strategy | str]
"""Returns the strategy for one retry, given its time, the next planned refresh, and the failures in this cycle."""

_REGISTERED: dict[str, StrategyFunction] = {}


class FunctionStrategy(msgspec.Struct, frozen=True):
    """A strategy that a function of the user chooses for each retry anew.

    Attributes:
        name: under which the function is registered; None if it is not, and then the policy cannot be stored.

    Raises:
        ScheduleError: the function is a coroutine function, or cannot be called as a strategy.
    """

    function: StrategyFunction
    name: str | None = None

    def __post_init__(self) -> None:
        if is_coroutine_function(self.function):
            raise ScheduleError(f"strategy={self.label} is a coroutine function, which cannot be awaited here: use def")
        # What cannot be called must fail here, not after the first failure.
        noon = datetime(2000, 1, 1, 12, tzinfo=UTC)
        self.choose(noon, noon + timedelta(hours=1), 1)

    @property
    def label(self) -> str:
        """The name, or that of the function, for messages."""
        return self.name or getattr(self.function, "__qualname__", None) or type(self.function).__name__

    # The message becomes the reason for which an item is given up, so it has no character that cannot be stored.
    def choose(self, retry_at: datetime, planned_at: datetime, failures: int) -> Strategy:
        """Call the function; raise `ScheduleError` if it raises, or if its result is no strategy."""
        try:
            # A worker calls it in the transaction that moves several items.
            chosen = copy_context().run(self.function, retry_at, planned_at, failures)
        except Exception as error:
            raise ScheduleError(
                f"the strategy function {self.label} raised {type(error).__name__} for failure {failures}: "
                f"{str(error)[:_SHOWN]!r}"
            ) from error
        if isinstance(chosen, str) and chosen in {*Strategy}:
            return Strategy(chosen)
        shown = repr(chosen[:_SHOWN]) if isinstance(chosen, str) else f"a value of the type {type(chosen).__name__}"
        raise ScheduleError(
            f"the strategy function {self.label} gave {shown} for failure {failures}, which is no strategy: it returns "
            f"{', '.join(Strategy)}"
        )


def read_strategy(value: object) -> Strategy | FunctionStrategy:
    """Return a strategy given as itself, as its text, as the name of a registered function, or as a function.

    Raises:
        ScheduleError: the value is none of them.
    """
    if isinstance(value, Strategy | FunctionStrategy):
        return value
    if isinstance(value, str) and value in {*Strategy}:
        return Strategy(value)
    if isinstance(value, str) and value in _REGISTERED:
        return FunctionStrategy(_REGISTERED[value], value)
    if callable(value) and not isinstance(value, type):
        return FunctionStrategy(value)
    raise ScheduleError(
        f"strategy is {', '.join(repr(str(each)) for each in (*Strategy, *sorted(_REGISTERED)))}, or a function of "
        f"(retry_at, planned_at, failures) that returns one of the first five, not {value!r}; "
        "Strategy.register(name, function) gives a function the name that a stored policy needs"
    )


class Exhausted(StrEnum):
    """What happens when all retries of a refresh are used."""

    GIVE_UP = "give_up"
    WAIT_NEXT = "wait_next"
    """The refresh waits for the next planned one, which counts its attempts from 1."""


class GiveUpSince(StrEnum):
    """The instant from which ``give_up_after`` counts, once an attempt has failed."""

    FIRST_FAILURE = "first_failure"
    """The start of the first attempt that failed since the last success."""

    LAST_SUCCESS = "last_success"
    """The end of the last attempt that succeeded.

    It is that of the first failure until an attempt has succeeded under such a policy, and after an update.
    """


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
    strategy: Strategy | FunctionStrategy = Strategy.ALIGN
    on_exhausted: Exhausted | None = None
    give_up_after: timedelta | None = None
    give_up_since: GiveUpSince = GiveUpSince.FIRST_FAILURE
    catch_up: timedelta | None = None
    jitter: timedelta = timedelta(0)
    on_give_up: tuple[Action, ...] = ()


def usual_ending(policy: PolicyFields) -> Exhausted:
    """Return the default of ``on_exhausted``: a policy with a time limit and a schedule goes on until that limit."""
    is_limited = policy.give_up_after is not None and policy.schedule is not None and not policy.repeat_last
    return Exhausted.WAIT_NEXT if is_limited else Exhausted.GIVE_UP
