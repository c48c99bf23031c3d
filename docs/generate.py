"""The parts of the reference that are generated from the code, so that they describe its present behaviour.

conf.py makes them MyST substitutions: ``{{ lifecycle }}`` is the table of states,
``{{ redrive_jobs_list }}`` the usage of the command ``redrive jobs list``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from typer.core import TyperArgument
from typer.main import get_command

from redrive.cli import cli
from redrive.engine.lifecycle import TABLE, LifecycleEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typer.core import TyperCommand, TyperOption


def lifecycle() -> str:
    """Write the table of states and events in Markdown."""
    head = ["event", *(f"`{state}`" for state in TABLE)]
    cells = {
        event: [f"`{moves[event]}`" if event in moves else "" for moves in TABLE.values()] for event in LifecycleEvent
    }
    return _table([head, *([f"`{event}`", *row] for event, row in cells.items())])


def commands() -> dict[str, str]:
    """Return the usage of each command in Markdown, by the words of the command joined with ``_``."""
    return {"_".join(words): _usage(words, command) for words, command in leaves(get_command(cli), ("redrive",))}


def leaves(command: TyperCommand, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Yield the commands without subcommands, each with the words that call it."""
    children = getattr(command, "commands", {})
    if not children:
        yield words, command
    for name, child in children.items():
        yield from leaves(child, (*words, name))


def _usage(words: tuple[str, ...], command: TyperCommand) -> str:
    context = typer.Context(command, info_name=words[-1])
    line = " ".join([*words, *command.collect_usage_pieces(context)])
    parameters = [_parameter(parameter) for parameter in command.params]
    rows = _table([["parameter", "meaning", "default"], *parameters])
    return "\n\n".join([f"```text\n{line}\n```", command.help or "", rows])


def _parameter(parameter: TyperArgument | TyperOption) -> list[str]:
    names = parameter.metavar if isinstance(parameter, TyperArgument) else ", ".join(parameter.opts)
    default = parameter.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    return [f"`{names or parameter.name}`", parameter.help or "", "required" if parameter.required else shown]


def _table(rows: Iterable[list[str]]) -> str:
    head, *body = [" | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    rule = " | ".join("---" for _ in head.split(" | "))
    return "\n".join(f"| {line} |" for line in (head, rule, *body))
