"""Common parts of all adapters: an adapter reads a case completely, or fails.

An adapter that overlooks a field or a word of a case would report it as passed without a check. So it names the fields
and words that it understands; any other raises `UnknownWord`, which no deviation covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.errors import PolicyError
from tests.conformance.deviations import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["NOTES", "Entry", "Mismatch", "UnknownWord", "demand", "is_refused", "read", "word"]

Meaning = TypeVar("Meaning")

NOTES = frozenset({"id", "source", "file", "note", "also_in", "origin", "verified_by", "src", "status"})
"""Fields that name the origin of a case for human readers."""


class UnknownWord(Exception):
    """A word or a field of a case that the adapter does not understand."""


class Entry(dict[str, Any]):
    """The fields of a case; a field that is needed and missing is named."""

    def __missing__(self, field: str) -> Any:
        raise UnknownWord(f"no field {field!r}, which is needed")


def read(data: Mapping[str, Any], *fields: str, required: Iterable[str] = (), notes: Iterable[str] = NOTES) -> Entry:
    """Check that every field of a case is understood.

    Args:
        data: the case, or an object in it.
        *fields: the fields that the adapter understands.
        required: those of them that the case must have.
        notes: further fields that have no meaning for it.

    Returns:
        The same data.

    Raises:
        UnknownWord: it is no object, there is another field, or one is missing.
    """
    known = f"known: {', '.join(sorted(fields))}"
    if not isinstance(data, Mapping):
        raise UnknownWord(f"{data!r} is no object ({known})")
    if unknown := set(data) - set(fields) - set(notes):
        raise UnknownWord(f"fields {', '.join(sorted(unknown))} ({known})")
    if missing := set(required) - set(data):
        raise UnknownWord(f"no field {', '.join(sorted(missing))} ({known})")
    return Entry(data)


def demand(data: Mapping[str, Any], *fields: str) -> None:
    """Check that a case has at least one field to compare with.

    Args:
        data: the case.
        *fields: its possible outcomes.

    Raises:
        UnknownWord: none of them is there.
    """
    if not set(fields) & set(data):
        raise UnknownWord(f"no outcome (known: {', '.join(sorted(fields))})")


def word(name: Any, vocabulary: Mapping[str, Meaning]) -> Meaning:
    """Look a word up.

    Args:
        name: the word of the case.
        vocabulary: the words that the adapter understands.

    Returns:
        The value of the word.

    Raises:
        UnknownWord: it is not there.
    """
    if not isinstance(name, str | type(None)) or name not in vocabulary:
        raise UnknownWord(f"{name!r} (known: {', '.join(sorted(map(str, vocabulary)))})")
    return vocabulary[name]


_INVALID = {"invalid_policy", "invalid policy", "invalid"}


def is_refused(expected: object, make: Callable[[], object]) -> bool:
    """Check that a policy is refused, if that is the outcome that a case expects.

    Args:
        expected: the outcome of the case: ``"invalid_policy"``, or an object with ``"invalid_policy": true``.
        make: builds the policy.

    Returns:
        Whether the case expects that. If not, nothing was built.

    Raises:
        Mismatch: the policy is accepted.
    """
    if isinstance(expected, Mapping):
        refuses = any(expected.get(name) for name in ("invalid_policy", "invalid"))
        if refuses:
            read(expected, "invalid_policy", "invalid")
    else:
        refuses = isinstance(expected, str) and expected in _INVALID
    if not refuses:
        return False
    try:
        made = make()
    except PolicyError:
        return True
    raise Mismatch("a refusal", repr(made))
