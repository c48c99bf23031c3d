"""Workers write what they have counted."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from typing import Any

import pytest

from redrive import App
from redrive.engine.counters import HOUR, MINUTE
from redrive.errors import StoreBusy
from redrive.runtime.counting import EVERY, Counting
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, workers
from redrive.testing import VirtualClock
from tests.runtime.helpers import Registered, register, take


@pytest.fixture
def app() -> Any:
    """Return an app with a task that succeeds, one that fails and a job of a task that loses its worker."""
    app = App("memory://", clock=VirtualClock())

    @app.task
    def work() -> None: ...

    @app.task(retry="1 0s")
    def fail(number: int) -> None:
        raise ValueError(number)

    app.open()
    yield app
    app.close()


def ended(app: App) -> dict[str, tuple[int, int, int, int]]:
    """Return the counted successes, retries, deaths and losses of each task."""
    sums = app.store.run(counters.throughput(HOUR, MINUTE, now=app.now())).sums
    return {each.task: (each.succeeded, each.retried, each.died, each.lost) for each in sums}


def test_a_worker_writes_its_sums_when_it_leaves(app: App):
    """The ends of all attempts are counted, and failures with their group."""
    app.tasks["work"].enqueue_many([()] * 3)
    app.tasks["fail"].enqueue_many([1, 2])
    asyncio.run(Worker(app, until_empty=True).run())
    (group,) = app.store.run(counters.groups(now=app.now()))

    assert {"work": (3, 0, 0, 0), "fail": (0, 2, 2, 0)} == ended(app)
    assert ("<n>", 2, 4) == (group.title, group.dead, group.failures)


def test_a_rescued_job_is_counted_as_lost(app: App):
    """The worker that takes a job from a dead one counts the attempt."""
    from redrive.stores.operations import leases

    app.tasks["work"].enqueue()
    lease = timedelta(seconds=5)
    dead = app.store.run(workers.register("gone", concurrency=1, lease_for=lease, now=app.now()))
    app.store.run(leases.claim(dead, 1, lease_for=lease, now=app.now()))
    app.clock.advance("1m")
    asyncio.run(Worker(app, max_jobs=1).run())

    assert {"work": (1, 0, 0, 1)} == ended(app)


def test_sums_are_written_every_ten_seconds(app: App, monkeypatch: pytest.MonkeyPatch):
    """Steps write what is new, and the depths in the first half of each minute; an idle worker writes no sums."""
    written: list[str] = []
    run = type(app.store).arun

    async def note(store: Any, operation: Any, **options: Any) -> Any:
        """Note the operation."""
        written.append(operation.name)
        return await run(store, operation, **options)

    monkeypatch.setattr(type(app.store), "arun", note)
    duty = Counting(app, Registered(app, register(app)))

    async def steps() -> list[float]:
        """Run steps for two minutes."""
        rests = []
        while sum(rests) < 120:
            rests.append(await duty.duty.step())
            app.clock.advance(timedelta(seconds=rests[-1]))
        return rests

    rests = asyncio.run(steps())
    assert {"note_depths"} == {*written}
    assert 2 <= len(written) <= 3
    assert max(rests) == EVERY


def test_a_worker_logs_once_a_minute_why_due_jobs_wait(app: App, caplog: pytest.LogCaptureFixture):
    """A paused queue, one that no live worker serves, and a reached rate are logged, with jobs, age and command."""
    app.reference = "shop:app"
    for queue in ("paused", "rated", "rated", "served"):
        app.tasks["work"].options(queue=queue).enqueue()
    app.tasks["work"].options(queue="later", delay="1h").enqueue()
    for queue in ("paused", "later"):
        app.queue(queue).pause()
    app.queue("rated").limit(rate="1/1h")
    worker = app.store.run(
        workers.register("w", concurrency=1, lease_for=HOUR, queues=["paused", "rated", "served"], now=app.now())
    )
    while "rated" not in {claim.queue for claim in take(app, worker=worker)}:
        pass
    app.tasks["work"].options(queue="else where").enqueue()
    app.clock.advance("1m")
    caplog.set_level(logging.INFO, "redrive.worker")
    duty = Counting(app, Registered(app, worker))

    async def minute() -> list[tuple[str, str]]:
        """Return the lines of one minute."""
        caplog.clear()
        passed = 0.0
        while passed < 60:
            rest = await duty.duty.step()
            passed += rest
            app.clock.advance(timedelta(seconds=rest))
        return sorted((each.levelname, re.sub(r"since [\dms ]+", "since X", each.message)) for each in caplog.records)

    first, second = asyncio.run(minute()), asyncio.run(minute())
    assert first == [
        (
            "INFO",
            (
                "queue 'rated' has reached its rate 1/1h, and has 1 job due, the oldest since X: "
                "redrive queues limit shop:app rated --rate none, or a higher one"
            ),
        ),
        (
            "WARNING",
            (
                "no live worker serves queue 'else where', which has 1 job due, the oldest since X: "
                "redrive worker shop:app --queue 'else where'"
            ),
        ),
        (
            "WARNING",
            (
                "queue 'paused' is paused since X, and has 1 job due, the oldest since X: "
                "redrive queues resume shop:app paused"
            ),
        ),
    ]
    assert first == second


def test_sums_are_kept_until_the_store_takes_them(app: App, monkeypatch: pytest.MonkeyPatch):
    """Writes that fail are repeated with what has ended since then, and count nothing twice."""
    from redrive.engine.outcome import Succeeded
    from tests.engine.helpers import NOW, claim, settled

    duty = Counting(app, Registered(app, 3))
    moved = [settled(claim(), Succeeded())]
    duty.add(moved)
    write = counters.write_counters

    def fail(_: object) -> Any:
        """Refuse it."""
        raise StoreBusy("busy")

    monkeypatch.setattr(counters, "write_counters", fail)
    with pytest.raises(StoreBusy):
        asyncio.run(duty.write())
    monkeypatch.setattr(counters, "write_counters", write)
    duty.add(moved)
    asyncio.run(duty.write())
    asyncio.run(duty.write())
    found = app.store.run(counters.throughput(HOUR, MINUTE, now=NOW)).sums

    assert [("send", 2)] == [(each.task, each.succeeded) for each in found]
