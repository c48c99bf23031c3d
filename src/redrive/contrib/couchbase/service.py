"""The error codes of the query and analytics services.

A response has a list of errors; each has a code, a message, possibly a retry flag, and possibly a cause with a code of
its own. Only the **first** error decides. A `CodeRow` matches an error by its code and, if the row has them, by its
message or its cause; the first matching row applies. As for key-value there are two tables per service: one for the
reasons of retries, one for the errors of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from redrive.contrib.couchbase.document import Pairs, decode, quoted
from redrive.contrib.couchbase.verdict import Profile, SdkError


@dataclass(frozen=True, slots=True)
class ServiceError:
    """One error of a service's response."""

    #: 0 if the response has none.
    code: int
    message: str
    #: The retry flag, ``retry`` or (analytics) ``retriable``; None if the response has none.
    retry: bool | None = None
    #: The ``reason`` object; empty if the response has none.
    cause: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    #: The other fields, and a ``reason`` that is not an object.
    context: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    #: One sentence for each field that could not be read.
    problems: tuple[str, ...] = ()

    @property
    def cause_code(self) -> int | None:
        """The code of the cause; None if there is none or it is not a number."""
        return _number(self.cause.get("code"))

    @property
    def detail(self) -> str:
        """Code, message, and what could not be read."""
        unread = f" (cannot be read: {'; '.join(self.problems)})" if self.problems else ""
        return f"{self.code} {self.message}{unread}"


