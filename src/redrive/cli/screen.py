"""The output of commands: lines, tables and JSON, with names and error texts escaped.

Commands write through this module only; a test of the architecture checks that. `redrive.visible` gives the reason.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from redrive.visible import hanging, visible


def say(text: str, *, head: str = "", err: bool = False) -> None:
    """Write a line, perhaps with a head that is bold on a terminal, or to standard error if ``err``."""
    typer.echo((typer.style(visible(head), bold=True) if head else "") + visible(text), err=err)


def say_lines(text: str) -> None:
    """Write a text of several lines, each of which the program has made."""
    for line in text.removesuffix("\n").split("\n"):
        say(line)


def say_error(text: str) -> None:
    """Write an error to standard error; lines after the first, such as those with a caret, are indented."""
    typer.echo(hanging(f"redrive: {text}"), err=True)


def print_document(value: object) -> None:
    """Write a value as one line of JSON."""
    # Escapes are those of JSON, so the document stays the same.
    say(msgspec.json.encode(value).decode())


def document(raw: bytes | str | None) -> object:
    """Return JSON from the database as part of another document; invalid JSON becomes a string, None null."""
    if raw is None:
        return None
    text = raw if isinstance(raw, str) else raw.decode(errors="replace")
    try:
        return msgspec.Raw(msgspec.json.format(text, indent=-1).encode())
    except msgspec.DecodeError:
        return text


def utc(instant: datetime) -> str:
    """Return an instant as text, to the second."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def draw(console: Console, line: Text | str) -> None:
    """Write a line to a console without wrapping it. Its styles are lost if it has to be escaped."""
    plain = line if isinstance(line, str) else line.plain
    shown = visible(plain)
    console.print(line if isinstance(line, Text) and shown == plain else Text(shown), soft_wrap=True, highlight=False)


class Grid:
    """A table with cells of plain text."""

    def __init__(self, *headings: str) -> None:
        self._table = Table(*headings, box=None, pad_edge=False)

    def add(self, *cells: str) -> None:
        """Add a row."""
        self._table.add_row(*(Text(visible(cell)) for cell in cells))

    def show(self) -> None:
        """Write the table."""
        Console().print(self._table)


class Commands(TyperGroup):
    """The root of the command line. It escapes errors about arguments, because they repeat these."""

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


def _escape(error: Exception) -> None:
    """Escape the message of an error that typer shows."""
    if isinstance(message := getattr(error, "message", None), str):
        error.message = hanging(message)  # type: ignore[attr-defined]
