"""The scope of a call: what is in force around it, and the retried calls that enclose it.

Both are per task and per thread. A call reads whether retries are switched off, which clock to use, how much time
is left, and whether an enclosing call retries already (three layers of three attempts are 27 calls). All of this stands
in the context variable `SCOPE`, with the exception that is described there.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

from redrive.clock import Clock, SystemClock
from redrive.errors import PolicyValueError
from redrive.policy import Policy
from redrive.retrying.rng import roll
from redrive.retrying.wrapper import MARK, PLAN, STARTED, STATE

if TYPE_CHECKING:
    from redrive.retrying.plan import Plan

SYSTEM = SystemClock()


# Nested policies. A call with `nested="outer"` leaves a failure to an enclosing call if the policy of that call would
# retry it (`Call.repeats`). Otherwise the inner call retries by itself, also where the classifier of the outer policy
# is a coroutine function, which cannot be awaited here.
#
# * An enclosing call that has used up its attempts or its time has done the retrying: the inner call does not begin
#   again. In its first attempt the enclosing call counts with the time that it has left.
# * An enclosing budget that is used up does not make the inner call retry, since that would evade the budget.
# * If the code between the two calls catches the error, neither call retries; then the inner policy needs
#   `nested="both"`.
# * A call encloses what runs on its stack. In another task or thread an inner call retries by itself, whether the
#   enclosing one is in `SCOPE` there or not, and the enclosing call counts the attempts of an inner one that has given
#   up as its own (`redrive.retrying.record.spent_since`), so that they add up to those of one layer. It knows them by a
#   mark on the error, or on the response that a transport has returned instead.
# * A job encloses what runs in the context of its attempt, also in other tasks and threads (`JOB`).
class Call(Protocol):
    """A retried call in progress; `redrive.retrying.state.CallState` is one."""

    plan: Plan
    clock: Clock
    outer: Call | None
    live: bool
    #: True if it encloses the tasks and threads that have its context; False if only what runs on its stack.
    spans_tasks: bool
    #: The `id` of the frame of a block, whose function has no other mark on the stack; 0 for other calls.
    frame_id: int
    #: The calls that enclose it, where it runs in a task of its own.
    above: tuple[Call | Job, ...]

    @property
    def name(self) -> str:
        """The name of the called function."""
        ...

    @property
    def number(self) -> int:
        """The number of its present attempt, counted from 1."""
        ...

    @property
    def ends(self) -> float | None:
        """The end of its present attempt in seconds on its clock; None without a bound."""
        ...

    def repeats(self, error: Exception | None, result: object) -> bool:
        """Return True if its policy would retry this failure of an inner call as its own first failure.

        The failure is an exception, or a rejected result if ``error`` is None.
        """
        ...


class _FirstAttempt:
    """The first attempt of a compiled wrapper, for which there is no `CallState` yet."""

    __slots__ = ("ends", "plan", "started")
    clock: Clock = SYSTEM
    outer: Call | None = None
    above: tuple[Call | Job, ...] = ()
    live = True
    spans_tasks = False
    frame_id = 0
    number = 1

    def __init__(self, plan: Plan, started: float) -> None:
        self.plan = plan
        self.started = started
        self.ends = None if plan.limit is None else started + plan.limit

    @property
    def name(self) -> str:
        return self.plan.name

    def repeats(self, error: Exception | None, result: object) -> bool:
        return self.plan.repeats(SYSTEM.now(), SYSTEM.monotonic() - self.started, error, result)


class MarkedCall(Call, Protocol):
    """A call that may have a wrapper's frame on the stack."""

    on_stack: bool
    """True if the innermost wrapper on the stack is this call's own."""


class Scope:
    """The settings that are in force; this class is the default, `with_` returns changed ones.

    `CallState` is a scope, too: a call in progress without other settings stands in `SCOPE` itself. Creating another
    object for it takes as long as deciding on a retry.
    """

    __slots__ = ()
    #: Reads the time and waits.
    clock: Clock = SYSTEM
    #: Returns samples from [0, 1).
    roll: Callable[[], float] = staticmethod(roll)
    #: True if retries are switched off.
    off: bool = False
    #: For tests, without waits: the number of attempts, and True if it is only an upper bound.
    trial: tuple[int, bool] | None = None
    #: Policies with the changes of their fields, the innermost last.
    overrides: tuple[tuple[Policy, dict[str, Any]], ...] = ()

    @property
    def call(self) -> Call | None:
        """The innermost retried call in this scope."""
        return None

    def with_(self, **changes: object) -> Scope:
        """Return a copy with some attributes changed."""
        return _Changed(self, changes)

    def applied(self, plan: Plan) -> Plan:
        """Return the plan with the overrides that are in force."""
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


