"""What `redrive doctor` and the dashboard show: the state of a database, of its schema, its clock and its workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from redrive.app.protocol import AppProtocol, Procedure
from redrive.clock import SystemClock
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.engine.records import Diagnosis, Severity
from redrive.stores import migrate
from redrive.stores.operations import clock, doctor
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.schema import Schema, Versions, schema
from redrive.stores.store import Store
from redrive.stores.urls import without_user
from redrive.version import __version__

# Settings of the database that are shown.
SHOWN: Final = frozenset({"journal_mode", "synchronous", "synchronous_commit"})

# Differences between two clocks that are reported, and that need a person.
NOTED: Final = timedelta(seconds=2)
WRONG: Final = timedelta(seconds=30)


def examined(app: AppProtocol) -> Procedure[Vitals]:
    """Read what `diagnosis` decides on, with the instances and events that do not fit the machines of the code."""
    found: Vitals = yield doctor.examine(app.now(), machines=app.machines.known)
    return found


def diagnosis(app: AppProtocol, name: str, found: Vitals) -> Procedure[tuple[Diagnosis, ...]]:
    """Return the state of each part, with what to do.

    Args:
        app: the App.
        name: that of the App in commands.
        found: from `examined`.
    """
    there: Schema = yield schema()
    return (
        _database(app.store, found),
        _schema(there, migrate.versions(app.store.dialect), name),
        (yield from _clock(app.store)),
        *_sessions(app.store),
        *doctor.diagnose(found, app.served(), __version__, app=name),
    )


def _database(store: Store, found: Vitals) -> Diagnosis:
    facts = [f"{key.replace('_', ' ')} {value}" for key, value in found.server.items() if key in SHOWN]
    text = ", ".join([f"{_product(store.url)} {found.server.get('version')}", without_user(store.url), *facts])
    return Diagnosis("database", Severity.OK, text)


def _product(url: str) -> str:
    scheme = url.partition(":")[0].lower()
    return {"sqlite": "SQLite", "memory": "SQLite in memory", "turso": "Turso, like SQLite"}.get(scheme, "PostgreSQL")


def _schema(there: Schema, code: Versions, name: str) -> Diagnosis:
    if there.version > code.latest:
        text = f"the schema has version {there.version}, and this redrive {code.latest}: it can work with it"
        return Diagnosis("schema", Severity.NOTE, text, "finish the deployment of the newer redrive")
    if there.version < code.latest:
        text = f"the schema has version {there.version}, and migrations of the phase post lead to {code.latest}"
        advice = f"when all programs are of this version, {command('db migrate', name, phase='post')}"
        return Diagnosis("schema", Severity.NOTE, text, advice)
    return Diagnosis("schema", Severity.OK, f"version {there.version}")


def _clock(store: Store) -> Procedure[Diagnosis]:
    """Compare the clock of this machine with that of the database."""
    if store.local:
        difference: timedelta = yield clock.difference()
    else:
        before = SystemClock().now()
        there = yield clock.present()
        difference = before + (SystemClock().now() - before) / 2 - there
    ahead = "ahead of" if difference > timedelta(0) else "behind"
    if abs(difference) < NOTED:
        return Diagnosis("clock", Severity.OK, "the clocks of this machine and of the database agree")
    text = f"the clock of this machine is {span(abs(difference))} {ahead} that of the database"
    severity = Severity.PROBLEM if abs(difference) >= WRONG else Severity.NOTE
    return Diagnosis("clock", severity, text, "set both clocks by NTP; due times follow the clock of the database")


def _sessions(store: Store) -> Iterator[Diagnosis]:
    """Report a connection pool through which no session lasts."""
    if not store.local and not store.lasting:
        text = "connections go through PgBouncer, and no session lasts: workers poll, and a dead one is noticed late"
        yield Diagnosis("settings", Severity.NOTE, text, "add direct=HOST:PORT of the server to the URL")
