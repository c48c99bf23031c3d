"""Calls that are awaited: the loop of `redrive.retrying.run` under asyncio or trio.

Here a timeout does cut an attempt off: ``attempt_timeout``, and a deadline that was given. The attempt is cancelled by
the means of the running library and ends as a `TimeoutError`, a failure like any other: ``on`` says whether it is a
candidate (``TimeoutError``, or the reason ``TIMEOUT``). It was in flight, so nobody knows whether it took effect; only
a policy with ``idempotent=True`` tries again.

A cancellation that comes from outside passes at once. It is a ``BaseException`` in both libraries, and no form of
redrive looks at anything but ``Exception``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from redrive.policy import Failure
from redrive.policy.classify import Answer, answer_of, is_coroutine_function
from redrive.policy.outcome import Outcome
from redrive.retrying.plan import Plan
from redrive.retrying.run import Run, start
from redrive.retrying.timeout import Cut, cut

__all__ = ["attempts", "call", "failed", "outcome", "proceed"]

_Function = Callable[..., Awaitable[Any]]


async def call(plan: Plan, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a whole call under what is in force here; see `proceed`."""
    return await proceed(start(plan), function, args, kwargs)


async def proceed(run: Run, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wait and call until it succeeds or is given up.

    Returns:
        What the function returned, last.

    Raises:
        Exception: what the function raised, last, unchanged.
    """
    if run.hedges:
        from redrive.retrying.hedged_call import race

        return await race(run, attempts, function, args, kwargs)
    return await attempts(run, function, args, kwargs)


async def attempts(run: Run, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same without hedges."""
    bound: Cut | None = None
    token = run.publish()
    try:
        if run.guard is not None:
            run.admit()
        while True:
            if run.delay and await run.asleep():
                return run.result
            try:
                if run.bounded:
                    with (bound := cut(run)):
                        result = await function(*args, **kwargs)
                else:
                    result = await function(*args, **kwargs)
            except Exception as error:
                if not await failed(run, error, timed_out=bound is not None and bound.fired):
                    raise
            else:
                if await _accepts(run, result) if run.plan.awaits else run.accepts(result):
                    return result
    finally:
        run.retire(token)
        if run.guard is not None:
            run.drop()


async def failed(run: Run, error: Exception, *, timed_out: bool = False) -> bool:
    """Decide what becomes of an attempt that raised; await the classifier if that is a coroutine function.

    Args:
        run: of the call.
        error: what the attempt raised.
        timed_out: whether redrive has cut it off.

    Returns:
        Whether it is retried.
    """
    on = run.plan.policy.on
    if run.plan.awaits and not run.off and callable(on) and is_coroutine_function(on):
        at = run.clock.monotonic()
        return run.judge(error, at, timed_out=timed_out, said=await cast("Awaitable[Answer]", on(error)))
    return run.cut_off(error) if timed_out else run.failed(error)


async def _accepts(run: Run, result: Any) -> bool:
    """Whether a result is the end of the call; the predicates that are coroutine functions are awaited."""
    rejected_by = []
    for number, rejects in enumerate(() if run.off else run.plan.policy.predicates):
        if rejects is None:
            continue
        said = rejects(result)
        if is_coroutine_function(rejects):
            said = await cast("Awaitable[bool]", said)
        if answer_of(said, "on_result", rejects):
            rejected_by.append(number)
    return run.judge_result(result, Failure.of_result(result, tuple(rejected_by)) if rejected_by else None)


async def outcome(run: Run, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome[Any]:
    """The same, with an exception as a value."""
    try:
        result = await proceed(run, function, args, kwargs)
    except Exception as error:
        if run.ended is None:  # raised by a predicate of the policy, not by what was called
            raise
        return run.surfaced(error)
    return run.succeeded(result)
