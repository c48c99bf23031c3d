"""The dashboard inside Django, under ASGI and WSGI.

::

    urlpatterns = [path("ops/redrive/", dashboard(task_backends["default"].app, auth=staff))]

Under WSGI each response is complete, so that no worker of the server is held by an open page: pages do not refresh
themselves there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping, MutableMapping
from http.cookies import SimpleCookie
from typing import Any, Final
from urllib.parse import quote

from redrive.app.app import App
from redrive.contrib import extra

with extra("django"):
    from asgiref.sync import sync_to_async
    from django.conf import settings
    from django.core.handlers.asgi import ASGIRequest
    from django.http import HttpResponse, StreamingHttpResponse
    from django.shortcuts import resolve_url
    from django.urls import re_path
    from django.views.decorators.csrf import csrf_exempt

from redrive.web import Auth, Credentials, Payloads, Resolver, Role, User, create_app
from redrive.web.asgi import STREAMS

__all__ = ["dashboard", "staff"]

Message = MutableMapping[str, Any]

# The key of Django's user in the scope of a request.
_USER: Final = "redrive.django.user"


def dashboard(
    app: App | Mapping[str, App],
    *,
    auth: Auth | Resolver,
    title: str = "",
    payloads: Payloads = Payloads.REDACTED,
    hosts: Collection[str] | None = None,
    reference: str = "APP",
) -> tuple[list[Any], None, None]:
    """Return the URL patterns of the dashboard, for ``path()`` in a URLconf.

    Django's own check of CSRF does not apply to them: the dashboard checks the origin of each request that changes
    something.

    Args:
        app: the App, such as ``task_backends["default"].app``, or several by their names.
        auth: as for `redrive.web.create_app`; `staff` uses Django's users.
        title: as for `redrive.web.create_app`.
        payloads: likewise.
        hosts: likewise.
        reference: likewise.

    Raises:
        ConfigurationError: ``auth`` is no way to authenticate.
    """
    application = create_app(app, auth=auth, title=title, payloads=payloads, hosts=hosts, reference=reference)
    loop = _Loop()

    async def view(request: Any, rest: str) -> Any:
        """Serve a request."""
        body = request.body
        is_asgi = isinstance(request, ASGIRequest)
        scope = _scope(request, rest, streams=is_asgi)
        if not rest.startswith("assets/"):
            scope[_USER] = await sync_to_async(_user)(request)
        call = _Call(application, scope, body)
        return await (call.response() if is_asgi else loop.run(call))

    # The dashboard authenticates by itself.
    view.login_required = False  # type: ignore[attr-defined]
    return [re_path("^(?P<rest>.*)$", csrf_exempt(view))], None, None


async def staff(credentials: Credentials) -> User | str | None:
    """Return Django's user: staff may read, superusers may operate, and strangers are sent to ``LOGIN_URL``."""
    user: Any = credentials.scope.get(_USER)
    if user is None or not user.is_authenticated:
        return f"{resolve_url(settings.LOGIN_URL)}?next={quote(str(credentials.scope['path']))}"
    if not (user.is_active and user.is_staff):
        return None
    return User(user.get_username(), Role.OPERATE if user.is_superuser else Role.READ)


def _user(request: Any) -> Any:
    user = getattr(request, "user", None)
    # It is read from the database at its first use, which must not be in the event loop.
    return user if user is not None and user.is_authenticated else None


def _scope(request: Any, rest: str, *, streams: bool) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "root_path": request.path.removesuffix(rest).rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": [(key.lower().encode(), value.encode("latin-1")) for key, value in request.headers.items()],
        "client": (request.META.get("REMOTE_ADDR") or "", 0),
        STREAMS: streams,
    }


class _Call:
    """One request to the dashboard."""

    def __init__(self, application: Callable[..., Any], scope: dict[str, Any], body: bytes) -> None:
        self._application = application
        self._scope = scope
        self._body: bytes | None = body
        self._sent: asyncio.Queue[Message] = asyncio.Queue(1)

    async def response(self) -> Any:
        """Return the response; one with more than one part is a stream."""
        served = self._application(self._scope, self._receive, self._sent.put)
        running = asyncio.create_task(served, name="redrive-request")
        start, first = await self.message(running), await self.message(running)
        if first.get("more_body"):
            return _response(StreamingHttpResponse(_Parts(self, running, first)), start)
        await running
        return _response(HttpResponse(first.get("body", b"")), start)

    async def message(self, running: asyncio.Task[None]) -> Message:
        """Return the next message of the application; raise its error if it has failed before."""
        getting = asyncio.create_task(self._sent.get())
        try:
            await asyncio.wait({running, getting}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                running.result()
            return getting.result()
        finally:
            getting.cancel()

    async def _receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Parts:
    """The parts of a stream."""

    def __init__(self, call: _Call, running: asyncio.Task[None], first: Message) -> None:
        self._call = call
        self._running = running
        self._next: Message | None = first
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        message = self._next
        if message is None:
            message = await self._call.message(self._running)
        if not message.get("more_body"):
            raise StopAsyncIteration
        self._next = None
        body: bytes = message.get("body", b"")
        return body

    def close(self) -> None:
        """End the stream, because the browser has left; Django calls it in any thread."""
        self._loop.call_soon_threadsafe(self._running.cancel)


def _response(response: Any, start: Mapping[str, Any]) -> Any:
    """Give a response of Django the status and the headers of the dashboard's."""
    response.status_code = start["status"]
    for raw, value in start["headers"]:
        name, text = raw.decode(), value.decode("latin-1")
        if name == "set-cookie":
            response.cookies.update(SimpleCookie(text))
        elif name != "content-length":
            response.headers[name] = text
    return response


class _Loop:
    """An event loop in a thread, for the requests of a server without one. It starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, call: _Call) -> Any:
        """Serve a request in the loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="redrive-web", daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call.response(), self._loop))
