"""Handlers that leave the end of their attempt to an external system."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive import App, CatchRequest, Context, GiveUp, Pending, RetryAfter, Snooze, observe
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Suspended
from redrive.errors import Cancel, JobNotFound, LeaseLost, PayloadError, PolicyError, StoreError, TokenError
from redrive.runtime.timeouts import Timeouts
from redrive.testing import VirtualClock, drain
from tests.engine.helpers import seconds
from tests.runtime.helpers import PATIENCE, app_on, repeat, run_due, take, until, working


@dataclass(frozen=True)
class Receipt:
    """The type of the answer of the external system."""

    number: str


@pytest.fixture
def tokens(app: App) -> list[str]:
    """Return the tokens that the handler of the task `charge` has handed out."""
    given: list[str] = []

    @app.task(retry="1 1s")
    def charge(cents: int, context: Context) -> Receipt | Pending:
        """Hand out the token, and return Pending."""
        given.append(context.attempt_uid)
        return Pending("1h")

    return given


def asked(app: App, tokens: list[str]):
    """Return a job with a returned handler, and its token."""
    job = app.tasks["charge"].enqueue(250)
    drain(app)
    return job, tokens[-1]


def test_pending_is_an_outcome(app: App):
    """Record the given timeout, for any kind of function that returned it."""

    async def charge() -> Pending:
        """Hand out the token, and return Pending."""
        return Pending(90)

    app.task(charge).enqueue()

    assert Suspended(seconds(90)) == run_due(app)
    assert "Pending(datetime.timedelta(seconds=90))" == repr(Pending("1m30s"))


def test_an_invalid_timeout_is_an_error_of_the_handler(app: App):
    """Raise the error where the mistake was made."""
    with pytest.raises(PolicyError):
        Pending("soon")


def test_the_answer_is_the_result(app: App, tokens: list[str]):
    """After the answer the waiting job has succeeded, and its result is decoded without `Pending`."""
    job, token = asked(app, tokens)
    waiting = job.refresh().state, job.why

    assert (State.WAITING, "waiting for an answer from outside until 2026-01-01 01:00:00 UTC") == waiting
    assert (True, False) == (app.complete(token, Receipt("R1")), app.complete(token, Receipt("R1")))
    assert Receipt("R1") == job.result()


def test_the_answer_can_be_awaited(app: App, tokens: list[str]):
    """Asynchronous forms do the same."""
    job, token = asked(app, tokens)
    other, failing = asked(app, tokens)

    async def answer() -> list[bool]:
        """Answer for both."""
        return [await app.acomplete(token, Receipt("R1")), await app.afail(failing, GiveUp("declined"))]

    assert [True, True] == asyncio.run(answer())
    assert (State.SUCCEEDED, State.DEAD) == (job.refresh().state, other.refresh().state)


@pytest.mark.parametrize("result", [None, "R1", {"numbr": "R1"}, object()], ids=["None", "text", "typo", "object"])
def test_a_result_that_does_not_fit_is_refused(app: App, tokens: list[str], result: object):
    """Results of a wrong type raise in the process that completes the job, and the job continues to wait."""
    job, token = asked(app, tokens)
    with pytest.raises(PayloadError, match="the result"):
        app.complete(token, result)

    assert State.WAITING is job.refresh().state


def test_a_value_of_the_same_shape_is_accepted_as_the_result(app: App, tokens: list[str]):
    """External systems may pass any value of the same shape as the result."""
    job, token = asked(app, tokens)
    app.complete(token, {"number": "R1"})

    assert Receipt("R1") == job.result()


def test_an_app_without_the_task_takes_plain_json(app: App, tokens: list[str]):
    """Processes that only receive webhooks need not import the tasks."""
    job, token = asked(app, tokens)
    del app.tasks["charge"]  # type: ignore[attr-defined]
    app.complete(token, {"number": "R1"})

    assert {"number": "R1"} == job.result()


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        ("declined", State.READY, "ERROR"),
        (ValueError("declined"), State.READY, "ERROR"),
        (RetryAfter("5m", "declined"), State.READY, "RETRY_AFTER"),
        (GiveUp("declined"), State.DEAD, "GAVE_UP"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_external_error_is_decided_like_one_of_the_handler(app: App, tokens: list[str], error, state, reason):
    """Use the class of the error, its text and its signals."""
    job, token = asked(app, tokens)
    answered = app.fail(token, error), app.fail(token, error)

    assert (True, False) == answered
    assert (state, reason, "declined") == (job.refresh().state, job.record.reason, job.record.error)
    assert 1 == job.record.failures


@pytest.mark.parametrize("error", [Snooze(1), Cancel("enough"), 7, KeyboardInterrupt()], ids=repr)
def test_other_signals_are_refused(app: App, tokens: list[str], error):
    """External systems report a success or a failure; the other signals are for handlers."""
    job, token = asked(app, tokens)
    with pytest.raises(PayloadError, match=r"fail\(\) takes an error or its text"):
        app.fail(token, error)

    assert State.WAITING is job.refresh().state


@pytest.mark.parametrize(
    "token", ["", "1", "1.", ".1", "1.2.3", "1.x", "-1.2", "01.2", "1.2 ", "1" * 30 + ".1", f"1.{2**63}", None, 1.2]
)
def test_an_invalid_token_is_refused(app: App, token):
    """Invalid tokens raise an error that shows the form of a token."""
    with pytest.raises(TokenError, match=r"is no token.*'3\.7'"):
        app.complete(token)
    with pytest.raises(TokenError):
        app.fail(token, "boom")


def test_a_token_of_no_job_is_refused(app: App, tokens: list[str]):
    """Refuse a token that may belong to another database."""
    with pytest.raises(JobNotFound):
        app.complete("4711.1", Receipt("R1"))
    with pytest.raises(JobNotFound):
        app.fail("4711.1", "boom")


def test_a_token_of_an_earlier_attempt_is_refused(app: App, tokens: list[str]):
    """After a retry the token of the earlier attempt is refused."""
    job, first = asked(app, tokens)
    app.fail(first, "boom")
    drain(app)
    with pytest.raises(LeaseLost, match=f"attempt {first} has ended before: failed: boom"):
        app.complete(first, Receipt("R1"))
    app.complete(tokens[-1], Receipt("R2"))

    assert (2, Receipt("R2")) == (len(set(tokens)), job.result())


def test_a_waiting_attempt_reports_its_progress(app: App, tokens: list[str]):
    """The system outside reports details by the token, in both colours, and the job goes on waiting."""
    job, token = asked(app, tokens)
    app.report(token, {"message": "half is done", "percent": 50})
    app.report(token, None)
    kept = job.progress

    assert {"message": "half is done", "percent": 50} == json.loads(kept.details)
    asyncio.run(app.areport(token, "almost"))
    assert ('"almost"', State.WAITING) == (job.progress.details, job.refresh().state)


def test_a_report_to_an_attempt_that_is_over_is_refused(app: App, tokens: list[str]):
    """Reports to ended and earlier attempts, for no job, and of no JSON are refused."""
    job, first = asked(app, tokens)
    app.fail(first, "boom")
    drain(app)
    with pytest.raises(LeaseLost, match=f"attempt {first} is over: job {job.id} is waiting"):
        app.report(first, "late")
    with pytest.raises(PayloadError, match="progress report cannot be written as JSON"):
        app.report(tokens[-1], object())
    app.complete(tokens[-1], Receipt("R2"))
    with pytest.raises(LeaseLost, match="is succeeded, and the report changes nothing"):
        app.report(tokens[-1], "late")
    with pytest.raises(JobNotFound):
        app.report("4711.1", "x")
    with pytest.raises(TokenError):
        app.report("x", "x")

    assert None is job.progress


def test_an_expired_wait_is_a_failure(app: App, tokens: list[str]):
    """After the timeout the policy decides; a drain does not advance the clock to it."""
    job, token = asked(app, tokens)
    app.clock.advance("1h")  # type: ignore[union-attr]
    drain(app)

    assert (State.WAITING, 2, "TIMEOUT") == (job.refresh().state, job.record.attempt, job.record.reason)
    with pytest.raises(LeaseLost, match=f"attempt {token} has ended before: failed: no answer came in time"):
        app.complete(token, Receipt("R1"))

    app.clock.advance("1h")  # type: ignore[union-attr]
    drain(app)

    assert (State.DEAD, 2) == (job.refresh().state, job.record.failures)


def test_an_external_failure_can_run_the_catch_task(app: App):
    """Catch tasks can wait for an external system like any other task."""
    given = []

    @app.task(retry="0 catch recover")
    def send() -> None:
        """Fail."""
        raise ValueError("boom")

    @app.task
    def recover(request: CatchRequest, context: Context) -> None:
        """Hand out the token, whatever the annotation is."""
        given.append(context.attempt_uid)
        return Pending("1h")  # type: ignore[return-value]

    job = send.enqueue()
    drain(app)
    before = job.refresh().caught_at
    app.complete(given[0])

    assert (None, True) == (before, job.refresh().caught_at is not None)


def test_a_waiting_job_takes_no_slot(filed: App):
    """While a job waits, its only slot runs the next job; the answer is seen at once."""

    @filed.task
    async def ask(number: int) -> int | Pending:
        """Ask for the first one."""
        return Pending("1h") if number == 1 else number

    async def run() -> tuple[int, int]:
        """Run it on an event loop."""
        first, second = [await ask.aenqueue(number) for number in (1, 2)]
        async with working(filed, concurrency=1), asyncio.timeout(PATIENCE):
            result = await second.aresult()
            record = (await first.arefresh()).record
            await filed.acomplete(f"{first.id}.{record.lease_id}", 1)
            return result, await first.aresult()

    assert (2, 1) == asyncio.run(run())


def test_a_worker_ends_expired_waits(tmp_path: Path):
    """At their end, however seldom it beats."""
    filed = app_on(tmp_path, heartbeat_every="10m", lease_for="30m")

    @filed.task
    async def ask() -> Pending:
        """Return Pending, and hand out no token."""
        return Pending("20ms")

    async def run() -> None:
        """Run it on an event loop."""
        job = await ask.aenqueue()
        async with working(filed), asyncio.timeout(PATIENCE):
            await until(lambda: job.refresh().state is State.DEAD)

    asyncio.run(run())
    (line,) = filed.job(1).attempts
    filed.close()

    assert "TIMEOUT" == line.reason


class Resting(VirtualClock):
    """A clock that advances while a duty rests, and stops the duty after a number of rests."""

    def __init__(self, rests: int) -> None:
        super().__init__()
        self.rests: list[float] = []
        self._left = rests

    async def asleep(self, seconds: float) -> None:
        """Pass."""
        self.rests.append(round(seconds, 6))
        self.advance(seconds)
        if len(self.rests) == self._left:
            raise asyncio.CancelledError


def test_expired_waits_end_at_their_exact_time():
    """Check once a second, and exactly when the first wait ends, until no job waits."""
    clock = Resting(5)
    app = App("memory://", clock=clock)

    @app.task
    def ask() -> Pending:
        """Return Pending, and hand out no token."""
        return Pending("2500ms")

    job = ask.enqueue()
    drain(app)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeat(Timeouts(app).duty, clock))

    assert ([1, 1, 0.5, 0.01, 1], State.DEAD) == (clock.rests, job.refresh().state)
    assert seconds(2.5) == job.attempts[0].finished_at - job.attempts[0].started_at
    app.close()


def test_the_duty_cancels_expired_jobs(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Jobs that expire before they start are cancelled when they expire, with a line in the log and an event."""
    clock = Resting(4)
    app = app_on(tmp_path, clock=clock)

    @app.task
    def send() -> None:
        """Do nothing."""

    late = send.options(expires=1.5).enqueue()
    send.enqueue()
    events: list[observe.Event] = []
    with (
        pytest.raises(asyncio.CancelledError),
        observe.only(events.append, observe.log),
        caplog.at_level("INFO", "redrive"),
    ):
        asyncio.run(repeat(Timeouts(app).duty, clock))

    assert ([1, 0.5, 0.01, 1], State.CANCELLED) == (clock.rests, late.refresh().state)
    assert [late.id] == [event.job_id for event in events if isinstance(event, observe.JobCancelled)]
    assert f"job {late.id} (send) is cancelled: it had not started when it expired" in caplog.messages
    app.close()


def test_waits_end_later_while_the_database_is_unreachable(app: App, monkeypatch):
    """If the database is unreachable, the duty logs it and tries again."""
    clock = Resting(2)

    async def away(operation: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(app.store, "arun", away)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeat(Timeouts(app).duty, clock))
    monkeypatch.undo()

    assert [1, 1] == clock.rests


def test_an_answer_may_precede_the_start_of_the_wait(app: App):
    """If the external system answers before the handler returns, the job has succeeded."""

    @app.task
    def ask(context: Context) -> str | Pending:
        """Complete the attempt before the handler returns."""
        app.complete(context.attempt_uid, "quick")
        return Pending("1h")

    job = ask.enqueue()
    drain(app)

    assert ("quick", 1) == (job.result(), len(job.attempts))
    assert () == take(app)
