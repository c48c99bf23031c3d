"""Handles on jobs: reading, waiting, and acting on the job."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import App, CatchRequest, GiveUp, Snooze
from redrive.errors import (
    IllegalMove,
    JobCancelled,
    JobDead,
    JobError,
    JobNotFound,
    PayloadError,
    PolicySyntaxError,
    ResultTimeout,
)
from redrive.stores.drivers.sqlite import external
from redrive.testing import VirtualClock, drain
from tests.app.samples import AT, Line, Order


def double(number: int) -> int:
    """Double."""
    return 2 * number


def order(number: int) -> Order:
    """Return something typed."""
    return Order(number, (Line("nail"),), AT)


def decline(number: int) -> int:
    """Fail for good."""
    raise GiveUp("the card is stolen")


def fail(number: int) -> int:
    """Fail."""
    raise ConnectionError("no route")


def recover(request: CatchRequest[int]) -> None:
    """Catch."""


def test_a_handle_reads_the_database_at_each_call(app: App):
    """State and record are as last read; refresh() reads again and gives the handle."""
    job = app.task(double).enqueue(4)
    before = job.state
    drain(app)

    assert ("ready", "ready") == (before, job.state)
    assert "succeeded" == job.refresh().state
    assert "succeeded" == asyncio.run(job.arefresh()).state
    assert f"<job {job.id}>" == repr(job)


def test_the_history_of_a_job_is_read_now(app: App):
    """Closed attempts, oldest first, with what was decided after each."""
    job = app.task(retry="1 3s")(fail).enqueue(1)
    before = job.attempts
    drain(app)

    assert () == before
    assert [(1, "failed", timedelta(seconds=3)), (2, "failed", None)] == [
        (each.number, each.outcome, each.delay) for each in job.attempts
    ]


def test_a_job_explains_why_it_is_not_running(app: App, clock: VirtualClock):
    """Jobs have one line with the reason why they do not run, by the app's own clock."""
    job = app.task(double).options(delay="1h").enqueue(1)
    clock.advance("10m")

    assert "scheduled: due in 50m" == job.why


@pytest.mark.parametrize(("function", "expected"), [(double, 8), (order, Order(4, (Line("nail"),), AT))])
def test_the_result_has_the_type_that_the_task_promises(app: App, function, expected):
    """Results are read by the return annotation."""
    job = app.task(function).enqueue(4)
    drain(app)

    assert expected == job.result()
    assert expected == asyncio.run(job.aresult())


def test_the_result_of_a_task_that_is_not_here_is_plain_json(app: App):
    """Another process may have the task; its result can be read all the same."""
    job = app.task(order).enqueue(4)
    drain(app)
    app.tasks.clear()

    assert 4 == job.result()["number"]


def test_a_handler_without_a_result_returns_none(app: App):
    """Handlers that return nothing have the result None."""

    @app.task
    def nothing() -> None:
        """Return nothing."""

    job = nothing.enqueue()
    drain(app)

    assert None is job.result()


def test_a_result_that_no_longer_fits_is_an_error(app: App):
    """Tasks with a changed return annotation cannot read earlier results."""
    job = app.task(double).enqueue(4)
    drain(app)
    app.tasks.clear()
    app.task(name="double")(order)

    with pytest.raises(PayloadError, match="the stored result does not match -> Order"):
        job.result()


def test_a_dead_job_has_no_result(app: App):
    """Dead jobs raise a JobError with their last error."""
    job = app.task(retry="5 1s")(decline).enqueue(1)
    drain(app)

    with pytest.raises(JobDead) as dead:
        job.result()

    expected = "job 1 (decline) gave up: the card is stolen (GAVE_UP; the card is stolen)"
    assert expected == str(dead.value)
    assert isinstance(dead.value, JobError)


def test_a_cancelled_job_has_no_result(app: App):
    """Cancelled jobs raise an error with the reason, in both colours."""
    job = app.task(double).enqueue(1)
    job.cancel("ordered twice")

    with pytest.raises(JobCancelled, match=r"job 1 \(double\) was cancelled: ordered twice"):
        job.result()
    with pytest.raises(JobCancelled):
        asyncio.run(job.aresult())


def test_waiting_for_a_result_ends_in_time(app: App):
    """After the timeout a TimeoutError has the reason of the wait, and the job goes on."""
    job = app.task(double).options(delay="1h").enqueue(1)

    with pytest.raises(ResultTimeout, match="job 1 is ready after 0: scheduled: due in 1h"):
        job.result(timeout=0)
    with pytest.raises(TimeoutError):
        asyncio.run(job.aresult(timeout="1ms"))


