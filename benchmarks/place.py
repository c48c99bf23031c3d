"""Where a subject keeps its jobs while it is measured: a folder, and for PostgreSQL a new database on one server.

Every subject runs in an interpreter of its own, with its own packages. So this speaks to PostgreSQL through ``psql``,
which comes with the server, and needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DATABASE", "Place", "PostgresCounters", "Server", "fresh"]

DATABASE = "bench"
"""The name of a new database on the server."""


@dataclass(frozen=True, slots=True)
class PostgresCounters:
    """What PostgreSQL counts while a subject works.

    Attributes:
        wal: bytes of its log so far.
        commits: of this database so far.
        dead: rows that are only waiting to be cleaned up, now.
    """

    wal: int
    commits: int
    dead: int


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server, as the benchmark hands it to its subjects.

    Attributes:
        url: of its database ``postgres``; it ends with that name.
        psql: path of the program.
    """

    url: str
    psql: str

    def database(self, name: str) -> str:
        """Make a URL.

        Args:
            name: of a database.

        Returns:
            Its URL on this server.
        """
        head, _, query = self.url.partition("?")
        return head.rpartition("/")[0] + f"/{name}" + (f"?{query}" if query else "")

    def ask(self, statement: str, database: str = "postgres") -> str:
        """Run a statement.

        Args:
            statement: SQL.
            database: where.

        Returns:
            Its rows as text, fields separated by ``|``.

        Raises:
            subprocess.CalledProcessError: the server refused.
        """
        command = [self.psql, "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement, self.database(database)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True, slots=True)
class Place:
    """Where one measurement happens.

    Attributes:
        folder: an empty folder.
        server: PostgreSQL, where the subject wants it.
        database: its name on the server.
    """

    folder: Path
    server: Server | None = None
    database: str = DATABASE

    @property
    def url(self) -> str:
        """Return the URL of the new database on the server."""
        assert self.server is not None
        return self.server.database(self.database)

    def ask(self, statement: str) -> str:
        """Run a statement in the new database; see `Server.ask`."""
        assert self.server is not None
        return self.server.ask(statement, self.database)

    def settle_down(self) -> None:
        """Let the server finish its background work after filling, so that it does not disturb the measurement."""
        if self.server is not None:
            self.ask("VACUUM ANALYZE")
            self.ask("CHECKPOINT")

    def tally(self) -> PostgresCounters | None:
        """Return the statistics of the server; None without one."""
        if self.server is None:
            return None
        wal, commits, dead = self.ask(_TALLY).split("|")
        return PostgresCounters(int(wal), int(commits), int(dead))


_TALLY = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
    (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
    (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables)
"""


@contextlib.contextmanager
def fresh(home: Path, server: Server | None, database: str = DATABASE) -> Iterator[Place]:
    """Make a new place, and remove it afterwards.

    Args:
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.
        database: its name on the server.

    Yields:
        The place.
    """
    with tempfile.TemporaryDirectory(dir=home) as name:
        if server is not None:
            server.ask(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
            server.ask(f"CREATE DATABASE {database}")
        yield Place(Path(name), server, database)
        if server is not None:
            server.ask(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
