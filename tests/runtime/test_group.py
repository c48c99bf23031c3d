"""The workers of several apps in one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, observe
from redrive.clock import SystemClock
from redrive.errors import StartHookError, StoreUnreachable
from redrive.observe import JobEvent
from redrive.observe.logs import OF_APP, EntryFormatter, facts
from redrive.runtime.claimer import Quota, Together
from redrive.runtime.group import WorkerGroup
from redrive.runtime.worker import Worker
from tests.runtime.helpers import PATIENCE, until

AWAY = StoreUnreachable("PostgreSQL h2/shop cannot be reached (h2:5432: no answer within 2.0 s)")


@pytest.fixture
def other() -> Iterator[App]:
    """Return another app in memory; its time is real."""
    app = App("memory://")
    yield app
    app.close()


@pytest.fixture
def one() -> Iterator[App]:
    """Return an app in memory; its time is real."""
    app = App("memory://")
    yield app
    app.close()


def group_of(*apps: App, **options: Any) -> WorkerGroup:
    """Return the workers of apps, which are called ``a`` and ``b``."""
    return WorkerGroup({name: Worker(app, **options) for name, app in zip("ab", apps, strict=False)})


def run(group: WorkerGroup) -> None:
    """Run workers until they end by themselves."""
    asyncio.run(asyncio.wait_for(group.run(), PATIENCE))


def test_each_worker_runs_the_jobs_of_its_app(one: App, other: App):
    """Also if jobs of both have the same id and the same task."""
    ran: list[str] = []
    for name, app in (("a", one), ("b", other)):
        app.task(name="work")(lambda number, name=name: ran.append(f"{name}{number}"))
        app.named("work").enqueue(1)
    run(group_of(one, other, until_empty=True))

    assert ["a1", "b1"] == sorted(ran)


def test_they_end_when_no_job_of_any_app_is_due(one: App, other: App):
    """A job that one app enqueues in the other runs, and so does what that enqueues in the first, and so on."""
    ran: list[int] = []
    apps = (one, other)

    def work(number: int) -> None:
        """Enqueue the next one in the other app."""
        ran.append(number)
        if number < 9:
            apps[(number + 1) % 2].named("work").enqueue(number + 1)

    for app in apps:
        app.task(work)
    one.named("work").enqueue(0)
    run(group_of(*apps, until_empty=True))

    assert list(range(10)) == ran


def test_none_ends_while_another_one_works():
    """Each worker has to look again after the last one has become idle, and a look that finds something counts."""
    together, first, second = Together(), Quota(), Quota()
    together.join(first)
    together.join(second)

    def found_nothing(who: Quota) -> bool:
        return together.found_nothing(who, together.look(who))

    assert [False, False] == [found_nothing(first), found_nothing(first)]
    assert [False, False] == [found_nothing(second), found_nothing(first)]
    begun = together.look(second)
    together.look(first)  # which finds a job
    assert not together.found_nothing(second, begun)
    assert [False, False] == [found_nothing(first), found_nothing(first)]
    assert [True, True] == [found_nothing(second), found_nothing(first)]


def test_a_look_that_began_before_the_last_worker_became_idle_does_not_count():
    """The job that this one has ended may have enqueued another one behind that look."""
    together, first, second = Together(), Quota(), Quota()
    together.join(first)
    together.join(second)
    together.found_nothing(first, together.look(first))
    begun = together.look(first)
    together.found_nothing(second, together.look(second))

    assert not together.found_nothing(first, begun)
    assert [False, True] == [together.found_nothing(who, together.look(who)) for who in (first, second)]


@pytest.mark.parametrize("fails", ["a", "b"])
def test_if_one_fails_the_others_drain(one: App, other: App, caplog: pytest.LogCaptureFixture, fails: str):
    """The running job of the other app finishes, and the error is raised; the log names the app."""
    apps = {"a": one, "b": other}
    works = next(app for name, app in apps.items() if name != fails)
    running = asyncio.Event()
    waits = asyncio.Event()

    @apps[fails].on_start
    async def connect() -> None:
        """Fail while a job of the other app runs."""
        await running.wait()
        asyncio.get_running_loop().call_later(0.01, waits.set)
        raise OSError("redis is down")

    @works.task
    async def work() -> str:
        """Run until the worker drains."""
        running.set()
        await waits.wait()
        return "done"

    job = work.enqueue()
    with pytest.raises(StartHookError, match="redis is down"):
        run(group_of(one, other))

    assert "done" == job.result(timeout=0)
    (failed,) = [each for each in caplog.messages if "has failed" in each]
    assert failed.startswith(f"the worker of {fails} has failed, and the process ends: ")


def test_of_two_failures_the_first_is_raised_and_both_are_logged(
    one: App, other: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Both databases are away for longer than the wait."""

    async def away(_: App) -> None:
        raise AWAY

    monkeypatch.setattr(App, "aopen", away)
    group = group_of(one, other, wait=timedelta(0))
    with pytest.raises(StoreUnreachable):
        run(group)

    failed = [each for each in caplog.messages if "has failed" in each]
    assert ["the worker of a", "the worker of b"] == sorted(each[:15] for each in failed)


def test_the_first_that_has_run_its_jobs_ends_all(one: App, other: App):
    """``max_jobs`` counts the attempts of each app."""
    for app in (one, other):
        app.task(name="work")(lambda number: None)
    one.named("work").enqueue_many(range(7))
    run(group_of(one, other, max_jobs=5))

    assert (5, 0) == (one.jobs.stats().succeeded, other.jobs.stats().succeeded)


