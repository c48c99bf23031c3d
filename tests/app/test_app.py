"""The App: it opens late, closes and opens again, finds its tasks, and answers questions about its jobs."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CatchRequest, Filter, GiveUp
from redrive.engine.lifecycle import State
from redrive.errors import CatchDefinitionError, ConfigurationError, StoreOpenError
from redrive.testing import VirtualClock, drain


def send(number: int) -> int:
    """Return what it got."""
    return number


def decline(number: int) -> None:
    """Fail for good."""
    raise GiveUp("declined")


def test_nothing_is_opened_before_it_is_used(tmp_path: Path):
    """Making an App and registering tasks touches no file, so importing a module cannot fail."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.task(send)

    assert [] == list(tmp_path.iterdir())


def test_a_database_that_cannot_be_opened_is_an_error_of_the_first_use(tmp_path: Path):
    """Errors of the first use name the path and the cause; a later use tries again."""
    folder = tmp_path / "late"
    app = App(f"sqlite:///{folder}/jobs.db")

    with pytest.raises(StoreOpenError, match=f"the directory {folder} does not exist"):
        app.jobs.stats()

    folder.mkdir()
    assert 0 == app.jobs.stats().due
    app.close()


def test_a_url_that_is_not_understood_lists_the_forms():
    """At the first use, an unknown URL raises an error that lists the forms."""
    with pytest.raises(ConfigurationError, match="'mysql://x' is not understood; forms: "):
        App("mysql://x").jobs.stats()


def test_an_app_can_be_opened_before_it_is_used(tmp_path: Path):
    """open() creates the database, after a check that the app is whole, and answers the app."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    app.task(retry="1 1s catch recover")(send)
    with pytest.raises(CatchDefinitionError):
        app.open()
    before = list(tmp_path.iterdir())
    app.task(name="recover")(_recover)

    assert ([], app, True) == (before, app.open(), (tmp_path / "jobs.db").exists())
    app.close()


def _recover(request: CatchRequest) -> None:
    """Catch."""


def test_a_coroutine_can_open_an_app(tmp_path: Path):
    """aopen() does what open() does, and a second call nothing."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    app.task(retry="1 1s catch recover")(send)
    with pytest.raises(CatchDefinitionError):
        asyncio.run(app.aopen())
    app.task(name="recover")(_recover)

    assert app is asyncio.run(app.aopen())
    store = app.store
    assert (app, store) == (asyncio.run(app.aopen()), app.store)
    app.close()


def test_a_closed_app_opens_again(tmp_path: Path):
    """close() may be called twice; the next use opens the same database."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    task = app.task(send)
    job, uid = task.enqueue(1), app.uid
    app.close()
    app.close()

    assert (1, uid) == (app.jobs.stats().due, app.uid)
    assert "ready" == job.refresh().state
    app.close()


def test_a_new_database_in_memory_has_a_new_name():
    """Idempotency keys of two databases never collide, not even when one app has both in turn."""
    app = App("memory://")
    first = app.uid
    app.close()
    second = app.uid
    app.close()

    assert first != second


def test_threads_share_one_store(tmp_path: Path):
    """Threads that use the app for the first time at once open the database once."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    start, stores = threading.Barrier(8), []

    def use() -> None:
        start.wait()
        stores.append(app.store)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.close()

    assert 1 == len(set(stores))


# ------------------------------------------------------------------------------------------------------------- include


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write modules of a package called ``shop`` that can be imported, and forget them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "app.py").write_text("from redrive import App\napp = App('memory://', include=['shop.tasks'])\n")
    forget()
    yield folder
    forget()


