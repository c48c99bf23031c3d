"""The output of commands: lines, tables and JSON, with names and error texts escaped.

Commands write through this module only; a test of the architecture checks that. `redrive.visible` gives the reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import typer
from typer.core import TyperGroup
from typer.main import get_command

from redrive.errors import ConfigurationError, PayloadError, RedriveError
from redrive.visible import hanging, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# rich is imported where something is drawn, because a worker draws nothing and starts the sooner.


def say(text: str, *, head: str = "", err: bool = False) -> None:
    """Write a line, perhaps with a head that is bold on a terminal, or to standard error if ``err``."""
    typer.echo((typer.style(visible(head), bold=True) if head else "") + visible(text), err=err)


def say_lines(text: str) -> None:
    """Write a text of several lines, each of which the program has made."""
    for line in text.removesuffix("\n").split("\n"):
        say(line)


def say_unread(before: int | str, *, by_index: bool = False) -> None:
    """Write to standard error that a list is without the jobs that were not read, or not by an index."""
    found = f"of jobs older than {before} only those were found that have it as a tag, a key or the id of a run"
    unread = found if by_index else f"jobs older than {before} were not read"
    say(f"... {unread}; --before {before} reads on", err=True)


def say_kept(kept: Iterable[tuple[int | str, str]]) -> None:
    """Write the jobs that stay as they are, with the reasons, to standard error."""
    for number, why in kept:
        say(f"job {number} {why}", err=True)


def say_error(text: str) -> None:
    """Write an error to standard error; lines after the first, such as those with a caret, are indented."""
    typer.echo(hanging(f"redrive: {text}"), err=True)


def exit_status(error: RedriveError) -> int:
    """Return the exit status of a command that has failed: 2 for a wrong call or configuration, otherwise 1."""
    return 2 if isinstance(error, ConfigurationError | PayloadError) else 1


def print_document(value: object) -> None:
    """Write a value as one line of JSON."""
    # Escapes are those of JSON, so the document stays the same.
    say(msgspec.json.encode(value).decode())


def write_drawing(path: Path, drawing: str, what: str) -> None:
    """Write a drawing into a file; raise `ConfigurationError` if that is not possible."""
    try:
        path.write_text(drawing, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    say(f"{what} is drawn in {path}", err=True)


def utc(instant: datetime) -> str:
    """Return an instant as text, to the second."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def draw(console: Console, line: Text | str) -> None:
    """Write a line to a console without wrapping it. Its styles are lost if it has to be escaped."""
    from rich.text import Text

    plain = line if isinstance(line, str) else line.plain
    shown = visible(plain)
    console.print(line if isinstance(line, Text) and shown == plain else Text(shown), soft_wrap=True, highlight=False)


# Columns up to which a cell is never wrapped: an instant, a state, a name of usual length.
FIXED = 23


class Grid:
    """A table with cells of plain text. It fits the terminal, or `COLUMNS`; in a pipe each row is one line.

    Args:
        headings: one for each column.
        wide: the columns that are wrapped where the table is too wide; the others as far as these do not suffice.
    """

    def __init__(self, *headings: str, wide: Collection[str] = ()) -> None:
        self._headings = headings
        self._wide = wide
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row."""
        self._rows.append(tuple(map(visible, cells)))

    def show(self) -> None:
        """Write the table."""
        if not (sys.stdout.isatty() or "COLUMNS" in os.environ):
            self._show_lines()
            return
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for place, heading in enumerate(self._headings):
            longest = max(cell_len(row[place]) for row in [self._headings, *self._rows])
            is_fixed = heading not in self._wide and longest <= FIXED
            table.add_column(heading, no_wrap=is_fixed, overflow="fold", min_width=None if is_fixed else len(heading))
        for row in self._rows:
            table.add_row(*map(Text, row))
        Console().print(table)

    def _show_lines(self) -> None:
        """Write each row as one line, which programs such as grep can read."""
        from rich.cells import cell_len

        rows = [self._headings, *self._rows]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
            say("  ".join(cells).rstrip())


class Commands(TyperGroup):
    """The root of the command line. It imports the module of a command when the command is used.

    It escapes errors about arguments, because they repeat these.
    """

    #: Where each command is, as ``module:attribute``: a function, or a group with commands of its own.
    places: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever typer gives
        self._loaded: dict[str, Any] = {}
        super().__init__(*args, **kwargs)

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """All commands."""
        return {name: self._load(name) for name in self.places}

    @commands.setter
    def commands(self, commands: MutableMapping[str, Any]) -> None:
        """Ignore what the constructor assigns: `places` lists the commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's context
        """Return the names of all commands, in the order of the help text."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - typer's context
        """Return a command by its name, or None."""
        return self._load(cmd_name) if cmd_name in self.places else None

    def _load(self, name: str) -> Any:  # noqa: ANN401 - a command of typer
        if name not in self._loaded:
            module, _, attribute = self.places[name].partition(":")
            try:
                found = getattr(import_module(module), attribute)
            except ModuleNotFoundError as error:
                found = _uninstalled(error)
            if not isinstance(found, typer.Typer):
                # A policy in English may begin with "- ".
                settings = {"ignore_unknown_options": name == "plan" or found.__name__ == "uninstalled"}
                function, found = found, typer.Typer()
                found.command(name, context_settings=settings)(function)
            self._loaded[name] = get_command(found)
            self._loaded[name].name = name
        return self._loaded[name]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's context
        """Read the arguments of the root."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _escape(error)
            raise

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's context
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            _escape(error)
            raise


def _uninstalled(error: ModuleNotFoundError) -> Any:  # noqa: ANN401 - a function for typer
    """Return a command that raises the error: it needs an extra, and the other commands do not."""

    def uninstalled(words: list[str] | None = typer.Argument(None, hidden=True)) -> None:  # noqa: ARG001 - ignored
        raise ConfigurationError(str(error)) from error

    # Help texts are markup, in which a word in brackets is a style.
    uninstalled.__doc__ = str(error).replace("[", r"\[")
    return uninstalled


def _escape(error: Exception) -> None:
    """Escape the message of an error that typer shows."""
    if isinstance(message := getattr(error, "message", None), str):
        error.message = hanging(message)  # type: ignore[attr-defined]
