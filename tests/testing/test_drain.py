"""Tests of drain mode, which runs the real engine in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import (
    App,
    Backoff,
    Cancel,
    CatchRequest,
    Context,
    FailedTransition,
    Flow,
    Job,
    Policy,
    Snooze,
    SyncFlow,
)
from redrive.errors import CatchDefinitionError, ConfigurationError, PolicySyntaxError
from redrive.testing import Drained, VirtualClock, adrain, drain
from tests import postgres

JITTERED = Policy(attempts=2, backoff=Backoff.constant("1m"), jitter="full")
"""One retry, after at most a minute."""


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def always() -> None:
    """Fail."""
    raise ConnectionError("no route")


def test_draining_an_empty_app_returns(app: App):
    """Draining an empty app returns at once."""
    assert Drained(0, timedelta(0), None) == drain(app)


def test_a_day_of_retries_is_a_jump(app: App):
    """Each attempt runs at its due time by the virtual clock, without a real wait."""
    job = app.task(retry="26 1m 1h")(always).enqueue()
    drained = drain(app)
    starts = [attempt.started_at for attempt in job.attempts]

    assert 27 == drained.attempts
    assert (app.clock.now() - job.record.enqueued_at, None) == (drained.took, drained.next_due_at)
    assert [1, 2, 4, 8, 16, 32, *[60] * 20] == [(b - a).total_seconds() / 60 for a, b in itertools.pairwise(starts)]
    assert timedelta(hours=21, minutes=3) == drained.took


def test_jobs_run_in_the_order_of_a_worker(app: App):
    """Jobs run by priority, then by due time, then by id."""
    order: list[str] = []
    task = app.task(name="send")(lambda name: order.extend([name]))
    task.enqueue("plain")
    task.enqueue("plain, later enqueued")
    task.options(priority=-1).enqueue("urgent")
    task.options(delay="1s").enqueue("late")
    task.options(delay="1s", priority=-1).enqueue("late and urgent")
    drain(app)

    assert ["urgent", "plain", "plain, later enqueued", "late and urgent", "late"] == order


def test_handlers_run_in_the_calling_thread(app: App):
    """Handlers run in the thread of the test, ``def`` and ``async def`` alike, so that debuggers and mocks work."""
    threads: list[int] = []

    @app.task
    def plain() -> None:
        """Note the thread."""
        threads.append(threading.get_ident())

    @app.task
    async def coloured() -> None:
        """Note the thread."""
        threads.append(threading.get_ident())

    plain.enqueue()
    coloured.enqueue()
    drain(app)

    assert [threading.get_ident()] * 2 == threads


def answer() -> int:
    """Run an event loop, as libraries with a blocking interface do."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    with pytest.raises(RuntimeError):
        asyncio.current_task()
    return asyncio.run(asyncio.wait_for(asyncio.sleep(0, 42), 60))  # noqa: TID251 - no wait


def of_job(app: App) -> Callable[[], Job[int]]:
    """Return what starts a job."""
    return app.task(answer).enqueue


def of_child_process(app: App) -> Callable[[], Job[int]]:
    """Return what starts a job that a worker would run in another process."""
    return app.task(executor="process")(answer).enqueue


def of_wrapper(app: App) -> Callable[[], Job[int]]:
    """Return what starts a job with a coroutine that a plain function makes."""

    @functools.wraps(answer)
    def wrapper() -> Any:
        async def inner() -> int:
            await asyncio.sleep(0)  # noqa: TID251 - lets other tasks run
            return result

        result = answer()
        return inner()

    return app.task(wrapper).enqueue


def of_body(app: App) -> Callable[[], Job[int]]:
    """Return what starts a run of a plain body with a step."""

    @app.workflow()
    def work(flow: SyncFlow) -> int:
        return min(answer(), flow.step(answer))

    return lambda: work.start(id="w-1").job


def of_step(app: App) -> Callable[[], Job[int]]:
    """Return what starts a run with plain steps at once."""

    async def step(flow: Flow) -> int:
        return await flow.step(answer)

    @app.workflow()
    async def work(flow: Flow) -> int:
        return min(await flow.gather(step(flow), step(flow)))

    return lambda: work.start(id="w-1").job


