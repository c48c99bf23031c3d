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
from typing import Any

from redrive.policy.outcome import Outcome
from redrive.retrying.cut import Cut, cut
from redrive.retrying.plan import Plan
from redrive.retrying.run import Run, start

__all__ = ["attempts", "call", "outcome", "proceed"]

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
        from redrive.retrying.race import race

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
                judge = run.failed if bound is None or not bound.fired else run.cut_off
                if not judge(error):
                    raise
            else:
                if run.accepts(result):
                    return result
    finally:
        run.retire(token)
        if run.guard is not None:
            run.drop()


async def outcome(run: Run, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome[Any]:
    """The same, with an exception as a value."""
    try:
        result = await proceed(run, function, args, kwargs)
    except Exception as error:
        if run.ended is None:  # raised by a predicate of the policy, not by what was called
            raise
        return run.surfaced(error)
    return run.succeeded(result)
