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
501...  501, 505, 506, 508, 510, 511: it would fail again                               if it is named
4xx     the request is wrong                                                            if it is named
other   it has succeeded                                                                if ``statuses`` has it
======  ==============================================================================  ===============================

A policy names a status by its reason, ``on="HTTP_404"``, or in a rule; ``statuses`` replaces the table. A status that
is named is retried only if the request may be repeated, because a server can answer 404 to a POST after an effect.
``methods`` replaces the idempotent methods.

**An idempotency key belongs to the call, not to the attempt.** It is the same for all attempts, so that the server
recognises them, and another one for the next call, so that the server does not take that for a repetition. Therefore it
is made before the first attempt; `idempotency_key` raises inside of a retried call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from redrive.errors import PolicyValueError
from redrive.policy import Failure, Stage, hints
from redrive.policy.failure import Lasting
from redrive.policy.hints import Headers, HintReader, values
from redrive.policy.reason import STATUSES
from redrive.retrying.context import enclosing, present_clock
from redrive.retrying.rng import unique

__all__ = [
    "IDEMPOTENCY_KEY",
    "IDEMPOTENT",
    "METHODS",
    "Headers",
    "checked_methods",
    "checked_statuses",
    "failure_of",
    "idempotency_key",
    "is_idempotent",
]

_T = TypeVar("_T")

#: The name of the header.
IDEMPOTENCY_KEY = "Idempotency-Key"

#: The methods that may be repeated: those of RFC 9110, 9.2.2, and the safe ones of later documents.
IDEMPOTENT = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"}) | {
    # safe, and therefore idempotent, by other documents than RFC 9110
    *("PROPFIND", "QUERY", "REPORT", "SEARCH")
}

#: The methods that ``methods`` may name: IANA's registry of HTTP methods, without CONNECT and PRI, which open tunnels
#: and connections.
METHODS = IDEMPOTENT | {
    *("ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY"),
    *("MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PATCH", "POST", "PROPPATCH"),
    *("REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL"),
}

# A tunnel; no server reads a key before it exists.
_KEYLESS = frozenset({"CONNECT"})
# Before anything was done.
_REFUSED = frozenset({408, 421, 425, 429})
_FINAL = frozenset({501, 505, 506, 508, 510, 511})
_SENT = Stage.IN_FLIGHT
_CONFLICT, _BAD, _UNPROCESSABLE = 409, 400, 422
_FINE, _WRONG = range(100, 400), range(400, 500)


def is_idempotent(method: str, headers: Headers = (), *, methods: Collection[str] = IDEMPOTENT) -> bool:
    """Return True if a request may be repeated although the first one may have taken effect.

    Args:
        method: of the request, in any case.
        headers: of the request. A key makes it repeatable on a server that supports keys; send none to others.
        methods: the methods that may be repeated, in upper case.
    """
    name = method.upper()
    return name in methods or (name not in _KEYLESS and _has_key(headers))


def checked_statuses(statuses: Iterable[int] | None) -> frozenset[int] | None:
    """Return statuses that a user has named; None for none given.

    Raises:
        PolicyValueError: it is no list, or has something else than whole numbers from 200 to 599.
    """
    given = _listed(statuses, "statuses", "statuses=[404, 503]")
    for each in given or ():
        if isinstance(each, bool) or not isinstance(each, int) or each not in STATUSES:
            valid = f"{STATUSES[0]} to {STATUSES[-1]}"
            raise PolicyValueError(f"statuses: {each!r} is no status of HTTP: give whole numbers from {valid}")
    return None if given is None else frozenset(int(each) for each in given)


def checked_methods(methods: Iterable[str] | None) -> frozenset[str] | None:
    """Return methods that a user has named, in upper case; None for none given.

    Raises:
        PolicyValueError: it is no list, or has a name that is not in `METHODS`.
    """
    given = _listed(methods, "methods", 'methods=["GET", "POST"]')
    for each in given or ():
        if not isinstance(each, str) or each.upper() not in METHODS:
            known = "it opens a tunnel" if each == "CONNECT" else "see redrive.retrying.http.METHODS"
            raise PolicyValueError(f"methods: {each!r} is no method of HTTP that can be repeated: {known}")
    return None if given is None else frozenset(each.upper() for each in given)


