"""PostgreSQL refuses an update by which a job would contradict itself, whatever program writes it."""

from __future__ import annotations

import re

import psycopg
import pytest

from redrive.stores.drivers.postgres.statements import prepared
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from redrive.stores.statements import loader
from tests import postgres
from tests.stores.helpers import T0, new

LEASE = "lease_id = 1, worker_id = 1, claimed_at = now()"
SUCCESS = "success_lease_id = 1, success_worker_id = 1, claimed_at = now(), finished_at = now()"

POSSIBLE = [
    "hold = 'retry'",
    f"state = 'running', {LEASE}, slot = 'mail'",
    f"state = 'waiting', {LEASE}, hold = 'bad_policy'",
    f"state = 'succeeded', {SUCCESS}",
    "state = 'dead', finished_at = now(), caught_at = now(), skipped_at = now()",
    "state = 'cancelled', finished_at = now()",
    "started_at = now(), expires_at = now() + interval '1 s'",
]

IMPOSSIBLE = [
    "state = 'lost'",
    "hold = 'later'",
    "task = ''",
    "queue = ''",
    "partition = ''",
    "attempt = -1",
    "failures = -1",
    "crashes = -1",
    "snoozes = -1",
    "redrives = -1",
    "timeout_for = interval '0'",
    "key = 'a'",
    "key = 'a', key_until = 'later'",
    "started_at = now(), expires_at = now()",
    LEASE,
    SUCCESS,
    "worker_id = 1",
    "slot = 'mail'",
    "caught_at = now()",
    "skipped_at = now()",
    "finished_at = now()",
    "state = 'running'",
    "state = 'running', lease_id = 1, worker_id = 1",
    "state = 'running', lease_id = 1, claimed_at = now()",
    f"state = 'running', {LEASE}, finished_at = now()",
    f"state = 'running', {LEASE}, hold = 'retry'",
    f"state = 'running', {LEASE}, success_lease_id = 2",
    f"state = 'waiting', {LEASE}, slot = 'mail'",
    f"state = 'waiting', {LEASE}, hold = 'retry'",
    f"state = 'waiting', {LEASE}, skipped_at = now()",
    "state = 'succeeded', finished_at = now()",
    f"state = 'succeeded', {SUCCESS}, lease_id = 1",
    f"state = 'succeeded', {SUCCESS}, hold = 'retry'",
    f"state = 'succeeded', {SUCCESS}, caught_at = now()",
    "state = 'dead'",
    f"state = 'dead', finished_at = now(), {LEASE}",
    "state = 'dead', finished_at = now(), slot = 'mail'",
    "state = 'dead', finished_at = now(), success_worker_id = 1",
    "state = 'cancelled'",
    "state = 'cancelled', finished_at = now(), hold = 'retry'",
    "state = 'cancelled', finished_at = now(), skipped_at = now()",
]


def test_rows_of_jobs_that_contradict_themselves_are_refused():
    """Each state has its columns, and no others."""
    schema = postgres.fresh()
    store = open_store(postgres.url(schema))
    store.run(jobs.enqueue([new()], now=T0))
    store.close()
    with postgres.connect() as connection:
        for change in POSSIBLE + IMPOSSIBLE:
            with connection.transaction(force_rollback=True):
                update = f"UPDATE {schema}.redrive_jobs SET {change}"  # noqa: S608 - texts of this module
                if change in POSSIBLE:
                    connection.execute(update)
                else:
                    with pytest.raises(psycopg.errors.CheckViolation):
                        connection.execute(update)


def test_the_check_of_a_database_finds_the_same_rows():
    """A row that another program has inserted is found before the claims that fail because of it."""
    schema = postgres.fresh()
    store = open_store(postgres.url(schema))
    store.run(jobs.enqueue([new()], now=T0))
    store.close()
    statement = prepared(schema)["check_columns"]
    bounds = {"after_id": 0, "until": 10, "count": 10}
    with postgres.connect() as connection:
        for change in POSSIBLE + IMPOSSIBLE:
            with connection.transaction(force_rollback=True):
                connection.execute(f"ALTER TABLE {schema}.redrive_jobs DISABLE TRIGGER redrive_jobs_life")
                try:
                    connection.execute(f"UPDATE {schema}.redrive_jobs SET {change}")  # noqa: S608 - texts of this module
                except psycopg.errors.CheckViolation:
                    # The type of a column refuses it.
                    assert change in IMPOSSIBLE
                    continue
                cursor = psycopg.RawCursor(connection)
                found = cursor.execute(statement.text, [bounds[name] for name in statement.names]).fetchall()

                assert (change in IMPOSSIBLE) == bool(found), change


_INSERT = re.compile(r"INSERT INTO redrive_jobs \(([^)]*)\)\s*SELECT(.*?)\bFROM\b", re.DOTALL)


def test_jobs_are_inserted_ready():
    """No statement inserts a job in another state, or with a column of another one: only updates are checked."""
    texts = [re.sub("--.*", "", text) for text in loader.statements("postgres").values()]
    inserts = [match for text in texts for match in _INSERT.finditer(text)]
    later = {each.split(" = ")[0] for each in f"{LEASE}, {SUCCESS}".split(", ")} | {"slot", "caught_at", "skipped_at"}

    assert len(inserts) == sum(len(re.findall(r"INTO\s+redrive_jobs\b", text)) for text in texts) > 0
    for match in inserts:
        names = [name.strip() for name in match[1].split(",")]
        # No value before that of the state contains a comma.
        state = match[2].split(",")[names.index("state")].strip()

        assert "'ready'" == state
        assert later.isdisjoint(names)
        assert "started_at" not in names
        assert ("key" in names) == ("key_until" in names)
