"""Mistakes of a first week: the answer says what was wrong, and what would be right."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import App, Context, Flow, Policy, SyncFlow
from redrive.app.tasks import waiting
from redrive.errors import ConfigurationError, FlowMisused, PayloadError, PolicyValueError, ResultTimeout
from redrive.testing import VirtualClock, adrain, areplay, drain, replay


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory, with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def error_of(app: App, task: Any) -> str:
    """Return the error of a job of a task, which ends in one attempt."""
    job = task.enqueue()
    drain(app)
    assert ("dead", 1) == (job.refresh().state, len(job.attempts))
    return str(job.record.error)


async def answer() -> int:
    """Return a number."""
    return 42


def test_a_job_cannot_be_awaited(app: App):
    """The error names the coroutines of both colours, and the way to return a job."""

    @app.task
    def work() -> None:
        """Do nothing."""

    async def wrong() -> None:
        await work.enqueue()  # type: ignore[misc]

    with pytest.raises(TypeError, match=r"job 1 is enqueued, .*`await task.aenqueue\(...\)`.*`await job.aresult\(\)`"):
        asyncio.run(wrong())


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_job_cannot_be_pickled(app: App, how: Callable[[Any], object]):
    """The error names what can be kept."""

    @app.task
    def work() -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=r"keep job.id, and app.job\(1\) is the job"):
        how(work.enqueue())


@pytest.mark.filterwarnings("ignore:coroutine 'answer' was never awaited")
def test_a_coroutine_that_is_returned_lacks_an_await(app: App):
    """The name of the coroutine stands in the error."""

    @app.task
    async def work() -> Any:
        return answer()

    assert "the coroutine answer() was not awaited: await is missing" in error_of(app, work)


def test_a_class_is_returned_in_place_of_an_instance(app: App):
    """The error has the call that makes one."""

    @app.task
    def work() -> Any:
        return redrive.Pending

    assert "Pending is a class, and cannot be written as JSON: make an instance, Pending(...)" in error_of(app, work)


def test_a_class_is_sent_in_place_of_an_event(app: App):
    """The error has the call that makes an event."""

    class Paid:
        """An event."""

    order = app.machine("order")
    with pytest.raises(PayloadError, match=r"the event is the class .*Paid: send an instance of it, .*Paid\(...\)"):
        order.send("1", Paid)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (drain, "an event loop runs here already: `await adrain(...)` in place of drain(...)"),
        (lambda app: replay(app, "x"), "an event loop runs here already: `await areplay(...)` in place of replay(...)"),
    ],
)
def test_plain_functions_of_tests_are_refused_in_a_loop(app: App, call: Callable[[App], object], message: str):
    """The error has the other colour."""

    async def scenario() -> None:
        call(app)

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        asyncio.run(scenario())


def test_a_drain_takes_an_app():
    """The name of an app is no app."""
    with pytest.raises(ConfigurationError, match=r"drain\(\) takes the App, the object, and got 'app'"):
        drain("app")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="got None"):
        asyncio.run(adrain(None))  # type: ignore[arg-type]


def test_a_replay_needs_a_history(app: App):
    """A test that checks nothing fails."""
    with pytest.raises(ConfigurationError, match=r"replay\(app, run.history\(\)\)"):
        replay(app)
    with pytest.raises(ConfigurationError, match=r"replay\(app, run.history\(\)\)"):
        asyncio.run(areplay(app))


@pytest.mark.parametrize("kind", [Flow, SyncFlow])
def test_a_flow_is_made_by_the_worker(kind: Any):
    """The error says where a flow comes from."""
    with pytest.raises(FlowMisused, match=f"a {kind.__name__} is made by the worker"):
        kind()


@pytest.mark.parametrize("number", ["x", 1.5, True])
def test_a_number_of_delays_is_a_whole_number(number: Any):
    """The error names the argument."""
    with pytest.raises(PolicyValueError, match=re.escape(f"delays({number!r})")):
        Policy.parse("3 1s").delays(number)


@pytest.mark.parametrize("times", [0, 2])
def test_a_middleware_that_does_not_yield_once_is_named(app: App, times: int):
    """The error of the attempt has the name of the middleware."""

    @app.around
    def measured(execution: Any) -> Iterator[None]:
        for _ in range(times):
            yield

    @app.task
    def work() -> None:
        """Do nothing."""

    how = "did not yield" if times == 0 else "yielded twice"
    assert re.search(rf"the middleware .*measured {how}: the call takes place at its only yield", error_of(app, work))


@pytest.mark.parametrize("times", [0, 2])
def test_errors_of_a_middleware_remain(app: App, times: int):
    """An error of the same class that a middleware raises by itself is not changed, nor that of the handler."""

    @app.around
    def measured(execution: Any) -> Iterator[None]:
        if times == 0:
            raise RuntimeError("no meter")
        yield

    @app.task
    def work() -> None:
        raise RuntimeError("no work")

    assert ("no meter" if times == 0 else "no work") in error_of(app, work)


def test_a_missing_argument_is_named(app: App):
    """The error has the task and the argument, and no words of JSON Schema."""

    @app.task
    def work(order: int) -> None:
        """Do nothing."""

    with pytest.raises(PayloadError, match=r"^[\w.]*work: argument 'order' is missing$"):
        work.enqueue()  # type: ignore[call-arg]


def test_a_context_without_its_annotation_is_named(app: App):
    """The error has the annotation."""

    def work(ctx, number: int = 1):  # type: ignore[no-untyped-def]
        """Do nothing."""

    with pytest.raises(PayloadError, match="argument 'ctx' is missing; annotate the parameter, ctx: redrive.Context"):
        app.task(work).enqueue()


@pytest.mark.parametrize("colour", ["def", "async"])
@pytest.mark.parametrize("how", ["commit", "with", "COMMIT"])
def test_a_commit_in_a_transaction_is_explained(tmp_path: Path, colour: str, how: str):
    """The end of the block commits; the error says so."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=VirtualClock())

    def end(connection: Any) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS ledger (number INTEGER)")
        if how == "commit":
            connection.commit()
        elif how == "with":
            with connection:
                connection.execute("INSERT INTO ledger VALUES (1)")
        else:
            connection.execute("COMMIT")

    if colour == "def":

        @app.task
        def work(ctx: Context) -> None:
            with ctx.transaction() as connection:
                end(connection)

        assert "the end of the block of ctx.transaction() commits" in error_of(app, work)
    else:

        @app.task(name="work")
        async def awork(ctx: Context) -> None:
            async with ctx.transaction() as connection:
                end(connection)

        assert "the end of the block of ctx.transaction() commits" in error_of(app, awork)
    app.close()


def test_a_wait_that_blocks_an_event_loop_says_so(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A plain wait in a coroutine names the other colour, in the log and in its error; elsewhere it does not."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)

    @app.task
    def work() -> None:
        """Do nothing."""

    job = work.enqueue()

    async def scenario() -> None:
        job.result("20ms")

    with pytest.raises(ResultTimeout, match=r"this wait blocks the event loop .*: await job.aresult\(\)"):
        asyncio.run(scenario())
    blocked = [each.levelno for each in caplog.records if "blocks the event loop" in each.getMessage()]
    assert [logging.WARNING] == blocked
    caplog.clear()
    with pytest.raises(ResultTimeout) as elsewhere:
        job.result("20ms")
    assert "event loop" not in f"{elsewhere.value}{caplog.text}"


def test_changing_arguments_of_a_step_have_an_advice(app: App):
    """A run that is held for its arguments alone is told what does not change."""
    numbers = iter(range(10))

    def note(number: int) -> None:
        """Do nothing."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(note, next(numbers))
        await flow.sleep("1h")

    run = body.start()
    drain(app, within="2h")
    assert "was recorded with other arguments" in run.why
    assert "take flow.now(), flow.random or flow.uuid()" in run.why
