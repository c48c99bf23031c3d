"""A database that is restored from a backup, and goes on: it hands out the same ids again, but no key and no lease."""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App, Context
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim
from redrive.errors import JobNotFound
from redrive.runtime.executor import Executor
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending
from tests import postgres
from tests.runtime.helpers import take


class CopyableDatabase(ABC):
    """A database that can be copied and put back, while no store has it open."""

    url: str

    @abstractmethod
    def back_up(self) -> None:
        """Make the backup."""

    @abstractmethod
    def restore(self) -> None:
        """Put the backup in the place of the database."""


class File(CopyableDatabase):
    """A file, of SQLite or Turso."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self._folder = folder
        self.url = f"{scheme}:///{folder / 'live' / 'jobs.db'}"
        (folder / "live").mkdir()

    def back_up(self) -> None:
        """Copy it, with its log."""
        shutil.copytree(self._folder / "live", self._folder / "backup")

    def restore(self) -> None:
        """Copy it back."""
        shutil.rmtree(self._folder / "live")
        shutil.copytree(self._folder / "backup", self._folder / "live")


class PostgresDatabase(CopyableDatabase):
    """A database on PostgreSQL."""

    def __init__(self) -> None:
        self._live, self._backup = postgres.fresh(), postgres.fresh()
        self.url = postgres.url("redrive", database=self._live)
        self._run(f"CREATE DATABASE {self._live}")

    def back_up(self) -> None:
        """Copy it."""
        self._run(f"CREATE DATABASE {self._backup} TEMPLATE {self._live}")

    def restore(self) -> None:
        """Copy it back."""
        self._run(f"DROP DATABASE {self._live}")
        self._run(f"CREATE DATABASE {self._live} TEMPLATE {self._backup}")

    def drop(self) -> None:
        """Delete both."""
        for name in (self._live, self._backup):
            self._run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        with postgres.connect() as connection:
            connection.execute(statement)  # type: ignore[call-overload]


@pytest.fixture(params=["sqlite", "turso", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CopyableDatabase]:
    """Return a database of each kind."""
    if request.param != "postgresql":
        yield File(tmp_path, request.param)
        return
    server = PostgresDatabase()
    yield server
    server.drop()


class Life:
    """An app on the database, from one restart to the next.

    Attributes:
        ids: of the jobs that it has run.
        keys: their idempotency keys, as their handlers saw them.
        attempts: their attempts, likewise.
    """

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.ids: list[int] = []
        self.keys: list[str] = []
        self.attempts: list[str] = []

        @self.app.task
        async def note(context: Context) -> None:
            """Note what is to be unique."""
            self.ids.append(context.job_id)
            self.keys.append(context.idempotency_key)
            self.attempts.append(context.attempt_uid)

        self.task = note

    def work(self, count: int) -> None:
        """Enqueue and run some jobs."""
        self.task.enqueue_many([() for _ in range(count)])
        for claim in take(self.app, count):
            outcome = asyncio.run(Executor(self.app, None).run(claim))
            self.app.store.run(leases.settle([Ending(claim, outcome, 0.0)]))

    def hold(self) -> Claim:
        """Enqueue a job and claim it."""
        self.task.enqueue()
        (claim,) = take(self.app)
        return claim


def test_a_restored_database_repeats_ids_but_neither_keys_nor_leases(place: CopyableDatabase):
    """After a restore, ids repeat, but idempotency keys and leases do not."""
    start = Life(place.url)
    start.work(2)
    start.app.close()
    place.back_up()
    lives = [Life(place.url), Life(place.url)]
    for life in lives:
        life.work(20)
        life.app.close()
        place.restore()
    first, second = lives

    assert first.ids == second.ids
    assert 40 == len({*first.keys, *second.keys})
    assert 40 == len({*first.attempts, *second.attempts})


def test_a_job_of_the_backup_keeps_its_key(place: CopyableDatabase):
    """Its attempts before and after the restoration are attempts of one job."""
    life = Life(place.url)
    number = life.task.enqueue().id
    key = life.app.jobs.idempotency_key(number)
    life.app.close()
    place.back_up()
    place.restore()
    life = Life(place.url)
    found = life.app.jobs.idempotency_key(number)
    life.app.close()

    assert key == found


def test_a_worker_from_before_a_restore_cannot_settle_a_later_job(place: CopyableDatabase):
    """Its lease has the number of the new one, and is another one all the same."""
    start = Life(place.url)
    start.work(1)
    start.app.close()
    place.back_up()
    life = Life(place.url)
    old = life.hold()
    life.app.close()
    place.restore()
    life = Life(place.url)
    new = life.hold()
    settled = life.app.store.run(leases.settle([Ending(old, Succeeded(b"1"), 0.0)]))
    life.app.close()

    assert (old.id, old.lease_id >> 20) == (new.id, new.lease_id >> 20)
    assert {old.lease_id} == settled.lost


def test_a_key_needs_a_job(place: CopyableDatabase):
    """Unknown ids have no idempotency key."""
    life = Life(place.url)
    with pytest.raises(JobNotFound, match="no job 7"):
        life.app.jobs.idempotency_key(7)
    life.app.close()
