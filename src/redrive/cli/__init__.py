"""The command line, with one module per command group.

May import: everything below it, `redrive.runtime` included. Must never: decide anything or hold SQL; a program can do
everything that a command can do.

Commands of operators ask a row of `redrive.operate.table`: `local` performs it on the database of the App, `remote`
sends it to a dashboard, and `text` writes the struct that both return.

Commands print tables for readers and, with ``--json``, JSON for programs. An error is one line on standard error that
describes what was wrong and what would be right; a text that cannot be read is printed below it, with a caret. The exit
status is 2 for a wrong call or configuration, and 1 if the requested object does not exist or the action is refused.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import typer

from redrive.cli.screen import Commands, exit_status, say, say_error
from redrive.errors import RedriveError
from redrive.stores.urls import cleared
from redrive.version import __version__


class _Root(Commands):
    # Each start of a worker would otherwise import the drawings of `plan` and `simulate` and the demo.
    places: ClassVar = {
        "worker": "redrive.cli.worker:worker",
        "dev": "redrive.cli.dev:dev",
        "demo": "redrive.cli.demo:demo",
        "plan": "redrive.cli.plan:plan",
        "simulate": "redrive.cli.simulate:simulate",
        "enqueue": "redrive.cli.enqueue:enqueue",
        "check": "redrive.cli.database:check",
        "doctor": "redrive.cli.doctor:doctor",
        "health": "redrive.cli.health:health",
        "find": "redrive.cli.find:find",
        "erase": "redrive.cli.erase:erase",
        "jobs": "redrive.cli.deleting:jobs",
        "db": "redrive.cli.database:db",
        "errors": "redrive.cli.errors:errors",
        "queues": "redrive.cli.queues:queues",
        "workers": "redrive.cli.workers:workers",
        "schedules": "redrive.cli.schedules:schedules",
        "machines": "redrive.cli.machines:machines",
        "topics": "redrive.cli.topics:topics",
        "runs": "redrive.cli.runs:runs",
        "operations": "redrive.cli.operations:operations",
        "web": "redrive.cli.web:web",
    }
    #: The commands for words of Celery, RQ, Dramatiq, Oban and others.
    guesses: ClassVar = {
        "dashboard": "web",
        "ui": "web",
        "server": "web",
        "serve": "web",
        "flower": "web",
        "monitor": "web",
        "admin": "web",
        "start": "worker",
        "run": "worker",
        "work": "worker",
        "beat": "worker",
        "scheduler": "worker",
        "status": "health",
        "ping": "health",
        "info": "doctor",
        "stats": "queues list",
        "ps": "workers list",
        "inspect": "workers list",
        "active": "jobs list --state running",
        "list": "jobs list",
        "retry": "jobs retry",
        "requeue": "jobs redrive",
        "cancel": "jobs cancel",
        "revoke": "jobs cancel",
        "purge": "jobs cancel",
        "empty": "jobs cancel",
        "suspend": "queues pause",
        "migrate": "db migrate",
        "result": "jobs show",
        "call": "enqueue",
        "why": "jobs show",
        "count": "queues list",
        "jobs why": "jobs show",
        "jobs status": "jobs show",
        "jobs result": "jobs show",
        "jobs count": "queues list",
        "jobs requeue": "jobs redrive",
        "jobs purge": "jobs cancel",
        "jobs enqueue": "enqueue",
        "runs start": "enqueue",
        "queues set": "queues limit",
        "db upgrade": "db migrate",
    }
    #: What options of Celery, RQ, Dramatiq and Huey are for a worker.
    options: ClassVar = {
        "-A --app": "the App is an argument: redrive worker shop.jobs:app",
        "-Q --queues -q": "write --queue mail, once for each queue",
        "-X --exclude-queues": "write --exclude-queue mail, once for each queue",
        "-c -w --workers --threads": "write --concurrency 4",
        "-p": 'write --processes 4, which is for tasks with executor="process"',
        "-n --hostname": "write --name mail-1",
        "-l --loglevel --log-level --logging-level -v --verbose": (
            "--quiet logs warnings only; other levels are those of logging, which the program may configure"
        ),
        "-B --beat": "every worker starts the crons of its code",
        "-b --burst": "write --until-empty",
        "--max-tasks-per-child": "write --max-jobs 1000",
    }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's context
        """Return the command that the arguments name; refuse a word of another queue with our command for it."""
        for words in (" ".join(args[:1]), " ".join(args[:2])):
            if words in self.guesses:
                ctx.fail(f"No such command {words!r}. Did you mean 'redrive {self.guesses[words]}'?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's context
        """Run a command; an option of another queue's worker is answered with ours."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            option, command = getattr(error, "option_name", None), getattr(getattr(error, "ctx", None), "command", None)
            if option is not None and command is not None and command.name == "worker":
                found = next((text for words, text in self.options.items() if option in words.split()), None)
                if found is not None:
                    error.message, error.possibilities = f"{error.message}; {found}", None  # type: ignore[attr-defined]
            raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer's context
        """Return a command by its name; with --url one that acts through the JSON API."""
        command, url = super().get_command(ctx, cmd_name), ctx.params.get("url")
        if command is None or url is None:
            return command
        from redrive.cli.remote import through

        return through(command, (cmd_name,), url, ctx.params.get("token_file"))


cli: typer.Typer = typer.Typer(
    name="redrive",
    cls=_Root,
    help="One retry policy, from a function call to a fleet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        say(f"redrive {__version__}")
        raise typer.Exit


@cli.callback()
def root(
    *,
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and exit."),
    url: str | None = typer.Option(
        None,
        help="Act through the JSON API of a dashboard, such as https://ops.example.com; there is no MODULE:APP then.",
    ),
    token_file: Path | None = typer.Option(None, metavar="FILE", help="The bearer token for --url, in a file."),
) -> None:
    """One retry policy, from a function call to a fleet."""
    if token_file is not None and url is None:
        raise typer.BadParameter("it is the token for --url, which is not given", param_hint="--token-file")


def main(command: Callable[[], object] = cli) -> None:
    """Run the command line; every error of redrive becomes one line, and any other one a traceback."""
    try:
        command()
    except RedriveError as error:
        say_error(str(error))
        sys.exit(exit_status(error))
    except Exception as error:  # noqa: BLE001 - shown in full, but escaped, which Python's own traceback is not
        say_error("an unexpected error:\n" + cleared("".join(traceback.format_exception(error))).rstrip("\n"))
        sys.exit(1)
