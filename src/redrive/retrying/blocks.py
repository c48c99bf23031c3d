"""Blocks: ``for attempt in policy: with attempt: ...``, for work that is no function.

The loop waits, the attempt catches. An attempt that fails and will be retried takes its exception; one that surfaces
lets it go as it came. What an async loop can do more is waiting without blocking, and cutting an attempt off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextvars import Token
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from redrive.policy import Failure
from redrive.retrying.context import Scope
from redrive.retrying.plan import Plan
from redrive.retrying.record import failure_in
from redrive.retrying.run import Run, start
from redrive.retrying.timeout import Cut, cut

__all__ = ["Attempt", "Attempts"]

_FRESH, _RUNNING, _RETRY, _OVER = "fresh", "running", "retry", "over"


class Attempt:
    """One attempt of a block. Enter it once.

    Attributes:
        result: what the block came to, for a policy with ``on_result``; set it inside the block.
    """

    def __init__(self, run: Run, *, is_async: bool) -> None:
        self.result: Any = None
        self._run = run
        self._number = run.number
        self._before = run.last
        self._is_async = is_async
        self._cut: Cut | None = None
        self._token: Token[Scope | None] | None = None
        self.state = _FRESH

    @property
    def number(self) -> int:
        """Counted from 1."""
        return self._number

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline of this attempt, not below 0; None without one."""
        ends = self._run.ends
        return None if ends is None else max(0.0, ends - self._run.clock.monotonic())

    @property
    def deadline(self) -> datetime | None:
        """The instant at which this attempt should have ended, aware; None without one."""
        ends, clock = self._run.ends, self._run.clock
        return None if ends is None else clock.now() + timedelta(seconds=ends - clock.monotonic())

    @property
    def previous(self) -> Failure | None:
        """Why the attempt before this one failed; None for the first."""
        return None if self._before is None else failure_in(self._before)

    @property
    def uid(self) -> str:
        """The same for all attempts of one loop and for no other: an idempotency key."""
        return self._run.uid

    def __enter__(self) -> Self:
        if self.state != _FRESH:
            raise RuntimeError(f"attempt {self.number} has been entered before; each turn of the loop brings a new one")
        if self._run.guard is not None:
            self._run.admit()
        self.state = _RUNNING
        self._token = self._run.publish()
        self._cut = cut(self._run) if self._is_async and self._run.bounded else None
        if self._cut is not None:
            self._cut.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool:
        self.state = _OVER
        try:
            if self._cut is None:
                return self._judge(error)
            try:
                self._cut.__exit__(kind, error, traceback)
            except TimeoutError as overrun:
                if self._judge(overrun):
                    return True
                raise
            return self._judge(error)
        finally:
            if self._token is not None:
                self._run.retire(self._token)
            if self.state != _RETRY:
                self._run.drop()

    def _judge(self, error: BaseException | None) -> bool:
        """Whether the loop goes on; an error is taken then."""
        run = self._run
        if error is None:
            retry = not run.accepts(self.result)
        elif isinstance(error, Exception):
            judge = run.failed if self._cut is None or not self._cut.fired else run.cut_off
            retry = judge(error)
        else:
            return False
        if retry:
            self.state = _RETRY
        return retry


class Attempts:
    """The loop over the attempts of one call; it is its own iterator, in one colour or the other.

    Args:
        plan: of the policy.
        name: which block this is, for messages.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._run: Run | None = None
        self._attempt: Attempt | None = None

    def __iter__(self) -> Iterator[Attempt]:
        return self

    def __next__(self) -> Attempt:
        run = self._advance()
        if run is None:
            raise StopIteration
        try:
            over = bool(run.delay) and run.sleep()
        except BaseException:
            run.drop()
            raise
        if over:
            raise StopIteration
        return self._next(run, is_async=False)

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return self

    async def __anext__(self) -> Attempt:
        run = self._advance()
        if run is None:
            raise StopAsyncIteration
        try:
            over = bool(run.delay) and await run.asleep()
        except BaseException:
            run.drop()
            raise
        if over:
            raise StopAsyncIteration
        return self._next(run, is_async=True)

    def _advance(self) -> Run | None:
        """The run if there is another attempt."""
        if self._run is None:
            self._plan.refuse_hedge("a block")
            self._plan.refuse_await("a block")
            self._run = start(self._plan, self._name)
            return self._run
        state = _OVER if self._attempt is None else self._attempt.state
        if state in (_FRESH, _RUNNING):
            raise RuntimeError("a loop over a policy needs `with attempt:` in its body, else it cannot see failures")
        return self._run if state == _RETRY else None

    def _next(self, run: Run, *, is_async: bool) -> Attempt:
        self._attempt = Attempt(run, is_async=is_async)
        return self._attempt
