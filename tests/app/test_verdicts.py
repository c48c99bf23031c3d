"""Errors that another attempt would meet again, and the waits that servers ask for, wherever a handler raises them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
import redis
from psycopg import errors as psycopg_errors
from sqlalchemy import exc

import redrive
from redrive import App, Backoff, Flow, Policy, Rule
from redrive.testing import VirtualClock, drain

TWICE = "1 1s"
BUG = "PROGRAMMING_ERROR"


@dataclass
class Placed:
    """An event."""

    order: str = "o-1"


class Unpaid(Exception):
    """An error of the application."""


@pytest.fixture
def app():
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def answered(status: int, method: str = "GET", **headers: str) -> httpx.HTTPStatusError:
    """Return what ``raise_for_status`` raises."""
    request = httpx.Request(method, "http://shop/")
    response = httpx.Response(status, request=request, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return httpx.HTTPStatusError(f"status {status}", request=request, response=response)


def chained(error: Exception, cause: Exception) -> Exception:
    """Return an error that was raised ``from`` another."""
    error.__cause__ = cause
    return error


def raising(error: BaseException):
    """Return a handler that raises an error."""

    def handler() -> None:
        raise error

    return handler


def jobs_of(app: App) -> list[redrive.Job]:
    """Return all jobs."""
    return [app.job(row.id) for row in app.jobs.select()]


def seen(app: App, error: BaseException, retry: object = TWICE, **options: object) -> list[tuple[object, ...]]:
    """Return reason, rule and delay in seconds of each attempt of a task that raises an error."""
    job = app.task(name=f"fail {id(error)}", retry=retry, **options)(raising(error)).enqueue()
    drain(app)
    return [(each.reason, each.rule, each.delay and each.delay.total_seconds()) for each in job.attempts]


# ---------------------------------------------------------------------------------------------------- known exceptions


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (answered(404), "HTTP_404"),
        (answered(403, "POST"), "HTTP_403"),
        (answered(501), "HTTP_501"),
        (httpx.UnsupportedProtocol("ftp"), "ERROR"),
        (redis.ResponseError("WRONGTYPE of the key"), "REDIS_WRONGTYPE"),
        (psycopg_errors.UniqueViolation("twice"), "UNIQUE_VIOLATION"),
        (exc.IntegrityError("insert", {}, psycopg_errors.UniqueViolation("twice")), "UNIQUE_VIOLATION"),
        (chained(Unpaid("no such order"), answered(404)), "HTTP_404"),
        (chained(ValueError("no"), chained(Unpaid(), answered(410))), "HTTP_410"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_an_error_that_would_come_again_ends_a_job(app: App, error: Exception, reason: str):
    """A task without names is not repeated after a failure that its integration knows to be lasting."""
    assert [(reason, "not_matched", None)] == seen(app, error)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (answered(503), "HTTP_503"),
        (answered(502, "POST"), "HTTP_502"),
        (httpx.ReadError("reset"), "ERROR"),
        (redis.BusyLoadingError("Redis is loading"), "REDIS_LOADING"),
        (psycopg_errors.DeadlockDetected("deadlock"), "DEADLOCK_DETECTED"),
        (exc.OperationalError("select", {}, psycopg_errors.DeadlockDetected("deadlock")), "DEADLOCK_DETECTED"),
        (Unpaid("not yet"), "ERROR"),
        (ValueError("bad"), "ERROR"),
        (TypeError("bad data"), "ERROR"),
        (KeyError("name"), "ERROR"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_other_errors_are_retried(app: App, error: Exception, reason: str):
    """A task without names is repeated after any other exception, with the reason that the integration gives."""
    assert [(reason, "backoff", 1), (reason, "attempts", None)] == seen(app, error)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (answered(429, Retry_After="60"), 60),
        (answered(503, Retry_After="0.5"), 1),
        (answered(503, Retry_After="1.5"), 1.5),
        (answered(429, retry_after_ms="2500", Retry_After="2"), 2.5),
        (chained(Unpaid("later"), answered(429, Retry_After="60")), 60),
        (ExceptionGroup("both", [answered(429, Retry_After="60"), answered(503, Retry_After="90")]), 90),
    ],
    ids=["seconds", "shorter", "fraction", "milliseconds", "from", "group"],
)
def test_the_wait_that_a_server_asks_for_is_a_lower_bound_for_a_job(app: App, error: Exception, seconds: float):
    """A task waits as long as the server of its client has asked."""
    (_, rule, delay), _ = seen(app, error)

    assert ("backoff" if seconds == 1 else "hint", seconds) == (rule, delay)


@pytest.mark.parametrize(
    ("fields", "options", "error", "attempts"),
    [
        ({"on": "HTTP_404"}, {}, answered(404), 2),
        ({"on": httpx.HTTPStatusError}, {}, answered(404), 2),
        ({"on": Exception}, {}, answered(404), 2),
        ({"on": lambda _: True}, {}, answered(404), 2),
        ({"on": lambda error: isinstance(error, OSError)}, {}, answered(503), 1),
        ({"rules": [Rule("HTTP_404")]}, {}, answered(404), 2),
        ({"on": OSError}, {}, answered(503), 1),
        ({"on": "HTTP_404"}, {"idempotent": False}, answered(404), 2),
        ({"on": "HTTP_404"}, {"idempotent": False}, answered(404, "POST"), 1),
        ({"on": httpx.HTTPStatusError}, {"idempotent": False}, answered(404, "POST"), 1),
        ({"on": lambda _: True}, {"idempotent": False}, answered(404, "POST"), 1),
        ({}, {"idempotent": False}, answered(503, "POST"), 1),
        ({}, {"idempotent": False}, answered(429, "POST"), 2),
        ({"on": NameError}, {}, NameError("name"), 2),
        ({"on": BUG}, {}, NameError("name"), 2),
        ({"on": Exception}, {}, NameError("name"), 2),
        ({"on": lambda _: True}, {}, NameError("name"), 2),
        ({"on": OSError}, {}, NameError("name"), 1),
        ({"rules": [Rule(BUG, attempts=2)]}, {}, NameError("name"), 2),
    ],
)
def test_names_of_a_policy_come_before_the_verdict(app: App, fields, options, error, attempts):
    """A failure that a policy names is retried although it is lasting, as far as the call may be repeated."""
    policy = Policy(attempts=2, backoff=Backoff.constant(1), jitter="none", **fields)

    assert attempts == len(seen(app, error, policy, **options))


# --------------------------------------------------------------------------------------------------- programming errors


class MissingName(NameError):
    """A subclass."""


@pytest.mark.parametrize(
    "error",
    [
        NameError("nosuchname"),
        UnboundLocalError("later"),
        AttributeError("nosuchattribute"),
        ImportError("nosuchmodule"),
        ModuleNotFoundError("nosuchmodule"),
        SyntaxError("here"),
        IndentationError("here"),
        MissingName("mine"),
        ExceptionGroup("several", [NameError("one"), Unpaid()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_programming_error_ends_a_job_at_its_first_attempt(app: App, error: Exception):
    """Code that is wrong would fail in each attempt: the job is dead with the reason, and can be redriven."""
    assert [(BUG, "not_matched", None)] == seen(app, error)
    job = app.job(1)
    assert ("dead", BUG) == (job.state, job.record.reason)
    assert f"{BUG} (" in (job.record.note or "")
    assert (1,) == app.jobs.redrive(redrive.Filter(ids=(1,))).ids


def test_a_document_with_an_error_is_no_programming_error(app: App):
    """The error of an XML parser is a `SyntaxError`, and says that the data is wrong."""
    from xml.etree import ElementTree as ET

    def parse() -> None:
        ET.fromstring("<half>")  # noqa: S314 - of this test

    job = app.task(retry=TWICE)(parse).enqueue()
    drain(app)

    assert 2 == len(job.attempts)


def test_a_signal_in_a_bug_is_obeyed(app: App):
    """An error that the handler has declared as final or as worth another attempt keeps its meaning."""
    assert "RETRY_AFTER" == seen(app, chained(NameError("name"), redrive.RetryAfter(5)))[0][0]
    assert "GAVE_UP" == seen(app, chained(NameError("name"), redrive.GiveUp("enough")))[0][0]


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_handler_that_cannot_be_called_is_a_programming_error(app: App, colour: str):
    """A `TypeError` from the call of the handler ends the job; one from inside is retried."""
    import functools

    def ours(order: str) -> None:
        raise TypeError(order)

    async def ours_async(order: str) -> None:
        raise TypeError(order)

    body = ours if colour == "def" else ours_async

    def without_the_argument() -> None: ...

    async def async_without_the_argument() -> None: ...

    wrapper = without_the_argument if colour == "def" else async_without_the_argument
    uncallable = app.task(name="uncallable", retry=TWICE)(functools.wraps(body)(wrapper)).enqueue("o-1")
    inside = app.task(name="inside", retry=TWICE)(body).enqueue("o-1")
    drain(app)

    assert [BUG] == [each.reason for each in uncallable.attempts]
    assert ["ERROR", "ERROR"] == [each.reason for each in inside.attempts]


def test_the_log_and_the_catch_have_the_reason(app: App, caplog: pytest.LogCaptureFixture):
    """The line of the log about the dead job names the reason; its catch task runs at once."""
    caught = []

    @app.task
    def recover(request: redrive.CatchRequest[Any]) -> None:
        caught.append((request.error, request.attempts))

    app.task(retry="3 1s catch recover")(raising(NameError("nosuchname"))).enqueue()
    drain(app)

    assert 1 == len(caught)
    assert f"{BUG} (NameError)" in caplog.text


# --------------------------------------------------------------------------------------------- other places of handlers

ERRORS = {"bug": (NameError("name"), BUG), "verdict": (answered(404), "HTTP_404")}
places = pytest.mark.parametrize(("error", "reason"), ERRORS.values(), ids=ERRORS)


@places
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_step_ends_at_its_first_try(app: App, error: Exception, reason: str, colour: str):
    """A step has the verdict of a job, and its run dies with the error of the step."""
    tries = []

    def charge() -> None:
        tries.append(1)
        raise error

    async def acharge() -> None:
        charge()

    @app.workflow(version=1)
    async def order(flow: Flow) -> None:
        await flow.step(charge if colour == "def" else acharge, retry="3 1s")

    run = order.start(id="o-1")
    drain(app)

    assert (1, "dead") == (len(tries), run.job.state)
    assert [reason] == [each.error.reason for each in run.timeline() if each.error is not None]


def test_a_step_waits_as_long_as_a_server_asks(app: App):
    """The hint of a client's error is a lower bound between two tries of a step."""
    tries = []

    def charge() -> None:
        tries.append(app.clock.now())
        if len(tries) == 1:
            raise answered(429, Retry_After="60")

    @app.workflow(version=1)
    async def order(flow: Flow) -> None:
        await flow.step(charge, retry="3 1s")

    order.start(id="o-1")
    drain(app)

    assert tries[1] - tries[0] >= timedelta(seconds=60)


