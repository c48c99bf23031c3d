"""Preparations of an executor before it calls a handler: arguments, contexts, catch requests, refused jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from redrive import App, CatchRequest, Context
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Expired, Failed, Released, Snoozed, Succeeded, Unreadable
from redrive.engine.records import Hold
from redrive.policy import Failure, Policy
from redrive.runtime.executor import Executor
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending
from redrive.testing import drain
from tests.runtime.helpers import failure, raising, run_due, take


def test_a_job_past_its_deadline_does_not_start(app: App):
    """If the deadline passed while no worker ran, the handler never runs (conformance D09)."""
    ran: list[str] = []
    app.task(name="handler", retry=Policy(attempts=None, deadline="10s", backoff=60))(
        lambda: ran.append("ran")
    ) if False else None
    task = app.task(name="handler", retry=Policy(attempts=5, deadline="10s"))(lambda: 1 / 0)
    task.enqueue()
    (first,) = take(app)
    app.store.run(leases.settle([Ending(first, Snoozed(timedelta(seconds=1)), 0.0)], now=app.now()))
    app.clock.advance("10s")

    assert Expired() == run_due(app)
    assert [] == ran


# ------------------------------------------------------------------------------------------------------------ payloads


def test_arguments_that_the_code_cannot_read_are_an_outcome(app: App):
    """Jobs that were enqueued before or after a change of the annotations end with an outcome of their own."""
    app.task(name="handler")(lambda number: None).enqueue("seven")
    app.tasks.clear()

    @app.task(name="handler")
    async def handler(number: int) -> None:
        """Take a number now."""

    expected = "the arguments do not match the annotations: Expected `int`, got `str` - at `$.number`"
    assert Unreadable(expected) == run_due(app)


def test_annotations_that_cannot_be_resolved_are_an_outcome(app: App):
    """If annotations cannot be resolved, the handler is not called; other jobs continue."""
    app.task(name="handler")(lambda number: None).enqueue(7)
    app.tasks.clear()

    @app.task(name="handler")
    async def handler(number: NoSuchType) -> None:  # noqa: F821 - the subject
        """Name a type that does not exist."""

    assert isinstance(run_due(app), Unreadable)


def test_a_job_waits_for_the_code_that_can_read_it(app: App):
    """During a deploy the old code sees an argument that it does not know; the new code runs the job."""
    seen: list[tuple[int, str]] = []

    def newer(number: int, note: str) -> None:
        """Take another argument."""
        seen.append((number, note))

    def older(number: int) -> None:
        """Run without the new argument."""
        seen.append((number, "lost"))

    job = app.task(name="handler")(newer).enqueue(7, "x")
    app.tasks.clear()
    app.task(name="handler")(older)
    drain(app, within="1m")
    waiting = job.refresh().record

    assert ([], State.READY, Hold.BAD_PAYLOAD) == (seen, waiting.state, waiting.hold)
    assert "Object contains unknown field `note`; waits until 00:15:00 UTC" in job.why

    app.tasks.clear()
    app.task(name="handler")(newer)
    drain(app)

    assert ([(7, "x")], State.SUCCEEDED, 1) == (seen, job.refresh().state, job.record.attempt)


def test_a_job_that_no_code_can_read_is_dead_and_its_catch_gets_what_was_stored(app: App):
    """After a quarter of an hour; the catch task gets the mapping of names that was stored."""
    seen: list[tuple[Any, str]] = []

    def catches(request: CatchRequest[Any]) -> None:
        """Remember."""
        seen.append((request.request, request.request_type))

    def newer(text: str) -> None:
        """Take an argument of another name."""

    app.task(catches)
    job = app.task(name="handler", retry="3 1s catch catches")(lambda number: None).enqueue(7)
    del app.tasks["handler"]
    app.task(name="handler", retry="3 1s catch catches")(newer)
    drain(app)

    assert [({"number": 7}, "dict[str, typing.Any]")] == seen
    assert (State.DEAD, "BAD_PAYLOAD", 1) == (job.refresh().state, job.record.reason, job.record.attempt)
    assert job.caught_at == app.clock.now()


def test_a_catch_task_of_one_type_does_not_get_another_request(app: App):
    """Payloads for other parameters are no `CatchRequest[str]`: the catch job dies, and no failure is caught."""
    seen: list[Any] = []

    def catches(request: CatchRequest[str]) -> None:
        """Remember."""
        seen.append(request.request)

    def newer(text: str) -> None:
        """Take an argument of another name."""

    app.task(name="catches")(accepts)
    job = app.task(name="handler", retry="0 catch catches")(raising(ValueError("boom"))).enqueue()
    del app.tasks["handler"], app.tasks["catches"]
    app.task(name="handler", retry="0 catch catches")(newer)
    app.task(name="catches")(catches)
    drain(app)
    dead = [(each.task, each.state, each.reason) for each in app.jobs.select()]

    assert ([], None) == (seen, job.refresh().caught_at)
    assert [("catches", State.DEAD, "BAD_PAYLOAD"), ("handler", State.DEAD, "BAD_PAYLOAD")] == dead
    assert "handler' takes 'text' now, and the job was stored with no arguments" in str(app.jobs.select()[0].error)


def test_an_earlier_name_runs_under_the_present_task(app: App):
    """Run a job that was enqueued before its task was renamed."""
    job = app.task(name="old")(lambda number: number).enqueue(7)
    app.tasks.clear()
    app.task(name="new", aka="old")(lambda number: [number])

    assert Succeeded(b"[7]") == run_due(app)
    assert "old" == job.record.task


def test_a_job_of_an_unknown_task_is_given_back(app: App):
    """Leave the job to a worker that has the task: no attempt is spent, and the reason is visible."""
    app.task(name="handler")(raising(ValueError())).enqueue()
    app.tasks.clear()

    expected = Released("this worker has no task 'handler'", timedelta(seconds=15), Hold.UNKNOWN_TASK)
    assert expected == run_due(app)


def test_a_handler_gets_its_arguments_and_its_context(app: App):
    """Pass the arguments, the ids of job and execution, and the time limit to the handler."""
    seen: list[Context] = []

    @app.task(name="handler", timeout="30s", retry="1 1s")
    async def handler(number: int, context: Context) -> None:
        """Remember the context."""
        seen.append(context)

    handler.enqueue(7)
    (claim,) = take(app)
    asyncio.run(Executor(app, None).run(claim))

    now = app.clock.now()
    expected = Context(
        1, "handler", 1, 0, f"1.{claim.lease_id}", app.jobs.idempotency_key(1), now, now + timedelta(seconds=30)
    )
    assert [expected] == seen


def test_a_context_is_made_without_a_blocking_read_of_the_database(app: App, monkeypatch):
    """Creating the first Context awaits its queries, so that the event loop does not block."""
    seen: list[str] = []

    @app.task
    async def handler(context: Context) -> None:
        """Remember the key."""
        seen.append(context.idempotency_key)

    handler.enqueue()
    (claim,) = take(app)

    async def run() -> None:
        """Run the handler; from here on a blocking read is an error."""
        monkeypatch.setattr(app.store, "run", None)
        await Executor(app, None).run(claim)

    asyncio.run(run())
    monkeypatch.undo()

    assert [app.jobs.idempotency_key(1)] == seen


# --------------------------------------------------------------------------------------------------------------- catch


def dead(app: App, catch: Callable[..., Any] | None) -> None:
    """Let a job of ``fails`` die with a policy that names ``catches``."""

    def fails(number: int) -> None:
        """Fail."""

    app.task(retry="0 catch catches")(fails)
    app.task(name="catches")(accepts)
    app.tasks["fails"].enqueue(7)
    (claim,) = take(app)
    ending = Ending(claim, Failed(Failure(("builtins.ValueError",), "boom", permanent="boom")), 0.0)
    app.store.run(leases.settle([ending], now=app.now()))
    del app.tasks["catches"]
    if catch is not None:
        app.task(name="catches")(catch)


def accepts(request: CatchRequest[Any]) -> None:
    """Catch anything."""


def test_a_catch_task_gets_the_request(app: App):
    """Catch tasks receive the decoded arguments of the dead job."""
    seen: list[CatchRequest[int]] = []

    def catches(request: CatchRequest[int], context: Context) -> None:
        """Remember."""
        seen.append(request)

    dead(app, catches)

    assert Succeeded(None) == run_due(app)
    assert [("fails", 7, "int", "boom", 1, 1)] == [
        (each.task, each.request, each.request_type, each.error, each.job_id, len(each.attempts)) for each in seen
    ]


def test_a_catch_job_waits_where_the_failing_task_is_unknown(app: App):
    """Without that task a worker cannot decode the request; the catch job waits for a worker that can."""
    dead(app, accepts)
    del app.tasks["fails"]

    expected = Released("this worker has no task 'fails'", timedelta(seconds=15), Hold.UNKNOWN_TASK)
    assert expected == run_due(app)


def test_a_catch_task_that_takes_no_request_is_an_outcome_of_the_catch_job(app: App):
    """Catch jobs fail on their own if the code was changed so that the task takes no request."""

    def catches(number: int) -> None:
        """Take an argument of another type."""

    dead(app, None)
    del app.tasks["fails"]
    app.task(catches)
    unreadable = run_due(app)

    assert isinstance(unreadable, Unreadable)
    assert unreadable.why.startswith("catch task 'catches' must take exactly one CatchRequest")


def test_a_catch_task_has_its_own_timeout(app: App):
    """Catch tasks have their own attempt timeout, not that of the dead task."""

    async def catches(request: CatchRequest[Any]) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    dead(app, None)
    app.task(name="catches", timeout="1ms")(catches)

    assert "TIMEOUT" == failure(run_due(app)).reason
