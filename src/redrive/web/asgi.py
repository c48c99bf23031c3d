"""The dashboard as an ASGI application: it authenticates a request, runs its page, and writes the response."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from itertools import groupby
from typing import Final
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as HttpRoute

from redrive.app.app import App
from redrive.app.loading import naming
from redrive.app.protocol import Procedure, arun
from redrive.errors import RedriveError
from redrive.errors.foreign import trace
from redrive.observe.logs import Block, logger
from redrive.operate import navigation
from redrive.operate.charts.axes import took
from redrive.operate.dev import ROWS as DEV_ROWS
from redrive.operate.exchange import Answer, Moved, Note, Page, Refusal, Request, Role, Site, User
from redrive.operate.navigation import Beside
from redrive.operate.problems import refusal_of
from redrive.operate.table import ROWS, Row
from redrive.stores.query import Operation
from redrive.stores.store import Store
from redrive.web import api, guard, once, openapi, zones
from redrive.web.api import API
from redrive.web.auth import Auth, Credentials, NoAuth, Proxy, Resolver, Users
from redrive.web.carrier import Carrier
from redrive.web.link import LoginLink
from redrive.web.live import Pulse
from redrive.web.peers import Peers, counted, peer_of
from redrive.web.probes import WebProbes
from redrive.web.reading import headers_of, is_api, path_of, prefix_of, read_form, read_request, request_id
from redrive.web.rendering import ASSETS, asset, render
from redrive.web.sessions import LASTS, Sessions, set_cookie
from redrive.web.streams import Streams
from redrive.web.throttle import Throttle

log = logger("redrive.web")

#: How long the note of an action is kept for the page that shows it, in seconds.
NOTED: Final = 10

#: The key in the scope of a request that is False if the server cannot keep a stream open.
STREAMS: Final = "redrive.streams"

#: The header of a request that an open page sends to be read again.
REFRESH: Final = "redrive-refresh"

_COOKIE: Final = "redrive_session"
_NOTE: Final = "redrive_note"

# The key in the scope of a request of its sender, after authentication.
_USER: Final = "redrive.user"

Endpoint = Callable[[HttpRequest], Awaitable[Response]]


class Dashboard:
    """The parts of a dashboard that its endpoints share.

    Args:
        site: its settings.
        auth: the way to authenticate.
        hosts: the names under which it may be called, besides those of this machine; None to leave the check to the
            application around it.
        link: the link that logs in once, of `redrive dev`.
    """

    def __init__(
        self, site: Site, auth: Auth | Resolver, hosts: Collection[str] | None, *, link: LoginLink | None = None
    ) -> None:
        self._site = site
        self._auth = auth
        self._link = link
        self._routes = ROWS if site.dev is None else (*ROWS, *DEV_ROWS)
        # Cookies are shared by all ports of this machine, where several apps may be developed.
        self._session_cookie = _COOKIE if link is None else f"{_COOKIE}_{link.name}"
        self._sessions = Sessions(site.app, auth, self._session_cookie) if isinstance(auth, Users) else None
        self._hosts = None if hosts is None else frozenset(each.lower() for each in hosts)
        self.pulse: Pulse = Pulse(site.app, site.shared)
        self._streams = Streams()
        self._carrier = Carrier(site.app)
        self._throttle = Throttle()
        self._proxies = Peers(auth.proxies if isinstance(auth, Users) else (), "Users(proxies=)")
        self._is_open = False
        self._opening = asyncio.Lock()

    @property
    def app(self) -> App:
        """The App."""
        return self._site.app

    def application(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            *WebProbes({self._site.name: self._site.app}, lambda: self.pulse.is_closed).routes(),
            self.assets(),
            HttpRoute("/live", self.guarded(self._live)),
            HttpRoute("/login", self.guarded(self._login), methods=["GET", "POST"]),
            HttpRoute("/login/{token}", self.guarded(self._follow_link)),
            HttpRoute("/zone", self.guarded(self._set_zone), methods=["POST"]),
            HttpRoute("/logout", self.guarded(self._logout), methods=["POST"]),
            HttpRoute(API + openapi.DOCUMENT, self.guarded(self._openapi)),
        ]
        for prefix in ("", API):
            for path, methods in groupby(self._routes, key=lambda each: each.path):
                place = f"{prefix}/overview" if prefix and path == "/" else prefix + path
                endpoints = {each.method: self._endpoint(each) for each in methods}
                routes.append(HttpRoute(place, self.guarded(_by_method(endpoints)), methods=list(endpoints)))
        errors = {HTTPStatus.NOT_FOUND: self._unknown, HTTPStatus.METHOD_NOT_ALLOWED: self._unknown}
        return Starlette(
            routes=routes,
            exception_handlers=errors,
            # Pages are mostly tables and drawings, which become a sixth. A stream and the fonts are left as they are.
            # The length of a compressed page tells an eavesdropper whether what a link makes it repeat, such as a
            # filter, is in it already (BREACH). A page has no secret that could be guessed so: sessions are in cookies,
            # and requests that change something are checked by their origin, not by a token in the page.
            middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)],
        )

    def assets(self) -> HttpRoute:
        """Return the route of the files that pages load."""
        return HttpRoute("/assets/{digest}/{name:path}", self.guarded(self._asset))

    # ------------------------------------------------------------------------------------------------------ requests

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """Check host and origin before an endpoint, and write its refusals."""

        async def serve(request: HttpRequest) -> Response:
            """Serve a request."""
            try:
                self._check(request)
                response = await endpoint(request)
            except Refusal as refusal:
                response = self._problem(request, refusal)
            except RedriveError as error:
                response = self._problem(request, refusal_of(error))
            except Exception as error:  # noqa: BLE001 - its traceback is logged, and the page names no details
                log.error("%s %s failed%s", request.method, request.url.path, Block(trace(error)))  # noqa: TRY400
                failed = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; the log of the server has why")
                response = self._problem(request, failed)
            for name, value in guard.HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return serve

    def _check(self, request: HttpRequest) -> None:
        guard.check_single(request.headers.keys(), self._auth.headers if isinstance(self._auth, Proxy) else ())
        headers = headers_of(request)
        if self._hosts is not None:
            guard.check_host(headers.get("host"), self._hosts)
        if isinstance(self._auth, NoAuth):
            guard.check_direct(headers)
        has_session = self._session_cookie in request.cookies
        has_token = headers.get("authorization", "").lower().startswith("bearer ") and not has_session
        guard.check_origin(request.method, headers, scheme=request.url.scheme, has_token=has_token)

    def _endpoint(self, route: Row) -> Endpoint:
        """Return the endpoint of a page or an action."""

        async def serve(request: HttpRequest) -> Response:
            """Run the page."""
            user = await self._user(request)
            if isinstance(user, Response):
                return user
            if route.role is Role.OPERATE and not user.may_operate:
                raise Refusal(HTTPStatus.FORBIDDEN, f"{user.name} may read, but not change anything")
            await self._open()
            given = await read_request(request, user, route)
            if route.template is None:
                self._throttle.write(user.name)
            key = once.key_of(request.headers.get(once.HEADER), api.LONGEST_KEY)
            if key is None or route.template is not None or given.dry_run or not is_api(request):
                return await self._respond(request, route, given)
            return await once.once(self._site.app, given, key, partial(self._respond, request, route, given))

        return serve

    async def _respond(self, request: HttpRequest, route: Row, given: Request) -> Response:
        answer = await self._answer(route, given)
        if answer is None:
            return _json(Note("this can be done; nothing was changed", dry_run=True))
        if isinstance(answer, Moved):
            return self._moved(request, given, answer)
        if is_api(request):
            return self._data(given, answer)
        if answer.elsewhere is not None:
            return RedirectResponse(f"{given.prefix}{answer.elsewhere}", HTTPStatus.SEE_OTHER)
        counts = await arun(self._site.app.store, navigation.beside(self._site))
        return self._page(request, given, route, answer, counts)

    async def _answer(self, route: Row, given: Request) -> Answer | None:
        """Run a page or an action; return None for an action that was only checked."""
        steps = route.procedure(self._site, given)
        return await (rehearse if given.dry_run else arun)(self._site.app.store, steps)

    async def _user(self, request: HttpRequest) -> User | Response:
        """Return the sender of a request, or where to log in."""
        credentials = Credentials(headers_of(request), await self._session(request), peer_of(request), request.scope)
        if callable(self._auth):
            found = await self._auth(credentials)
        elif credentials.basic is not None:
            name, sender = credentials.basic[0], counted(self._sender(request))
            found = await self._throttle.login(name, sender, partial(self._auth.identify, credentials))
        else:
            found = self._auth.identify(credentials)
        if isinstance(found, User):
            request.scope[_USER] = found
            return found
        if isinstance(found, str):
            return RedirectResponse(found, HTTPStatus.SEE_OTHER)
        if isinstance(self._auth, Users) and not is_api(request):
            back = quote(path_of(request) + (f"?{request.url.query}" if request.url.query else ""), safe="/")
            return RedirectResponse(f"{prefix_of(request)}/login?next={back}", HTTPStatus.SEE_OTHER)
        kind = 'Basic realm="redrive", charset="UTF-8"' if isinstance(self._auth, Users) else "Bearer"
        detail = "the request has no valid credentials"
        if isinstance(self._auth, Proxy) and self._auth.peers and credentials.peer is None:
            detail += ": the address of the proxy is not known here, so that it has to send a secret, Proxy(secret=)"
        raise Refusal(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": kind})

    def _sender(self, request: HttpRequest) -> str | None:
        """Return the address of the sender of a request; None if it is not known."""
        return self._proxies.sender(peer_of(request), request.headers.getlist("x-forwarded-for"))

    async def _open(self) -> None:
        # The lifespan of a mounted application does not run, so the App is opened by the first request.
        if not self._is_open:
            async with self._opening:
                with naming(self._site.reference):
                    await asyncio.to_thread(self._site.app.open, migrate=False)
                self._is_open = True
                self._carrier.wake()

    # ----------------------------------------------------------------------------------------------------- responses

    @staticmethod
    def _data(given: Request, page: Page) -> Response:
        if page.refusal is not None:
            raise page.refusal
        following = api.link_of(given, page)
        return _json(page.data, headers={} if following is None else {"Link": following})

    def _page(
        self, request: HttpRequest, given: Request, route: Row, page: Page, counts: Mapping[str, Beside]
    ) -> Response:
        # A note is outside of what the refresh of an open page takes from an answer; it waits for the next page.
        note = "" if REFRESH in request.headers else unquote(request.cookies.get(_NOTE, ""))
        place = next((each.path for each in self._routes if each.section == route.section), "/")
        frame = self._frame(request) | {
            "section": route.section,
            "home": "" if route.path == place else place,
            "counterpart": place if route.section else "/",
            "counts": counts,
            "note": note,
        }
        values = frame | {"title": page.title, "data": page.data}
        html = render(route.template or "", self._site, given, values, _zone(request))
        response = Response(html, page.status, media_type="text/html")
        if note:
            response.delete_cookie(_NOTE, path=given.prefix or "/")
        return response

    def _frame(self, request: HttpRequest) -> dict[str, object]:
        """Return what the frame of each page shows."""
        return {
            "section": "",
            "home": "",
            "counterpart": "/",
            "sections": tuple(navigation.groups(self._routes)),
            "counts": {},
            "note": "",
            "has_login": isinstance(self._auth, Users),
            "streams": request.scope.get(STREAMS, True),
        }

    def _moved(self, request: HttpRequest, given: Request, moved: Moved) -> Response:
        log.info("%s %s: %s", given.actor, given.path, moved.note)
        self._site.shared.forget()
        self._carrier.wake()
        if is_api(request):
            data = Note(moved.note, dry_run=given.dry_run) if moved.data is None else moved.data
            headers = {} if moved.status is HTTPStatus.OK else {"Location": f"{given.prefix}{API}{moved.to}"}
            return _json(data, moved.status, headers)
        response = RedirectResponse(f"{given.prefix}{moved.to}", HTTPStatus.SEE_OTHER)
        set_cookie(request, response, _NOTE, quote(moved.note), NOTED)
        return response

    def _problem(self, request: HttpRequest, refusal: Refusal) -> Response:
        name = request_id(request)
        if refusal.status is not HTTPStatus.NOT_FOUND:
            log.log(
                logging.ERROR if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO,
                "%s %s refused with %s: %s (request %s)",
                request.method,
                request.url.path,
                refusal.status.value,
                refusal.detail,
                name,
            )
        path, prefix = path_of(request), prefix_of(request)
        if is_api(request):
            problem = api.problem_of(refusal, prefix=prefix, path=quote(path), request_id=name)
            return _json(problem, refusal.status, refusal.headers, "application/problem+json")
        user = request.scope.get(_USER)
        given = Request(request.method, path, user or User("", Role.READ), prefix)
        values = self._frame(request) | {"title": refusal.status.phrase, "detail": refusal.detail, "known": user}
        html = render("problem.html", self._site, given, values, _zone(request))
        return Response(html, refusal.status, refusal.headers, media_type="text/html")

    async def _unknown(self, request: HttpRequest, error: Exception) -> Response:
        async def refuse(_: HttpRequest) -> Response:
            if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
                allowed = dict(error.headers or {})
                detail = f"{path_of(request)!r} has the methods {allowed.get('Allow')}, and no {request.method[:20]!r}"
                raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, detail, allowed)
            if not is_api(request):
                with contextlib.suppress(Refusal):
                    await self._user(request)  # a user sees the page in its frame
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no page {path_of(request)!r} here")

        return await self.guarded(refuse)(request)

    # ------------------------------------------------------------------------------------ assets, live updates, login

    async def _asset(self, request: HttpRequest) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no asset {name!r}")
        found = asset(name)
        # The digest in the address changes with the content.
        fresh = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(found.content, headers=fresh, media_type=found.kind)

    async def _openapi(self, request: HttpRequest) -> Response:
        user = await self._user(request)
        return user if isinstance(user, Response) else _json(openapi.document(prefix_of(request)))

    async def _live(self, request: HttpRequest) -> Response:
        user = await self._user(request)
        if isinstance(user, Response):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "log in first")
        if not request.scope.get(STREAMS, True):
            raise Refusal(HTTPStatus.NOT_FOUND, "this server does not keep streams open")
        await self._open()
        return self._streams.open(user.name, self.pulse.events())

    async def _login(self, request: HttpRequest) -> Response:
        if self._sessions is None or not isinstance(self._auth, Users):
            raise Refusal(HTTPStatus.NOT_FOUND, "this dashboard has no login page")
        if self._link is not None:
            self._link.offer()
            raise Refusal(HTTPStatus.UNAUTHORIZED, "open the link that redrive dev has printed in its terminal")
        after = guard.own_path(request.query_params.get("next"))
        given = Request(request.method, "/login", User("", Role.READ), prefix_of(request))
        values = self._frame(request) | {"lasts": took(LASTS.total_seconds())}
        if request.method == "GET":
            return Response(
                render("login.html", self._site, given, values | {"after": after, "problem": ""}),
                media_type="text/html",
            )
        form, sender = await read_form(request), self._sender(request)
        name = form.get("name", "")
        check = partial(self._auth.check, name, form.get("password", ""))
        user = await self._throttle.login(name, counted(sender), check)
        if user is None:
            log.warning("login of %s from %s refused", name[:100], sender)
            values |= {"after": after, "problem": "The name or the password is wrong."}
            html = render("login.html", self._site, given, values)
            return Response(html, HTTPStatus.UNAUTHORIZED, media_type="text/html")
        response = RedirectResponse(f"{given.prefix}{guard.own_path(form.get('next'))}", HTTPStatus.SEE_OTHER)
        await self._open()
        await self._sessions.begin(request, response, user.name)
        return response

    async def _follow_link(self, request: HttpRequest) -> Response:
        """Log in by a link, which is valid once; the address that the browser shows then has no token."""
        if self._link is None or self._sessions is None or not isinstance(self._auth, Users):
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no page {path_of(request)!r} here")
        address = counted(self._sender(request))
        self._throttle.check("", address)
        # A HEAD request, such as one for a preview, must not use the link up.
        if request.method != "GET" or not self._link.take(request.path_params["token"]):
            self._throttle.failed("", address)
            self._link.offer()
            raise Refusal(HTTPStatus.UNAUTHORIZED, "this link has been used: redrive dev has printed another one")
        response = RedirectResponse(f"{prefix_of(request)}/", HTTPStatus.SEE_OTHER)
        await self._open()
        await self._sessions.begin(request, response, next(iter(self._auth.accounts)))
        return response

    async def _set_zone(self, request: HttpRequest) -> Response:
        """Keep the zone in which a browser shows times, in a cookie."""
        form = await read_form(request)
        name = form.get("zone", "").strip()
        zone = zones.zone_of(name)
        if zone is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name[:40]!r} is no time zone: write one such as Europe/Kyiv")
        there = f"{prefix_of(request)}{guard.own_path(form.get('next'))}"
        response = RedirectResponse(there, HTTPStatus.SEE_OTHER)
        set_cookie(request, response, zones.COOKIE, quote(zone.key), zones.KEPT)
        return response

    async def _logout(self, request: HttpRequest) -> Response:
        response = RedirectResponse(f"{prefix_of(request)}/login", HTTPStatus.SEE_OTHER)
        if self._sessions is not None:
            await self._open()
            await self._sessions.end(request, response)
        return response

    async def _session(self, request: HttpRequest) -> str | None:
        if self._sessions is None or self._session_cookie not in request.cookies:
            return None
        await self._open()
        return await self._sessions.name(request)


def _zone(request: HttpRequest) -> ZoneInfo:
    """Return the zone in which the browser of a request shows times."""
    return zones.zone_of(unquote(request.cookies.get(zones.COOKIE, ""))) or zones.UTC


def _by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    async def serve(request: HttpRequest) -> Response:
        """Serve a request by the endpoint of its method."""
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return serve


async def rehearse(store: Store, steps: Procedure[Answer]) -> Answer | None:
    """Run an action as far as it only reads; return None if the next step would change something."""
    try:
        step = next(steps)
        while isinstance(step, Operation) and not step.writes:
            step = steps.send(await store.arun(step))
    except StopIteration as end:
        found: Answer = end.value
        return found
    steps.close()
    return None


def _json(
    data: object,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    kind: str = "application/json",
) -> Response:
    return Response(msgspec.json.encode(data), status, headers, media_type=kind)
