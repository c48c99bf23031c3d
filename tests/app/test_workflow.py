"""Definitions of workflows, and the handle of a run."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context, Flow, SyncFlow
from redrive.errors import (
    ConfigurationError,
    DuplicateRun,
    IllegalMove,
    JobDead,
    PayloadError,
    PolicySyntaxError,
    RunNotFound,
    TaskDefinitionError,
    WaitsForItself,
)
from redrive.runtime.worker import Worker
from redrive.testing import drain


async def no_flow(order: int) -> None:
    """Take no flow."""


async def wrong_colour(flow: SyncFlow) -> None:
    """Take the flow of a thread."""


def wrong_thread(flow: Flow) -> None:
    """Take the flow of a coroutine."""


async def second(order: int, flow: Flow) -> None:
    """Take the flow last."""


async def two(flow: Flow, other: Flow) -> None:
    """Take two flows."""


async def reserved(flow: Flow, id: int) -> None:
    """Take what start() takes."""


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_flow, r"annotated with redrive\.Flow; got order: int"),
        (wrong_colour, r"of an async def workflow is the flow, annotated with redrive\.Flow; got flow: SyncFlow"),
        (wrong_thread, r"of a def workflow is the flow, annotated with redrive\.SyncFlow; got flow: Flow"),
        (second, "got order: int"),
        (two, "its parameter 'other' cannot be stored"),
        (reserved, "a parameter cannot be called 'id', which start"),
    ],
)
def test_functions_that_take_no_flow_first_are_refused(app: App, function: Any, text: str):
    """Workflows take the flow of their colour first, once, and no parameter that `start` takes itself."""
    with pytest.raises(TaskDefinitionError, match=text):
        app.workflow()(function)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"version": 0}, ConfigurationError, "version must be a whole number above zero"),
        ({"max_steps": -1}, ConfigurationError, "max_steps must be a whole number above zero"),
        ({"retry": "often"}, PolicySyntaxError, "often"),
        ({"steps": "often"}, PolicySyntaxError, "often"),
        ({"steps": "5 1s catch recover"}, TaskDefinitionError, "the policy of a step has no catch"),
        ({"name": "a/b"}, TaskDefinitionError, "has a slash in its name"),
    ],
)
def test_wrong_options_are_refused(app: App, options: dict[str, Any], error: type[Exception], text: str):
    """Options that cannot work are errors at the decorator."""

    async def body(flow: Flow) -> None:
        """Do nothing."""

    with pytest.raises(error, match=text):
        app.workflow(**options)(body)


def test_runs_are_started_once_for_each_id(app: App):
    """The same id and arguments are one run; other arguments are an error that names the run."""

    @app.workflow()
    async def body(flow: Flow, number: int) -> int:
        return number

    first, again = body.start(1, id="a"), asyncio.run(body.astart(1, id="a"))
    assert (True, False, first.job.id) == (first.created, again.created, again.job.id)
    with pytest.raises(DuplicateRun, match=r"body has a run 'a', job 1, with other arguments"):
        body.start(2, id="a")
    assert "run-" == body.start(3).id[:4]
    for wrong in ("", "x" * 3000):
        with pytest.raises(ConfigurationError, match="the id of a run"):
            body.start(1, id=wrong)
    with pytest.raises(PayloadError, match="Expected `int`"):
        body.start("x")
    with pytest.raises(PayloadError, match=r"run.signal\(\): the value cannot be stored"):
        first.signal("go", object())
    with pytest.raises(PayloadError, match=r"app.emit\(\): the value cannot be stored"):
        app.emit("go", object())
    assert "<run a of body>" == repr(body.run("a"))


def test_workflows_are_not_enqueued(app: App):
    """Runs are started; enqueueing, debouncing and keys of jobs are refused with the remedy."""

    @app.workflow()
    async def body(flow: Flow, number: int) -> int:
        return number

    with pytest.raises(ConfigurationError, match="are not debounced"):
        body.debounce("k", quiet="1s", at_most="2s")
    with pytest.raises(ConfigurationError, match=r"a run is identified by start\(id=\.\.\.\)"):
        body.options(key="k")
    later = body.options(delay="1h", priority=3, tags="x").start(1)
    assert (3, ("x",)) == (later.job.record.priority, later.job.tags)
    drain(app, within="1m")
    assert "ready" == later.state


REFRESH = "- Refresh every minute\n- Allow 10 seconds to complete"


def caught_by_a_workflow(app: App, _: object) -> None:
    """Declare a task whose catch task is a workflow."""

    @app.task(retry="1 1s catch body")
    def work(number: int) -> None:
        """Do nothing."""

    app.check()


def told_by_a_workflow(app: App, _: object) -> None:
    """Declare a refresh that enqueues a workflow when it has given up."""

    @app.refresh(REFRESH, on_disabled="body")
    def prices(number: int) -> None:
        """Do nothing."""

    app.check()


# Each is a way in which a task is asked for.
ASKED: dict[str, Callable[[App, Any], Any]] = {
    "enqueue": lambda _, body: body.enqueue(1),
    "aenqueue": lambda _, body: asyncio.run(body.aenqueue(1)),
    "enqueue with wrong arguments": lambda _, body: body.enqueue("x", 2),
    "enqueue_many": lambda _, body: body.enqueue_many([(1, 2)]),
    "enqueue_many of nothing": lambda _, body: body.enqueue_many([]),
    "aenqueue_many": lambda _, body: asyncio.run(body.aenqueue_many([1])),
    "options": lambda _, body: body.options(delay="1s").enqueue(1),
    "named": lambda app, _: app.named("body").options(priority=3).enqueue(1),
    "call": lambda _, body: body.call(1, policy="1 1s"),
    "acall": lambda _, body: asyncio.run(body.acall(1, policy="1 1s")),
    "a schedule": lambda app, body: app.schedules.create("nightly", "@daily", body, arguments={"number": 1}),
    "a schedule by name": lambda app, _: asyncio.run(app.schedules.acreate("nightly", "@daily", "body")),
    "a cron": lambda app, body: app.cron("@daily", name="nightly")(body),
    "a refresh": lambda app, body: app.refresh(REFRESH, name="prices")(body),
    "a task": lambda app, body: app.task(name="work")(body),
    "a subscription": lambda app, body: app.topic("paid", int).subscribe("books")(body),
    "a state": lambda app, body: app.machine("door").start(body),
    "a catch task": caught_by_a_workflow,
    "the task of a refresh that gives up": told_by_a_workflow,
}


@pytest.mark.parametrize("how", ASKED)
def test_a_workflow_where_a_task_is_asked_for_is_refused(app: App, how: str):
    """Jobs of a workflow could only die, so it is refused at once, with the call that starts a run."""

    @app.workflow()
    async def body(flow: Flow, number: int) -> int:
        return number

    with pytest.raises(ConfigurationError, match=r"body is a workflow: its runs are started by body\.start"):
        ASKED[how](app, body)
    assert [] == list(app.jobs.select())


@pytest.mark.parametrize(("undo", "remedy"), [(False, r"flow\.call\(\)"), (True, r"body\.start")])
def test_a_workflow_is_no_step_and_no_undo(app: App, undo: bool, remedy: str):
    """A step or an undo that is a workflow is an error of the code, which names the call of a child run."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        """Do nothing."""

    def step() -> None:
        """Do nothing."""

    @app.workflow()
    async def wrong(flow: Flow) -> None:
        await (flow.step(step, undo=body) if undo else flow.step(body))

    run = wrong.start()
    drain(app)
    with pytest.raises(JobDead, match=remedy):
        run.result("2s")


def test_a_run_exists_if_the_transaction_of_its_start_commits(tmp_path: Path):
    """Starts, signals and emitted values take part in a transaction of the user."""
    app = App(f"sqlite:///{tmp_path}/runs.db")

    @app.workflow()
    async def body(flow: Flow) -> None:
        """Do nothing."""

    connection = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    app.open()
    connection.execute("BEGIN IMMEDIATE")
    lost = body.start(id="lost", using=connection)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    kept = body.start(id="kept", using=connection)
    assert kept.signal("go", 1, using=connection)
    assert app.emit("opened", 1, using=connection)
    connection.execute("COMMIT")
    connection.close()

    with pytest.raises(RunNotFound, match="body has no run 'lost'"):
        _ = lost.state
    assert ("ready", ["go"]) == (kept.state, [each.name for each in kept.signals()])
    assert not app.emit("opened", 2)
    app.close()


def test_a_step_and_its_record_commit_together(tmp_path: Path):
    """Writes of `flow.transaction` exist if and only if the step is recorded, in both colours."""
    app = App(f"sqlite:///{tmp_path}/runs.db")
    failures = [OSError("no route")]

    def insert(connection: sqlite3.Connection, number: int) -> int:
        connection.execute("CREATE TABLE IF NOT EXISTS receipts (number INTEGER)")
        connection.execute("INSERT INTO receipts VALUES (?)", (number,))
        if failures:
            raise failures.pop()
        return number

    @app.workflow(steps="1 1ms")
    async def body(flow: Flow) -> int:
        return await flow.transaction(insert, 7)

    @app.workflow(steps="1 1ms")
    def plain(flow: SyncFlow) -> int:
        return flow.transaction(insert, 8)

    runs = [body.start(), plain.start()]
    _work(app, runs)
    connection = sqlite3.connect(tmp_path / "runs.db")
    found = connection.execute("SELECT number FROM receipts ORDER BY number").fetchall()
    connection.close()

    assert [(7,), (8,)] == found
    app.close()


def _work(app: App, runs: list[Any]) -> None:
    """Run a worker until the runs have ended."""

    async def work() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        for run in runs:
            await run.aresult("10s")
        worker.stop()
        await running

    asyncio.run(work())


def test_a_workflow_that_would_wait_for_itself_is_refused(app: App):
    """Calls of a run with the workflow and the arguments of a run above it would never end."""

    @app.workflow()
    async def outer(flow: Flow, number: int) -> str:
        try:
            return await flow.call(inner, number)
        except WaitsForItself as error:
            return str(error)

    @app.workflow()
    async def inner(flow: Flow, number: int) -> str:
        try:
            return await flow.call(outer, number)
        except WaitsForItself as error:
            return str(error)

    run = outer.start(1, id="o")
    drain(app)

    assert "outer o would wait for a run of outer with the same arguments" in run.result("2s")


def test_runs_are_selected_by_their_conditions(app: App):
    """`app.runs` lists runs by workflow, state, hold and parent, in either colour."""

    @app.workflow()
    async def child(flow: Flow) -> None:
        await flow.sleep("1h")

    @app.workflow()
    async def parent(flow: Flow) -> None:
        await flow.call(child)

    run = parent.start(id="p")
    drain(app, within="1m")

    assert ["parent/p/1", "p"] == [each.id for each in app.runs.select()]
    assert ["parent/p/1"] == [each.id for each in asyncio.run(app.runs.aselect(parent=run))]
    assert ["p"] == [each.id for each in app.runs.select(workflow="parent", state="ready", hold="parked")]
    assert [] == list(asyncio.run(app.runs.aretrying(workflow="parent")))
    for wrong, text in (({"state": "open"}, "state="), ({"hold": "nothing"}, "hold="), ({"limit": 0}, "limit")):
        with pytest.raises(ConfigurationError, match=text):
            app.runs.select(**wrong)  # type: ignore[arg-type]


def test_the_handle_of_a_run_has_an_asynchronous_twin(app: App):
    """Each question and action of a run exists in both colours."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        flow.set("n", 1)
        return await flow.wait_for("go", int)

    async def act() -> list[Any]:
        run = await body.astart(id="r")
        await run.apause("later")
        found: list[Any] = [await run.astate(), await run.aresume(), await run.asignal("go", 5, key="k")]
        return [*found, (await run.arecord()).id, await run.acancel("no"), await run.astate()]

    assert ["ready", True, True, "r", True, "cancelled"] == asyncio.run(act())
    run = body.start(id="s")
    run.signal("go", 5)
    drain(app)

    async def look() -> list[Any]:
        fork = await run.afork(id="t")
        history = await run.ahistory()
        return [
            await run.avalue("n", int),
            await run.avalues(),
            len(await run.atimeline()),
            fork.id,
            history.result,
            await body.run("s").aresult("2s"),
        ]

    assert [1, {"n": 1}, 1, "t", "5", 5] == asyncio.run(look())
    with pytest.raises(IllegalMove):
        asyncio.run(run.asupply("go", 1))
    with pytest.raises(ConfigurationError, match="a datetime with a time zone"):
        run.pause(until=3)  # type: ignore[arg-type]
    assert run.value("gone") is None


def test_steps_take_no_context(app: App):
    """Functions of steps that take a Context are refused, and tasks are called as functions."""

    @app.task
    def double(number: int) -> int:
        return number * 2

    def wants(ctx: Context) -> None:
        """Take a context."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        number = await flow.step(double, 2)
        try:
            flow.step(wants)  # type: ignore[arg-type]
        except TaskDefinitionError as error:
            return f"{number} {error}"
        return ""

    run = body.start()
    drain(app)

    assert "4 step 'wants' takes a redrive.Context, and a step is no job: leave that parameter out" == run.result("2s")
