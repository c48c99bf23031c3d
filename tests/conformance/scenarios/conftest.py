"""Fixtures of the scenarios: each runs on both stores, with a clock that moves only when a test advances it."""

from __future__ import annotations

from itertools import count

import pytest

from redrive.app.app import App
from redrive.testing import VirtualClock
from tests.conformance.scenarios.manual_workers import ManualWorker


@pytest.fixture(scope="session", params=["memory", "file"])
def fresh_url(request, tmp_path_factory):
    """Return a function that makes a new store at each call, in memory or in a file, and returns its URL."""
    numbers = count(1)

    def make() -> str:
        if request.param == "memory":
            return "memory://"
        # No test cuts the power, so that waiting for the disk would prove nothing.
        return f"sqlite:///{tmp_path_factory.mktemp('store') / f'jobs{next(numbers)}.db'}?synchronous=normal"

    return make


@pytest.fixture
def clock():
    """Return the clock of the test."""
    return VirtualClock()


@pytest.fixture
def app(fresh_url, clock):
    """Yield an app without tasks, on a new store."""
    app = App(fresh_url(), clock=clock)
    yield app
    app.close()


@pytest.fixture
def other_app(app, clock):
    """Yield an app of a second process on the same store, with separate connections if the store has any."""
    if app.url == "memory://":
        yield app
        return
    other = App(app.url, clock=clock)
    yield other
    other.close()


@pytest.fixture
def manual_worker(app):
    """Return a worker that the test drives by hand."""
    return ManualWorker(app, "A")
