"""Puts the demo together, lets it run, takes everything down again whatever happens, and asks for the verdict.

The order matters where things can go wrong. The database is opened before a process is started, since it is the
likeliest to refuse. The receiver listens before the first job exists, since a job that finds nobody there spends its
retries for nothing. At the end the workers stop before the receiver that they speak to, and the ledger is read when
nobody writes to it any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from redrive.cli.demo.audit import DeadLetter, Request, audit, read_lines
from redrive.cli.demo.database import Database
from redrive.cli.demo.files import Files
from redrive.cli.demo.processes import Children
from redrive.cli.demo.program import load_program
from redrive.cli.demo.progress import display_for
from redrive.cli.demo.report import Run
from redrive.cli.demo.run import Course
from redrive.cli.demo.signals import Interrupts
from redrive.clock import SystemClock
from redrive.errors import RedriveError

__all__ = ["Setting", "perform"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What was asked for.

    Attributes:
        files: of the demo's database.
        folder: of the example.
        seed: of the receiver's misbehaviour.
        workers: how many processes.
        port: of the receiver; 0 takes any free one.
    """

    files: Files
    folder: Path
    seed: int
    workers: int
    port: int


def perform(console: Console, setting: Setting, events: Sequence[Any], broken: int) -> Run:
    """Run the demo from start to end.

    Args:
        console: for the progress.
        setting: what was asked for.
        events: to be delivered.
        broken: how many lines of the input were none, for the report.

    Returns:
        What became of the events, also if the run was interrupted or broke down.

    Raises:
        StoreError: the database cannot be opened.
        ChildError: the receiver cannot start.
        OSError: a file beside the database cannot be written or read.
    """
    clock = SystemClock()
    start = clock.monotonic()
    with contextlib.ExitStack() as undo:
        database = Database(load_program(setting.folder, setting.files))
        undo.callback(database.close)
        children = Children(setting.files, setting.folder, seed=setting.seed, clock=clock)
        undo.callback(children.kill)  # those that are still there if something unforeseen happens
        interrupts = undo.enter_context(Interrupts())
        children.start_receiver(setting.port)
        display = display_for(console, clock)
        undo.callback(display.close)
        course = Course(database, children, display, interrupts, clock)
        try:
            trouble = _play(course, children, interrupts, events, setting.workers)
        except KeyboardInterrupt:
            trouble = ""
            interrupts.ignore()
            children.kill()
        verdict = audit(
            database.cases(),
            read_lines(setting.files.ledger, Request),
            read_lines(setting.files.dead_letters, DeadLetter),
        )
    return Run(
        audit=verdict,
        left_over=len(database.left_over),
        broken=broken,
        withheld=len(events) - len(database.enqueued),
        rescue=course.rescue,
        interrupted=interrupts.asked,
        trouble=trouble,
        seconds=clock.monotonic() - start,
    )


def _play(course: Course, children: Children, interrupts: Interrupts, events: Sequence[Any], workers: int) -> str:
    """Run the course and stop all processes in order; the text of what went wrong, if something did."""
    trouble = ""
    try:
        course.run(events, workers)
        if interrupts.asked:
            course.drain()
    except RedriveError as error:
        trouble = str(error)
    children.close()
    return trouble
