"""Schedules of delays: the wait before retry 1, 2, 3, ...

A backoff is a pure function from the number of the retry to seconds, or to None after its last retry. Schedules can be
combined (``a & b``, ``a | b``, ``a >> b``, ``a + b``, ``.take(n)``, ``.up_to(t)``, ``.cap(t)``, ``.floor(t)``); see
`redrive.policy.compose`. All arithmetic saturates: no number of retries overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import copy_context
from datetime import timedelta
from math import exp, isfinite
from typing import ClassVar, TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy.classify import refuse_coroutine_function
from redrive.policy.duration import LONGEST, Duration, seconds
from redrive.policy.value import Value, freeze
from redrive.seams import composed_schedules

__all__ = ["KINDS", "NEVER_MORE", "Backoff", "BackoffFunction", "Called", "delay_from", "function_named", "schedule_of"]

#: The delay at which schedules saturate, in seconds.
NEVER_MORE = LONGEST.total_seconds()

BackoffFunction: TypeAlias = Callable[[int], float | timedelta]
"""Returns the delay before a retry, given its number from 1; a number means seconds."""

#: Each kind of schedule by the name under which it is stored.
KINDS: dict[str, type[Backoff]] = {}


class Backoff(Value):
    """A schedule of delays. Build one with the static methods."""

    kind: ClassVar[str] = ""
    #: True if the schedule draws its delays by itself, so that no jitter is added.
    draws: ClassVar[bool] = False
    #: True if the delays can be computed before they are needed: no function of the user takes part.
    is_fixed: ClassVar[bool] = False
    #: True if a schedule that `draws` needs its sample before; then the history of a call keeps it.
    remembers: ClassVar[bool] = False

    def __init__(self, *args: object, **options: object) -> None:
        if args or options:
            raise PolicyValueError(
                f'{type(self).__name__}() takes no arguments: write Backoff.exponential("1s", "10m"), or another of '
                "its methods"
            )

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__ and KINDS.setdefault(cls.kind, cls) is not cls:
            raise PolicyValueError(f"the kind {cls.kind!r} of backoff is taken by {KINDS[cls.kind].__name__}")

    def delay(self, retry: int) -> float | None:
        """Return the nominal delay before this retry (from 1), in seconds; None if there are no more retries."""
        raise NotImplementedError

    def lowest(self, retry: int) -> float:  # noqa: ARG002 - the floor of a composed schedule depends on it
        """Return the lower bound of jitter, in seconds."""
        return 0.0

    def draw(self, retry: int, previous: float | None, sample: float, before: float | None = None) -> float:
        """Return the delay of a schedule that `draws`, in seconds; ``sample`` is a random number from [0, 1)."""
        raise NotImplementedError

    @property
    def longest(self) -> float | None:
        """The longest delay of a schedule that `draws`, in seconds; None if unbounded or unknown."""
        return None

    @property
    def envelope(self) -> Backoff:
        """The nominal delays as a schedule that can be combined."""
        return _make("envelope", self) if self.draws else self

    @property
    def length(self) -> int | None:
        """The number of retries of the schedule; None if it never ends."""
        return None

    def delays(self, n: int) -> list[float]:
        """Return the nominal delays before retries 1 to n, in seconds; fewer if the schedule ends."""
        out: list[float] = []
        for retry in range(1, n + 1):
            delay = self.delay(retry)
            if delay is None:
                break
            out.append(delay)
        return out

    # --- kinds

    @staticmethod
    def constant(delay: Duration) -> Backoff:
        """Return a schedule with one delay."""
        return _make("constant", delay)

    @staticmethod
    def exponential(initial: Duration, maximum: Duration | None = None, factor: float = 2) -> Backoff:
        """Return a schedule of ``initial``, then each time ``factor`` times as long, never longer than ``maximum``."""
        return _make("exponential", initial, maximum, factor)

    @staticmethod
    def listed(delays: Iterable[Duration], *, end: str = "repeat") -> Backoff:
        """Return a schedule of these delays; then the last one repeats (``end="repeat"``), or it ends (``"stop"``)."""
        return _make("listed", delays, end=end)

    @staticmethod
    def linear(initial: Duration, step: Duration, maximum: Duration | None = None) -> Backoff:
        """Return a schedule of ``initial``, then each time ``step`` longer, never longer than ``maximum``."""
        return _make("linear", initial, step, maximum)

    @staticmethod
    def decorrelated(initial: Duration, maximum: Duration) -> Backoff:
        """Return a schedule that draws between ``initial`` and three times the previous delay, at most ``maximum``."""
        return _make("decorrelated", initial, maximum)

    @staticmethod
    def smooth(initial: Duration, maximum: Duration | None = None) -> Backoff:
        """Return a schedule that spreads the retries of many clients evenly, about twice as far apart each time.

        Args:
            initial: about the middle of the first delay, which is drawn between 0 and 1.4 times ``initial``.
            maximum: the longest delay.
        """
        return _make("smooth", initial, maximum)

    @staticmethod
    def filling(window: Duration, attempts: int, factor: float = 2) -> Backoff:
        """Return an exponential schedule for this many attempts with delays that add up to a window (as in opnieuw).

        Args:
            window: the sum of the delays, without attempts and jitter.
            attempts: executions, the first included, as in the policy; with 1 the first delay is the whole window.
            factor: the ratio of a delay to the one before.

        Raises:
            PolicyValueError: attempts is not a number of executions, or so large that the first delay would be zero.
        """
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise PolicyValueError(f"attempts={attempts!r}: a whole number from 1 up, the first execution included")
        whole = seconds(window)
        check_factor(factor)
        try:
            initial = whole / sum([factor**retry for retry in range(max(1, attempts - 1))])
        except OverflowError:
            initial = 0.0
        if whole and not initial:
            raise PolicyValueError(f"with {attempts} attempts and factor={factor!r} the first delay would be nothing")
        return _make("exponential", initial, None, factor)

    @staticmethod
    def named(name: str, **options: float) -> Backoff:
        """Return a schedule from a registered function: ``fibonacci(base)``, ``decay(initial, rate)``, or a user's.

        Raises:
            PolicyValueError: the function does not exist, or it does not take these options.
        """
        return _make("named", name, options)

    @staticmethod
    def register(name: str, function: Callable[..., float], *, draws: bool = False) -> None:
        """Register a function under a name for the whole process, so that policies that use it can be stored.

        Args:
            name: the name for `named`.
            function: ``function(retry, **options) -> seconds``, pure.
            draws: the function draws its delays: ``function(retry, previous, sample, **options)`` with the previous
                delay in seconds or None, and a random number from [0, 1). Then no jitter is added, and the nominal
                delay is the result for a previous delay of None and a sample of 1.

        Raises:
            PolicyValueError: the name is taken by another function, or is no text, or there is no function.
        """
        if not isinstance(name, str) or not name or not callable(function):
            raise PolicyValueError(f"register({name!r}, {function!r}): give a name, which is a text, and a function")
        if _FUNCTIONS.setdefault(name, (function, draws)) != (function, draws):
            raise PolicyValueError(f"another backoff function is already registered as {name!r}")

    @staticmethod
    def calling(function: BackoffFunction) -> Backoff:
        """Return a schedule from a function, which can be combined with others; ``backoff=function`` stands for it.

        A policy with it is for calls in this process. For jobs, which store their policy, use `register` and `named`.

        Args:
            function: ``function(retry) -> seconds``, or a ``timedelta``, with the number of the retry, from 1. It is
                pure: it reads no clock and draws no random numbers.

        Raises:
            PolicyValueError: it is no function, or a coroutine function, or returns no delay for the first retry.
        """
        return Called(function)

    # --- operators; see `redrive.policy.compose`

    def __and__(self, other: Backoff) -> Backoff:
        """End as soon as one schedule ends, and wait the longer delay."""
        return _make("and", self, other)

    def __or__(self, other: Backoff) -> Backoff:
        """End when both schedules have ended, and wait the shorter delay."""
        return _make("or", self, other)

    def __rshift__(self, other: Backoff) -> Backoff:
        """Follow this schedule; when it has ended, the other from its beginning."""
        return _make("then", self, other)

    def __add__(self, other: Backoff) -> Backoff:
        """End as soon as one schedule ends, and wait the sum of both delays."""
        return _make("sum", self, other)

    def take(self, n: int) -> Backoff:
        """End after ``n`` retries."""
        return _make("take", self, n)

    def up_to(self, total: Duration, *, end: str = "below") -> Backoff:
        """End before the sum of the nominal delays reaches a limit; see `redrive.policy.compose.UpTo`."""
        return _make("up_to", self, total, end=end)

    def cap(self, maximum: Duration) -> Backoff:
        """Limit each delay to ``maximum``; the end stays where it is."""
        return _make("cap", self, maximum)

    def floor(self, minimum: Duration) -> Backoff:
        """Raise each delay to at least ``minimum``, jitter included."""
        return _make("floor", self, minimum)

    def give_up_over(self, maximum: Duration) -> Backoff:
        """End at the first delay longer than ``maximum``."""
        return _make("give_up_over", self, maximum)


class Called(Backoff):
    """A function of the user, which has no name under which it could be stored; see `Backoff.calling`."""

    function: BackoffFunction

    def __init__(self, function: BackoffFunction) -> None:
        if not callable(function) or isinstance(function, type):
            raise PolicyValueError(f"Backoff.calling({function!r}): give a function")
        refuse_coroutine_function(function, "backoff")
        freeze(self, "function", function)
        # What cannot be called must fail here, not after the first failure.
        self.delay(1)

    @property
    def label(self) -> str:
        """The name of the function, for messages."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    def delay(self, retry: int) -> float:
        """See `Backoff.delay`."""
        try:
            value = copy_context().run(self.function, retry)
        except OverflowError:
            return NEVER_MORE
        except Exception as error:
            raise PolicyValueError(
                f"the backoff function {self.label} raised {type(error).__name__} for retry {retry}: {error}"
            ) from error
        return delay_from(value, self.label, retry)


