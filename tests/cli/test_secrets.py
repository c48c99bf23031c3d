"""No command shows the password of the database: not in what it prints, not in its errors, not in its logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive import App
from tests import postgres
from tests.cli.commands import lines
from tests.cli.conftest import Said

CANARY = "kanarienvogel"

MODULE = '''
import os, signal
from redrive import App

app = App({url!r}, heartbeat_every="50ms", lease_for="200ms")

@app.task(retry="5 1h")
def charge(cents: int) -> int:
    """Charge a card."""
    raise ConnectionError("no route to the bank")

@app.task
async def stop() -> None:
    """Tell the worker to stop."""
    os.kill(os.getpid(), signal.SIGTERM)

@app.cron("0 9 * * *")
def nightly() -> None:
    """Run by the clock."""

@app.refresh("Refresh every 2 hours; allow 10 minutes")
def prices(shop: str) -> None:
    """Fetch prices."""
'''


def reachable(place: str) -> str:
    """The URL of a database that is there, with the canary in a place."""
    good = postgres.url()
    return {
        "the password": good.replace("postgres@", f"postgres:{CANARY}@"),
        "a password with escapes": good.replace("postgres@", f"postgres:%2F%3F%23%25{CANARY}@"),
        "password=": f"{good}&password={CANARY}",
    }[place]


BROKEN = {
    "a server that is away": f"postgresql://u:{CANARY}@127.0.0.1:1/db?timeout=1s",
    "a server that is away, password=": f"postgresql://u@127.0.0.1:1/db?timeout=1s&password={CANARY}",
    "a host that is none": f"postgresql://u:{CANARY}@no-such-host.invalid/db?timeout=1s",
    "an unknown scheme": f"mysql://u:{CANARY}@h/db",
    "a scheme of SQLAlchemy": f"postgresql+psycopg://u:{CANARY}@h/db",
    "an unescaped /": f"postgresql://u:pa/{CANARY}@h/db",
    "an unescaped ?": f"postgresql://u:pa?{CANARY}@h/db",
    "an unescaped #": f"postgresql://u:pa#{CANARY}@h/db",
    "an unescaped %": f"postgresql://u:pa%zz{CANARY}@h/db",
    "an unescaped @": f"postgresql://u:pa@{CANARY}@h/db",
    "an unescaped [": f"postgresql://u:pa[{CANARY}@h/db",
    "sslpassword=": f"postgresql://u@h/db?sslpassword={CANARY}",
    "direct=": f"postgresql://u@h/db?direct=u:{CANARY}%40h",
    "no scheme": f"host=h password={CANARY}",
    "SQLite": f"sqlite://u:{CANARY}@h/app.db",
    "SQLite, key=": f"sqlite:///app.db?key={CANARY}",
    "Turso": f"turso://u:{CANARY}@h/app.db",
}

WORDS = {
    "app": "canary_shop:app",
    "name": "prices",
    "queue": "default",
    "number": "42",
    "numbers": "42",
    "key": "berlin",
    "task": "charge",
}
"""What is given for the arguments of commands, by their names."""

LINES = list(lines(WORDS))

FEW = [each for each in LINES if each[:2] in (["jobs", "list"], ["jobs", "redrive"], ["db", "check"])]
"""For URLs that differ only in where the password stands."""


def test_every_command_that_takes_an_app_is_tried():
    """The commands that this module finds are not none, and one with an unknown argument would fail to be collected."""
    assert len(LINES) > 30


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Callable]:
    """Makes a module with an App on a URL."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    caplog.set_level(logging.DEBUG)
    made: list[App] = []

    def make(url: str) -> App:
        (tmp_path / "canary_shop.py").write_text(MODULE.format(url=url))
        import canary_shop

        made.append(canary_shop.app)
        return made[0]

    yield make
    made[0].close()
    del sys.modules["canary_shop"]


def everything(said: Said, caplog: pytest.LogCaptureFixture) -> str:
    """All that a command has said, tracebacks of its logs included."""
    formatter = logging.Formatter("%(name)s %(message)s")
    return "\n".join([said.out, said.err, *(formatter.format(each) for each in caplog.records)])


@pytest.mark.parametrize("place", ["the password", "a password with escapes", "password="])
def test_no_command_shows_the_password_of_a_database_that_is_there(
    place: str, shop: Callable, redrive: Callable[..., Said], caplog: pytest.LogCaptureFixture
):
    """Whatever is asked of an app, what succeeds and what fails, the password is in no answer and in no log."""
    app = shop(reachable(place))
    app.tasks["prices"].track("berlin", "berlin")
    statuses = set()
    for line in LINES if place == "the password" else FEW:
        app.tasks["charge"].enqueue(1)
        if line[0] == "worker":
            app.tasks["stop"].enqueue()
        said = redrive(*line)
        statuses.add(said.status)
        assert CANARY not in everything(said, caplog), line

    assert {0, 1, 2} >= statuses >= {0, 1}
    assert (
        CANARY not in f"{app!r} {app.job(1)!r} {app.store!r} {app.tasks!r} {app.workers()!r} {app.queue('default')!r}"
    )


@pytest.mark.parametrize("place", BROKEN)
def test_no_command_shows_the_password_of_a_url_that_leads_nowhere(
    place: str, shop: Callable, redrive: Callable[..., Said], caplog: pytest.LogCaptureFixture
):
    """Where the database cannot be opened, whether its URL is understood or not, no error shows the password."""
    app = shop(BROKEN[place])
    for line in LINES if place in {"an unknown scheme", "a server that is away"} else FEW:
        said = redrive(*line)
        assert said.status in {1, 2}, (line, said)
        assert CANARY not in everything(said, caplog), line

    with pytest.raises(Exception, match=".") as failed:
        app.open()
    assert CANARY not in "".join(str(each) for each in chain(failed.value))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and the ones that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