def of_transaction(app: App) -> Callable[[], Job[int]]:
    """Return what starts a run with a plain step in a transaction."""

    def write(_: Any) -> int:
        return answer()

    @app.workflow()
    async def work(flow: Flow) -> int:
        return await flow.transaction(write)

    return lambda: work.start(id="w-1").job


@pytest.mark.parametrize("start", [of_job, of_child_process, of_wrapper, of_body, of_step, of_transaction])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_plain_handler_runs_outside_of_the_event_loop(tmp_path: Path, start: Any, colour: str):
    """A ``def`` handler may run an event loop of its own, as in a thread of a worker; the drain goes on after it."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=VirtualClock())
    enqueue, other = start(app), app.task(takes_a_turn)
    jobs = [enqueue(), other.enqueue()]
    if colour == "sync":
        drain(app)
    else:
        asyncio.run(adrain(app))

    assert [42, None] == [job.result(timeout=0) for job in jobs]
    app.close()


async def takes_a_turn() -> None:
    """Wait on the event loop of the drain."""
    async with asyncio.timeout(60):
        await asyncio.sleep(0)  # noqa: TID251 - lets other tasks run


def test_a_plain_handler_that_fails_leaves_the_event_loop_as_it_was(app: App):
    """After an exception the next handlers run as before, and each has the context of the drain."""
    seen: list[object] = []
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("outside")

    @app.task(retry="1 1s")
    def fails() -> None:
        seen.append(variable.get())
        variable.set("inside")
        raise OSError

    @app.task
    async def waits() -> None:
        await takes_a_turn()
        seen.append(variable.get())

    fails.enqueue()
    waits.enqueue()
    drain(app)

    assert ["outside"] * 3 == seen


def test_a_plain_handler_may_use_a_connection_of_the_test(app: App):
    """A connection of sqlite3 belongs to the thread of the test, in which ``def`` handlers are called."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE paid (id)")

    @app.task
    def pay() -> None:
        connection.execute("INSERT INTO paid VALUES (7)")

    pay.enqueue()
    drain(app)

    assert [(7,)] == connection.execute("SELECT id FROM paid").fetchall()
    connection.close()


def test_jobs_enqueued_during_a_drain_run(app: App):
    """Jobs that are enqueued during a drain run too, so that nothing is left."""

    @app.task
    def countdown(number: int) -> None:
        """Enqueue the next one."""
        if number:
            countdown.options(delay="1m").enqueue(number - 1)

    countdown.enqueue(3)

    assert Drained(4, timedelta(minutes=3), None) == drain(app)


def test_within_stops_before_the_clock_would_pass_it(app: App):
    """Jobs due at the very end of `within` still run; the result has the time of the next due job."""
    job = app.task(retry="9 1m 1m")(always).enqueue()
    start = app.clock.now()
    drained = drain(app, within="2m")

    assert Drained(3, timedelta(minutes=2), start + timedelta(minutes=3)) == drained
    assert ("ready", 3) == (job.refresh().state, job.record.failures)


def test_a_drain_within_zero_runs_due_jobs(app: App):
    """Zero time is enough for jobs that are due now."""
    job = app.task(retry="9 1m 1m")(always).enqueue()

    assert Drained(1, timedelta(0), app.clock.now() + timedelta(minutes=1)) == drain(app, within=0)
    assert "retrying: due in 1m (retry in 1m (backoff))" == job.refresh().why


def test_draining_again_runs_the_remaining_jobs(app: App):
    """Draining again runs the rest."""
    app.task(retry="2 1m 1m")(always).enqueue()

    assert [1, 2] == [drain(app, within="30s").attempts, drain(app).attempts]


@pytest.mark.parametrize(("sample", "expected"), [(0.0, 0), (0.25, 15), (0.5, 30)])
def test_a_constant_sample_makes_delays_exact(app: App, sample, expected):
    """Jitter takes its random numbers from `rng`; the history has the nominal delay beside the drawn one."""
    job = app.task(retry=JITTERED)(always).enqueue()
    drain(app, sample=lambda: sample)
    first, _ = job.attempts

    assert (timedelta(seconds=expected), timedelta(seconds=60)) == (first.delay, first.nominal)


