"""The dashboard inside other applications: all that it serves keeps the prefix under which it is mounted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import AsyncClient, override_settings
from django.test import Client as WsgiClient
from django.urls import path
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

import redrive
from redrive.clock import SystemClock
from redrive.web import Credentials, NoAuth, Role, User, create_app
from redrive.web.django import dashboard, staff
from tests.contrib.django.project import ready
from tests.web.client import Client

PREFIX = "/ops/redrive"
OWN = {"sec-fetch-site": "same-origin"}
FORM = "application/x-www-form-urlencoded"

Ask = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a job."""
    app = redrive.App("memory://")

    @app.task(name="mail")
    def mail(to: str) -> None:
        """Do nothing."""

    app.open()
    mail.options(delay="1h").enqueue("ann")
    yield app
    app.close()


def _starlette(app: redrive.App) -> Ask:
    return _http(Starlette(routes=[Mount(PREFIX, create_app(app, auth=NoAuth()))]))


def _fastapi(app: redrive.App) -> Ask:
    outer = FastAPI()
    outer.mount(PREFIX, create_app(app, auth=NoAuth()))
    return _http(outer)


def _proxy(app: redrive.App) -> Ask:
    """Return a server behind a proxy that removes the prefix; the server has it as its root path."""
    inner = create_app(app, auth=NoAuth())

    async def served(scope: Any, receive: Any, send: Any) -> None:
        """Serve as uvicorn does with --root-path."""
        stripped = scope["path"].removeprefix(PREFIX)
        await inner({**scope, "root_path": PREFIX, "path": PREFIX + stripped}, receive, send)

    return _http(served)


def _http(application: Any) -> Ask:
    client = Client(application, OWN)

    def ask(place: str, form: dict[str, str] | None = None) -> tuple[int, Any, str]:
        """Send a request to an ASGI application."""
        answer = client.get(place) if form is None else client.post(place, data=form)
        return answer.status_code, answer.headers, answer.text

    return ask


def _django(app: redrive.App, **settings: Any) -> Any:
    ready()
    given: dict[str, Any] = {"auth": NoAuth(), "hosts": ["testserver"]} | settings
    return override_settings(ROOT_URLCONF=(path("ops/redrive/", dashboard(app, **given)),), ALLOWED_HOSTS=["*"])


def _wsgi(app: redrive.App) -> Ask:
    client = WsgiClient(headers={**OWN, "host": "testserver"})

    def ask(place: str, form: dict[str, str] | None = None) -> tuple[int, Any, str]:
        """Send a request through Django's handler for WSGI."""
        with _django(app):
            answer = client.get(place) if form is None else client.post(place, urlencode(form), content_type=FORM)
        return answer.status_code, answer.headers, answer.content.decode(errors="replace")

    return ask


def _asgi(app: redrive.App) -> Ask:
    client = AsyncClient()

    async def send(place: str, form: dict[str, str] | None) -> Any:
        """Send a request through Django's handler for ASGI."""
        if form is None:
            return await client.get(place)
        return await client.post(place, urlencode(form), content_type=FORM, headers=OWN)

    def ask(place: str, form: dict[str, str] | None = None) -> tuple[int, Any, str]:
        """Send a request, and wait for the response."""
        with _django(app):
            answer = asyncio.run(send(place, form))
        return answer.status_code, answer.headers, answer.content.decode(errors="replace")

    return ask


@pytest.mark.parametrize("mounted", [_starlette, _fastapi, _proxy, _wsgi, _asgi])
def test_mounted_dashboards_keep_their_prefix(app: redrive.App, mounted: Callable[[redrive.App], Ask]):
    """Links, forms, redirects and assets keep the prefix, and an action works, in each framework."""
    ask = mounted(app)
    pages = [ask(f"{PREFIX}{place}") for place in ("/", "/jobs", "/jobs/1", "/queues/default")]
    links = {link for _, _, text in pages for link in re.findall(r'(?:href|src|action)="(/[^"]*)"', text)}
    assets = {link.partition("#")[0] for link in links if "/assets/" in link}
    acted = ask(f"{PREFIX}/jobs/1", {"action": "cancel", "why": "a test"})

    assert [200] * 4 == [status for status, _, _ in pages]
    assert [] == [link for link in links if not link.startswith(f"{PREFIX}/")]
    assert {200} == {ask(link)[0] for link in assets}
    assert (303, f"{PREFIX}/jobs/1") == (acted[0], acted[1]["location"])
    assert "cancelled" == app.job(1).state


def test_pages_under_wsgi_have_no_stream(app: redrive.App):
    """Servers without streams are not asked for one: the script finds nothing to refresh, and /live is refused."""
    ask = _wsgi(app)

    assert '" data-still>' in ask(f"{PREFIX}/jobs")[2]
    assert 404 == ask(f"{PREFIX}/live")[0]
    assert 'data-base="/ops/redrive">' in _asgi(app)(f"{PREFIX}/jobs")[2]


def test_streams_of_django_end_with_their_reader(app: redrive.App):
    """Under ASGI the stream comes through Django, and nothing goes on when the browser has left."""

    async def read() -> tuple[str, list[bool]]:
        """Read the first part, leave, and return before and after that whether the request is served."""

        def is_served() -> bool:
            return "redrive-request" in {each.get_name() for each in asyncio.all_tasks()}

        answer = await AsyncClient().get(f"{PREFIX}/live")
        first = await anext(answer.streaming_content)
        before = is_served()
        answer.close()
        for _ in range(20):
            await SystemClock().asleep(0)
        return first.decode(), [before, is_served()]

    with _django(app):
        first, served = asyncio.run(read())

    assert "retry: 2000\n\n" == first
    assert [True, False] == served


@pytest.mark.parametrize(
    ("user", "found"),
    [
        (None, "/accounts/login/?next=/ops/redrive/jobs"),
        (SimpleNamespace(is_authenticated=False), "/accounts/login/?next=/ops/redrive/jobs"),
        (SimpleNamespace(is_authenticated=True, is_active=True, is_staff=False), None),
        (SimpleNamespace(is_authenticated=True, is_active=False, is_staff=True), None),
        (
            _staff := SimpleNamespace(is_authenticated=True, is_active=True, is_staff=True, is_superuser=False),
            Role.READ,
        ),
        (SimpleNamespace(**vars(_staff) | {"is_superuser": True}), Role.OPERATE),
    ],
)
def test_staff_may_read_and_superusers_may_operate(user: Any, found: Any):
    """Strangers are sent to Django's login page, and other users are refused."""
    ready()
    if user is not None:
        user.get_username = lambda: "ann"
    scope = {"path": "/ops/redrive/jobs", "redrive.django.user": user}
    with override_settings(ROOT_URLCONF=()):
        answer = asyncio.run(staff(Credentials({}, scope=scope)))

    assert answer == (User("ann", found) if isinstance(found, Role) else found)


def logged_in(get_response: Any) -> Any:
    """Log in a superuser: a middleware of Django."""

    def serve(request: Any) -> Any:
        request.user = SimpleNamespace(
            is_authenticated=True, is_active=True, is_staff=True, is_superuser=True, get_username=lambda: "ann"
        )
        return get_response(request)

    return serve


def test_users_of_django_are_passed_on(app: redrive.App):
    """The user whom Django's middleware has found is in the scope that `auth=` gets."""
    with _django(app, auth=staff), override_settings(MIDDLEWARE=[f"{__name__}.logged_in"]):
        answer = WsgiClient(headers={"host": "testserver"}).get(f"{PREFIX}/jobs")

    assert "ann<small>may operate" in answer.content.decode(errors="replace")
