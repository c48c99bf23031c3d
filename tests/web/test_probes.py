"""Health probes of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import redrive
from redrive.operate.exchange import Site
from redrive.stores.operations import schema
from redrive.web import Account, NoAuth, Role, Users, create_app, hash_token
from redrive.web.asgi import Dashboard
from tests.web.client import Client

USERS = Users({"ann": Account(Role.READ, token=hash_token("ops"))})


@pytest.fixture
def app(tmp_path: Any) -> Iterator[redrive.App]:
    """Return an App with a database that exists."""
    app = redrive.App(f"sqlite:///{tmp_path}/shop.db")
    app.open()
    yield app
    app.close()


PASSED = {
    "/livez": {"loop": True},
    "/readyz": {"store": True, "schema": True, "serving": True},
    "/startupz": {"store": True, "schema": True},
}


@pytest.mark.parametrize("path", PASSED)
def test_probes_need_no_login_and_show_checks_only(app: redrive.App, path: str):
    """Probes come without credentials, under the address of a container, perhaps through a proxy."""
    client = Client(create_app(app, auth=USERS, hosts={"ops.example"}), {"Host": "10.1.2.3:8765", "Forwarded": "for=x"})
    response = client.get(path)

    assert (200, {"ok": True, "checks": PASSED[path]}) == (response.status_code, response.json())
    assert "no-store" == response.headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["/jobs/x/livez/", "/livez/", "/livez/x", "/queues/livez", "/api/v1/livez", "/jobs?q=/livez"]
)
def test_pages_with_the_name_of_a_probe_need_a_login(app: redrive.App, path: str):
    """Probes are exempt by their routes: no other path is, whatever it contains."""
    response = Client(create_app(app, auth=USERS)).get(path)

    assert response.status_code in {303, 307, 401, 404}
    assert "checks" not in response.text


def test_a_mounted_dashboard_has_probes(app: redrive.App):
    """The paths of probes are below the place where the dashboard is mounted."""
    outer = Starlette(routes=[Mount("/ops", create_app(app, auth=USERS))])

    assert (200, 404) == (Client(outer).get("/ops/readyz").status_code, Client(outer).get("/readyz").status_code)


def test_without_a_database_the_dashboard_is_live_and_not_ready(tmp_path: Any):
    """Readiness and start fail while the database does not exist; nothing is created, and liveness holds."""
    missing = redrive.App(f"sqlite:///{tmp_path}/absent.db")
    client = Client(create_app(missing, auth=USERS))

    assert 200 == client.get("/livez").status_code
    assert (503, False) == (client.get("/readyz").status_code, client.get("/startupz").json()["ok"])
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("reference", "named"), [({}, "APP"), ({"reference": "shop:jobs"}, "shop:jobs")])
def test_a_page_without_a_database_names_the_command_that_creates_it(
    tmp_path: Any, reference: dict[str, Any], named: str
):
    """The command has the reference of the App, if the dashboard was given it."""
    missing = redrive.App(f"sqlite:///{tmp_path}/absent.db")
    answer = Client(create_app(missing, auth=NoAuth(), **reference)).get("/jobs")

    assert 409 == answer.status_code
    assert f"absent.db does not exist; redrive db migrate {named} creates it" in answer.text


def test_an_unfit_schema_is_named(app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """Databases that a newer redrive has migrated answer, and their schema does not fit."""
    monkeypatch.setattr(schema.Schema, "suits", lambda *_: False)
    response = Client(create_app(app, auth=USERS)).get("/readyz")

    assert {"ok": False, "checks": {"store": True, "schema": False, "serving": True}} == response.json()
    assert 503 == response.status_code


def test_a_server_that_stops_is_live_and_not_ready(app: redrive.App):
    """After the signal to stop, no new requests are to be sent, and the process is not to be killed."""
    dashboard = Dashboard(Site(app), USERS, None)
    client = Client(dashboard.application())
    assert 200 == client.get("/startupz").status_code
    dashboard.pulse.stop()
    states = [client.get(path).status_code for path in ("/livez", "/readyz", "/startupz")]

    assert [200, 503, 200] == states
