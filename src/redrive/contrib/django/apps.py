"""What Django meets when ``redrive.contrib.django`` is in INSTALLED_APPS."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks as djangos
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

__all__ = ["RedriveConfig"]


class RedriveConfig(AppConfig):  # type: ignore[misc] # Django has no type information
    """Imports the ``tasks`` modules of all apps, makes redrive's tables by ``migrate``, and checks the settings."""

    name = "redrive.contrib.django"
    label = "redrive"
    verbose_name = "redrive"

    def ready(self) -> None:
        """Do what can be done without the database."""
        djangos.register(_check)
        post_migrate.connect(_migrate, sender=self)
        autodiscover_modules("tasks")


def _check(**_: Any) -> list[Any]:  # noqa: ANN401 - Django's
    from redrive.contrib.django.checks import problems

    return [said for backend in _backends() for said in problems(backend)]


def _migrate(using: str, **_: Any) -> None:  # noqa: ANN401 - Django's
    """Make or bring up to date what redrive has in this database; by ``migrate``, so that it never happens elsewhere.

    Were it left to the first use, that could be inside of a transaction, and would wait for a lock that this holds.
    """
    for backend in _backends():
        if backend.app.options.database == using:
            backend.app.open()


def _backends() -> list[Any]:
    from redrive.contrib.django.backend import RedriveBackend
    from redrive.contrib.django.compat import task_backends

    return [backend for backend in task_backends.all() if isinstance(backend, RedriveBackend)]
