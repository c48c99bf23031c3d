"""A project of Django in this process, for tests and for pages: set up once, since Django can be set up only once."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.utils.functional import empty

from redrive import App
from redrive.clock import SystemClock
from redrive.runtime.worker import Worker

PATIENCE = 90
"""Seconds after which a test that waits for something has failed."""

BACKEND = "redrive.contrib.django.RedriveBackend"


@functools.cache
def ready() -> Path:
    """Set Django up on SQLite, in a folder that goes with the process; answer the file."""
    folder = tempfile.TemporaryDirectory(prefix="redrive-django-")
    ready.folder = folder
    path = Path(folder.name) / "shop.db"
    settings._wrapped = empty  # another test, of PostgreSQL's connections, may have configured the least it needs
    settings.configure(
        INSTALLED_APPS=["django_tasks", "redrive.contrib.django", "tests.contrib.django.sample"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": path,
                "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
            }
        },
        TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGGING_CONFIG=None,
        USE_TZ=True,
        SECRET_KEY="of the tests",
    )
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    return path


def work(app: App) -> None:
    """Run the jobs of an app in a real worker until none is left."""
    asyncio.run(_work(app))


async def _work(app: App) -> None:
    worker = Worker(app, concurrency=4)
    running = asyncio.create_task(worker.run())
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while app.jobs.stats().unfinished and not running.done():
        if clock.monotonic() > deadline:
            raise AssertionError(f"jobs are left after {PATIENCE} s: {app.jobs.stats()}")
        await clock.asleep(0.002)
    worker.stop()
    await running


def number(enqueued: Any) -> int:
    """Return the number of the job of a result."""
    from redrive.contrib.django.results import decode_id

    found = decode_id(enqueued.id)
    assert found is not None
    return found


def result_of(enqueued: Any) -> Any:
    """Run all jobs, and answer what became of one."""
    work(enqueued.task.get_backend().app)
    enqueued.refresh()
    return enqueued


class Router:
    """Sends what the shop keeps to PostgreSQL."""

    def db_for_read(self, model, **hints):
        """Return the database."""
        return "postgres"

    db_for_write = db_for_read