def forget() -> None:
    """Forget the package; another test may have imported one of its name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def included() -> App:
    """Return the App of the package."""
    from shop.app import app

    return app


def test_included_modules_are_imported_before_the_first_use(package: Path):
    """Tasks that live in other modules are known when the app is checked, and not before."""
    (package / "tasks.py").write_text("from shop.app import app\n@app.task\ndef send(): ...\n")
    app = included()
    before = set(app.tasks)
    app.check()

    assert (set(), {"send"}) == (before, set(app.tasks))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import nowhere", "include: importing 'shop.tasks' failed: ModuleNotFoundError: No module named 'nowhere'"),
        ("1 / 0", "include: importing 'shop.tasks' failed: ZeroDivisionError: division by zero"),
    ],
)
def test_an_included_module_that_fails_is_named(package: Path, source, why):
    """If an included module cannot be imported, the message names it with the cause."""
    (package / "tasks.py").write_text(source)

    with pytest.raises(ConfigurationError) as refused:
        included().check()

    assert why == str(refused.value)


def test_errors_of_redrive_in_an_included_module_are_raised_unchanged(package: Path):
    """Errors of redrive in an included module are raised unchanged, because they name the place already."""
    (package / "tasks.py").write_text(
        "from shop.app import app\n"
        "@app.task\ndef recover(number: int) -> None: ...\n"
        "@app.task(retry='1 1s catch recover')\ndef send(number: int) -> None: ...\n"
    )

    with pytest.raises(CatchDefinitionError, match="catch task 'recover' must take exactly one CatchRequest"):
        included().check()


# ----------------------------------------------------------------------------------------------------------- questions


def test_jobs_are_counted_by_what_they_are_doing(app: App):
    """Due, scheduled, retrying, succeeded, dead and cancelled; by task and from an id on."""
    task = app.task(retry="1 1h")(send)
    app.task(name="fails", retry="1 1h")(lambda number: 1 / 0)
    app.task(decline)
    task.enqueue(1)
    app.tasks["fails"].enqueue(2)
    app.tasks["decline"].enqueue(3)
    drain(app, within=0)
    task.enqueue(4)
    task.options(delay="1m").enqueue(5)
    task.enqueue(6).cancel()
    counted = app.jobs.stats()

    assert (1, 1, 1, 0, 1, 1, 0, 1) == (
        counted.due,
        counted.scheduled,
        counted.retrying,
        counted.running,
        counted.succeeded,
        counted.dead,
        counted.caught,
        counted.cancelled,
    )
    assert 3 == counted.unfinished
    assert (1, 0) == (app.jobs.stats(task="fails").retrying, app.jobs.stats(task="fails").due)
    assert (1, 0) == (app.jobs.stats(after_id=3).due, app.jobs.stats(after_id=3).succeeded)


def test_jobs_are_read_by_filter(app: App):
    """Newest first unless asked otherwise."""
    app.task(send).enqueue_many([1, 2, 3])
    app.job(2).cancel()

    assert [3, 2, 1] == [job.id for job in app.jobs.select()]
    assert [1, 3] == [job.id for job in app.jobs.select(Filter(state=State.READY, oldest_first=True))]


def test_dead_jobs_are_redriven(app: App):
    """Redriven jobs start again without failures; a dry run only returns them."""
    app.task(decline).enqueue_many([1, 2])
    drain(app)
    wanted = Filter(state=State.DEAD, task="decline", limit=1, oldest_first=True)
    dry = app.jobs.redrive(wanted, dry_run=True)
    before = app.jobs.stats().dead
    done = app.jobs.redrive(wanted)

    assert ((1,), 2) == (dry.ids, before)
    assert ((1,), 1, 1) == (done.ids, app.jobs.stats().dead, app.jobs.stats().due)
    assert (0, 1) == (app.job(1).record.failures, app.job(1).record.redrives)


def test_a_refused_redrive_has_a_reason(app: App):
    """Jobs that are named but not dead stay as they are."""
    app.task(send).enqueue(1)
    done = app.jobs.redrive(Filter(ids=(1,)))

    assert ((), ((1, "is ready"),)) == (done.ids, done.kept)


def test_an_app_without_a_clock_passes_no_time_to_the_store():
    """In production the database's clock rules; only a test's clock is passed on."""
    clock = VirtualClock()

    assert (None, clock.now()) == (App("memory://").now(), App("memory://", clock=clock).now())


def test_the_list_of_workers_is_empty_without_live_workers(app: App):
    """Workers that have left are not listed."""
    app.task(send).enqueue(1)
    drain(app)

    assert () == app.workers.select()


def test_an_app_finds_a_task_by_every_name_that_it_serves(app: App):
    """Catch tasks are served under the ends of their module path too, also if they are registered later."""

    def recover(request: CatchRequest[Any]) -> None:
        """Do nothing."""

    recover.__module__ = "shop.billing"
    app.task(name="v2.send")(lambda: None)

    assert {"v2.send"} == app.served()
    app.task(recover)
    assert {"recover", "billing.recover", "shop.billing.recover", "v2.send"} == app.served()
    assert all(app.find(name) for name in app.served())
