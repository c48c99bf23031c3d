"""Transports for httpx that retry.

::

    with httpx.Client(transport=RetryTransport("5 100ms 5s")) as client:
        page = client.get("https://example.org/")

May import: `redrive.retrying` and below, and httpx (the extra ``httpx``). Must never: repeat a request with unknown
effect that is not idempotent, send earlier than a server asked, or take a body away from its reader.
"""

from redrive.contrib.httpx.classify import failure_of
from redrive.contrib.httpx.transport import AsyncRetryTransport, RetryTransport, wrap

__all__ = ["AsyncRetryTransport", "RetryTransport", "failure_of", "wrap"]
