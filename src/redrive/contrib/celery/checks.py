"""What a worker checks before it starts: the tasks of its app, and the broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import bootsteps

from redrive.contrib.celery.catch import find
from redrive.errors import CatchDefinitionError, ConfigurationError
from redrive.observe.logs import logger
from redrive.policy import format_duration
from redrive.retrying.shared import resolve

log = logger("redrive.celery")


class Checks(bootsteps.Step):  # type: ignore[misc] # Celery has no types
    """A step of the start of a worker that refuses what cannot work.

    A receiver of the signal ``worker_init`` could not: Celery logs its error, and starts.
    """

    def __init__(self, parent: Any, **_: object) -> None:
        super().__init__(parent)
        check(parent.app, parent.time_limit, parent.soft_time_limit)


def check(app: Any, hard: float | None = None, soft: float | None = None) -> None:
    """Check all tasks of an app that have a policy.

    Args:
        app: the app.
        hard: the hard time limit of the worker, in seconds; None for none.
        soft: its soft time limit.

    Raises:
        ConfigurationError: a hop is too long for the broker, or a breaker is not registered.
        CatchDefinitionError: a catch task does not exist, or is no `PolicyTask`.
    """
    visible = _visibility(app)
    for task in [each for each in app.tasks.values() if getattr(each, "policy", None) is not None]:
        _check_hop(task, visible)
        resolve(task.policy, task.name)
        if task.policy.catch is not None:
            _check_hop(_checked_catch(app, task), visible)
        limit, warning = task.time_limit or hard, task.soft_time_limit or soft
        if limit and not (warning and warning < limit):
            log.warning(
                "task %s has a hard time limit (%g s) and no smaller soft_time_limit: Celery kills its process then, "
                "and the policy is not asked; only the catch task follows",
                task.name,
                limit,
            )


def _check_hop(task: Any, visible: timedelta | None) -> None:
    if visible is not None and task.hop >= visible / 2:
        raise ConfigurationError(
            f"task {task.name}: hop={format_duration(task.hop)!r} is not below half of the visibility timeout of "
            f"the broker, {format_duration(visible)}: a message that waits longer than that is delivered twice"
        )


def _checked_catch(app: Any, task: Any) -> Any:
    try:
        catch = find(app, task.name, task.policy.catch)
    except ConfigurationError as error:
        raise CatchDefinitionError(str(error)) from error
    if not hasattr(catch, "hop"):
        raise CatchDefinitionError(
            f"task {task.name!r} is to be caught by {catch.name!r}, which is no PolicyTask: give its app "
            "task_cls=PolicyTask, or the task base=PolicyTask"
        )
    # The worker may die while a catch task runs.
    if not catch.keeps_acks:
        catch.acks_late = catch.retry_on_worker_lost = True
    return catch


def _visibility(app: Any) -> timedelta | None:
    """Return the time after which the broker delivers a message again that is not acknowledged; None without one.

    RabbitMQ has a ``consumer_timeout``, which cannot be read here.
    """
    channel = getattr(app.connection_for_read().get_transport_cls(), "Channel", None)
    usual = getattr(channel, "default_visibility_timeout", None) or getattr(channel, "visibility_timeout", None)
    if not isinstance(usual, int | float):
        return None
    seconds = (app.conf.broker_transport_options or {}).get("visibility_timeout", usual)
    return timedelta(seconds=seconds)
