"""The guide for Django as printed: its commands and files, in a folder of their own, by subprocesses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.clock import SystemClock

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "django.md"

PATIENCE = 60
"""Seconds after which a waiting test fails."""

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)

FILE = re.compile(r"`([\w/]+\.py)`(?: as well)?:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A sentence that ends with the path of a file, and the code that belongs there."""


class Project:
    """A folder in which the page is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        for name, arguments in {"python": "", "django-admin": "-m django"}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            (programs / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start a command."""
        out = subprocess.PIPE
        return subprocess.Popen(
            shlex.split(line), cwd=self.folder, env=self.environment, stdout=out, stderr=subprocess.STDOUT, text=True
        )

    def run(self, line: str) -> str:
        """Run a command to its end; return its output."""
        with self.start(line) as process:
            output, _ = process.communicate(timeout=PATIENCE)
        assert 0 == process.returncode, f"{line}\n{output}"
        return output

    def jobs(self) -> list[dict[str, object]]:
        """Return the jobs as the last command of the page prints them."""
        printed = self.run("python manage.py redrive --backend default jobs list --json")
        return [json.loads(line) for line in printed.splitlines()]

    def unfinished(self) -> int:
        """Return the number of jobs that have not succeeded; to ask the command takes a second."""
        with contextlib.closing(sqlite3.connect(self.folder / "db.sqlite3", timeout=PATIENCE)) as database:
            (count,) = database.execute("SELECT count(*) FROM redrive_jobs WHERE state <> 'succeeded'").fetchone()
        return count

    def work(self, line: str) -> str:
        """Run a worker by a command until no job is left to do; return its output."""
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE
        with self.start(line) as worker:
            assert worker.stdout is not None
            lines: list[str] = []
            try:
                while not lines or ("serves" not in lines[-1] and lines[-1]):
                    lines.append(worker.stdout.readline())
                while self.unfinished():
                    assert clock.monotonic() < deadline, self.jobs()
                    clock.sleep(0.02)
            finally:
                worker.send_signal(signal.SIGINT)
            output = "".join([*lines, worker.stdout.read()])
        assert 0 == worker.returncode, output
        return output


@pytest.mark.acceptance
@pytest.mark.slow
def test_the_guide_works_as_printed(tmp_path):
    """Each command runs in order, after the files that stand before it; outputs are those that are printed."""
    project, text = Project(tmp_path), GUIDE.read_text()
    parts = sorted([*CONSOLE.finditer(text), *FILE.finditer(text)], key=lambda match: match.start())
    ran: list[str] = []
    for part in parts:
        if part.re is FILE:
            path = tmp_path / part[1]
            path.write_text((path.read_text() + "\n\n" if path.exists() else "") + part[2])
            continue
        for command in part[1].removeprefix("$ ").split("\n$ "):
            line, _, expected = command.strip().partition("\n")
            output = project.work(line) if " worker" in line else project.run(line)
            assert expected in output
            ran.append(line)

    assert "python manage.py redrive worker --concurrency 20" in ran
    assert [("shop.tasks.send_receipt", "mail")] == [(job["task"], job["queue"]) for job in project.jobs()]
    # The cron stands below the worker on the page; the next worker declares it.
    for line in ran[ran.index("python manage.py redrive worker --concurrency 20") - 1 :][:2]:
        _ = project.work(line) if " worker" in line else project.run(line)
    assert "shop.tasks.send_reminders" in project.run("python manage.py redrive schedules list --json")
