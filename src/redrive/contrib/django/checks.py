"""The checks of ``manage.py check``.

============  ======================================================================================================
redrive.E001  the OPTIONS of a backend cannot be read, or do not name a store
redrive.E002  ``policies`` names a task that does not exist
redrive.E003  a task's policy cannot be read, or its catch task is missing or takes something else
redrive.E004  the database is PostgreSQL, but Django uses psycopg2
redrive.W001  ``redrive.contrib.django`` is not in INSTALLED_APPS
redrive.W002  the database is SQLite, and its transactions do not begin with the write lock
============  ======================================================================================================

The app of redrive runs them; if it is not installed, Django's check of all backends does, and adds W001.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.db import connections

from redrive.contrib.django.app import DjangoApp, find_task
from redrive.errors import ConfigurationError

APP = "redrive.contrib.django"


def backend_problems(backend: object) -> Iterable[CheckMessage]:
    """Return the problems of one backend, unless the app of redrive reports them."""
    if apps.is_installed(APP):
        return []
    hint = f"Without {APP!r} in INSTALLED_APPS, migrate makes no tables for jobs, and there is no `manage.py redrive`."
    return [Warning("The app of redrive is not installed.", hint=hint, id="redrive.W001"), *problems(backend)]


def problems(backend: Any) -> Iterator[CheckMessage]:
    """Yield the problems of one backend."""
    try:
        app: DjangoApp = backend.app
    except ConfigurationError as error:
        yield Error(str(error), id="redrive.E001")
        return
    yield from _policies(app)
    yield from _database(app)


def _policies(app: DjangoApp) -> Iterator[CheckMessage]:
    for path in app.options.policies:
        if find_task(path) is None:
            where = f"{app.options.where}['policies']"
            hint = "It is named by the path of its function, such as 'shop.tasks.charge'."
            yield Error(f"{where} names {path!r}, but there is no such task.", hint=hint, id="redrive.E002")
    try:
        app.check()
    except ConfigurationError as error:
        yield Error(str(error), id="redrive.E003")


def _database(app: DjangoApp) -> Iterator[CheckMessage]:
    if app.options.database is None:
        return
    connection = connections[app.options.database]
    where = f"DATABASES[{app.options.database!r}]"
    if connection.vendor == "postgresql" and not _has_psycopg_3():
        hint = 'pip install "redrive[postgres]"; Django takes psycopg 3 where both are installed.'
        yield Error(f"{where} is reached by psycopg2; redrive needs psycopg 3.", hint=hint, id="redrive.E004")
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode")
    if connection.vendor == "sqlite" and str(mode).upper() not in {"IMMEDIATE", "EXCLUSIVE"}:
        hint = (
            f"Set {where}['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE'}}. A transaction that reads first and "
            "enqueues later fails at once with 'database is locked' if a worker has written in between."
        )
        yield Warning(f"Transactions on {where} do not begin with the lock.", hint=hint, id="redrive.W002")


def _has_psycopg_3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3)
