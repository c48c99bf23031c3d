"""Sessions of users who have logged in on a page."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import redrive
from redrive.web import Account, Role, Users, create_app, hash_password
from tests.web.client import Client

PASSWORD = hash_password("open sesame", salt=bytes(16))
ACCOUNTS = {"ann": Account(Role.OPERATE, PASSWORD), "bob": Account(Role.READ, PASSWORD)}
ORIGIN = {"Origin": "http://localhost"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a database."""
    return tmp_path / "shop.db"


@pytest.fixture
def app(path: Path) -> Iterator[redrive.App]:
    """Return an App."""
    found = redrive.App(f"sqlite:///{path}")
    found.open()
    yield found
    found.close()


def _client(app: redrive.App, accounts: dict[str, Account] = ACCOUNTS) -> Client:
    return Client(create_app(app, auth=Users(accounts)), ORIGIN)


def _logged_in(app: redrive.App, name: str = "ann") -> Client:
    client = _client(app)
    assert 303 == client.post("/login", data={"name": name, "password": "open sesame"}).status_code
    return client


def _status(app: redrive.App, cookie: str, accounts: dict[str, Account] = ACCOUNTS) -> int:
    """Return the status of a page for a browser with this cookie, of another dashboard."""
    client = _client(app, accounts)
    client.cookies.set("redrive_session", cookie)
    return client.get("/queues").status_code


def test_a_copy_of_a_cookie_ends_with_the_logout(app: redrive.App):
    """After the logout the cookie is refused by all dashboards; another session of the user goes on."""
    client, other = _logged_in(app), _logged_in(app)
    stolen = client.cookies["redrive_session"]
    before = _status(app, stolen)
    client.post("/logout")

    assert (200, 303) == (before, _status(app, stolen))
    assert "redrive_session" not in client.cookies
    assert 200 == other.get("/queues").status_code
    assert 303 == client.post("/logout").status_code


def test_a_session_outlasts_a_restart(app: redrive.App, path: Path):
    """Another process on the same database knows the session."""
    cookie = _logged_in(app).cookies["redrive_session"]
    app.close()
    later = redrive.App(f"sqlite:///{path}")

    assert 200 == _status(later, cookie)
    later.close()


def test_a_session_ends_when_its_account_changes(app: redrive.App):
    """Another password or role ends the sessions of a user; those of others stay."""
    cookie, other = (_logged_in(app, name).cookies["redrive_session"] for name in ("ann", "bob"))
    changes = [Account(Role.READ, PASSWORD), Account(Role.OPERATE, hash_password("new")), None]
    changed = [{k: v for k, v in (ACCOUNTS | {"ann": each}).items() if v is not None} for each in changes]

    assert [303, 303, 303] == [_status(app, cookie, accounts) for accounts in changed]
    assert [200, 200, 200] == [_status(app, other, accounts) for accounts in changed]
    assert 200 == _status(app, cookie)


def test_hashes_and_rows_make_no_session(app: redrive.App, path: Path):
    """Neither the file of users nor the database has what a cookie is made of."""
    cookie = _logged_in(app).cookies["redrive_session"]
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        stored = [str(value) for row in database.execute("SELECT * FROM redrive_sessions") for value in row]
    hashes = [each.password for each in ACCOUNTS.values() if each.password]
    forged = [*hashes, *stored, "", "ann"]

    assert cookie not in stored
    assert [303] * len(forged) == [_status(app, each) for each in forged]


def test_a_dashboard_without_users_has_no_sessions(app: redrive.App):
    """A cookie means nothing where an application authenticates."""

    async def resolve(_: object) -> str | None:
        """Know nobody."""
        return None

    cookie = _logged_in(app).cookies["redrive_session"]
    client = Client(create_app(app, auth=resolve), ORIGIN)
    client.cookies.set("redrive_session", cookie)

    assert (401, 303) == (client.get("/queues").status_code, client.post("/logout").status_code)
