"""The error map of a key-value server: what it says about statuses that the client does not know (RFC 0013, RFC 0069).

A server can send statuses that were invented after the client was written. So it also hands out a JSON document that
names each of its statuses and tells the client how to behave, by attributes. Three rules keep that harmless:

* it is asked for **unknown** statuses only (RFC 0069); `redrive.contrib.couchbase.kv.classify_kv` sees to that;
* attributes that the client does not know are skipped, the others on the same entry still count;
* it decides *whether* the retry orchestrator is asked, never how long to wait: that is the strategy's business, so the
  ``retry`` object of an entry is read (`RetrySpec`) and not used by default (RFC 0049, "KV Error Map Handling").

And the traps that others fell into. A status has sixteen bits: a map with an entry above 0x7fff is as good as any
other. A key above 0xffff is no status; cut down to sixteen bits it would hit another one. One entry that cannot be read
costs that entry, not the map. ``temp`` says that the failure is temporary and not that it may be retried. An entry that
says ``no-retry`` is not retried, whatever else it says.

A map belongs to the node that sent it, so whoever owns a connection keeps one per node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated

import msgspec

from redrive.contrib.couchbase.verdict import SdkError, Verdict

__all__ = [
    "ATTRIBUTES",
    "RETRY_ATTRIBUTES",
    "ErrorMap",
    "ErrorMapEntry",
    "ErrorMapReading",
    "Remark",
    "RetrySpec",
    "read_error_map",
    "verdict_of_entry",
]

RETRY_ATTRIBUTES = frozenset({"retry-now", "retry-later", "auto-retry"})
"""Any of these is a retry indication."""
NO_RETRY = "no-retry"

ATTRIBUTES = RETRY_ATTRIBUTES | {
    NO_RETRY,
    "success",
    "item-only",
    "item-deleted",
    "item-locked",
    "invalid-input",
    "fetch-config",
    "conn-state-invalidated",
    "auth",
    "special-handling",
    "support",
    "temp",
    "internal",
    "system-constraint",
    "rate-limit",
    "subdoc",
    "dcp",
}
"""The attributes of both versions."""

_ERRORS = (  # the first attribute that an entry has decides what the caller gets
    ("auth", SdkError.AUTHENTICATION_FAILURE),
    ("rate-limit", SdkError.RATE_LIMITED),
    ("item-locked", SdkError.DOCUMENT_LOCKED),
    ("invalid-input", SdkError.INVALID_ARGUMENT),
    ("temp", SdkError.TEMPORARY_FAILURE),
    ("internal", SdkError.INTERNAL_SERVER_FAILURE),
)
_CLOSING = frozenset({"special-handling", "conn-state-invalidated"})  # a client that does not know what to do hangs up
_HIGHEST = 0xFFFF
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_MS = timedelta.max // _MILLISECOND


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """How the server would like to be asked again; not used by default (RFC 0049 and 0069 leave it to the strategy).

    Attributes:
        strategy: ``constant``, ``linear`` or ``exponential``.
        interval: the unit of the delays. Exponential means this number of milliseconds to the power of the retries so
            far, and not doubled as often.
        after: the delay before the first retry.
        ceil: no delay is longer; None for no bound.
        max_duration: no attempt begins this long after the first one, or later; None for no bound.
    """

    strategy: str
    interval: timedelta
    after: timedelta
    ceil: timedelta | None = None
    max_duration: timedelta | None = None

    def delay(self, retries: int) -> timedelta:
        """The delay before the next retry.

        Args:
            retries: how many there have been.
        """
        if retries == 0:
            return self.after
        top = _LONGEST_MS if self.ceil is None else self.ceil // _MILLISECOND
        return min(_SHAPES[self.strategy](self.interval // _MILLISECOND, retries, top), top) * _MILLISECOND

    def attempts(self) -> Iterator[timedelta]:
        """When the attempts begin, counted from the first one, until the longest duration has passed."""
        end = timedelta.max if self.max_duration is None else self.max_duration
        at, retries = timedelta(0), 0
        while at < end:
            yield at
            at += min(self.delay(retries), end - at)
            retries += 1


def _power(base: int, exponent: int, top: int) -> int:
    # Step by step and no further than the top: nobody needs ten to the fifteen-thousandth.
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
    """What a server says about one status.

    Attributes:
        status: 0 to 0xffff.
        name: the server's name of it.
        description: a sentence about it.
        attributes: those that are known.
        unknown_attributes: those that are not.
        spec: how the server would like to be asked again, if it says so.
    """

    status: int
    name: str = ""
    description: str = ""
    attributes: frozenset[str] = frozenset()
    unknown_attributes: tuple[str, ...] = ()
    spec: RetrySpec | None = None

    @property
    def indicates_retry(self) -> bool:
        """Whether the retry orchestrator is asked."""
        return not RETRY_ATTRIBUTES.isdisjoint(self.attributes) and NO_RETRY not in self.attributes


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """The error map of one node.

    Attributes:
        version: of the format; a server may answer with a lower one than it was asked for.
        revision: of the content.
        entries: what it says, by status.
        ignored: keys that are no status, or whose entry cannot be read.
    """

    version: int
    revision: int
    entries: Mapping[int, ErrorMapEntry] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def supersedes(self, other: ErrorMap) -> bool:
        """Whether it is newer than another map of the same node."""
        return self.revision > other.revision


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to log.

    Attributes:
        level: one of the levels of `logging`.
        text: what happened.
    """

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class ErrorMapReading:
    """What became of a server's answer to the question for its error map.

    Without a map the connection goes on: unknown statuses are then not retried.

    Attributes:
        error_map: the map; None if there is none, or it cannot be read.
        problem: why there is none; "" if there is.
        remarks: what to log about it.
    """

    error_map: ErrorMap | None
    problem: str = ""
    remarks: tuple[Remark, ...] = ()


