"""What a text has given so far: each piece once, with the place of its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from redrive.errors import ScheduleSyntaxError
from redrive.schedule.english.tokens import Place, TextLine, shortened, written_forms

# The names of pieces in messages, in the plural.
_PLURALS = {
    "often": "intervals",
    "count": "numbers of times",
    "biweekly": "intervals",
    "days": "lists of days of the week",
    "clocks": "lists of times",
    "part": "parts of the day",
    "month_days": "lists of days of the month",
    "months": "lists of months",
    "window": "windows of hours",
    "minutes": "lists of minutes of an hour",
    "tz": "time zones",
    "start": "starts",
    "until": "ends",
    "gap": "treatments of times that do not exist",
    "business": "definitions of business hours",
    "schedule": "schedules",
    "timeout": "timeouts",
    "catch_up": "limits of a late start",
    "jitter": "spreads",
    "strategy": "overlap strategies",
    "subject": "descriptions of what is refreshed",
    "heading": "headings",
    "last_failure": "last failures",
    "give_up_after": "limits in time",
    "give_up_since": "limits in time",
    "attempts": "numbers of attempts",
    "further": "delays after further failures: described twice",
    "retry": "descriptions of retries",
    "spacing": "delays between retries",
    "final": "endings",
    "never": "endings",
    "keep": "overlap strategies",
    "go_on": "overlap strategies",
    "except_days": "lists of excepted days",
    "except_months": "lists of excepted months",
    "exact": "exact forms",
    "reset": "resets of attempt_no",
    "not_except_days": "lists of excepted days",
    "not_except_months": "lists of excepted months",
    "task": "descriptions of what is refreshed",
    "gives_up": "endings",
    "exhausted": "endings",
}


class Header(msgspec.Struct, frozen=True):
    """A line with others below it."""

    line: TextLine
    # The failure after which those below are done; None for what is done when it gives up.
    of_failure: int | None


class Limit(msgspec.Struct, frozen=True):
    """The number of attempts in all."""

    attempts: int
    # True if it describes the attempts themselves, and not only when it gives up.
    is_plan: bool = False


class Pieces:
    """Values by their names, each with its place in the text."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, Place]] = {}
        self.remarks: list[str] = []

    def remark(self, text: str) -> None:
        """Add a remark about a reading that an author could mistake."""
        self.remarks.append(text)

    def put(self, name: str, value: object, place: Place) -> None:
        """Add a piece; raise `ScheduleSyntaxError` with both places if it was given before."""
        if name in self._found:
            wrong(place, f"two {_PLURALS[name]}: {self._found[name][1]} and {place}", "one of them only")
        self._found[name] = (value, place)

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - each name has its own type
        """Return a piece."""
        return self._found[name][0] if name in self._found else default

    def place(self, *names: str) -> Place:
        """Return the place of the first of some pieces that was given."""
        return next(self._found[name][1] for name in names if name in self._found)

    def into(self, other: Pieces) -> None:
        """Add all of these pieces to others."""
        for name, (value, place) in self._found.items():
            other.put(name, value, place)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __bool__(self) -> bool:
        return bool(self._found)


def wrong(place: Place, problem: str, *forms: str) -> NoReturn:
    """Raise `ScheduleSyntaxError` for a place, with forms that would work."""
    if place.text and "'" not in problem and '"' not in problem:
        problem = f"{problem}: {shortened(place.text)!r}"
    raise ScheduleSyntaxError.at(problem + written_forms(forms), place.line, place.column)
