"""`redrive jobs`: commands on many jobs, and the audit log; `redrive db` and `redrive check`."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from redrive import App, __version__
from redrive.cli import cli
from redrive.errors import StoreOpenError
from redrive.stores import migrate
from redrive.stores.operations import leases, workers


def run_command(*words: str, status: int = 0) -> Result:
    """Run a command that ends with a status."""
    result = CliRunner().invoke(cli, list(words))
    assert (status, result.output) == (result.exit_code, result.output)
    return result


@contextlib.contextmanager
def tables(app: App) -> Iterator[sqlite3.Connection]:
    """Open the database without redrive, and commit at the end."""
    path = app.url.removeprefix("sqlite:///").partition("?")[0]
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


@pytest.fixture
def three(shop: App) -> App:
    """Return a shop with three waiting jobs."""
    shop.tasks["charge"].options(delay="1h").enqueue_many([5, 6, 7])
    return shop


def test_jobs_are_cancelled_by_filter(three: App):
    """Jobs are cancelled by ids or by a filter, and one must be given."""
    assert "2 jobs are cancelled\n" == run_command("jobs", "cancel", "shop:app", "1", "2", "--why", "enough").stdout
    assert "1 job is cancelled\n" == run_command("jobs", "cancel", "shop:app", "--hold", "delay").stdout
    assert "at least one of --state, --task, --queue" in run_command("jobs", "cancel", "shop:app", status=2).stderr
    assert "enough" == three.job(1).record.note


def test_a_redrive_can_have_a_rate_and_another_queue(three: App):
    """Rates space due times out, destinations move the jobs, and the audit log names the actor."""
    run_command("jobs", "cancel", "shop:app", "--task", "charge", "--actor", "ann")
    done = run_command("jobs", "redrive", "shop:app", "1", "2", "3", "--rate", "2/s", "--to", "slow", "--actor", "bob")
    rows = [three.job(number).record for number in (1, 2, 3)]

    assert "3 jobs are redriven\n" == done.stdout
    assert {"slow"} == {row.queue for row in rows}
    assert [0.5, 0.5] == [
        (after.scheduled_at - before.scheduled_at).total_seconds() for before, after in itertools.pairwise(rows)
    ]
    assert (
        "is not a rate"
        in CliRunner().invoke(cli, ["jobs", "redrive", "shop:app", "1", "--rate", "x"]).exception.args[0]
    )

    table = run_command("jobs", "audit", "shop:app").stdout
    assert table.index("bob") < table.index("ann")
    lines = [json.loads(line) for line in run_command("jobs", "audit", "shop:app", "--json").stdout.splitlines()]
    assert [("bob", "redrive"), ("ann", "cancel"), ("ann", "start_cancel")] == [
        (line["actor"], line["action"]) for line in lines
    ]
    assert '"ids":[1,2,3]' in table
    assert ([1, 2, 3], "slow", 0.5) == tuple(lines[0]["details"][name] for name in ("ids", "queue", "spacing"))


def test_many_ids_of_an_entry_are_ranges(shop: App):
    """A bulk action on thousands of jobs is one line of the audit log; --json has each id."""
    for _ in range(6):
        shop.tasks["charge"].enqueue(5)
    run_command("jobs", "cancel", "shop:app", "1", "2", "3", "6", "--actor", "ann")
    table = run_command("jobs", "audit", "shop:app").stdout
    line = json.loads(run_command("jobs", "audit", "shop:app", "--json").stdout.splitlines()[0])

    assert '"ids":"1-3, 6 (4 jobs)"' in table
    assert [1, 2, 3, 6] == line["details"]["ids"]


def test_jobs_get_the_present_policy(three: App):
    """After a dry run waiting jobs get the policy of their task; refused ones are listed on standard error."""
    three.tasks["charge"].options(retry="9 1h").enqueue(8)
    three.job(1).cancel()

    assert "1 job would be given" in run_command("jobs", "repolicy", "shop:app", "--task", "charge", "--dry-run").stdout
    done = run_command("jobs", "repolicy", "shop:app", "1", "4")
    assert ("1 job is given the present policy\n", "job 1 is cancelled\n") == (done.stdout, done.stderr)
    assert three.tasks["charge"].policy == three.job(4).record.policy


def test_a_dead_job_is_skipped_once(three: App):
    """Skipping a dead job lets the others pass; a second skip changes nothing."""
    charge = three.tasks["charge"].options(retry="0")
    number = charge.enqueue(-5).id
    with tables(three) as connection:
        connection.execute(
            "UPDATE redrive_jobs SET state = 'dead', finished_at = 0, hold = NULL WHERE id = ?", (number,)
        )

    assert f"job {number} blocks no other job any more\n" == run_command("jobs", "skip", "shop:app", str(number)).stdout
    assert f"job {number} blocked no other job\n" == run_command("jobs", "skip", "shop:app", str(number)).stdout


def test_a_schema_is_made_and_checked(shop: App):
    """Create the tables by `db migrate`, compare versions by `db check`, and return the result as exit status."""
    assert "has schema 1, which is the present one" in run_command("db", "migrate", "shop:app").stdout
    assert "has schema 1, which is the present one" in run_command("db", "check", "shop:app").stdout
    with tables(shop) as connection:
        connection.execute("UPDATE redrive_meta SET value = '9' WHERE key = 'schema'")
    assert (
        "has schema 9, with which this redrive, of schema 1, can work" in run_command("db", "check", "shop:app").stdout
    )
    for version, advice in ((0, "redrive db migrate shop:app"), (9, "install the redrive that has migrated it")):
        with tables(shop) as connection:
            connection.execute("UPDATE redrive_meta SET value = ? WHERE key IN ('schema', 'compatible')", (version,))
        assert advice in run_command("db", "check", "shop:app", status=1).stderr


def test_a_schema_is_json(shop: App):
    """Print the versions, and whether this redrive can work with the schema, which is the exit status too."""
    run_command("db", "migrate", "shop:app")
    fit = json.loads(run_command("db", "check", "shop:app", "--json").stdout)
    with tables(shop) as connection:
        connection.execute("UPDATE redrive_meta SET value = '9' WHERE key IN ('schema', 'compatible')")
    unfit = json.loads(run_command("db", "check", "shop:app", "--json", status=1).stdout)

    assert {"schema": 1, "compatible": 1, "latest": 1, "fits": True} == fit
    assert (9, False) == (unfit["schema"], unfit["fits"])


def _release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a migration of each phase, as a later release does."""
    more = (
        migrate.Migration(2, "0002_pre_more", "pre", "CREATE TABLE more (x);\n"),
        migrate.Migration(3, "0003_post_more", "post", "DROP TABLE more;\n"),
    )
    both = (*migrate.migrations("sqlite"), *more)
    monkeypatch.setattr(migrate, "migrations", lambda _: both)


