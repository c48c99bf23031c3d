"""Two servers of which one takes over by hand, as a person or a simple script lets it.

The faults are those of the primary and its network:

=========  ========================================================================================================
fault      what happens
=========  ========================================================================================================
``kill``   all processes of the primary are killed
``stop``   they are stopped where they stand: the kernel accepts connections, and nothing answers
``cut``    the primary goes on, and neither clients nor workers reach it: packets are dropped
``split``  two sites: a worker and a producer reach only the old primary, the others only the new one, and for five
           seconds both servers write; then the old one is killed
=========  ========================================================================================================

An asynchronous standby has nothing of the last second before the fault.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from tests.acceptance import servers
from tests.acceptance.processes import PATIENCE
from tests.acceptance.servers import PostgresServer, Proxy

EXAMPLES = Path(__file__).parents[3] / "examples" / "deploy" / "high-availability"

FAULTS = ("kill", "stop", "cut", "split")

LAG, DETECTED, BOTH, FENCED = 1.0, 2.0, 5.0, 8.0
"""Seconds: what an asynchronous standby lacks; from the fault to the promotion; with two primaries; and from the
promotion to the end of a primary that was stopped or cut off."""

STREAMING = "SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = ANY (%s)"


class Pair:
    """The servers, and what is between them and the processes.

    Args:
        started: a primary and its standby.
        fault: one of `FAULTS`.
        synchronous: whether the primary waits for the standby.
    """

    def __init__(self, started: tuple[PostgresServer, PostgresServer], fault: str, *, synchronous: bool) -> None:
        self.primary, self.standby = started
        self.name = f"{'synchronous' if synchronous else 'asynchronous'}, {fault}"
        self.loses = not synchronous
        self._fault = fault
        self._sites: list[dict[PostgresServer, Proxy]] = []
        if fault in {"cut", "split"}:
            self._sites = [{each: Proxy(each.folder) for each in started} for _ in range(2)]
        self._replicate()

    def url(self, site: int) -> str:
        """Return the URL for the processes of a site, with both servers."""
        if not self._sites:
            hosts = f"@/postgres?host={self.primary.folder},{self.standby.folder}&"
        else:
            hosts = "@" + ",".join(f"127.0.0.1:{each.port}" for each in self._sites[site].values()) + "/postgres?"
        return f"postgresql://postgres{hosts}target_session_attrs=read-write"

    def connect(self) -> psycopg.Connection:
        """Open a connection to the primary."""
        return self.primary.connect()

    def close(self) -> None:
        """Close the proxies."""
        for each in self._proxies():
            each.close()

    # --------------------------------------------------------------------------------------------------------- a round

    def fail_over(self, meanwhile: Callable[[], None]) -> tuple[float, float, float]:
        """Let a fault happen, and the standby take over.

        Return from when on it lacks writes, when the fault happened, and when it served all processes.
        """
        old, new = self.primary, self.standby
        since = time.time()
        if self.loses:
            _cut_off(new)
            time.sleep(LAG)
        at = time.time()
        self._break(old, new)
        time.sleep(DETECTED)
        _run(new, "asynchronous.sql")
        new.promote()
        if self._fault == "split":
            time.sleep(BOTH)
            meanwhile()
            old.crash()
            self._mend()
        self.primary, self.standby = new, old
        return since, at, time.time()

    def _break(self, old: PostgresServer, new: PostgresServer) -> None:
        match self._fault:
            case "kill":
                old.crash()
            case "stop":
                old.freeze()
            case "cut":
                for site in self._sites:
                    site[old].cut()
            case "split":
                self._sites[0][new].cut()
                self._sites[1][old].cut()
                _cut_off(new)

    def fence(self) -> None:
        """Kill the old primary, if it is still there."""
        if self._fault in {"stop", "cut"}:
            time.sleep(FENCED)
            self.standby.crash()
            self._mend()

    def rejoin(self) -> None:
        """Make the old primary the standby."""
        self.standby.rejoin(self.primary)
        self._replicate()

    def _replicate(self) -> None:
        if not self.loses:
            _run(self.primary, "synchronous.sql")
        states = ["async"] if self.loses else ["sync", "quorum"]
        deadline = time.monotonic() + PATIENCE
        while not self.primary.ask(STREAMING, states):
            assert time.monotonic() < deadline, self.primary.ask("SELECT * FROM pg_stat_replication")
            time.sleep(0.05)

    def _mend(self) -> None:
        for each in self._proxies():
            each.mend()

    def _proxies(self) -> list[Proxy]:
        return [each for site in self._sites for each in site.values()]


def _cut_off(standby: PostgresServer) -> None:
    """Let a standby receive nothing any more."""
    standby.set("primary_conninfo", "''")
    while standby.ask("SELECT FROM pg_stat_wal_receiver"):
        time.sleep(0.01)


def _run(server: PostgresServer, name: str) -> None:
    """Run the statements of an example."""
    with server.connect() as connection:
        for statement in (EXAMPLES / name).read_text().split(";")[:-1]:
            connection.execute(statement)


@contextlib.contextmanager
def pair(fault: str, *, synchronous: bool) -> Iterator[Pair]:
    """Start the servers, and end them."""
    # Servers that are killed would leave dynamic shared memory behind elsewhere.
    with servers.pair("dynamic_shared_memory_type=mmap") as started:
        made = Pair(started, fault, synchronous=synchronous)
        try:
            yield made
        finally:
            made.close()
