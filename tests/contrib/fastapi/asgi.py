"""Asks an ASGI application in this process, as a server would: its lifespan around it, its state in the request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class AsgiResponse:
    """The response of the application."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def ask(
    app: Any, path: str = "/", *, method: str = "GET", headers: Mapping[str, str] = {}, body: Any = None
) -> AsgiResponse:
    """Start the application, ask once, and stop it."""

    async def use() -> AsgiResponse:
        async with app.router.lifespan_context(app) as state:
            return await request(app, state, path, method=method, headers=headers, body=body)

    return asyncio.run(use())


async def request(
    app: Any,
    state: Mapping[str, Any] | None,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] = {},
    body: Any = None,
) -> AsgiResponse:
    """Ask an application that has started."""
    lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    if body is not None:
        lines.append((b"content-type", b"application/json"))
    scope = _scope("http", path, lines, state) | {"method": method, "scheme": "http"}
    sent = await _converse(
        app, scope, [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
    )
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return AsgiResponse(sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:]))


def listen(app: Any, path: str) -> list[Any]:
    """Start the application, open a WebSocket, and answer what was sent over it as JSON."""

    async def use() -> list[dict[str, Any]]:
        async with app.router.lifespan_context(app) as state:
            scope = _scope("websocket", path, [], state) | {"scheme": "ws", "subprotocols": []}
            return await _converse(app, scope, [{"type": "websocket.connect"}])

    return [json.loads(each["text"]) for each in asyncio.run(use()) if each["type"] == "websocket.send"]


def _scope(kind: str, path: str, headers: list[tuple[bytes, bytes]], state: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"testserver"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
        "state": dict(state or {}),
    }


async def _converse(app: Any, scope: dict[str, Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send messages to the application and return its messages."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("nothing more is said")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent
