"""A PostgreSQL of the test's own, which may be stopped, killed and started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests import postgres
from tests.acceptance.processes import PATIENCE

SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=100", "track_activity_query_size=16384")
"""The machine stays up whatever happens to the processes on it, so there is nothing to be synced; but a commit must
have been handed to the operating system when it is acknowledged."""

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE %s"


class PostgresServer:
    """A running server in a folder.

    Args:
        folder: for its data and its socket, with a short path.
        settings: ``name=value``, besides `SETTINGS`.
        copy_of: the primary server of which it is a standby; by default it is new, and a primary.
    """

    def __init__(self, folder: Path, *settings: str, copy_of: PostgresServer | None = None) -> None:
        self.folder = folder
        self._settings = (*SETTINGS, *settings)
        folder.chmod(0o755)
        self._account = postgres._account(folder)
        self._binaries = Path(postgres.BINARIES) if postgres.BINARIES else postgres._packaged(self._account)
        if copy_of is None:
            options = ("--auth=trust", "--encoding=UTF8", "--username=postgres", "--no-sync")
            self._run("initdb", *options).check_returncode()
        else:
            self._copy(copy_of)
        self.start()

    def _copy(self, primary: PostgresServer) -> None:
        options = ("-h", str(primary.folder), "-U", "postgres", "--write-recovery-conf", "--no-sync")
        self._run("pg_basebackup", *options, "--checkpoint=fast").check_returncode()

    def url(self, **options: str) -> str:
        """Return the URL of a store in an unused schema."""
        wanted = {"host": str(self.folder), "schema": postgres.fresh(), **options}
        return "postgresql://postgres@/postgres?" + "&".join(f"{name}={quote(text)}" for name, text in wanted.items())

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection:
        """Open a separate connection for the test."""
        return psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=autocommit)

    def ask(self, statement: str, *parameters: object) -> list[tuple]:
        """Run one statement on a connection of its own."""
        with self.connect() as connection:
            return connection.execute(statement, parameters).fetchall()

    # -------------------------------------------------------------------------------------------------------- faults

    def start(self) -> None:
        """Start, as often as it takes: one that was killed leaves processes behind, which end in their own time."""
        options = f"-h '' -k {self.folder} " + " ".join(f"-c {each}" for each in self._settings)
        deadline = time.monotonic() + PATIENCE
        while self._run("pg_ctl", "start", "-w", "--silent", "-l", str(self.folder / "log"), "-o", options).returncode:
            assert time.monotonic() < deadline, (self.folder / "log").read_text()

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w", "--silent").check_returncode()

    def has_caught_up_with(self, primary: PostgresServer) -> Callable[[], bool]:
        """Return a function that returns True if a standby has what the primary has written by now."""
        ((written,),) = primary.ask("SELECT pg_current_wal_lsn()::text")
        return lambda: self.ask("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written) == [(True,)]

    def set(self, name: str, value: str) -> None:
        """Change a setting for all sessions, also those that are open."""
        with self.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def restart(self) -> None:
        """Stop without any farewell, and start: every session is gone, and the log is replayed."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Stop without any farewell."""
        self._run("pg_ctl", "stop", "-w", "--mode=immediate", "--silent").check_returncode()

    def crash(self) -> None:
        """Kill -9 of all its processes, also of those that are stopped."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill -9 of all its processes, and start."""
        self.crash()
        self.start()

    def rejoin(self, primary: PostgresServer) -> None:
        """Begin again as a standby of another server, with a copy of its data, after a crash or a stop."""
        with contextlib.suppress(FileNotFoundError):
            # A server that was killed has left a segment of shared memory, which its next start would remove.
            *_, segment, _ = (self.folder / "data" / "postmaster.pid").read_text().split()
            subprocess.run(["ipcrm", "--shmem-id", segment], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder / "data")
        self._copy(primary)
        self.start()

    def close(self) -> None:
        """End in whatever state it is, and remove the folder."""
        with contextlib.suppress(FileNotFoundError):
            self.thaw()
        self._run("pg_ctl", "stop", "-w", "--mode=immediate", "--silent")
        shutil.rmtree(self.folder, ignore_errors=True)

    def freeze(self) -> None:
        """Stop all its processes where they stand: the kernel accepts connections, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue them."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        send_all(self.folder / "data", number)

    def kill_sessions(self, like: str) -> None:
        """Kill -9 of the processes that serve what runs such a statement: the server then throws all sessions out."""
        for number in self.sessions(like):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def terminate(self, like: str) -> list[int]:
        """End the sessions that run such a statement, or ran it last; return their ids."""
        return self._numbers(f"{SESSIONS} AND pg_terminate_backend(pid)", like)

    def sessions(self, like: str) -> list[int]:
        """Which sessions run such a statement, or ran it last?"""
        return self._numbers(SESSIONS, like)

    def _numbers(self, statement: str, like: str) -> list[int]:
        return [row[0] for row in self.ask(statement, like)]

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(self._binaries / program), "-D", str(self.folder / "data"), *arguments]
        lower = ["runuser", "-u", self._account, "--", *command] if self._account else command
        return subprocess.run(
            lower, check=False, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE
        )


def send_all(data: Path, number: signal.Signals) -> None:
    """Send a signal to all processes of the server that has these files."""
    leader = int((data / "postmaster.pid").read_text().split()[0])
    for each in [leader, *map(int, Path(f"/proc/{leader}/task/{leader}/children").read_text().split())]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


@contextlib.contextmanager
def pair(*settings: str) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Start a primary and a standby that has all that the primary writes, and end them."""
    with own(_folder(), *settings) as primary, own(_folder(), *settings, copy_of=primary) as standby:
        yield primary, standby


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="redrive-pair-"))


@contextlib.contextmanager
def own(folder: Path, *settings: str, copy_of: PostgresServer | None = None) -> Iterator[PostgresServer]:
    """Start a server, and end it."""
    server = PostgresServer(folder, *settings, copy_of=copy_of)
    try:
        yield server
    finally:
        server.close()


class Proxy:
    """A TCP proxy before a server; connections that are open stay with the server to which they were made."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._passes = threading.Event()
        self._passes.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listening]
        self._threads: list[threading.Thread] = []
        self.port: int = self._listening.getsockname()[1]
        self._start(self._accept)

    def cut(self) -> None:
        """Drop everything silently, in both directions, also new connections and the ends of open ones."""
        self._passes.clear()

    def mend(self) -> None:
        """Pass everything on, also what was sent meanwhile."""
        self._passes.set()

    def close(self) -> None:
        """End all connections."""
        self.mend()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def _start(self, function: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=function, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += [client, server]
                try:
                    server.connect(str(self.target / ".s.PGSQL.5432"))
                except OSError:
                    self._start(self._end, client)
                    continue
                self._start(self._copy, client, server)
                self._start(self._copy, server, client)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        """Copy until one side has ended, and end the other one."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
        self._end(source, sink)

    def _end(self, *sockets: socket.socket) -> None:
        self._passes.wait()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