def test_a_schema_is_migrated_around_a_deployment(shop: App, monkeypatch: pytest.MonkeyPatch):
    """The phase post is refused while an old worker lives, and `db check` and `doctor` name it until it has run."""
    run_command("db", "migrate", "shop:app")
    old = shop.store.run(workers.register("old", concurrency=1, lease_for=timedelta(hours=1), version="0.0.1"))
    _release(monkeypatch)
    unfit = run_command("db", "check", "shop:app", status=1).stderr
    early = CliRunner().invoke(cli, ["db", "migrate", "shop:app", "--phase", "post"])
    before = run_command("db", "migrate", "shop:app", "--phase", "pre").stdout
    fit = run_command("db", "check", "shop:app").stdout
    refused = run_command("db", "migrate", "shop:app", "--phase", "post", status=1).stderr
    noted = CliRunner().invoke(cli, ["doctor", "shop:app"]).stdout
    shop.store.run(workers.leave(old))
    after = run_command("db", "migrate", "shop:app", "--phase", "post").stdout

    assert "has schema 1, and this redrive needs 2: redrive db migrate shop:app brings it there" in unfit
    assert "the phase post begins at 2" in str(early.exception)
    assert "has schema 2, with which this redrive can work" in before
    assert before == fit
    assert f"workers of another version than {__version__} are alive: old (0.0.1)" in refused
    assert "migrations of the phase post lead to 3" in noted
    assert "redrive db migrate shop:app --phase post" in noted
    assert "has schema 3, which is the present one" in after


def test_a_schema_is_migrated_without_a_deployment(shop: App, monkeypatch: pytest.MonkeyPatch):
    """Without a phase all migrations run at once."""
    run_command("db", "migrate", "shop:app")
    _release(monkeypatch)

    assert "has schema 3, which is the present one" in run_command("db", "migrate", "shop:app").stdout


def test_printed_migrations_make_a_database(shop: App, monkeypatch: pytest.MonkeyPatch):
    """The printed SQL writes the version too, so that the database can be used; each phase is printed by itself."""
    _release(monkeypatch)
    first = run_command("db", "sql", "sqlite").stdout
    pre = run_command("db", "sql", "sqlite", "--after", "1", "--phase", "pre").stdout
    post = run_command("db", "sql", "sqlite", "--after", "2", "--phase", "post").stdout
    with tables(shop) as connection:
        connection.executescript(first)

    assert "has schema 3, which is the present one" in run_command("db", "check", "shop:app").stdout
    assert "('schema', '2'), ('compatible', '1')" in pre
    assert "('schema', '3'), ('compatible', '3')" in post
    assert "" == run_command("db", "sql", "sqlite", "--after", "3").stdout


def test_a_check_does_not_create_a_missing_database(shop: App):
    """Check a missing database by `db check` without creating it, not even as an empty file."""
    with pytest.raises(StoreOpenError, match="does not exist; redrive db migrate shop:app creates it"):
        CliRunner().invoke(cli, ["db", "check", "shop:app"], catch_exceptions=False)

    path = Path(shop.url.removeprefix("sqlite:///").partition("?")[0])
    assert not path.exists()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_schema_can_be_printed(dialect: str):
    """Print the migrations as SQL, all or only the missing ones."""
    text = run_command("db", "sql", dialect).stdout

    assert text.startswith("-- 0001_pre_schema\n")
    assert "CREATE TABLE redrive_jobs" in text
    assert "" == run_command("db", "sql", dialect, "--after", "1").stdout


