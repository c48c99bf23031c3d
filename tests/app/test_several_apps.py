"""Two apps with databases of their own in one process: what cannot cross is refused where someone tries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from redrive import App, Flow
from redrive.errors import ConfigurationError, ScheduleError, StoreMismatch
from redrive.testing import VirtualClock, drain
from tests import postgres


class Shard(NamedTuple):
    """An app and its task."""

    app: App
    work: Any


def shard(url: str, **options: Any) -> Shard:
    """Return an app with a task, as a function that declares the tasks of each app does."""
    app = App(url, **options)

    @app.task
    def work(number: int) -> int:
        """Return the number."""
        return number

    return Shard(app, work)


@pytest.fixture
def shards() -> Iterator[tuple[Shard, Shard]]:
    """Return two apps in memory."""
    both = shard("memory://", clock=VirtualClock()), shard("memory://", clock=VirtualClock())
    yield both
    for each in both:
        each.app.close()


@pytest.fixture
def servers() -> Iterator[tuple[Shard, Shard]]:
    """Return two apps on two PostgreSQL servers, with the same names of database and schema."""
    schema = postgres.fresh()
    both = tuple(shard(postgres.url(schema, number=number)) for number in (1, 2))
    yield both[0], both[1]
    for number, each in enumerate(both, 1):
        each.app.close()
        with postgres.connect(number=number) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[call-overload]


def test_results_of_jobs_of_another_database_are_refused(shards: tuple[Shard, Shard]):
    """An id belongs to another job there, whose result would be returned."""
    mine, others = (each.work.enqueue(number) for number, each in enumerate(shards))
    for each in shards:
        drain(each.app)

    assert [0] == shards[0].app.results([mine])
    assert 1 == mine.id == others.id
    text = "job 1 is in memory://, and this app has another database, memory://, where the id may be that of another"
    with pytest.raises(ConfigurationError, match=text):
        shards[0].app.results([others])
    with pytest.raises(ConfigurationError, match=text):
        asyncio.run(shards[0].app.aresults([others]))


def test_apps_may_share_a_database(tmp_path: Path):
    """Then a job is the same for both."""
    one, two = (shard(f"sqlite:///{tmp_path}/shop.db", clock=VirtualClock()) for _ in range(2))
    job = one.work.enqueue(7)
    drain(two.app)

    assert [7] == two.app.results([job], timeout=0)
    for each in (one, two):
        each.app.close()


def test_a_step_belongs_to_a_job_of_the_same_app(shards: tuple[Shard, Shard]):
    """Otherwise it would be recorded with another job."""
    jobs = [each.work.enqueue(1) for each in shards]

    with pytest.raises(ConfigurationError, match="ask the app of the job"):
        shards[0].app.steps.acquire(jobs[1], "charge")


def test_a_run_calls_workflows_of_its_own_app(shards: tuple[Shard, Shard]):
    """The child would wait in a database where no worker has its code."""
    one, two = (each.app for each in shards)

    @two.workflow()
    async def ship(flow: Flow, order: int) -> int:
        return order

    @one.workflow()
    async def checkout(flow: Flow, order: int) -> int:
        return await flow.call(ship, order)

    run = checkout.start(7)
    drain(one)

    assert "dead" == run.state
    assert (run.job.record.error or "").startswith("flow.call(): 'ship' is a workflow of another app")
    assert () == two.jobs.select()


def test_a_cron_is_made_for_a_task_of_the_same_app(shards: tuple[Shard, Shard]):
    """A task of another app is refused, unless this one has a task of that name."""
    one, two = shards
    two.app.task(name="report")(lambda: None)
    with pytest.raises(ScheduleError, match="'report' is a task of another app"):
        one.app.schedules.create("weekly", "0 9 * * MON", two.app.tasks["report"])
    one.app.schedules.create("daily", "0 9 * * *", two.work, arguments={"number": 7})

    assert ["daily"] == [each.name for each in one.app.schedules.select()]


def test_a_connection_to_the_other_server_is_refused(servers: tuple[Shard, Shard]):
    """Also if both servers have a database and a schema of the same names; nothing is enqueued."""
    for each in servers:
        each.app.open()
    with postgres.connect(number=2) as connection, pytest.raises(StoreMismatch, match="to another database than"):
        servers[0].work.enqueue(1, using=connection)

    async def enqueue() -> None:
        connection = await asyncpg.connect(host=postgres.server(2), user="postgres")
        try:
            await servers[0].work.aenqueue(1, using=connection)
        finally:
            await connection.close()

    with pytest.raises(StoreMismatch, match="to another database than"):
        asyncio.run(enqueue())

    assert [(), ()] == [each.app.jobs.select() for each in servers]


def test_a_key_is_unique_in_its_database(servers: tuple[Shard, Shard]):
    """Two servers do not know the keys of each other, so the key of a tenant belongs to the server of the tenant."""
    jobs = [each.work.options(idempotency_key="order-7").enqueue(7) for each in servers]

    assert [True, True] == [job.created for job in jobs]
    assert not servers[0].work.options(idempotency_key="order-7").enqueue(7).created


def test_what_a_handler_enqueues_in_another_app_is_stored_at_once(shards: tuple[Shard, Shard]):
    """No transaction spans two databases: the job stays when the attempt fails."""
    one, two = shards

    @one.app.task
    def order() -> None:
        """Enqueue a job of each app, and fail."""
        one.work.enqueue(1)
        two.work.enqueue(2)
        raise ValueError("wrong")

    order.enqueue()
    drain(one.app)

    assert ["order"] == [job.task for job in one.app.jobs.select()]
    assert ["work"] == [job.task for job in two.app.jobs.select()]


def subscribed(app: App, name: str, read: list[str]) -> Any:
    """Return a topic with a subscription that notes its events with a name."""
    topic = app.topic("orders", int)

    @topic.subscribe("mail")
    def mail(event: int) -> None:
        read.append(f"{name}{event}")

    app.topics.declare()
    return topic


def test_events_are_for_the_subscriptions_of_their_database(shards: tuple[Shard, Shard]):
    """A topic of the same name in another database is another topic."""
    read: list[str] = []
    topics = [subscribed(each.app, name, read) for name, each in zip("ab", shards, strict=True)]
    topics[0].publish(7)
    for each in shards:
        drain(each.app)

    assert ["a7"] == read
