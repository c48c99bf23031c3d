"""Tests of an app of a module that gets another database and another clock for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive import App
from redrive.errors import ConfigurationError
from redrive.testing import VirtualClock, adrain, drain, using_app

# As in the module of a program: a database that cannot be opened, so that a test which uses it would fail.
app = App("sqlite:////nowhere/at/all.db")


@app.task(retry="2 1h")
def fail() -> None:
    """Fail."""
    raise ConnectionError("no route")


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    """Give the app of the module a database in memory and a virtual clock."""
    with using_app(app) as clock:
        yield clock


def test_jobs_of_an_app_of_a_module_run_in_virtual_time(clock: VirtualClock):
    """Apps with a database of production run their jobs in memory, and time jumps."""
    began = clock.now()
    job = fail.enqueue()
    drained = drain(app)

    assert ("dead", timedelta(hours=2)) == (job.state, drained.took)
    assert began + timedelta(hours=2) == clock.now()


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_begins_with_an_empty_database(clock: VirtualClock, turn: int):
    """Jobs and time of an earlier block are gone."""
    assert VirtualClock().now() == clock.now()
    assert () == app.jobs.select()
    fail.enqueue()
    clock.advance(turn)


def test_the_app_has_its_own_database_and_clock_again_after_an_error():
    """Blocks that end with an error restore the app."""
    with pytest.raises(ConnectionError), using_app(app):
        fail()

    assert ("sqlite:////nowhere/at/all.db", None) == (app.url, app.clock)
    with pytest.raises(ConfigurationError, match="using_app"):
        drain(app)


def test_an_open_database_stays_open_and_untouched(tmp_path: Path):
    """Stores that were open before the block are the app's stores after it, with its jobs and its identity."""
    own = App(f"sqlite:///{tmp_path}/own.db")
    task = own.task(name="send")(lambda: None)
    first, uid = task.enqueue(), own.uid
    with using_app(own):
        assert uid != own.uid
        assert () == own.jobs.select()
        task.enqueue()
    try:
        assert uid == own.uid
        assert [first.id] == [job.id for job in own.jobs.select()]
    finally:
        own.close()


def test_a_coroutine_uses_the_same_block():
    """Asynchronous tests enqueue and drain inside the block."""

    async def run() -> str:
        with using_app(app):
            job = await fail.aenqueue()
            await adrain(app)
            return (await job.arefresh()).state

    assert "dead" == asyncio.run(run())


def test_blocks_can_be_nested_and_start_at_a_given_time():
    """Inner blocks have a database and a clock of their own, and the outer ones are restored after them."""
    start = datetime(2030, 5, 1, tzinfo=UTC)
    with using_app(app) as outer:
        fail.enqueue()
        with using_app(app, clock=VirtualClock(start)) as inner:
            assert (start, ()) == (inner.now(), app.jobs.select())
        assert outer is app.clock
        assert 1 == len(app.jobs.select())


def test_another_database_may_be_given(tmp_path: Path):
    """Blocks may use a database of tests, which keeps its jobs."""
    url = f"sqlite:///{tmp_path}/tests.db"
    for known in (0, 1):
        with using_app(app, url=url):
            assert known == len(app.jobs.select())
            fail.enqueue()


def test_only_an_app_is_taken():
    """Other objects are refused with a line that names what to give."""
    with (
        pytest.raises(TypeError, match=r"using_app\(\) takes the App of the program, got 'shop:app'"),
        using_app(
            "shop:app"  # type: ignore[arg-type]
        ),
    ):
        pass
