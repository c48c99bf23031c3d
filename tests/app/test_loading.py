"""While a module of the user is imported, nothing is written to the database of jobs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive import App, Context, Flow
from redrive.app.importable import Place, find
from redrive.app.loading import VARIABLE, loading
from redrive.cli.loading import load_app
from redrive.engine.records import Filter
from redrive.errors import AppLoadError
from redrive.stores.operations import admin
from redrive.testing import VirtualClock, drain

APP = """
import redrive
app = redrive.App("sqlite:///jobs.db")
@app.task
def charge(invoice: str) -> None: ...
"""


@dataclass
class Paid:
    """An event."""

    cents: int


@pytest.fixture
def app() -> Iterator[App]:
    """An app with one of each kind."""
    app = App("memory://", clock=VirtualClock())

    @app.task
    def charge(invoice: str) -> None:
        """Do nothing."""

    @app.refresh("Refresh every hour")
    def prices(url: str) -> None:
        """Do nothing."""

    @app.workflow()
    async def checkout(flow: Flow, number: int) -> None:
        """Do nothing."""

    app.order = order = app.machine("order")

    @order.start()
    def paid(event: Paid, ctx: Context) -> None:
        """Do nothing."""

    app.payments = app.topic("payments", Paid)
    yield app
    app.close()


WRITES = {
    "enqueue": lambda app: app.tasks["charge"].enqueue("a"),
    "enqueue_many": lambda app: app.tasks["charge"].enqueue_many(["a", "b"]),
    "aenqueue": lambda app: asyncio.run(app.tasks["charge"].aenqueue("a")),
    "named": lambda app: app.named("other").enqueue(x=1),
    "track": lambda app: app.tasks["prices"].track("a", "b"),
    "start": lambda app: app.tasks["checkout"].start(1),
    "send": lambda app: app.order.send("a", Paid(1)),
    "publish": lambda app: app.payments.publish(Paid(1)),
    "emit": lambda app: app.emit("paid", 1),
    "pause": lambda app: app.queue("default").pause(),
    "redrive": lambda app: app.job(1).retry(),
    "drain": lambda app: drain(app, within=0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_writes_is_refused_with_its_line(app: App, write):
    """Each verb that writes is refused while a module is imported; the message has the line of the user."""
    with loading("shop"), pytest.raises(AppLoadError) as refused:
        write(app)

    assert str(refused.value).startswith(f"{__file__}, line {write.__code__.co_firstlineno}: ")
    assert "while 'shop' is imported" in str(refused.value)
    assert () == app.jobs.select()


def test_what_reads_is_permitted(app: App):
    """Reading, and opening the database, are permitted; objects made during the import write later."""
    with loading("shop"):
        app.open()
        store = app.store
        assert () == app.jobs.select()
        assert "memory" in store.url

    assert "ready" == app.tasks["charge"].enqueue("a").state
    assert 1 == len(store.run(admin.select(Filter())))


def test_transactions_are_refused(app: App):
    """A transaction may write, so it is refused in both colours."""
    with loading("shop"):
        with pytest.raises(AppLoadError):
            app.store.begin()
        with pytest.raises(AppLoadError):
            asyncio.run(app.store.abegin())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an importable folder, and unload its modules at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_that_enqueues_is_refused(folder: Path):
    """Commands refuse to load a module that enqueues at its top, and the variable is set for that time only."""
    (folder / "loud.py").write_text(f"{APP}charge.enqueue('a')\n")

    for _ in range(3):
        with pytest.raises(AppLoadError, match=rf"{folder}/loud.py, line 6: this writes .* while 'loud' is imported"):
            load_app("loud:app")

    assert VARIABLE not in os.environ
    assert not (folder / "jobs.db").exists()


def test_processes_that_an_import_starts_inherit_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A process that a module starts while it is imported may not write either; later ones may."""
    (folder / "seed.py").write_text(f"{APP}charge.enqueue('a')\n")
    (folder / "loud.py").write_text(
        f"{APP}import os, subprocess, sys\n"
        "def seed():\n"
        "    return subprocess.run([sys.executable, 'seed.py'], capture_output=True, text=True, check=False).stderr\n"
        f"found = (os.environ['{VARIABLE}'], seed())\n"
    )
    monkeypatch.setenv(VARIABLE, "outer")
    load_app("loud:app")
    loud = sys.modules["loud"]
    assert ("loud", "outer") == (loud.found[0], os.environ[VARIABLE])
    assert "seed.py, line 6: this writes" in loud.found[1]

    monkeypatch.delenv(VARIABLE)
    assert "" == loud.seed()
    assert 1 == len(loud.app.jobs.select())
    loud.app.close()


def test_included_modules_are_refused(folder: Path):
    """Modules of include=[...] are imported later, under the same rule, also in a program."""
    (folder / "calm.py").write_text(APP.replace('jobs.db"', 'jobs.db", include=["more"]'))
    (folder / "more.py").write_text("from calm import charge\ncharge.enqueue('a')\n")

    with pytest.raises(AppLoadError, match=f"{folder}/more.py, line 2: this writes"):
        load_app("calm:app").check()


def test_modules_of_child_processes_are_refused(folder: Path):
    """The import in a child process of ``executor="process"`` may not write either."""
    (folder / "loud.py").write_text(f"{APP}charge.enqueue('a')\n")

    with pytest.raises(AppLoadError, match=r"loud.py, line 6: this writes"):
        find(Place("loud", "charge"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("import sys; sys.exit(0)", "0"),
        ("exit('no')", "'no'"),
        ("import argparse; argparse.ArgumentParser().error('x')", "2"),
    ],
)
def test_a_module_that_ends_the_process_is_an_error(folder: Path, line: str, code: str):
    """A module that calls sys.exit() is refused with its line; without that, the command ended without a word."""
    (folder / "ending.py").write_text(f"{APP}{line}\n")

    with pytest.raises(AppLoadError) as refused:
        load_app("ending:app")

    expected = f"{folder}/ending.py, line 6: importing 'ending' ends the process by SystemExit({code}): move this"
    assert str(refused.value).startswith(expected)
