"""Health probes of the dashboard: routes of their own, without authentication, with nothing but the names of checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from redrive.app.app import App
from redrive.runtime.health import StoreHealth, Verdict
from redrive.web import guard


class WebProbes:
    """The probes of a process that serves the dashboard.

    Args:
        app: the App with the database.
        is_stopping: whether the server has been asked to stop.
    """

    def __init__(self, app: App, is_stopping: Callable[[], bool]) -> None:
        self._store = StoreHealth(app)
        self._is_stopping = is_stopping
        self._has_started = False

    def routes(self) -> list[HttpRoute]:
        """Return the routes of the probes."""
        # Probes are sent to the address of a container, so the host is not checked.
        found = {"/livez": self._live, "/readyz": self._ready, "/startupz": self._started}
        return [HttpRoute(path, _endpoint(verdict)) for path, verdict in found.items()]

    async def _live(self) -> Verdict:
        # The event loop that serves requests answers this one.
        return Verdict.of({"loop": True})

    async def _ready(self) -> Verdict:
        return Verdict.of({**await self._store.checks(), "serving": not self._is_stopping()})

    async def _started(self) -> Verdict:
        if self._has_started:
            return Verdict.of({"store": True, "schema": True})
        verdict = Verdict.of(await self._store.checks())
        self._has_started = verdict.ok
        return verdict


def _endpoint(ask: Callable[[], Awaitable[Verdict]]) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def answer(_: HttpRequest) -> Response:
        """Answer a probe."""
        verdict = await ask()
        status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
        headers = dict(guard.HEADERS)
        return Response(msgspec.json.encode(verdict), status, headers, media_type="application/json")

    return answer
