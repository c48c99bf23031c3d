"""A job, a step and a delivery are layers of retries: a call below them leaves the failures to them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

import redrive
from redrive import Flow, Policy
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport
from redrive.policy import Backoff
from redrive.runtime import child
from redrive.testing import VirtualClock, drain, using
from tests.runtime.helpers import app_on, ended, working

FIVE = Policy(attempts=6, backoff=Backoff.constant("1s"), jitter="none")
OFTEN = Policy(on=httpx.ConnectError, attempts=6, backoff=Backoff.constant("100ms"))


class Down:
    """A target that refuses each connection, and counts them."""

    def __init__(self):
        self.requests = 0
        self.transport = transport = httpx.MockTransport(self._refuse)
        self.client = httpx.Client(transport=RetryTransport(OFTEN, transport))
        self.aclient = httpx.AsyncClient(transport=AsyncRetryTransport(OFTEN, transport))

    def _refuse(self, request):
        self.requests += 1
        raise httpx.ConnectError("refused", request=request)

    def get(self):
        """Make a request."""
        self.client.get("https://bank.example/")

    async def aget(self):
        """Make a request of the other colour."""
        await self.aclient.get("https://bank.example/")


@pytest.fixture
def down():
    """Yield a target that is down."""
    return Down()


@pytest.fixture
def app():
    """Yield an app in virtual time, which its calls use, too."""
    made = redrive.App("memory://", clock=VirtualClock())
    with using(clock=made.clock):
        yield made


async def gathered(down):
    """Make a request in a task."""
    await asyncio.gather(down.aget())


async def collected(down):
    """Make a request in a task, and raise its error later."""
    found = await asyncio.gather(down.aget(), return_exceptions=True)
    raise found[0]


async def to_thread(down):
    """Make a request in a thread."""
    await asyncio.to_thread(down.get)


async def in_executor(down):
    """Make a request in a thread of the event loop."""
    await asyncio.get_running_loop().run_in_executor(None, down.get)


async def in_own_pool(down):
    """Make a request in a thread of a pool."""
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, down.get)


async def in_retried_function(down):
    """Make a request in a function that is retried, too."""
    await redrive.retry(OFTEN)(down.aget)()


async def direct(down):
    """Make a request."""
    await down.aget()


async def fallback(down):
    """Make a request after one that fails."""
    try:
        await down.aget()
    except httpx.ConnectError:
        await down.aget()


WAYS = dict.fromkeys((direct, gathered, collected, to_thread, in_executor, in_own_pool, in_retried_function), 6)


@pytest.mark.parametrize(("way", "requests"), [*WAYS.items(), (fallback, 12)])
def test_a_job_makes_the_attempts_of_its_calls(app, down, way, requests):
    """A job of six attempts, with a client of six, makes six requests, whatever task or thread makes them."""

    @app.task(retry=FIVE)
    async def charge() -> None:
        await way(down)

    job = charge.enqueue()
    drain(app)
    assert ("dead", 6, requests) == (job.state, len(job.attempts), down.requests)


def test_a_plain_handler_makes_the_attempts_of_its_calls(app, down):
    """A `def` handler and its thread with a copy of the context make six requests."""

    @app.task(retry=FIVE)
    def charge() -> None:
        down.get()

    @app.task(retry=FIVE)
    def apart() -> None:
        errors = []

        def work():
            try:
                down.get()
            except httpx.ConnectError as error:
                errors.append(error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        thread.join()
        raise errors[0]

    for task in (charge, apart):
        down.requests = 0
        task.enqueue()
        drain(app)
        assert 6 == down.requests


def test_a_thread_of_a_worker_makes_the_attempts_of_its_calls(tmp_path, down):
    """A `def` handler in a thread of a worker makes as many requests as its job has attempts."""
    app = app_on(tmp_path)

    @app.task(retry=FIVE.with_(backoff=Backoff.constant(0)))
    def charge() -> None:
        down.get()

    async def main():
        async with working(app):
            await ended(charge.enqueue())

    asyncio.run(main())
    assert 6 == down.requests


def test_a_child_process_makes_the_attempts_of_its_calls(down):
    """In a child process a handler leaves a failure to its job, unless the job does not retry."""

    class Anything:
        context = None

        def read(self, _raw):
            return {}

    class Handler:
        signature = Anything()
        function = staticmethod(down.get)

    process = child._Child(type("Channel", (), {"send": lambda _, answer: None})(), {"charge": Handler()}, "memory://")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with using(clock=VirtualClock()):
        for policy, requests in ((FIVE, 1), (None, 6)):
            down.requests = 0
            copy_context().run(process._run, child.Run("charge", b"{}", None, None, policy, at))
            assert requests == down.requests


def test_a_step_makes_the_attempts_of_its_calls(app, down):
    """A step of three attempts makes three requests, in a coroutine function and in a plain one."""
    three = FIVE.with_(attempts=3)

    @app.step
    async def patient() -> None:
        await down.aget()

    @app.step
    def plain() -> None:
        down.get()

    @app.workflow()
    async def first(flow: Flow) -> None:
        await flow.step(patient, retry=three)

    @app.workflow()
    async def second(flow: Flow) -> None:
        await flow.step(plain, retry=three)

    for workflow in (first, second):
        down.requests = 0
        workflow.start()
        drain(app)
        assert 3 == down.requests


@pytest.mark.parametrize("retry", [None, Policy(on=ValueError, attempts=3)], ids=["open", "other"])
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_step_of_a_run_that_retries_leaves_it_to_its_calls(app, down, colour, retry):
    """A run does not repeat a step that has failed for good, so that a client in the step makes all its attempts."""

    async def patient() -> None:
        await down.aget()

    def plain() -> None:
        down.get()

    @app.workflow(retry=FIVE)
    async def order(flow: Flow) -> None:
        await flow.step(plain if colour == "plain" else patient, retry=retry)

    run = order.start()
    drain(app)
    assert ("dead", 1, 6) == (run.state, run.job.record.attempt, down.requests)


@pytest.mark.parametrize("retry", [None, "2 1s"])
def test_an_undo_of_a_run_that_retries_makes_the_attempts_of_its_calls(app, down, retry):
    """An undo makes the attempts of its step, or its client makes all of its own, whatever the run retries."""

    @app.step
    def charge() -> None:
        pass

    def refund(_charge: None) -> None:
        down.get()

    @app.workflow(retry=FIVE)
    async def order(flow: Flow) -> None:
        await flow.step(charge, undo=refund, retry=retry)
        raise redrive.GiveUp("sold out")

    order.start()
    drain(app)
    assert (6 if retry is None else 3) == down.requests


@pytest.mark.parametrize(("kind", "attempts"), [("body", 6), ("transaction", 1)])
def test_a_body_and_a_transaction_make_the_attempts_of_their_calls(tmp_path, down, kind, attempts):
    """A client in a body that a run repeats makes one request in each attempt; one in a transaction makes all."""
    app = redrive.App(f"sqlite:///{tmp_path / 'a.db'}", clock=VirtualClock())

    @app.workflow(retry=FIVE)
    async def order(flow: Flow) -> None:
        if kind == "transaction":
            await flow.transaction(charge)
        await down.aget()

    def charge(_connection: Any) -> None:
        down.get()

    run = order.start()
    with using(clock=app.clock):
        drain(app)
    assert ("dead", attempts, 6) == (run.state, run.job.record.attempt, down.requests)
    app.close()


@pytest.mark.parametrize("outlives", [False, True])
def test_a_thread_leaves_a_failure_to_the_job_until_the_attempt_has_ended(app, down, outlives):
    """A client in a thread of a handler makes one request, and all its own when the attempt has ended."""
    go_on, threads = threading.Event(), []

    def call() -> None:
        if outlives:
            go_on.wait()
        with contextlib.suppress(httpx.ConnectError):
            down.get()

    @app.task(retry=FIVE)
    def charge() -> None:
        threads.append(threading.Thread(target=call))
        threads[0].start()
        if not outlives:
            threads[0].join()

    charge.enqueue()
    with using(clock=app.clock):
        drain(app)
        go_on.set()
        threads[0].join()
    assert (6 if outlives else 1) == down.requests


@pytest.mark.parametrize("colour", ["async", "def"])
def test_a_thread_that_outlives_its_step_makes_its_own_attempts(app, down, colour):
    """A client in the thread of a library that a step has started retries by itself when the step has ended."""
    go_on, threads = threading.Event(), []

    def call() -> None:
        go_on.wait()
        with contextlib.suppress(httpx.ConnectError):
            down.get()

    def start() -> None:
        threads.append(threading.Thread(target=call))
        threads[0].start()

    async def astart() -> None:
        start()

    @app.workflow()
    async def order(flow: Flow) -> None:
        if colour == "async":
            await flow.step(astart, retry=FIVE)
        else:
            await flow.step(start, retry=FIVE)

    run = order.start()
    with using(clock=app.clock):
        drain(app)
        go_on.set()
        threads[0].join()
    assert ("succeeded", 6) == (run.state, down.requests)


def test_a_delivery_makes_the_attempts_of_its_calls(app, down):
    """A subscription of six attempts makes six requests for an event, the first of them in its feeder."""
    topic = app.topic("orders", dict)

    @topic.subscribe("charge", retry=FIVE)
    async def charge(event: dict) -> None:
        await down.aget()

    topic.publish({})
    drain(app)
    assert 6 == down.requests


@pytest.mark.parametrize("retry", [None, "0 catch refund", Policy(on=ValueError, attempts=6)])
def test_a_job_that_does_not_retry_leaves_it_to_its_calls(app, down, retry):
    """Below a job without a policy, or with one that does not name the failure, a client makes all its attempts."""

    @app.task(retry=retry)
    def charge() -> None:
        down.get()

    @app.task
    def refund(request: redrive.CatchRequest[Any]) -> None:
        pass

    charge.enqueue()
    drain(app)
    assert 6 == down.requests


def test_a_client_with_nested_both_retries_in_a_job(app, down):
    """With `nested="both"` a client makes its attempts in each attempt of the job."""
    both = OFTEN.with_(nested="both", attempts=2)
    down.client = httpx.Client(transport=RetryTransport(both, down.transport))

    @app.task(retry=FIVE)
    def charge() -> None:
        down.get()

    charge.enqueue()
    drain(app)
    assert 12 == down.requests


def test_a_direct_call_of_a_task_is_no_job(down):
    """A task that is called as a function is no layer."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry=FIVE)
    def charge() -> None:
        down.get()

    with using(clock=app.clock), pytest.raises(httpx.ConnectError):
        charge()
    assert 6 == down.requests


