"""The measured queues: one file per subject, each behind the same protocol.

A subject has a database, ways to enqueue jobs, and a command line for one worker process with handlers that call
`benchmarks.meter.Meter.mark`. To add a peer, write its file and name it in `SUBJECTS` under the store that it uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from benchmarks.place import Place
from benchmarks.processes import Process

__all__ = ["AWAITED", "DEEP", "SUBJECTS", "Subject", "subject"]


class Subject(Protocol):
    """A queue that is measured.

    Attributes:
        name: for tables.
        kept: the rows that remain of a job that has succeeded, because subjects differ in it.
    """

    name: str
    kept: str

    def create(self, place: Place) -> None:
        """Make what is needed in a new, empty place, and connect to it.

        Args:
            place: where jobs are to be kept.
        """
        ...

    def prepare(self, place: Place) -> None:  # noqa: ARG002 - subclasses need it
        """Do what is to be done between filling and draining; nothing for most.

        Args:
            place: where jobs are kept.
        """
        return

    def enqueue(self, sent_at: float) -> None:
        """Put one job in; it is durable when this returns.

        Args:
            sent_at: its argument, for `Meter.mark`.
        """
        ...

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, with argument 0.0, in the best way that the subject offers.

        Args:
            count: how many.
        """
        ...

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Return the command that starts one worker process on the database.

        Returns:
            Its command line, and variables to add to its environment.
        """
        ...

    def started(self, processes: Sequence[Process]) -> None:  # noqa: ARG002 - subclasses need it
        """Do what is to be done between the start of the worker processes and the measurement; nothing for most.

        Args:
            processes: the workers.
        """
        return

    def unfinished(self) -> bool:
        """Return True if a job has no written end yet. Must be cheap: it is called often."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


SUBJECTS = {
    "sqlite": {
        "raw sqlite3": "raw_sqlite:RawSQLite",
        "redrive": "redrive:RedriveOnSQLite",
        "redrive, best concurrency": "redrive:BestOnSQLite",
        "redrive, awaited": "redrive:AwaitedOnSQLite",
        "redrive, def handlers": "redrive:PlainOnSQLite",
        "huey": "huey:Huey",
        "dbos": "dbos:DBOSOnSQLite",
        "redrive, a million waiting": "redrive:SQLiteWithWaiting",
        "redrive, ten million finished": "redrive:SQLiteWithFinished",
    },
    "postgres": {
        "raw asyncpg": "raw_postgres:RawPostgres",
        "redrive": "redrive:RedriveOnPostgres",
        "redrive, best concurrency": "redrive:BestOnPostgres",
        "redrive, awaited": "redrive:AwaitedOnPostgres",
        "redrive, def handlers": "redrive:PlainOnPostgres",
        "pgqueuer": "pgqueuer:PgQueuer",
        "pgqrs": "pgqrs:PgQRS",
        "awa": "awa:Awa",
        "absurd": "absurd:AbsurdTasks",
        "procrastinate": "procrastinate:Procrastinate",
        "dbos": "dbos:DBOSOnPostgres",
        "redrive, a million waiting": "redrive:PostgresWithWaiting",
        "redrive, ten million finished": "redrive:PostgresWithFinished",
        "redrive, held snapshot": "redrive:PostgresWithSnapshot",
    },
}
"""The subjects by store and name, the limit first."""


DEEP = frozenset({"redrive, a million waiting", "redrive, ten million finished", "redrive, held snapshot"})
"""The subjects that are measured only when asked for."""

AWAITED = "redrive, awaited"
"""The subject that differs only in how it enqueues one job: by a coroutine."""


def subject(store: str, name: str) -> Subject:
    """Make a subject. Only here is its module loaded, which may need packages that only its interpreter has.

    Args:
        store: a key of `SUBJECTS`.
        name: a key of that.

    Returns:
        The subject.
    """
    module, _, kind = SUBJECTS[store][name].partition(":")
    made: Subject = getattr(import_module(f"{__name__}.{module}"), kind)()
    return made
