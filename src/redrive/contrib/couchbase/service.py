"""What the query and analytics services have in common: errors with a code, and rows that say what a code means.

A service answers with a list of errors; each has a code, a message, maybe a flag that says whether to try again, and
maybe a cause with a code of its own. Only the **first** error decides. A `CodeRow` matches an error by its code and, if
the row says so, by its message or its cause; the first row that matches wins. There are two tables per service, as for
key-value: one for the reason to retry, one for what the caller gets.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

import msgspec

from redrive.contrib.couchbase.verdict import Profile, SdkError

__all__ = ["AllCodes", "CodeError", "CodeReason", "CodeRow", "ServiceError", "first_match", "read_service_errors"]


@dataclass(frozen=True, slots=True)
class ServiceError:
    """One error of a service's answer.

    Attributes:
        code: of the service; 0 if the answer has none.
        message: what it says.
        retry: its flag, ``retry`` or (analytics) ``retriable``; None if it has none.
        cause: its ``reason`` object; empty if it has none.
    """

    code: int
    message: str
    retry: bool | None = None
    cause: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def cause_code(self) -> object:
        """The code of the cause, if there is one."""
        return self.cause.get("code")


class AllCodes(Container[object]):
    """Every code but some.

    Args:
        but: those.
    """

    def __init__(self, *, but: Iterable[int] = ()) -> None:
        self._but = frozenset(but)

    def __contains__(self, code: object) -> bool:
        return code not in self._but


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRow:
    """What an error must be like for the row to be about it.

    Attributes:
        codes: the codes.
        message: a pattern that is searched for in the message; "" for any.
        causes: the codes of the cause; empty for any, or none.
        flagged: the error's retry flag must be true.
        extended_only: the strict profile has no such row.
    """

    codes: Container[object]
    message: str = ""
    causes: frozenset[int] = frozenset()
    flagged: bool = False
    extended_only: bool = False

    def matches(self, error: ServiceError, profile: Profile) -> bool:
        """Whether the row is about an error."""
        return (
            error.code in self.codes
            and (not self.flagged or error.retry is True)
            and (not self.causes or error.cause_code in self.causes)
            and (not self.extended_only or profile is Profile.EXTENDED)
            and re.search(self.message, error.message, re.IGNORECASE | re.DOTALL) is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReason(CodeRow):
    """An error that goes to the retry orchestrator.

    Attributes:
        reason: under which reason.
        prepares: the statement must be prepared anew first.
    """

    reason: str
    prepares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeError(CodeRow):
    """What the caller gets of an error.

    Attributes:
        error: the error of RFC 0058.
    """

    error: SdkError


R = TypeVar("R", bound=CodeRow)


def first_match(rows: Iterable[R], error: ServiceError, profile: Profile) -> R | None:
    """The first row that is about an error; None if no row is.

    Args:
        rows: in order.
        error: the error.
        profile: whose rules.
    """
    return next((row for row in rows if row.matches(error, profile)), None)


# ---------------------------------------------------------------------------------------------------- reading the body


class _WireError(msgspec.Struct):
    code: int = 0
    msg: str = ""
    retry: bool | None = None
    retriable: bool | None = None
    reason: dict[str, object] | None = None


class _WireErrors(msgspec.Struct):
    errors: list[_WireError]


_PLAIN = re.compile(r"(\d+):(.*)", re.DOTALL)


def read_service_errors(body: bytes | str) -> tuple[ServiceError, ...]:
    """Read the errors of an answer in any form that the services use. Never raises.

    Args:
        body: an object with ``errors``, one error, an array of errors, or the text ``code:message``.

    Returns:
        The errors, in order; none for an empty body; one with code 0 for a body that cannot be read.
    """
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    bare = text.strip()
    if not bare:
        return ()
    try:
        if bare[0] in "{[":
            return tuple(_service_error(wire) for wire in _wire_errors(bare))
    except msgspec.MsgspecError:
        return (_undecodable(bare),)
    plain = _PLAIN.fullmatch(bare)
    return (ServiceError(int(plain[1]), plain[2].strip()) if plain else _undecodable(bare),)


def _wire_errors(text: str) -> list[_WireError]:
    if text[0] == "[":
        return msgspec.json.decode(text, type=list[_WireError])
    try:
        return msgspec.json.decode(text, type=_WireErrors).errors
    except msgspec.ValidationError:
        return [msgspec.json.decode(text, type=_WireError)]


def _service_error(wire: _WireError) -> ServiceError:
    flag = wire.retry if wire.retry is not None else wire.retriable
    return ServiceError(wire.code, wire.msg, flag, MappingProxyType(wire.reason or {}))


def _undecodable(text: str) -> ServiceError:
    return ServiceError(0, f"Failed to decode error: {text}")
