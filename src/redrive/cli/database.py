"""``redrive db``: the schema of the database. ``redrive check``: a consistency check of its rows."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from redrive.cli.jobs import Limit
from redrive.cli.loading import AsJson, Target, load_app, load_existing
from redrive.cli.screen import print_document, say, say_lines
from redrive.stores.dialects import loader
from redrive.stores.opening import open_store
from redrive.stores.operations.schema import Schema

db = typer.Typer(help="The schema of the database.", no_args_is_help=True)


class Dialect(StrEnum):
    """The SQL dialect of the printed migrations."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@db.command()
def migrate(app: Target) -> None:
    """Bring the database to the schema of this redrive, creating it where it is new. Every first use does the same."""
    loaded = load_app(app)
    there, latest = loaded.store.schema()
    say(_suits(there, latest))


@db.command("check")
def check_schema(app: Target, *, json: AsJson = False) -> None:
    """Check that this redrive can work with the schema of the database; change nothing. The exit status is 1 if not."""
    store = open_store(load_app(app).url, migrated=False)
    try:
        there, latest = store.schema()
    finally:
        store.close()
    is_fit = there.suits(latest)
    if json:
        print_document({"schema": there.version, "compatible": there.compatible, "latest": latest, "fits": is_fit})
        raise typer.Exit(0 if is_fit else 1)
    if is_fit:
        say(_suits(there, latest))
        return
    older = there.version < latest
    advice = "redrive db migrate brings it there" if older else "install the redrive that has migrated it"
    say(f"the database has schema {there.version}, and this redrive needs {latest}: {advice}", err=True)
    raise typer.Exit(1)


def _suits(there: Schema, latest: int) -> str:
    if there.version == latest:
        return f"the database has schema {latest}, which is the present one"
    return f"the database has schema {there.version}, with which this redrive, of schema {latest}, can work"


@db.command()
def sql(
    dialect: Annotated[Dialect, typer.Argument(help="The SQL of this database.")],
    *,
    after: Annotated[int, typer.Option(min=0, help="Only what leads from this version to the present one.")] = 0,
) -> None:
    """Print the migrations, to be run by hand."""
    for step in loader.migrations(dialect.value):
        if step.number > after:
            say_lines(f"-- {step.name}\n\n{step.script}\n")


def check(app: Target, *, limit: Limit = 100, json: AsJson = False) -> None:
    """Look for what must not be, in all of the database; it only reads. The exit status is 1 if something is found."""
    found = load_existing(app).database.verify(limit=limit)
    for each in found:
        if json:
            print_document(each)
        else:
            say(f"{each.rule}: {each.text}")
    if found:
        raise typer.Exit(1)
    if not json:
        say("nothing is wrong")
