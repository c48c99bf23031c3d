"""The command line, with one module per command group.

May import: everything below it, `redrive.runtime` included. Must never: decide anything or hold SQL; a program can do
everything that a command can do.

Commands print tables for readers and, with ``--json``, JSON for programs. An error is one line on standard error that
describes what was wrong and what would be right; a text that cannot be read is printed below it, with a caret. The exit
status is 2 for a wrong call or configuration, and 1 if the requested object does not exist or the action is refused.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import typer

from redrive import __version__
from redrive.cli import acting  # noqa: F401 - its commands register themselves with `jobs`
from redrive.cli.database import check, db
from redrive.cli.demo import demo
from redrive.cli.jobs import jobs
from redrive.cli.plan import plan
from redrive.cli.queues import queues
from redrive.cli.schedules import schedules
from redrive.cli.screen import Commands, say, say_error
from redrive.cli.simulate import simulate
from redrive.cli.worker import worker
from redrive.errors import ConfigurationError, RedriveError
from redrive.stores.urls import cleared

cli = typer.Typer(
    name="redrive",
    cls=Commands,
    help="One retry policy, from a function call to a fleet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
cli.command()(worker)
cli.command()(demo)
# A policy in English may begin with "- ".
cli.command(context_settings={"ignore_unknown_options": True})(plan)
cli.command()(simulate)
cli.command()(check)
cli.add_typer(jobs, name="jobs")
cli.add_typer(db, name="db")
cli.add_typer(queues, name="queues")
cli.add_typer(schedules, name="schedules")


def _version(asked: bool) -> None:
    if asked:
        say(f"redrive {__version__}")
        raise typer.Exit


@cli.callback()
def root(
    *,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """One retry policy, from a function call to a fleet."""


def main(command: Callable[[], object] = cli) -> None:
    """Run the command line; every error of redrive becomes one line, and any other one a traceback."""
    try:
        command()
    except RedriveError as error:
        say_error(str(error))
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
    except Exception as error:  # noqa: BLE001 - shown in full, but escaped, which Python's own traceback is not
        say_error("an unexpected error:\n" + cleared("".join(traceback.format_exception(error))).rstrip("\n"))
        sys.exit(1)
