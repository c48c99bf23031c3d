"""Events of jobs: each decision emits one event after it was written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, Pending, observe
from redrive.app.events import emit_settled
from redrive.engine.outcome import Released
from redrive.engine.records import Filter, Hold
from redrive.errors import Cancel, DuplicateJob, Snooze
from redrive.observe.listeners import LISTENERS
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import Ending
from redrive.testing import VirtualClock, drain

SECOND = timedelta(seconds=1)


@dataclass
class Bought:
    """An event of a machine."""


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


@pytest.fixture
def emitted() -> Iterator[list[observe.Event]]:
    """Return the list of emitted events."""
    events: list[observe.Event] = []
    with observe.only(events.append):
        yield events


def names(events: list[observe.Event]) -> list[str]:
    """Return the classes of events."""
    return [type(event).__name__ for event in events]


def run(app: App, error: BaseException | None = None, **options: Any) -> int:
    """Enqueue a job with a handler that raises an error, drain, and return its id."""

    @app.task(**options)
    def work() -> None:
        if error is not None:
            raise error

    number = work.enqueue().id
    drain(app, sample=lambda: 0.0)
    return number


def test_a_successful_job_emits_its_events(app: App, emitted: list):
    """Successful jobs emit events before and after the enqueue, at the start and at the end, with their fields."""
    number = run(app, queue="mail")

    assert ["JobsEnqueuing", "JobEnqueued", "JobStarted", "JobSucceeded"] == names(emitted)
    assert [("work", "mail", number)] * 3 == [(each.task, each.queue, each.job_id) for each in emitted[1:]]
    assert (1, timedelta(0)) == (emitted[-1].attempt, emitted[-1].took)
    assert (1, None, None) == (emitted[2].attempt, emitted[2].delay, emitted[2].trace)


def test_a_retry_emits_its_delay_and_rule(app: App, emitted: list):
    """Retry events have the delay, the rule and the failure; the next start has the delay."""
    run(app, ConnectionError("connection refused"), retry="1 7s")
    retry = next(each for each in emitted if isinstance(each, observe.JobRetryScheduled))
    starts = [each for each in emitted if isinstance(each, observe.JobStarted)]

    assert (1, 7 * SECOND, "backoff") == (retry.attempt, retry.delay, retry.rule)
    assert ("builtins.ConnectionError", "connection refused") == (retry.error_type, retry.error)
    assert [(1, None), (2, 7 * SECOND)] == [(each.attempt, each.delay) for each in starts]


def test_a_job_that_gives_up_emits_its_death_and_its_catch(app: App, emitted: list):
    """It died, its catch job ran, and the dead job is caught."""

    @app.task
    def recover(request: CatchRequest) -> None:
        """Take it."""

    @app.task(retry="0 1s catch recover")
    def work(order: int) -> None:
        raise ValueError(order)

    number = work.enqueue(7).id
    drain(app)
    died = next(each for each in emitted if isinstance(each, observe.JobDied))
    caught = next(each for each in emitted if isinstance(each, observe.JobCaught))

    assert (1, "attempts", "recover") == (died.attempt, died.rule, died.catch)
    assert (number, "recover", number + 1) == (caught.job_id, caught.task, caught.catch_id)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Snooze("5s", "not yet"), [("JobSnoozed", "not yet")]),
        (Cancel("no longer wanted"), [("JobCancelled", "no longer wanted")]),
    ],
)
def test_a_signal_emits_its_own_event(app: App, emitted: list, error, expected):
    """Handlers that snooze or cancel their job emit these events, with the reason."""

    @app.task
    def work() -> None:
        raise error

    work.enqueue()
    drain(app, within="1s")

    assert expected == [(type(each).__name__, each.why) for each in emitted[3:]]


@pytest.mark.parametrize("fails", [False, True])
def test_an_external_answer_emits_the_end_of_the_attempt(app: App, emitted: list, fails):
    """Suspended attempts emit their end by `complete` or `fail`, and a repeated call emits nothing."""

    @app.task
    def work(ctx: Context) -> Pending | None:
        seen.append(ctx.attempt_uid)
        return Pending("1h")

    seen: list[str] = []
    work.enqueue()
    drain(app)
    answered = [app.fail(seen[0], "boom") if fails else app.complete(seen[0]) for _ in range(2)]

    assert [True, False] == answered
    assert ["JobSuspended", "JobDied" if fails else "JobSucceeded"] == names(emitted[3:])


def test_asynchronous_answers_emit_events(app: App, emitted: list):
    """So they are by `acomplete` and `afail`, and by `aenqueue`."""

    @app.task
    async def work(ctx: Context) -> Pending | None:
        seen.append(ctx.attempt_uid)
        return Pending("1h")

    async def scenario() -> None:
        await work.aenqueue()
        await work.aenqueue_many([()])
        await asyncio.to_thread(drain, app)
        await app.acomplete(seen[0])
        await app.afail(seen[1], ValueError("boom"))

    seen: list[str] = []
    asyncio.run(scenario())

    assert ["JobsEnqueuing", "JobEnqueued"] * 2 == names(emitted[:4])
    assert ["JobSucceeded", "JobDied"] == names(emitted[-2:])


def test_an_expired_wait_emits_a_failure(app: App, emitted: list):
    """Attempts without completion in time emit a failure."""

    @app.task
    def work() -> Pending:
        return Pending("1m")

    work.enqueue()
    drain(app)
    app.clock.advance(61)
    drain(app)

    assert ("JobDied", "TIMEOUT") == (names(emitted)[-1], emitted[-1].reason)


def test_a_job_that_never_starts_emits_its_death(app: App, emitted: list):
    """Its deadline had passed: it died at attempt 1, which did not start and took no time."""

    @app.task(retry="3 1s")
    def work() -> None:
        """Never called."""

    work.options(retry=work.policy.with_(deadline="1s")).enqueue()
    with observe.only():
        worker = app.store.run(workers.register("w", concurrency=1, lease_for=SECOND, now=app.now()))
        app.store.run(leases.claim(worker, 1, lease_for=SECOND, now=app.now()))
        app.store.run(workers.leave(worker, now=app.now()))
    app.clock.advance(5)
    drain(app)

    assert ["JobsEnqueuing", "JobEnqueued", "JobDied"] == names(emitted)
    assert (1, None, "deadline", "DEADLINE") == (
        emitted[-1].attempt,
        emitted[-1].took,
        emitted[-1].rule,
        emitted[-1].reason,
    )


def test_a_job_of_an_unknown_task_emits_its_release(app: App, emitted: list):
    """Jobs of unknown tasks are released with a stable word as the reason."""

    @app.task
    def work() -> None:
        """Forgotten."""

    work.enqueue()
    worker = app.store.run(workers.register("w", concurrency=1, lease_for=SECOND, now=app.now()))
    (claim,) = app.store.run(leases.claim(worker, 1, lease_for=SECOND, now=app.now())).claims
    endings = [Ending(claim, Released("this worker has no task 'work'", SECOND, Hold.UNKNOWN_TASK), 0.0)]
    emit_settled(endings, app.store.run(leases.settle(endings, now=app.now())))

    assert ["JobHeld"] == names(emitted[2:])
    assert ("unknown_task", 1) == (emitted[-1].hold, emitted[-1].attempt)


def test_cancels_emit_events(app: App, emitted: list):
    """Cancelled jobs emit events, one or many, in both colours; jobs that had ended before do not."""

    @app.task
    def work() -> None:
        """Never called."""

    jobs = work.options(delay="1h").enqueue_many([()] * 4)
    del emitted[:]
    jobs[0].cancel("first")
    jobs[0].cancel("again")
    asyncio.run(jobs[1].acancel("second"))
    app.jobs.cancel(Filter(all=True), why="all")
    app.jobs.cancel(Filter(all=True), why="none is left")

    assert ["first", "second", "all", "all"] == [each.why for each in emitted]
    assert [job.id for job in jobs] == [each.job_id for each in emitted]


def test_only_new_jobs_emit_events(app: App, emitted: list):
    """Enqueues that find an existing job, or are refused, emit no event."""

    @app.task
    def work() -> None:
        """Never called."""

    work.options(key="a").enqueue()
    work.options(key="a", on_conflict="existing").enqueue()
    with pytest.raises(DuplicateJob):
        work.options(key="a").enqueue()

    assert ["JobsEnqueuing", "JobEnqueued", "JobsEnqueuing", "JobsEnqueuing"] == names(emitted)


def test_no_event_is_built_without_a_listener(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Without sinks and with the logger switched off, no event is made for retries, a death and a catch."""
    caplog.set_level(logging.CRITICAL, "redrive")
    built: list[str] = []

    def counting(kind: type[observe.Event], init: Callable[..., None]) -> Callable[..., None]:
        def counted(self: observe.Event, **fields: Any) -> None:
            built.append(kind.__name__)
            init(self, **fields)

        return counted

    @app.task
    def recover(request: CatchRequest) -> None:
        """Take it."""

    for name in observe.__all__:
        kind = getattr(observe, name)
        if isinstance(kind, type) and issubclass(kind, observe.Event):
            monkeypatch.setattr(kind, "__init__", counting(kind, kind.__init__))
    run(app, ValueError("boom"), retry="1 1s catch recover")
    unheard = list(built)
    with observe.only(lambda event: None):
        app.tasks["work"].enqueue()
        drain(app)
    once = ["JobsEnqueuing", "JobEnqueued", "JobStarted", "JobRetryScheduled", "JobStarted", "JobDied"]

    assert ([], []) == (LISTENERS, unheard)
    assert [*once, "JobStarted", "JobSucceeded", "JobCaught"] == built


def test_events_name_the_origin_of_their_job(app: App):
    """Events of a transition have its origin, and the kind of that as a label; other jobs are of the kind `task`."""
    seen: list[observe.Event] = []
    machine = app.machine("payment", retry="1 1s")

    @machine.start
    def created(event: Bought, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("no")

    @app.task
    def plain() -> None:
        """Do nothing."""

    with observe.only(seen.append):
        machine.send("a", Bought())
        plain.enqueue()
        drain(app)
    jobs = [event for event in seen if isinstance(event, observe.JobEvent)]

    found = {(type(event).__name__, event.origin, event.kind) for event in jobs}
    for name in ("JobStarted", "JobRetryScheduled", "JobSucceeded"):
        assert (name, "machine:payment/a", "machine") in found
    assert ("JobSucceeded", None, "task") in found
    assert "job 1 (payment.created, machine:payment/a) is retried" in str(
        next(event for event in jobs if isinstance(event, observe.JobRetryScheduled))
    )
