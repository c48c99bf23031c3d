"""The password of the database: absent from the output, the errors and the logs of all commands."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import App
from redrive.errors import RedriveError, StoreError
from redrive.runtime.worker import Worker
from tests import postgres
from tests.cli.commands import lines
from tests.cli.conftest import Output

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
    """Stop the worker."""
    os.kill(os.getpid(), signal.SIGTERM)

@app.cron("0 9 * * *")
def nightly() -> None:
    """Run by the clock."""

@app.refresh("Refresh every 2 hours; allow 10 minutes")
def prices(shop: str) -> None:
    """Fetch prices."""
'''


def reachable(place: str) -> str:
    """Return the URL of a reachable database, with the canary in one part of it."""
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
    "an unescaped blank": f"postgresql://u:pa {CANARY}@127.0.0.1:1/db",
    "an unescaped line break": f"postgresql://u:pa\\n{CANARY}@127.0.0.1:1/db",
    "another form": f"postgresql://h;user=u;password={CANARY}",
    "sslpassword=": f"postgresql://u@h/db?sslpassword={CANARY}",
    "direct=": f"postgresql://u@h/db?direct=u:{CANARY}%40h",
    "no scheme": f"host=h password={CANARY}",
    "SQLite": f"sqlite://u:{CANARY}@h/app.db",
    "SQLite, key=": f"sqlite:///app.db?key={CANARY}",
    "SQLite, three slashes": f"sqlite:///u:{CANARY}@h/app.db",
    "Turso": f"turso://u:{CANARY}@h/app.db",
    "Turso, an unescaped ?": f"turso:///u:pa?{CANARY}=1@h/app.db",
}

WORDS = {
    "when": "0 9 * * *",
    "app": "canary_shop:app",
    "name": "prices",
    "queue": "default",
    "number": "42",
    "numbers": "42",
    "words": "42",
    "key": "berlin",
    "task": "charge",
    "group": "1-0",
    "machine": "payment",
    "state": "created",
    "moves": "created=paid",
    "topic": "payments",
    "subscription": "receipts",
    "to": "end",
    "event": "1",
    "run": "order-1",
    "value": "1",
    "step": "charge",
    "names": "order-1",
}
"""Values for the arguments of commands, by their names."""

LINES = list(lines(WORDS))

FEW = [each for each in LINES if each[:2] in (["jobs", "list"], ["jobs", "redrive"], ["db", "check"])]
"""Command lines for URLs that differ only in the place of the password."""


def test_every_command_that_takes_an_app_is_tried():
    """Find at least one command in this module; one with an unknown argument would fail at collection."""
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


def everything(output: Output, caplog: pytest.LogCaptureFixture) -> str:
    """Return the output of a command, including tracebacks in its logs."""
    formatter = logging.Formatter("%(name)s %(message)s")
    return "\n".join([output.out, output.err, *(formatter.format(each) for each in caplog.records)])


@pytest.mark.parametrize("place", ["the password", "a password with escapes", "password="])
def test_no_command_shows_the_password_of_a_reachable_database(
    place: str, shop: Callable, redrive: Callable[..., Output], caplog: pytest.LogCaptureFixture
):
    """Whatever is asked of an app, what succeeds and what fails, the password is in no answer and in no log."""
    app = shop(reachable(place))
    app.tasks["prices"].track("berlin", "berlin")
    statuses = set()
    for line in LINES if place == "the password" else FEW:
        app.tasks["charge"].enqueue(1)
        if line[0] == "worker":
            app.tasks["stop"].enqueue()
        output = redrive(*line)
        statuses.add(output.status)
        assert CANARY not in everything(output, caplog), line

    assert {0, 1, 2} >= statuses >= {0, 1}
    shown = f"{app!r} {app.job(1)!r} {app.store!r} {app.tasks!r} {app.workers.select()!r} {app.queue('default')!r}"
    assert CANARY not in shown


@pytest.mark.parametrize("place", BROKEN)
def test_no_command_shows_the_password_of_an_unreachable_database(
    place: str, shop: Callable, redrive: Callable[..., Output], caplog: pytest.LogCaptureFixture
):
    """If the database cannot be opened, whether or not its URL is valid, no error shows the password."""
    app = shop(BROKEN[place])
    for line in LINES if place in {"an unknown scheme", "a server that is away"} else FEW:
        output = redrive(*line, *(["--wait", "0s"] if line[0] == "worker" else []))
        assert output.status in {1, 2}, (line, output)
        assert CANARY not in everything(output, caplog), line

    with pytest.raises(Exception, match=".") as failed:
        app.open()
    assert CANARY not in shown_error(failed.value)


@pytest.mark.parametrize("place", BROKEN)
@pytest.mark.parametrize("entry", ["open", "enqueue", "aenqueue", "worker"])
def test_no_error_of_a_program_shows_the_password(entry: str, place: str, shop: Callable):
    """Neither an error nor what caused it has the password, as a traceback shows them, in both colours."""
    app = shop(BROKEN[place])
    charge = app.tasks["charge"]
    entries: dict[str, Callable[[], object]] = {
        "open": app.open,
        "enqueue": lambda: charge.enqueue(1),
        "aenqueue": lambda: asyncio.run(charge.aenqueue(1)),
        "worker": lambda: asyncio.run(Worker(app, wait=timedelta(0)).run()),
    }
    with pytest.raises(RedriveError) as failed:
        entries[entry]()
    assert CANARY not in shown_error(failed.value)


def test_the_password_of_the_environment_is_not_shown(
    shop: Callable, redrive: Callable[..., Output], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Libpq and asyncpg take PGPASSWORD where the URL has none."""
    monkeypatch.setenv("PGPASSWORD", CANARY)
    app = shop("postgresql://u@127.0.0.1:1/db?timeout=1s")
    for line in FEW:
        assert CANARY not in everything(redrive(*line), caplog), line
    with pytest.raises(StoreError) as failed:
        app.open()
    assert CANARY not in shown_error(failed.value)


