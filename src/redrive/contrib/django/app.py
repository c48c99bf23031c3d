"""The redrive App behind a backend: it takes in Django's tasks.

Django makes a backend for each thread, so a backend holds nothing; the App is the process's, one for each database.
A task is known by the path of its function, a catch task by its name alone. A worker claims jobs of the tasks that have
been imported: those of ``tasks`` modules, and of what the URLconf imports, which Django's checks load before
``manage.py redrive worker`` starts. A job of another task waits, and says that no worker has its task.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from django.test.signals import setting_changed
from django.utils.module_loading import import_string

from redrive.app.app import App
from redrive.app.task import Task
from redrive.contrib.django import compat
from redrive.contrib.django.options import Options, read
from redrive.contrib.django.running import catches, runner
from redrive.contrib.django.task_options import manner_of
from redrive.observe.logs import logger

__all__ = ["DjangoApp", "define", "find_task", "home"]

log = logger("redrive.django")

_HOMES: dict[tuple[str, str], DjangoApp] = {}
_LOCK = threading.RLock()

_DEFINED: dict[str, dict[str, Any]] = {}
"""Django's tasks by the alias of their backend and the path of their function."""


class DjangoApp(App):
    """The App of a backend.

    Args:
        alias: of the backend.
        options: of the backend.
    """

    def __init__(self, alias: str, options: Options) -> None:
        super().__init__(options.url, **options.app)  # type: ignore[arg-type] # from the settings: checked by App
        self.alias = alias
        self.options = options
        self._adopted = 0

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The tasks by their names: all that have been imported."""
        for task in list(_DEFINED.get(self.alias, {}).values()):
            self.adopt(task)
        return super().tasks

    def adopt(self, task: Any) -> Task[Any, Any, Any]:  # noqa: ANN401 - Django's Task
        """Take one of Django's tasks in.

        Args:
            task: which.

        Returns:
            The same for redrive.

        Raises:
            PolicyError: its policy in the settings cannot be read.
            TaskDefinitionError: two catch tasks have one name.
        """
        with _LOCK:
            known = super().tasks
            # A directive names its catch task by one word or two (`catch recover`), so that is what it is called.
            name = task.name if catches(task.func) else task.module_path
            if name in known and known[name].function.__module__ == task.func.__module__:
                return known[name]
            manner = manner_of(task.func, task.module_path, self.options)
            register = self.task(
                name=name,
                retry=manner.retry,
                queue=task.queue_name,
                priority=-task.priority,
                timeout=manner.timeout,
                soft_timeout=manner.soft_timeout,
                idempotent=manner.idempotent,
                keep_for=manner.keep_for,
            )
            return register(runner(task))

    def served(self) -> frozenset[str]:
        """Return every name under which a job of the imported tasks may be stored; see `redrive.App.served`."""
        defined = len(_DEFINED.get(self.alias, {}))
        if defined != self._adopted:
            _ = self.tasks
            self._adopted = defined
        return super().served()

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by the path of its function, and import it if need be.

        Args:
            name: as a job or a policy names it.

        Returns:
            The task, or None where there is none.
        """
        found = super().find(name)
        if found is None and (task := find_task(name)) is not None:
            return self.adopt(task)
        return found

    def check(self) -> None:
        """Check that all tasks are whole; see `redrive.App.check`."""
        _ = self.tasks
        super().check()


def find_task(path: str) -> Any:  # noqa: ANN401 - Django's Task
    """Import one of Django's tasks.

    Args:
        path: of its function.

    Returns:
        The task; None where there is none at this path.
    """
    try:
        found = import_string(path)
    except ImportError:
        return None
    except Exception:
        log.exception("importing the module of task %r failed", path)
        return None
    return found if isinstance(found, compat.Task) and found.module_path == path else None


def define(alias: str, task: Any) -> None:  # noqa: ANN401 - Django's Task
    """Note that there is a task.

    Args:
        alias: of its backend.
        task: Django's. The first of its path counts: the others are copies of it for one enqueue.
    """
    _DEFINED.setdefault(alias, {}).setdefault(task.module_path, task)


def home(alias: str, given: Mapping[str, Any]) -> DjangoApp:
    """Get the App of a backend: the same one in all threads, as long as the settings stay.

    Args:
        alias: of the backend.
        given: its OPTIONS.

    Returns:
        The App.

    Raises:
        ConfigurationError: the options do not lead to a store.
    """
    options = read(alias, given)
    with _LOCK:
        found = _HOMES.get((alias, options.url))
        if found is None:
            found = _HOMES[alias, options.url] = DjangoApp(alias, options)
        return found


def _leave(*, setting: str, **_: object) -> None:
    """Other settings, in a test: what was made under the former ones is closed."""
    if setting in {"TASKS", "DATABASES"}:
        with _LOCK:
            while _HOMES:
                _HOMES.popitem()[1].close()


setting_changed.connect(_leave)
