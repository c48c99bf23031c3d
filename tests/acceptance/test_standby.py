"""A store whose URL leads to a standby: everything can be read, and what would write says why it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive import App
from redrive.web import Account, Role, Users, create_app, hash_password, hash_token
from tests import postgres
from tests.acceptance.servers import pair
from tests.runtime.helpers import PATIENCE
from tests.web.client import Client

pytestmark = pytest.mark.acceptance

USERS = Users(
    {
        "ann": Account(Role.OPERATE, hash_password("open sesame", salt=bytes(16))),
        "ci": Account(Role.OPERATE, token=hash_token("a token")),
    }
)
TOKEN = {"Authorization": "Bearer a token"}
READ_ONLY = "the database is read only: is it a standby?"

PAGES = (
    "/", "/jobs", "/jobs/1", "/queues", "/workers", "/tasks", "/errors", "/runs", "/machines", "/topics", "/schedules",
    "/operations", "/health", "/audit",
)  # fmt: skip


@pytest.fixture(name="client", scope="module")
def _client() -> Iterator[Client]:
    """Return a client of the dashboard on a standby, which has a job."""
    with pair() as (primary, standby):
        schema = postgres.fresh()
        writing = App(primary.url(schema=schema))
        writing.named("charge").enqueue(order=1)
        caught_up = standby.has_caught_up_with(primary)
        for _ in range(10 * PATIENCE):
            if caught_up():
                break
            writing.clock.sleep(0.1)
        hosts = f"{primary.folder},{standby.folder}"
        reading = App(standby.url(schema=schema, host=hosts, target_session_attrs="standby"))
        yield Client(create_app(reading, auth=USERS), {"Origin": "http://localhost"})
        writing.close()
        reading.close()


def test_all_pages_can_be_read(client: Client):
    """With a name and a password in each request, and as JSON, with a token."""
    pages = {each: client.get(each, auth=("ann", "open sesame")).status_code for each in PAGES}
    json = {each: client.get(f"/api/v1{each}", headers=TOKEN).status_code for each in PAGES[1:]}

    assert {200} == {*pages.values(), *json.values()}, (pages, json)


def test_the_overview_says_that_the_database_is_read_only(client: Client):
    """With what to do."""
    page = client.get("/", auth=("ann", "open sesame")).text

    assert "The database is read-only: no job can be enqueued or run" in page
    assert "connect to the primary server" in page


def test_what_would_write_says_why_it_cannot(client: Client):
    """An action, and a login, which stores a session."""
    action = client.post("/api/v1/jobs/1", json={"action": "cancel"}, headers=TOKEN)
    login = client.post("/login", data={"name": "ann", "password": "open sesame"})

    assert (503, READ_ONLY) == (action.status_code, action.json()["detail"])
    assert (503, True) == (login.status_code, READ_ONLY in login.text)
