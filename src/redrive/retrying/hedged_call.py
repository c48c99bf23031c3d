"""A hedged call: copies of it race, the first answer wins, and the losers are cancelled and awaited.

Each copy is a whole call of its own: its breaker is asked, its attempts are retried as the policy says, its attempts
are cut off by their timeout. All copies share one deadline and one budget; a copy beyond the first is started only if
the budget affords it, as a retry is (else an overload would be doubled by its own cure).

The rules are those of gRPC (proposal A6, "Hedging Policy"), said in terms of what a policy decides:

* A copy succeeds: that is the result.
* It fails with something that the policy does not retry ("fatal"): that is the result.
* It has failed otherwise: the next copy is started at once and not after its delay, or after the error's hint
  (pushback) where it has one; the delays go on from there.
* It fails for good (`redrive.errors.GiveUp`; gRPC's pushback that says no), or the breaker refuses it: no further copy
  is started, and those under way may still succeed.
* Nothing runs any more and no copy is left: the last error is the result.

No copy is started at the deadline or behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redrive.policy.outcome import surface
from redrive.retrying.context import enclosing
from redrive.retrying.hedging import Hedge
from redrive.retrying.run import Run
from redrive.retrying.shared import resolve_hedge
from redrive.retrying.task_group import Crew, Ended, crew

__all__ = ["race"]

_Attempts = Callable[[Run, Any, tuple[Any, ...], dict[str, Any]], Awaitable[Any]]
_FATAL = ("not_matched",)
_LAST = ("permanent", "breaker")


async def race(
    run: Run, attempts: _Attempts, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a hedged call.

    Args:
        run: of the call as a whole.
        attempts: makes the calls of one copy.
        function: what is called.
        args: its arguments.
        kwargs: its keyword arguments.

    Returns:
        What the copy that won returned.

    Raises:
        Exception: the error that was final, unchanged.
    """
    plan = resolve_hedge(run.plan.policy, run.name)
    if plan is None:  # an override has taken it away
        return await attempts(run, function, args, kwargs)
    run.above = enclosing(run, None)  # the tasks of the copies do not have those frames on their stacks
    async with crew() as group:
        heat = _Heat(run, plan, group, lambda twin: attempts(twin, function, args, kwargs))
        ended = await heat.run_to_the_end()
    if ended.error is None:
        run.emit_end()
        return ended.value
    if isinstance(ended.error, Exception):
        run.attach_copies(ended.error)
        run.emit_end(ended.error)
        return surface(ended.error)
    raise ended.error


class _Heat:
    """One race. Copies have the numbers from 1; timers have those below 0."""

    def __init__(self, run: Run, plan: Hedge, group: Crew, make: Callable[[Run], Awaitable[Any]]) -> None:
        self._run = run
        self._group = group
        self._make = make
        self._gaps = [gap.total_seconds() for gap in plan.after]
        self._left = plan.attempts
        self._sent: list[Run] = []
        self._running = 0
        self._timer = 0  # number of the timer that counts, 0 for none; all others are out of date
        self._timers = 0

    async def run_to_the_end(self) -> Ended:
        """Start copies until one is final."""
        self._start()
        last: Ended | None = None
        while self._running or self._timer:
            ended = await self._group.heard()
            if ended.number < 0:
                if ended.number == self._timer:
                    self._start()
                continue
            self._running -= 1
            last = ended
            twin = self._sent[ended.number - 1]
            if self._is_final(ended, twin):
                self._run.adopt(twin, self._sent)
                return ended
            self._next(twin)
        assert last is not None  # noqa: S101 - the first copy is always started
        self._run.adopt(self._sent[last.number - 1], self._sent)
        return last

    def _is_final(self, ended: Ended, twin: Run) -> bool:
        if ended.error is None or not isinstance(ended.error, Exception):
            return True
        return twin.ended is None or twin.ended.rule in _FATAL

    def _next(self, twin: Run) -> None:
        """A copy has failed: the next one at once, or when its error says so."""
        if twin.ended is not None and twin.ended.rule in _LAST:
            self._left = self._timer = 0
            return
        failure = twin.previous
        hint = None if failure is None else failure.hint
        if hint and twin.plan.policy.hints == "obey":
            self._set(hint.total_seconds())
        else:
            self._start()

    def _start(self) -> None:
        """Start the next copy, and the timer of the one after it; where there is no delay, that one too."""
        self._timer = 0
        while self._left and self._send():
            if self._left and (gap := self._gaps[len(self._sent) - 1]):
                self._set(gap)
                return

    def _send(self) -> bool:
        twin = self._run.copy()
        if twin.plan.shares:
            twin.watch(hedging=bool(self._sent))
        if self._sent and (self._is_too_late(0) or not (twin.guard is None or twin.guard.afford())):
            self._left = 0
            return False
        self._left -= 1
        self._running += 1
        self._sent.append(twin)
        self._group.start(len(self._sent), lambda: self._make(twin))
        return True

    def _set(self, seconds: float) -> None:
        self._timer = 0
        if not self._left or self._is_too_late(seconds):
            return
        self._timers += 1
        self._timer = -self._timers
        self._group.start(self._timer, lambda: self._run.clock.asleep(seconds))

    def _is_too_late(self, seconds: float) -> bool:
        limit = self._run.plan.limit
        return limit is not None and self._run.clock.monotonic() + seconds >= self._run.started + limit
