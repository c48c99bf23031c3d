"""The error map of a key-value server: the meaning of statuses that the client does not have (RFC 0013, RFC 0069).

A server can send statuses that are newer than the client. It therefore offers a JSON document that names each of its
statuses and gives the client instructions, by attributes. Rules:
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated

import msgspec

from redrive.contrib.couchbase.document import Pairs, decode, quoted
from redrive.contrib.couchbase.verdict import SdkError, Verdict

#: Any of these is a retry indication.
RETRY_ATTRIBUTES = frozenset({"retry-now", "retry-later", "auto-retry"})
NO_RETRY = "no-retry"

#: The attributes of both versions.
ATTRIBUTES = RETRY_ATTRIBUTES | {
    *(NO_RETRY, "success", "item-only", "item-deleted", "item-locked", "invalid-input", "fetch-config"),
    *("conn-state-invalidated", "auth", "special-handling", "support", "temp", "internal", "system-constraint"),
    *("rate-limit", "subdoc", "dcp"),
}

# The first attribute that an entry has decides what the caller gets.
_ERRORS = (
    ("auth", SdkError.AUTHENTICATION_FAILURE),
    ("rate-limit", SdkError.RATE_LIMITED),
    ("item-locked", SdkError.DOCUMENT_LOCKED),
    ("invalid-input", SdkError.INVALID_ARGUMENT),
    ("temp", SdkError.TEMPORARY_FAILURE),
    ("internal", SdkError.INTERNAL_SERVER_FAILURE),
)
# A client that cannot handle these attributes closes the connection.
_CLOSING = frozenset({"special-handling", "conn-state-invalidated"})
_STATUS = re.compile(r"(0[xX])?[0-9a-fA-F]+")
_HIGHEST = 0xFFFF
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_MS = timedelta.max // _MILLISECOND


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """How the server would like to be asked again; not used by default (RFC 0049 and 0069 leave it to the strategy)."""

    #: ``constant``, ``linear`` or ``exponential``.
    strategy: str
    #: The unit of the delays. Exponential means this number of milliseconds to the power of the retries so far, and
    #: not doubled as often.
    interval: timedelta
    #: The delay before the first retry.
    after: timedelta
    #: No delay is longer; None for no bound.
    ceil: timedelta | None = None
    #: No attempt begins this long after the first one, or later; None for no bound.
    max_duration: timedelta | None = None

    def delay(self, retries: int) -> timedelta:
        """Return the delay before the next retry, after the given number of retries."""
        if retries == 0:
            return self.after
        top = _LONGEST_MS if self.ceil is None else self.ceil // _MILLISECOND
        return min(_SHAPES[self.strategy](self.interval // _MILLISECOND, retries, top), top) * _MILLISECOND

    def attempts(self) -> Iterator[timedelta]:
        """Return the starts of the attempts, counted from the first one, until the longest duration has passed."""
        end = timedelta.max if self.max_duration is None else self.max_duration
        at, retries = timedelta(0), 0
        while at < end:
            yield at
            at += min(self.delay(retries), end - at)
            retries += 1


def _power(base: int, exponent: int, top: int) -> int:
    # Step by step up to the maximum, since a power may overflow.
    value = 1
    for _ in range(exponent):
        value *= base
        if value >= top or base < 2:  # noqa: PLR2004 - 0 and 1 do not grow
            break
    return value


_SHAPES: Mapping[str, Callable[[int, int, int], int]] = MappingProxyType(
    {
        "constant": lambda interval, _retries, _top: interval,
        "linear": lambda interval, retries, _top: interval * retries,
        "exponential": _power,
    }
)


@dataclass(frozen=True, slots=True)
class ErrorMapEntry:
    """The server's description of one status."""

    #: 0 to 0xffff.
    status: int
    #: The server's name of the status.
    name: str = ""
    description: str = ""
    #: The known attributes.
    attributes: frozenset[str] = frozenset()
    #: The other attributes.
    unknown_attributes: tuple[str, ...] = ()
    #: The server's retry delays, if it has any.
    spec: RetrySpec | None = None
    #: One sentence for each field that could not be read.
    problems: tuple[str, ...] = ()

    @property
    def indicates_retry(self) -> bool:
        """True if the retry orchestrator is asked."""
        return not RETRY_ATTRIBUTES.isdisjoint(self.attributes) and NO_RETRY not in self.attributes


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """The error map of one node."""

    #: The version of the format; a server may answer with a lower one than requested.
    version: int
    #: The revision of the content.
    revision: int
    #: The entries by status.
    entries: Mapping[int, ErrorMapEntry] = field(default_factory=dict)
    #: Keys that are not statuses, or with an entry that cannot be read.
    ignored: tuple[str, ...] = ()

    def supersedes(self, other: ErrorMap) -> bool:
        """Return True if it is newer than another map of the same node."""
        return self.revision > other.revision


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to log."""

    #: One of the levels of `logging`.
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class ErrorMapReading:
    """The result of reading a server's response to the request for its error map.

    Without a map the connection goes on: unknown statuses are then not retried.
    """

    #: None if there is no error map, or it cannot be read.
    error_map: ErrorMap | None
    #: The reason why there is none; "" if there is.
    problem: str = ""
    #: Log records about it.
    remarks: tuple[Remark, ...] = ()


_Span = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_MS)]


class _WireRetry(msgspec.Struct, rename="kebab"):
    strategy: str
    interval: _Span
    after: _Span
    ceil: _Span | None = None
    max_duration: _Span | None = None


def read_error_map(body: bytes | str, *, status: int = 0) -> ErrorMapReading:
    """Read the response to the request for the error map. Never raises: a server without a map is usable."""
    if status:
        return _unreadable(f"KV error map negotiation failed (status 0x{status:x})")
    if not body:
        return _unreadable("No content in response", Remark(logging.DEBUG, "loaded no error map"))
    try:
        document = decode(body)
    except ValueError as error:
        return _unreadable(f"the error map cannot be read: {error}")
    given = document.get("errors") if isinstance(document, Pairs) else None
    if not isinstance(document, Pairs) or not isinstance(given, Pairs):
        return _unreadable("the error map cannot be read: it has no object named errors")
    problems: list[str] = []
    version, revision = (_counted(document, name, problems) for name in ("version", "revision"))
    read = {key: _entry(key, fields) for key, fields in given.items()}
    ignored = tuple(key for key, entry in read.items() if entry is None)
    entries = {entry.status: entry for entry in read.values() if entry is not None}
    problems += [f"{each}: given more than once, the last one counts" for each in (*document.twice, *given.twice)]
    remarks = [Remark(logging.WARNING, f"the error map's {problem}") for problem in problems]
    remarks += [Remark(logging.WARNING, f"skipped the error map's entry {key!r}") for key in ignored]
    for entry in entries.values():
        about = f"the error map's entry 0x{entry.status:02x}"
        remarks += [Remark(logging.WARNING, f"{about}: {problem}") for problem in entry.problems]
    remarks.append(Remark(logging.DEBUG, f"loaded error map version {version}, revision {revision}"))
    return ErrorMapReading(ErrorMap(version, revision, MappingProxyType(entries), ignored), remarks=tuple(remarks))


def _unreadable(problem: str, *more: Remark) -> ErrorMapReading:
    return ErrorMapReading(None, problem, (Remark(logging.WARNING, problem), *more))


def _counted(document: Mapping[str, object], name: str, problems: list[str]) -> int:
    """Return a version or revision; 0, which is older than any, for one that cannot be read."""
    given = document.get(name)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    problems.append(f"{name}: {quoted(given)} is no whole number; read as 0")
    return 0


def _entry(key: str, fields: object) -> ErrorMapEntry | None:
    status = int(key, 16) if _STATUS.fullmatch(key) else _HIGHEST + 1
    if status > _HIGHEST or not isinstance(fields, dict):
        return None
    problems: list[str] = []
    name, description = (_text(fields, field, problems) for field in ("name", "desc"))
    given = _attributes(fields, problems)
    attributes = frozenset(given)
    unknown = tuple(name for name in given if name not in ATTRIBUTES)
    spec = _spec(fields.get("retry"), problems)
    return ErrorMapEntry(status, name, description, attributes & ATTRIBUTES, unknown, spec, tuple(problems))


def _text(fields: Mapping[str, object], name: str, problems: list[str]) -> str:
    given = fields.get(name, "")
    if isinstance(given, str):
        return given
    problems.append(f"{name}: {quoted(given)} is no text")
    return ""


def _attributes(fields: Mapping[str, object], problems: list[str]) -> list[str]:
    given = fields.get("attrs", [])
    if not isinstance(given, list):
        problems.append(f"attrs: {quoted(given)} is no list")
        return []
    problems += [f"attrs: {quoted(each)} is no text" for each in given if not isinstance(each, str)]
    return [each for each in given if isinstance(each, str)]


def _spec(given: object, problems: list[str]) -> RetrySpec | None:
    # It is not used by default, so one that is broken or of the future is no reason to lose the entry.
    if given is None:
        return None
    try:
        wire = msgspec.convert(given, _WireRetry)
    except msgspec.ValidationError as error:
        problems.append(f"retry: {error}")
        return None
    if wire.strategy not in _SHAPES:
        problems.append(f"retry: {quoted(wire.strategy)} is no strategy (known: {', '.join(_SHAPES)})")
        return None
    return RetrySpec(
        wire.strategy,
        wire.interval * _MILLISECOND,
        wire.after * _MILLISECOND,
        _span(wire.ceil),
        _span(wire.max_duration),
    )


def _span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else milliseconds * _MILLISECOND


def verdict_of_entry(status: int, error_map: ErrorMap | None) -> Verdict:
    """Judge a status that is unknown to the client (RFC 0049, "KV Error Map Handling")."""
    entry = error_map.entries.get(status) if error_map else None
    if entry is None:
        return Verdict(None, SdkError.COUCHBASE_EXCEPTION, detail=f"unknown status 0x{status:02x}")
    named = (error for attribute, error in _ERRORS if attribute in entry.attributes)
    return Verdict(
        reason="KV_ERROR_MAP_RETRY_INDICATED" if entry.indicates_retry else None,
        error=next(named, SdkError.COUCHBASE_EXCEPTION),
        detail=f"{entry.name}: {entry.description} (status 0x{status:02x})",
        closes=not _CLOSING.isdisjoint(entry.attributes),
        refreshes="fetch-config" in entry.attributes,
    )
