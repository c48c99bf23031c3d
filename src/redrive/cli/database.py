"""``redrive db``: the schema of the database. ``redrive check``: a consistency check of its rows."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import Annotated

import typer

from redrive.app.loading import naming
from redrive.cli.jobs import Limit
from redrive.cli.loading import AsJson, Target, load_app, load_existing
from redrive.cli.screen import print_document, say, say_lines
from redrive.engine.commands import command
from redrive.stores import migrate as migrations
from redrive.stores.migrate import Phase
from redrive.stores.opening import open_store
from redrive.stores.operations import clock, workers
from redrive.stores.operations.schema import Schema, Versions
from redrive.stores.store import Store
from redrive.version import __version__

db: typer.Typer = typer.Typer(help="The schema of the database.", no_args_is_help=True)


class Dialect(StrEnum):
    """The SQL dialect of the printed migrations."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@db.command()
def migrate(
    app: Target,
    *,
    phase: Annotated[
        Phase | None, typer.Option(help="Only what runs before a deployment (pre), or after it (post); by default all.")
    ] = None,
) -> None:
    """Bring the database to the schema of this redrive, creating it where it is new.

    The phase post is refused while a worker of another version is alive; the exit status is 1 then.
    """
    url = load_app(app).url
    if phase is Phase.POST:
        with naming(app), contextlib.closing(open_store(url, migrated=False)) as store:
            others = _others(store)
        if others:
            say(f"workers of another version than {__version__} are alive: {', '.join(others)}", err=True)
            migrates = command("db migrate", app)
            say(f"replace them first; {migrates} without --phase does not wait for that", err=True)
            raise typer.Exit(1)
    with naming(app), contextlib.closing(open_store(url, phase=phase)) as store:
        say(_suits(*store.schema(), app))


def _others(store: Store) -> list[str]:
    """Return the live workers of another version of redrive, if migrations are pending that could stop them."""
    there, code = store.schema()
    if not code.needed <= there.version < code.latest:
        return []
    at = store.run(clock.present())
    alive = (each for each in store.run(workers.workers()) if each.expires_at > at)
    return [f"{each.name} ({each.version or 'unknown'})" for each in alive if each.version != __version__]


@db.command("check")
def check_schema(app: Target, *, json: AsJson = False) -> None:
    """Check that this redrive can work with the schema of the database; change nothing. The exit status is 1 if not."""
    url = load_app(app).url
    with naming(app), contextlib.closing(open_store(url, migrated=False)) as store:
        there, code = store.schema()
    is_fit = there.suits(code)
    if json:
        print_document({"schema": there.version, "compatible": there.compatible, "latest": code.latest, "fits": is_fit})
        raise typer.Exit(0 if is_fit else 1)
    if is_fit:
        say(_suits(there, code, app))
        return
    older = there.version < code.needed
    advice = f"{command('db migrate', app)} brings it there" if older else "install the redrive that has migrated it"
    say(f"the database has schema {there.version}, and this redrive needs {code.needed}: {advice}", err=True)
    raise typer.Exit(1)


def _suits(there: Schema, code: Versions, app: str) -> str:
    if there.version == code.latest:
        return f"the database has schema {there.version}, which is the present one"
    if there.version < code.latest:
        return (
            f"the database has schema {there.version}, with which this redrive can work; when the deployment has "
            f"ended, {command('db migrate', app, phase='post')} brings it to {code.latest}"
        )
    return f"the database has schema {there.version}, with which this redrive, of schema {code.latest}, can work"


@db.command()
def sql(
    dialect: Annotated[Dialect, typer.Argument(help="The SQL of this database.")],
    *,
    after: Annotated[int, typer.Option(min=0, help="Only what leads from this version to the present one.")] = 0,
    phase: Annotated[Phase | None, typer.Option(help="Only what runs before a deployment, or after it.")] = None,
) -> None:
    """Print the migrations, to be run by hand in one transaction."""
    latest = migrations.versions(dialect.value).latest
    if after > latest:
        raise typer.BadParameter(
            f"there is no version {after} of the schema; the present one is {latest}", param_hint="--after"
        )
    steps = migrations.pending(dialect.value, after, phase)
    for step in steps:
        say_lines(f"-- {step.name}\n\n{step.script}\n")
    if steps:
        version = steps[-1].number
        values = f"('schema', '{version}'), ('compatible', '{migrations.compatible(dialect.value, version)}')"
        say_lines(
            f"-- The version of the schema\n\nINSERT INTO redrive_meta (key, value) VALUES {values}\n"
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value;"
        )


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
