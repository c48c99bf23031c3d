"""Cases that redrive answers differently on purpose: ``deviations.toml``, read and checked.

An entry names a case by its key, or by its fingerprint where the key would be clumsy, and gives the reason. A table
case also has ``answer``: redrive's answer, exactly as the adapter reports it. The case passes as an expected failure
only if the adapter reports this answer; with any other one, and with the answer that the case expects, the test fails.
A case with a hand-written test has no ``answer``: the test asserts redrive's behaviour.

An answer is the right side of the comparison that fails in the adapter (``assert expected == given``), or ``given`` of
a `Mismatch`, or, where redrive raises one of its errors, the class and the message. `plain` turns it into a value that
TOML can express.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from redrive.errors import RedriveError
from tests.conformance.groups import ListingError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.conformance.loading import Case

__all__ = ["MISSING", "Deviation", "Deviations", "Mismatch", "load_deviations", "plain"]

MISSING = object()
"""Stands for an answer that was not reported or not written down."""

_DECIMALS = 9


class Mismatch(AssertionError):
    """An unexpected answer, for values that ``assert expected == given`` cannot compare, such as bounds.

    Attributes:
        given: the answer; a deviation names it.
    """

    def __init__(self, expected: object, given: object) -> None:
        super().__init__(f"expected {expected!r}, given {given!r}")
        self.given = given


@dataclass(frozen=True)
class Deviation:
    """One entry.

    Attributes:
        reason: why redrive answers differently.
        answer: redrive's answer, as TOML has it; `MISSING` for a case with a hand-written test.
    """

    reason: str
    answer: Any = MISSING

    def verify(self, run: Callable[[], None], compared: Callable[[], Any]) -> None:
        """Run a case and check that redrive gives the answer of this entry.

        Args:
            run: runs the adapter.
            compared: returns the right side of the comparison that failed last, or `MISSING`.

        Raises:
            AssertionError: the case passes, or redrive gives another answer.
        """
        try:
            run()
        except (AssertionError, RedriveError) as error:
            given = _given(error, compared)
            if given is MISSING:
                raise
            if _text(plain(given)) != _text(self.answer):
                message = f"deviations.toml expects the answer {self.answer!r}, but it is {plain(given)!r}"
                raise AssertionError(message) from error
            return
        raise AssertionError(f"the case passes: remove it from deviations.toml ({self.reason})")


def _given(error: AssertionError | RedriveError, compared: Callable[[], Any]) -> Any:
    if isinstance(error, Mismatch):
        return error.given
    return compared() if isinstance(error, AssertionError) else error


def _text(answer: Any) -> str:
    return json.dumps(answer, sort_keys=True, default=repr)


def plain(answer: Any) -> Any:
    """Express an answer in the types of TOML.

    Args:
        answer: the value that an adapter compared.

    Returns:
        Texts, numbers, lists and tables; None is the text ``null``, a duration its seconds, an error its class and
        message, and a number is rounded to nine decimals.
    """
    return next((form(answer) for kind, form in _FORMS if isinstance(answer, kind)), repr(answer))


_FORMS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda answer: answer.name),
    ((bool, int, str), lambda answer: answer),
    (float, lambda answer: round(answer, _DECIMALS)),
    (type(None), lambda _: "null"),
    (timedelta, lambda answer: plain(answer.total_seconds())),
    (date, lambda answer: answer.isoformat()),
    (BaseException, lambda answer: f"{type(answer).__name__}: {answer}"),
    (type, lambda answer: answer.__name__),
    (dict, lambda answer: {str(name): plain(value) for name, value in answer.items()}),
    ((list, tuple), lambda answer: [plain(each) for each in answer]),
    ((set, frozenset), lambda answer: sorted(map(plain, answer), key=_text)),
)


@dataclass(frozen=True)
class Deviations:
    """The entries, by key or fingerprint."""

    entries: dict[str, Deviation]

    def of(self, case: Case) -> Deviation | None:
        """Return the entry of a case; None if redrive gives the answer of the file."""
        return self.entries.get(case.key) or self.entries.get(case.fingerprint)

    def problems(self, cases: Iterable[Case]) -> list[str]:
        """Return a sentence for each entry that names no case."""
        known = {name for case in cases for name in (case.key, case.fingerprint)}
        return [f"deviations.toml names {name!r}, which does not exist" for name in self.entries if name not in known]


def load_deviations(path: Path) -> Deviations:
    """Read ``deviations.toml``.

    Args:
        path: the file.

    Returns:
        The deviations.

    Raises:
        ListingError: an entry lacks its case or reason, has an unknown key, or stands there twice.
    """
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("deviation", [])
    found: dict[str, Deviation] = {}
    for entry in entries:
        if set(entry) - {"answer"} != {"case", "reason"} or not (entry["case"] and entry["reason"]):
            raise ListingError(f"a deviation has a case, a reason and, for a table case, an answer: {entry}")
        if entry["case"] in found:
            raise ListingError(f"{entry['case']!r} deviates twice")
        found[entry["case"]] = Deviation(entry["reason"], entry.get("answer", MISSING))
    return Deviations(found)
