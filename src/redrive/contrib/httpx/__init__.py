"""Transports for httpx that retry.

::

    with httpx.Client(transport=RetryTransport("5 100ms 5s")) as client:
        page = client.get("https://example.org/")

May import: `redrive.retrying` and below, and httpx (the extra ``httpx``). Must never: repeat a request with unknown
effect that is not idempotent, send earlier than a server asked, or take a body away from its reader.

Each attempt sends the same headers, the same key, and the same body from its beginning. A body that cannot be read
twice (a generator) is sent once. The caller gets a response for every status, or httpx's own exception with a note; its
`redrive.retrying.Record` is ``response.extensions["redrive"]`` or ``error.__retry__``.

A transport returns a response when its head has arrived; the caller reads the body. A body that breaks off is a failed
attempt only if the transport has read it: short bodies are read, and with ``read=None`` all. Redirects and
authentication are made of several requests; each of them is retried separately.
"""

from __future__ import annotations

from redrive.contrib.httpx.classify import failure_of
from redrive.contrib.httpx.transport import AsyncRetryTransport, RetryTransport

__all__ = ["AsyncRetryTransport", "RetryTransport", "failure_of"]
