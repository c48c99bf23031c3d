"""``redrive doctor``: what needs a person, in the database, in its clock, and among its workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import typer

from redrive import __version__
from redrive.app.app import App
from redrive.cli.loading import AsJson, Target, load_app
from redrive.cli.screen import print_document, say
from redrive.clock import SystemClock
from redrive.engine.explain import span
from redrive.engine.records import Diagnosis, Severity
from redrive.errors import StoreError
from redrive.stores.operations import clock
from redrive.stores.operations import doctor as operations
from redrive.stores.urls import redacted

# Settings of the database that are shown.
SHOWN = frozenset({"journal_mode", "synchronous", "synchronous_commit"})

# Differences between two clocks that are reported, and that need a person.
NOTED, WRONG = timedelta(seconds=2), timedelta(seconds=30)


def doctor(app: Target, *, json: AsJson = False) -> None:
    """Examine the database and its workers, and print what to do about each finding; it only reads.

    The exit status is 1 if something needs a person.
    """
    loaded = load_app(app)
    try:
        found = [*_database(loaded, app)]
    except StoreError as error:
        found = [Diagnosis("database", Severity.PROBLEM, str(error), "check that the URL of the app is the right one")]
    for each in found:
        if json:
            print_document(each)
        else:
            say(f"{each.check}: {each.text}", head=f"{each.severity:9}")
            if each.advice is not None:
                say(f"         {each.advice}")
    problems = sum(each.severity is Severity.PROBLEM for each in found)
    if problems:
        say("1 problem" if problems == 1 else f"{problems} problems", err=True)
        raise typer.Exit(1)


def _database(app: App, name: str) -> Iterator[Diagnosis]:
    """Examine a database that can be opened."""
    app.open(migrate=False)
    there, latest = app.store.schema()
    vitals = app.store.run(operations.examine(app.now()))
    product = _product(app.url)
    facts = [f"{key.replace('_', ' ')} {value}" for key, value in vitals.server.items() if key in SHOWN]
    text = ", ".join([f"{product} {vitals.server.get('version')}", redacted(app.url), *facts])
    yield Diagnosis("database", Severity.OK, text)
    if there.version > latest:
        text = f"the schema has version {there.version}, and this redrive {latest}: it can work with it"
        yield Diagnosis("schema", Severity.NOTE, text, "finish the deployment of the newer redrive")
    else:
        yield Diagnosis("schema", Severity.OK, f"version {there.version}")
    yield _clock(app)
    yield from _sessions(app)
    yield from operations.diagnose(vitals, app.served(), __version__, app=name)


def _product(url: str) -> str:
    scheme = url.partition(":")[0].lower()
    return {"sqlite": "SQLite", "memory": "SQLite in memory", "turso": "Turso, like SQLite"}.get(scheme, "PostgreSQL")


def _clock(app: App) -> Diagnosis:
    """Compare the clock of this machine with that of the database."""
    if app.store.local:
        difference = app.store.run(clock.difference())
    else:
        before = SystemClock().now()
        there = app.store.run(clock.present())
        difference = before + (SystemClock().now() - before) / 2 - there
    ahead = "ahead of" if difference > timedelta(0) else "behind"
    if abs(difference) < NOTED:
        return Diagnosis("clock", Severity.OK, "the clocks of this machine and of the database agree")
    text = f"the clock of this machine is {span(abs(difference))} {ahead} that of the database"
    severity = Severity.PROBLEM if abs(difference) >= WRONG else Severity.NOTE
    return Diagnosis("clock", severity, text, "set both clocks by NTP; due times follow the clock of the database")


def _sessions(app: App) -> Iterator[Diagnosis]:
    """Report a connection pool through which no session lasts."""
    if not app.store.local and not app.store.lasting:
        text = "connections go through PgBouncer, and no session lasts: workers poll, and a dead one is noticed late"
        yield Diagnosis("settings", Severity.NOTE, text, "add direct=HOST:PORT of the server to the URL")
