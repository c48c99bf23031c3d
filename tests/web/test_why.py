"""Why a job is not running: the page names the true cause and what holds it, and what it offers clears it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import redrive
from redrive import Policy
from redrive.retrying import BreakerSettings, breaker
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases, workers
from redrive.testing import VirtualClock, drain
from redrive.web import NoAuth, create_app
from tests.web.client import Client, Operator

HOUR = timedelta(hours=1)


class Stage:
    """An app, a client of its dashboard, and workers that do nothing but claim."""

    def __init__(self) -> None:
        self.app = redrive.App("memory://", clock=VirtualClock())
        self.send: Any = self.app.task(queue="mail", retry="0", name="send")(self._send)
        self.ask: Any = self.app.task(queue="mail", name="ask")(self._ask)
        breaker("bank", BreakerSettings(volume_threshold=1, error_threshold=1, sleep_window="60s"))
        guarded = Policy.parse("2 1s").with_(breaker="bank")
        self.charge: Any = self.app.task(queue="mail", retry=guarded, name="charge")(self._charge)
        self.app.open()
        self.client = Client(create_app(self.app, auth=NoAuth(), reference="shop:app"))

    @staticmethod
    def _send(to: str) -> None:
        if to == "nowhere":
            raise ValueError(to)

    @staticmethod
    def _ask() -> str | redrive.Pending:
        return redrive.Pending("1h")

    @staticmethod
    def _charge(invoice: int) -> None:
        raise ConnectionError(f"bank: no route for {invoice}")

    def worker(self, **given: Any) -> int:
        """Register a worker."""
        registered = workers.register("w", **{"concurrency": 4, "lease_for": HOUR, "now": self.app.now(), **given})
        return self.app.store.run(registered)

    def claim(self, worker: int) -> None:
        """Let a worker claim one job, which it never ends."""
        self.app.store.run(leases.claim(worker, 1, lease_for=HOUR, now=self.app.now()))

    def work(self) -> None:
        """Run what is due."""
        asyncio.run(Worker(self.app, until_empty=True).run())

    def enqueue(self, **options: Any) -> int:
        """Enqueue a job, and return its id."""
        return int(self.send.options(**options).enqueue("ann").id)

    def post(self, path: str, **form: str) -> int:
        """Send a form of a page."""
        return self.client.post(path, data=form, headers={"Origin": "http://localhost"}).status_code

    def page(self, job: int) -> dict[str, Any]:
        """Return the data of the page of a job."""
        found: dict[str, Any] = self.client.get(f"/api/v1/jobs/{job}").json()
        return found


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Return an open app without workers."""
    found = Stage()
    yield found
    found.app.close()


