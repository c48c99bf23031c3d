"""One transition of each of many instances, and the command that users type."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import psycopg

from benchmarks.meter import Meter
from benchmarks.subjects.redrive import BATCH, URL, RedriveOnPostgres, RedriveOnSQLite
from redrive.app.app import App
from redrive.app.machines.machine import Machine

__all__ = ["TransitionsOnPostgres", "TransitionsOnSQLite", "app"]


class Sent(msgspec.Struct):
    """The event that creates an instance."""

    at: float


class Closed(msgspec.Struct):
    """The event that would follow."""


def define(app: App) -> Machine:
    """Register the machine of the benchmark: its handlers do nothing.

    Args:
        app: where.

    Returns:
        The machine.
    """
    meters: list[Meter] = []
    machine = app.machine("bench")

    @machine.start
    async def opened(event: Sent) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(event.at)

    @machine.state(after=[opened])
    async def closed(event: Closed) -> None:
        del event

    return machine


app = App(os.environ.get(URL, "memory://"))
"""What the worker process loads."""

define(app)


class _Transitions:
    """One worker process with the settings that a user gets."""

    name = "transitions"
    kept = "rows of the job, the instance and the move, and a line of history"
    module = __name__
    _sent = 0

    def define(self, app: App) -> None:
        """Register the machine."""
        self._machine = define(app)

    def enqueue(self, sent_at: float) -> None:
        """Send the first event of a new instance."""
        self._sent += 1
        self._machine.send(f"instance-{self._sent}", Sent(sent_at))

    def connect(self) -> Any:
        """Open a connection of the user."""
        raise NotImplementedError

    def enqueue_many(self, count: int) -> None:
        """Send the first events of new instances, a thousand a transaction."""
        with closing(self.connect()) as connection:
            for number in range(count):
                self._machine.send(f"filled-{number}", Sent(0.0), using=connection)
                if number % BATCH == BATCH - 1:
                    connection.commit()
            connection.commit()


class TransitionsOnSQLite(_Transitions, RedriveOnSQLite):
    """On a file."""

    def connect(self) -> sqlite3.Connection:
        """Open a connection of the user."""
        return sqlite3.connect(self._path)


class TransitionsOnPostgres(_Transitions, RedriveOnPostgres):
    """On PostgreSQL."""

    def connect(self) -> psycopg.Connection:
        """Open a connection of the user."""
        return psycopg.connect(self.url)
