"""The databases that are kept, one of each version: each is migrated, and its work goes on where it stood.

They are made by ``make fixture`` (`tests.upgrades.make`).
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import httpx
import pytest

import redrive
from redrive.cli import main
from redrive.errors import DuplicateJob
from redrive.stores.opening import open_store
from redrive.stores.operations import leases
from redrive.testing import VirtualClock, drain, using_app
from redrive.web import NoAuth, create_app
from tests import postgres
from tests.stores import schemas
from tests.upgrades import fill, kept, work
from tests.upgrades.kept import Kept

PRESENT = redrive.__version__

EMPTY = {"redrive_done", "redrive_event_pages", "redrive_traces", "redrive_unstopped"}
"""Tables without rows in kept databases: their rows live for less than an attempt, or need a library or much data."""

ADVICE = f"""the schema of the kept database of {PRESENT} is not that of the code.
If {PRESENT} was not released: run `make fixture`, and commit tests/upgrades/{PRESENT}.
If it was: leave the migrations that it has as they are, and add one to src/redrive/stores/migrations."""


def described(url: str) -> object:
    """Return the description of a schema that can be compared with another one."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])) as connection:
            return schemas.of_sqlite(connection.cursor())
    with postgres.connect() as connection:
        return schemas.of_postgres(connection, schema_of(url))


def schema_of(url: str) -> str:
    """Return the schema in the URL of a store on PostgreSQL."""
    return url.partition("schema=")[2].partition("&")[0]


@pytest.fixture
def fresh(kind: str, tmp_path: Path) -> str:
    """Return the URL of a database that the present code has just created."""
    url = f"sqlite:///{tmp_path}/fresh.db" if kind == "sqlite" else postgres.url()
    open_store(url).close()
    return url


def test_a_database_of_the_present_version_is_kept():
    """The present version has a kept database, and those of released versions name their commits."""
    assert PRESENT == kept.versions()[-1], f"run `make fixture`, and commit tests/upgrades/{PRESENT}"
    for version in kept.versions()[:-1]:
        assert kept.tag_of(version) is not None, f"name the tag of {version} in tests/upgrades/{version}/kept.json"


@pytest.mark.parametrize("kind", kept.KINDS)
def test_the_kept_database_has_the_present_schema(kind: str, fresh: str, tmp_path: Path):
    """The kept database of the present version has the schema of the code, before any migration."""
    assert described(fresh) == described(kept.load(PRESENT, kind, tmp_path)), ADVICE


def test_the_kept_database_has_rows_of_every_kind(tmp_path: Path):
    """Each table of the kept database of the present version has a row; a new table needs content in `fill`."""
    kept.load(PRESENT, "sqlite", tmp_path)
    with closing(sqlite3.connect(tmp_path / "kept.db")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows = "SELECT 1 FROM {} LIMIT 1"
        empty = {name for name in names if connection.execute(rows.format(name)).fetchone() is None}

    assert EMPTY == empty


@pytest.mark.parametrize("version", kept.versions())
def test_a_kept_database_loads_into_the_oldest_server(version: str, tmp_path: Path):
    """The dump of PostgreSQL has nothing that only newer servers read."""
    url = kept.load(version, "postgres", tmp_path, number=postgres.OLDEST)
    with closing(open_store(url)) as store:
        schema, code = store.schema()

    assert schema.suits(code)


@pytest.fixture(name="upgraded", params=itertools.product(kept.versions(), kept.KINDS), ids="-".join)
def _upgraded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Kept, VirtualClock]]:
    """Load a kept database, migrate it by the command, and give it to the app at the instant at which it was left."""
    version, kind = request.param
    known = kept.read(version)
    url = kept.load(version, kind, tmp_path)
    clock = VirtualClock(datetime.fromisoformat(known.at))
    work.LEDGER.clear()
    with using_app(work.app, url=url, clock=clock):
        commands = [["db", "migrate"], ["topics", "rebase"]] if kind == "postgres" else [["db", "migrate"]]
        for command in commands:
            monkeypatch.setattr(sys, "argv", ["redrive", *command, "tests.upgrades.work:app"])
            with pytest.raises(SystemExit) as left:
                main()
            assert not left.value.code
        yield known, clock


def test_the_work_of_a_kept_database_goes_on(upgraded: tuple[Kept, VirtualClock]):
    """All that stood in the database is there, all that can end does, and each effect that was left happens once."""
    known, clock = upgraded
    found = fill.found()
    assert known.before == {name: found[name] for name in known.before}
    clock.advance("11s")
    work.app.store.run(leases.sweep(100, now=clock.now()))
    fill.finish()
    with pytest.raises(DuplicateJob):
        work.do.options(key="the only one").enqueue("again")
    again = work.do.options(idempotency_key="request done").enqueue("done")
    drain(work.app, within=fill.UNTIL, sample=lambda: 0.0)
    found = fill.found()

    assert (False, "did done") == (again.created, again.result())
    assert {} == Counter(work.LEDGER) - Counter(known.effects)
    assert {} == Counter(known.effects) - Counter(work.LEDGER)
    for name, before in known.before.items():
        expected = before | known.after[name]
        assert (name, expected) == (name, {key: found[name].get(key) for key in expected})
    assert () == work.app.database.verify()


async def answered(paths: list[str]) -> dict[str, httpx.Response]:
    """Return the answers of the dashboard, by their paths."""
    transport = httpx.ASGITransport(create_app(work.app, auth=NoAuth(), reference="work:app"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return {path: await client.get(f"/api/v1{path}") for path in paths}


def test_the_dashboard_shows_a_kept_database(upgraded: tuple[Kept, VirtualClock]):
    """Each job, run, instance, item, cron, subscription, operation and queue has its page, and so have all lists."""
    jobs = work.app.jobs.select(redrive.Filter(limit=10_000))
    known, _ = upgraded
    singles = [f"/jobs/{each.id}" for each in jobs]
    singles += [
        f"/runs/{workflow}/{run}" for workflow, _, run in (each.partition("/") for each in known.before["runs"])
    ]
    singles += [f"/machines/payment/{each}" for each in known.before["instances"]]
    singles += [f"/schedules/prices/item?key={each}" for each in known.before["items"]]
    singles += [f"/schedules/{each}" for each in known.before["schedules"]]
    singles += [f"/topics/orders/{each}" for each in known.before["deliveries"]]
    singles += [f"/operations/{each}" for each in known.before["operations"]]
    singles += [f"/queues/{each}" for each in known.before["queues"]]
    lists = ["overview", "health", "jobs", "errors", "queues", "tasks", "workers", "builds", "runs", "machines"]
    lists += ["machines/payment", "topics", "schedules", "operations", "audit", "find?q=found"]
    answers = asyncio.run(answered([*singles, *(f"/{each}" for each in lists)]))

    assert [] == [(path, each.status_code, each.text) for path, each in answers.items() if each.status_code != 200]
    assert len(jobs) == sum(map(len, known.before["jobs"].values()))
    assert [str(each.id) for each in jobs] == [answers[f"/jobs/{each.id}"].json()["job"]["id"] for each in jobs]
