"""Common parts of the adapters of ``couchbase.json``: a case that is read completely, and the words of the SDKs.

`Reading` records which fields an adapter has read. A field that the adapter understands but has not used in a case,
since another field led it elsewhere, is refused like an unknown one: no part of a case is overlooked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import redrive.errors
from redrive.contrib.couchbase import SdkError
from tests.conformance.adapters.vocabulary import NOTES, UnknownWord, demand, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conformance.loading import Case

__all__ = ["Reading", "error_name", "parts", "same_error", "snake", "text"]


class Reading(dict[str, Any]):
    """An object of a case, with a record of the fields that were read.

    Args:
        data: the object.
        fields: those that the adapter understands.
        notes: those that have no meaning for it.

    Raises:
        UnknownWord: it has another field.
    """

    def __init__(self, data: Any, fields: Iterable[str], notes: Iterable[str] = NOTES) -> None:
        if not isinstance(data, dict):
            raise UnknownWord(f"{data!r} is no object (known: {', '.join(sorted(fields))})")
        read(data, *fields, notes=notes)
        super().__init__((name, value) for name, value in data.items() if name in set(fields))
        self._unread = set(self)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise UnknownWord(f"no field {name}, beside {', '.join(sorted(self)) or 'none'}")
        self._unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, and mark the field as read."""
        self._unread.discard(name)
        return super().get(name, default)

    def finish(self) -> None:
        """Refuse fields that were not read.

        Raises:
            UnknownWord: there is such a field.
        """
        if self._unread:
            used = ", ".join(sorted(set(self) - self._unread)) or "nothing"
            raise UnknownWord(f"fields {', '.join(sorted(self._unread))} are not used together with {used}")


def parts(
    case: Case, fields: Iterable[str], outcomes: Iterable[str], *, notes: Iterable[str] = ("jvm_text",)
) -> tuple[Reading, Reading]:
    """Return a case's input and outcome, both checked; ``divergence`` and ``jvm_text`` are about other systems.

    Raises:
        UnknownWord: it has other fields, or no outcome.
    """
    read(case.data, "input", "expected", notes=NOTES | {"group", "divergence"})
    expected = Reading(case.data["expected"], outcomes, notes=NOTES | set(notes))
    demand(expected, *outcomes)
    return Reading(case.data["input"], fields), expected


def text(given: object, *known: str) -> str:
    """Return a field that must be a text.

    Raises:
        UnknownWord: it has another type.
    """
    if not isinstance(given, str):
        raise UnknownWord(f"{given!r} (known: {', '.join(known) or 'a text'})")
    return given


def snake(name: str) -> str:
    """Return a name in the spelling of Python: ``lastDispatchedTo`` is ``last_dispatched_to``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s.-]+", "_", name.strip()).lower()


# ------------------------------------------------------------------------------------------------------ names of errors

_OURS = {
    "RequestCanceled": ("RequestCancelled",),
    "Timeout": ("AmbiguousTimeout", "UnambiguousTimeout"),
    "timeout": ("AmbiguousTimeout", "UnambiguousTimeout"),
    "Shutdown": ("ClientClosed",),
    "TooManyRequestsInRetry": ("TooManyInRetry",),
    "CircuitBreakerOpen": ("CircuitOpen",),
    "InvalidArgument": ("PolicyValueError",),
}
"""Errors of the SDKs that have another name here, or several."""

_KNOWN = (
    {error.value for error in SdkError} | {name for name in redrive.errors.__all__ if name[0].isupper()} | set(_OURS)
)


def error_name(given: object, *also: str) -> str:
    """Return the name of an error in a case, without an explanation in brackets and without ``Exception`` at its end.

    Raises:
        UnknownWord: no such error is known.
    """
    bare = re.sub(r"\s*\([^()]*\)$", "", text(given, "the name of an error"))
    for name in (bare, bare.removesuffix("Exception")):
        if name in _KNOWN or name in also:
            return name
    raise UnknownWord(
        f"{given!r} (known: the errors of RFC 0058 and of redrive{''.join(f', {each}' for each in also)})"
    )


def same_error(name: str, error: BaseException | None) -> bool:
    """Return True if an error has this name; an error of a server carries its name as ``name``."""
    if error is None:
        return False
    ours = {kind.__name__ for kind in type(error).__mro__} | {getattr(error, "name", "")}
    return name in ours or bool(ours & set(_OURS.get(name, ())))
