"""Health probes of the dashboard: routes of their own, without authentication, with nothing but the names of checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from redrive.app.app import App
from redrive.runtime.health import StoreHealth, Verdict, named
from redrive.web import guard


class WebProbes:
    """The probes of a process that serves the dashboard.

    With several Apps it is ready while the database of one of them can be used: the pages of that one can be read.

    Args:
        apps: the Apps with the databases, by name.
        is_stopping: whether the server has been asked to stop.
    """

    def __init__(self, apps: Mapping[str, App], is_stopping: Callable[[], bool]) -> None:
        self._stores = {name: StoreHealth(app) for name, app in apps.items()}
        self._is_stopping = is_stopping
        self._has_started: Verdict | None = None

    def routes(self) -> list[HttpRoute]:
        """Return the routes of the probes."""
        # Probes are sent to the address of a container, so the host is not checked.
        found = {"/livez": self._live, "/readyz": self._ready, "/startupz": self._started}
        return [HttpRoute(path, _endpoint(verdict)) for path, verdict in found.items()]

    async def _live(self) -> Verdict:
        # The event loop that serves requests answers this one.
        return Verdict.of({"loop": True})

    async def _ready(self) -> Verdict:
        stores = await self._checks()
        serving = not self._is_stopping()
        return Verdict(stores.ok and serving, {**stores.checks, "serving": serving})

    async def _started(self) -> Verdict:
        verdict = self._has_started or await self._checks()
        if verdict.ok:
            self._has_started = verdict
        return verdict

    async def _checks(self) -> Verdict:
        found = await asyncio.gather(*[each.checks() for each in self._stores.values()])
        checks = named(dict(zip(self._stores, found, strict=True)))
        return Verdict(any(all(each.values()) for each in found), checks)


def _endpoint(ask: Callable[[], Awaitable[Verdict]]) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def answer(_: HttpRequest) -> Response:
        """Answer a probe."""
        verdict = await ask()
        status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
        headers = dict(guard.HEADERS)
        return Response(msgspec.json.encode(verdict), status, headers, media_type="application/json")

    return answer
