"""One call under a policy: the loop, without the calling.

A `Run` is the conversation that all forms have with a policy; each of them calls and waits in its own colour::

    while True:
        if run.delay:
            run.sleep()
        try:
            result = call()
        except Exception as error:
            if not run.failed(error):  # it is not retried
                raise
        else:
            if run.accepts(result):
                return result

All counters are here, one run a call, so that one policy serves any number of threads and tasks. What becomes of a
failure is decided by the policy and nowhere else: by ``Policy.quick`` where class, number and time of the failure
settle it, else by ``Policy.decide``. A run brings the history, the time and the sample. Only one thing comes after it:
a call whose policy says ``nested="outer"`` does not carry out a retry where a call above would do so for the same
failure (`redrive.retrying.context`), since the two numbers of attempts would multiply. Its record says so, rule
``nested``.

What calls share has a fixed order: ``deadline( hedge( breaker -> budget -> [ attempt_timeout( limiter( call ) ) ] x n )
)``. A breaker counts calls, so `Run.admit` asks it, once. A budget is spent when a retry is decided, not when it is
sent, so it is asked in `Run.failed`; both through the call's `redrive.retrying.guard.Guard`. A hedge is around the loop
(`redrive.retrying.hedged_call`), a limiter around ``call()`` (`redrive.retrying.limiter`). A policy with one
of these is not
``direct`` (see `redrive.retrying.plan`), so that compiled wrappers need not know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Token
from datetime import datetime, timedelta
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from redrive.clock import Clock
from redrive.observe.listeners import LISTENERS
from redrive.policy import Decision, Defer, Failure, GiveUp, History, Retry, Stage, format_duration
from redrive.policy.classify import Answer, described
from redrive.policy.duration import ZERO, span
from redrive.policy.outcome import surface
from redrive.retrying.context import SCOPE, SYSTEM, Call, Scope, enclosing
from redrive.retrying.events import Telling
from redrive.retrying.plan import Plan, thorough
from redrive.retrying.record import Line
from redrive.retrying.rng import roll

if TYPE_CHECKING:
    from redrive.retrying.guard import Guard

__all__ = ["Run", "start"]

_MONOTONIC: Callable[[], float] = SYSTEM.monotonic


class Run(Telling, Scope):
    """The state of one call.

    Args:
        plan: the policy.
        started: the clock's monotonic reading at the start of the call.

    Attributes:
        number: of the present attempt, or of the next one during a wait; counted from 1.
        delay: seconds to wait before the next attempt.
        clock: where the time comes from.
        ended: the decision that ended it, unless the call succeeded.
        live: whether the call is still being made.
        outer: the call above this one, as far as the scope knows.
        has_sign: whether a frame on the stack shows this call to `redrive.retrying.context`.
        result: the last one that was rejected and is retried.
        last: what was written down about the last attempt that has ended.
        guard: its dealings with a budget and a breaker, if its policy names one.
        above: the calls above this one that retry, where tasks of it do not have their frames on the stack.
    """

    __slots__ = ("_alone", "_dice", "_quick", "has_sign", "live")  # see `Story`: one is made after each first failure
    clock: Clock = SYSTEM
    ended: GiveUp | Defer | None = None
    outer: Call | None = None
    result: Any = None
    guard: Guard | None = None
    _name: str | None = None
    _truncated = False
    _instant = False
    _started_at: datetime | None = None
    _by_rule: tuple[int, ...] = ()
    _error: Exception | None = None
    above: tuple[Call, ...] = ()

    def __init__(self, plan: Plan, started: float) -> None:
        self.plan = plan
        self.started = self._began = started
        self.number = 1
        self.delay = 0.0
        self.has_sign = self.live = True
        self._alone = not plan.yields
        self._monotonic = _MONOTONIC
        self._dice = roll
        self._quick = thorough if LISTENERS else plan.quick
        self.last: Line | None = None

    @property
    def name(self) -> str:
        """What is called, for messages."""
        return self._name or self.plan.name

    @property
    def call(self) -> Run:
        """As a scope, it is that of itself."""
        return self

    def admit(self) -> None:
        """Before the first attempt of a guarded call: ask its breaker.

        Raises:
            CircuitOpen: the breaker refuses; nothing was called.
        """
        refused = None if self.guard is None else self.guard.admit()
        if refused is not None and self.guard is not None:
            self.ended = refused
            error = self.guard.refusal(refused.why)
            self._attach(error)
            raise error

    def drop(self) -> None:
        """The call is over, however it went; what it still holds of shared things is given back."""
        if self.guard is not None:
            self.guard.drop()

    def sleep(self) -> bool:
        """Wait before the next attempt.

        Returns:
            Whether no attempt follows, and the last `result` stands (``over_deadline="truncate"``).

        Raises:
            Exception: the last one, if no attempt follows.
        """
        with self.wait:
            self.clock.sleep(self.delay)
        self._began = self._monotonic()
        return self._truncated and self._close()

    async def asleep(self) -> bool:
        """The same, letting other tasks run."""
        with self.wait:
            await self.clock.asleep(self.delay)
        self._began = self._monotonic()
        return self._truncated and self._close()

    def failed(self, error: Exception) -> bool:
        """Decide what becomes of an attempt that raised.

        Args:
            error: what it raised.

        Returns:
            Whether it is retried, after `delay`. If not, the error has got its note and its record.
        """
        monotonic, dice, quick = self._monotonic, self._dice, self._quick  # CPython 3.11 is slow to call attributes
        at = monotonic()
        number = self.number
        delay = quick(error, number, at - self.started, dice())
        if delay is not None and (self._alone or self._left_to(error, None) is None):
            try:
                self.last = (self.last, self._began, at, type(error), str(error), delay)
            except Exception:  # noqa: BLE001 - a broken `__str__`, which `Failure` can describe
                return self.judge(error, at, timed_out=False)
            self._began = at
            self.number = number + 1
            self.delay = delay
            return True
        return self.judge(error, at, timed_out=False)

    def cut_off(self, error: Exception) -> bool:
        """The same for an attempt that redrive itself has ended, so that nobody knows whether it took effect."""
        return self.judge(error, self._monotonic(), timed_out=True)

    def judge(self, error: Exception, at: float, *, timed_out: bool, said: Answer | EllipsisType = ...) -> bool:
        """The same for a failure at an earlier instant, with the answer of a classifier that has been awaited."""
        policy = self.plan.policy
        if self.off:
            self.last = (self.last, self._began, at, Failure.of(error), _OFF)
            self.ended = _OFF
            return False
        if timed_out:
            at = max(at, self.ends or at)  # the timer may belong to another clock: it has lasted that long, at least
        stage = Stage.IN_FLIGHT if timed_out else Stage.ANSWERED
        if isinstance(said, EllipsisType):
            failure = policy.classify(error, stage=stage)
        else:
            failure = described(error, said, stage)
        if timed_out and failure.reason == "ERROR":
            failure = failure._replace(reason="TIMEOUT")
        if self._decide(failure, at, error):
            self._error = error if self._truncated else None
            return True
        if self.guard is not None:
            self.guard.finish(self.ended, error)
        self._attach(error)
        return False

    def accepts(self, result: Any) -> bool:
        """Whether a result is the end of the call: it is good, or bad and not retried."""
        judges = self.plan.judges and not self.off
        return self.judge_result(result, self.plan.policy.classify_result(result) if judges else None)

    def judge_result(self, result: Any, failure: Failure | None) -> bool:
        """The same for a result of which the predicates have been asked: None, or the failure that it is."""
        before = self.last
        if failure is not None and self._decide(failure, self._monotonic(), None, result):
            self.result = result
            return False
        if self.ended is not None and self.ended.rule == "not_matched":  # a combination accepts it
            self.ended, self.last = None, before
        if failure is not None or self.guard is not None or LISTENERS:
            self._returned()
        return True

    def _close(self) -> bool:
        if self.ended is None:
            limit = format_duration(timedelta(0, self.plan.limit or 0.0))
            self.ended = GiveUp(f"it waited until the deadline of {limit} and did not call again", "deadline")
        if self._error is None:
            self._returned()
            return True
        if self.guard is not None:
            self.guard.finish(self.ended, self._error)
        self._attach(self._error)
        error, self._error = self._error, None
        return surface(error)

    def _left_to(self, error: Exception | None, result: object) -> str | None:
        """The name of a call above that retries this failure, if the retrying is left to it."""
        if self._alone:
            return None
        above = self.above or enclosing(self, error)
        if not above:
            self._alone = True
            return None
        return next((call.name for call in above if call.repeats(error, result)), None)

    def repeats(self, error: Exception | None, result: object) -> bool:
        """See `redrive.retrying.context.Call`."""
        elapsed = 0.0 if self.number > 1 else self._monotonic() - self.started
        return not self.off and self.plan.repeats(self.clock.now(), elapsed, error, result)

    def _decide(self, failure: Failure, at: float, error: Exception | None, result: object = None) -> bool:
        if self._started_at is None:
            self._started_at = self.clock.now() - timedelta(0, self._monotonic() - self.started)
        now = self._started_at + timedelta(0, at - self.started)
        last = span(self.delay) if self.number > 1 else None
        history = History(self.number, self._started_at, last, self._by_rule)
        policy = self.plan.policy
        sample = self._dice()
        decision = policy.decide(history, failure, now, sample)
        if isinstance(decision, Retry):
            above = self._left_to(error, result)
            if above is not None:
                decision = GiveUp(f"left the retrying to {above} above", "nested")
            elif self._instant and decision.rule == "deadline":
                decision = GiveUp("the deadline would be waited for, without another attempt", "deadline")
            elif self._instant:
                decision = decision._replace(delay=ZERO)
        if isinstance(decision, Retry) and self.guard is not None and decision.rule != "deadline":
            decision = self._afford(self.guard, failure, decision)
        self.last = (self.last, self._began, at, failure, decision)
        if not isinstance(decision, Retry):
            self.ended = decision
            return False
        self._by_rule = policy.advance(history, failure, decision.delay, now=now, sample=sample).by_rule
        self._began = at
        self.number += 1
        self.delay = decision.delay.total_seconds()
        self._truncated = decision.rule in ("deadline", "budget")
        if LISTENERS and not self._truncated:
            self.emit_retry(failure, decision)
        return True

    def _afford(self, guard: Guard, failure: Failure, decision: Retry) -> Decision:
        """A retry if the budget grants it; where it does not, giving up, or only waiting and then giving up."""
        refused = guard.retry(failure)
        if refused is None or not guard.hold_back:
            return decision if refused is None else refused
        self.ended = refused
        return decision._replace(rule="budget")

    @property
    def ends(self) -> float | None:
        """When the present attempt should have ended, on the clock of this call; None without a bound."""
        if self.off:
            return None
        limit, timeout = self.plan.limit, self.plan.timeout
        whole = None if limit is None else self.started + limit
        if timeout is None:
            return whole
        return self._began + timeout if whole is None else min(whole, self._began + timeout)

    @property
    def bounded(self) -> bool:
        """Whether attempts that can be cut off are: there is a timeout for each, or a deadline that was given."""
        return (self.plan.promised or self.plan.timeout is not None) and not self.off

    @property
    def room(self) -> float:
        """Seconds that the present attempt of a bounded run may take."""
        return max(0.0, (self.ends or 0.0) - self._began)

    def settle(self, scope: Scope | None, name: str | None) -> None:
        """Be a call under a scope, and not one of a compiled wrapper.

        Args:
            scope: what is in force.
            name: what is called, if it is not the plan's function.
        """
        self.has_sign = False
        self._name = name
        if scope is not None:
            self.clock = scope.clock
            self.outer = scope.call
            self._monotonic = scope.clock.monotonic
            self._dice = scope.roll
            self.off = scope.off
            self._instant = scope.trial is not None
            if self.off or self._instant:
                self._quick = thorough

    def watch(self, *, hedging: bool = False) -> None:
        """Take part in what the policy shares with others, unless retries are switched off.

        Args:
            hedging: this is a further copy of a call that takes part already.

        Raises:
            PolicyValueError: the policy names something that is not registered.
        """
        if not self.off:
            from redrive.retrying.guard import Guard

            self.guard = Guard(self.plan, self.name, self._monotonic, hedging=hedging)
            self._quick = thorough

    def copy(self) -> Run:
        """Another call under the same policy that began when this one did: a hedge. It has no guard yet."""
        twin = Run(self.plan, self.started)
        twin.settle(SCOPE.get(), self._name)
        twin._began = self._monotonic()
        twin.above = self.above
        twin._quick, twin.is_copy = thorough, True
        return twin

    @property
    def hedges(self) -> bool:
        """Whether copies of it may be made: not where retries are switched off, nor where nothing is waited for."""
        return self.plan.hedged and not self.off and not self._instant

    def adopt(self, twin: Run, copies: Iterable[Run]) -> None:
        """Tell the story of that copy from now on: it was the one that counted. That of the others is added."""
        self._copies = tuple([copy.outrun() for copy in copies if copy is not twin])
        self.number, self.ended, self.last, self._began = twin.number, twin.ended, twin.last, twin._began

    def publish(self) -> Token[Scope | None]:
        """Write this call into the scope, for what is below it."""
        self.live = True
        scope = SCOPE.get()
        return SCOPE.set(self if scope is None else scope.with_(call=self))

    def retire(self, token: Token[Scope | None]) -> None:
        """Take it out again."""
        self.live = False
        try:  # noqa: SIM105 - `suppress` would cost more than all the rest
            SCOPE.reset(token)
        except ValueError:
            pass  # a coroutine that the garbage collector closes is closed in another context


def start(plan: Plan, name: str | None = None) -> Run:
    """Begin a call under what is in force here.

    Args:
        plan: of the policy.
        name: what is called, if it is not the plan's function.

    Returns:
        Its run, before the first attempt.
    """
    scope = SCOPE.get()
    clock = SYSTEM if scope is None else scope.clock
    run = Run(plan if scope is None else scope.applied(plan), clock.monotonic())
    run.settle(scope, name)
    if run.plan.shares and not run.hedges:  # of a hedged call each copy takes part
        run.watch()
    return run


_OFF = GiveUp("retries are switched off", "disabled")
