"""What every adapter shares: it reads a case completely, or fails.

An adapter that overlooks a field or a word of a case would call it passed without having looked. So it names the fields
and words that it understands; any other raises `UnknownWord`, which no deviation covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NOTES", "UnknownWord", "demand", "read", "word"]

Meaning = TypeVar("Meaning")

NOTES = frozenset({"id", "source", "file", "note", "also_in", "origin", "verified_by", "src", "status"})
"""Fields that tell people where a case comes from."""


class UnknownWord(Exception):
    """The case says something that the adapter does not understand."""


def read(data: Mapping[str, Any], *fields: str, notes: Iterable[str] = NOTES) -> Mapping[str, Any]:
    """Check that every field of a case is understood.

    Args:
        data: the case, or an object in it.
        *fields: the fields that the adapter understands.
        notes: further fields that have no meaning for it.

    Returns:
        The same data.

    Raises:
        UnknownWord: there is another field.
    """
    if unknown := set(data) - set(fields) - set(notes):
        raise UnknownWord(f"fields {', '.join(sorted(unknown))} (known: {', '.join(sorted(fields))})")
    return data


def demand(data: Mapping[str, Any], *fields: str) -> None:
    """Check that a case says at least something to compare with.

    Args:
        data: the case.
        *fields: its possible outcomes.

    Raises:
        UnknownWord: none of them is there.
    """
    if not set(fields) & set(data):
        raise UnknownWord(f"no outcome (known: {', '.join(sorted(fields))})")


def word(name: str, vocabulary: Mapping[str, Meaning]) -> Meaning:
    """Look a word up.

    Args:
        name: the word of the case.
        vocabulary: what the adapter understands.

    Returns:
        What the word does.

    Raises:
        UnknownWord: it is not there.
    """
    if name not in vocabulary:
        raise UnknownWord(f"{name!r} (known: {', '.join(sorted(vocabulary))})")
    return vocabulary[name]
