"""Progress that a handler reports while it runs: fenced, at most once a second, harmless to a healthy attempt."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from redrive import App, Context
from redrive.app.attempts import handle as link_module
from redrive.app.attempts.handle import EVERY, AttemptHandle
from redrive.errors import LeaseLost, PayloadError, StoreBusy
from redrive.runtime.heartbeat import Heartbeat
from redrive.testing import drain
from tests.runtime.helpers import PATIENCE, ManualClock, Recorded, Registered, take, until, working


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Return the clock by which writes are combined."""
    time = ManualClock()
    monkeypatch.setattr(link_module, "_monotonic", time)
    return time


@pytest.fixture
def link(app: App, time: ManualClock) -> AttemptHandle:
    """Return the link of an attempt."""
    app.task(name="send")(lambda: None).enqueue()
    (claim,) = take(app)
    return AttemptHandle(claim, app.store, app.now, lambda value: None, None)


def last_progress(app: App) -> Any:
    """Return the progress that was written last."""
    progress = app.job(1).progress
    return None if progress is None else json.loads(progress.details)


def test_a_heartbeat_is_seen(app: App):
    """Jobs show the progress that their handler reported, with its lease and its time."""

    @app.task
    def work(context: Context) -> None:
        """Report progress."""
        context.heartbeat({"done": 1, "of": 2})

    job = work.enqueue()
    before = job.progress
    drain(app)
    after = job.progress

    assert before is None
    assert after is not None
    assert (job.attempts[0].lease_id, app.now()) == (after.lease_id, after.at)
    assert {"done": 1, "of": 2} == last_progress(app)


def test_the_last_report_is_written_with_the_end(app: App):
    """Reports of the last second are not lost, so the next attempt can continue there."""
    found = []

    @app.task(retry="1 1m")
    async def work(context: Context) -> None:
        """Continue after the last page that was reported; the first attempt fails there."""
        found.append(last_progress(app))
        for page in range(3):
            await context.aheartbeat(page)
        if context.attempt == 1:
            raise OSError("the line is cut")

    work.enqueue()
    drain(app)

    assert [None, 2] == found


def test_a_last_report_that_cannot_be_written_costs_no_attempt(app: App, monkeypatch, caplog):
    """The handler has done its work: the job succeeds, and the log names it."""
    arun = app.store.arun

    async def refuse_reports(operation, **kwargs: object) -> object:
        """Refuse the second report, as a database does that is briefly away."""
        if operation.name == "report":
            raise StoreBusy("locked")
        return await arun(operation, **kwargs)

    @app.task
    async def work(context: Context) -> None:
        """Report twice."""
        await context.aheartbeat(0)
        monkeypatch.setattr(app.store, "arun", refuse_reports)
        await context.aheartbeat(1)

    job = work.enqueue()
    drain(app)

    assert (["succeeded"], 0) == ([each.outcome for each in job.attempts], last_progress(app))
    assert f"job {job.id}: its last progress report could not be written: locked" in caplog.text


def test_a_heartbeat_can_be_awaited(app: App):
    """Awaiting a heartbeat does not block the event loop."""

    @app.task
    async def work(context: Context) -> None:
        """Report progress."""
        await context.aheartbeat([1, 2])

    work.enqueue()
    drain(app)

    assert [1, 2] == last_progress(app)


def test_more_than_one_a_second_are_put_together(app: App, link: AttemptHandle, time: ManualClock):
    """Write the first report at once, and of the others the latest when the second is over."""
    for number in range(3):
        link.heartbeat(number, force=False)
    at_once, too_early = last_progress(app), link.due_report()
    time.seconds += EVERY
    late = link.due_report()

    assert (0, None) == (at_once, too_early)
    assert (link.claim.id, link.claim.lease_id, "2") == (late.job_id, late.lease_id, late.details)
    assert None is link.due_report()


