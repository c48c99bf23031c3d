"""What a call finds around it: scopes that are in force, and retried calls above.

Both are per task and per thread, and both are needed below: a call must know that retries are switched off, or which
clock to use; that a call above retries already (three layers of three attempts are 27 calls); and how much time is
left. The natural place is a context variable, `SCOPE`, and everything but one thing stands there.

**The exception.** To set and reset a context variable costs 90 ns, as much as a whole decorated call may cost. So the
*first* attempt of a decorated function writes nothing. What it leaves is its frame: the wrapper is on the stack while
its function runs, sync or async (``await`` is a stack too), and holds its plan and the time of its start. Who wants to
know looks up the stack, at 70 ns a frame; that is done by `deadline`, and once in a call that has failed. A coroutine
function's call is written into `SCOPE` as well when its first attempt has failed; from then on it is visible in the
tasks that it starts (a task copies the context, and so does `asyncio.to_thread`).

What follows, said plainly: **other tasks and threads** started in the first attempt of a decorated coroutine function,
or by a decorated sync function, do not see the call above. In them `deadline` finds nothing, and an inner policy
retries by itself. Where a coroutine function of n attempts starts tasks with m attempts, that makes m + n - 1 calls at
most, and never n x m. Where it matters, give the policy a deadline or an ``attempt_timeout``: then the call is in
`SCOPE` from the start, as it is for ``policy.call``, for blocks, and wherever a scope is in force.

A call that has ended is marked so (``live``): a task that outlives the call that started it is nobody's inner call.

**Nested policies.** A call whose policy has ``nested="outer"`` leaves a failure to a call above if that call would
retry this very failure: the policy above is asked (`Call.repeats`). Otherwise the inner call retries by itself. So it
does as well where the policy above cannot be asked here, because its classifier is a coroutine function.

* A call above that has retried, and whose attempts or time are now used up, has done the retrying: the inner call does
  not begin anew. In its first attempt the call above counts with the time that it has left.
* A budget above that is used up does not make the inner call retry, which would evade the budget.
* What the code between the two calls does with the error cannot be known here. If it takes the error, neither call
  retries; then the inner policy needs ``nested="both"``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, Protocol

from redrive.clock import Clock, SystemClock
from redrive.policy import Policy
from redrive.retrying.plan import Plan
from redrive.retrying.rng import roll
from redrive.retrying.wrapper import PLAN, RUN, SIGN, STARTED

__all__ = [
    "SCOPE",
    "SYSTEM",
    "Call",
    "Deadline",
    "Scope",
    "attempt",
    "deadline",
    "disabled",
    "enclosing",
    "override",
    "trial",
    "using",
]

SYSTEM = SystemClock()


class Call(Protocol):
    """A retried call that is being made: `redrive.retrying.run.Run`."""

    plan: Plan
    clock: Clock
    outer: Call | None
    live: bool

    @property
    def name(self) -> str:
        """What is called."""
        ...

    @property
    def number(self) -> int:
        """The number of its present attempt, from 1."""
        ...

    @property
    def ends(self) -> float | None:
        """When its present attempt should have ended, on its clock; None without a bound."""
        ...

    def repeats(self, error: Exception | None, result: object) -> bool:
        """Return True if its policy would retry its present attempt, were this the first failure of the call.

        Args:
            error: what a call below raises; None if that has a result that it rejects.
            result: that result.
        """
        ...


class _First:
    """The first attempt of a call that a compiled wrapper makes: there is no `redrive.retrying.run.Run` yet."""

    __slots__ = ("ends", "plan", "started")
    clock: Clock = SYSTEM
    outer: Call | None = None
    live = True
    number = 1

    def __init__(self, plan: Plan, started: float) -> None:
        self.plan = plan
        self.started = started
        self.ends = None if plan.limit is None else started + plan.limit

    @property
    def name(self) -> str:
        """What is called."""
        return self.plan.name

    def repeats(self, error: Exception | None, result: object) -> bool:
        """See `Call`."""
        return self.plan.repeats(SYSTEM.now(), SYSTEM.monotonic() - self.started, error, result)


class Signed(Call, Protocol):
    """A call that may have left a sign on the stack."""

    has_sign: bool
    """Whether the first wrapper on the stack is this call's own."""


