"""What needs a person: one row for each kind, with its scale and a page to look at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import redrive
from redrive.runtime.worker import Worker
from redrive.stores.operations import admin, workers
from redrive.testing import VirtualClock
from redrive.version import __version__
from tests.stores.helpers import LONG
from tests.web.client import Operator


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with tasks that fail."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry="0")
    def charge(order: int) -> None:
        """Fail, in one of two ways."""
        raise ValueError("odd") if order % 2 else KeyError("even")

    app.open()
    yield app
    app.close()


def _needs(app: redrive.App) -> list[tuple[str, str, str, str]]:
    """Return the kind, the title, the page and the button of each row."""
    found = Operator(app).read("/overview")["needs"]
    return [(each["check"], each["title"], each["path"], each["action"]) for each in found]


def _shown(found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids and the states of a list of jobs."""
    return [each["id"] for each in found["items"]], [each["standing"] for each in found["items"]]


def _work(app: redrive.App) -> None:
    asyncio.run(Worker(app, until_empty=True).run())


def _serve(app: redrive.App, *queues: str) -> None:
    app.store.run(
        workers.register(
            "host:1", concurrency=4, lease_for=LONG, queues=queues or None, version=__version__, now=app.now()
        )
    )


def test_nothing_needs_a_person(app: redrive.App):
    """An empty database with a worker has no row, and the checks that are fine are counted."""
    _serve(app)
    data = Operator(app).read("/overview")

    assert [] == [each for each in data["needs"] if each["severity"] == "problem"]
    assert 0 < data["fine"]


def test_dead_jobs_of_one_cause_lead_to_it(app: redrive.App):
    """Dead jobs are one row in all queues; one cause is named, and the button leads to it."""
    charge = app.tasks["charge"]
    for queue in ("mail", "slow"):
        charge.options(queue=queue).enqueue(1)
    _work(app)
    _serve(app)
    ((check, title, path, action),) = _needs(app)

    assert ("dead", "2 jobs died in 2 queues: ValueError in charge", "Review error") == (check, title, action)
    assert path.startswith("/errors/")


def test_skipped_jobs_need_no_person(app: redrive.App):
    """An operator has decided about them; the page of the row does not list them either, and a filter does."""
    charge = app.tasks["charge"]
    jobs = [charge.enqueue(1), charge.enqueue(3), charge.enqueue(5)]
    _work(app)
    _serve(app)
    for job in jobs[:2]:
        app.store.run(admin.skip(job.id, now=app.now()))
    (row,) = Operator(app).read("/overview")["needs"]
    listed, skipped, group = (
        Operator(app).read(path)
        for path in ("/jobs?q=state:dead+caught:no+skipped:no", "/jobs?q=skipped:yes", "/errors?dead=1")
    )
    app.store.run(admin.skip(jobs[2].id, now=app.now()))

    assert row["title"].startswith("1 job died")
    assert ([str(jobs[2].id)], ["dead"]) == _shown(listed)
    assert ([str(job.id) for job in jobs[1::-1]], ["skipped", "skipped"]) == _shown(skipped)
    assert [1] == [each["dead"]["value"] for each in group["items"]]
    assert [] == _needs(app)
    assert [] == Operator(app).read("/errors?dead=1")["items"]


def test_dead_jobs_of_several_causes_lead_to_all(app: redrive.App):
    """With several causes the largest is named."""
    for order in (1, 1, 2):
        app.tasks["charge"].enqueue(order)
    _work(app)
    _serve(app)
    (need,) = Operator(app).read("/overview")["needs"]

    assert ("3 jobs died", "/errors?dead=1", "Review causes") == (need["title"], need["path"], need["action"])
    assert "2 causes, most of them ValueError in charge" == need["text"]
    assert need["newest"]
    assert any("redrive jobs redrive" in each for each in need["advice"])


def test_queues_that_stand_still_are_a_row_for_each_reason(app: redrive.App):
    """Queues without a worker are one row and paused ones another, with what waits and since when."""
    charge = app.tasks["charge"]
    for queue in ("a", "b", "c", "d", "e"):
        charge.options(queue=queue).enqueue(1)
    app.queue("e").pause()
    _serve(app, "other")
    rows = Operator(app).read("/overview")["needs"]

    assert [("4 queues have no live worker", "/queues?only=unserved"), ("Queue e is paused", "/queues/e")] == [
        (each["title"], each["path"]) for each in rows[:2]
    ]
    assert ["4 due, the oldest for 0: a, b, c and 1 more", "1 due, the oldest for 0"] == [
        each["text"] for each in rows[:2]
    ]
    assert ["redrive worker shop:app --queue a", "redrive queues resume shop:app e"] == [
        each["advice"][0] for each in rows[:2]
    ]


def test_without_a_worker_there_is_one_row_for_it(app: redrive.App):
    """If no worker is alive, the queues are not named one by one."""
    app.tasks["charge"].enqueue(1)

    assert ("workers", "No worker is alive", "/workers", "See workers") == _needs(app)[0]
    assert "queues" not in [check for check, *_ in _needs(app)]


def test_other_findings_are_one_row_for_each_kind(app: redrive.App):
    """Several findings of a kind are the first of them, and their number; notes follow problems."""
    _serve(app)
    for number in range(3):
        tasks = [f"other{number}"]
        given = {"concurrency": 1, "lease_for": LONG, "queues": ["mail"], "tasks": tasks, "version": "0.0.0"}
        worker = app.store.run(workers.register(f"host:{number}", now=app.now(), **given))  # type: ignore[arg-type]
        app.store.run(workers.report(worker, "it is broken"))
    (need, *others) = Operator(app).read("/overview")["needs"]

    assert ("workers", "problem", "/workers") == (need["check"], need["severity"], need["path"])
    assert need["text"].startswith("and ")
    assert not [each for each in others if each["severity"] == "problem"]


def test_a_queue_says_why_its_jobs_wait(app: redrive.App):
    """The page of a queue has the reason: no worker, a pause, a rate, a limit, or nothing."""
    charge, client = app.tasks["charge"], Operator(app)

    def standing(queue: str) -> tuple[str, str]:
        found = Operator(app).read(f"/queues/{queue}")["standing"]
        return found["state"], found["title"]

    charge.options(queue="mail").enqueue(1)
    assert ("dead", "No live worker serves it") == standing("mail")
    _serve(app)
    assert ("running", "It runs 0") == standing("mail")
    app.queue("mail").limit(rate="1/1h")
    app.queue("mail").pause()
    assert ("paused", "It is paused") == standing("mail")
    assert ("succeeded", "Nothing is due") == standing("default")
    assert [charge.name] == [each["task"] for each in client.read("/queues/mail")["next"]]


def test_running_jobs_are_named_with_their_worker(app: redrive.App):
    """Running jobs have the time since their claim and their worker; the page of workers has those of all queues."""
    from redrive.stores.operations import leases

    app.tasks["charge"].options(queue="mail").enqueue(1)
    worker = app.store.run(workers.register("host:7", concurrency=1, lease_for=LONG, now=app.now()))
    app.store.run(leases.claim(worker, 1, lease_for=LONG, now=app.now()))
    (own,) = Operator(app).read("/queues/mail")["running"]
    data = Operator(app).read("/workers")

    assert ("1", "mail", 1, "host:7", False) == (
        own["id"], own["queue"], own["attempt"], own["worker_name"], own["late"],
    )  # fmt: skip
    assert [own["id"]] == [each["id"] for each in data["running"]]
    assert [1] == [each["busy"] for each in data["items"]]
    assert "All slots of its workers are busy" not in Operator(app).get("/queues/mail").text
