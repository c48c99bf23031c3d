"""While a module of the user is imported, nothing is written to the database of jobs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import redrive
from redrive import App, Context, Flow
from redrive.app.importable import Place, find
from redrive.app.loading import VARIABLE, _Import, loading
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


@pytest.mark.parametrize(
    "run",
    [
        "import threading; t = threading.Thread(target=seed); t.start(); t.join()",
        "import concurrent.futures as c; found.append(c.ThreadPoolExecutor(1).submit(seed).result())",
    ],
    ids=["thread", "pool"],
)
def test_threads_that_an_import_starts_are_refused(folder: Path, run: str):
    """A thread has a context of its own; what it writes is refused while the module is imported, and no longer."""
    (folder / "loud.py").write_text(
        f"{APP}found = []\n"
        "def seed():\n"
        "    try:\n"
        "        charge.enqueue('a')\n"
        "    except Exception as error:\n"
        "        found.append(str(error))\n"
        f"{run}\n"
    )
    load_app("loud:app")
    loud = sys.modules["loud"]

    assert loud.found[0].startswith(f"{folder}/loud.py, line 9: this writes to the database of jobs while 'loud' is")
    loud.found.clear()
    threading.Thread(target=loud.seed).start()
    loud.seed()
    assert [] == loud.found
    loud.app.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_that_an_import_starts_is_named(folder: Path, method: str):
    """Processes of a pool that was started by the import may not write later either, and the message has the cause."""
    (folder / "pool.py").write_text(
        f"{APP}import multiprocessing, os\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "def child(number):\n"
        "    try:\n"
        "        charge.enqueue('a')\n"
        "    except Exception as error:\n"
        "        return str(error)\n"
        "if multiprocessing.current_process().name == 'MainProcess':\n"
        f"    workers = ProcessPoolExecutor(1, multiprocessing.get_context('{method}'))\n"
        "    workers.submit(os.getpid).result()\n"
    )
    (folder / "use.py").write_text(
        "from redrive.cli.loading import load_app\n"
        "if __name__ == '__main__':\n"
        "    load_app('pool:app')\n"
        "    import pool\n"
        "    print(pool.workers.submit(pool.child, 1).result())\n"
    )

    found = subprocess.run([sys.executable, "use.py"], capture_output=True, text=True, check=True).stdout
    assert found.startswith(f"{folder}/pool.py, line 10: this writes to the database of jobs in a process that was ")
    assert "started while 'pool' was imported" in found
    assert "at its first use" in found


def test_what_a_process_inherits_is_named():
    """The refusal of another process than the one that imports has the cause."""
    assert "started while 'shop' was imported" in str(_Import("shop", None).refused())


def test_the_line_of_the_user_is_named_by_an_installed_redrive(folder: Path):
    """Where redrive is below site-packages, its own lines are not the user's; packages beside it are."""
    installed = folder / "site-packages"
    installed.mkdir()
    (installed / "redrive").symlink_to(Path(redrive.__file__).parent)
    (installed / "shop.py").write_text(f"{APP}charge.enqueue('a')\n")
    command = [sys.executable, "-c", "from redrive.app.loading import import_module; import_module('shop')"]

    done = subprocess.run(
        command, env={"PYTHONPATH": str(installed)}, cwd=folder, capture_output=True, text=True, check=False
    )

    assert f"AppLoadError: {installed}/shop.py, line 6: this writes" in done.stderr


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
