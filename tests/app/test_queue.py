"""Queues: their handles in both colours, and the limits that the code declares."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App
from redrive.engine.lifecycle import State
from redrive.engine.queue import QueueSettings, Rate
from redrive.errors import ConfigurationError
from redrive.policy import parse_duration
from redrive.testing import VirtualClock, drain


def test_a_handle_changes_the_given_settings(app: App, clock: VirtualClock):
    """Handles pause, resume, limit and forget, and each call returns the new settings."""
    queue = app.queue("mail")
    limited = queue.limit(concurrency=5, per_partition=2, rate="10/1m", ordered=True, aging="5m")
    paused = queue.pause()

    assert Rate(10, parse_duration("1m")) == limited.rate
    assert (5, 2, True, parse_duration("5m")) == (
        limited.concurrency, limited.per_partition, limited.ordered, limited.aging_for,
    )  # fmt: skip
    assert clock.now() == paused.paused_at
    assert limited == queue.resume() == queue.settings
    assert (limited,) == app.queues.select()
    queue.forget()
    assert QueueSettings("mail") == queue.settings
    assert "<queue mail>" == repr(queue)


def test_a_handle_has_sync_and_async_methods(app: App):
    """Everything can be awaited as well."""
    queue = app.queue("mail")

    async def change() -> list[object]:
        """Change it, and collect what is answered."""
        paused, resumed, limited = await queue.apause(), await queue.aresume(), await queue.alimit(concurrency=1)
        read = await queue.asettings()
        await queue.aforget()
        return [paused.paused_at, resumed.paused_at, limited.concurrency, read == limited, await queue.asettings()]

    assert [app.now(), None, 1, True, QueueSettings("mail")] == asyncio.run(change())


def test_every_change_is_in_the_audit_log(app: App):
    """Changes of queues are in the audit log with their actor."""
    queue = app.queue("mail")
    queue.limit(concurrency=5, rate="5/1.8s", actor="ann")
    queue.limit(rate_per_partition="2/1m", aging="5m")
    queue.limit(concurrency=None)
    queue.pause(actor="bob")
    queue.forget()
    entries = [(line.actor, line.action, line.details) for line in reversed(app.database.audit())]

    assert ("ann", "queue", '{"queue":"mail","concurrency":5,"rate":"5/1.8s"}') == entries[0]
    assert '{"queue":"mail","rate_per_partition":"2/1m","aging_for":"5m"}' == entries[1][2]
    assert (app.default_actor, "queue", '{"queue":"mail","concurrency":"none"}') == entries[2]
    assert "bob" == entries[3][0]
    assert (app.default_actor, "queue", '{"queue":"mail","forgotten":true}') == entries[4]


def test_declared_limits_hold_until_an_operator_changes_the_queue(app: App):
    """Declared limits are applied when work starts, until an operator has changed the queue."""
    queue = app.queue("mail", concurrency=1)
    before = queue.settings
    drain(app)
    declared = queue.settings
    queue.limit(concurrency=9)
    drain(app)

    assert QueueSettings("mail") == before
    assert (1, None) == (declared.concurrency, declared.changed_at)
    assert 9 == queue.settings.concurrency


def test_a_handle_without_limits_declares_nothing(app: App):
    """Handles without limits declare nothing."""
    app.queue("mail", ordered=True)
    app.queue("slow")

    assert ["mail"] == list(app.queues.declared)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "must be positive"),
        ({"rate": "often"}, "is not a rate"),
        ({"per_partition": -1}, "positive"),
    ],
)
def test_an_invalid_limit_is_refused(app: App, options, message: str):
    """Limits that are not positive and invalid rates are refused, in the code and at run time."""
    with pytest.raises(ConfigurationError, match=message):
        app.queue("mail", **options)
    with pytest.raises(ConfigurationError, match=message):
        app.queue("mail").limit(**options)


def test_a_queue_needs_a_name(app: App):
    """Queues without a name are refused."""
    with pytest.raises(ConfigurationError, match="the name of a queue must be a text that is not empty"):
        app.queue("")


def test_a_job_of_a_paused_queue_shows_the_pause(app: App):
    """Jobs of a paused queue show that reason, in both colours."""

    @app.task
    def work() -> None: ...

    job = work.enqueue()
    app.queue("default").pause()

    assert "due since 0ms, queue paused since 2026-01-01 00:00:00 UTC, no worker is alive" == job.refresh().why
    assert job.why == asyncio.run(job.arefresh()).why


def test_the_pause_of_a_queue_that_nothing_has_is_logged(app: App, caplog: pytest.LogCaptureFixture):
    """The name may be misspelled; the queue of a task, one with a setting and one with a job are known."""
    work = app.task(name="work", queue="mail")(lambda: None)
    work.options(queue="letters").enqueue()
    app.queue("slow").limit(concurrency=1)
    for name in ("mail", "letters", "slow", "mial"):
        app.queue(name).pause()
    asyncio.run(app.queue("nope").apause())
    app.queue("nope").pause()

    assert [
        f"queue {name} is paused, and no task, no setting and no job has it; queues of the tasks: mail"
        for name in ("mial", "nope")
    ] == caplog.messages


def test_a_drain_waits_for_the_rate(app: App, clock: VirtualClock):
    """Drains advance to the next instant that a rate allows."""
    begun = []

    @app.task
    def work() -> None:
        begun.append(clock.monotonic())

    app.queue("default", rate="2/10s")
    work.enqueue_many([()] * 5)
    drained = drain(app)

    assert [0, 0, 10, 10, 20] == begun
    assert (5, None) == (drained.attempts, drained.next_due_at)


def test_a_drain_ends_when_all_jobs_are_held(app: App):
    """Drains do not wait for jobs of a paused queue."""

    @app.task(queue="mail")
    def work() -> None: ...

    job = work.enqueue()
    app.queue("mail").pause()

    assert 0 == drain(app).attempts
    assert State.READY == job.refresh().state
