"""Checks of the names in options: a filter with a misspelled task or queue would silently match nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redrive.app.app import App
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError

# Names that a message lists.
_LISTED = 20


def check_names(app: App, *, task: str | None = None, queue: str | None = None) -> None:
    """Raise `ConfigurationError` for a task or a queue that neither the code nor the database has."""
    if task is not None and task not in app.served() and not app.jobs.select(Filter(task=task, limit=1)):
        raise _unknown("task", task, app.tasks)
    if queue is not None:
        check_queue(app, queue)


def check_queue(app: App, queue: str, *, otherwise: str = "") -> None:
    """Raise `ConfigurationError` for a queue that neither the code nor the database has."""
    known = queues_of(app)
    if queue not in known and not app.jobs.select(Filter(queue=queue, limit=1)):
        raise _unknown("queue", queue, known, otherwise)


def queues_of(app: App) -> set[str]:
    """Return the queues of the tasks, those with limits or settings, and those that workers serve by name."""
    served = {name for worker in app.workers.select() for name in worker.queues or ()}
    return _declared(app) | {each.name for each in app.queues.select()} | served


def _declared(app: App) -> set[str]:
    """Return the queues of the code."""
    return {task.defaults.queue for task in app.tasks.values()} | set(app.queues.declared)


def unused_queues(app: App, names: Iterable[str]) -> Iterator[str]:
    """Yield a warning about each queue that no task, no setting and no job has.

    The database is read only for a name that the code does not have.
    """
    for name in names:
        if name in _declared(app):
            continue
        # Without the queues of workers: another worker may have been started with the same misspelled name.
        known = _declared(app) | {each.name for each in app.queues.select()}
        if name not in known and not app.jobs.select(Filter(queue=name, limit=1)):
            yield f"no task, no setting and no job has the queue {name!r}; known queues: {_listed(known)}"


def check_topic(app: App, topic: str) -> None:
    """Raise `ConfigurationError` for a topic that neither the code nor the database has."""
    if topic not in app.topics.declared:
        stored = {each.topic for each in app.topics.sizes()}
        if topic not in stored:
            raise _unknown("topic", topic, stored | set(app.topics.declared), has="event or subscription of")


def _unknown(
    what: str, name: str, known: Iterable[str], otherwise: str = "", *, has: str = "job with"
) -> ConfigurationError:
    return ConfigurationError(
        f"there is no {what} {name!r} in the code, and no {has} it; known {what}s: {_listed(known)}{otherwise}"
    )


def _listed(known: Iterable[str]) -> str:
    listed = sorted(known)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more or "none"
