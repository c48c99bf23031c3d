"""``redrive jobs``: the commands that delete jobs, with or without an archive."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from redrive.app.app import App
from redrive.cli.acting import DryRun, check_known, count, names_all
from redrive.cli.jobs import Most, jobs, selecting
from redrive.cli.loading import Actor, AsJson, Target, load_existing
from redrive.cli.screen import print_document, say, say_kept
from redrive.engine.records import Filter
from redrive.policy import parse_duration
from redrive.stores.operations import clock
from redrive.stores.operations.admin import BulkResult

OlderThan = Annotated[
    str | None, typer.Option(help="Only jobs that ended longer ago than this, for example 30d.", metavar="SPAN")
]
Everything = Annotated[bool, typer.Option("--all", help="All jobs, where no condition is given.")]


@jobs.command()
@selecting
def delete(
    app: Target,
    where: Filter,
    *,
    older_than: OlderThan = None,
    everything: Everything = False,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: AsJson = False,
    actor: Actor = None,
) -> None:
    """Delete jobs with all that is stored of them, by id or by filter; running ones stay. This is final.

    Jobs that have not started are cancelled first. The command shows how many there are, and asks; a program that runs
    it gives --yes.
    """
    loaded = load_existing(app)
    most = len(where.ids) if where.ids else limit
    wanted = replace(where, finished_before=_before(loaded, older_than), all=everything, limit=most)
    _demand(wanted)
    found = loaded.jobs.delete(wanted, dry_run=True) if dry_run or not yes else None
    if found is not None and not dry_run and not _is_confirmed(found):
        raise typer.Exit(1)
    done = found if dry_run and found is not None else loaded.jobs.delete(wanted, actor=actor)
    _show(done, "deleted", dry_run=dry_run, json=json)
    if names_all(wanted):
        check_known(loaded, where.ids, [*done.ids, *(number for number, _ in done.kept)])


@jobs.command()
@selecting
def archive(
    app: Target,
    where: Filter,
    *,
    to: Annotated[Path, typer.Option(help="The file to which each job is appended as a line of JSON.")],
    older_than: OlderThan = None,
    everything: Everything = False,
    limit: Most = None,
    dry_run: DryRun = False,
    json: AsJson = False,
    actor: Actor = None,
) -> None:
    """Write ended jobs to a file, with their histories, and delete them.

    Each batch is on the disk before its jobs are deleted. If the command is interrupted, run it again: a few jobs may
    then be in the file twice.
    """
    loaded = load_existing(app)
    wanted = replace(where, finished_before=_before(loaded, older_than), all=everything, limit=limit)
    _demand(wanted)
    done = loaded.jobs.archive(wanted, to, dry_run=dry_run, actor=actor)
    _show(done, "archived", dry_run=dry_run, json=json)


def _before(app: App, older_than: str | None) -> datetime | None:
    return None if older_than is None else app.store.run(clock.present(app.now())) - parse_duration(older_than)


def _demand(wanted: Filter) -> None:
    """Refuse a command without a condition, so that none acts on all jobs by accident."""
    if not wanted.conditions and not wanted.all:
        raise typer.BadParameter("give ids, a condition such as --state or --older-than, or --all")


def _is_confirmed(found: BulkResult) -> bool:
    if not found.ids:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{count(len(found.ids), dry_run=True)} deleted: add --yes to do it, or --dry-run")
    return typer.confirm(f"{count(len(found.ids), dry_run=True)} deleted. Delete?")


def _show(done: BulkResult, what: str, *, dry_run: bool, json: bool) -> None:
    if json:
        print_document({what: done.ids, "kept": dict(done.kept), "dry_run": dry_run})
        return
    say_kept(done.kept)
    say(f"{count(len(done.ids), dry_run=dry_run)} {what}")
