"""``redrive demo``: webhooks to an unreliable server, and the proof that none was lost.

Exit status: 0 if database, ledger and dead-letter file agree that every event was delivered or caught; 1 if an event
was lost or could not be finished; 2 if an option or the input is wrong (the good lines of a file with broken ones are
delivered nevertheless); 130 after Ctrl-C.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from redrive.cli.demo.audit import EventFate, report
from redrive.cli.demo.run import PACKAGE, Demo, database_path
from redrive.cli.screen import say
from redrive.errors import ConfigurationError, RedriveError

__all__ = ["demo"]

_LOST, _WRONG, _INTERRUPTED = 1, 2, 130
_DATABASE = "redrive-demo/webhooks.db"
# Characters of a broken line; it may have 20,000.
_SHOWN = 100


def program_folder() -> Path:
    """Return the folder of the webhook example: in the wheel, or in a checkout."""
    for folder in (PACKAGE / "_examples" / "webhooks", PACKAGE.parents[1] / "examples" / "webhooks"):
        if (folder / "delivery.py").exists():
            return folder
    raise ConfigurationError("this installation has no examples: install redrive from its wheel, or run in a checkout")


def demo(
    *,
    input: Annotated[  # noqa: A002 - typer names the option after it
        Path | None, typer.Option(help="JSONL file of events. Default: the 300 that ship with redrive.")
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=0, help="Number of events. Default: all of the file. 0 finishes an earlier run.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the receiver's faults.")] = 7,
    db: Annotated[str, typer.Option(help="SQLite file; an existing one is continued.")] = _DATABASE,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes; one is killed midway.")] = 2,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the receiver; 0 takes any free one.")] = 0,
) -> None:
    """Deliver webhooks to an unreliable server, kill a worker midway, and prove that nothing was lost."""
    try:
        folder, database = program_folder(), database_path(db)
        if db == _DATABASE:
            database.parent.mkdir(exist_ok=True)
        wanted, broken = _events(folder, input or folder / "events.jsonl", events)
        result = Demo(database, folder, seed=seed, port=port).perform(wanted, workers, broken=broken)
    except (RedriveError, OSError, msgspec.DecodeError) as error:
        _say(str(error))
        raise typer.Exit(_WRONG) from error
    for line in report(result):
        say(line)
    if result.trouble:
        _say(result.trouble)
    unfinished = result.count(EventFate.UNFINISHED)
    if unfinished:
        _say(f"{unfinished} events are safe in the database; deliver them with: redrive demo --events 0 --db {db}")
    if result.count(EventFate.LOST) or result.accepted_twice:
        raise typer.Exit(_LOST)
    if result.interrupted:
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(_LOST if result.trouble or unfinished else _WRONG if broken else 0)


def _events(folder: Path, path: Path, count: int | None) -> tuple[list[Any], int]:
    """Return the events to deliver and the number of broken lines of the file, after printing each of those."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        read = importlib.import_module("events").read_events(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    for line in read.broken:
        text = line.text if len(line.text) <= _SHOWN else f"{line.text[:_SHOWN]}... ({len(line.text)} characters)"
        _say(f"{path.name}, line {line.number} is not an event and is left out ({line.why}): {text}")
    if not read.good and count != 0:
        raise ConfigurationError(
            f"{path} has no events: it takes one JSON object in a line, as in {folder}/events.jsonl"
        )
    return take(read.good, count), len(read.broken)


def take(events: Sequence[Any], count: int | None) -> list[Any]:
    """Return so many events. If there are fewer, they are repeated: in the second round ``evt_7`` is ``evt_7#2``."""
    wanted = len(events) if count is None else count
    rounds = ((number // len(events) + 1, events[number % len(events)]) for number in range(wanted))
    return [e if turn == 1 else msgspec.structs.replace(e, id=f"{e.id}#{turn}") for turn, e in rounds]


def _say(text: str) -> None:
    say(f"redrive demo: {text}", err=True)
