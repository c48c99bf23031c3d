"""Sessions of users who have logged in on a page.

The cookie is a random text, and the store has its digest. So a session is valid in all processes, outlasts them, ends
at the logout also where the cookie was copied, and cannot be made from the file of users or from the database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from redrive.app.app import App
from redrive.stores.operations import sessions
from redrive.stores.operations.sessions import Session
from redrive.web import rng
from redrive.web.auth import Users, hash_token
from redrive.web.reading import prefix_of

#: How long a login lasts, by the clock of the database.
LASTS: Final = timedelta(hours=12)


class Sessions:
    """The sessions of a dashboard with users.

    Args:
        app: the App; it is open when a session is read or written.
        users: the users.
        cookie: the name of the cookie.
    """

    def __init__(self, app: App, users: Users, cookie: str) -> None:
        self._app = app
        self._users = users
        self._cookie = cookie

    async def name(self, request: HttpRequest) -> str | None:
        """Return the user of the session of a request; None without a valid one, and if the account has changed."""
        given = request.cookies.get(self._cookie)
        found = None if given is None else await self._app.store.arun(sessions.find(hash_token(given)))
        return found.name if found is not None and found.account == self._users.digest(found.name) else None

    async def begin(self, request: HttpRequest, response: Response, name: str) -> None:
        """Start a session."""
        token = rng.token()
        session = Session(name, self._users.digest(name) or "")
        await self._app.store.arun(sessions.begin(hash_token(token), session, lasts=LASTS))
        set_cookie(request, response, self._cookie, token, int(LASTS.total_seconds()))

    async def end(self, request: HttpRequest, response: Response) -> None:
        """End the session of a request."""
        given = request.cookies.get(self._cookie)
        if given is not None:
            await self._app.store.arun(sessions.end(hash_token(given)))
        response.delete_cookie(self._cookie, path=prefix_of(request) or "/")


def set_cookie(request: HttpRequest, response: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie of this dashboard."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=prefix_of(request) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