def test_a_job_with_a_classifier_that_awaits_or_fails_is_no_layer(app, down):
    """A job whose classifier is a coroutine function, or raises, leaves the retrying to its client."""

    async def awaits(error):
        return False

    def fails(error):
        raise KeyError(error)

    for on in (awaits, fails):
        down.requests = 0

        @app.task(name=on.__name__, retry=FIVE.with_(on=on))
        def charge() -> None:
            down.get()

        charge.enqueue()
        drain(app)
        assert 6 == down.requests


@pytest.mark.parametrize("field", ["on", "on_result"])
def test_a_predicate_of_a_job_is_no_part_of_its_attempt(app, down, field):
    """A call in a predicate makes all its attempts: an error that leaves the predicate is retried by no job."""

    def predicate(_):
        down.get()

    @app.task(retry=FIVE.with_(**{field: predicate}))
    def charge() -> None:
        if field == "on":
            raise OSError("down")

    charge.enqueue()
    drain(app)
    assert 6 == down.requests


def test_a_result_that_a_call_rejects_is_retried_by_the_call(app):
    """A result that a policy in a handler rejects is no failure of the job, so that the policy retries it."""
    made = []

    @app.task(retry=FIVE)
    def charge() -> None:
        Policy(on_result=lambda _: True, attempts=3).call(made.append, 1)

    charge.enqueue()
    drain(app)
    assert 3 == len(made)
