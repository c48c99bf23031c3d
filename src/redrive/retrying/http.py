"""HTTP semantics for retries: idempotent methods, the meaning of statuses, and idempotency keys.

Sources: RFC 9110, 9.2.2 (a client may repeat a request if its method is idempotent, or if it knows that the request is
or that the first one was not applied); RFC 9110, 15, with RFC 6585 and RFC 8470 (the meaning of a status); the draft of
the ``Idempotency-Key`` header. No HTTP library is imported: a request is its method and headers, an answer its status
and headers.

======  ==============================================================================  ===============================
status  meaning                                                                         a retry
======  ==============================================================================  ===============================
408     the request did not arrive as a whole (RFC 9110, 15.5.9)                        of any request
409     with a key: the first request with it is being processed (draft-07, 2.7)        of that request
421     sent to the wrong server (RFC 9110, 15.5.20)                                    of any request
425     refused because it came early, and might be a replay (RFC 8470, 5.2)            of any request
429     refused: too many requests (RFC 6585, 4)                                        of any request
5xx     failed at an unknown point; also all statuses that do not exist                 if the request may be repeated
501...  501, 505, 506, 508, 510, 511: it would fail again                               no
other   the request is wrong, or it has succeeded                                       no
======  ==============================================================================  ===============================

**An idempotency key belongs to the call, not to the attempt.** It is the same for all attempts, so that the server
recognises them, and another one for the next call, so that the server does not take that for a repetition. Therefore it
is made before the first attempt; `idempotency_key` raises inside of a retried call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from redrive.policy import Failure, Stage
from redrive.policy.hints import Hint, chosen, retry_after
from redrive.retrying.context import enclosing, present_clock
from redrive.retrying.rng import unique

__all__ = ["IDEMPOTENCY_KEY", "IDEMPOTENT", "Headers", "failure_of", "idempotency_key", "is_idempotent"]

Headers: TypeAlias = Mapping[str, str] | Collection[tuple[str, str]]
"""Headers as HTTP libraries have them: a mapping, or pairs. The case of names does not matter."""

#: The name of the header.
IDEMPOTENCY_KEY = "Idempotency-Key"

#: The methods that may be repeated: those of RFC 9110, 9.2.2, and the safe ones of later documents.
IDEMPOTENT = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"}) | {
    # safe, and therefore idempotent, by other documents than RFC 9110
    *("PROPFIND", "QUERY", "REPORT", "SEARCH")
}

# A tunnel; no server reads a key before it exists.
_KEYLESS = frozenset({"CONNECT"})
# Before anything was done.
_REFUSED = frozenset({408, 421, 425, 429})
_FINAL = frozenset({501, 505, 506, 508, 510, 511})
_CONFLICT, _BAD, _UNPROCESSABLE = 409, 400, 422
_FINE, _WRONG = range(100, 400), range(400, 500)


def is_idempotent(method: str, headers: Headers = ()) -> bool:
    """Return True if a request may be repeated although the first one may have taken effect.

    Args:
        method: of the request, in any case.
        headers: of the request. A key makes it repeatable on a server that supports keys; send none to others.
    """
    name = method.upper()
    return name in IDEMPOTENT or (name not in _KEYLESS and _has_key(headers))


def failure_of(  # noqa: PLR0913 - a request, an answer, and when
    method: str,
    status: int,
    headers: Headers = (),
    *,
    sent: Headers = (),
    now: datetime | None = None,
    error: BaseException | None = None,
) -> Failure | None:
    """Return the failure that an answer is; None for success.

    Args:
        method: of the request.
        status: of the answer.
        headers: of the answer; ``Retry-After`` becomes the hint.
        sent: headers of the request.
        now: the present instant, aware; by default that of the clock in force.
        error: the exception of the client library; its classes and its message become those of the failure.

    Returns:
        The failure, with the reason ``HTTP_503`` and so on. Its stage is *in flight* only if the request may have taken
        effect and may not be repeated, so that a policy does not depend on the request. It is no candidate if a retry
        would have the same answer, and permanent if the server rejects the key.
    """
    if status in _FINE:
        return None
    base = Failure((), f"HTTP status {status} for {method.upper()}") if error is None else Failure.of(error)
    failure = base._replace(reason=f"HTTP_{status}", stage=Stage.ANSWERED)
    keyed = _has_key(sent)
    if status in _WRONG and status not in _REFUSED and not (status == _CONFLICT and keyed):
        return failure._replace(candidate=False, permanent=_complaint(method, status, keyed=keyed))
    if status in _FINAL:
        return failure._replace(candidate=False)
    unknown = status not in _WRONG and not is_idempotent(method, sent)
    hint = _hint(headers, present_clock().now() if now is None else now).delay
    return failure._replace(
        stage=Stage.IN_FLIGHT if unknown else Stage.ANSWERED, hint=failure.hint if hint is None else hint
    )


def idempotency_key(uid: str | None = None) -> str:
    """Return the ``Idempotency-Key`` of one call. Make it before the first attempt, and send it with each.

    Args:
        uid: a unique identifier of the call: ``attempt.uid`` in a block, or the id of a job. By default a random one.

    Returns:
        The value, in the double quotes that the draft requires.

    Raises:
        RuntimeError: a random key would be made inside of a retried call, so that each attempt would have another key.
        ValueError: ``uid`` is empty, or has characters that cannot stand in a header.
    """
    if uid is None:
        callers = enclosing(None, None)
        if callers:
            raise RuntimeError(
                f"a new idempotency key inside of {callers[0].name}, which is retried, would be another one for each "
                "attempt: make it before the call, or from attempt.uid"
            )
        uid = str(UUID(unique(), version=4))
    if not _PRINTABLE.fullmatch(uid):
        raise ValueError(f"{uid!r} cannot be an idempotency key: use printable ASCII characters")
    return '"' + uid.replace("\\", "\\\\").replace('"', '\\"') + '"'


_PRINTABLE = re.compile("[ -~]+")


def _complaint(method: str, status: int, *, keyed: bool) -> str | None:
    """Return the complaint of the server about a missing or reused key (draft-07, 2.7); None if there is none."""
    if status == _UNPROCESSABLE and keyed:
        return "HTTP status 422: the content is wrong, or the Idempotency-Key was used for another one before"
    if status == _BAD and not keyed and method.upper() not in IDEMPOTENT:
        return "HTTP status 400: the request is wrong, or the server wants an Idempotency-Key with it"
    return None


def _hint(headers: Headers, now: datetime) -> Hint:
    date = next(_values(headers, "date"), None)
    return chosen(retry_after(value, now=now, response_date=date) for value in _values(headers, "retry-after"))


def _has_key(headers: Headers) -> bool:
    return any(value.strip(' \t"') for value in _values(headers, "idempotency-key"))


def _values(headers: Headers, name: str) -> Iterator[str]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return (value for given, value in pairs if given.lower() == name)