class _Wire(msgspec.Struct):
    """The document, its entries not read yet."""

    version: int
    revision: int
    errors: dict[str, msgspec.Raw]


_Span = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_MS)]


class _WireRetry(msgspec.Struct, rename="kebab"):
    strategy: str
    interval: _Span
    after: _Span
    ceil: _Span | None = None
    max_duration: _Span | None = None


class _WireEntry(msgspec.Struct):
    name: str = ""
    desc: str = ""
    attrs: tuple[str, ...] = ()
    retry: msgspec.Raw = msgspec.Raw(b"null")


def read_error_map(body: bytes | str, *, status: int = 0) -> ErrorMapReading:
    """Read the answer to the question for the error map. Never raises: a server without a map is usable.

    Args:
        body: the value of the response.
        status: of the response.

    Returns:
        The map, or why there is none.
    """
    if status:
        return _unreadable(f"KV error map negotiation failed (status 0x{status:x})")
    if not body:
        return _unreadable("No content in response", Remark(logging.DEBUG, "loaded no error map"))
    try:
        wire = msgspec.json.decode(body, type=_Wire)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _unreadable(f"the error map cannot be read: {error}")
    entries: dict[int, ErrorMapEntry] = {}
    ignored: list[str] = []
    for key, raw in wire.errors.items():
        entry = _entry(key, raw)
        if entry is None:
            ignored.append(key)
        else:
            entries[entry.status] = entry
    skipped = tuple(Remark(logging.WARNING, f"skipped the error map's entry {key!r}") for key in ignored)
    loaded = Remark(logging.DEBUG, f"loaded error map version {wire.version}, revision {wire.revision}")
    error_map = ErrorMap(wire.version, wire.revision, MappingProxyType(entries), tuple(ignored))
    return ErrorMapReading(error_map, remarks=(*skipped, loaded))


def _unreadable(problem: str, *more: Remark) -> ErrorMapReading:
    return ErrorMapReading(None, problem, (Remark(logging.WARNING, problem), *more))


def _entry(key: str, raw: msgspec.Raw) -> ErrorMapEntry | None:
    try:
        status = int(key, 16)
        wire = msgspec.json.decode(raw, type=_WireEntry)
    except (ValueError, msgspec.MsgspecError):
        return None
    if not (0 <= status <= _HIGHEST and key.isalnum()):  # int() also takes signs, blanks and underscores
        return None
    attributes = frozenset(wire.attrs)
    unknown = tuple(name for name in wire.attrs if name not in ATTRIBUTES)
    return ErrorMapEntry(status, wire.name, wire.desc, attributes & ATTRIBUTES, unknown, _spec(wire.retry))


def _spec(raw: msgspec.Raw) -> RetrySpec | None:
    # It is not used by default, so one that is missing, broken or of the future is no reason to lose the entry.
    try:
        wire = msgspec.json.decode(raw, type=_WireRetry)
    except msgspec.MsgspecError:
        return None
    if wire.strategy not in _SHAPES:
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
    """Judge a status that the client does not know (RFC 0049, "KV Error Map Handling").

    Args:
        status: of the response.
        error_map: of the node that answered, if there is one.

    Returns:
        ``KV_ERROR_MAP_RETRY_INDICATED`` if the map indicates a retry; otherwise no reason.
    """
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
