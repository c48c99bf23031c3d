"""``redrive worker module:app``: run the jobs of one app, or of several, until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Coroutine, Iterable, Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from redrive.app.app import App
from redrive.cli.known import unused_queues
from redrive.cli.loading import Targets, load_apps
from redrive.cli.screen import exit_status
from redrive.errors import ConfigurationError, PolicyError, RedriveError, StoreUnreachable
from redrive.observe.logs import EntryFormatter, logger
from redrive.policy import parse_duration
from redrive.runtime.group import WorkerGroup
from redrive.runtime.worker import Worker

# Seconds.
MOMENT = 0.1

# Objects that are made before the collector looks at the youngest; Python's own 700 fits programs that make few.
NURSERY = 50_000


# The environment variables of redrive.
_PREFIX = "REDRIVE_"
_VARIABLES = ("BUILD", "DISABLED", "TOKEN")

_PROCESSES = 'Child processes for tasks with executor="process", by default one per processor.'

_Excluded = Annotated[list[str] | None, typer.Option(help="Serve all queues but this one; may be repeated.")]
_UntilEmpty = Annotated[
    bool, typer.Option("--until-empty", help="End when no job is due; do not wait for later jobs and retries.")
]
_Wait = Annotated[str, typer.Option(help="How long to wait at the start for a database that is away; 0 ends at once.")]
_Linger = Annotated[str, typer.Option(help="Workflows with named calls keep their worker for shorter waits.")]
_Build = Annotated[
    str | None,
    typer.Option(
        help="The build of the code, such as a commit; by default REDRIVE_BUILD, or the version of its distribution."
    ),
]
_Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Let Prometheus scrape it there; without a host, on loopback only."),
]
_Health = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Answer /livez, /readyz and /startupz; without a host, on loopback."),
]
_WorkerFile = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Write the state of the worker there, for redrive health.")
]


def worker(
    app: Targets,
    *,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once, of each app.")] = 50,
    queue: Annotated[list[str] | None, typer.Option(help="Serve this queue only; may be repeated.")] = None,
    exclude_queue: _Excluded = None,
    until_empty: _UntilEmpty = False,
    max_jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N attempts of an app, retries included.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the worker in lists, by default host:pid.")] = None,
    shutdown_timeout: Annotated[
        str, typer.Option(help="How long running handlers may take to finish after the first Ctrl-C or SIGTERM.")
    ] = "30s",
    wait: _Wait = "60s",
    linger: _Linger = "1s",
    build: _Build = None,
    processes: Annotated[int | None, typer.Option(min=1, help=_PROCESSES)] = None,
    metrics: _Metrics = None,
    health: _Health = None,
    worker_file: _WorkerFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings only.")] = False,
) -> None:
    """Run the jobs of an app, or of several apps with databases of their own.

    Ctrl-C or SIGTERM once: no new jobs, the running ones finish. Twice: they are given back and run later.
    """
    start_log(logging.WARNING if quiet else logging.INFO)
    patience = _duration(shutdown_timeout, "--shutdown-timeout")
    waits, keeps = _or_none(wait, "--wait"), _or_none(linger, "--linger")
    _check_queues(queue, exclude_queue)
    loaded = load_apps(app)
    if metrics is not None:
        _serve_metrics(loaded, metrics)
    new = functools.partial(
        Worker,
        concurrency=concurrency,
        queues=queue or None,
        exclude_queues=exclude_queue or None,
        until_empty=until_empty,
        max_jobs=max_jobs,
        name=name,
        shutdown_timeout=patience,
        wait=waits,
        linger=keeps,
        processes=processes,
        build=build,
    )
    group = WorkerGroup({reference: new(each) for reference, each in loaded.items()})
    _warn_of_queues(loaded.values(), [*(queue or ()), *(exclude_queue or ())])
    _warn_of_sharing(loaded)
    _warn_of_variables(os.environ)
    _calm_the_collector()
    _run(_serve(loaded, group, _observed(loaded, group, health, worker_file)))


def _run(serving: Coroutine[Any, Any, None]) -> None:
    """Run the workers, and end the process although handlers in threads go on."""
    status, why = 0, "leaving; handlers in threads end with the process"
    try:
        asyncio.run(serving)
    except RedriveError as error:
        if not stuck():
            raise
        # The worker of one app has failed, while a handler of another one does not stop.
        status, why = exit_status(error), f"{error}; {why}"
    if stuck():
        leave(why, status)


def start_log(level: int) -> None:
    """Write a log to standard error, unless the program has configured one."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EntryFormatter("%(asctime)s %(levelname)-7s %(name)s: %(of_app)s%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _warn_of_queues(apps: Collection[App], names: Iterable[str]) -> None:
    """Log a warning about queues that no app uses: not an error, because the first job may come later."""
    for app in apps:
        app.check()
    for name in names:
        try:
            warnings = [each for app in apps for each in unused_queues(app, [name])]
        except StoreUnreachable:
            # The worker waits for its database.
            continue
        if len(warnings) == len(apps):
            logger("redrive.worker").warning("%s", warnings[0])


