"""The command line of redrive on the project's jobs: ``manage.py redrive ...``.

It runs the command ``redrive`` in this process with Django set up. Commands that take an App get that of a backend, and
``jobs`` takes ids of results as well as ids of jobs. ``manage.py redrive worker --reload`` restarts the worker when the
code changes. The worker is a process of its own then, because it needs the main thread, which Django's reloader uses
here.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import autoreload

from redrive import seams
from redrive.contrib import extra
from redrive.contrib.django.results import decode_id


def command_line() -> Any:
    """Return the command line of redrive."""
    with extra("cli"):
        import typer

        return typer.main.get_command(seams.command_line())


def of_backend(alias: str) -> Any:
    """Return the command line of redrive, with the App of a backend in place of the argument ``MODULE:APP``."""
    root = command_line()
    for command in _commands(root):
        taken = [each for each in command.params if (each.metavar or "").startswith("MODULE:APP")]
        command.params = [each for each in command.params if each not in taken]
        for each in taken:
            # Some commands take several.
            value = [target(alias)] if each.nargs == -1 else target(alias)
            command.callback = functools.partial(command.callback, **{each.name: value})
    return root


def _commands(command: object) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _commands(each)


def target(alias: str) -> str:
    """Return the address of the App of a backend."""
    return f"redrive.contrib.django.cli_target:{alias}"


class Command(BaseCommand):  # type: ignore[misc] # Django has no type information
    """The command line of redrive, on the project's own jobs."""

    help = "Run workers, show jobs and act on them. `manage.py redrive worker --help` describes one command."

    def add_arguments(self, parser: CommandParser) -> None:
        """Accept all arguments of ``redrive``, and ``--backend``."""
        try:
            parser.epilog = f"Commands: {', '.join(command_line().commands)}."
        except ModuleNotFoundError as error:
            parser.error(str(error))
        parser.add_argument("--backend", default="default", help="Alias in TASKS.")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="command ...", help="As for `redrive`.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the command line."""
        words: list[str] = options["words"] or ["--help"]
        alias = options["backend"]
        if words[0] == "worker" and "--reload" in words and "--help" not in words:
            rest = [each for each in words[1:] if each != "--reload"]
            autoreload.run_with_reloader(serve, ["worker", target(alias), *rest])
            return
        if words[0] == "jobs":
            words = [str(decode_id(each) or each) for each in words]
        # A prefix of the program in the lines that show how to call it.
        program = f"{os.path.basename(sys.argv[0])} redrive"  # noqa: PTH119 - the name only
        seams.main()(functools.partial(of_backend(alias), words, prog_name=program))


def serve(line: list[str]) -> None:
    """Run the command line in a process of its own, which ends with this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "redrive.contrib.django.reloader", *line]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:  # noqa: S603 - ourselves
        process.wait()
