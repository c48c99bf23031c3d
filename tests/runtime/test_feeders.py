"""Feeders: what they deliver, what they write, and what stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import App, Context, observe
from redrive.app.attempts.context import Stop
from redrive.app.attempts.origins import DeliveryHandle
from redrive.clock import SystemClock
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Lost, Released, Succeeded
from redrive.engine.records import Claim, Filter
from redrive.engine.settle import decide
from redrive.engine.topics import Shard
from redrive.errors import StoreOutcomeUnknown, StoreUnreachable
from redrive.policy import Policy
from redrive.runtime.feeder import Feeder
from redrive.runtime.feeders import Feeders
from redrive.stores.operations import deleting, leases, workers
from redrive.stores.operations.topics import feed
from redrive.stores.query import Query, Statements, writes
from redrive.testing import VirtualClock, drain
from tests.runtime.helpers import PATIENCE, working
from tests.stores.helpers import LONG


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in virtual time."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def claimed(app: App, **changes: Any) -> Claim:
    """Create the subscriptions, and claim the only feeder."""
    app.topics.declare()
    now = app.now()
    worker = app.store.run(workers.register("w", concurrency=1, lease_for=LONG, tasks=app.served(), now=now))
    found = app.store.run(leases.claim(worker, 1, lease_for=LONG, now=now))
    return replace(found.claims[0], **changes)


def fed(app: App, claim: Claim) -> tuple[Feeder, Feeders]:
    """Return a feeder that is not running; called on an event loop."""
    feeders = Feeders(app, app.clock or SystemClock(), None, {})
    return feeders.add(claim, app.topics.fed_by(claim.task)), feeders


def test_events_that_may_have_killed_their_worker_become_jobs(app: App):
    """Make jobs of the events that were being delivered in two crashes in a row, and deliver later ones."""
    topic = app.topic("numbers", int)
    seen: list[int] = []

    @topic.subscribe("log", order="none")
    def log(number: int) -> None:
        seen.append(number)

    topic.publish_many([1, 2])
    claim = claimed(app, crashes=2)
    # An earlier lease has opened the window, and died.
    lease = feed.Lease(claim.id, claim.lease_id, claim.worker_id)
    attached = app.store.run(feed.attach(lease))
    app.store.run(feed.turn(lease, attached.subscription, feed.FeedProgress(0, 0, 1), feed.Reading()))
    topic.publish(3)

    async def run() -> None:
        feeder, _ = fed(app, claim)
        assert None is await feeder.drain()

    asyncio.run(run())
    jobs = app.jobs.select(Filter(task="numbers.log", oldest_first=True))

    assert ([3], [(State.READY, 0), (State.READY, 0)]) == (seen, [(job.state, job.attempt) for job in jobs])


@writes
def put_back(shard: Shard) -> Statements[None]:
    """Write an earlier cursor of a shard."""
    yield Query("feed_put", {name: getattr(shard, name) for name in Shard.__struct_fields__})


def test_an_event_is_delivered_again_if_the_turn_of_its_failure_is_lost(app: App):
    """Deliver an event again whose failed first delivery the database has lost, and those behind it once."""
    topic = app.topic("numbers", int)
    seen: list[int] = []

    @topic.subscribe("log", order="none", retry="5 1h")
    def log(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise ValueError("boom")

    topic.publish(1)
    claim = claimed(app)
    lease = feed.Lease(claim.id, claim.lease_id, claim.worker_id)

    async def run() -> None:
        feeder, _ = fed(app, claim)
        before = app.store.run(feed.attach(lease)).shard
        await feeder.drain()
        app.store.run(put_back(before))
        (job,) = app.jobs.select(Filter(task="numbers.log"))
        app.job(job.id).cancel()
        app.store.run(deleting.delete(Filter(task="numbers.log"), now=app.now()))
        topic.publish(2)
        await feeder.drain()

    asyncio.run(run())

    assert ([1, 1, 2], ()) == (seen, app.jobs.select(Filter(task="numbers.log")))


@writes
def forget(ids: Sequence[int]) -> Statements[None]:
    """Delete the rows of ended deliveries."""
    yield Query("done_drop", {"topic": "numbers", "subscription": "log", "ids": list(ids)})


def test_events_are_delivered_again_if_the_transaction_of_one_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Begin again where the database has lost a delivery that counts as done; a failed one becomes one job."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=VirtualClock())
    topic = app.topic("numbers", int)
    seen: list[int] = []
    lost: list[int] = []
    turn = feed.turn

    def losing(lease: feed.Lease, record: Any, progress: feed.FeedProgress, *args: Any, **options: Any) -> Any:
        if progress.done and progress.diverted and not lost:
            lost.extend(progress.done)
            app.store.run(forget(progress.done))
        return turn(lease, record, progress, *args, **options)

    @topic.subscribe("log", order="none", at_once=1, retry="3 1h")
    async def log(number: int, ctx: Context) -> None:
        seen.append(number)
        if number == 2:
            raise ValueError("boom")
        async with ctx.transaction():
            pass

    topic.publish_many([1, 2])
    claim = claimed(app)
    monkeypatch.setattr(feed, "turn", losing)

    async def run() -> None:
        feeder, _ = fed(app, claim)
        await feeder.drain()
        await feeder.leave()

    asyncio.run(run())
    (job,) = app.jobs.select(Filter(task="numbers.log"))
    done = app.store.run(feed.attach(feed.Lease(claim.id, claim.lease_id, claim.worker_id))).done
    app.close()

    assert ([1], [1, 2, 1, 2]) == (lost, seen)
    assert ("topic:numbers/log#2", frozenset()) == (job.origin, done)


def test_a_feeder_never_dies_of_crashes(app: App):
    """Run a feeder again after any number of crashes, later after many."""
    app.topic("numbers", int).subscribe("log")(lambda number: None)
    claim = claimed(app)
    first = decide(claim, Lost("gone"), app.now(), 0.0)
    tenth = decide(replace(claim, crashes=9), Lost("gone"), app.now(), 0.0)

    assert (State.READY, State.READY) == (first.state, tenth.state)
    assert (0.0, 30.0) == tuple((each.scheduled_at - app.now()).total_seconds() for each in (first, tenth))


def test_a_feeder_without_its_shard_ends(app: App):
    """End the job of a feeder after its subscription was deleted."""
    topic = app.topic("numbers", int)
    topic.subscribe("log")(lambda number: None)
    claim = claimed(app)
    app.topics.subscription("numbers", "log").forget()

    async def run() -> object:
        feeder, _ = fed(app, claim)
        return await feeder.run()

    assert Succeeded() == asyncio.run(run())


def test_a_feeder_waits_for_a_busy_database(app: App, monkeypatch: pytest.MonkeyPatch):
    """Repeat a write while the database is unreachable."""
    topic = app.topic("numbers", int)
    seen: list[int] = []

    @topic.subscribe("log")
    def log(number: int) -> None:
        seen.append(number)

    topic.publish(1)
    claim = claimed(app)
    arun, failures = app.store.arun, [1, 2]

    async def flaky(operation: Any, **options: Any) -> Any:
        if failures:
            failures.pop()
            raise StoreUnreachable("down")
        return await arun(operation, **options)

    monkeypatch.setattr(app.store, "arun", flaky)

    async def run() -> None:
        feeder, _ = fed(app, claim)
        await feeder.drain()

    asyncio.run(run())

    assert ([1], []) == (seen, failures)


def test_a_stopped_feeder_gives_its_shard_back():
    """Finish the running delivery at a shutdown, write the position, and start no further one."""
    app = App("memory://")
    topic = app.topic("numbers", int)
    seen: list[tuple[int, bool]] = []
    began = asyncio.Event()

    @topic.subscribe("log")
    async def log(number: int, ctx: Context) -> None:
        began.set()
        while not ctx.should_stop:
            await SystemClock().asleep(0.001)
        seen.append((number, ctx.stop_reason is Stop.SHUTDOWN))

    topic.publish_many([1, 2])

    async def run() -> None:
        async with working(app) as worker, asyncio.timeout(PATIENCE):
            await began.wait()
            worker.stop()
            while worker.abandoned:
                await SystemClock().asleep(0.001)

    asyncio.run(run())
    status = app.topics.select()[0]
    app.close()

    assert ([(1, True)], 1, State.READY) == (seen, status.lag.events, status.feeders[0].state)


def test_deliveries_emit_events(app: App):
    """Emit an event for each delivery, with the number of events that failed."""
    topic = app.topic("numbers", int)

    @topic.subscribe("log", order="none", batch=5)
    def log(numbers: list[int], ctx: Context) -> None:
        ctx.fail(numbers[0], "odd")

    seen: list[observe.TopicDelivered] = []
    topic.publish_many([1, 2, 3])
    with observe.only(lambda event: seen.append(event) if isinstance(event, observe.TopicDelivered) else None):
        drain(app)

    assert [("numbers", "log", 3, 1, "numbers.log")] == [
        (each.topic, each.subscription, each.count, each.failed, each.name) for each in seen
    ]
    assert "numbers.log got 3 events in 0.000 s, 1 of them failed" == str(seen[0])


def test_the_hooks_of_a_policy_see_failed_events(app: App):
    """Call the retry hook of the policy after the first attempt of an event, as after that of a job."""
    topic = app.topic("numbers", int)
    seen: list[tuple[int, str]] = []
    policy = Policy.parse("1 1s").with_(on_retry=lambda details: seen.append((details.attempt, str(details.error))))

    @topic.subscribe("log", retry=policy)
    def log(number: int, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("no")

    topic.publish(1)
    drain(app)

    assert [(1, "no")] == seen


def test_a_batch_that_raises_is_delivered_event_by_event(app: App):
    """Deliver the events of a failed batch alone, so that only those that fail become jobs."""
    topic = app.topic("numbers", int)
    calls: list[list[int]] = []

    @topic.subscribe("log", batch=3)
    def log(numbers: list[int]) -> None:
        calls.append(numbers)
        if 2 in numbers:
            raise ValueError("two")

    topic.publish_many([1, 2, 3, 4])
    drain(app)

    assert [[1, 2, 3], [1], [2], [3], [4]] == calls
    assert 1 == len(app.jobs.select(Filter(task="numbers.log", state=State.DEAD)))


def test_a_subscription_cannot_wait_for_an_answer(app: App):
    """Fail an event if its handler returns `Pending`: no job waits for the answer."""
    from redrive import Pending

    topic = app.topic("numbers", int)
    topic.subscribe("log")(lambda number: Pending("1h"))
    topic.publish(1)
    drain(app)
    (job,) = app.jobs.select(Filter(task="numbers.log"))

    assert (State.DEAD, "BAD_RESULT") == (job.state, job.reason)


def test_an_error_of_the_worker_makes_a_job(app: App, monkeypatch: pytest.MonkeyPatch):
    """Make a job of an event after its delivery failed by a defect of the worker itself."""
    topic = app.topic("numbers", int)
    topic.subscribe("log")(lambda number: None)
    topic.publish(1)
    claim = claimed(app)

    async def run() -> None:
        feeder, feeders = fed(app, claim)

        async def broken(*_: object) -> None:
            raise KeyError("defect")

        monkeypatch.setattr(feeders.executor, "run", broken)
        await feeder.drain()

    asyncio.run(run())

    assert ["KeyError"] == [job.reason and job.error.partition(":")[0] and "KeyError" for job in _dead(app)]


def _dead(app: App) -> tuple[Any, ...]:
    return app.jobs.select(Filter(task="numbers.log", state=State.DEAD))


@pytest.mark.parametrize("order", ["key", "none"])
def test_a_crash_repeats_no_more_than_was_not_written_behind_a_slow_event(app: App, order: str):
    """Behind a slow event at the head 2,499 events are done, and one becomes a job; after a crash at most 1,000 follow
    again, marked, and the failed one gets no second job."""
    topic = app.topic("numbers", int)
    seen: list[tuple[int, bool]] = []
    reached, slow = asyncio.Event(), asyncio.Event()

    @topic.subscribe("log", order=order, retry="3 1s")
    async def log(number: int, ctx: Context) -> None:
        if number == 0 and not reached.is_set():
            await slow.wait()
        if number == 1:
            raise ValueError("no")
        seen.append((number, ctx.redelivered))
        if len(seen) == 2499:
            reached.set()

    topic.publish_many(range(2501), key=lambda number: f"k{number}")
    claim = claimed(app)

    async def run() -> None:
        feeder, _ = fed(app, claim)
        running = asyncio.create_task(feeder.run())
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
        # As in a crash, nothing is written of what runs or has just ended.
        running.cancel()
        await asyncio.wait([running])
        again, _ = fed(app, claim)
        await again.drain()

    asyncio.run(run())
    repeated = [mark for number, mark in seen[2499:] if number]
    jobs = app.jobs.select(Filter(task="numbers.log"))

    assert len(repeated) <= 1000
    assert {*range(2501)} - {1} == {number for number, _ in seen}
    assert all(repeated)
    assert ["topic:numbers/log#2"] == [job.origin for job in jobs]


@pytest.mark.parametrize("lost", ["reply", "time"])
def test_a_failed_attempt_whose_transaction_was_committed_makes_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
):
    """Deliver no event again whose transaction was committed although its attempt has failed."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=VirtualClock())
    topic = app.topic("numbers", int)
    calls: list[int] = []

    @topic.subscribe("log", retry="3 1s")
    async def log(number: int, ctx: Context) -> None:
        calls.append(number)
        async with ctx.transaction():
            pass

    def fail(self: DeliveryHandle) -> None:
        raise StoreOutcomeUnknown("the connection was closed") if lost == "reply" else TimeoutError

    topic.publish_many([1, 2])
    claim = claimed(app)
    monkeypatch.setattr(DeliveryHandle, "close", fail)

    async def run() -> None:
        feeder, _ = fed(app, claim)
        await feeder.drain()
        await feeder.leave()

    asyncio.run(run())
    jobs = list(app.jobs.select(Filter(task="numbers.log")))
    app.close()

    assert ([1, 2], []) == (calls, jobs)


def test_looks_wake_feeders_in_time(app: App):
    """Look for the feeders of a worker after a change, and stop only those that were asked to."""
    app.topic("numbers", int).subscribe("log")(lambda number: None)
    claim = claimed(app)

    async def run() -> tuple[object, int]:
        _, feeders = fed(app, claim)
        subscription = app.topics.fed_by(claim.task)
        running = asyncio.create_task(feeders.run(claim, subscription))
        async with asyncio.timeout(PATIENCE):
            while not feeders.resting:
                feeders.wake()
                await SystemClock().asleep(await feeders.duty.step())
        feeders.stop(Stop.SHUTDOWN, [claim.lease_id + 1])
        count = feeders.count
        feeders.stop(Stop.SHUTDOWN)
        return await running, count

    ended, count = asyncio.run(run())

    assert (True, 1) == (isinstance(ended, Released), count)