class AllCodes(Container[object]):
    """All codes except some."""

    def __init__(self, *, but: Iterable[int] = ()) -> None:
        self._but = frozenset(but)

    def __contains__(self, code: object) -> bool:
        return code not in self._but


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRow:
    """A pattern that an error of a service must match."""

    codes: Container[object]
    #: A pattern that is searched for in the message; "" for any.
    message: str = ""
    #: The codes of the cause; empty for any, or none.
    causes: frozenset[int] = frozenset()
    #: True if the error's retry flag must be true.
    flagged: bool = False
    #: True if the strict profile has no such row.
    extended_only: bool = False

    def matches(self, error: ServiceError, profile: Profile) -> bool:
        """Return True if the row applies to an error."""
        return (
            error.code in self.codes
            and (not self.flagged or error.retry is True)
            and (not self.causes or error.cause_code in self.causes)
            and (not self.extended_only or profile is Profile.EXTENDED)
            and re.search(self.message, error.message, re.IGNORECASE | re.DOTALL) is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReason(CodeRow):
    """An error that goes to the retry orchestrator."""

    reason: str
    #: True if the statement must be prepared anew first.
    prepares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeError(CodeRow):
    """The error of the caller for an error of a service."""

    error: SdkError


R = TypeVar("R", bound=CodeRow)


def first_match(rows: Iterable[R], error: ServiceError, profile: Profile) -> R | None:
    """Return the first row that applies to an error; None if there is none."""
    return next((row for row in rows if row.matches(error, profile)), None)


_PLAIN = re.compile(r"(\d+):(.*)", re.DOTALL | re.ASCII)
_DIGITS = re.compile(r"-?\d{1,18}", re.ASCII)
_KNOWN = frozenset({"code", "msg", "retry", "retriable", "reason"})
# Lists in lists: more than any service sends.
_DEEPEST = 8


def read_service_errors(body: bytes | str) -> tuple[ServiceError, ...]:
    """Read the errors of an answer in any form that the services use. Never raises.

    A field that cannot be read costs that field only: `ServiceError.problems` names it, and the others are kept.

    Args:
        body: an object with ``errors``, one error, an array of errors, or the text ``code:message``.

    Returns:
        The errors, in order; none for an empty body; one with code 0 for a body that cannot be read.
    """
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    bare = text.strip()
    if not bare:
        return ()
    if bare[0] in "{[":
        try:
            document = decode(bare)
        except ValueError:
            return (_undecodable(bare),)
        return tuple(_errors(document, bare))
    return (_plain(bare) or _undecodable(bare),)


def _errors(document: object, text: str) -> Iterator[ServiceError]:
    """Return the errors of a document of any form."""
    if not isinstance(document, Pairs):
        yield from _listed(document, "")
        return
    if "errors" not in document:
        yield _one(document)
        return
    given = document.pop("errors")
    match given:
        case list():
            twice = ("errors: given more than once, the last one counts",) if "errors" in document.twice else ()
            yield from _listed(given, "errors", twice)
        case Pairs():
            yield _one(given, ("errors: one error instead of a list",))
        case _:
            told = (f"errors: {quoted(given)} is no list",)
            yield _one(document, told) if _KNOWN & set(document) else _undecodable(text, told)


def _listed(entries: object, where: str, told: tuple[str, ...] = (), depth: int = 0) -> Iterator[ServiceError]:
    """Return the errors of a list. Null entries are skipped."""
    pending = told
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        here = f"{where}[{place}]"
        if entry is None:
            pending = (*pending, f"{here}: null is no object")
            continue
        if isinstance(entry, Pairs):
            yield _one(entry, pending)
        elif isinstance(entry, list) and depth < _DEEPEST:
            yield from _listed(entry, here, (*pending, f"{here}: a list in the list of errors"), depth + 1)
        else:
            said = (_plain(entry) or ServiceError(0, entry)) if isinstance(entry, str) else _undecodable(quoted(entry))
            yield replace(said, problems=(*pending, f"{here}: {quoted(entry)} is no object"))
        pending = told
    if pending != told:
        yield _undecodable("null", pending)


def _one(pairs: Pairs, told: tuple[str, ...] = ()) -> ServiceError:
    """Read one error, field by field."""
    problems = [*told, *(f"{key}: given more than once, the last value counts" for key in pairs.twice)]
    code, message = _code(pairs, problems), _message(pairs, problems)
    flags = [_flag(pairs, name, problems) for name in ("retry", "retriable")]
    cause = pairs.get("reason")
    if cause is not None and not isinstance(cause, dict):
        problems.append(f"reason: {quoted(cause)} is no object")
    unread = {"reason": cause} if cause is not None and not isinstance(cause, dict) else {}
    context = {key: value for key, value in pairs.items() if key not in _KNOWN}
    return ServiceError(
        code,
        message,
        next((flag for flag in flags if flag is not None), None),
        MappingProxyType(cause if isinstance(cause, dict) else {}),
        MappingProxyType(context | unread),
        tuple(problems),
    )


def _code(pairs: Pairs, problems: list[str]) -> int:
    given = pairs.get("code", 0)
    code = _number(given)
    if isinstance(given, bool | int) and code is not None:
        return code
    outcome = "there is no code" if code is None else f"read as {code}"
    problems.append(f"code: {quoted(given)} is no whole number; {outcome}")
    return code or 0


def _message(pairs: Pairs, problems: list[str]) -> str:
    given = pairs.get("msg", "")
    if isinstance(given, str):
        return given
    problems.append(f"msg: {quoted(given)} is no text")
    return "" if given is None else quoted(given)


def _flag(pairs: Pairs, name: str, problems: list[str]) -> bool | None:
    given = pairs.get(name)
    if given is None or isinstance(given, bool):
        return given
    problems.append(f"{name}: {quoted(given)} is neither true nor false")
    return None


def _number(given: object) -> int | None:
    """Return a code that is a whole number, also as a text or with a fraction of zero; None for any other value."""
    match given:
        case bool():
            return None
        case int():
            return given
        case float() if given.is_integer():
            return int(given)
        case str() if _DIGITS.fullmatch(given.strip()):
            return int(given)
    return None


def _plain(text: str) -> ServiceError | None:
    found = _PLAIN.fullmatch(text.strip())
    code = _number(found[1]) if found else None
    return ServiceError(code, found[2].strip()) if found and code is not None else None


def _undecodable(text: str, problems: tuple[str, ...] = ()) -> ServiceError:
    return ServiceError(0, f"Failed to decode error: {text}", problems=problems)
