"""The options of a task that a policy decides: which are refused, and which have other defaults."""

from __future__ import annotations

from collections.abc import Collection

from celery import Task

from redrive.errors import ConfigurationError
from redrive.policy import Policy

# Options of Celery for its own retries, with the values that a task under a policy has.
_REPLACED = {
    "autoretry_for": (),
    "dont_autoretry_for": (),
    "retry_kwargs": {},
    "retry_backoff": False,
    "retry_backoff_max": 600,
    "retry_jitter": True,
    "max_retries": None,
    "default_retry_delay": Task.default_retry_delay,
}


def refuse(task: type[Task], declared: Collection[str]) -> None:
    """Raise `ConfigurationError` for options that are declared with a task, or with a base of it, under a policy."""
    for name in _REPLACED:
        # A base that is a task under a policy has the default of these.
        if name in declared and not (name == "max_retries" and task.max_retries is None):
            raise _contradiction(task, name)


def refuse_bound(task: type[Task]) -> None:
    """Raise `ConfigurationError` for options that a task under a policy has from the configuration of its app."""
    for name, usual in _REPLACED.items():
        if getattr(task, name, usual) != usual:
            raise _contradiction(task, name)
    if task.reject_on_worker_lost:
        why = "returns the message of a lost process without a count, so that a task which kills its process never ends"
        raise ConfigurationError(f"task {task.name}: reject_on_worker_lost=True {why}; retry= counts and repeats it")
    if task.acks_on_timeout is False:
        why = "returns the message after a hard time limit, without an end"
        raise ConfigurationError(f"task {task.name}: acks_on_timeout=False {why}; with retry= the catch task follows")


def _contradiction(task: type[Task], name: str) -> ConfigurationError:
    return ConfigurationError(f"task {task.name}: {name} contradicts retry=, whose policy decides; leave it out")


def set_defaults(task: type[Task], policy: Policy) -> None:
    """Set the defaults of a task under a policy, where neither the task nor a base of it has a value."""
    task.max_retries = None
    if task.acks_late is None:
        task.acks_late = True
    # Without late acknowledgement a task is meant to run at most once.
    if task.retry_on_worker_lost is None and task.acks_late:
        task.retry_on_worker_lost = True
    if policy.attempt_timeout is not None and task.soft_time_limit is None:
        task.soft_time_limit = policy.attempt_timeout.total_seconds()
