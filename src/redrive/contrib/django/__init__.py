"""Durable tasks for Django: a backend for ``django.tasks``, and management commands that retry.

A task of Django becomes a durable job, and a job becomes a ``TaskResult``. May import: everything below
`redrive.contrib`, Django, and ``django.tasks``, which is a part of Django from 6.0 on and the package ``django-tasks``
before. Must never: use the database before Django has been set up, or open another database than the project's own
without being configured to.

::

    INSTALLED_APPS = [..., "redrive.contrib.django"]

    TASKS = {"default": {"BACKEND": "redrive.contrib.django.RedriveBackend", "OPTIONS": {"retry": "5 1s 1m"}}}

The terms of Django and of redrive:

=========================  =======================================================================================
Django                     redrive
=========================  =======================================================================================
a task                     a task with the path of its function as its name, ``shop.tasks.charge``
``enqueue(*args)``         a job with the arguments as JSON; inside of ``transaction.atomic()`` on the same
                           database it is a part of that transaction
``priority``               the negative priority: larger numbers are first in Django, smaller ones in redrive
``queue_name``             the queue
``run_after``              the job is due then, by the database's clock
result id                  a code of the number of the job, which cannot be guessed
``READY``                  ready, for the first time or after a failure
``RUNNING``                running, or waiting for an answer from outside
``SUCCESSFUL``             succeeded
``FAILED``                 dead or cancelled; not a failure that is retried
``errors``                 one for each execution that failed
``worker_ids``             one for each execution, so that ``attempts`` counts them
=========================  =======================================================================================

Jobs are stored in the database of the models by default, if that is SQLite or PostgreSQL: a job then commits together
with the rows that it needs, and `JobContext.transaction` commits the end of an attempt together with the ORM's writes.

The names of this package are loaded at their first use: a project that only uses `RetryingCommand` needs no
``django.tasks``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.contrib.django.backend import RedriveBackend
    from redrive.contrib.django.commands import RetryingCommand
    from redrive.contrib.django.running import JobContext
    from redrive.contrib.django.task_options import cron, retries

__all__ = ["JobContext", "RedriveBackend", "RetryingCommand", "cron", "retries"]

_MODULES = {
    "JobContext": "redrive.contrib.django.running",
    "RedriveBackend": "redrive.contrib.django.backend",
    "RetryingCommand": "redrive.contrib.django.commands",
    "cron": "redrive.contrib.django.task_options",
    "retries": "redrive.contrib.django.task_options",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'redrive.contrib.django' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
