"""The application configuration for INSTALLED_APPS."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks as djangos
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from redrive.app.loading import loading


class RedriveConfig(AppConfig):  # type: ignore[misc] # Django has no type information
    """The configuration that imports ``tasks`` modules, migrates redrive's tables, and checks the settings."""

    name = "redrive.contrib.django"
    label = "redrive"
    verbose_name = "redrive"

    def ready(self) -> None:
        """Register the checks and the migration, and import the ``tasks`` modules of all apps."""
        djangos.register(_check)
        post_migrate.connect(_migrate, sender=self)
        with loading("tasks"):
            autodiscover_modules("tasks")


def _check(**_: object) -> list[Any]:
    from redrive.contrib.django.checks import problems

    return [problem for backend in redrive_backends() for problem in problems(backend)]


def _migrate(using: str, **_: object) -> None:
    """Create or migrate the tables of redrive in this database."""
    # The first use would do it too, but may be inside a transaction, and would then wait for a lock of that.
    for backend in redrive_backends():
        if backend.app.options.database == using:
            backend.app.open()


def redrive_backends() -> list[Any]:
    """Return the backends in TASKS that are redrive's."""
    from redrive.contrib.django.backend import RedriveBackend
    from redrive.contrib.django.compat import task_backends

    return [backend for backend in task_backends.all() if isinstance(backend, RedriveBackend)]
