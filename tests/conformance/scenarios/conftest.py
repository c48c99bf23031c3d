"""What the told scenarios share: each runs on both stores, with a clock that moves only when told."""

from __future__ import annotations

from itertools import count

import pytest

from redrive.app.app import App
from redrive.testing import VirtualClock
from tests.conformance.scenarios.hands import Hand


@pytest.fixture(scope="session", params=["memory", "file"])
def fresh_url(request, tmp_path_factory):
    """Gives the URL of a new store at each call, in memory or in a file."""
    numbers = count(1)

    def make() -> str:
        if request.param == "memory":
            return "memory://"
        # No test cuts the power, so that waiting for the disk would prove nothing.
        return f"sqlite:///{tmp_path_factory.mktemp('store') / f'jobs{next(numbers)}.db'}?synchronous=normal"

    return make


@pytest.fixture
def clock():
    """The time of the test."""
    return VirtualClock()


@pytest.fixture
def app(fresh_url, clock):
    """An app without tasks, on a new store."""
    app = App(fresh_url(), clock=clock)
    yield app
    app.close()


@pytest.fixture
def other_app(app, clock):
    """The same store, from a second process's point of view: with connections of its own, where the store has any."""
    if app.url == "memory://":
        yield app
        return
    other = App(app.url, clock=clock)
    yield other
    other.close()


@pytest.fixture
def hand(app):
    """A worker that is moved by hand."""
    return Hand(app, "A")