def _listed(given: Iterable[_T] | None, field: str, example: str) -> tuple[_T, ...] | None:
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise PolicyValueError(f"{field}={given!r}: give a list, as in {example}")
    return tuple(given)


def failure_of(
    method: str,
    status: int,
    headers: Headers = (),
    *,
    sent: Headers = (),
    now: datetime | None = None,
    error: BaseException | None = None,
    statuses: Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
    hints: HintReader = hints.http,
) -> Failure | None:
    """Return the failure that an answer is; None for success.

    Args:
        method: of the request.
        status: of the answer.
        headers: of the answer; ``retry-after-ms`` or ``Retry-After`` becomes the hint.
        sent: headers of the request.
        now: the present instant, aware; by default that of the clock in force.
        error: the exception of the client library; its classes and its message become those of the failure.
        statuses: the statuses that are retried; by default those of the table. Others are lasting failures.
        methods: the methods of requests that may be repeated, once they were sent; by default `IDEMPOTENT`. With it,
            an answer to a request of another method without a key is lasting, whatever its status.
        hints: the reader of the headers; `redrive.policy.hints.ai` for AI services. If the server asks for a retry, the
            request may be repeated whatever the status, unless ``statuses`` or ``methods`` exclude that.

    Returns:
        The failure, with the reason ``HTTP_503`` and so on. Its stage is *in flight* only if the request may have taken
        effect and may not be repeated, so that a policy does not depend on the request. It is lasting if a retry would
        have the same answer, and permanent if the server forbids the retry.

    Raises:
        PolicyValueError: ``statuses`` or ``methods`` are not valid.
    """
    chosen, allowed = checked_statuses(statuses), checked_methods(methods)
    named = chosen is not None and status in chosen
    if status in _FINE and not named:
        return None
    base = Failure((), f"HTTP status {status} for {method.upper()}") if error is None else Failure.of(error)
    keyed = _has_key(sent)
    repeatable = is_idempotent(method, sent, methods=IDEMPOTENT if allowed is None else allowed)
    hint = hints(headers, present_clock().now() if now is None else now)
    # A server does not ask for a repetition of what it has done.
    refused = status in _REFUSED or (status == _CONFLICT and keyed) or (hint.again and chosen is None)
    passes = named if chosen is not None else refused or (status not in _WRONG and status not in _FINAL)
    once = Stage.ANSWERED if repeatable else Stage.IN_FLIGHT
    lasting = None
    if hint.stop:
        lasting = Lasting(hint.problem, once)
    elif not passes:
        lasting = Lasting(_complaint(method, status, keyed=keyed), once)
    elif allowed is not None and not repeatable:
        lasting = unlisted(method, f"HTTP_{status}")
    return base._replace(
        reason=f"HTTP_{status}",
        stage=once if passes and not refused else Stage.ANSWERED,
        hint=base.hint if hint.delay is None else hint.delay,
        permanent=hint.problem if hint.stop else base.permanent,
        lasting=lasting,
    )


def unlisted(method: str, reason: str) -> Lasting:
    """Return the verdict on a failure of a request that was sent, with a method that ``methods`` does not name."""
    return Lasting(f"{reason} is not retried, because {method.upper()} is not one of the policy's methods", _SENT)


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


def _complaint(method: str, status: int, *, keyed: bool) -> str:
    """Return the complaint of the server about a missing or reused key (draft-07, 2.7); "" if there is none."""
    if status == _UNPROCESSABLE and keyed:
        return "HTTP_422: the content is wrong, or the Idempotency-Key was used for another one before"
    if status == _BAD and not keyed and method.upper() not in IDEMPOTENT:
        return "HTTP_400: the request is wrong, or the server wants an Idempotency-Key with it"
    return ""


def _has_key(headers: Headers) -> bool:
    return any(value.strip(' \t"') for value in values(headers, "idempotency-key"))