@places
def test_the_body_of_a_run_ends_at_its_first_attempt(app: App, error: Exception, reason: str):
    """A run with a policy dies at the first failure of its body."""

    @app.workflow(version=1, retry="3 1s")
    async def order(flow: Flow) -> None:
        raise error

    run = order.start(id="o-1")
    drain(app)

    assert ("dead", [reason]) == (run.job.state, [each.reason for each in run.job.attempts if each.reason])


@places
def test_a_transition_ends_at_its_first_attempt(app: App, error: Exception, reason: str):
    """The handler of a state has the verdict of a job."""
    machine = app.machine("payment", retry="3 1s")

    @machine.start
    def placed(event: Placed) -> None:
        raise error

    machine.send("p-1", Placed())
    drain(app)

    assert [reason] == [each.reason for job in jobs_of(app) for each in job.attempts]


@places
def test_a_delivery_ends_at_its_first_attempt(app: App, error: Exception, reason: str):
    """A subscriber has the verdict of a job."""
    topic = app.topic("orders", Placed)

    @topic.subscribe("mail", retry="3 1s")
    def mail(event: Placed) -> None:
        raise error

    topic.publish(Placed())
    drain(app)

    jobs = [job for job in jobs_of(app) if job.state == "dead"]
    assert [[reason]] == [[each.reason for each in job.attempts] for job in jobs]


