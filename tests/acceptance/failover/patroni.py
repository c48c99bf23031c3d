"""Two nodes under Patroni with the files of `examples/deploy/high-availability`, on addresses of this machine.

The faults are those of the machine of the primary:

=========  =======================================================================================================
fault      what happens
=========  =======================================================================================================
``kill``   all processes of PostgreSQL and Patroni are killed, and Patroni is started again later
``stop``   they are stopped where they stand, and continue after another node has taken over: for a moment there
           are two servers that take themselves for the primary
=========  =======================================================================================================
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from tests import postgres
from tests.acceptance.failover.pair import EXAMPLES
from tests.acceptance.processes import PATIENCE
from tests.acceptance.servers import send_all
from tests.debian import needed, program

FAULTS = ("kill", "stop")
WAYS = ("haproxy", "hosts")

BINARIES = "/usr/lib/postgresql/15/bin"
PROGRAMS = {"patroni": "patroni", "etcd": "etcd-server", "haproxy": "haproxy"}
"""The programs, and Debian's packages."""

PASSWORD = "change-me"


class Patroni:
    """The nodes, etcd and haproxy.

    Args:
        folder: for all files.
        way: ``haproxy``, or ``hosts`` for a URL with both nodes.
        fault: one of `FAULTS`.
    """

    loses = False

    def __init__(self, folder: Path, way: str, fault: str) -> None:
        self.name = f"Patroni, {way}, {fault}"
        self._folder, self._way, self._fault = folder, way, fault
        self._network = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}."
        self._nodes = {"db1": self._network + "11", "db2": self._network + "12"}
        self._account = postgres._account(folder)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._leader, self._other = "db1", "db2"

    def start(self) -> None:
        """Start all, with an empty database."""
        paths = {each: needed(package, lambda each=each: program(each)) for each, package in PROGRAMS.items()}
        needed("postgresql-15", lambda: shutil.which("pg_ctl", path=BINARIES))
        self._spawn("etcd", "env", *self._member(), paths["etcd"])
        until(lambda: _listens(f"{self._network}21", 2379))
        self._join("db1")
        until(lambda: self._is("db1", "primary"))
        self._join("db2")
        until(lambda: self._is("db2", "synchronous"))
        (self._folder / "haproxy.cfg").write_text(self._local((EXAMPLES / "haproxy.cfg").read_text()))
        self._spawn("haproxy", paths["haproxy"], "-db", "-f", f"{self._folder}/haproxy.cfg")
        # Until its first checks have failed, haproxy takes each server for the primary.
        until(lambda: "primary/db2 is DOWN" in (self._folder / "haproxy.log").read_text())
        with self.connect("postgres", "postgres", f"{PASSWORD}-1") as connection:
            connection.execute(f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'")
            connection.execute("CREATE DATABASE shop OWNER shop")

    def url(self, site: int) -> str:
        """Return the URL for the processes."""
        base = f"postgresql://shop:{PASSWORD}@"
        if self._way == "haproxy":
            return f"{base}{self._network}1/shop"
        return f"{base}{','.join(self._nodes.values())}/shop?target_session_attrs=read-write"

    def connect(self, user: str = "shop", database: str = "shop", password: str = PASSWORD) -> psycopg.Connection:
        """Open a connection to the primary."""
        host = self._nodes[self._leader]
        return psycopg.connect(host=host, user=user, password=password, dbname=database, autocommit=True)

    # --------------------------------------------------------------------------------------------------------- a round

    def fail_over(self, meanwhile: Callable[[], None]) -> tuple[float, float, float]:
        """Let a fault happen, and the standby take over.

        Return when the fault happened, twice, because the standby lacks nothing, and when it was the primary.
        """
        at = time.time()
        self._send(self._leader, signal.SIGKILL if self._fault == "kill" else signal.SIGSTOP)
        until(lambda: self._is(self._other, "primary"))
        self._leader, self._other = self._other, self._leader
        return at, at, time.time()

    def fence(self) -> None:
        """Let the old primary continue, if it was stopped: Patroni finds that it is none any more."""
        if self._fault == "stop":
            self._send(self._other, signal.SIGCONT)

    def rejoin(self) -> None:
        """Wait until one node is the primary and the other one its synchronous standby."""
        if self._fault == "kill":
            self._running.pop(self._other).wait()
            self._join(self._other)
        until(self._is_whole)

    def _is_whole(self) -> bool:
        # Patroni decides which one it is: under load a new primary may lose the key again.
        primaries = [each for each in self._nodes if self._is(each, "primary")]
        if len(primaries) == 1:
            (self._leader,), (self._other,) = primaries, set(self._nodes) - set(primaries)
        return len(primaries) == 1 and self._is(self._other, "synchronous")

    def close(self) -> None:
        """End all processes."""
        for name in self._nodes:
            with contextlib.suppress(FileNotFoundError):
                self._send(name, signal.SIGCONT)
        for name in sorted(self._running):
            # Patroni ends its server, and needs etcd for that.
            self._running[name].terminate()
            try:
                self._running[name].wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._send(name, signal.SIGKILL)
                self._running[name].kill()
                self._running[name].wait()

    # ------------------------------------------------------------------------------------------------------- processes

    def _local(self, text: str) -> str:
        """Return a file of the examples with addresses and folders of this machine."""
        replaced = {
            "10.0.0.0/24": "127.0.0.0/8",
            "10.0.0.": self._network,
            "127.0.0.1:": f"{self._network}1:",
        }
        for old, new in replaced.items():
            text = text.replace(old, new)
        return text

    def _member(self) -> list[str]:
        """Return the settings of one member of etcd, which is alone here."""
        text = self._local((EXAMPLES / "etcd.env").read_text()).replace("/var/lib/etcd/shop", f"{self._folder}/etcd")
        text = re.sub(r"(ETCD_INITIAL_CLUSTER=[^,]+).*", r"\1", text)
        return [line for line in text.splitlines() if not line.startswith("#")]

    def _join(self, name: str) -> None:
        """Start Patroni on a node."""
        text = self._local((EXAMPLES / "patroni.yml").read_text())
        text = text.replace("/var/lib/postgresql/15/shop", f"{self._folder}/{name}")
        # Here both nodes are on one machine.
        sockets = self._folder / f"{name}.sockets"
        sockets.mkdir(exist_ok=True)
        postgres._account(sockets)
        text = text.replace("/var/run/postgresql", str(sockets))
        text = text.replace("db1", name).replace(self._nodes["db1"], self._nodes[name])
        path = self._folder / f"{name}.yml"
        path.write_text(text)
        self._spawn(name, str(program("patroni")), str(path))

    def _spawn(self, name: str, *command: str) -> None:
        account = {"user": self._account, "group": self._account, "extra_groups": []} if self._account else {}
        environment = {**os.environ, "HOME": str(self._folder)}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=log, stderr=log, start_new_session=True, **account
            )

    def _send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to Patroni and the server of a node."""
        if name in self._running:
            self._running[name].send_signal(number)
        if name in self._nodes:
            send_all(self._folder / name, number)

    def _is(self, name: str, role: str) -> bool:
        """Ask Patroni whether a node has a role."""
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://{self._nodes[name]}:8008/{role}", timeout=2).status == 200
        return False


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; Patroni takes its time on a busy machine."""
    deadline = time.monotonic() + 3 * PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


@contextlib.contextmanager
def patroni(way: str, fault: str) -> Iterator[Patroni]:
    """Start the nodes, and end them."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-patroni-"))
    made = Patroni(folder, way, fault)
    try:
        made.start()
        yield made
    except AssertionError as error:
        for each in sorted(folder.glob("*.log")):
            error.add_note(f"--- {each.name}\n{each.read_text()[-3000:]}")
        raise
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
