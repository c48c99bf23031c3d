"""``django.tasks``, wherever it is."""

from __future__ import annotations

import runpy
import sys

import django
import django_tasks
import pytest

from redrive.contrib.django import compat

NAMES = ("", ".backends", ".backends.base", ".base", ".exceptions", ".signals")


def test_the_tasks_of_django_itself_are_preferred(monkeypatch):
    """From Django 6.0 on the names come from ``django.tasks``; here the package stands for it."""
    for name in NAMES:
        monkeypatch.setitem(sys.modules, f"django.tasks{name}", sys.modules[f"django_tasks{name}"])
        monkeypatch.setitem(sys.modules, f"django_tasks{name}", None)
    monkeypatch.setattr(django, "tasks", django_tasks, raising=False)

    found = runpy.run_path(compat.__file__)

    assert {name: getattr(compat, name) for name in compat.__all__} == {name: found[name] for name in compat.__all__}


def test_without_any_tasks_module_the_error_names_both_packages(monkeypatch):
    """Without ``django.tasks`` and without the package, the message names both."""
    monkeypatch.setitem(sys.modules, "django.tasks", None)
    monkeypatch.setitem(sys.modules, "django_tasks", None)

    with pytest.raises(ModuleNotFoundError, match="need Django 6.0, or before that the package django-tasks"):
        runpy.run_path(compat.__file__)
