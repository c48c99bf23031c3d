"""``redrive erase``: the erasure of all that is stored of one person."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from redrive.cli.acting import DryRun
from redrive.cli.loading import Actor, AsJson, Target
from redrive.cli.local import ask
from redrive.cli.screen import print_document, say
from redrive.operate.erasure import ErasureReport


def erase(
    app: Target,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A whole tag, key or id, or field:value.")],
    *,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: AsJson = False,
    actor: Actor = None,
) -> None:
    """Erase all that is stored under the value of one person: jobs, runs, instances, items, events and texts.

    What runs is kept: cancel it or let it end, and repeat the command; the exit status is 1 then, and if nothing is
    stored under the value. What has not started is cancelled first. The command shows what there is, and asks; a
    program that runs it gives --yes. This is final.
    """
    if dry_run or not yes:
        found: ErasureReport = ask(app, "erase", actor=actor, value=value, dry_run=True)
        if not dry_run and not _is_confirmed(found):
            raise typer.Exit(1)
    report = found if dry_run else ask(app, "erase", actor=actor, value=value)
    if json:
        print_document(report)
    else:
        for each in report.kept:
            say(each)
        say(report.note)
    if not report.matched or (report.kept and not dry_run):
        raise typer.Exit(1)


def _is_confirmed(found: ErasureReport) -> bool:
    if not found.matched:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{found.note}: add --yes to do it, or --dry-run")
    say(found.note)
    return typer.confirm("Erase?")