def _warn_of_sharing(apps: Mapping[str, App]) -> None:
    """Log a warning about apps that run the same tasks in one database: it may be the wrong one."""
    for (one, first), (two, second) in itertools.combinations(apps.items(), 2):
        both = sorted(first.served() & second.served())
        if both and first.url == second.url and not first.url.startswith("memory:"):
            text = "%s and %s have the same database, and both run the jobs of %s there: one of them is enough"
            logger("redrive.worker").warning(text, one, two, ", ".join(both))


def _warn_of_variables(names: Iterable[str]) -> None:
    """Log a warning about environment variables that are nearly those of redrive; a program may have others."""
    for name in sorted(each.removeprefix(_PREFIX) for each in names if each.startswith(_PREFIX)):
        import difflib

        near = difflib.get_close_matches(name, _VARIABLES, n=1, cutoff=0.8)
        if near and name not in _VARIABLES:
            text = "the environment variable %s is not read; did you mean %s?"
            logger("redrive.worker").warning(text, _PREFIX + name, _PREFIX + near[0])


def _serve_metrics(apps: Mapping[str, App], address: str) -> None:
    try:
        # By name, as the app is: the command line imports no integration.
        prometheus = import_module("redrive.contrib.prometheus")
    except ImportError as error:
        raise ConfigurationError(
            f'metrics need a package that is not installed: pip install "redrive[prometheus]" ({error})'
        ) from error
    prometheus.metrics(apps if len(apps) > 1 else next(iter(apps.values())))
    logger("redrive.worker").info("metrics are at %s", prometheus.serve(address).url)


def _calm_the_collector() -> None:
    """Look for garbage less often, and never again at what has been imported.

    Each attempt makes a few objects that live for a moment. At Python's own threshold they made the collector run for
    every fourth claim or so: that was a seventh of the processor time of a job that does nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NURSERY, *gc.get_threshold()[1:])


def _duration(text: str, option: str) -> timedelta:
    try:
        return parse_duration(text)
    except PolicyError as error:
        raise typer.BadParameter(f"{error.problem}; write it such as 30s or 1h30m", param_hint=option) from error


def _check_queues(queue: list[str] | None, exclude_queue: list[str] | None) -> None:
    if queue and exclude_queue:
        raise typer.BadParameter(
            "--queue serves only some queues already; give one of the two", param_hint="--exclude-queue"
        )


def _or_none(text: str, option: str) -> timedelta:
    return _duration("0s" if text == "0" else text, option)


def _observed(
    apps: Mapping[str, App], group: WorkerGroup, address: str | None, path: Path | None
) -> contextlib.AbstractAsyncContextManager[object]:
    """Return what lets a service manager observe the workers, around their run."""
    if address is None and path is None and not os.environ.get("NOTIFY_SOCKET"):
        return contextlib.nullcontext()
    # Most workers on a developer's machine have no service manager.
    from redrive.runtime.probes import Probes

    return Probes({name: (app, group.workers[name]) for name, app in apps.items()}, address, path)


async def _serve(
    apps: Mapping[str, App], group: WorkerGroup, observed: contextlib.AbstractAsyncContextManager[object]
) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, group.stop)
    try:
        async with observed:
            await group.run()
    finally:
        for each in apps.values():
            each.close()
    if group.abandoned:
        leave("leaving; handlers that do not stop end with the process")


def stuck() -> bool:
    """Return True if a ``def`` handler still runs in a thread.

    Idle threads end within moments, since the pool is closed.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("redrive-handler"):
            thread.join(MOMENT)
            if thread.is_alive():
                return True
    return False


def leave(why: str, status: int = 0) -> NoReturn:
    """End now, without waiting for handlers that go on: their jobs have been given back already."""
    logger("redrive.worker").log(logging.ERROR if status else logging.INFO, "%s", why)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)
