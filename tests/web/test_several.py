"""The dashboards of several apps in one application."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.cli import web
from redrive.cli.server import Server
from redrive.errors import ConfigurationError, StoreUnreachable
from redrive.web import Account, NoAuth, Role, Users, create_app, hash_password, hash_token
from tests.web.client import Client
from tests.web.test_mounts import OWN, PREFIX, _asgi, _fastapi, _proxy, _starlette, _wsgi

USERS = Users(
    {
        "ann": Account(Role.OPERATE, password=hash_password("open sesame")),
        "ci": Account(Role.OPERATE, token=hash_token("ops")),
    }
)


def shop(url: str, name: str) -> redrive.App:
    """Return an app with a job for later, whose task has the name of the app."""
    app = redrive.App(url)
    app.task(name=name)(lambda: None)
    app.reference = f"shop:{name}"
    app.open()
    app.named(name).options(delay="1h").enqueue()
    return app


@pytest.fixture
def apps(tmp_path: Path) -> Iterator[dict[str, redrive.App]]:
    """Return two apps by their names."""
    found = {name: shop(f"sqlite:///{tmp_path}/{name}.db?synchronous=normal", name) for name in ("eu", "us")}
    yield found
    for each in found.values():
        each.close()


def switch(text: str) -> list[tuple[str, bool, str]]:
    """Return the links of the switch: the address, whether it is the present app, and the text."""
    (nav,) = re.findall(r'<nav class="apps"[^>]*>(.*?)</nav>', text, re.DOTALL)
    found = re.findall(r'<a href="([^"]*)"( aria-current="true")?>([^<]*)</a>', nav)
    return [(address, bool(current), name) for address, current, name in found]


def test_each_app_has_its_pages_below_its_name(apps: dict[str, redrive.App]):
    """The root leads to the first one; ids are those of the app, as are the recommended commands."""
    client = Client(create_app(apps, auth=NoAuth(), title="shop"), OWN)
    root = client.get("/")
    pages = {name: client.get(f"/{name}/jobs/1") for name in apps}

    assert (303, "/eu/") == (root.status_code, root.headers["location"])
    for name, page in pages.items():
        assert 200 == page.status_code
        assert f"· shop {name}</title>" in page.text
        assert f"shop:{name}" in page.text
        assert [] == [
            link
            for link in re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text)
            if not link.startswith(tuple(f"/{each}/" for each in apps))
        ]
    acted = client.post("/us/jobs/1", data={"action": "cancel", "why": "a test"})

    assert (303, "/us/jobs/1") == (acted.status_code, acted.headers["location"])
    assert ("ready", "cancelled") == tuple(apps[name].job(1).state for name in apps)


@pytest.mark.parametrize(("path", "there"), [("/", "/"), ("/jobs?q=state:dead", "/jobs"), ("/jobs/1", "/jobs")])
def test_the_switch_leads_to_the_same_section_of_the_other_app(apps: dict[str, redrive.App], path: str, there: str):
    """Objects have no counterpart there: an id is another job."""
    client = Client(create_app(apps, auth=NoAuth()))

    assert [(f"/eu{there}", False, "eu"), (f"/us{there}", True, "us")] == switch(client.get(f"/us{path}").text)


def test_a_single_app_has_no_switch(apps: dict[str, redrive.App]):
    """A mapping of one app is served below its name; an app itself at the root."""
    alone = Client(create_app(apps["eu"], auth=NoAuth())).get("/jobs").text
    named = Client(create_app({"eu": apps["eu"]}, auth=NoAuth())).get("/eu/jobs").text

    assert 'class="apps"' not in alone
    assert [("/eu/jobs", True, "eu")] == switch(named)


@pytest.mark.parametrize("mounted", [_starlette, _fastapi, _proxy, _wsgi, _asgi])
def test_mounted_below_a_prefix_all_addresses_keep_it(
    apps: dict[str, redrive.App], mounted: Callable[[Any], Callable[..., tuple[int, Any, str]]]
):
    """In each framework."""
    ask = mounted(apps)
    root, page = ask(f"{PREFIX}/"), ask(f"{PREFIX}/us/jobs")
    links = set(re.findall(r'(?:href|src|action)="(/[^"]*)"', page[2]))
    acted = ask(f"{PREFIX}/us/jobs/1", {"action": "cancel", "why": "a test"})

    assert (303, f"{PREFIX}/eu/") == (root[0], root[1]["location"])
    assert [] == [link for link in links if not link.startswith((f"{PREFIX}/us/", f"{PREFIX}/eu/"))]
    assert {200} == {ask(link.partition("#")[0])[0] for link in links if "/assets/" in link}
    assert [(f"{PREFIX}/eu/jobs", False, "eu"), (f"{PREFIX}/us/jobs", True, "us")] == switch(page[2])
    assert (303, "cancelled") == (acted[0], apps["us"].job(1).state)


def test_each_app_has_its_own_login(apps: dict[str, redrive.App]):
    """A session is a row of the database of its app, and its cookie is for the pages of that app."""
    client = Client(create_app(apps, auth=USERS), OWN)
    asked = client.get("/us/jobs")
    entered = client.post("/us/login", data={"name": "ann", "password": "open sesame", "next": "/jobs"})

    assert "/us/login?next=/jobs" == asked.headers["location"]
    assert "/us/jobs" == entered.headers["location"]
    assert "Path=/us;" in entered.headers["set-cookie"]
    assert (200, 303) == (client.get("/us/jobs").status_code, client.get("/eu/jobs").status_code)
    assert [("/eu/", False, "eu"), ("/us/", True, "us")] == switch(client.get("/us/login").text)


def test_unknown_pages_name_the_apps(apps: dict[str, redrive.App]):
    """Also for programs, which have left out the name."""
    client = Client(create_app(apps, auth=USERS))
    page, api = client.get("/jobs"), client.get("/api/v1/jobs")

    assert (404, 404) == (page.status_code, api.status_code)
    assert [("/eu/", True, "eu"), ("/us/", False, "us")] == switch(page.text)
    assert "application/problem+json" == api.headers["content-type"]
    assert api.json()["detail"].endswith("several apps are served, each below its name: /eu/, /us/")
    assert "frame-ancestors 'none'" in client.get("/").headers["content-security-policy"]
    style = re.findall(r'href="([^"]*style\.css)"', page.text)[0]
    assert 200 == client.get(style).status_code


def test_the_names_of_hosts_are_checked_at_the_root(apps: dict[str, redrive.App]):
    """As on each page."""
    client = Client(create_app(apps, auth=USERS, hosts={"ops.example"}), {"host": "evil.example"})

    assert {421} == {client.get(path).status_code for path in ("/", "/jobs", "/eu/jobs")}


@pytest.mark.parametrize("name", ["", "a/b", "livez", "..", "ü", "a b", 7])
def test_names_are_parts_of_addresses(apps: dict[str, redrive.App], name: Any):
    """Others are refused, as are no apps at all."""
    with pytest.raises(ConfigurationError, match="cannot be a part of the address of a dashboard"):
        create_app({name: apps["eu"], "us": apps["us"]}, auth=NoAuth())
    with pytest.raises(ConfigurationError, match="at least one App"):
        create_app({}, auth=NoAuth())


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, apps: dict[str, redrive.App]) -> None:
    """Have the database of the first app be away."""

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnreachable("PostgreSQL h1/shop cannot be reached")

    monkeypatch.setattr(apps["eu"], "open", refuse)


@pytest.mark.usefixtures("away")
def test_a_database_that_is_away_keeps_no_page_of_the_other_app(apps: dict[str, redrive.App]):
    """Its own pages answer 503 and have the switch; the process is ready for the other one."""
    client = Client(create_app(apps, auth=NoAuth()))
    page, other, ready = client.get("/eu/jobs"), client.get("/us/jobs"), client.get("/readyz")
    one = client.get("/eu/readyz")

    assert (503, 200) == (page.status_code, other.status_code)
    assert [("/eu/", True, "eu"), ("/us/", False, "us")] == switch(page.text)
    checks = {"eu store": False, "eu schema": False, "us store": True, "us schema": True, "serving": True}
    assert (200, {"ok": True, "checks": checks}) == (ready.status_code, ready.json())
    assert (200, 200, 503) == (client.get("/startupz").status_code, client.get("/livez").status_code, one.status_code)


def test_a_server_starts_while_one_database_is_away(
    apps: dict[str, redrive.App], away: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """It names the database; if all are away it does not start."""
    monkeypatch.setattr(web, "load_apps", lambda _: apps)
    served: list[Server] = []

    def run(server: Server) -> None:
        served.append(server)

    monkeypatch.setattr(Server, "run", run)
    web.web(["eu", "us"])
    error = capsys.readouterr().err
    monkeypatch.setattr(apps["us"], "open", apps["eu"].open)

    assert ("PostgreSQL h1/shop cannot be reached\n", 1) == (error, len(served))
    with pytest.raises(StoreUnreachable):
        web.web(["eu", "us"])
