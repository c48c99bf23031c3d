"""The backend on PostgreSQL, where workers are on other machines."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

from redrive.contrib.django.compat import TaskResultDoesNotExist, task_backends
from tests import postgres
from tests.contrib.django.project import BACKEND, result_of
from tests.contrib.django.sample import tasks
from tests.contrib.django.sample.models import Charge


@pytest.fixture(scope="module")
def database():
    """Return a database of PostgreSQL among those of the project."""
    name = postgres.fresh()
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")
    there = {"ENGINE": "django.db.backends.postgresql", "NAME": name, "HOST": postgres.server(), "USER": "postgres"}
    connections.settings["postgres"] = connections.configure_settings({"default": {}, "it": there})["it"]
    backend = {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"database": "postgres"}}
    with override_settings(TASKS={"default": backend}, DATABASE_ROUTERS=["tests.contrib.django.project.Router"]):
        call_command("migrate", database="postgres", run_syncdb=True, verbosity=0)
        yield
        connections["postgres"].close()
    del connections.settings["postgres"]


def test_migrate_makes_the_tables_of_jobs(database):
    """`migrate` creates the tables in the database of the option `database`."""
    with connections["postgres"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM redrive.redrive_jobs")

        assert [(0,)] == cursor.fetchall()


def test_an_enqueue_is_a_part_of_the_transaction(database):
    """Jobs enqueued inside `atomic()` exist if and only if it commits."""
    app = task_backends["default"].app
    with pytest.raises(LookupError), transaction.atomic(using="postgres"):  # noqa: PT012 - the block is the subject
        undone = tasks.add.enqueue(1, 2)
        raise LookupError
    with transaction.atomic(using="postgres"):
        done = tasks.add.enqueue(2, 2)
        assert 0 == app.jobs.stats().unfinished

    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(undone.id)
    assert 4 == result_of(done).return_value


def test_the_orm_and_the_end_of_the_job_are_one_transaction(database):
    """Writes of an attempt are rolled back if it fails, and committed with its success."""
    tasks.troubles[:] = [ValueError("after the write")]

    done = result_of(tasks.charge.enqueue(12))

    assert ("charged", 2) == (done.return_value, done.attempts)
    assert [12] == [each.cents for each in Charge.objects.all()]
