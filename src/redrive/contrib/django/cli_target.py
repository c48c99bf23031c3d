"""Where the command line finds the App of a backend: ``redrive.contrib.django.cli_target:default``.

What ``manage.py redrive`` does with it works without ``manage.py`` as well, where DJANGO_SETTINGS_MODULE is set::

    redrive jobs list redrive.contrib.django.cli_target:default --state dead
"""

from __future__ import annotations

from typing import Any

import django
from django.apps import apps

from redrive.errors import AppLoadError


def __getattr__(alias: str) -> Any:  # noqa: ANN401 - a DjangoApp
    """The App of the backend of this alias; Django is set up for it, if nobody has."""
    if alias.startswith("_"):
        raise AttributeError(alias)
    if not apps.ready:
        django.setup()
    from redrive.contrib.django.backend import RedriveBackend
    from redrive.contrib.django.compat import task_backends

    if alias not in task_backends.settings:
        raise AttributeError(f"TASKS has no {alias!r}; it has {', '.join(task_backends.settings)}")
    backend = task_backends[alias]
    if not isinstance(backend, RedriveBackend):
        kind = f"{type(backend).__module__}.{type(backend).__qualname__}"
        raise AppLoadError(f"TASKS[{alias!r}] is on {kind}, not on redrive.contrib.django.RedriveBackend")
    return backend.app