@pytest.mark.parametrize(
    "text",
    [
        f"Could not parse SQLAlchemy URL from 'mysql://u:pa@{CANARY}@h/db'",
        f"invalid connection option: host=h password={CANARY} dbname=d",
        f"scheme is expected to be postgres: 'postgresql+asyncpg://u:{CANARY}@h'",
    ],
)
@pytest.mark.parametrize("how", ["app", "include", "unexpected"])
def test_errors_of_other_libraries_are_redacted(
    text: str, how: str, tmp_path: Path, redrive: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
):
    """Modules may connect to databases of their own at import, and fail with an error that contains the URL."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    failing = f"raise ValueError({text!r}) from RuntimeError({text!r})"
    name = f"canary_{how}"
    source = {
        "app": failing,
        "include": f"from redrive import App\napp = App('memory://', include=['{name}_more'])",
        "unexpected": "from redrive import App\nclass Failing(App):\n    @property\n"
        f"    def store(*_):\n        {failing}\n"
        "app = Failing('memory://')",
    }
    (tmp_path / f"{name}.py").write_text(source[how])
    (tmp_path / f"{name}_more.py").write_text(failing)
    monkeypatch.delitem(sys.modules, name, raising=False)
    output = redrive("jobs", "list", f"{name}:app") if how != "include" else redrive("worker", f"{name}:app")

    assert output.status in {1, 2}
    assert ("***" in output.err, "ValueError" in output.err) == (True, True)
    errors = [line for line in output.err.splitlines() if "raise ValueError" not in line]  # the source is no error
    assert CANARY not in "".join(errors)


def shown_error(error: BaseException) -> str:
    """Return an error and its causes, with their notes, without the lines of source between."""
    found: list[str] = []
    each: BaseException | None = error
    while each is not None:
        found += traceback.format_exception_only(each)
        each = each.__cause__ or each.__context__
    return "".join(found)
