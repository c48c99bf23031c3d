"""The outcome of an attempt with a handler that has raised."""

from __future__ import annotations

import asyncio

from redrive.app.failures import ERROR_TEXT, clean, failed
from redrive.engine.outcome import Cancelled, Failed, Outcome, Snoozed
from redrive.errors import Cancel, PolicyError, Snooze
from redrive.policy import Failure, Stage, parse_duration
from redrive.policy.failure import qualified_name

_TIMEOUT = ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception")


class AttemptTimeout(Exception):
    """The attempt took longer than its policy allows."""


class HandlerCancelled(Exception):
    """The handler, or a future that it awaited, was cancelled, and not by the worker."""


def was_cancelled(outcome: Outcome) -> bool:
    """Return True if the attempt failed because its handler was cancelled, and not by the worker."""
    return isinstance(outcome, Failed) and outcome.failure.error_type == qualified_name(HandlerCancelled)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an attempt with a handler that raised this error."""
    try:
        return _matched(error)
    except BaseException:  # noqa: BLE001 - the methods of a foreign exception may raise anything
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
