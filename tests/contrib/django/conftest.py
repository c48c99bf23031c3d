"""Django, set up before the modules of its tests are imported."""

from __future__ import annotations

import pytest
from django.db import connections

from tests.contrib.django import project

project.ready()


@pytest.fixture(autouse=True)
def clean():
    """Remove the state of other tests, and close the connections of this one."""
    from tests.contrib.django.sample import tasks
    from tests.contrib.django.sample.models import Charge

    tasks.seen.clear()
    tasks.troubles.clear()
    Charge.objects.all().delete()
    yield
    connections.close_all()
