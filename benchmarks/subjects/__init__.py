"""What is measured: one file a subject, each behind the same protocol.

A subject brings a database, ways of putting jobs in, and a command line for one worker process whose handlers call
`benchmarks.meter.Meter.mark`. To add a peer, write its file and name it in `SUBJECTS` under the store that it uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

__all__ = ["SUBJECTS", "Subject", "subjects"]


class Subject(Protocol):
    """A queue that is measured.

    Attributes:
        name: for tables.
        kept: what is left of a job that has succeeded; what is compared must be said.
    """

    name: str
    kept: str

    def create(self, folder: Path) -> None:
        """Make a new, empty database, and connect to it.

        Args:
            folder: an empty folder, for what is kept in files.
        """
        ...

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
        """How to start one worker process on the database.

        Returns:
            Its command line, and what to add to its environment.
        """
        ...

    def unfinished(self) -> bool:
        """Is there a job whose end has not been written yet? Must be cheap: it is asked often."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


SUBJECTS = {
    "sqlite": ("raw_sqlite:RawSQLite", "redrive:Redrive", "huey:Huey"),
}
"""The subjects by store, the limit first."""


def subjects(store: str) -> list[Subject]:
    """Make the subjects that use a store.

    Args:
        store: a key of `SUBJECTS`.

    Returns:
        The subjects, the limit first.
    """
    made = []
    for place in SUBJECTS[store]:
        module, _, name = place.partition(":")
        made.append(getattr(import_module(f"{__name__}.{module}"), name)())
    return made