class Scope:
    """What is in force. This one is nothing; `with_` makes others.

    A call that is being made where nothing is in force stands in `SCOPE` itself (`redrive.retrying.run.Run` is a
    scope, too): to make another object for it took as long as to decide on a retry.

    Attributes:
        clock: tells the time and waits.
        roll: gives samples from [0, 1).
        off: whether retries are switched off.
        trial: attempts, and whether that is only an upper bound, in a scope for tests: nothing is waited for.
        overrides: policies and what is changed in them, the innermost last.
    """

    __slots__ = ()
    clock: Clock = SYSTEM
    roll: Callable[[], float] = staticmethod(roll)
    off: bool = False
    trial: tuple[int, bool] | None = None
    overrides: tuple[tuple[Policy, dict[str, Any]], ...] = ()

    @property
    def call(self) -> Call | None:
        """The innermost retried call that is known here."""
        return None

    def with_(self, **changes: Any) -> Scope:
        """The same with some attributes changed."""
        return _Changed(self, changes)

    def applied(self, plan: Plan) -> Plan:
        """The plan under the overrides that are in force."""
        changes: dict[str, Any] = {}
        for policy, change in self.overrides:
            if policy == plan.given:
                changes |= change
        if self.trial is not None:
            attempts, capped = self.trial
            own = changes.get("attempts", plan.policy.attempts)
            changes |= {"attempts": min(attempts, own or attempts) if capped else attempts, "rules": ()}
        return plan.changed(changes) if changes else plan


class _Changed(Scope):
    __slots__ = ("call", "clock", "off", "overrides", "roll", "trial")

    def __init__(self, scope: Scope, changes: dict[str, Any]) -> None:
        for name in _Changed.__slots__:
            setattr(self, name, changes[name] if name in changes else getattr(scope, name))


SCOPE: ContextVar[Scope | None] = ContextVar("redrive", default=None)
"""What is in force here; None where nothing is, which is nearly always."""

_NOTHING = Scope()


@contextmanager
def _in_force(**changes: Any) -> Iterator[None]:
    token: Token[Scope | None] = SCOPE.set((SCOPE.get() or _NOTHING).with_(**changes))
    try:
        yield
    finally:
        SCOPE.reset(token)


def disabled() -> AbstractContextManager[None]:
    """Switch retries off inside a ``with`` block, here and in tasks started there: each call is a plain call.

    Nothing of a policy applies then, no deadline and no timeout either.
    """
    return _in_force(off=True)


def override(policy: Policy, changes: dict[str, Any]) -> AbstractContextManager[None]:
    """See `redrive.policy.Policy.override`."""
    policy.with_(**changes)  # raises here, not in a call far below
    return _in_force(overrides=(*(SCOPE.get() or _NOTHING).overrides, (policy, changes)))


def trial(attempts: int = 1, *, cap: bool = False) -> AbstractContextManager[None]:
    """Make calls fit for tests inside a ``with`` block, here and in tasks started there: nothing is waited for.

    Args:
        attempts: how many every policy makes; rules with other numbers are left out.
        cap: the number is an upper bound: policies with fewer attempts keep theirs.

    Raises:
        PolicyValueError: ``attempts`` is less than 1.
    """
    Policy(attempts=attempts)  # raises here, not in a call far below
    return _in_force(trial=(attempts, cap))


def using(*, clock: Clock | None = None, sample: float | None = None) -> AbstractContextManager[None]:
    """Use another clock or loaded dice inside a ``with`` block, here and in tasks started there.

    Args:
        clock: tells the time and waits, in place of the system's.
        sample: what the dice show, from [0, 1).
    """
    changes: dict[str, Any] = {} if clock is None else {"clock": clock}
    if sample is not None:
        changes["roll"] = lambda: sample
    return _in_force(**changes)


