"""Migrations: each runs once, in order, whichever process is first; their sum is the documented schema."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from importlib import resources
from pathlib import Path

import psycopg
import pytest

from redrive import stores
from redrive.errors import SchemaTooNew, StoreError, StoreOpenError
from redrive.stores import migrate
from redrive.stores.migrate import Phase, _split
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from redrive.stores.operations.admin import identify
from redrive.stores.operations.schema import Schema, Versions, found, mismatch
from tests import postgres
from tests.stores import schemas
from tests.stores.helpers import T0, new

ROOT = Path(__file__).parents[2]
FOLDER = resources.files(stores) / "migrations"
DIALECTS = sorted(each.name for each in FOLDER.iterdir())


@pytest.fixture
def cursor():
    """Return a cursor in autocommit mode, on an empty database."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection.cursor()
    connection.close()


# ---------------------------------------------------------------------------------------------------- files


def test_at_least_one_dialect_exists():
    """At least one dialect has migrations."""
    assert "sqlite" in DIALECTS


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered_without_gaps(dialect: str):
    """Migrations of a dialect are numbered from 1, and the last number is the version of the schema."""
    numbers = [step.number for step in migrate.migrations(dialect)]

    assert list(range(1, len(numbers) + 1)) == numbers
    assert len(numbers) == migrate.versions(dialect).latest


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_file_in_a_migrations_folder_is_a_migration(dialect: str):
    """No file is passed over because of its name: each is called like 0001_pre_what.sql or 0002_post_what.sql."""
    files = sorted(file.name for file in (FOLDER / dialect).iterdir())

    assert files == [f"{step.name}.sql" for step in migrate.migrations(dialect)]
    assert {step.phase for step in migrate.migrations(dialect)} <= {"pre", "post"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_the_same_migrations(dialect: str):
    """Dialects move in step: the same versions with the same names everywhere."""
    assert [step.name for step in migrate.migrations(DIALECTS[0])] == [
        step.name for step in migrate.migrations(dialect)
    ]


def test_a_schema_made_by_the_scripts_equals_the_migrated_schema(cursor: sqlite3.Cursor):
    """Databases made by the scripts of the migrations have the same tables, checks, indexes and views as migrated ones.

    The first script is the schema that the documentation shows, as long as it is the only one.
    """
    migrate.migrate(cursor, "sqlite", "a.db")
    read = sqlite3.connect(":memory:")
    read.executescript(_scripts("sqlite"))
    expected = schemas.of_sqlite(read.cursor())
    read.close()

    assert expected == schemas.of_sqlite(cursor)
    assert len(expected) > 10


def _scripts(dialect: str) -> str:
    return "".join(path.read_text() for path in sorted((ROOT / "src/redrive/stores/migrations" / dialect).iterdir()))


def test_a_schema_made_by_the_scripts_equals_the_migrated_schema_on_postgresql():
    """Schemas made by the scripts have the same tables, checks, indexes, views and triggers as migrated ones."""
    open_store(postgres.url(made := postgres.fresh())).close()
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {(read := postgres.fresh())}")
        connection.execute(f"SET search_path TO {read}")
        connection.execute(_scripts("postgres"))
        described = [schemas.of_postgres(connection, each) for each in (made, read)]

    assert described[0] == described[1]
    assert len(described[0]) > 100


# ---------------------------------------------------------------------------------------------------- running


def test_a_new_database_gets_all_migrations(cursor: sqlite3.Cursor):
    """Databases without redrive's tables get every migration, in order, and the latest version."""
    assert [step.name for step in migrate.migrations("sqlite")] == migrate.migrate(cursor, "sqlite", "a.db")
    assert (str(migrate.versions("sqlite").latest),) == cursor.execute(
        "SELECT value FROM redrive_meta WHERE key = 'schema'"
    ).fetchone()


def test_a_migrated_database_is_not_changed(cursor: sqlite3.Cursor):
    """Second migrations run no statement and write no row."""
    migrate.migrate(cursor, "sqlite", "a.db")
    before = cursor.connection.total_changes

    assert [] == migrate.migrate(cursor, "sqlite", "a.db")
    assert before == cursor.connection.total_changes


def test_tables_of_other_programs_are_not_changed(cursor: sqlite3.Cursor):
    """Databases with tables of an application get those of redrive beside them."""
    cursor.execute("CREATE TABLE orders (id)")
    cursor.execute("INSERT INTO orders VALUES (7)")
    migrate.migrate(cursor, "sqlite", "a.db")

    assert [(7,)] == cursor.execute("SELECT * FROM orders").fetchall()


def test_only_missing_migrations_run(cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch):
    """Databases of an older version get the later migrations only, in the order of their numbers."""
    migrate.migrate(cursor, "sqlite", "a.db")
    later = (
        migrate.Migration(2, "0002_pre_more", "pre", "CREATE TABLE more (id);"),
        migrate.Migration(
            3, "0003_post_more", "post", "ALTER TABLE more ADD COLUMN name;\nCREATE INDEX i ON more (id);"
        ),
    )
    both = (*migrate.migrations("sqlite"), *later)
    monkeypatch.setattr(migrate, "migrations", lambda _: both)

    assert ["0002_pre_more", "0003_post_more"] == migrate.migrate(cursor, "sqlite", "a.db")
    assert ("index", "i") in schemas.of_sqlite(cursor)
    assert [] == migrate.migrate(cursor, "sqlite", "a.db")


def test_a_migration_that_fails_leaves_no_trace(cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch):
    """Migrations are all or nothing: where one fails, the database is as it was before the first."""
    broken = migrate.Migration(2, "0002_pre_broken", "pre", "CREATE TABLE more (id);\nCREATE TABLE more (id);")
    both = (*migrate.migrations("sqlite"), broken)
    monkeypatch.setattr(migrate, "migrations", lambda _: both)
    with pytest.raises(sqlite3.OperationalError, match="table more already exists"):
        migrate.migrate(cursor, "sqlite", "a.db")

    assert {} == schemas.of_sqlite(cursor)
    assert not cursor.connection.in_transaction


def test_the_error_of_a_migration_is_not_hidden_by_its_rollback():
    """If an error has ended the transaction by itself, that error is raised, not the one of the rollback."""

    class Full:
        """A cursor on a disk that is full."""

        def execute(self, statement: str, _parameters: object = ()) -> None:
            """Fail where something would be written, or undone."""
            for word in ("CREATE", "ROLLBACK"):
                if word in statement:
                    raise OSError(word)

        def fetchone(self) -> tuple[int]:
            """There are no tables yet."""
            return (0,)

    with pytest.raises(OSError, match="CREATE"):
        migrate.migrate(Full(), "sqlite", "a.db")


def test_a_newer_schema_is_refused(cursor: sqlite3.Cursor):
    """Databases that older versions of redrive cannot use are refused with the version to install."""
    migrate.migrate(cursor, "sqlite", "a.db")
    cursor.execute("UPDATE redrive_meta SET value = '99' WHERE key IN ('schema', 'compatible')")
    with pytest.raises(SchemaTooNew) as refused:
        migrate.migrate(cursor, "sqlite", "a.db")

    assert str(refused.value) == (
        f"a.db has schema 99, and this redrive supports schemas up to {migrate.versions('sqlite').latest}: "
        "a newer redrive has migrated it. Install that version; nothing was changed"
    )


def test_a_newer_schema_that_is_compatible_is_left_as_it_is(cursor: sqlite3.Cursor):
    """During a rolling deploy a process with the older code may start after the migration: nothing is run or noted."""
    migrate.migrate(cursor, "sqlite", "a.db")
    cursor.execute("UPDATE redrive_meta SET value = '99' WHERE key = 'schema'")

    assert [] == migrate.migrate(cursor, "sqlite", "a.db")
    assert "99" == cursor.execute("SELECT value FROM redrive_meta WHERE key = 'schema'").fetchone()[0]


def test_a_post_migration_excludes_older_code(cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch):
    """Migrations of the phase pre leave old code working; one of the phase post does not."""
    first = migrate.migrations("sqlite")
    phases = ["pre", "post", "pre"]
    more = [
        migrate.Migration(first[-1].number + i, f"n{i}", phase, f"CREATE TABLE t{i} (x);\n")
        for i, phase in enumerate(phases, 1)
    ]
    monkeypatch.setattr(migrate, "migrations", lambda _: (*first, *more))
    migrate.migrate(cursor, "sqlite", "a.db")
    noted = dict(cursor.execute("SELECT key, value FROM redrive_meta WHERE key IN ('schema', 'compatible')").fetchall())

    assert {"schema": str(first[-1].number + 3), "compatible": str(first[-1].number + 2)} == noted


def _later(monkeypatch: pytest.MonkeyPatch, *phases: str) -> None:
    """Add migrations of these phases, from number 2 on, as a later release does."""
    first = migrate.migrations("sqlite")[:1]
    more = [
        migrate.Migration(number, f"000{number}_{phase}_more", phase, f"CREATE TABLE more{number} (x bigint);\n")
        for number, phase in enumerate(phases, 2)
    ]
    monkeypatch.setattr(migrate, "migrations", lambda _: (*first, *more))


def _schema(cursor: sqlite3.Cursor) -> Schema:
    query = "SELECT value FROM redrive_meta WHERE key IN ('schema', 'compatible') ORDER BY key DESC"
    return found(*(value for (value,) in cursor.execute(query)))


def test_a_deployment_migrates_in_two_phases(cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch):
    """Old and new code work after the phase pre; after the phase post only the new code does."""
    old = migrate.versions("sqlite")
    migrate.migrate(cursor, "sqlite", "a.db")
    _later(monkeypatch, "pre", "post")
    new = migrate.versions("sqlite")
    fits = [(_schema(cursor).suits(old), _schema(cursor).suits(new))]
    run = []
    for phase in Phase:
        run.append(migrate.migrate(cursor, "sqlite", "a.db", phase=phase))
        fits.append((_schema(cursor).suits(old), _schema(cursor).suits(new)))

    assert Versions(needed=2, latest=3) == new
    assert [["0002_pre_more"], ["0003_post_more"]] == run
    assert [(True, False), (True, True), (False, True)] == fits
    assert [[], []] == [migrate.migrate(cursor, "sqlite", "a.db", phase=phase) for phase in Phase]


def test_code_refuses_a_schema_with_what_to_do():
    """Schemas before what code needs are to be migrated; for one that is too new another version is installed."""
    code = Versions(needed=2, latest=3)
    refusals = {each: mismatch(each, code, "a.db") for each in (Schema(1, 1), Schema(2, 1), Schema(4, 2), Schema(4, 4))}

    assert [StoreOpenError, type(None), type(None), SchemaTooNew] == [type(each) for each in refusals.values()]
    assert "this redrive works with schema 2: redrive db migrate APP brings it there" in str(refusals[Schema(1, 1)])


def test_the_phase_post_comes_after_the_phase_pre(cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch):
    """Phases in the wrong order are refused, and nothing is changed."""
    migrate.migrate(cursor, "sqlite", "a.db")
    _later(monkeypatch, "pre", "post")
    with pytest.raises(
        StoreOpenError, match="has version 1, and the phase post begins at 2: run redrive db migrate APP --phase pre"
    ):
        migrate.migrate(cursor, "sqlite", "a.db", phase=Phase.POST)

    assert Schema(1, 1) == _schema(cursor)


@pytest.mark.parametrize("phase", Phase)
def test_a_new_database_gets_all_migrations_in_each_phase(
    cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch, phase: Phase
):
    """No program uses a new database, so that nothing has to wait for a deployment."""
    _later(monkeypatch, "pre", "post")
    migrate.migrate(cursor, "sqlite", "a.db", phase=phase)

    assert Schema(3, 3) == _schema(cursor)


def test_the_phase_pre_includes_what_an_earlier_release_has_left(
    cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch
):
    """Migrations run in the order of their numbers, so that a post of an earlier release runs before a later pre."""
    migrate.migrate(cursor, "sqlite", "a.db")
    _later(monkeypatch, "post", "pre", "post")

    assert ["0002_post_more", "0003_pre_more"] == migrate.migrate(cursor, "sqlite", "a.db", phase=Phase.PRE)
    assert Schema(3, 2) == _schema(cursor)


@pytest.mark.parametrize("kind", ["sqlite", "turso", "postgres"])
def test_opening_a_store_runs_only_the_phase_pre(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Programs that open a database leave to older workers what they need; all migrations run if that is asked for."""
    url = postgres.url() if kind == "postgres" else f"{kind}:///{tmp_path}/a.db"
    open_store(url).close()
    _later(monkeypatch, "pre", "post")
    store = open_store(url)
    found = store.schema()[0], store.check_schema()
    store.close()
    store = open_store(url, phase=None)
    after = store.schema()[0]
    store.close()

    assert (Schema(2, 1), 0) == found
    assert Schema(3, 3) == after


FOREIGN = [
    "CREATE TABLE redrive_meta (key TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE redrive_meta (key TEXT PRIMARY KEY, value TEXT);INSERT INTO redrive_meta VALUES ('schema', 'abc')",
    "CREATE TABLE redrive_meta (key TEXT PRIMARY KEY, value TEXT);INSERT INTO redrive_meta VALUES ('schema', NULL)",
    "CREATE TABLE redrive_meta (key TEXT PRIMARY KEY, value TEXT);INSERT INTO redrive_meta VALUES ('schema', '-3')",
    "CREATE TABLE redrive_meta (key TEXT PRIMARY KEY, value TEXT);INSERT INTO redrive_meta VALUES ('schema', '1')",
    "CREATE TABLE redrive_meta (id INTEGER, name TEXT)",
]


@pytest.mark.parametrize("script", FOREIGN)
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_table_of_another_program_is_an_error_of_the_store(dialect: str, script: str, tmp_path: Path):
    """Foreign tables called redrive_meta are named in the error, and no table changes; also without migration."""
    if dialect == "sqlite":
        url = f"sqlite:///{tmp_path}/a.db"
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
            database.executescript(script)
    else:
        name = f"foreign{FOREIGN.index(script)}"
        url = postgres.url(name)
        with psycopg.connect(postgres.url().partition("?")[0] + f"?host={postgres.server()}") as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}; SET search_path TO {name}")
            connection.execute(script)

    def look(*, migrated: bool) -> None:
        store = open_store(url, migrated=migrated)
        try:
            store.schema()
            store.run(identify("uid"))
        finally:
            store.close()

    for migrated in (True, False):
        with pytest.raises(StoreError, match="redrive_meta|value"):
            look(migrated=migrated)


def test_a_migration_that_waited_for_the_lock_finds_it_done(cursor: sqlite3.Cursor):
    """Processes that waited for the lock while another one migrated migrate nothing."""

    class Late:
        """A cursor that finds the database migrated after its BEGIN."""

        def execute(self, statement: str, parameters: object = ()) -> sqlite3.Cursor:
            """Be late."""
            if statement == "BEGIN IMMEDIATE":
                migrate.migrate(cursor, "sqlite", "a.db")
            return cursor.execute(statement, parameters)

        def fetchone(self) -> object:
            """Return the next row."""
            return cursor.fetchone()

    assert [] == migrate.migrate(Late(), "sqlite", "a.db")


@pytest.mark.slow
def test_threads_that_open_a_new_file_at_once_all_succeed(tmp_path: Path):
    """Of threads that open the same new file at the same time one migrates it, and none is refused."""
    errors: list[Exception] = []
    for trial in range(30):
        start = threading.Barrier(6)
        threads = [threading.Thread(target=_open, args=(tmp_path / f"{trial}.db", start, errors)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [] == errors


def _open(path: Path, start: threading.Barrier, errors: list[Exception]) -> None:
    start.wait()
    try:
        open_store(f"sqlite:///{path}?synchronous=normal").close()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        errors.append(error)


OPEN = """
import sys
from redrive.stores.operations import jobs
from redrive.stores.opening import open_store
from tests.stores.helpers import new

print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    store = open_store(f"sqlite:///{sys.argv[1]}/{number}.db?synchronous=normal")
    store.run(jobs.enqueue([new()]))
    store.close()
"""


@pytest.mark.slow
def test_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path):
    """Of processes that open the same new files at the same time none is refused, and every enqueue is kept."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=environment, **pipes) for _ in range(3)]
    for process in running:
        process.stdout.readline()
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=120) for process in running]

    assert [("", "")] * 3 == ended
    for number in range(10):
        store = open_store(f"sqlite:///{tmp_path / str(number)}.db")
        assert [4] == store.run(jobs.enqueue([new()], now=T0)).ids
        store.close()


