"""Loads the webhook example into this process, so that the demo enqueues through its App like any producer would."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from redrive.app.app import App
from redrive.cli.demo.events import BrokenLine
from redrive.cli.demo.files import Files
from redrive.errors import ConfigurationError

__all__ = ["Events", "Program", "load_program", "read_events"]


class Events(Protocol):
    """What the example's ``read_events`` returns."""

    @property
    def good(self) -> Sequence[Any]:
        """The events of the file."""
        ...

    @property
    def broken(self) -> Sequence[BrokenLine]:
        """Its lines that are no events."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """The sender.

    Attributes:
        app: its App, on the demo's database.
        deliver: its task that delivers one event.
        catch: its task that writes to the dead-letter file.
    """

    app: App
    deliver: Any
    catch: Any


def read_events(folder: Path, path: Path) -> Events:
    """Read a JSONL file with the example's own reader.

    Args:
        folder: of the example.
        path: the file.

    Raises:
        OSError: it cannot be read.
    """
    events: Events = _module(folder, "events").read_events(path)
    return events


def load_program(folder: Path, files: Files) -> Program:
    """Import the sender.

    Args:
        folder: of the example.
        files: of the database that it is to use.

    Raises:
        ConfigurationError: httpx is missing.
        StoreError: its database cannot be opened.
    """
    if importlib.util.find_spec("httpx") is None:
        raise ConfigurationError("the demo delivers with httpx, which is not installed: pip install 'redrive[httpx]'")
    os.environ.update(files.settings)
    module = _module(folder, "delivery")
    return Program(module.app, module.deliver, module.to_dead_letters)


def _module(folder: Path, name: str) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)