def _paused(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.worker()
    stage.app.queue("mail").pause()
    return stage.enqueue(), lambda: stage.post("/queues/mail", action="resume")


def _limited(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.app.queue("mail").limit(concurrency=1)
    stage.enqueue()
    stage.claim(stage.worker())
    return stage.enqueue(), lambda: stage.post("/queues/mail", action="limit", concurrency="2")


def _of_a_partition(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.app.queue("mail").limit(per_partition=1)
    stage.enqueue(partition="acme")
    stage.claim(stage.worker())
    return stage.enqueue(partition="acme"), lambda: stage.post("/queues/mail", action="limit", per_partition="")


def _rated(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.app.queue("mail").limit(rate="1/1h")
    stage.enqueue()
    stage.claim(stage.worker())
    return stage.enqueue(), lambda: stage.post("/queues/mail", action="limit", rate="")


def _in_order(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.app.queue("mail").limit(ordered=True)
    stage.send.options(partition="acme").enqueue("nowhere")
    stage.work()
    stage.worker()
    return stage.enqueue(partition="acme"), lambda: stage.post("/jobs/1", action="skip", state="dead")


def _broken(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.charge.enqueue(1)
    stage.work()
    parked = int(stage.charge.enqueue(2).id)
    stage.work()
    stage.worker()
    return parked, lambda: stage.post(f"/jobs/{parked}", action="retry", state="ready")


def _without_workers(stage: Stage) -> tuple[int, Callable[[], object]]:
    return stage.enqueue(), stage.worker


def _not_served(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.worker(queues=["print"])
    return stage.enqueue(), lambda: stage.worker(queues=["mail"])


def _unknown(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.worker(tasks=["print"])
    return stage.enqueue(), lambda: stage.worker(tasks=["print", "send"])


def _not_due(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.worker()
    job = stage.enqueue(delay="1d")
    return job, lambda: stage.post(f"/jobs/{job}", action="retry", state="ready")


def _full(stage: Stage) -> tuple[int, Callable[[], object]]:
    stage.enqueue()
    stage.claim(stage.worker(concurrency=1))
    return stage.enqueue(), stage.worker


CAUSES = [
    (_paused, "queue paused since", [], "redrive queues resume shop:app mail", "/queues/mail"),
    (_limited, "limit 1/1 held by job 1", ["1"], "redrive queues show shop:app mail", "/queues/mail"),
    (_of_a_partition, "limit 1/1 of partition 'acme'", ["1"], "redrive queues show shop:app mail", "/queues/mail"),
    (_rated, "rate 1/1h reached", [], "redrive queues show shop:app mail", "/queues/mail"),
    (_in_order, "blocked by job 1 of the same partition", ["1"], "redrive jobs show shop:app 1", "/jobs/1"),
    (_broken, "circuit open", [], r"redrive jobs retry shop:app \d", None),
    (_without_workers, "no worker is alive", [], "redrive worker shop:app", "/workers"),
    (_not_served, "no live worker serves queue 'mail'", [], "redrive worker shop:app --queue mail", "/workers"),
    (_unknown, "no live worker has the task 'send'", [], "redrive workers list shop:app", "/workers"),
    (_not_due, "scheduled: due in 1d", [], "redrive jobs retry shop:app 1", None),
    (_full, "all are busy (1 of 1 slots)", [], "redrive worker shop:app", "/workers"),
]


@pytest.mark.parametrize(("prepare", "why", "holders", "remedy", "place"), CAUSES)
def test_each_cause_is_named_with_its_holder_and_cleared_by_what_is_offered(
    stage: Stage, prepare: Any, why: str, holders: list[str], remedy: str, place: str | None
):
    """The sentence has the cause, the page links what holds the job, and the offer leaves a job that is next."""
    job, clear = prepare(stage)
    before, html = stage.page(job), stage.client.get(f"/jobs/{job}").text
    clear()
    after = stage.page(job)

    assert why in before["job"]["why"]
    assert (holders, place) == (before["held_by"], before["remedy_at"])
    assert re.fullmatch(remedy, before["remedy"])
    assert before["remedy"] in html
    assert all(f'href="/jobs/{each}"' in html for each in holders)
    assert place is None or f'href="{place}"' in html
    assert why not in after["job"]["why"]
    assert (None, "due") == (after["remedy"], after["job"]["standing"])


def test_a_paused_queue_is_resumed_from_the_page_of_a_job(stage: Stage):
    """The page of a due job in a paused queue has the button that resumes the queue."""
    job, _ = _paused(stage)

    assert "Resume queue mail" in stage.client.get(f"/jobs/{job}").text


def test_a_job_that_waits_for_an_answer_has_the_time_until_which_it_does(stage: Stage):
    """It is not held up by anything here: its answer comes from outside, and it can be cancelled."""
    job = int(stage.ask.enqueue().id)
    stage.work()
    page = stage.page(job)
    stage.post(f"/jobs/{job}", action="cancel", state="waiting")

    assert "waiting for an answer from outside until" in page["job"]["why"]
    assert (None, ["cancel"]) == (page["remedy"], page["actions"])
    assert "cancelled" == stage.page(job)["job"]["standing"]


def test_the_holder_of_a_key_is_named_where_it_refuses_a_redrive(stage: Stage):
    """Dead jobs with a key that another job holds are not retried; the sentence names that job, to be cancelled."""
    dead = int(stage.send.options(key="ann").enqueue("nowhere").id)
    stage.work()
    holder = stage.enqueue(key="ann")
    refused = stage.client.post(f"/jobs/{dead}", data={"action": "retry"}, headers={"Origin": "http://localhost"})
    stage.post(f"/jobs/{holder}", action="cancel")
    stage.post(f"/jobs/{dead}", action="retry")

    assert (409, True) == (refused.status_code, f"job {holder}" in refused.text)
    assert "due" == stage.page(dead)["job"]["standing"]


def test_the_attempts_of_a_redriven_job_add_up(stage: Stage, caplog: pytest.LogCaptureFixture):
    """The log, the reason and the list agree: attempts that a redrive has forgiven are named."""

    @stage.app.task(retry="2 1s")
    def fail() -> None:
        """Fail."""
        raise ValueError("no")

    number = fail.enqueue().id
    drain(stage.app, within="1m")
    before = stage.page(number)["job"]
    stage.app.jobs.redrive(redrive.Filter(task="fail"))
    between = stage.page(number)["job"]
    drain(stage.app, within="1m")
    after, (_, log) = stage.page(number)["job"], [each.message for each in caplog.records if "died" in each.message]

    assert [(3, 3), (3, 6), (6, 6)] == [(each["attempts"], each["most"]) for each in (before, between, after)]
    assert before["why"].startswith("dead: 3 of 3 attempts failed (ValueError: no)")
    why = "3 of 3 attempts failed; 3 earlier ones were forgiven by a retry or redrive, or lost with a worker"
    assert after["why"].startswith(f"dead: {why} (ValueError: no)")
    assert f"died at attempt 6 of 6 (attempts): {why}; last failure: ValueError: no" in log


def test_jobs_without_a_limit_show_none(stage: Stage):
    """Feeders and catch jobs run until they succeed, whatever their policy is."""

    @stage.app.task
    def recover(request: redrive.CatchRequest[Any]) -> None:
        """Fail."""
        raise ConnectionError

    @stage.app.task(retry="0 catch recover")
    def fail() -> None:
        """Fail."""
        raise ValueError

    @stage.app.topic("clicks", int).subscribe("count")
    def count(event: int) -> None:
        """Do nothing."""

    fail.enqueue()
    stage.work()
    found = {each["task"]: each for each in stage.client.get("/api/v1/jobs").json()["items"]}
    (feeder,) = (each for each in found.values() if each["task"].endswith("feeder"))

    assert (1, None, None) == (found["fail"]["most"], found["recover"]["most"], feeder["most"])
    assert "1000000" not in stage.client.get("/jobs").text
    assert "Calls any number of times" in stage.client.get(f"/jobs/{feeder['id']}").text


def test_a_worker_is_shown_with_its_jobs_and_its_trouble(stage: Stage):
    """The page of a worker has the jobs that it runs, its code, and whether its event loop runs."""
    operator = Operator(stage.app)
    old, number = stage.worker(build="1.0"), stage.worker(build="2.0")
    stage.app.store.run(workers.beat(number, HOUR, loop_lag_for=timedelta(seconds=25), now=stage.app.now()))
    job, _ = stage.enqueue(), stage.claim(number)
    page = operator.read(f"/workers/{number}")
    text = operator.get(f"/workers/{number}").text
    items = operator.read("/workers")

    assert [str(job)] == [each["id"] for each in page["running"]]
    assert (str(job), 25.0, "2.0", False) == tuple(
        page["worker"][name] for name in ("oldest_job", "loop_lag_seconds", "build", "is_old")
    )
    assert "the event loop of worker" in text
    assert f"/jobs/{job}" in text
    assert [(str(old), True), (str(number), False)] == [(each["id"], each["is_old"]) for each in items["items"]]
    assert [("2.0", 1, True), ("1.0", 1, False)] == [
        (each["name"], each["workers"], each["present"]) for each in items["builds"]
    ]
    assert [str(job)] == [each["id"] for each in operator.read(f"/jobs?q={page['q']}")["items"]]
    assert 404 == operator.get("/workers/404").status_code