# ---------------------------------------------------------------------------------------------------- splitting


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        ("-- nothing but a remark\n\n", []),
        ("A;", ["A;"]),
        ("A;\nB;", ["A;", "B;"]),
        ("A\n  (b,\n   c);\nD;", ["A\n  (b,\n   c);", "D;"]),
        ("A; -- a remark\nB;", ["A; -- a remark", "B;"]),
        ("A -- a remark;\n  B;", ["A -- a remark;\n  B;"]),
        ("-- a remark;\nA;\n-- the end;", ["-- a remark;\nA;"]),
        ("A;   \nB;\n\n\n", ["A;   ", "B;"]),
        ("F AS $$\n  A;\n  B;\n$$;\nC;", ["F AS $$\n  A;\n  B;\n$$;", "C;"]),
        ("INSERT 'a;b';\nC;", ["INSERT 'a;b';", "C;"]),
    ],
)
def test_a_script_is_split_at_lines_that_end_with_a_semicolon(script: str, expected: list[str]):
    """Statements end where a line, without its comment, ends with a semicolon; the rest is ignored."""
    assert expected == [statement.strip("\n") for statement in _split(script)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_migration_loses_its_last_statement(dialect: str):
    """Every migration ends with a complete statement."""
    for step in migrate.migrations(dialect):
        kept = "\n".join(_split(step.script))
        lost = step.script.removeprefix(kept)

        assert "" == "".join(schemas.bare(lost).split())
