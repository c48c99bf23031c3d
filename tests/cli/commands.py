"""Command lines of all commands, found in the command line itself, so that a new command is included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from redrive.cli import cli

OPTIONS: dict[tuple[str, ...], list[list[str]]] = {
    ("jobs", "archive"): [["--to", "jobs.jsonl", "--task", "{task}"]],
    ("jobs", "delete"): [["--task", "{task}", "--yes"], ["--task", "{task}", "--dry-run"]],
    ("jobs", "cancel"): [["--task", "{task}"]],
    ("jobs", "redrive"): [["--task", "{task}"], ["--task", "{task}", "--dry-run"]],
    ("jobs", "repolicy"): [["--task", "{task}"]],
    ("queues", "limit"): [["--concurrency", "3"]],
    ("runs", "fork"): [["--workflow", "{task}"]],
    ("topics", "prune"): [["--keep-for", "7d"]],
    ("schedules", "backfill"): [["--since", "2026-03-01", "--until", "2026-03-02"]],
}
"""Options without which a command does nothing, beside its plain form."""


SERVERS = {("web",), ("dev",)}
"""Commands that serve until they are stopped; tests/cli/test_health.py and tests/cli/test_dev.py start them."""


def walk(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Generate all commands, each with its path."""
    command = typer.main.get_command(cli) if command is None else command
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from walk(each, (*path, name))
    else:
        yield path, command


def lines(words: Mapping[str, str]) -> Iterator[list[str]]:
    """Generate each form of each command that takes an app.

    Args:
        words: values for the arguments of commands, by their names; ``task`` is the value of ``--task``.

    Raises:
        KeyError: a command has an argument that is unknown here."""
    for path, command in walk():
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        if "app" not in {each.name for each in arguments} or path in SERVERS:
            continue
        given = [words[each.name] for each in arguments if not getattr(each, "hidden", False)]
        needed = [words[each.name] for each in arguments if each.required]
        yield [*path, *given]
        if len(needed) < len(given):
            yield [*path, *needed]
        if any(each.name == "json" for each in command.params):
            yield [*path, *given, "--json"]
            if len(needed) < len(given):
                yield [*path, *needed, "--json"]
        for options in OPTIONS.get(path, []):
            yield [*path, *needed, *(each.format(**words) for each in options)]
