"""HTTP clients of httpx that retry: transports which know how far each request got.

Answers: may this request be sent again, when, and with what? A transport is the one place in httpx that sees both the
request as it is sent and the connection that it is sent on, so it is the place where that is known::

    with httpx.Client(transport=RetryTransport("5 100ms 5s")) as client:
        page = client.get("https://example.org/")

May import: `redrive.retrying` and below, and httpx (the extra ``httpx``). Must never: send a request twice of which
nobody knows whether the first took effect, ask earlier than a server said, or take a body away from its reader.

**How far it got.** What decides is not the class of an exception but whether the first byte of the request may have
left (`evidence`). httpcore tells its steps to a callback, and that is proof: a timeout before the request was written
is harmless, the same timeout after it is not.

===========================================================================  ==========  ============================
what happened                                                                stage       sent again
===========================================================================  ==========  ============================
name not found, refused, no connection in time, pool full, proxy's refusal   not sent    any request
TLS failed                                                                   not sent    any request
TLS failed: the certificate is not trusted                                   not sent    none: it will not be trusted
HTTP/2: GOAWAY that names an earlier stream, RST_STREAM ``REFUSED_STREAM``   not sent    any request (RFC 9113, 8.7)
reset, closed, or too slow, from the first byte of the request on            in flight   one that may be repeated
half an answer                                                               in flight   one that may be repeated
an answer                                                                    answered    see `redrive.retrying.http`
===========================================================================  ==========  ============================

*May be repeated*: its method is idempotent (RFC 9110, 9.2.2), or it has an ``Idempotency-Key``; a policy with
``idempotent=True`` says it of all requests, and one with ``idempotent=False`` of none.

**What is sent again** is the same request: same headers, same key, same body from where it began. A body that cannot be
read twice (a generator) is sent once (`bodies`).

**What comes back** is what httpx would give: a response for every status, also for the last one of five 503s, and
httpx's own exceptions, with a note. `redrive.retrying.Record` tells how it came to that:
``response.extensions["redrive"]``, ``error.__retry__``.

**Where the transport ends.** It returns a response when its head is there; the body is its reader's. So a body that
breaks off half-way is a failed attempt only if it was read before: bodies that say that they are short are, and
``read=None`` has all of them read. Redirects and authentication are made of several requests; each of them is retried
for itself.
"""

from __future__ import annotations

from redrive.contrib.httpx.classify import failure_of
from redrive.contrib.httpx.transport import AsyncRetryTransport, RetryTransport

__all__ = ["AsyncRetryTransport", "RetryTransport", "failure_of"]
