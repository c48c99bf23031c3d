"""What an exception of a handler means for its attempt."""

from __future__ import annotations

import asyncio

from redrive.app.failures import ERROR_TEXT, clean, failed
from redrive.engine.outcome import Cancelled, Failed, Outcome, Snoozed
from redrive.errors import Cancel, PolicyError, Snooze
from redrive.policy import Failure, Stage, parse_duration
from redrive.policy.failure import qualified_name

__all__ = ["AttemptTimeout", "HandlerCancelled", "meaning", "was_cancelled"]

_TIMEOUT = ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception")


class AttemptTimeout(Exception):
    """The attempt took longer than its policy allows."""


class HandlerCancelled(Exception):
    """The handler, or something that it awaited, was cancelled, and not by the worker."""


def was_cancelled(outcome: Outcome) -> bool:
    """Return whether an attempt has failed because its handler was cancelled, and not by the worker."""
    return isinstance(outcome, Failed) and outcome.failure.error_type == qualified_name(HandlerCancelled)


def meaning(error: BaseException) -> Outcome:
    """Return the outcome of an attempt whose handler has raised.

    Args:
        error: what it raised; a foreign exception may raise when it is asked for its class.
    """
    try:
        return _matched(error)
    except BaseException:  # noqa: BLE001 - methods of a foreign exception may raise anything
        return failed(error)


def _matched(error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return _snoozed(error)
        case Cancel():
            return Cancelled(clean(error.why, ERROR_TEXT))
        case AttemptTimeout():
            (limit,) = error.args
            text = f"the attempt took longer than {limit.total_seconds():g} s"
            return Failed(Failure(_TIMEOUT, text, "TIMEOUT", Stage.IN_FLIGHT))
        case asyncio.CancelledError():
            cancelled = HandlerCancelled("the handler, or something that it awaited, was cancelled")
            cancelled.__cause__ = error
            return failed(cancelled)
        case _:
            return failed(error)


def _snoozed(signal: Snooze) -> Outcome:
    try:
        return Snoozed(parse_duration(signal.delay), clean(signal.why, ERROR_TEXT))
    except PolicyError as bad_delay:
        return failed(bad_delay)