def test_the_next_heartbeat_after_a_second_is_written(app: App, link: AttemptHandle, time: ManualClock):
    """Write the next report after a second, and no older one after it."""
    link.heartbeat(0, force=False)
    link.heartbeat(1, force=False)
    time.seconds += EVERY
    link.heartbeat(2, force=False)
    time.seconds += EVERY

    assert (2, None) == (last_progress(app), link.due_report())


def test_a_forced_heartbeat_is_written_at_once(app: App, link: AttemptHandle):
    """Write a forced heartbeat at once, for example before a long step."""
    link.heartbeat(0, force=False)
    link.heartbeat(1, force=True)

    assert (1, None) == (last_progress(app), link.due_report())


def test_a_heartbeat_without_details_leaves_them(app: App, link: AttemptHandle, time: ManualClock):
    """Without details a heartbeat only checks that the lease is current."""
    link.heartbeat("half", force=False)
    link.heartbeat(None, force=False)
    time.seconds += EVERY
    link.heartbeat(None, force=False)

    assert ("half", None) == (last_progress(app), link.due_report())


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_stale_heartbeat_is_refused(app: App, link: AttemptHandle, colour: str):
    """Heartbeats under a stale lease change nothing; later ones are refused without a query (D16)."""

    def beat(details: int) -> None:
        if colour == "sync":
            link.heartbeat(details, force=False)
        else:
            asyncio.run(link.aheartbeat(details, force=False))

    app.job(1).cancel()
    for details in (1, 2):
        with pytest.raises(LeaseLost, match=r"attempt 1\.\d+ is over"):
            beat(details)

    assert (None, True) == (last_progress(app), link.reason is not None)


def test_details_that_are_no_json_are_refused(link: AttemptHandle):
    """At the place where the mistake is."""
    with pytest.raises(PayloadError, match="the details of a progress report cannot be written as JSON"):
        link.heartbeat(object(), force=False)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_database_that_is_away_ends_no_attempt(
    app: App, link: AttemptHandle, time: ManualClock, monkeypatch, colour: str
):
    """Reports that could not be written are left to the worker; only a forced heartbeat fails."""

    def busy(*_: object, **__: object) -> None:
        raise StoreBusy("locked")

    async def abusy(*_: object, **__: object) -> None:
        """Report progress with the database unreachable, from a coroutine."""
        raise StoreBusy("locked")

    monkeypatch.setattr(app.store, "run", busy)
    monkeypatch.setattr(app.store, "arun", abusy)

    def beat(*, force: bool) -> None:
        if colour == "sync":
            link.heartbeat("half", force=force)
        else:
            asyncio.run(link.aheartbeat("half", force=force))

    beat(force=False)
    time.seconds += EVERY
    report = link.due_report()

    assert report is not None
    assert '"half"' == report.details
    with pytest.raises(StoreBusy):
        beat(force=True)


def test_the_heartbeat_writes_what_is_left(app: App, link: AttemptHandle, time: ManualClock):
    """Write the remaining reports of all handlers of the worker in one transaction."""
    link.heartbeat(0, force=False)
    link.heartbeat(1, force=False)
    time.seconds += EVERY

    attempts = Recorded()
    attempts.waiting = [link.due_report()]
    Heartbeat(app, Registered(app), attempts)._report()

    assert 1 == last_progress(app)


def test_a_worker_writes_the_reported_progress(filed: App, monkeypatch: pytest.MonkeyPatch):
    """After a report the handler continues without waiting for the write."""
    monkeypatch.setattr(link_module, "EVERY", 0.02)

    async def run() -> Any:
        """Run it on an event loop."""
        go = asyncio.Event()

        @filed.task
        async def work(context: Context) -> None:
            """Report progress many times, and wait."""
            for number in range(100):
                await context.aheartbeat(number)
            await go.wait()

        job = await work.aenqueue()
        async with working(filed), asyncio.timeout(PATIENCE):
            await until(lambda: job.progress is not None and job.progress.details == "99")
            go.set()
            await job.aresult()

    asyncio.run(run())

    assert 99 == last_progress(filed)
