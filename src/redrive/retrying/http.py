"""HTTP by its own rules: which requests may be repeated, what an answer means for a retry, and idempotency keys.

Three documents say it. RFC 9110, 9.2.2: a client may repeat a request by itself if its method is idempotent, and
otherwise only if it knows that the request is, or that the first one was not applied. RFC 9110, 15, with RFC 6585 and
RFC 8470: what a status says about the first one. And the draft of the ``Idempotency-Key`` header: how a request that is
not idempotent becomes so, because the server recognises it. No HTTP library is imported; a request is its method and
headers, an answer its status and headers.

======  ==============================================================================  ===============================
status  says                                                                            a retry
======  ==============================================================================  ===============================
408     the request did not arrive as a whole (RFC 9110, 15.5.9)                        of any request
409     with a key: the first request with it is being processed (draft-07, 2.7)        of that request
421     sent to the wrong server (RFC 9110, 15.5.20)                                    of any request
425     refused because it came early, and might be a replay (RFC 8470, 5.2)            of any request
429     refused: too many requests (RFC 6585, 4)                                        of any request
5xx     something failed, nobody knows when; also all statuses that do not exist        if the request may be repeated
501...  501, 505, 506, 508, 510, 511: it would fail again                               no
other   the request is wrong, or it has succeeded                                       no
======  ==============================================================================  ===============================

**The key belongs to the call, not to the attempt**: the same on all its attempts, or the server cannot recognise them,
and another one for the next call, or the server takes that for a repetition and does nothing. So it is made before the
first attempt. `idempotency_key` refuses to make one inside of a call that is retried.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from redrive.policy import Failure, Stage
from redrive.policy.hints import Hint, chosen, retry_after
from redrive.retrying.context import SCOPE, SYSTEM, enclosing
from redrive.retrying.rng import unique

__all__ = ["IDEMPOTENCY_KEY", "IDEMPOTENT", "Headers", "failure_of", "idempotency_key", "is_idempotent"]

Headers: TypeAlias = Mapping[str, str] | Collection[tuple[str, str]]
"""Headers as HTTP libraries have them: a mapping, or pairs. The case of names does not matter."""

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The name of the header."""

IDEMPOTENT = frozenset(
    {
        "DELETE",
        "GET",
        "HEAD",
        "OPTIONS",
        "PUT",
        "TRACE",
        # safe, and therefore idempotent, by other documents than RFC 9110
        "PROPFIND",
        "QUERY",
        "REPORT",
        "SEARCH",
    }
)
"""The methods that may be repeated: those of RFC 9110, 9.2.2, and the safe ones of later documents."""

_KEYLESS = frozenset({"CONNECT"})  # a tunnel; no server looks at a key before it stands
_REFUSED = frozenset({408, 421, 425, 429})  # before anything was done
_FINAL = frozenset({501, 505, 506, 508, 510, 511})
_CONFLICT, _BAD, _UNPROCESSABLE = 409, 400, 422
_FINE, _WRONG = range(100, 400), range(400, 500)


def is_idempotent(method: str, headers: Headers = ()) -> bool:
    """Whether a request may be repeated although nobody knows whether the first one took effect.

    Args:
        method: of the request, in any case.
        headers: of the request. A key makes it repeatable, on a server that looks at it; send none to others.
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
    """What an answer means for a retry.

    Args:
        method: of the request.
        status: of the answer.
        headers: of the answer; ``Retry-After`` becomes the hint.
        sent: headers of the request.
        now: the present instant, aware; by default that of the clock in force.
        error: the exception that stands for the answer; its classes and its message become the failure's.

    Returns:
        None if nothing has failed. Otherwise the failure, with the reason ``HTTP_503`` and so on. Its stage is *in
        flight* only where the request may not be repeated and nobody knows whether it took effect; so a policy need
        not know the request. It is no candidate where a retry would be answered in the same way, and permanent where
        the server complains about the key.
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
    hint = _hint(headers, _now() if now is None else now).delay
    return failure._replace(
        stage=Stage.IN_FLIGHT if unknown else Stage.ANSWERED, hint=failure.hint if hint is None else hint
    )


def idempotency_key(uid: str | None = None) -> str:
    """The value of an ``Idempotency-Key`` for one call; make it before the first attempt, and send it with each.

    Args:
        uid: what is unlike that of any other call: ``attempt.uid`` in a block, or the id of a job. By default something
            new is drawn.

    Returns:
        The value, in the double quotes that the draft wants.

    Raises:
        RuntimeError: something new would be drawn inside of a call that is retried, so that each attempt would have a
            key of its own.
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
    """What a status says about the key, if it may (draft-07, 2.7)."""
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


def _now() -> datetime:
    scope = SCOPE.get()
    return (SYSTEM if scope is None else scope.clock).now()
