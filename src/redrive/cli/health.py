"""``redrive health``: an exec probe of a worker, by the file that the worker writes, or of the database."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.cli.screen import say
from redrive.clock import SystemClock


class Probe(StrEnum):
    """A health probe."""

    LIVEZ = "livez"
    READYZ = "readyz"
    STARTUPZ = "startupz"


def health(
    app: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:APP...", help="Where the App is, for example payments.jobs:app; or several Apps."
        ),
    ],
    *,
    worker_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Read this file of a worker; the App is not imported.")
    ] = None,
    probe: Annotated[Probe, typer.Option(help="The question that the file answers.")] = Probe.LIVEZ,
) -> None:
    """Check that a worker is healthy, by the file of its --worker-file, or that the database can be used.

    The exit status is 1 if a check fails.
    """
    failed = _database(app) if worker_file is None else _file(worker_file, probe)
    if failed:
        say(f"failed: {failed}", err=True)
        raise typer.Exit(1)
    say("ok")


def _file(path: Path, probe: Probe) -> str:
    """Return what has failed according to a file of a worker; an empty text if nothing has."""
    try:
        found = json.loads(path.read_bytes())
        # All processes of a machine have the same monotonic clock, and it does not follow changes of the time of day.
        # A file from before the last boot may be ahead of it.
        is_live = 0 <= SystemClock.monotonic() - found["ticked_at"] < found["stale_after"]
        if probe is not Probe.LIVEZ and "checks" not in found:
            return "the worker has not started"
        checks = {} if probe is Probe.LIVEZ else found["checks"][probe.value]
        return _failed({"loop": is_live, **{name: ok for name, ok in checks.items() if name != "loop"}})
    except FileNotFoundError:
        return f"there is no worker file {path}: the worker has not started, or has ended"
    except OSError as error:
        return f"the worker file {path} cannot be read: {error.strerror}"
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{path} is not a worker file"


def _database(references: Sequence[str]) -> str:
    """Return what has failed at the databases; an empty text if nothing has."""
    import asyncio

    # The probe of a file imports neither the App nor the runtime.
    from redrive.cli.loading import load_apps
    from redrive.runtime.health import StoreHealth, named

    async def checks() -> dict[str, bool]:
        """Return all checks."""
        return named({name: await StoreHealth(app).checks() for name, app in load_apps(references).items()})

    return _failed(asyncio.run(checks()))


def _failed(checks: Mapping[str, Any]) -> str:
    return ", ".join(name for name, ok in checks.items() if ok is not True)