def test_without_a_sample_jitter_is_drawn(app: App):
    """Delays stay inside the bounds of the policy."""
    jobs = app.task(retry=JITTERED)(always).enqueue_many([()] * 20)
    drain(app)
    delays = {job.attempts[0].delay for job in jobs}

    assert 10 < len(delays)
    assert all(timedelta(0) <= delay <= timedelta(minutes=1) for delay in delays)


def test_the_catch_task_runs(app: App):
    """Catch handlers run at once after the death of their job and are retried until they succeed."""
    seen: list[CatchRequest[int]] = []

    @app.task(retry="1 1s catch recover")
    def send(number: int) -> None:
        """Fail."""
        raise ConnectionError("no route")

    @app.task
    def recover(request: CatchRequest[int], context: Context) -> None:
        """Succeed at the third time."""
        seen.append(request)
        if context.attempt < 3:
            raise OSError("no recovery either")

    job = send.enqueue(7)
    drained = drain(app)

    assert [(7, "no route", 2)] * 3 == [(each.request, each.error, len(each.attempts)) for each in seen]
    assert (5, "dead") == (drained.attempts, job.refresh().state)
    assert app.clock.now() == job.caught_at


def test_signals_are_handled_like_in_a_worker(app: App):
    """Snoozed jobs run again and cancelled jobs do not; neither spends an attempt."""
    calls: list[int] = []

    @app.task
    def send(number: int) -> str:
        """Snooze once."""
        calls.append(number)
        if number == 2:
            raise Cancel("not wanted")
        if len(calls) == 1:
            raise Snooze("10m")
        return "done"

    first, second = send.enqueue_many([1, 2])
    drained = drain(app)

    assert (3, timedelta(minutes=10)) == (drained.attempts, drained.took)
    assert ("done", "cancelled") == (first.result(), second.refresh().state)


def test_a_job_that_never_ends_is_an_error(app: App, monkeypatch: pytest.MonkeyPatch):
    """After very many attempts drain raises an error that names the parameter that bounds it."""
    monkeypatch.setattr(importlib.import_module("redrive.testing.drain"), "MAX_ATTEMPTS", 20)

    @app.task
    def send() -> None:
        """Ask for more."""
        raise Snooze("1s")

    send.enqueue()
    with pytest.raises(ConfigurationError, match="stopped after 20 attempts: some job never ends; limit it by within="):
        drain(app)
    assert () == app.workers.select()


def test_a_job_that_never_ends_can_be_bounded(app: App):
    """With `within`, a job that never ends runs as often as there is time."""

    @app.task
    def send() -> None:
        """Ask for more."""
        raise Snooze("1s")

    send.enqueue()

    assert 11 == drain(app, within="10s").attempts


def test_an_app_without_a_virtual_clock_is_refused():
    """Apps with the system clock are refused, by a message that shows how to make the app."""
    with pytest.raises(ConfigurationError, match=r"make the app with App\(\.\.\., clock=VirtualClock\(\)\)"):
        drain(App("memory://"))


def test_an_incomplete_app_is_refused(app: App):
    """Draining makes the same checks as the start of a worker."""
    app.task(retry="1 1s catch recover")(always)

    with pytest.raises(CatchDefinitionError):
        drain(app)


def test_a_bound_that_cannot_be_read_is_refused(app: App):
    """Invalid durations are refused for `within` as everywhere."""
    with pytest.raises(PolicySyntaxError):
        drain(app, within="soon")


def test_a_running_event_loop_drains_with_adrain(app: App):
    """Tests that are coroutines use `adrain`."""
    job = app.task(name="send")(lambda: 7).enqueue()

    async def test() -> tuple[Drained, int]:
        """Drain within a running event loop."""
        return await adrain(app), await job.aresult()

    assert (Drained(1, timedelta(0), None), 7) == asyncio.run(test())


