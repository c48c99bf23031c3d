"""The command line of redrive on the project's jobs: ``manage.py redrive ...``.

It runs ``python -m redrive`` in this process with Django set up, and adds the App. ``manage.py redrive worker
--reload`` restarts the worker when the code changes. The worker is a process of its own then, because it needs the main
thread, which Django's reloader uses here.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import autoreload

TARGET_AT = {"worker": 1, "check": 1, "jobs": 2, "queues": 2, "schedules": 2, "db": 2}
"""The position of the App among the words of each command."""

WITHOUT_TARGET = {("db", "sql")}


def command_line(words: list[str], alias: str) -> list[str]:
    """Return the arguments for ``redrive``: the words after ``manage.py redrive``, with the App of a backend."""
    at = TARGET_AT.get(words[0]) if words else None
    if at is None or len(words) < at or tuple(words[:2]) in WITHOUT_TARGET:
        return words
    return [*words[:at], f"redrive.contrib.django.cli_target:{alias}", *words[at:]]


class Command(BaseCommand):  # type: ignore[misc] # Django has no type information
    """The command line of redrive, on the project's own jobs."""

    help = (
        "Runs workers, and looks at jobs and acts on them: `manage.py redrive worker`, `... jobs list`, `... --help`."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Accept all arguments of ``redrive``, and ``--backend``."""
        parser.add_argument("--backend", default="default", help="Alias in TASKS.")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="As for the command `redrive`.")

    def handle(self, *_: Any, **options: Any) -> None:  # noqa: ANN401 - Django's
        """Run the command line."""
        words: list[str] = options["words"]
        reload = words[:1] == ["worker"] and "--reload" in words
        if reload:
            words.remove("--reload")
        line = command_line(words, options["backend"]) or ["--help"]
        if reload:
            autoreload.run_with_reloader(serve, line)
        else:
            _run(line)


def _run(line: list[str]) -> None:
    before = sys.argv
    sys.argv = ["redrive", *line]
    try:
        runpy.run_module("redrive", run_name="__main__", alter_sys=True)
    finally:
        sys.argv = before


def serve(line: list[str]) -> None:
    """Run the command line in a process of its own, which ends with this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "redrive.contrib.django.reloader", *line]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:  # noqa: S603 - ourselves
        process.wait()