@places
def test_the_job_of_a_cron_ends_at_its_first_attempt(app: App, error: Exception, reason: str):
    """The task of a cron has the verdict of a job."""
    app.cron("*/10 * * * *", retry="3 1s")(raising(error))
    drain(app, within="11m")

    assert {(reason,)} == {tuple(each.reason for each in job.attempts) for job in jobs_of(app)}


def test_a_refresh_waits_for_its_schedule_after_a_bug(app: App):
    """A refresh has no retries for a failure that would come again: the next one is the planned one."""
    starts = []

    @app.refresh("Refresh every 2 hours; allow 1 hour; on the first failure, retry after 1 minute")
    def table(url: str) -> None:
        starts.append((url, app.clock.now()))
        raise ERRORS[url][0] if url in ERRORS else Unpaid

    for each in ("bug", "verdict", "other"):
        table.track(each, each)
    drain(app, within="30m")

    urls = [url for url, _ in starts]
    assert {"bug": 1, "verdict": 1, "other": 2} == {key: urls.count(key) for key in ("bug", "verdict", "other")}
    assert all(not table.get(key).disabled_until_update for key in ("bug", "verdict"))


def test_a_group_of_a_task_group_is_judged_by_its_leaves(app: App):
    """A bug in one of several tasks of a handler ends the job."""

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fails(NameError("name")))

    job = app.task(retry=TWICE)(both).enqueue()
    drain(app)

    assert [BUG] == [each.reason for each in job.attempts]


async def _fails(error: Exception) -> None:
    raise error


def test_an_error_that_was_not_raised_is_no_wrong_call(app: App):
    """A `TypeError` that is reported from outside has no traceback, and is an error of data."""

    @app.task(retry=TWICE)
    def wait() -> redrive.Pending:
        return redrive.Pending("1h")

    job = wait.enqueue()
    for _ in range(2):
        drain(app, within="1m")
        token = f"{job.id}.{job.refresh().record.lease_id}"
        assert app.fail(token, TypeError("bad data"))

    assert ["ERROR", "ERROR"] == [each.reason for each in job.attempts]


@pytest.mark.parametrize(("error", "calls"), [(NameError("name"), 1), (answered(404), 1), (ValueError("bad"), 2)])
def test_a_call_in_process_has_the_verdict_of_a_job(app: App, error: Exception, calls: int):
    """A task that is called under a policy without names is repeated after the failures that its jobs retry."""
    made = []

    def fail() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        app.task(fail).call(policy=Policy(attempts=2, backoff=Backoff.constant(0)))

    assert calls == len(made)
