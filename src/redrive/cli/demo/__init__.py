"""``redrive demo``: webhooks to a server that misbehaves, and the proof that none was lost.

Exit status: 0 if database, ledger and dead-letter file agree that every event was delivered or caught; 1 if something
was lost or could not be finished; 2 if an option or the input is wrong (the good lines of a file with broken ones are
delivered all the same); 130 after Ctrl-C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from redrive.cli.demo.audit import Fate
from redrive.cli.demo.events import complaint, take
from redrive.cli.demo.files import Files, program_folder
from redrive.cli.demo.program import read_events
from redrive.cli.demo.report import Run, show_report
from redrive.cli.demo.stage import Setting, perform
from redrive.cli.screen import say
from redrive.errors import ConfigurationError, RedriveError

__all__ = ["demo"]

_LOST, _WRONG, _INTERRUPTED = 1, 2, 130
_DATABASE = "redrive-demo/webhooks.db"


def demo(
    *,
    input: Annotated[  # noqa: A002 - typer names the option after it
        Path | None, typer.Option(help="JSONL file of events. Default: the 300 that ship with redrive.")
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=0, help="How many. Default: all of the file. 0 only finishes an earlier run.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the receiver's misbehaviour.")] = 7,
    db: Annotated[str, typer.Option(help="SQLite file; an old one is continued.")] = _DATABASE,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes; one is killed midway.")] = 2,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the receiver; 0 takes any free one.")] = 0,
) -> None:
    """Deliver webhooks to a server that misbehaves, kill a worker midway, and prove that nothing was lost."""
    console = Console()
    try:
        folder = program_folder()
        files = Files.of(db)
        if db == _DATABASE:
            files.database.parent.mkdir(exist_ok=True)
        wanted, broken = _events(folder, input or folder / "events.jsonl", events)
        run = perform(console, Setting(files, folder, seed, workers, port), wanted, broken)
    except (RedriveError, OSError, msgspec.DecodeError) as error:
        _say(str(error))
        raise typer.Exit(_WRONG) from error
    show_report(console, run)
    _next_steps(run, db)
    raise typer.Exit(_status(run))


def _events(folder: Path, path: Path, count: int | None) -> tuple[list[Any], int]:
    """The events to deliver, and how many lines of the file are none; each of those is told."""
    try:
        read = read_events(folder, path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    for line in read.broken:
        _say(complaint(path.name, line))
    if not read.good and count != 0:
        raise ConfigurationError(
            f"{path} has no events: it takes one JSON object in a line, as in {folder}/events.jsonl"
        )
    return take(read.good, count), len(read.broken)


def _next_steps(run: Run, db: str) -> None:
    if run.trouble:
        _say(run.trouble)
    if waiting := run.audit.count(Fate.UNFINISHED):
        _say(f"{waiting} events are safe in the database; deliver them with: redrive demo --events 0 --db {db}")


def _status(run: Run) -> int:
    if run.audit.lost or run.audit.taken_twice:
        return _LOST
    if run.interrupted:
        return _INTERRUPTED
    if run.trouble or run.audit.count(Fate.UNFINISHED):
        return _LOST
    return _WRONG if run.broken else 0


def _say(text: str) -> None:
    say(f"redrive demo: {text}", err=True)
