"""`flush`, which `TransactionTestCase` calls after each test, removes jobs as it removes rows of models."""

from __future__ import annotations

import builtins
import unittest

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase

from redrive.contrib.django.compat import task_backends
from redrive.contrib.django.management.commands import flush
from tests.contrib.django.sample import tasks
from tests.contrib.django.sample.models import Charge


@pytest.fixture(autouse=True)
def one_job():
    """Enqueue a job, and remove what is left afterwards."""
    tasks.add.enqueue(1, 2)
    Charge.objects.create(cents=1, note="one")
    yield
    call_command("flush", interactive=False, verbosity=0)


def left() -> tuple[int, int]:
    """Return the numbers of jobs and of rows of a model."""
    return len(task_backends["default"].app.jobs.select()), Charge.objects.count()


def test_flush_removes_jobs():
    """Jobs are data of the database, and go with its other data."""
    call_command("flush", interactive=False, verbosity=0)

    assert (0, 0) == left()
    assert () == task_backends["default"].app.database.verify()


@pytest.mark.parametrize(("answer", "kept"), [("yes", (0, 0)), ("no", (1, 1))])
def test_flush_asks_first(monkeypatch, capsys, answer, kept):
    """On a terminal nothing is deleted without a `yes`."""
    asked = []
    monkeypatch.setattr(builtins, "input", lambda text: asked.append(text) or answer)
    call_command("flush", verbosity=0)

    assert kept == left()
    assert 1 == len(asked)
    assert ("Nothing was deleted" in capsys.readouterr().out) == (answer == "no")


def test_the_jobs_of_another_database_stay(monkeypatch):
    """Only the backends with jobs in the flushed database are emptied."""
    monkeypatch.setattr(flush, "redrive_backends", list)
    call_command("flush", interactive=False, verbosity=0)

    assert (1, 0) == left()


@pytest.mark.parametrize("serialized", [False, True])
def test_a_test_case_leaves_no_jobs(serialized):
    """After a `TransactionTestCase` no job is left, also if it restores the data of migrations."""

    class FlushCase(TransactionTestCase):
        serialized_rollback = serialized

        def runTest(self):  # noqa: N802 - of unittest
            tasks.add.enqueue(3, 4)

    connection._test_serialized_contents = "[]"
    try:
        outcome = unittest.TestResult()
        FlushCase()(outcome)
    finally:
        del connection._test_serialized_contents

    assert ([], []) == (outcome.errors, outcome.failures)
    assert (0, 0) == left()
