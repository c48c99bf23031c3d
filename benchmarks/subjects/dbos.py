"""DBOS queues, on PostgreSQL and on SQLite.

By default it polls once a second; a peer is measured at its best, which was every 10 ms.

``python -m benchmarks.subjects.dbos URL`` is its worker process.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["DBOSOnPostgres", "DBOSOnSQLite", "work"]

CHUNK = 500
CONCURRENCY = 200
LOOK_EVERY = 0.01
_UNFINISHED = "SELECT EXISTS (SELECT 1 FROM {}workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))"

_meters: list[Meter] = []


@DBOS.workflow()
async def noop(sent_at: float) -> None:
    """Count one run."""
    if not _meters:
        _meters.append(Meter.given())
    _meters[0].mark(sent_at)


def launch(url: str, concurrency: int = CONCURRENCY) -> None:
    """Start DBOS in this process; makes the schema where there is none.

    Args:
        url: of the database.
        concurrency: workflows at once.
    """
    config = DBOSConfig(name="bench", system_database_url=url, log_level="ERROR", application_version="v1")
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(
        "bench", worker_concurrency=concurrency, polling_interval_sec=LOOK_EVERY, on_conflict="always_update"
    )


class DBOSOnPostgres(Subject):
    """One worker process."""

    name = "dbos"
    kept = "row, with arguments and result"
    module = __name__
    workflow = "noop"

    def create(self, place: Place) -> None:
        """Make the schema, by starting DBOS once."""
        self._place = place
        self._url = self._locate(place)
        launch(self._url)
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=self._url)

    def _locate(self, place: Place) -> str:
        return place.url

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._client.enqueue(self._options(), sent_at)

    def _options(self) -> EnqueueOptions:
        return {"workflow_name": self.workflow, "queue_name": "bench", "app_version": "v1"}

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, five hundred a transaction."""
        for start in range(0, count, CHUNK):
            with self._client._sys_db.engine.begin() as connection:  # noqa: SLF001 - there is no public way
                for _ in range(min(CHUNK, count - start)):
                    self._client.enqueue_in_transaction(connection, self._options(), 0.0)

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run the module with the workflow."""
        return (sys.executable, "-m", self.module, self._url), {}

    def unfinished(self) -> bool:
        """Workflows that wait or run."""
        return self._place.ask(_UNFINISHED.format("dbos.")) == "t"

    def close(self) -> None:
        """Close the client."""
        self._client.destroy()


class DBOSOnSQLite(DBOSOnPostgres):
    """One worker process."""

    def _locate(self, place: Place) -> str:
        self._path = place.folder / "dbos.sqlite"
        return f"sqlite:///{self._path}"

    def unfinished(self) -> bool:
        """Workflows that wait or run."""
        with closing(sqlite3.connect(self._path, timeout=30)) as connection:
            return bool(connection.execute(_UNFINISHED.format("")).fetchone()[0])


def work(url: str, concurrency: int = CONCURRENCY) -> None:
    """Run workflows until killed.

    Args:
        url: of the database.
        concurrency: workflows at once.
    """
    launch(url, concurrency)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    work(sys.argv[1])
