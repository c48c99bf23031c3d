"""The page and the resource with the findings of `redrive doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

import redrive
from redrive import __version__
from redrive.stores.operations import workers
from redrive.stores.urls import without_user
from tests.web.client import Client, Operator


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a task."""
    app = redrive.App("memory://")

    @app.task
    def send() -> None:
        """Do nothing."""

    yield app.open()
    app.close()


def test_a_healthy_database_is_ok(app: redrive.App):
    """With a worker and no problem the answer is ok, and each part has a finding."""
    app.store.run(workers.register("here", concurrency=1, lease_for=timedelta(hours=1), version=__version__))
    found = Operator(app).read("/health")

    assert found["ok"]
    assert ["database", "schema", "clock", "workers", "oldest"] == [each["check"] for each in found["findings"]]
    assert {"ok"} == {each["severity"] for each in found["findings"]}
    assert "No part has a problem" in Operator(app).get("/health").text


def test_findings_are_those_of_the_doctor(app: redrive.App):
    """Page and command line have the same findings, with what to do."""
    app.tasks["send"].enqueue()
    client: Client = Operator(app)
    found = client.read("/health")

    assert not found["ok"]
    assert [*msgspec.to_builtins(app.database.diagnose(app="shop:app"))][:-1] == found["findings"][:-1]
    assert "oldest" == found["findings"][-1]["check"]
    assert "no worker is alive, and jobs are due" in client.get("/health").text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ann:secret@db/shop?schema=a&user=ann", "postgresql://db/shop?schema=a"),
        ("postgresql://ann@db/shop?user=ann&schema=a", "postgresql://db/shop?schema=a"),
        ("sqlite:///shop.db?synchronous=normal", "sqlite:///shop.db?synchronous=normal"),
    ],
)
def test_the_user_of_a_database_is_not_shown(url: str, expected: str):
    """The address of a database on a page has neither the user nor the password."""
    assert expected == without_user(url)
