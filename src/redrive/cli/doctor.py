"""``redrive doctor``: what needs a person, in the database, in its clock, and among its workers."""

from __future__ import annotations

import typer

from redrive.cli.loading import AsJson, Target
from redrive.cli.local import ask, is_server
from redrive.cli.screen import print_document, say
from redrive.engine.records import Diagnosis, Severity
from redrive.errors import StoreError


def doctor(app: Target, *, json: AsJson = False) -> None:
    """Examine the database and its workers, and print what to do about each finding; it only reads.

    The exit status is 1 if something needs a person.
    """
    try:
        found: tuple[Diagnosis, ...] = ask(app, "doctor").findings
    except StoreError as error:
        if is_server(app):
            raise
        found = (Diagnosis("database", Severity.PROBLEM, str(error), "check that the URL of the app is the right one"),)
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
