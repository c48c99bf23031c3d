"""Loading of an App by its reference ``module:app``, and the parameters that several commands have."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.app.loading import exported, import_module
from redrive.errors import AppLoadError, ConfigurationError
from redrive.stores.urls import cleared

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, for example payments.jobs:app.")]
Targets = Annotated[
    list[str],
    typer.Argument(metavar="MODULE:APP...", help="Where the App is, for example payments.jobs:app; or several Apps."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object in a line instead of a table.")]
Actor = Annotated[str | None, typer.Option(help="The name in the audit log; by default user@host.")]


def read_instant(text: str) -> datetime:
    """Read the value of an option that is an instant; it is naive if the text has no offset."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not an instant; write 2026-03-01, 2026-03-01T06:00 or 2026-03-01T06:00+02:00"
        ) from error


def load_app(reference: str) -> App:
    """Import a module and return its App. The current directory is importable, as with ``python -m``.

    Raise `AppLoadError` if the reference is wrong or the import failed, and `ConfigurationError` if the module itself
    is misconfigured, such as by a directive that cannot be read.
    """
    name, _, attribute = reference.partition(":")
    if not name or not attribute:
        raise AppLoadError(f"{reference!r} is not of the form module:app, for example payments.jobs:app")
    if name.endswith(".py") or "/" in name:
        guess = ".".join(Path(name.removesuffix(".py")).parts).lstrip("./")
        raise AppLoadError(f"{name!r} is a file, and an App is named by its module: write {guess}:{attribute}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        with exported(name):
            module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppLoadError(f"there is no module {name!r} here ({Path.cwd()}) or on the Python path") from error
        raise AppLoadError(_failed(name, error)) from error
    except ConfigurationError:
        raise
    except Exception as error:
        raise AppLoadError(_failed(name, error)) from error
    found = getattr(module, attribute, None)
    if found is None:
        apps = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has the App {', '.join(apps)}" if apps else "; it has no App at all"
        raise AppLoadError(f"module {name!r} has no {attribute!r}{hint}")
    if not isinstance(found, App):
        raise AppLoadError(f"{reference} is a {type(found).__name__}, not a redrive.App")
    found.reference = reference
    return found


def load_apps(references: Sequence[str]) -> dict[str, App]:
    """Return the Apps of several modules by their references; see `load_app`.

    Raise `ConfigurationError` if one App is named twice.
    """
    apps: dict[str, App] = {}
    for reference in references:
        loaded = load_app(reference)
        same = next((other for other, app in apps.items() if app is loaded), None)
        if same is not None or reference in apps:
            raise ConfigurationError(
                f"{reference} is given twice" if reference in apps else f"{same} and {reference} are the same App"
            )
        apps[reference] = loaded
    return apps


def load_existing(reference: str) -> App:
    """Return the App of a module for a command that neither creates nor migrates its database; see `load_app`.

    Raise `StoreOpenError` if the database does not exist, or has another schema than this redrive works with.
    """
    return load_app(reference).open(migrate=False)


def _failed(name: str, error: Exception) -> str:
    # The line of the user: an error of redrive itself, such as a missing extra, belongs to the line that imports it.
    hidden = ("<frozen", str(Path(__file__).parents[1]), contextlib.__file__)
    steps = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(hidden)]
    where = f" ({steps[-1].filename}, line {steps[-1].lineno})" if not isinstance(error, SyntaxError) else ""
    return f"importing {name!r} failed: {type(error).__name__}: {cleared(str(error))}{where}"
