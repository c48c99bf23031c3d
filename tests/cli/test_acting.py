"""`redrive jobs`: commands on many jobs, and the audit log; `redrive db` and `redrive check`."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from redrive import App
from redrive.cli import cli
from redrive.errors import StoreOpenError


def said(*words: str, status: int = 0) -> Result:
    """Run a command that ends with a status."""
    result = CliRunner().invoke(cli, list(words))
    assert (status, result.output) == (result.exit_code, result.output)
    return result


@contextlib.contextmanager
def tables(app: App) -> Iterator[sqlite3.Connection]:
    """The database, past redrive; what was done is committed."""
    path = app.url.removeprefix("sqlite:///").partition("?")[0]
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


@pytest.fixture
def three(shop: App) -> App:
    """A shop with three jobs that wait."""
    shop.tasks["charge"].options(delay="1h").enqueue_many([5, 6, 7])
    return shop


def test_many_are_cancelled_by_filter(three: App):
    """Jobs are cancelled by ids or by a filter, and one must be given."""
    assert "2 jobs are cancelled\n" == said("jobs", "cancel", "shop:app", "1", "2", "--why", "enough").stdout
    assert "1 job is cancelled\n" == said("jobs", "cancel", "shop:app", "--hold", "delay").stdout
    assert "at least one of --task, --queue, --hold" in said("jobs", "cancel", "shop:app", status=2).stderr
    assert "enough" == three.job(1).record.note


def test_a_redrive_can_be_slow_and_go_elsewhere(three: App):
    """A rate spaces due times out, and a destination moves the jobs; the audit log tells who did it."""
    said("jobs", "cancel", "shop:app", "--task", "charge", "--actor", "ann")
    done = said("jobs", "redrive", "shop:app", "1", "2", "3", "--rate", "2/s", "--to", "slow", "--actor", "bob")
    rows = [three.job(number).record for number in (1, 2, 3)]

    assert "3 jobs are redriven\n" == done.stdout
    assert {"slow"} == {row.queue for row in rows}
    assert [0.5, 0.5] == [
        (after.scheduled_at - before.scheduled_at).total_seconds() for before, after in itertools.pairwise(rows)
    ]
    assert (
        "is no rate" in CliRunner().invoke(cli, ["jobs", "redrive", "shop:app", "1", "--rate", "x"]).exception.args[0]
    )

    table = said("jobs", "audit", "shop:app").stdout
    assert table.index("bob") < table.index("ann")
    lines = [json.loads(line) for line in said("jobs", "audit", "shop:app", "--json").stdout.splitlines()]
    assert [("bob", "redrive"), ("ann", "cancel")] == [(line["actor"], line["action"]) for line in lines]
    assert ([1, 2, 3], "slow", 0.5) == tuple(lines[0]["details"][name] for name in ("ids", "queue", "spacing"))


def test_jobs_get_the_present_policy(three: App):
    """Waiting jobs get the policy of their task, after a dry run; what is kept is said on standard error."""
    three.tasks["charge"].options(retry="9 1h").enqueue(8)
    three.job(1).cancel()

    assert "1 job would be given" in said("jobs", "repolicy", "shop:app", "--task", "charge", "--dry-run").stdout
    done = said("jobs", "repolicy", "shop:app", "1", "4")
    assert ("1 job is given the present policy\n", "job 1 is cancelled\n") == (done.stdout, done.stderr)
    assert three.tasks["charge"].policy == three.job(4).record.policy


def test_a_dead_job_is_skipped_once(three: App):
    """A dead job lets the others pass; the second time it holds up nobody."""
    charge = three.tasks["charge"].options(retry="0")
    number = charge.enqueue(-5).id
    with tables(three) as connection:
        connection.execute(
            "UPDATE redrive_jobs SET state = 'dead', finished_at = 0, hold = NULL WHERE id = ?", (number,)
        )

    assert f"job {number} holds up nobody any more\n" == said("jobs", "skip", "shop:app", str(number)).stdout
    assert f"job {number} held up nobody\n" == said("jobs", "skip", "shop:app", str(number)).stdout


def test_a_schema_is_made_and_checked(shop: App):
    """`db migrate` makes the tables, `db check` compares versions, and tells with its status whether they differ."""
    assert "has schema 1, which is the present one" in said("db", "migrate", "shop:app").stdout
    assert "has schema 1, which is the present one" in said("db", "check", "shop:app").stdout
    with tables(shop) as connection:
        connection.execute("UPDATE redrive_meta SET value = '9' WHERE key = 'schema'")
    assert "has schema 9, with which this redrive, of schema 1, can work" in said("db", "check", "shop:app").stdout
    for version, advice in ((0, "redrive db migrate"), (9, "install the redrive that has migrated it")):
        with tables(shop) as connection:
            connection.execute("UPDATE redrive_meta SET value = ? WHERE key IN ('schema', 'compatible')", (version,))
        assert advice in said("db", "check", "shop:app", status=1).stderr


def test_a_database_that_is_not_there_is_not_made_by_a_check(shop: App):
    """`db check` looks at a database and makes none, not even an empty file."""
    with pytest.raises(StoreOpenError, match="does not exist; redrive db migrate creates it"):
        CliRunner().invoke(cli, ["db", "check", "shop:app"], catch_exceptions=False)

    path = Path(shop.url.removeprefix("sqlite:///").partition("?")[0])
    assert not path.exists()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_schema_can_be_printed(dialect: str):
    """Who runs migrations by hand gets them as text, or only those that are missing."""
    text = said("db", "sql", dialect).stdout

    assert text.startswith("-- 0001_pre_jobs\n")
    assert "CREATE TABLE redrive_jobs" in text
    assert "" == said("db", "sql", dialect, "--after", "1").stdout


def test_a_check_ends_with_what_it_found(three: App):
    """The status is 0 where nothing is wrong and 1 where something is; findings are sentences, or JSON."""
    assert "nothing is wrong\n" == said("check", "shop:app").stdout
    assert "" == said("check", "shop:app", "--json").stdout
    with tables(three) as connection:
        connection.execute("DELETE FROM redrive_payloads WHERE job_id = 2")

    assert "payloads: job 2 is ready and has no arguments\n" == said("check", "shop:app", status=1).stdout
    found = json.loads(said("check", "shop:app", "--json", status=1).stdout)
    assert {"id": 2, "rule": "payloads", "text": "job 2 is ready and has no arguments"} == found