def test_a_timeout_that_cannot_be_read_is_refused(app: App):
    """Timeouts are durations; others are refused."""
    with pytest.raises(PolicySyntaxError):
        app.task(double).enqueue(1).result(timeout="soon")


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[App]:
    """Yield an app on a file."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", clock=VirtualClock())
    yield app
    app.close()


@pytest.mark.parametrize("kind", ["app", "filed"])
def test_a_waiting_caller_sees_the_end_of_the_job(request: pytest.FixtureRequest, kind):
    """Waiting callers get the result when the job ends, on a file and in memory."""
    app: App = request.getfixturevalue(kind)
    job = app.task(double).enqueue(21)
    results: list[int] = []
    waiting = threading.Thread(target=lambda: results.append(job.result(timeout="30s")))
    waiting.start()
    drain(app)
    waiting.join()

    assert [42] == results


# --------------------------------------------------------------------------------------------------- cancel and retry


def test_a_job_is_cancelled_once(app: App):
    """Only the first cancel has an effect, and the handler never runs."""
    job = app.task(double).enqueue(1)

    assert [True, False] == [job.cancel(), job.cancel()]
    assert (0, "cancelled") == (drain(app).attempts, job.refresh().state)
    assert "cancelled: cancelled by an operator" == job.why


def test_a_job_can_be_cancelled_from_a_coroutine(app: App):
    """``acancel`` does what ``cancel`` does."""
    job = app.task(double).enqueue(1)

    assert True is asyncio.run(job.acancel("no longer wanted"))
    assert "no longer wanted" == job.record.note


def test_a_finished_job_is_not_cancelled(app: App):
    """Succeeded jobs cannot be cancelled."""
    job = app.task(double).enqueue(1)
    drain(app)

    assert (False, "succeeded") == (job.cancel(), job.refresh().state)


def test_retrying_a_waiting_job_makes_it_due_now(app: App, clock: VirtualClock):
    """retry() makes it due now."""
    job = app.task(double).options(delay="1h").enqueue(1)
    job.retry()

    assert clock.now() == job.refresh().record.scheduled_at


def test_a_retried_dead_job_gets_one_more_attempt(app: App):
    """``retry()`` forgives one failure, so a job without retries left runs exactly once more."""
    job = app.task(retry="1 1s")(fail).enqueue(1)
    drain(app)
    job.retry()
    drain(app)

    assert ("dead", 3) == (job.refresh().state, len(job.attempts))


@pytest.mark.parametrize("caught", [True, False])
def test_retrying_a_succeeded_or_caught_job_is_refused(app: App, caught):
    """Jobs that have succeeded or were caught cannot run again."""
    app.task(recover)
    job = app.task(retry="0 catch recover")(fail if caught else double).enqueue(1)
    drain(app)

    why = "job 1 was caught" if caught else "a succeeded job cannot run again"
    with pytest.raises(IllegalMove, match=why):
        job.retry()


@pytest.mark.parametrize("ask", ["refresh", "result", "cancel", "retry"])
def test_a_missing_job_raises_an_error(app: App, ask):
    """Whatever is asked of it, the answer is that there is none; a LookupError too."""
    with pytest.raises(JobNotFound, match="there is no job 99"):
        getattr(app.job(99), ask)()
    with pytest.raises(LookupError):
        getattr(app.job(99), ask)()


def test_the_history_of_a_job_that_is_not_there_is_empty(app: App):
    """History is a list of attempts; there are none."""
    assert () == app.job(99).attempts


def test_a_snoozed_job_shows_its_reason(app: App):
    """Snoozed jobs show the reason of their handler."""

    @app.task
    def later() -> None:
        """Ask to be called later."""
        raise Snooze("10m", "the market is closed")

    job = later.enqueue()
    drain(app, within="1m")

    assert "snoozed: due in 10m (the market is closed)" == job.refresh().why
    assert (0, 1) == (job.record.attempt, job.record.snoozes)


ASKED = {
    "refresh": lambda job: job.refresh(),
    "arefresh": lambda job: asyncio.run(job.arefresh()),
    "result": lambda job: job.result("1s"),
    "attempts": lambda job: job.attempts,
    "progress": lambda job: job.progress,
    "cancel": lambda job: job.cancel(),
    "acancel": lambda job: asyncio.run(job.acancel()),
    "retry": lambda job: job.retry(),
    "aretry": lambda job: asyncio.run(job.aretry()),
    "skip": lambda job: job.skip(),
    "askip": lambda job: asyncio.run(job.askip()),
}


@pytest.mark.parametrize("ask", ASKED)
def test_a_handle_of_a_rolled_back_enqueue_names_no_other_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
):
    """If another process has given the id to another job, the handle raises an error and changes nothing."""
    with contextlib.closing(App(f"sqlite:///{tmp_path / 'jobs.db'}", clock=VirtualClock())) as app:
        work = app.task(double)
        app.open()
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as mine:
            kept = work.enqueue(1, using=mine)
            mine.commit()
            lost = work.enqueue(2, using=mine)
            mine.rollback()
        monkeypatch.setattr(external, "_highest_ids", {})  # as in a process that has not enqueued anything
        app.clock.advance("1ms")
        other = work.enqueue(3)

        assert lost.id == other.id
        with pytest.raises(JobNotFound, match="another one has the number 2 now"):
            ASKED[ask](lost)
        assert ("ready", "ready") == (kept.state, other.refresh().state)
        assert kept.cancel()


TAKEN = {
    "result": lambda job: job.result(),
    "aresult": lambda job: asyncio.run(job.aresult()),
    "why": lambda job: job.why,
}


@pytest.mark.parametrize("ask", TAKEN)
def test_a_handle_does_not_take_the_result_of_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str):
    """If the job that has the id now has ended, the handle raises an error."""
    with contextlib.closing(App(f"sqlite:///{tmp_path / 'jobs.db'}", clock=VirtualClock())) as app:
        work = app.task(double)
        app.open()
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as mine:
            lost = work.enqueue(2, using=mine)
            mine.rollback()
        monkeypatch.setattr(external, "_highest_ids", {})  # as in a process that has not enqueued anything
        app.clock.advance("1ms")
        work.enqueue(3)
        drain(app)

        with pytest.raises(JobNotFound, match="another one has the number 1 now"):
            TAKEN[ask](lost)
