"""The redrive App of a backend, which registers Django's tasks.

Django makes a backend for each thread, so the App belongs to the process, one for each database. A worker claims jobs
of the tasks that have been imported: those of ``tasks`` modules, and those that the URLconf imports, which Django's
checks load before ``manage.py redrive worker`` starts.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.test.signals import setting_changed
from django.utils.module_loading import import_string

from redrive.app.app import App
from redrive.app.tasks.task import Task
from redrive.contrib.django import compat, results
from redrive.contrib.django.options import BackendOptions, read
from redrive.contrib.django.orm import connected
from redrive.contrib.django.running import catches, runner
from redrive.contrib.django.signals import FinishedSignals
from redrive.contrib.django.task_options import CRONS, task_options
from redrive.engine.outcome import Settlement
from redrive.observe.logs import logger

log = logger("redrive.django")

_APPS: dict[tuple[str, str], DjangoApp] = {}
_LOCK = threading.RLock()

_DEFINED: dict[str, dict[str, Any]] = {}
"""Django's tasks by the alias of their backend and the path of their function."""


class DjangoApp(App):
    """The App of the backend with an alias in TASKS."""

    def __init__(self, alias: str, options: BackendOptions) -> None:
        super().__init__(options.url, **options.app)  # type: ignore[arg-type] # from the settings: checked by App
        self.alias = alias
        self.options = options
        self.finished: FinishedSignals = FinishedSignals(alias, functools.partial(results.find, self))
        self._sources: dict[str, Any] = {}
        self._adopted = 0

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """All imported tasks by name, crons included."""
        for task in list(_DEFINED.get(self.alias, {}).values()):
            self.adopt(task)
        with _LOCK:
            for name, (function, pattern, options) in list(CRONS.get(self.alias, {}).items()):
                if name not in super().tasks:
                    self.cron(pattern, name=name, **options)(connected(function))
        return super().tasks

    def adopt(self, task: Any) -> Task[Any, Any, Any]:
        """Register one of Django's tasks, and return the task of redrive."""
        with _LOCK:
            known = super().tasks
            # A directive names its catch task by one word or two (`catch recover`), so a catch task has a short name.
            name = task.name if catches(task.func) else task.module_path
            if name in known and known[name].function.__module__ == task.func.__module__:
                return known[name]
            options = task_options(task.func, task.module_path, self.options)
            register = self.task(
                name=name,
                retry=options.retry,
                queue=task.queue_name,
                priority=-task.priority,
                timeout=options.timeout,
                soft_timeout=options.soft_timeout,
                idempotent=options.idempotent,
                keep_for=options.keep_for,
            )
            adopted = register(runner(task, self.finished))
            # The first one that is enqueued may be a copy, made by `using`.
            self._sources[name] = find_task(task.module_path) or task
            return adopted

    def served(self) -> frozenset[str]:
        """Return every name under which a job of the imported tasks may be stored; see `redrive.App.served`."""
        defined = len(_DEFINED.get(self.alias, {})) + len(CRONS.get(self.alias, {}))
        if defined != self._adopted:
            _ = self.tasks
            self._adopted = defined
        return super().served()

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by the path of its function, and import it if necessary."""
        found = super().find(name)
        if found is None and (task := find_task(name)) is not None:
            return self.adopt(task)
        return found

    def source(self, name: str) -> Any:
        """Return Django's task with the jobs of this name; None if there is none."""
        found = self.find(name)
        return None if found is None else self._sources.get(found.name)

    def check(self) -> None:
        """Check all imported tasks; see `redrive.App.check`."""
        _ = self.tasks
        super().check()

    def settled(self, moved: Sequence[Settlement], lost: Collection[int] = ()) -> None:
        """Have ``task_finished`` sent for the jobs that have ended; see `redrive.App.settled`."""
        self.finished.settled(moved, lost)

    async def finish(self) -> None:
        """Wait until these signals are sent; see `redrive.App.finish`."""
        await asyncio.to_thread(self.finished.wait)

    def close(self) -> None:
        """Close the database and end the thread of the signals."""
        self.finished.close()
        super().close()


def find_task(path: str) -> Any:
    """Import one of Django's tasks by the path of its function; None if there is no task."""
    try:
        found = import_string(path)
    except ImportError:
        return None
    except Exception:
        log.exception("importing the module of task %r failed", path)
        return None
    return found if isinstance(found, compat.Task) and found.module_path == path else None


def record_task(alias: str, task: Any) -> None:
    """Record a task of Django for the backend with an alias."""
    # The first task of a path is the original; others are copies for one enqueue.
    _DEFINED.setdefault(alias, {}).setdefault(task.module_path, task)


def app_of(alias: str, given: Mapping[str, Any]) -> DjangoApp:
    """Return the App of a backend, the same one in all threads until the settings change."""
    options = read(alias, given)
    with _LOCK:
        found = _APPS.get((alias, options.url))
        if found is None:
            found = _APPS[alias, options.url] = DjangoApp(alias, options)
        return found


def _close_apps(*, setting: str, **_: object) -> None:
    """Close the Apps when a test changes the settings."""
    if setting in {"TASKS", "DATABASES"}:
        with _LOCK:
            while _APPS:
                _APPS.popitem()[1].close()


def _disconnect_apps(*, connection: Any, **_: object) -> None:
    """Close the databases of all Apps before Django creates, copies or drops a database; a later use opens them."""
    # Django connects without a database only for these, and PostgreSQL refuses them while others are connected.
    if connection.alias == NO_DB_ALIAS:
        for app in list(_APPS.values()):
            app.close()


setting_changed.connect(_close_apps)
connection_created.connect(_disconnect_apps)
