"""Errors in the program that uses redrive."""

from __future__ import annotations

from typing import Self

from redrive.errors.base import RedriveError

__all__ = [
    "AppLoadError",
    "CatchDefinitionError",
    "ConfigurationError",
    "PolicyError",
    "PolicySyntaxError",
    "PolicyValueError",
    "ScheduleError",
    "ScheduleSyntaxError",
    "TaskDefinitionError",
]


class ConfigurationError(RedriveError):
    """The program is configured in a way that cannot work."""


class PolicyError(ConfigurationError, ValueError):
    """The retry policy is not valid."""

    def __init__(
        self, message: str | None = None, *, text: str = "", at: int | None = None, problem: str | None = None
    ) -> None:
        super().__init__(message)
        #: The text that was read, or "".
        self.text = text
        #: Offset of the fault in ``text`` in characters, or None.
        self.at = at
        #: The message without the drawing of the text and without a position.
        self.problem = problem or str(self)

    @classmethod
    def with_caret(cls, text: str, at: int, problem: str, valid: str) -> Self:
        """Return an error that shows the text, a caret under the fault, and a valid form."""
        shown = "".join(c if c.isprintable() else " " for c in text)
        return cls(f"{problem}\n    {shown}\n    {' ' * at}^ {valid}", text=text, at=at, problem=problem)

    def within(self, where: str) -> Self:
        """Return the same error with a message that begins with its place in the program, such as ``task shop.pay``."""
        return type(self)(f"{where}: {self}", text=self.text, at=self.at, problem=self.problem)


class PolicySyntaxError(PolicyError):
    """The text of the policy cannot be read."""


class PolicyValueError(PolicyError):
    """The policy can be read but asks for something impossible."""


class ScheduleError(ConfigurationError, ValueError):
    """The schedule is not valid."""


class ScheduleSyntaxError(ScheduleError):
    """A sentence about a schedule cannot be read."""

    problem: str
    #: Counted from 1.
    line: int
    #: Counted from 1.
    column: int

    @classmethod
    def at(cls, problem: str, line: int, column: int) -> ScheduleSyntaxError:
        """Return the error for a fault at a line and a column, both from 1."""
        error = cls(f"line {line}, column {column}: {problem}")
        error.problem, error.line, error.column = problem, line, column
        return error


class TaskDefinitionError(ConfigurationError):
    """This function cannot be registered as a task."""


class CatchDefinitionError(ConfigurationError):
    """The catch task is missing or does not accept the request."""


class AppLoadError(ConfigurationError):
    """The reference does not lead to a redrive App."""
