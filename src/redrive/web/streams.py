"""The streams of events that a user holds open."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from redrive.operate.exchange import Refusal

#: Streams of one user in a process. The pages of a browser share one.
MOST: Final = 20

_HEADERS: Final = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}


class Streams:
    """The number of open streams of each user: each of them holds a connection and a task."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def open(self, user: str, events: AsyncIterator[str]) -> StreamingResponse:
        """Return the response with the events, which counts until it ends.

        Raises:
            Refusal: 429, the user has too many.
        """
        if self._open[user] >= MOST:
            detail = f"{user} has {MOST} streams open: close a page, or read pages without updates"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": "60"})
        self._open[user] += 1
        return _Stream(self._open, user, events)


class _Stream(StreamingResponse):
    """A response with events that counts until it ends."""

    def __init__(self, counted: Counter[str], user: str, events: AsyncIterator[str]) -> None:
        super().__init__(events, headers=_HEADERS, media_type="text/event-stream")
        self._counted = counted
        self._user = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._counted[self._user] -= 1
            # Users without a stream are not kept.
            self._counted += Counter()
