"""Durable tasks for Django: a backend for ``django.tasks``, and management commands that retry.

Answers: how does a task that Django describes become a durable job, and a job become the result that Django knows?
May import: everything below `redrive.contrib`, Django, and ``django.tasks``, which is a part of Django from 6.0 on and
the package ``django-tasks`` before. Must never: touch the database before Django has been set up, or open a second
database where the project's own will do.

::

    INSTALLED_APPS = [..., "redrive.contrib.django"]

    TASKS = {"default": {"BACKEND": "redrive.contrib.django.RedriveBackend", "OPTIONS": {"retry": "5 1s 1m"}}}

What Django says and what redrive does with it:

=========================  =======================================================================================
Django                     redrive
=========================  =======================================================================================
a task                     a task called by the path of its function, ``shop.tasks.charge``
``enqueue(*args)``         a job with the arguments as JSON; inside of ``transaction.atomic()`` on the same
                           database it is a part of that transaction
``priority``               its negative: in Django the larger number is first, in redrive the smaller one
``queue_name``             the queue
``run_after``              the job is due then, by the database's clock
result id                  the number of the job
``READY``                  ready, for the first time or after a failure
``RUNNING``                running, or waiting for an answer from outside
``SUCCESSFUL``             succeeded
``FAILED``                 dead or cancelled: only then, a failure that is tried again is not one
``errors``                 one for each execution that failed
``worker_ids``             one for each execution, so that ``attempts`` counts them
=========================  =======================================================================================

**One database.** The jobs are kept where the models are, as long as that is SQLite or PostgreSQL: then a job exists if
and only if what it is about exists, and `JobContext.transaction` can end an attempt together with the ORM's writes.

**Names here are loaded at their first use**: a project that only wants `RetryingCommand` needs no ``django.tasks``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.contrib.django.backend import RedriveBackend
    from redrive.contrib.django.commands import RetryingCommand
    from redrive.contrib.django.context import JobContext
    from redrive.contrib.django.task_options import retries

__all__ = ["JobContext", "RedriveBackend", "RetryingCommand", "retries"]

_HOMES = {
    "JobContext": "redrive.contrib.django.context",
    "RedriveBackend": "redrive.contrib.django.backend",
    "RetryingCommand": "redrive.contrib.django.commands",
    "retries": "redrive.contrib.django.task_options",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Load a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redrive.contrib.django' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
