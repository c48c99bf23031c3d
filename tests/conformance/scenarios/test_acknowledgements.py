"""Commits with a lost reply: when they are sent again, by any process, they are recognised."""

from __future__ import annotations

import asyncio

import pytest

from redrive.app.attempts.context import Context, Pending
from redrive.app.tasks.catch import CatchRequest
from redrive.engine.lifecycle import State
from redrive.errors import StoreBusy
from redrive.runtime.worker import Worker
from redrive.testing import drain

PATIENCE = 90
"""Seconds until a test gives up on a worker."""


class Breaking:
    """A connection that breaks once: before the commit of an operation, or after it and before the reply."""

    def __init__(self, name: str, *, landed: bool) -> None:
        self.name, self.landed, self.broken = name, landed, 0

    def sync(self, run):
        """Break a synchronous operation."""

        def broken(operation, **options):
            if operation.name != self.name or self.broken:
                return run(operation, **options)
            self.broken += 1
            if self.landed:
                run(operation, **options)
            raise StoreBusy("the connection is gone")

        return broken

    def aio(self, arun):
        """Break an asynchronous operation."""

        async def broken(operation, **options):
            """Break once."""
            if operation.name != self.name or self.broken:
                return await arun(operation, **options)
            self.broken += 1
            if self.landed:
                await arun(operation, **options)
            raise StoreBusy("the connection is gone")

        return broken


landed = pytest.mark.parametrize("landed", [True, False], ids=["landed", "did not land"])


@pytest.mark.case("D25")
@landed
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_a_settle_can_be_repeated(app, monkeypatch, landed, fails):
    """Settle again after a lost reply: one line of history, one result, one catch, and no lease counts as lost."""
    caught = []

    @app.task(retry="0 catch recover")
    def work() -> str:
        """Succeed or fail."""
        if fails:
            raise ValueError("boom")
        return "done"

    @app.task
    def recover(request: CatchRequest) -> None:
        """Record that it ran."""
        caught.append(request.job_id)

    job = work.enqueue()
    breaking = Breaking("settle", landed=landed)
    monkeypatch.setattr(app.store, "arun", breaking.aio(app.store.arun))

    async def run() -> None:
        """Run a worker until the job has ended."""
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        while app.jobs.stats().unfinished:
            await asyncio.to_thread(lambda: None)
        worker.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), PATIENCE))

    assert (1, ["failed" if fails else "succeeded"]) == (breaking.broken, [each.outcome for each in job.attempts])
    assert (State.DEAD, [job.id]) == (job.refresh().state, caught) if fails else ("done", []) == (job.result(), caught)


@pytest.mark.case("D25")
@landed
def test_an_answer_can_be_repeated(app, monkeypatch, landed):
    """Answering twice reports "by you, before" if the first answer was committed, and commits it if not."""
    tokens = []

    @app.task
    def ask(context: Context) -> str | Pending:
        """Wait for an answer from outside."""
        tokens.append(context.attempt_uid)
        return Pending("1h")

    job = ask.enqueue()
    drain(app)
    monkeypatch.setattr(app.store, "run", Breaking("complete", landed=landed).sync(app.store.run))
    with pytest.raises(StoreBusy):
        app.complete(tokens[0], "yes")

    assert landed is not app.complete(tokens[0], "yes")
    assert False is app.complete(tokens[0], "yes")
    assert ("yes", ["succeeded"]) == (job.result(), [each.outcome for each in job.attempts])