def test_jobs_of_other_tasks_are_left_alone(app: App):
    """Draining runs the jobs of the app's own tasks only, and ends."""
    job, code = app.task(name="send")(lambda: 7).enqueue(), app.tasks.pop("send")

    assert Drained(0, timedelta(0), None) == drain(app)
    app.tasks["send"] = code
    drain(app)
    assert 7 == job.result()


@dataclass
class Ordered:
    """The first event of an order."""


@dataclass
class Paid:
    """The event of a transition that fails."""


@dataclass
class Lapsed:
    """The event of a timeout."""


@pytest.mark.parametrize("count", [1, 3])
def test_timeouts_occur_after_failures_of_other_instances(app: App, count: int):
    """Draining goes on to the timeout of an instance although the last transitions were those of failures."""
    order = app.machine("order")

    @order.start(timeout=("1 day", Lapsed()))
    def ordered(event: Ordered) -> None:
        pass

    @order.state(after=[ordered], failed_to="review")
    def paid(event: Paid) -> None:
        raise ValueError("refused")

    @order.state()
    def review(event: FailedTransition) -> None:
        pass

    @order.state(after=[ordered])
    def lapsed(event: Lapsed) -> None:
        pass

    refused = [f"refused-{number}" for number in range(count)]
    for key in ("unpaid", *refused):
        order.send(key, Ordered())
    drain(app, within=0)
    for key in refused:
        order.send(key, Paid())

    assert timedelta(days=1) == drain(app).took
    assert ["lapsed", *["review"] * count] == [order.get(key).state for key in ("unpaid", *refused)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_no_exception_of_a_handler_ends_a_drain(app: App, error: type[BaseException]):
    """Exceptions of all kinds that a handler raises are failures of its attempt, as in a worker."""

    @app.task
    async def send() -> None:
        """Raise an exception that would stop the process."""
        if error is asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()
        raise error

    send.enqueue()

    assert 1 == drain(app).attempts
    assert "dead" == app.job(1).state


def test_an_interrupted_drain_gives_back(app: App):
    """Cancelling a drain leaves no job claimed."""

    async def test() -> None:
        """Cancel the drain in the middle of a handler."""
        started = asyncio.Event()

        @app.task
        async def send() -> None:
            """Never end."""
            started.set()
            await asyncio.Event().wait()

        await send.aenqueue()
        running = asyncio.create_task(adrain(app))
        await started.wait()
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(test())

    assert ("ready", 0, ()) == (app.job(1).state, app.job(1).record.attempt, app.workers.select())


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_time_stands_while_the_functions_of_branches_run(store: str, tmp_path: Path):
    """Branches that sleep end at their times although others work meanwhile, so that all are done within these."""
    (tmp_path / "parcel").write_text("42")

    async def read(number: int) -> int:
        loop = asyncio.get_running_loop()
        for _ in range(10):
            number += int(await loop.run_in_executor(None, (tmp_path / "parcel").read_text)) - 42
        return number

    def read_here(number: int) -> int:
        return number + int((tmp_path / "parcel").read_text()) - 42

    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    with postgres.lent() if store == "postgres" else contextlib.nullcontext(urls[store]) as url:
        app = App(url, clock=VirtualClock())

        @app.workflow()
        async def ships(flow: Flow) -> list[int]:
            async def branch(number: int) -> int:
                if number % 3 == 0:
                    await flow.sleep("10s")
                return await flow.step(read if number % 2 else read_here, number)

            return await flow.gather(*map(branch, range(60)))

        run = ships.start()
        drained = drain(app, within="10s")

        assert list(range(60)) == run.result("2s")
        assert (timedelta(seconds=10), None) == (drained.took, drained.next_due_at)
        app.close()


def test_time_passes_for_a_step_that_waits_for_another_branch(app: App):
    """It would wait for ever otherwise."""
    arrived = asyncio.Event()

    async def wait() -> str:
        await arrived.wait()
        return "seen"

    @app.workflow()
    async def ships(flow: Flow) -> list[str | None]:
        async def arrive() -> None:
            await flow.sleep("1h")
            arrived.set()

        return await flow.gather(flow.step(wait), arrive())

    run = ships.start()
    drained = drain(app)

    assert (["seen", None], timedelta(hours=1)) == (run.result("2s"), drained.took)