def opening(group: WorkerGroup, patch: pytest.MonkeyPatch, away: App, returns: Callable[[], bool]) -> None:
    """Let a database be away until a function returns True."""
    original = App.aopen

    async def aopen(self: App) -> App:
        if self is away and not returns():
            raise AWAY
        return await original(self)

    patch.setattr(App, "aopen", aopen)


@pytest.mark.realtime
@pytest.mark.parametrize("returns", [True, False])
def test_a_worker_waits_on_while_another_one_works(
    one: App, other: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, returns: bool
):
    """Its database may be away for longer than the wait; jobs of the other app run, and both can be stopped."""
    caplog.set_level(logging.INFO)
    for app in (one, other):
        app.task(name="work")(lambda: None)
    group = group_of(one, other, wait=timedelta(seconds=0.3))
    back = asyncio.Event()
    opening(group, monkeypatch, other, back.is_set)

    async def work() -> None:
        async with asyncio.timeout(PATIENCE):
            running = asyncio.create_task(group.run())
            job = await one.named("work").aenqueue()
            await until(lambda: "the worker waits for its database: " in caplog.text)
            await until(lambda: job.refresh().state == "succeeded")
            if returns:
                back.set()
                await until(group.workers["b"].registered.is_set)
            group.stop()
            await running

    asyncio.run(work())

    assert returns is group.workers["b"].registered.is_set()


def test_workers_that_end_when_no_job_is_due_wait_no_longer(one: App, other: App, monkeypatch: pytest.MonkeyPatch):
    """A container that a timer starts would never end otherwise."""
    group = group_of(one, other, until_empty=True, wait=timedelta(seconds=0.01))
    opening(group, monkeypatch, other, lambda: False)

    with pytest.raises(StoreUnreachable):
        run(group)


@pytest.mark.parametrize("stops", [1, 2])
def test_stops_reach_all_workers(one: App, other: App, stops: int):
    """One stop lets running jobs of all apps finish; the second gives them back."""
    begun: list[str] = []
    ended: list[str] = []
    group = group_of(one, other)
    stopped = asyncio.Event()

    def define(name: str, app: App) -> None:
        @app.task(name="work")
        async def work() -> None:
            begun.append(name)
            await (stopped.wait() if stops == 1 else asyncio.Event().wait())
            ended.append(name)

    for name, app in (("a", one), ("b", other)):
        define(name, app)
        app.named("work").enqueue()

    async def work() -> None:
        async with asyncio.timeout(PATIENCE):
            running = asyncio.create_task(group.run())
            await until(lambda: len(begun) == 2)
            for _ in range(stops):
                group.stop()
            stopped.set()
            await running

    asyncio.run(work())
    states = [app.jobs.select()[0].state for app in (one, other)]

    assert ((["a", "b"], ["succeeded"] * 2) if stops == 1 else ([], ["ready"] * 2)) == (sorted(ended), states)


def test_a_stop_is_not_repeated_for_those_that_drain(one: App, other: App):
    """The end of the first worker must not interrupt the handlers of the others."""
    begun = asyncio.Event()
    group = group_of(one, other)

    @one.task
    async def work() -> str:
        """Go on after the other worker has ended."""
        begun.set()
        await until(lambda: other.workers.select() == ())
        await SystemClock().asleep(0)
        return "done"

    job = work.enqueue()

    async def run_all() -> None:
        async with asyncio.timeout(PATIENCE):
            running = asyncio.create_task(group.run())
            await begun.wait()
            await until(group.workers["b"].registered.is_set)
            group.stop()
            await running

    asyncio.run(run_all())

    assert "done" == job.result(timeout=0)


def test_what_a_worker_logs_names_its_app(one: App, other: App, caplog: pytest.LogCaptureFixture):
    """In records, in lines of the command line, and in the facts of events; of handlers in threads, too."""
    caplog.set_level(logging.INFO)
    seen: dict[int, str] = {}

    def note(event: object) -> None:
        if isinstance(event, JobEvent):
            seen[event.job_id] = str(dict(facts(event)).get("app"))

    def work() -> None:
        """Log as a library does."""
        logging.getLogger("shop").warning("on its way")
        raise ValueError("wrong")

    for app in (one, other):
        app.task(work)
    one.named("work").options(tags="x").enqueue()
    other.named("work").enqueue_many([(), ()])
    lines: list[str] = []
    formatter = EntryFormatter("%(name)s: %(of_app)s%(message)s")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(formatter.format(record))  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        with observe.add(note):
            run(group_of(one, other, until_empty=True))
    finally:
        logging.getLogger().removeHandler(handler)

    assert seen in ({1: "b", 2: "b"}, {1: "a", 2: "b"})
    died = sorted(line for line in lines if " died " in line)
    assert ["redrive.jobs: a: job 1", "redrive.jobs: b: job 1", "redrive.jobs: b: job 2"] == [x[:22] for x in died]
    assert ["shop: a: on its way", "shop: b: on its way", "shop: b: on its way"] == sorted(
        line for line in lines if line.startswith("shop: ")
    )
    records = {(record.app, record.getMessage()[:5]) for record in caplog.records if record.name == "redrive.jobs"}
    assert {("a", "job 1"), ("b", "job 1"), ("b", "job 2")} == records


def test_the_log_of_a_single_worker_names_no_app(one: App, caplog: pytest.LogCaptureFixture):
    """There is nothing to confuse."""
    caplog.set_level(logging.INFO)
    one.task(name="work")(lambda: None).enqueue()
    run(group_of(one, until_empty=True))

    assert caplog.records
    assert [] == [record for record in caplog.records if hasattr(record, "app")]
    assert "" == OF_APP.get()