# The present scope; None, which is the common case, if all settings are the defaults.
# The first attempt of a decorated function writes nothing. Setting and resetting a context variable costs 90 ns, as
# much as a decorated call may cost. Instead, the frame of the wrapper is on the stack while its function runs, also
# where that is awaited, and holds the plan and the time of the start. `deadline` and a call that has failed for the
# first time search the stack for such frames, at 70 ns a frame. A coroutine function's call is also written to `SCOPE`
# when its first attempt has failed; from then on the tasks that it starts see it (a task and `asyncio.to_thread` copy
# the context).
#
# Consequence: other tasks and threads that are started in the first attempt of a decorated coroutine function, or by a
# decorated sync function, do not see the enclosing call. In them `deadline` returns None. A policy with a deadline or
# an attempt_timeout stands in `SCOPE` from the start, as do policy.call, blocks, and all calls where a scope is
# in force.
#
# A call that has ended is not live, so that a task that outlives its call has no enclosing call.
SCOPE: ContextVar[Scope | None] = ContextVar("redrive", default=None)

_DEFAULTS = Scope()


def present_clock() -> Clock:
    """Return the clock in force."""
    return (SCOPE.get() or _DEFAULTS).clock


@contextmanager
def _in_force(**changes: object) -> Iterator[None]:
    token: Token[Scope | None] = SCOPE.set((SCOPE.get() or _DEFAULTS).with_(**changes))
    try:
        yield
    finally:
        SCOPE.reset(token)


# Not empty while retries are switched off in the whole process, threads included.
OFF: list[None] = [None] if os.environ.get("REDRIVE_DISABLED", "0").lower() in ("1", "true", "yes", "on") else []


# A first failure and a `Limiter` load these. The child of a fork would wait for a thread of its parent that is loading
# one, and that it does not have.
_LOADED_LATE = (
    *("inspect", "linecache", "random"),
    *("redrive.observe.logs", "redrive.retrying.shared", "redrive.retrying.hedging"),
)


