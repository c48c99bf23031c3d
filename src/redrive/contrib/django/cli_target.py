"""The Apps of backends as targets of the command line: ``redrive.contrib.django.cli_target:default``.

``manage.py redrive`` uses them. They work without ``manage.py`` as well, if DJANGO_SETTINGS_MODULE is set::

    redrive jobs list redrive.contrib.django.cli_target:default --state dead
"""

from __future__ import annotations

from typing import Any

import django
from django.apps import apps

from redrive.errors import AppLoadError


def __getattr__(alias: str) -> Any:
    """Return the App of the backend with this alias, and set Django up if necessary."""
    if alias.startswith("_"):
        raise AttributeError(alias)
    if not apps.ready:
        django.setup()
    from redrive.contrib.django.backend import RedriveBackend
    from redrive.contrib.django.compat import task_backends

    if alias not in task_backends.settings:
        valid = [each.alias for each in task_backends.all() if isinstance(each, RedriveBackend)]
        raise AppLoadError(f"TASKS has no {alias!r}; aliases of redrive's backends: {', '.join(valid)}")
    backend = task_backends[alias]
    if not isinstance(backend, RedriveBackend):
        kind = f"{type(backend).__module__}.{type(backend).__qualname__}"
        raise AppLoadError(f"TASKS[{alias!r}] is on {kind}, not on redrive.contrib.django.RedriveBackend")
    return backend.app
