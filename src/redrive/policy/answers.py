"""The failures and results by which a target signals overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.classify import Classifier, On, answer_of, matches, names_of, refuse_coroutine_function
from redrive.policy.failure import Failure

__all__ = ["THROTTLES", "Answers"]

THROTTLES = ("THROTTLED", "RETRY_AFTER")
"""Reasons of failures by which a target asks for patience."""


class Answers:
    """A filter for failures and results that signal overload.

    Args:
        named: exception types, their names, or reasons; or a function of the exception that returns True. A policy's
            classifier can be used: a failure matches if the returned reason is in `THROTTLES`.
        on_result: a predicate for results; None if no result matches.
        field: the name of ``named`` in messages.

    Raises:
        PolicyValueError: ``named`` is empty, ``on_result`` is not callable, or one of them is a coroutine function.
    """

    __slots__ = ("named", "on_result")
    named: tuple[str, ...] | Classifier

    def __init__(self, named: On, on_result: Callable[[Any], bool] | None, field: str) -> None:
        if on_result is not None and not callable(on_result):
            raise PolicyValueError(f"on_result={on_result!r}: it is a function that takes what is returned")
        refuse_coroutine_function(named, field)
        refuse_coroutine_function(on_result, "on_result")
        self.named = named if callable(named) and not isinstance(named, type) else names_of(named, field)
        self.on_result = on_result

    def has_error(self, error: BaseException) -> bool:
        """Return True if an exception matches."""
        if isinstance(self.named, tuple):
            try:
                failure = Failure.of(error)
            except PolicyError:  # a signal with a delay that is none: whoever reads the signal says so
                return False
            return matches(frozenset(self.named), "any", failure)
        said = answer_of(self.named(error), "a predicate", self.named)
        if isinstance(said, Failure):
            said = said.reason
        return said in THROTTLES if isinstance(said, str) else bool(said)

    def has_result(self, result: object) -> bool:
        """Return True if a result matches."""
        if self.on_result is None:
            return False
        return bool(answer_of(self.on_result(result), "on_result", self.on_result))