def finish_imports() -> None:
    """Load what calls in other threads may be loading, or wait for them."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        for name in _LOADED_LATE:
            importlib.import_module(name)


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=finish_imports)


def disable() -> None:
    """Switch retries off in the whole process, threads included, until `enable`.

    Each call that begins afterwards is a plain call, without deadline and timeout. The environment variable
    ``REDRIVE_DISABLED=1`` does the same from the start. Jobs are not affected.
    """
    OFF[:] = [None]


def enable() -> None:
    """Switch retries on again after `disable`."""
    OFF.clear()


def disabled() -> AbstractContextManager[None]:
    """Switch retries off inside a ``with`` block, here and in tasks started there.

    Each call is a plain call then, without deadline and timeout.
    """
    return _in_force(off=True)


def override(policy: Policy, changes: dict[str, Any]) -> AbstractContextManager[None]:
    """See `redrive.policy.Policy.override`."""
    # Raise here, not in an inner call.
    policy.with_(**changes)
    return _in_force(overrides=(*(SCOPE.get() or _DEFAULTS).overrides, (policy, changes)))


def trial(attempts: int = 1, *, cap: bool = False) -> AbstractContextManager[None]:
    """Make calls without waits inside a ``with`` block, here and in tasks started there; for tests.

    Args:
        attempts: the attempts of every policy; rules with other numbers are left out.
        cap: treat the number as an upper bound, so that policies with fewer attempts keep theirs.

    Raises:
        PolicyValueError: ``attempts`` is less than 1.
    """
    # Raise here, not in an inner call.
    Policy(attempts=attempts)
    return _in_force(trial=(attempts, cap))


def using(*, clock: Clock | None = None, sample: float | None = None) -> AbstractContextManager[None]:
    """Use another clock or a fixed random sample inside a ``with`` block, here and in tasks started there.

    Args:
        clock: reads the time and waits, in place of the system's.
        sample: the random sample, from [0, 1).
    """
    changes: dict[str, Any] = {} if clock is None else {"clock": clock}
    if sample is not None:
        changes["roll"] = lambda: sample
    return _in_force(**changes)


class Deadline:
    """The end of the time that the enclosing call has."""

    __slots__ = ("_clock", "_ends", "at")

    def __init__(self, clock: Clock, ends: float) -> None:
        self._clock = clock
        self._ends = ends
        #: The instant, aware.
        self.at: datetime = clock.now() + timedelta(seconds=ends - clock.monotonic())

    @property
    def remaining(self) -> float:
        """Seconds left, not below 0, as most clients take them for ``timeout=``."""
        return max(0.0, self._ends - self._clock.monotonic())

    def __repr__(self) -> str:
        return f"Deadline(at={self.at.isoformat()}, remaining={self.remaining:.3f})"


def deadline() -> Deadline | None:
    """Return the earliest deadline of the retried calls around this code; None if none has one.

    The timeout of an attempt counts as one. An adapter can set the timeout of a request by it without an argument for
    that; the module docstring describes in which tasks and threads it can be read.
    """
    bounds = [(call.clock, call.ends) for call in _published(SCOPE.get() or _DEFAULTS)]
    frame: FrameType | None = _here()
    while frame is not None:
        seen = _read(frame) if frame.f_globals is MARK else None
        if seen is not None:
            bounds.append((seen.clock, seen.ends))
        frame = frame.f_back
    found = [Deadline(clock, ends) for clock, ends in bounds if ends is not None]
    return min(found, key=lambda each: each.remaining, default=None)


def attempt() -> int:
    """Return the number of the present attempt of the innermost retried call around this code; 1 without one."""
    published = next(_published(SCOPE.get() or _DEFAULTS), None)
    frame: FrameType | None = _here()
    while frame is not None:
        if frame.f_globals is MARK and _read(frame) is not None:
            state = frame.f_locals.get(STATE)
            # A compiled wrapper begins where nothing is published, so that what is published now lies further in. The
            # state of a generator has the call under which it began.
            if published is None or (state is not None and state.outer is published):
                return 1 if state is None else int(state.number)
            break
        frame = frame.f_back
    return 1 if published is None else published.number


def is_alone(error: BaseException) -> bool:
    """Return True if the wrapper that has caught its first error is below no other retried call, scope or job."""
    if SCOPE.get() is not None or JOB.get() is not None:
        return False
    frame: FrameType | None
    try:
        frame = error.__traceback__.tb_frame.f_back  # type: ignore[union-attr]  # None is an error, too
    except Exception:  # noqa: BLE001 - whatever a property of the user's exception raises
        return False
    mark = MARK
    while frame is not None and frame.f_globals is not mark:
        frame = frame.f_back
    return frame is None


def enclosing(own: MarkedCall | None, error: BaseException | None) -> tuple[Call, ...]:
    """Return the enclosing calls that retry."""
    found: tuple[Call, ...] = ()
    scope = SCOPE.get()
    if scope is not None:
        found = tuple([call for call in _published(scope) if call is not own and call.plan.retries])
    skip = own is not None and own.on_stack
    # The traceback begins with the frame that caught the error, which saves a search through the frames of the loop.
    try:
        traceback = None if error is None else error.__traceback__
    except Exception:  # noqa: BLE001 - whatever a property of the user's exception raises
        traceback = None
    frame: FrameType | None
    if traceback is None:
        frame = _here()
    elif skip:
        frame, skip = traceback.tb_frame.f_back, False
    else:
        frame = traceback.tb_frame
    mark = MARK
    # Inlined for speed: each call that has failed once runs this.
    while frame is not None:
        if frame.f_globals is mark:
            if skip:
                skip = False
            elif (seen := _read(frame)) is not None and seen.plan.retries:
                found = (*found, seen)
        frame = frame.f_back
    return found


class Job(Protocol):
    """A running attempt of a job."""

    @property
    def name(self) -> str:
        """The name of the task."""
        ...

    def repeats(self, error: Exception | None, result: object) -> bool:
        """See `Call.repeats`."""
        ...


# The attempt of a job that runs in this context. It is no scope: calls in a handler are as fast as elsewhere.
JOB: ContextVar[Job | None] = ContextVar("redrive_job", default=None)

# The code of the loops of calls; each has the call in its local variable `state`.
LOOPS: set[CodeType] = set()


def layers(calls: tuple[Call, ...]) -> tuple[Call | Job, ...]:
    """Return those to which a call leaves what they retry: enclosing calls on its stack, and the job of its context."""
    found = _on_stack(calls) if calls and SCOPE.get() is not None else calls
    job = JOB.get()
    return found if job is None else (*found, job)


def _on_stack(calls: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the calls that run on this stack or span tasks, and those above a call of the stack."""
    running: list[Any] = []
    frames = set()
    frame: FrameType | None = _here()
    while frame is not None:
        frames.add(id(frame))
        if frame.f_code in LOOPS:
            running.append(frame.f_locals["state"])
        elif frame.f_globals is MARK and (seen := _read(frame)) is not None:
            running.append(seen)
        frame = frame.f_back
    here = [each for each in calls if each.spans_tasks or each.frame_id in frames or _is_among(each, running)]
    return (*here, *(above for each in here for above in each.above))


def _is_among(call: object, running: list[Any]) -> bool:
    """Return True if a call is one of these; that of a first attempt is another object each time it is read."""
    return isinstance(call, _FirstAttempt) or any(call is each for each in running)


def refuse_copies(name: str) -> None:
    """Raise PolicyValueError if a hedged call, of which copies run, encloses a call that is declared not idempotent."""
    scope = SCOPE.get()
    hedged = None if scope is None else next((call for call in _published(scope) if call.plan.hedged), None)
    if hedged is not None:
        raise PolicyValueError(
            f"{hedged.name} is hedged, so that copies of it run at the same time, and calls {name}, which is declared "
            "idempotent=False"
        )


_here = sys._getframe  # documented; CPython and PyPy have it


def _published(scope: Scope) -> Iterator[Call]:
    """Yield the live calls of the scope, the innermost first."""
    call = scope.call
    while call is not None:
        if call.live:
            yield call
        call = call.outer


def _read(frame: FrameType) -> Call | None:
    """Return the call of a wrapper's frame; None if it stands in `SCOPE` or has ended."""
    names = frame.f_locals
    plan, started, state = names[PLAN], names.get(STARTED), names.get(STATE)
    if plan is None or started is None:
        return None
    call: Call = _FirstAttempt(plan, started) if state is None else state
    return call
