"""Outcomes of attempts, whatever their handlers do; the worker continues."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App
from redrive.runtime.attempts import Attempts
from redrive.runtime.executor import Executor
from tests.runtime.helpers import UserBaseException, ended, until, working


@pytest.mark.parametrize(
    ("idempotent", "expected", "reason"),
    [(None, ["lost", "succeeded"], "WORKER_LOST"), (False, ["lost"], "LOST_IN_FLIGHT")],
    ids=["idempotent", "once"],
)
def test_an_error_of_the_worker_itself_after_the_handler_began_is_a_crash(
    filed: App, monkeypatch: pytest.MonkeyPatch, idempotent: bool | None, expected: list[str], reason: str
):
    """If the handler had begun, the attempt is recorded, and is repeated only if the task is idempotent."""
    ran: list[int] = []
    outcome = Executor._outcome

    async def flaky(self, task, arguments, limit, passage, effects):
        """Fail after the first handler."""
        result = await outcome(self, task, arguments, limit, passage, effects)
        if len(ran) == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Executor, "_outcome", flaky)
    task = filed.task(name="send", idempotent=idempotent)(lambda: ran.append(1))

    async def run() -> None:
        """Run it on an event loop."""
        job = task.enqueue()
        async with working(filed):
            await ended(job)

    asyncio.run(run())
    attempts = filed.job(1).attempts

    assert expected == [each.outcome for each in attempts]
    assert (reason, len(expected)) == (attempts[0].reason, len(ran))


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, GeneratorExit, UserBaseException, asyncio.CancelledError, StopIteration]
)
@pytest.mark.parametrize("threaded", [True, False])
def test_no_exception_of_a_handler_ends_the_worker(filed: App, error: type[BaseException], threaded: bool):
    """After any exception of a handler the attempt has failed, its slot is free, and the worker continues."""

    def plain(number: int) -> int:
        """Raise for the first job."""
        if number == 1:
            raise error
        return number

    async def coloured(number: int) -> int:
        """Do the same on the event loop."""
        return plain(number)

    task = filed.task(name="send")(plain if threaded else coloured)

    async def run() -> None:
        """Run them in the only slot."""
        jobs = task.enqueue_many([1, 2])
        async with working(filed, concurrency=1):
            await ended(*jobs)

    asyncio.run(run())

    assert [["failed"], ["succeeded"]] == [[each.outcome for each in filed.job(n).attempts] for n in (1, 2)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_handler_that_cancels_its_own_task_does_not_run_for_ever(filed: App, waits: bool):
    """Only a cancellation by the worker gives a job back; one by the handler itself spends an attempt, or has no effect
    if the handler returns without meeting it."""
    ran: list[int] = []

    @filed.task
    async def send() -> str:
        """Cancel the present task."""
        ran.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.Event().wait()
        return "done"

    async def run() -> None:
        """Run it on an event loop."""
        job = send.enqueue()
        async with working(filed):
            await ended(job)

    asyncio.run(run())

    assert ([1], ["failed" if waits else "succeeded"]) == (ran, [each.outcome for each in filed.job(1).attempts])


def test_an_attempt_that_ends_without_an_outcome_is_ended_by_its_worker(filed: App, monkeypatch: pytest.MonkeyPatch):
    """If the coroutine of an attempt breaks, its slot is freed and its job runs again."""
    attempt, broken = Attempts._attempt, [RuntimeError("a bug")]

    async def flaky(self, claim, state=None):
        """Break once."""
        if broken:
            raise broken.pop()
        await attempt(self, claim, state)

    monkeypatch.setattr(Attempts, "_attempt", flaky)
    task = filed.task(name="send")(lambda: None)

    async def run() -> None:
        """Run it in the only slot."""
        job = task.enqueue()
        async with working(filed, concurrency=1):
            await until(lambda: job.refresh().record.note == "the worker itself failed")
            job.retry()
            await ended(job)

    asyncio.run(run())

    assert "succeeded" == filed.job(1).state


def test_a_worker_ignores_jobs_of_other_apps(filed: App):
    """Jobs of a task that the worker does not have stay due, and do not keep its own from running."""

    async def run() -> None:
        """Run it in the only slot."""
        others = filed.task(name="other")(lambda: None).enqueue_many([()] * 3)
        filed.tasks.pop("other")
        mine = filed.task(name="mine")(lambda: None).enqueue()
        async with working(filed, concurrency=1):
            await ended(mine)
            why = {each.refresh().why.partition(", ")[2] for each in others}
            assert {"no live worker has the task 'other' in queue 'default'"} == why

    asyncio.run(run())

    assert [("ready", None, 0)] * 3 == [(job.state, job.hold, job.attempt) for job in reversed(filed.jobs.select()[1:])]


class IndescribableError(Exception):
    """An exception that raises at each access."""

    def __getattribute__(self, name: str) -> object:
        """Raise what no caller expects."""
        raise ZeroDivisionError(name)

    def __str__(self) -> str:
        """Raise too."""
        raise SystemExit

    def __repr__(self) -> str:
        """Raise too."""
        raise KeyboardInterrupt


def test_an_exception_that_cannot_be_described_is_a_failure(filed: App):
    """Record its class and the place where it was raised; the worker continues."""

    async def send() -> None:
        """Raise it."""
        raise IndescribableError

    async def run() -> None:
        """Run it on an event loop."""
        job = filed.task(name="send")(send).enqueue()
        async with working(filed):
            await ended(job)

    asyncio.run(run())
    (attempt,) = filed.job(1).attempts

    assert ("failed", f"{__name__}.IndescribableError") == (attempt.outcome, attempt.error_type)
    assert "raise IndescribableError" in (attempt.traceback or "")


def test_an_exception_that_cannot_be_described_is_logged(filed: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """Errors of the worker's own code after the handler began are crashes, and reporting them raises no exception."""
    outcome, errors = Executor._outcome, [IndescribableError()]

    async def flaky(self, task, arguments, limit, passage, effects):
        """Fail after the first handler."""
        result = await outcome(self, task, arguments, limit, passage, effects)
        if errors:
            raise errors.pop()
        return result

    monkeypatch.setattr(Executor, "_outcome", flaky)

    async def run() -> None:
        """Run it on an event loop."""
        job = filed.task(name="send")(lambda: None).enqueue()
        async with working(filed):
            await ended(job)

    asyncio.run(run())

    assert ["lost", "succeeded"] == [each.outcome for each in filed.job(1).attempts]
    assert "job 1: the worker itself failed\n    Traceback (most recent call last):" in caplog.text


def test_a_future_that_carries_a_generator_exit_is_a_failure_of_its_handler(filed: App):
    """Asyncio closes the coroutines that wait for it; the attempt has failed, and has not crashed."""

    async def send() -> None:
        """Await such a future."""
        future = asyncio.get_running_loop().create_future()
        future.set_exception(GeneratorExit("closed"))
        await future

    async def run() -> None:
        """Run it on an event loop."""
        job = filed.task(name="send")(send).enqueue()
        async with working(filed):
            await ended(job)

    asyncio.run(run())

    assert [("failed", "closed")] == [(each.outcome, each.error) for each in filed.job(1).attempts]
