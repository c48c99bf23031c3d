"""The answers of a request that were not given to its caller yet."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.contrib.http.classify import Library, Response
from redrive.policy.outcome import Ok, Outcome, Record
from redrive.retrying.context import SCOPE
from redrive.retrying.record import pass_spent

#: Bytes of a body that is read at once: what a connection of httpcore reads in one go.
SHORT = 64 * 1024

_EVENTS = "text/event-stream"
# What follows is another protocol (RFC 9110, 15.2.2).
_SWITCHED = 101
# Of a length in 64 bits; Python refuses to read very long numbers.
_DIGITS = 20


def is_declared(length: str, limit: int) -> bool:
    """Return True if the ``Content-Length`` of an answer ("" for none) is at most a limit, in bytes."""
    return length.isascii() and length.isdigit() and len(length) < _DIGITS and int(length) <= limit


def is_short(status: int, headers: Mapping[str, str], limit: int | None) -> bool:
    """Return True if the body of an answer should be read at once: its length is at most ``limit``, in bytes.

    Without a limit each body should, except for a stream of events and for what follows a switch of protocols.
    """
    if limit is None:
        return status != _SWITCHED and not headers.get("Content-Type", "").startswith(_EVENTS)
    return is_declared(headers.get("Content-Length", ""), limit)


class Held:
    """The answers of one request, by the copy of a hedged call that got them; other calls have one copy."""

    __slots__ = ("_held", "_library")

    def __init__(self, library: Library) -> None:
        self._library = library
        self._held: dict[object, Response] = {}

    def hold(self, response: Response) -> None:
        """Keep a response, which may be returned to the caller or be followed by another attempt."""
        self._held[_copy()] = response

    def former(self) -> Response | None:
        """Return the response of the attempt before, if there is one; it has not been closed yet."""
        return self._held.pop(_copy(), None) if self._held else None

    def answer(self, outcome: Outcome[Response]) -> tuple[Response, Record]:
        """Return the response for the caller and its record, or raise the last exception if that is no response."""
        error = None if isinstance(outcome, Ok) else outcome.error
        response = self._library.response_of(error)
        if error is not None and any(held is response for held in self._held.values()):
            # An error that `raise_for_status` makes of it has no mark of its own.
            pass_spent(error, response)
        else:
            response = outcome.unwrap()
        self._held = {copy: held for copy, held in self._held.items() if held is not response}
        return response, outcome.record

    def leftovers(self) -> list[Response]:
        """Remove and return the responses that are not returned to the caller; they must be closed."""
        if not self._held:
            return []
        left, self._held = list(self._held.values()), {}
        return left


def _copy() -> object:
    """Return the run of this copy of a hedged call; other calls have one run."""
    scope = SCOPE.get()
    return None if scope is None else scope.call
