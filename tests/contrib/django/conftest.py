"""Django, set up before the modules of its tests are imported."""

from __future__ import annotations

import pytest
from django.db import connections

from redrive import Filter
from redrive.engine.lifecycle import State
from tests.contrib.django import project

project.ready()


@pytest.fixture(autouse=True)
def clean():
    """Remove the state of other tests, and close the connections of this one."""
    from redrive.contrib.django.compat import task_backends
    from tests.contrib.django.sample import tasks
    from tests.contrib.django.sample.models import Charge

    tasks.seen.clear()
    tasks.troubles.clear()
    Charge.objects.all().delete()
    yield
    # Each test runs all jobs of the database to their ends.
    app = task_backends["default"].app
    for job in app.jobs.select(Filter(state=State.READY)):
        app.job(job.id).cancel()
    connections.close_all()
