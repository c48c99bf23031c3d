"""The state of one retried call: its attempts so far, and the decision after each of them.

The loops in `redrive.retrying.loops`, compiled wrappers, generators and blocks call and wait; each of them has this
shape::

    while True:
        if state.delay:
            state.sleep()
        try:
            result = call()
        except Exception as error:
            if not state.failed(error):  # it is not retried
                raise
        else:
            if state.accepts(result):
                return result

The policy decides on each failure: by ``Plan.quick`` where class, number and time of the failure suffice, otherwise
by ``Policy.decide``. The state passes the history, the time and the random sample. One rule applies after the policy: a
call with ``nested="outer"`` makes no retry that an enclosing call would make, since the numbers of attempts would
multiply. Its record has the rule ``nested`` then.

Of the limits that calls share, a breaker is asked once, in `CallState.admit`, and a budget is charged when a retry is
decided, in `CallState.failed`; both through `redrive.retrying.shared.Guard`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Token
from datetime import datetime, timedelta
from types import EllipsisType, MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redrive.clock import Clock, SystemClock, checkpoint
from redrive.errors.foreign import is_a
from redrive.observe.listeners import INFO, LISTENERS, LOGGED, LOGS, WARNING, heard
from redrive.policy import Decision, Defer, Failure, GiveUp, History, Retry, Stage, format_duration
from redrive.policy.classify import Answer, answer_of, described
from redrive.policy.duration import ZERO, span
from redrive.policy.failure import forbid_repetition, forbidden_by
from redrive.policy.outcome import Deferred, GaveUp, Hook, Ok, Outcome, Record, RetryDetails, surface
from redrive.retrying import rng
from redrive.retrying.cancellation import keep_cancellation
from redrive.retrying.context import (
    JOB,
    OFF,
    SCOPE,
    SYSTEM,
    Call,
    Job,
    Scope,
    enclosing,
    is_alone,
    layers,
    refuse_copies,
)
from redrive.retrying.plan import Plan
from redrive.retrying.record import (
    FULL,
    Entry,
    attach,
    entries_since,
    failure_in,
    mark_spent,
    spent_since,
    timeline,
    wait_in,
    why,
)
from redrive.retrying.rng import unique
from redrive.retrying.wrapper import UNLISTED, list_sources

_TEXTS = (
    "cannot schedule new futures after",
    "can't start new thread",
    "can't create new thread",
    "Executor shutdown has been called",
)

#: Stands for `threading` where that is not loaded yet.
NOT_LOADED = SimpleNamespace(_SHUTTING_DOWN=False)

# `threading`, from the first failure on that finds it loaded.
_threading: Any = NOT_LOADED


def is_ending() -> bool:
    """Return True from the end of the main thread on."""
    # The attribute is older than Python 3.11, and set before executors stop to take work.
    return bool(getattr(sys.modules.get("threading", NOT_LOADED), "_SHUTTING_DOWN", False))


def may_end(wait: float) -> bool:
    """Return True if the interpreter ends, or may end in a wait of so many seconds: that of another thread may."""
    if is_ending():
        return True
    threading = sys.modules.get("threading")
    return wait > 0 and threading is not None and threading.get_ident() != threading.main_thread().ident


def is_refused(error: Exception) -> bool:
    """Return True if an attempt failed because the interpreter starts no threads and loads no modules any more."""
    if is_a(error, ImportError):
        return sys.meta_path is None
    return type(error) is RuntimeError and str(error).startswith(_TEXTS)


if TYPE_CHECKING:
    from redrive.retrying.own import OwnBudget
    from redrive.retrying.shared import Guard

_MONOTONIC: Callable[[], float] = SYSTEM.monotonic
_present_job = JOB.get
_CHANNEL = "redrive.calls"
_OFF = GiveUp("retries are switched off", "disabled")
_STOPPED = GiveUp("the stop event of the policy is set", "stopped")
_ENDING = GiveUp("the interpreter ends, and starts no threads any more", "stopped")
# The rules of ends by failures that the call has not retried itself.
_NOT_RETRIED = frozenset({"nested", "not_matched", "disabled"})
# Seconds between two checks of the stop event in an awaited wait.
_LOOK = 0.1
_new = object.__new__


def _is_logged(level: int) -> bool:
    """Return True if the log writes the events of calls at a level."""
    answer = heard(_CHANNEL, level)
    # The logger's own method costs the next failures two calls less.
    globals()["_is_logged"] = LOGS.get(_CHANNEL, _is_logged)
    return answer


class CallState(Scope):
    """The state of one call.

    Attributes:
        is_copy: True for one copy of a hedged call: its retries emit events, its end does not.
    """

    # Every failure reads the attributes that have slots, the fastest kind in CPython. The others are defaults of the
    # class, which cost nothing until they change.
    __slots__ = (
        "__dict__", "_alone", "_is_quick", "_kept", "_monotonic", "_own", "_random", "above", "began", "delay", "ended",
        "guard", "last", "live", "number", "on_stack", "plan", "started",
    )  # fmt: skip
    plan: Plan
    #: True while the call is in progress.
    live: bool
    #: The start of the call, on the clock.
    started: float
    #: The start of the present attempt, on the clock.
    began: float
    #: The number of the present attempt, or of the next one during a wait; from 1.
    number: int
    #: Seconds to wait before the next attempt.
    delay: float
    #: True if a frame on the stack shows this call to `redrive.retrying.context`.
    on_stack: bool
    #: The entry of the last attempt that has ended.
    last: Entry | None
    #: The decision that ended the call; None if it succeeded.
    ended: GiveUp | Defer | None
    #: The part of this call in a budget and a breaker, if its policy names one.
    guard: Guard | None
    #: The enclosing calls that retry, where its tasks do not have their frames on the stack.
    above: tuple[Call | Job, ...]
    #: True if no enclosing call is left that a failure would be left to.
    _alone: bool
    _monotonic: Callable[[], float]
    _random: Callable[[], float]
    _own: OwnBudget | None
    #: False if `Policy.decide` decides on each failure, True if `Plan.quick` may.
    _is_quick: bool
    #: The error that is retried, in a wait in which the interpreter may end, and then until the next attempt fails.
    _kept: Exception | None
    #: Reads the time and waits.
    clock: Clock = SYSTEM
    #: The enclosing call in the scope.
    outer: Call | None = None
    #: The last result that was rejected and is retried.
    result: Any = None
    spans_tasks: bool = False
    off: bool = False
    frame_id: int = 0
    #: The latest attempt of an inner call that is counted, or the start of this one, in monotonic time of the system.
    counted_to: float = 0.0
    #: The attempts of inner calls that count as attempts of this one, beside its own.
    below: int = 0
    #: The context managers of observers around the next wait.
    wait: AbstractContextManager[None] = nullcontext()
    is_copy = False
    #: The arguments of the call, for hooks.
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})
    #: True if a loop awaits what hooks return, before the next wait or at the end.
    awaits_hooks = False
    #: What coroutine functions among the hooks have returned, until it is awaited.
    pending: tuple[Awaitable[object], ...] = ()
    #: The requests for a cancellation of the task before the attempt; None if they were not counted.
    cancel_requests: int | None = None
    #: The records of the other copies of a hedged call.
    copies: tuple[Record, ...] = ()
    _name: str | None = None
    _uid: str | None = None
    _truncated = False
    _instant = False
    _started_at: datetime | None = None
    _by_rule: tuple[int, ...] = ()
    _error: Exception | None = None
    _counted = 0
    _emitted: Entry | None = None
    _total_wait = ZERO

    # A function, as CPython 3.11 takes as long to call a class with an initializer as to set all these attributes.
    @staticmethod
    def begin(plan: Plan, started: float) -> CallState:
        """Return the state of a call that began at an instant."""
        # The interpreter sets the path to None when it ends, and loads nothing any more.
        if UNLISTED and sys.meta_path is not None:
            list_sources()
        if _threading is NOT_LOADED:
            globals()["_threading"] = sys.modules.get("threading", NOT_LOADED)
        self = _new(CallState)
        self.plan = plan
        self.started = self.began = started
        self.number = 1
        self.delay = 0.0
        self.live = self.on_stack = True
        self.last = self.ended = self.guard = self._kept = None
        self.above = ()
        self._alone = not plan.outer_first
        self._monotonic = _MONOTONIC
        self._own = plan.own
        self._random = rng.roll
        self._is_quick = not OFF
        if OFF:
            self.off = True
        return self

    @property
    def name(self) -> str:
        """The name of the called function, for messages."""
        return self._name or self.plan.name

    @property
    def call(self) -> CallState:
        """The call in progress, if this object is used as a scope: itself."""
        return self

    @property
    def previous(self) -> Failure | None:
        """The failure of the last attempt that has ended."""
        return None if self.last is None else failure_in(self.last)

    @property
    def uid(self) -> str:
        """An identifier of this call, the same for all its attempts."""
        if self._uid is None:
            self._uid = unique()
        return self._uid

    @property
    def ends(self) -> float | None:
        """The end of the time for the present attempt, on the clock of this call; None without a bound."""
        if self.off:
            return None
        limit, timeout = self.plan.limit, self.plan.timeout
        whole = None if limit is None else self.started + limit
        if timeout is None:
            return whole
        return self.began + timeout if whole is None else min(whole, self.began + timeout)

    @property
    def bounded(self) -> bool:
        """True if awaited attempts are cancelled at a timeout or at a deadline that the user gave."""
        return self.plan.is_bounded and not self.off

    @property
    def hedges(self) -> bool:
        """True if copies of it may be started: not where retries are switched off, nor in tests without waits."""
        return self.plan.hedged and not self.off and not self._instant

    def bind(self, scope: Scope | None, name: str | None) -> None:
        """Prepare a call that no compiled wrapper makes."""
        self.on_stack = False
        self._name = name
        if scope is not None:
            self.clock = scope.clock
            self.outer = scope.call
            self._monotonic = scope.clock.monotonic
            self._random = scope.roll
            self.off = self.off or scope.off
            self._instant = scope.trial is not None
            if scope.clock is not SYSTEM:
                self.counted_to = _MONOTONIC()
            if self._instant or scope.clock is not SYSTEM:
                # There is no target that a test in virtual time, or without waits, could overload.
                self._own = None
        if self.off or self._instant or self.plan.is_slow:
            self._is_quick = False

    def join_shared(self, *, hedging: bool = False) -> None:
        """Take part in the budget and the breaker of the policy; ``hedging`` marks a further copy of a call."""
        if not self.off and sys.meta_path is not None:
            from redrive.retrying.shared import Guard, opened

            if self.guard is None:
                self.guard = Guard(self.plan.policy, self.name, self._monotonic, hedging=hedging)
            if self._own is not None:
                self.guard.use(opened(self._own))
            self._is_quick = False

    def afford(self) -> bool:
        """Return True if this further copy of a hedged call may be sent, as far as its budget is concerned."""
        if self._own is not None and self._own.admits(self):
            return True
        return self.guard is None or self.guard.afford()

    def admit(self) -> None:
        """Ask the breaker before the first attempt of a call; raise `CircuitOpen` if it refuses."""
        refused = None if self.guard is None else self.guard.admit()
        if refused is not None and self.guard is not None:
            self.ended = refused
            error = self.guard.refusal(refused.why)
            self._attach(error)
            raise error

    def drop(self) -> None:
        """Return what the call still holds of a budget and a breaker; the call is over."""
        self.live = False
        if self.guard is not None:
            self.guard.drop()

    def publish(self) -> Token[Scope | None]:
        """Write this call to the scope."""
        self.live = True
        scope = SCOPE.get()
        return SCOPE.set(self if scope is None else scope.with_(call=self))

    def retire(self, token: Token[Scope | None]) -> None:
        """Restore the scope."""
        self.live = False
        if self.number > 1 and self._own is not None and self._own.lone is self:
            self._own.lone = None
        try:  # noqa: SIM105 - `suppress` would cost more than all the rest
            SCOPE.reset(token)
        except ValueError:
            # The garbage collector closes coroutines in another context.
            pass

    def sleep(self) -> bool:
        """Wait before the next attempt; return True if none follows and the last `result` is returned.

        If no attempt follows an error, that error is raised (``over_deadline="truncate"``).
        """
        stop = self.plan.stop
        with self.wait:
            if stop is None or type(self.clock) is not SystemClock:
                self.clock.sleep(self.delay)
            else:
                stop.wait(self.delay)
        if self._kept is not None and not is_ending():
            self._kept = None
        self.began = self._monotonic()
        return (self._truncated or stop is not None) and self._close()

    async def asleep(self) -> bool:
        """Wait as `sleep` does, while other tasks run, also if the wait is zero; hooks are awaited first."""
        if self.pending:
            await self.await_hooks()
        stop = self.plan.stop
        if not self.delay:
            # An observer of a wait of zero has been called already.
            await checkpoint()
        elif stop is None or type(self.clock) is not SystemClock:
            with self.wait:
                await self.clock.asleep(self.delay)
        else:
            ends = self._monotonic() + self.delay
            with self.wait:
                # The event belongs to threads and cannot be awaited.
                while not stop.is_set() and (left := ends - self._monotonic()) > 0:
                    await self.clock.asleep(min(left, _LOOK))
        if self._kept is not None and not is_ending():
            self._kept = None
        self.began = self._monotonic()
        return (self._truncated or stop is not None) and self._close()

    def failed(self, error: Exception) -> bool:
        """Return True if an attempt that raised is retried, after `delay`; otherwise attach the note and the record."""
        if self._kept is not None and is_refused(error):
            self._raise_kept(self._kept)
        # CPython 3.11 is slow to call attributes.
        monotonic, number, delay = self._monotonic, self.number, None
        at = monotonic()
        # A retry that is logged or observed is decided on with all its details. This is `heard`, inlined for speed.
        if self._is_quick and not (LISTENERS or (LOGGED and _is_logged(WARNING))):
            delay = self.plan.quick(error, number, at - self.started, self._random)
        if delay is not None and (self._alone or self._left_to(error, None) is None):
            own = self._own
            if own is not None and (lone := own.lone) is not self:
                # For speed only: `admits` has this test, too.
                if lone is None or not lone.live:
                    own.lone = self
                elif not own.admits(self):
                    return self.decide_error(error, at, timed_out=False)
            try:
                self.last = (self.last, self.began, at, type(error), str(error), delay)
            except Exception:  # noqa: BLE001 - a broken `__str__`, which `Failure` can describe
                return self.decide_error(error, at, timed_out=False)
            self.began = at
            self.number = number + 1
            self.delay = delay
            # The second is `is_ending`, inlined for speed.
            if delay or _threading._SHUTTING_DOWN:
                self._kept = error if may_end(delay) else None
            return True
        return self.decide_error(error, at, timed_out=False)

    def afailed(self, error: Exception) -> bool:
        """Decide on an attempt that was awaited; raise the cancellation of its task if the attempt has swallowed it."""
        self.keep_cancellation(error)
        return self.failed(error)

    def keep_cancellation(self, error: Exception | None, handled: BaseException | EllipsisType | None = ...) -> None:
        """Raise the cancellation that an attempt has not raised; see `redrive.retrying.cancellation`."""
        if self.off:
            return
        try:
            self.cancel_requests = keep_cancellation(error, self.cancel_requests, handled)
        except BaseException as cancellation:
            self.left_by(cancellation)
            raise

    def _raise_kept(self, kept: Exception) -> NoReturn:
        """Raise the error before an attempt that the end of the interpreter has prevented."""
        self._kept, self.ended = None, _ENDING
        if self.guard is not None:
            self.guard.finish(self.ended, kept)
        self._attach(kept)
        surface(kept)

    def timed_out(self, error: Exception) -> bool:
        """Decide on an attempt that redrive cancelled, so that it is unknown if it took effect; see `failed`."""
        return self.decide_error(error, self._monotonic(), timed_out=True)

    def decide_error(
        self, error: Exception, at: float, *, timed_out: bool, answer: Answer | EllipsisType = ...
    ) -> bool:
        """Decide on an error that was raised at an earlier instant, with the awaited answer of a classifier."""
        policy = self.plan.policy
        if self.off:
            self.left_by(error)
            self.last = (self.last, self.began, at, Failure.of(error), _OFF)
            self.ended = _OFF
            return False
        if timed_out:
            # The timer may use another clock: the attempt lasted that long at least.
            at = max(at, self.ends or at)
        stage = Stage.IN_FLIGHT if timed_out else None
        if isinstance(answer, EllipsisType):
            failure = policy.classify(error, stage=stage)
        else:
            failure = described(error, answer, stage)
        if timed_out and failure.reason == "ERROR":
            failure = failure._replace(reason="TIMEOUT")
        if failure.once is not None and failure.once == forbidden_by(error):
            # Of this attempt. Where the call has another clock, its start is the latest instant that is known.
            began = self.began if self.clock is SYSTEM else self.counted_to
            failure = failure._replace(once=forbidden_by(error, began))
        self._count_inner(error)
        if self._decide(failure, at, error):
            self._error = error if self._truncated or self.plan.stop is not None else None
            self._kept = error if may_end(self.delay) else None
            return True
        if self.guard is not None:
            self.guard.finish(self.ended, error, stage=failure.stage)
        self.left_by(error)
        self._attach(error)
        return False

    def _count_inner(self, failed: object) -> None:
        """Count the attempts of an inner call that has given up in this attempt and did not leave its retries to it.

        Such a call was made in another task or thread, or returned what its own policy took for a failure: the response
        of a transport.
        """
        if not self.plan.outer_first:
            return
        self.counted_to, attempts = spent_since(failed, self.counted_to or self.started)
        if attempts > 1:
            self.below += attempts - 1
            self._is_quick = False

    def left_by(self, error: BaseException) -> None:
        """Mark an exception that ends the call, also a cancellation; see `forbid_repetition`."""
        if self.plan.once:
            forbid_repetition(error, self.name, _MONOTONIC())

    def accepts(self, result: object) -> bool:
        """Return True if a result ends the call: it is good, or bad and not retried."""
        checks = self.plan.checks_results and not self.off
        return self.decide_result(result, self.plan.policy.classify_result(result) if checks else None)

    def decide_result(self, result: object, failure: Failure | None) -> bool:
        """Return True if a result ends the call, given its failure; None if no predicate rejects it."""
        before = self.last
        if failure is not None:
            self._count_inner(result)
            if self._decide(failure, self._monotonic(), None, result):
                self.result = result
                return False
        # A combination of policies accepts it.
        if self.ended is not None and self.ended.rule == "not_matched":
            self.ended, self.last = None, before
        if failure is not None or self.guard is not None or self.number > 1:
            self.returned(result)
        elif self._own is not None and self._own.low and not self._own.is_watched:
            # A compiled wrapper counts by itself.
            self._own.succeeded()
        return True

    def _close(self) -> bool:
        """End the call if no attempt follows the wait; return False if one does."""
        if self.plan.stop is not None and self.plan.stop.is_set():
            self.ended = self.ended or _STOPPED
        elif not self._truncated:
            return False
        if self.ended is None:
            limit = format_duration(timedelta(0, self.plan.limit or 0.0))
            self.ended = GiveUp(f"it waited until the deadline of {limit} and did not call again", "deadline")
        if self._error is None:
            self.returned(self.result)
            return True
        if self.guard is not None:
            self.guard.finish(self.ended, self._error, stage=self.previous.stage if self.previous else Stage.ANSWERED)
        self._attach(self._error)
        error, self._error = self._error, None
        return surface(error)

    def _left_to(self, error: Exception | None, result: object) -> str | None:
        """Return the name of an enclosing call that retries this failure; None if the call retries by itself."""
        if self._alone:
            return None
        above = self.above
        if not above:
            # For speed only: the result of the next two lines in the common case.
            if error is not None and self.on_stack and is_alone(error):
                self._alone = True
                return None
            above = enclosing(self, error)
            if above or _present_job() is not None:
                above = layers(above)
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
        history = History(self.number + self.below, self._started_at, last, self._by_rule)
        policy = self.plan.policy
        sample = self._random()
        decision = policy.decide(history, failure, now, sample)
        if self.below and isinstance(decision, GiveUp):
            decision = decision._replace(why=f"{decision.why}, {self.below} of them in calls below")
        if isinstance(decision, Retry):
            if error is None and self.cancel_requests is not None:
                self.keep_cancellation(None)
            decision = self._adjusted(decision, error, result)
        if isinstance(decision, Retry) and decision.rule != "deadline":
            decision = self._charge(failure, decision)
        self.last = (self.last, self.began, at, failure, decision)
        if not isinstance(decision, Retry):
            self.ended = decision
            return False
        self._by_rule = policy.advance(history, failure, decision.delay, now=now, sample=sample).by_rule
        self.began = at
        self.number += 1
        self.delay = decision.delay.total_seconds()
        self._truncated = decision.rule in ("deadline", "budget")
        if policy.retry_hooks and not self._truncated:
            self._call_hooks("on_retry", policy.retry_hooks, failure, decision, error=error, value=result)
        if not self._truncated and heard(_CHANNEL, WARNING):
            self._emit_retry(failure, decision, policy.remaining(history, failure))
        return True

    def _adjusted(self, decision: Retry, error: Exception | None, result: object) -> Decision:
        """Return the retry as the place of the call has it: left to an enclosing call, stopped, or without its wait."""
        above = self._left_to(error, result)
        if above is not None:
            self._log_left(above)
            return GiveUp(f"left the retrying to {above} above", "nested")
        if self.plan.stop is not None and self.plan.stop.is_set():
            return _STOPPED
        if self._instant and decision.rule == "deadline":
            return GiveUp("the deadline would be waited for, without another attempt", "deadline")
        return decision._replace(delay=ZERO) if self._instant else decision

    def _log_left(self, above: str) -> None:
        """Log that the call makes no retry of its own, which the policy above it does not show."""
        from redrive.observe.logs import logger

        logger(_CHANNEL).debug(
            '%s has failed, and leaves the retries to %s above; nested="both" retries here, too', self.name, above
        )

    def _charge(self, failure: Failure, decision: Retry) -> Decision:
        """Return the retry if the budget grants it; otherwise `GiveUp`, or a wait with `GiveUp` behind it."""
        own = self._own
        if own is not None:
            if own.admits(self) or sys.meta_path is None:
                return decision
            self.join_shared()
        guard = self.guard
        if guard is None:
            return decision
        refused = guard.retry(failure)
        if refused is None or not guard.hold_back:
            return decision if refused is None else refused
        self.ended = refused
        return decision._replace(rule="budget")

    def copy(self) -> CallState:
        """Return another call under the same policy with the same start: a hedge. It has no guard yet."""
        copy: CallState = CallState.begin(self.plan, self.started)
        copy.bind(SCOPE.get(), self._name)
        copy.began = self._monotonic()
        copy.above = self.above
        # It runs in a new task.
        copy._is_quick = False
        copy.is_copy, copy.cancel_requests = True, 0
        copy.args, copy.kwargs, copy.awaits_hooks = self.args, self.kwargs, self.awaits_hooks
        return copy

    def adopt(self, winner: CallState, copies: Iterable[CallState]) -> None:
        """Take the attempts of the copy that decided the call, and the records of the others."""
        self.copies = tuple([copy.cancelled() for copy in copies if copy is not winner])
        self.number, self.ended, self.last, self.began = winner.number, winner.ended, winner.last, winner.began

    def cancelled(self) -> Record:
        """Return the record of a copy that is cancelled now, unless it is over."""
        if self.ended is None:
            self.ended = GiveUp("another copy of the call was first", "outrun")
            # It was not in a wait.
            if not (self.delay and self.last and self.last[2] == self.began):
                failure = Failure((), self.ended.why, "OUTRUN", Stage.IN_FLIGHT)
                self.last = (self.last, self.began, self._monotonic(), failure, self.ended)
        return self.record()

    def record(self, inner: Record | None = None) -> Record:
        """Return the record of the attempts so far."""
        rule = "ok" if self.ended is None else self.ended.rule
        tries = timeline(self.last, self.started, self.plan.policy.backoff)
        return Record(self.name, tries, self._elapsed, rule, why(self.ended), inner, self.copies)

    def outcome(self, value: object, error: Exception | None = None) -> Outcome[Any]:
        """Return the outcome of a call that has ended with a result or an error."""
        if self.ended is None:
            self.last = (self.last, self.began, self._monotonic(), None, None)
            return Ok(value, self.record())
        record = self.record()
        if isinstance(self.ended, Defer):
            return Deferred(self.ended.at, error, value, record)
        return GaveUp(error, value, record)

    def _attach(self, error: Exception) -> None:
        """Attach the record and a note to the last error, unless the policy does not match it; emit the end."""
        if self.number > 1 or self.ended is None or self.ended.rule != "not_matched":
            attach(error, self.record)
        retried = self.ended is not None and self.ended.rule not in _NOT_RETRIED and self.number + self.below > 1
        if retried and self.plan.outer_first:
            mark_spent(error, self.number + self.below, _MONOTONIC())
        self.emit_end(error)

    def returned(self, result: object = None) -> None:
        """Finish a call that returns a result, good or not retried, or that succeeds after a retry."""
        if self.guard is not None:
            self.guard.finish(self.ended)
        elif self._own is not None and self._own.low:
            self._own.succeeded(alone=True)
        # Only an end that was decided calls hooks; the rest is `heard`, inlined for speed. If the log did not write the
        # warning of the last retry, it does not write the success, which has a lower level.
        is_full = self.last is None or len(self.last) == FULL
        if self.ended is not None or LISTENERS or (is_full and LOGGED and _is_logged(INFO)):
            self.emit_end(value=result)

    def _call_hooks(
        self,
        field: str,
        hooks: tuple[Hook, ...],
        failure: Failure | None,
        decision: Retry | GiveUp,
        *,
        error: Exception | None,
        value: object,
    ) -> None:
        """Call the hooks of the policy; what they raise ends the call."""
        details = RetryDetails(
            function=self.name,
            args=self.args,
            kwargs=self.kwargs,
            attempt=len(entries_since(None, self.last)),
            error=error,
            value=value if error is None else None,
            failure=failure,
            delay=decision.delay if isinstance(decision, Retry) else None,
            rule=decision.rule,
            why=decision.why if isinstance(decision, GiveUp) else "",
            elapsed=self._elapsed,
        )
        for hook in hooks:
            answer = hook(details)
            if not hasattr(type(answer), "__await__"):
                continue
            if not self.awaits_hooks:
                answer_of(answer, field, hook)
            self.pending = (*self.pending, cast("Awaitable[object]", answer))

    async def await_hooks(self) -> None:
        """Await what hooks have returned, if they are coroutine functions."""
        pending, self.pending = self.pending, ()
        for each in pending:
            await each

    def _emit_retry(self, failure: Failure, decision: Retry, left: int | None) -> None:
        """Emit the event of a retry, of which the entry exists already."""
        from redrive import observe

        waited = self._waited() - decision.delay
        event = observe.CallRetryScheduled(
            name=self.name,
            attempt=self._counted,
            max_attempts=None if left is None else self._counted + left,
            failure=failure,
            delay=decision.delay,
            rule=decision.rule,
            waited=waited,
            elapsed=self._elapsed,
        )
        self.wait = observe.around(event)
        if not decision.delay:
            with self.wait:
                # Observers are called also where the wait is zero.
                pass

    def emit_end(self, error: Exception | None = None, value: object = None) -> None:
        """Emit the event of the end, unless the first attempt succeeded or its error is not matched."""
        ended = self.ended
        if self.is_copy:
            return
        if ended is None:
            is_silent = error is not None or self.number == 1
        else:
            is_silent = ended.rule in ("disabled", "nested") or (self.number == 1 and ended.rule == "not_matched")
        if is_silent:
            return
        hooks = self.plan.policy.give_up_hooks
        if hooks and isinstance(ended, GiveUp):
            self._call_hooks("on_give_up", hooks, self.previous, ended, error=error, value=value)
        if not heard(_CHANNEL, WARNING if isinstance(ended, GiveUp) else INFO):
            return
        from redrive import observe

        common: dict[str, Any] = {"name": self.name, "elapsed": self._elapsed, "waited": self._waited()}
        if ended is None:
            observe.emit(observe.CallSucceeded(attempts=self.number, **common))
            return
        common |= {"attempts": self._counted, "rule": ended.rule, "failure": self.previous, "error": error}
        if isinstance(ended, GiveUp):
            observe.emit(observe.CallGaveUp(why=ended.why, **common))
        else:
            observe.emit(observe.CallDeferred(at=ended.at, **common))

    @property
    def _elapsed(self) -> timedelta:
        return timedelta(0, self._monotonic() - self.started)

    def _waited(self) -> timedelta:
        """Return the sum of all waits that were decided on, the next one included."""
        fresh = entries_since(self._emitted, self.last)
        self._emitted, self._counted = self.last, self._counted + len(fresh)
        self._total_wait += sum((wait_in(entry) for entry in fresh), ZERO)
        return self._total_wait


def start(plan: Plan, name: str | None = None) -> CallState:
    """Return the state of a new call in the present scope, before its first attempt."""
    scope = SCOPE.get()
    clock = SYSTEM if scope is None else scope.clock
    state = CallState.begin(plan if scope is None else scope.applied(plan), clock.monotonic())
    state.bind(scope, name)
    if state.plan.once:
        refuse_copies(state.name)
    # Each copy of a hedged call takes part by itself.
    if state.plan.shares and not state.hedges:
        state.join_shared()
    return state
