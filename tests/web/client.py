"""A client of an ASGI application, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

import redrive
from redrive.web import NoAuth, create_app


class Client:
    """Sends requests to an application from a test that is not asynchronous.

    Args:
        application: the application.
        headers: of each request.
    """

    def __init__(self, application: Any, headers: dict[str, str] | None = None) -> None:
        self._transport = httpx.ASGITransport(application, raise_app_exceptions=True)
        self._headers = headers or {}
        self.cookies = httpx.Cookies()

    def get(self, path: str, **given: Any) -> httpx.Response:
        """Send a GET request."""
        return self._send("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        """Send a POST request."""
        return self._send("POST", path, **given)

    def _send(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            """Send one request, and keep its cookies."""
            async with httpx.AsyncClient(
                transport=self._transport, base_url="http://localhost", headers=self._headers, cookies=self.cookies
            ) as client:
                response = await client.request(method, path, **given)
                self.cookies = client.cookies
                return response

        return asyncio.run(send())


class Operator(Client):
    """The pages of an app as JSON, for a user with the right to operate.

    Args:
        app: the app.
    """

    def __init__(self, app: redrive.App) -> None:
        super().__init__(create_app(app, auth=NoAuth(), reference="shop:app"), {"Origin": "http://localhost"})

    def read(self, path: str) -> Any:
        """Return the data of a page."""
        response = self.get(f"/api/v1{path}")
        assert 200 == response.status_code, response.text
        return response.json()

    def act(self, path: str, **form: Any) -> tuple[int, str]:
        """Send an action, and return the status and the note or the detail of the refusal."""
        response = self.post(f"/api/v1{path}", json=form)
        found = response.json()
        return response.status_code, found.get("note") or found["detail"]
