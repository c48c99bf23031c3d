"""Workers that end by themselves, that leave out queues, and that have a name."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, Context, Filter
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError, RetryAfter
from redrive.runtime.worker import Worker
from tests.runtime.helpers import PATIENCE, crash, until, working


def run(app: App, **options: Any) -> None:
    """Run a worker until it ends by itself."""

    async def work() -> None:
        async with asyncio.timeout(PATIENCE):
            await Worker(app, **options).run()

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["app", "filed"])
def test_a_worker_ends_when_no_job_is_due(request: pytest.FixtureRequest, kind: str):
    """All due jobs run, also those that jobs enqueue and retries without a delay; nothing is left."""
    app: App = request.getfixturevalue(kind)

    @app.task
    async def child() -> None:
        """Do nothing."""

    failed: list[int] = []

    @app.task(retry="3 1s")
    async def parent(number: int) -> None:
        """Enqueue a job at the first attempt, and fail."""
        if number not in failed:
            failed.append(number)
            await child.options(immediate=True).aenqueue()
            raise RetryAfter(0)

    parent.enqueue_many(range(20))
    run(app, until_empty=True, concurrency=3)

    assert (40, 0) == (app.jobs.stats().succeeded, app.jobs.stats().due)


def test_a_worker_ends_after_the_suspects_that_waited_for_their_turn(filed: App):
    """Jobs that were lost twice run one at a time; those that a worker has given back are due again in a moment."""

    @filed.task
    async def slow() -> None:
        """Wait until the other suspects are to be claimed in half a second or later."""

        def late() -> bool:
            soon = filed.now() or SystemClock().now()
            left = filed.jobs.select(Filter(state="ready"))
            return all(each.scheduled_at > soon + timedelta(seconds=0.5) for each in left)

        await until(late)

    slow.enqueue_many([(), (), ()])
    crash(filed, 2)
    run(filed, until_empty=True)

    assert (3, 0) == (filed.jobs.stats().succeeded, filed.jobs.stats().due)


@pytest.mark.parametrize("order", ["strict", "key"])
def test_a_worker_ends_when_the_events_behind_a_failed_one_are_delivered(filed: App, order: Any):
    """An event that fails becomes a job, which the later events of its line wait for; its end is not the last work."""
    delivered: list[int] = []
    numbers = filed.topic("numbers", int)

    @numbers.subscribe("sink", order=order, retry="3 1s")
    async def sink(number: int, ctx: Context) -> None:
        if number % 2 and ctx.attempt == 1:
            raise RetryAfter(0)
        delivered.append(number)

    filed.topics.declare()
    for number in range(6):
        numbers.publish(number, key="line")
    run(filed, until_empty=True)

    assert [0, 1, 2, 3, 4, 5] == delivered


def test_an_empty_worker_ends_at_once(filed: App):
    """Without jobs it registers, signs off, and ends."""
    run(filed, until_empty=True)

    assert () == filed.workers.select()


def test_later_jobs_and_waiting_retries_do_not_keep_a_worker(filed: App):
    """Jobs with a delay and retries that wait are left for the next run."""

    @filed.task(retry="3 1h")
    def fail() -> None:
        raise OSError("down")

    later, job = fail.options(delay="1h").enqueue(), fail.enqueue()
    run(filed, until_empty=True)

    assert [("ready", 0), ("ready", 1)] == [(each.refresh().state, each.record.failures) for each in (later, job)]


@pytest.mark.realtime
def test_a_running_job_keeps_a_worker(filed: App):
    """The worker waits for the handler that runs, and for the jobs that it enqueues."""
    order: list[str] = []

    @filed.task
    async def slow() -> None:
        await SystemClock().asleep(0.05)
        order.append("slow")
        await quick.aenqueue()

    @filed.task
    async def quick() -> None:
        order.append("quick")

    slow.enqueue()
    run(filed, until_empty=True, concurrency=1)

    assert ["slow", "quick"] == order


def test_a_rate_keeps_a_worker_and_a_pause_does_not(filed: App):
    """Jobs that wait only for the rate of their queue run in the end; those of a paused queue stay."""
    filed.queue("limited", rate="2/50ms")
    task = filed.task(name="task", queue="limited")(lambda number: None)
    paused = filed.task(name="paused", queue="stopped")(lambda: None)
    filed.queue("stopped").pause()
    paused.enqueue()
    task.enqueue_many(range(5))
    run(filed, until_empty=True)

    assert (5, 1) == (filed.jobs.stats().succeeded, filed.jobs.stats().due)


def test_jobs_of_unknown_tasks_do_not_keep_a_worker(filed: App):
    """Due jobs that only other code could run do not hold the worker."""
    other = App(filed.url)
    other.task(name="foreign")(lambda: None).enqueue()
    other.close()
    filed.task(name="own")(lambda: None)
    run(filed, until_empty=True)

    assert 1 == filed.jobs.stats().due


def test_an_overdue_cron_runs_before_an_empty_worker_ends(filed: App):
    """Occurrences that are due start their jobs, and these run."""
    seen: list[int] = []
    tick = filed.cron("* * * * * *", name="tick")(lambda: seen.append(1))

    async def first() -> None:
        async with working(filed):
            await until(lambda: bool(tick.occurrences()))

    asyncio.run(first())
    before = len(seen)
    wait = threading.Event()
    wait.wait(1.1)
    run(filed, until_empty=True)

    assert len(seen) > before


def test_a_worker_ends_after_so_many_attempts(filed: App):
    """Exactly as many attempts start as allowed, retries included; running ones finish, and the rest is due."""
    task = filed.task(name="task")(lambda number: None)
    task.enqueue_many(range(10))
    run(filed, max_jobs=4, concurrency=3)

    assert (4, 6) == (filed.jobs.stats().succeeded, filed.jobs.stats().due)
    run(filed, max_jobs=100, until_empty=True)
    assert 10 == filed.jobs.stats().succeeded


@pytest.mark.realtime
def test_the_last_attempts_have_no_time_limit(filed: App):
    """Workers that have started their last attempt wait for its end, under any shutdown timeout."""

    @filed.task
    async def slow() -> str:
        await SystemClock().asleep(0.05)
        return "done"

    job = slow.enqueue()
    run(filed, max_jobs=1, shutdown_timeout=timedelta(0))

    assert "done" == job.result(timeout=0)


def test_excluded_queues_are_left_to_others(filed: App):
    """Jobs of excluded queues wait, plain, limited and partitioned ones; all others run."""
    filed.queue("limited", concurrency=2)
    task = filed.task(name="task")(lambda number: None)
    for queue in ("default", "reports", "limited"):
        task.options(queue=queue).enqueue(1)
    task.options(queue="limited", partition="a").enqueue(1)
    run(filed, until_empty=True, exclude_queues=["reports", "limited"])

    assert {"default": "succeeded", "reports": "ready", "limited": "ready"} == {
        job.queue: str(job.state) for job in filed.jobs.select()
    }
    run(filed, until_empty=True, exclude_queues=["default"])
    assert 4 == filed.jobs.stats().succeeded


def test_a_worker_is_listed_with_its_name_and_its_queues(filed: App):
    """Its row has the name and the excluded queues, and a job of such a queue is explained: no worker serves it."""
    job = filed.task(name="task", queue="reports")(lambda: None).enqueue()

    async def look() -> tuple[Any, str]:
        async with working(filed, name="night shift", exclude_queues=["reports"]):
            await until(lambda: bool(filed.workers.select()))
            (row,) = filed.workers.select()
            return row, str(job.refresh().why)

    row, why = asyncio.run(look())
    assert ("night shift", None, ("reports",)) == (row.name, row.queues, row.excluded)
    assert "no live worker serves queue 'reports'" in why


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_jobs": 0}, "runs at least one job, got max_jobs=0"),
        ({"queues": ["a"], "exclude_queues": ["b"]}, "give it one of the two"),
        ({"name": " "}, "a text of 1 to 200 printable characters, got ' '"),
        ({"name": "a\nb"}, "a text of 1 to 200 printable characters"),
    ],
)
def test_impossible_options_are_refused(app: App, options: dict[str, Any], message: str):
    """Refused at construction, with one line."""
    with pytest.raises(ConfigurationError, match=message):
        Worker(app, **options)