def delay_from(value: object, name: str, retry: int) -> float:
    """Return the result of a backoff function in seconds; raise `PolicyValueError` if it is no delay."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise PolicyValueError(
            f"the backoff function {name!r} gave {value!r} for retry {retry}, which is no delay: it returns seconds, "
            "zero or more, or a timedelta"
        )
    return min(float(value), NEVER_MORE)


def schedule_of(value: object, field: str) -> Backoff:
    """Return a backoff, or a function as one."""
    if isinstance(value, Backoff):
        return value
    if callable(value) and not isinstance(value, type):
        return Called(value)
    raise PolicyValueError(
        f"{field}={value!r} is not a Backoff: build one with Backoff.exponential(...) or its like, or give a function "
        "that returns the seconds before retry 1, 2, 3, ..."
    )


def check_factor(factor: object) -> None:
    """Raise `PolicyValueError` unless a backoff can grow by this factor."""
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not isfinite(factor) or factor < 1:
        raise PolicyValueError(f"factor={factor!r}: a backoff grows by a finite factor of at least 1")


def _make(kind: str, *args: object, **options: object) -> Backoff:
    make: Callable[..., Backoff] = KINDS.get(kind) or composed_schedules()[kind]
    return make(*args, **options)


def _fibonacci(retry: int, base: float = 1.0) -> float:
    a, b = 1, 1
    for _ in range(min(retry, _FIBONACCI_END) - 1):
        a, b = b, a + b
    return base * a


def _decay(retry: int, initial: float = 1.0, rate: float = 1.0) -> float:
    return initial * exp(-rate * (retry - 1))


# Beyond it every sensible base has saturated.
_FIBONACCI_END = 100
_FUNCTIONS: dict[str, tuple[Callable[..., float], bool]] = {"fibonacci": (_fibonacci, False), "decay": (_decay, False)}


def function_named(name: str) -> tuple[Callable[..., float], bool]:
    """Return a registered function, and True if it draws its delays."""
    if name not in _FUNCTIONS:
        raise PolicyValueError(f"no backoff function {name!r} is registered; there are {', '.join(sorted(_FUNCTIONS))}")
    return _FUNCTIONS[name]