class Deadline:
    """When the call around this code should have ended.

    Attributes:
        at: the instant, aware.
    """

    __slots__ = ("_clock", "_ends", "at")

    def __init__(self, clock: Clock, ends: float) -> None:
        self._clock = clock
        self._ends = ends
        self.at: datetime = clock.now() + timedelta(seconds=ends - clock.monotonic())

    @property
    def remaining(self) -> float:
        """Seconds left, not below 0: fit for the ``timeout=`` of most clients."""
        return max(0.0, self._ends - self._clock.monotonic())

    def __repr__(self) -> str:
        return f"Deadline(at={self.at.isoformat()}, remaining={self.remaining:.3f})"


def deadline() -> Deadline | None:
    """The deadline of the innermost retried call around this code; None if none has one.

    An attempt's timeout is part of it, and an outer deadline that comes earlier wins. It lets an adapter set the
    timeout of a request without an argument for it; see the top of this module for where it can be read.
    """
    bounds = [(call.clock, call.ends) for call in _published(SCOPE.get() or _NOTHING)]
    frame: FrameType | None = _here()
    while frame is not None:
        seen = _read(frame) if frame.f_globals is SIGN else None
        if seen is not None:
            bounds.append((seen.clock, seen.ends))
        frame = frame.f_back
    found = [Deadline(clock, ends) for clock, ends in bounds if ends is not None]
    return min(found, key=lambda each: each.remaining, default=None)


def attempt() -> int:
    """The number of the present attempt of the innermost retried call around this code; 1 if there is none."""
    published = next(_published(SCOPE.get() or _NOTHING), None)
    frame: FrameType | None = _here()
    while frame is not None:
        if frame.f_globals is SIGN and _read(frame) is not None:
            run = frame.f_locals.get(RUN)
            # A wrapper that makes its attempts itself began where nothing was published, so that whatever is now lies
            # further in. A generator knows the call that it began under.
            if published is None or (run is not None and run.outer is published):
                return 1 if run is None else int(run.number)
            break
        frame = frame.f_back
    return 1 if published is None else published.number


def enclosing(own: Signed | None, error: BaseException | None) -> tuple[Call, ...]:
    """Return the calls around this one that retry at all.

    Args:
        own: this call, which may be in `SCOPE`; None for code that is no such call itself.
        error: what it has just caught, if anything: its traceback begins with the frame that caught it, so that the
            frames of the loop itself need not be looked at.
    """
    found: tuple[Call, ...] = ()
    scope = SCOPE.get()
    if scope is not None:
        found = tuple([call for call in _published(scope) if call is not own and call.plan.retries])
    skip = own is not None and own.has_sign
    traceback = None if error is None else error.__traceback__
    frame: FrameType | None
    if traceback is None:
        frame = _here()
    elif skip:
        frame, skip = traceback.tb_frame.f_back, False
    else:
        frame = traceback.tb_frame
    sign = SIGN
    while frame is not None:  # spelt out for speed: each call that has failed once comes here
        if frame.f_globals is sign:
            if skip:
                skip = False
            elif (seen := _read(frame)) is not None and seen.plan.retries:
                found = (*found, seen)
        frame = frame.f_back
    return found


_here = sys._getframe  # noqa: SLF001 - public in CPython and PyPy, in spite of its name


def _published(scope: Scope) -> Iterator[Call]:
    """The calls that are being made, as far as the scope knows, the innermost first."""
    call = scope.call
    while call is not None:
        if call.live:
            yield call
        call = call.outer


def _read(frame: FrameType) -> Call | None:
    """The call that a wrapper makes; None if it is written in `SCOPE`, or no call any more."""
    names = frame.f_locals
    plan, started, run = names[PLAN], names.get(STARTED), names.get(RUN)
    if plan is None or started is None:
        return None
    call: Call = _First(plan, started) if run is None else run
    return call