def test_migrations_after_a_version_that_does_not_exist_are_refused(redrive):
    """An empty output would mean that the database is up to date."""
    answer = redrive("db", "sql", "postgres", "--after", "99")

    assert (2, "") == (answer.status, answer.out)
    assert "there is no version 99 of the schema; the present one is 1" in " ".join(answer.err.replace("│", "").split())


def test_the_status_of_a_check_shows_its_findings(three: App):
    """Exit with 0 without findings and with 1 otherwise; findings are sentences, or JSON."""
    assert "nothing is wrong\n" == run_command("check", "shop:app").stdout
    assert "" == run_command("check", "shop:app", "--json").stdout
    with tables(three) as connection:
        connection.execute("DELETE FROM redrive_payloads WHERE job_id = 2")

    assert "payloads: job 2 is ready and has no arguments\n" == run_command("check", "shop:app", status=1).stdout
    found = json.loads(run_command("check", "shop:app", "--json", status=1).stdout)
    assert {"id": 2, "rule": "payloads", "text": "job 2 is ready and has no arguments"} == found


# ------------------------------------------------------------------------------------------------- delete and archive


def test_jobs_are_deleted_after_a_question(shop: App, redrive):
    """``delete`` without --yes does nothing where there is no terminal, and names how many jobs it would delete."""
    shop.tasks["charge"].options(tags="spring").enqueue_many([1, 2])
    shop.tasks["charge"].enqueue(3)

    refused = redrive("jobs", "delete", "shop:app", "--tag", "spring")
    assert 2 == refused.status
    assert "2 jobs would be deleted: add --yes" in " ".join(refused.err.split())
    assert "2 jobs would be deleted\n" == redrive("jobs", "delete", "shop:app", "--tag", "spring", "--dry-run").out
    assert 3 == len(shop.jobs.select())
    assert "2 jobs are deleted\n" == redrive("jobs", "delete", "shop:app", "--tag", "spring", "--yes").out
    done = redrive("jobs", "delete", "shop:app", "3", "--yes", "--json")
    assert {"deleted": [3], "kept": {}, "dry_run": False} == json.loads(done.out)


def test_a_delete_needs_a_condition(shop: App, redrive):
    """``delete`` and ``archive`` without a condition demand --all; unknown ids are named."""
    shop.tasks["charge"].enqueue(1)

    for words in (("delete", "shop:app", "--yes"), ("archive", "shop:app", "--to", "x.jsonl")):
        refused = redrive("jobs", *words)
        assert (2, True) == (refused.status, "give ids, a condition such as" in " ".join(refused.err.split()))
    missing = redrive("jobs", "delete", "shop:app", "404", "--yes")
    assert (1, True) == (missing.status, "there is no job 404 in sqlite:///shop.db" in missing.err)
    assert "1 job is deleted\n" == redrive("jobs", "delete", "shop:app", "--all", "--yes").out


def test_running_jobs_are_not_deleted(shop: App, redrive):
    """Running jobs stay, and the reason is written to standard error."""
    job = shop.tasks["charge"].enqueue(1)
    worker = shop.store.run(workers.register("w", concurrency=1, lease_for=timedelta(hours=1)))
    shop.store.run(leases.claim(worker, 1, lease_for=timedelta(hours=1)))

    done = redrive("jobs", "delete", "shop:app", str(job.id), "--yes")
    assert ("0 jobs are deleted\n", f"job {job.id} runs: cancel it first, or let it end\n") == (done.out, done.err)


def test_old_jobs_are_archived(shop: App, redrive, tmp_path: Path):
    """``archive`` appends ended jobs to a file and deletes them; younger jobs stay."""
    shop.tasks["charge"].enqueue(1).cancel("enough")
    words = "jobs", "archive", "shop:app", "--to", "jobs.jsonl"

    assert "0 jobs are archived\n" == redrive(*words, "--older-than", "30d").out
    assert "1 job would be archived\n" == redrive(*words, "--older-than", "0s", "--dry-run").out
    assert "1 job is archived\n" == redrive(*words, "--older-than", "0s").out
    (line,) = (tmp_path / "jobs.jsonl").read_text().splitlines()
    assert ("cancelled", {"cents": 1}) == (json.loads(line)["state"], json.loads(line)["payload"])
    assert () == shop.jobs.select()
    shop.tasks["charge"].enqueue(1).cancel("enough")
    wrong = redrive(*words[:-1], "none/jobs.jsonl", "--all")
    assert (1, True) == (wrong.status, "'none/jobs.jsonl' cannot be written, and nothing was deleted" in wrong.err)
    assert 2 == redrive(*words, "--older-than", "a while").status
