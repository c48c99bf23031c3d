"""Calls that block: the loop of `redrive.retrying.run` with plain calls and ``clock.sleep``.

An attempt cannot be interrupted from outside without doing harm (a thread that is abandoned goes on working), so no
timeout cuts it off here. It is handed down instead: `redrive.deadline` tells the code below how long it may take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redrive.policy.outcome import Outcome
from redrive.retrying.plan import Plan
from redrive.retrying.run import Run, start

__all__ = ["call", "outcome", "proceed"]


def call(plan: Plan, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a whole call under what is in force here; see `proceed`."""
    return proceed(start(plan), function, args, kwargs)


def proceed(run: Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wait and call until it succeeds or is given up.

    Returns:
        What the function returned, last.

    Raises:
        Exception: what the function raised, last, unchanged.
    """
    run.plan.refuse_hedge("not one")
    run.plan.refuse_await("a plain function")
    token = run.publish()
    try:
        if run.guard is not None:
            run.admit()
        while True:
            if run.delay and run.sleep():
                return run.result
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                if not run.failed(error):
                    raise
            else:
                if run.accepts(result):
                    return result
    finally:
        run.retire(token)
        if run.guard is not None:
            run.drop()


def outcome(run: Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome[Any]:
    """The same, with an exception as a value."""
    try:
        result = proceed(run, function, args, kwargs)
    except Exception as error:
        if run.ended is None:  # raised by a predicate of the policy, not by what was called
            raise
        return run.surfaced(error)
    return run.succeeded(result)
