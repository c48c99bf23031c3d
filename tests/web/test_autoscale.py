"""How many slots queues need."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import redrive
from redrive.engine.queue import QueueSettings
from redrive.operate.autoscale import mean_of, slots_wanted
from redrive.runtime.worker import Worker
from redrive.stores.operations import queues
from redrive.stores.operations.counters import Throughput
from tests.web.client import Operator

NOW = datetime(2026, 11, 23, tzinfo=UTC)
OPEN = QueueSettings("mail")


@pytest.mark.parametrize(
    ("due", "running", "mean", "settings", "expected"),
    [
        (9812, 10, 0.8, OPEN, 262),
        (0, 10, 0.8, OPEN, 10),
        (1, 10, 0.8, OPEN, 10),
        (0, 0, None, OPEN, 0),
        (500, 0, None, OPEN, 1),
        (9812, 10, 0.8, QueueSettings("mail", concurrency=100), 100),
        (9812, 10, 0.8, QueueSettings("mail", concurrency=0), 10),
        (9812, 3, 0.8, QueueSettings("mail", paused_at=NOW), 3),
    ],
)
def test_slots_start_the_due_jobs_in_time(
    due: int, running: int, mean: float | None, settings: QueueSettings, expected: int
):
    """The wanted slots start the due jobs within the target; running jobs keep theirs, and limits hold."""
    assert expected == slots_wanted(due, running, mean, timedelta(seconds=30), settings)


def test_the_mean_time_is_estimated_from_a_histogram():
    """The attempts of each bucket count with its middle, those of all tasks of the queue together."""
    took = {("mail", "send"): [0] * 7 + [3] + [0] * 9, ("mail", "read"): [0] * 16 + [1], ("slow", "x"): [1] * 17}
    past = Throughput(NOW, NOW, (), took, {}, [], ())

    assert (3 * 0.75 + 3600) / 4 == mean_of(past, "mail")
    assert None is mean_of(past, "none")
    assert mean_of(past, None) not in (None, mean_of(past, "mail"))


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with due jobs on two queues, after an attempt of one of them."""
    app = redrive.App("memory://")

    @app.task(queue="mail")
    def send(number: int) -> None:
        """Do nothing."""

    app.open()
    send.enqueue(0)
    asyncio.run(Worker(app, until_empty=True).run())
    send.enqueue_many(range(7))
    send.options(queue="slow").enqueue(1)
    yield app
    app.close()


def test_each_number_is_always_there(app: redrive.App):
    """Queues without jobs have zeros; without a queue all of them count."""
    client = Operator(app)
    mail, none, both = (client.read(f"/autoscale{query}") for query in ("?queue=mail&target=1h", "?queue=none", ""))

    assert (7, 0, True, 1) == (mail["due"], mail["running"], mail["mean_seconds"] > 0, mail["slots_wanted"])
    assert (0, 0, None, 0) == (none["due"], none["running"], none["mean_seconds"], none["slots_wanted"])
    assert (8, 30.0, None, 2) == (both["due"], both["target_seconds"], both["queue"], both["slots_wanted"])
    assert [False] * 3 == [each["capped"] for each in (mail, none, both)]
    assert "started within 1\N{NO-BREAK SPACE}h" in client.get("/autoscale?target=1h").text


@pytest.mark.parametrize("target", ["0s", "soon", "-1s"])
def test_targets_are_spans(app: redrive.App, target: str):
    """Targets that are no span above zero are refused."""
    assert 400 == Operator(app).get(f"/api/v1/autoscale?target={target}").status_code


def test_delayed_jobs_hide_no_due_ones(app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """Slots are wanted for due jobs behind any number of delayed ones, and a count at its limit is the least."""
    monkeypatch.setattr(queues, "MOST", 5)

    @app.task(queue="mail")
    def a_reminder(number: int) -> None:
        """Do nothing."""

    a_reminder.options(delay="30d").enqueue_many(range(9))
    capped = Operator(app).read("/autoscale?queue=mail&target=1h")
    monkeypatch.setattr(queues, "MOST", 8)
    client = Operator(app)
    whole = client.read("/autoscale?queue=mail&target=1h")
    loads = {each["name"]: (each["due"], each["later"]) for each in client.read("/queues")["items"]}

    assert (5, True, 1) == (capped["due"], capped["capped"], capped["slots_wanted"])
    assert (7, False, 1) == (whole["due"], whole["capped"], whole["slots_wanted"])
    assert ({"value": 7, "capped": False}, {"value": 8, "capped": True}) == loads["mail"]
