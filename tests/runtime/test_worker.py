"""A worker process at work: jobs of its app, as many at once as it has slots."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from redrive import App, CatchRequest
from redrive.engine.records import Claim
from redrive.errors import CatchDefinitionError, ConfigurationError
from redrive.runtime.executor import Executor
from redrive.runtime.worker import Worker
from tests.runtime.helpers import PATIENCE, ended, until, working


async def finish(worker: Worker, running: asyncio.Task[None]) -> None:
    """Wait for the end of a worker that has been stopped."""
    async with asyncio.timeout(PATIENCE):
        await running


# --------------------------------------------------------------------------------------------------------- running jobs


@pytest.mark.parametrize("kind", ["app", "filed"])
def test_a_worker_runs_sync_and_async_handlers(request: pytest.FixtureRequest, kind):
    """``async def`` on the event loop, ``def`` in a thread; on a file and in memory."""
    app: App = request.getfixturevalue(kind)

    @app.task
    async def on_the_loop(number: int) -> str:
        """Run on the event loop."""
        return f"{number} {threading.current_thread().name}"

    @app.task
    def in_a_thread(number: int) -> str:
        """Run in a thread."""
        return f"{number} {threading.current_thread().name}"

    async def run() -> list[str]:
        """Run it on an event loop."""
        jobs = [on_the_loop.enqueue(1), in_a_thread.enqueue(2)]
        async with working(app):
            return [await job.aresult(timeout=PATIENCE) for job in jobs]

    assert ["1 MainThread", "2 redrive-handler_0"] == asyncio.run(run())


def test_a_worker_without_tasks_logs_a_warning(caplog: pytest.LogCaptureFixture):
    """Log how its tasks are found: such a worker is alive, and no job would ever run."""
    asyncio.run(Worker(App("memory://"), until_empty=True).run())

    assert "the app has no tasks, so this worker runs no job: name the modules" in caplog.text


def test_a_worker_runs_what_is_enqueued_while_it_is_idle(filed: App):
    """Wake the worker by the change of the file."""
    task = filed.task(name="double")(lambda number: 2 * number)

    async def run() -> list[int]:
        """Run it on an event loop."""
        async with working(filed):
            return [await (await task.aenqueue(number)).aresult(timeout=PATIENCE) for number in range(3)]

    assert [0, 2, 4] == asyncio.run(run())


def test_concurrent_jobs_are_limited_by_slots(filed: App):
    """With two slots and five jobs, never three run at a time, and all run."""
    running, most = 0, 0

    async def run() -> None:
        """Run it on an event loop."""
        both, go = asyncio.Event(), asyncio.Event()

        @filed.task
        async def send(number: int) -> None:
            """Count the running handlers."""
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
            await go.wait()
            running -= 1

        jobs = send.enqueue_many(range(5))
        async with working(filed, concurrency=2):
            async with asyncio.timeout(PATIENCE):
                await both.wait()
            await until(lambda: filed.jobs.stats().running == 2)
            go.set()
            await ended(*jobs)

    asyncio.run(run())

    assert (2, 5) == (most, filed.jobs.stats().succeeded)


def test_a_worker_serves_its_queues_only(filed: App):
    """Jobs of other queues wait for other workers."""
    task = filed.task(name="send")(lambda: None)

    async def run() -> None:
        """Run it on an event loop."""
        other, own = task.options(queue="slow").enqueue(), task.options(queue="fast").enqueue()
        async with working(filed, queues=["fast"]):
            await ended(own)
        await other.arefresh()

    asyncio.run(run())

    assert (1, 1) == (filed.jobs.stats().due, filed.jobs.stats().succeeded)


def test_a_worker_is_listed_while_it_works(filed: App):
    """List a worker by host and process, with its slots and queues, until it has left."""

    async def run() -> tuple[str, int, tuple[str, ...] | None]:
        """Run it on an event loop."""
        async with working(filed, concurrency=7, queues=["fast"]):
            await until(lambda: bool(filed.workers.select()))
            (worker,) = filed.workers.select()
            return worker.name.rpartition(":")[2], worker.concurrency, worker.queues

    assert (str(os.getpid()), 7, ("fast",)) == asyncio.run(run())
    assert () == filed.workers.select()


def test_a_dead_job_is_caught(filed: App):
    """Run the catch job at once, on the same worker."""
    seen: list[CatchRequest[int]] = []

    @filed.task(retry="0 catch recover")
    async def send(number: int) -> None:
        """Fail."""
        raise ConnectionError("no route")

    @filed.task
    def recover(request: CatchRequest[int]) -> None:
        """Remember."""
        seen.append(request)

    async def run() -> None:
        """Run it on an event loop."""
        job = send.enqueue(7)
        async with working(filed):
            await until(lambda: job.refresh().caught_at is not None)

    asyncio.run(run())

    assert [(7, "no route")] == [(request.request, request.error) for request in seen]


def test_a_thread_past_its_timeout_delays_no_other_job(filed: App):
    """After the timeout the attempt is over; the next job gets a new thread in the only slot."""
    go = threading.Event()

    @filed.task(timeout="1ms")
    def stuck() -> None:
        """Overstay."""
        go.wait(PATIENCE)

    healthy = filed.task(name="healthy", timeout="20s")(lambda: "well")

    async def run() -> tuple[str, str | None]:
        """Run it on an event loop."""
        first, second = stuck.enqueue(), healthy.enqueue()
        async with working(filed, concurrency=1):
            result = await second.aresult(timeout=PATIENCE)
        go.set()
        return result, (await first.arefresh()).record.reason

    assert ("well", "TIMEOUT") == asyncio.run(run())


def test_an_error_of_the_worker_itself_gives_the_job_back(filed: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """After an error of the worker no attempt is spent, and the worker continues."""
    execute, refusals = Executor.run, [RuntimeError("refused")]

    async def flaky(self, claim, **rest):
        """Fail once."""
        if refusals:
            raise refusals.pop()
        return await execute(self, claim, **rest)

    monkeypatch.setattr(Executor, "run", flaky)
    task = filed.task(name="send")(lambda: None)

    async def run() -> None:
        """Run it on an event loop."""
        job = task.enqueue()
        async with working(filed):
            await until(lambda: job.refresh().record.note is not None)
            job.retry()
            await ended(job)

    asyncio.run(run())

    assert ("succeeded", 1) == (filed.job(1).state, len(filed.job(1).attempts))
    assert "job 1: the worker itself failed\n    Traceback (most recent call last):" in caplog.text


# ------------------------------------------------------------------------------------------------------- configuration


def test_a_worker_needs_a_slot(app: App):
    """Zero slots would wait for ever."""
    with pytest.raises(ConfigurationError, match="at least one slot, got concurrency=0"):
        Worker(app, concurrency=0)


def test_a_worker_refuses_an_incomplete_app(tmp_path: Path):
    """Missing catch tasks are found before the database is opened and before any claim."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.task(retry="1 1s catch recover", name="finish")(lambda: None)

    with pytest.raises(CatchDefinitionError, match="task 'finish' is to be caught by 'recover'"):
        asyncio.run(Worker(app).run())
    assert [] == list(tmp_path.iterdir())


def test_an_attempt_that_is_cancelled_before_its_first_step_gives_its_slot_and_its_job_back(filed: App):
    """If a task of asyncio is cancelled before it ran, its coroutine is never entered and cannot clean up."""

    class Hasty(Worker):
        """Cancels the first attempt at once."""

        def _start(self, claim: Claim) -> None:
            super()._start(claim)
            if claim.lease_id >> 20 == 1:
                self._cut(claim.lease_id)

    task = filed.task(name="double")(lambda number: 2 * number)

    async def run() -> tuple[int, int]:
        """Run it on an event loop."""
        job = await task.aenqueue(4)
        worker = Hasty(filed, concurrency=1)
        running = asyncio.create_task(worker.run())
        result = await job.aresult(timeout=PATIENCE)
        worker.stop()
        await finish(worker, running)
        return result, job.refresh().record.attempt

    assert (8, 1) == asyncio.run(run())
