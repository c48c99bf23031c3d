"""Calls that fail leave a row: a body that catches the error and goes on is replayed with the same calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from redrive import App, EnqueueRequest, Flow, GiveUp, SyncFlow
from redrive.app.flows.run import Run
from redrive.engine.runs import StepError, StepKind, StepOutcome
from redrive.engine.steps import NewStep, StepBatch
from redrive.errors import (
    ConfigurationError,
    JobDead,
    StoreOutcomeUnknown,
    TaskDefinitionError,
    WaitsForItself,
)
from redrive.runtime.runs.recorder import StoreRecorder
from redrive.stores.drivers.postgres.transactions import AsyncPostgresTransaction, PostgresTransaction
from redrive.stores.drivers.sqlite.transactions import AsyncSQLiteTransaction, SQLiteTransaction
from redrive.stores.operations import leases
from redrive.stores.operations.runs import steps
from redrive.testing import drain, replay
from tests.runtime.runs.conftest import Calls, every_store

lending = pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
"""Runs a test on each store that lends a connection."""

coloured = pytest.mark.parametrize("colour", ["async", "def"])

TRANSACTIONS = (SQLiteTransaction, AsyncSQLiteTransaction, PostgresTransaction, AsyncPostgresTransaction)


class CardDeclined(Exception):
    """An error of the user, with an argument."""


def in_colour(colour: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of a transaction as a coroutine function or as it is."""

    async def charge(connection: Any) -> Any:
        return function(connection)

    def charge_here(connection: Any) -> Any:
        return function(connection)

    charge_here.__name__ = "charge"
    return charge if colour == "async" else charge_here


def rows(run: Run[Any]) -> list[tuple[str, str, int]]:
    """Return the names, the outcomes and the tries of the steps of a run."""
    return [(row.name, str(row.outcome), row.tries) for row in run.timeline()]


@lending
@coloured
def test_a_body_that_has_caught_the_error_of_a_transaction_is_replayed(app: App, calls: Calls, colour: str):
    """It receives the same error in each pass, and the function is called once."""
    after, seen = calls.step("after"), list[tuple[type, str]]()

    def fail(connection: Any) -> None:
        calls.append("charge")
        connection.execute("CREATE TABLE charges (number integer)")
        raise CardDeclined("no cover")

    charge = in_colour("def", fail)

    @app.workflow(name="pays")
    async def pays(flow: Flow) -> str:
        try:
            await flow.transaction(charge)
        except CardDeclined as error:
            seen.append((type(error), str(error)))
        await flow.step(after)
        await flow.sleep("1h")
        return "paid by invoice"

    @app.workflow(name="dpays")
    def dpays(flow: SyncFlow) -> str:
        try:
            flow.transaction(charge)
        except CardDeclined as error:
            seen.append((type(error), str(error)))
        flow.step(after)
        flow.sleep("1h")
        return "paid by invoice"

    code = pays if colour == "async" else dpays
    run = code.start()
    drain(app)

    assert "paid by invoice" == run.result("2s")
    assert [(CardDeclined, "no cover")] * 2 == seen
    assert ["charge", "after"] == calls
    assert [("charge", "failed", 1), ("after", "ok", 1), ("sleep", "ok", 0)] == rows(run)
    replay(app, run.history())
    # What it had written was rolled back.
    transaction = app.store.begin()
    transaction.connection.execute("CREATE TABLE charges (number integer)")
    transaction.rollback()


@lending
@coloured
def test_a_transaction_is_tried_again_as_the_steps_of_its_workflow_are(app: App, colour: str):
    """Each try is a transaction of its own; the run holds no worker between them."""
    calls: list[int] = []

    def fail_twice(connection: Any) -> int:
        calls.append(len(calls))
        if len(calls) < 3:
            raise ConnectionError("the bank")
        return 7

    @app.workflow(steps="5 1m")
    async def pays(flow: Flow) -> int:
        return await flow.transaction(in_colour(colour, fail_twice))

    run = pays.start()
    drain(app)

    assert (7, [0, 1, 2]) == (run.result("2s"), calls)
    assert [("charge", "ok", 3)] == rows(run)
    (row,) = run.timeline()
    assert row.history is not None
    assert ["the bank"] * 2 == [each.error.message for each in row.history.tries]


@lending
def test_a_run_begins_again_with_the_transaction_that_has_ended_it(app: App, calls: Calls):
    """Uncaught, its failure ends the run, as that of any step; a retry by an operator calls it again."""
    fails: list[Exception] = [CardDeclined("no cover")]

    def charge(connection: Any) -> str:
        calls.append("charge")
        if fails:
            raise fails.pop()
        return "receipt"

    @app.workflow(retry="3 1s")
    async def pays(flow: Flow) -> str:
        await flow.step(calls.step("before"))
        return await flow.transaction(charge)

    run = pays.start()
    drain(app)
    assert "dead" == run.state
    assert ["before", "charge"] == calls

    run.job.retry()
    drain(app)

    assert "receipt" == run.result("2s")
    assert ["before", "charge", "charge"] == calls


@lending
def test_a_fork_keeps_a_failed_transaction_or_calls_it_again(app: App, calls: Calls):
    """Behind it the error is that of the first run; before it the function is called."""
    fails: list[Exception] = [CardDeclined("no cover")]

    def charge(connection: Any) -> str:
        calls.append("charge")
        if fails:
            raise fails.pop()
        return "receipt"

    @app.workflow()
    async def pays(flow: Flow) -> str:
        try:
            paid = await flow.transaction(charge)
        except CardDeclined:
            paid = "by invoice"
        return f"{paid} {await flow.step(calls.step('after'))}"

    run = pays.start(id="first")
    drain(app)
    behind, before = run.fork("2", id="behind"), run.fork("1", id="before")
    drain(app)

    assert ["by invoice 0", "by invoice 0", "receipt 0"] == [each.result("2s") for each in (run, behind, before)]
    assert 2 == calls.count("charge")


@lending
@pytest.mark.parametrize("value", [object(), "x" * 1_200_000], ids=["no JSON", "too large"])
def test_a_result_that_cannot_be_stored_fails_a_transaction(app: App, value: object):
    """It is rolled back, so that it has no effect, and a run that begins again calls it."""
    values: list[object] = [value]

    def charge(connection: Any) -> object:
        return values.pop() if values else "receipt"

    @app.workflow()
    async def pays(flow: Flow) -> object:
        return await flow.transaction(charge)

    run = pays.start()
    drain(app)
    (row,) = run.timeline()
    assert (StepOutcome.FAILED, False) == (row.outcome, row.has_effect)

    run.job.retry()
    drain(app)

    assert "receipt" == run.result("2s")


@lending
@coloured
def test_a_transaction_without_an_effect_after_a_lost_reply_has_failed(
    app: App, colour: str, monkeypatch: pytest.MonkeyPatch
):
    """The row of its failure is written behind it, and the body goes on."""
    real = {each: each.commit for each in TRANSACTIONS}

    def breaks(transaction: Any) -> Any:
        monkeypatch.undo()
        ended = transaction.rollback()
        error = StoreOutcomeUnknown("the answer was lost")
        return _raise_after(ended, error)

    for each in real:
        monkeypatch.setattr(each, "commit", breaks)

    @app.workflow()
    async def pays(flow: Flow) -> str:
        try:
            await flow.transaction(in_colour(colour, lambda _: 1))
        except StoreOutcomeUnknown:
            await flow.sleep("1h")
            return "unknown"
        return "paid"

    run = pays.start()
    drain(app)

    assert "unknown" == run.result("2s")
    assert [("charge", "failed", 1), ("sleep", "ok", 0)] == rows(run)


def _raise_after(ended: Any, error: Exception) -> Any:
    if ended is None:
        raise error

    async def fails() -> None:
        await ended
        raise error

    return fails()


@lending
@coloured
def test_a_transaction_that_is_found_late_after_a_lost_reply_has_succeeded(
    app: App, colour: str, monkeypatch: pytest.MonkeyPatch
):
    """The row of a failure is not written in its place; the body receives the result."""
    commits = {each: each.commit for each in TRANSACTIONS}
    recorded, looks = StoreRecorder.recorded, list[str]()

    def breaks(transaction: Any) -> Any:
        ended = commits[type(transaction)](transaction)
        return _raise_after(ended, StoreOutcomeUnknown("the answer was lost"))

    async def late(recorder: StoreRecorder, path: str) -> Any:
        looks.append(path)
        return None if len(looks) == 1 else await recorded(recorder, path)

    for each in commits:
        monkeypatch.setattr(each, "commit", breaks)
    monkeypatch.setattr(StoreRecorder, "recorded", late)

    @app.workflow()
    async def pays(flow: Flow) -> str:
        paid = await flow.transaction(in_colour(colour, lambda _: "receipt"))
        await flow.sleep("1h")
        return paid

    run = pays.start()
    drain(app)

    assert ("receipt", ["1", "1"]) == (run.result("2s"), looks)
    assert [("charge", "ok", 1), ("sleep", "ok", 0)] == rows(run)


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
@coloured
def test_a_transaction_whose_failure_was_recorded_meanwhile_is_rolled_back(app: App, colour: str):
    """A function in a thread may end after its time limit: what it has written must not stay beside a failure."""
    jobs: list[int] = []

    def charge(connection: Any) -> str:
        if colour == "def":
            connection.execute("CREATE TABLE charges (number integer)")
        late(app, jobs[0])
        return "receipt"

    @app.workflow()
    async def pays(flow: Flow) -> str:
        with pytest.raises(TimeoutError):
            await flow.transaction(in_colour(colour, charge))
        await flow.sleep("1h")
        return "late"

    run = pays.start()
    jobs.append(run.job.id)
    drain(app)

    assert "late" == run.result("2s")
    assert [("charge", "failed", 1), ("sleep", "ok", 0)] == rows(run)
    transaction = app.store.begin()
    transaction.connection.execute("CREATE TABLE charges (number integer)")
    transaction.rollback()


def late(app: App, job_id: int) -> None:
    """Record, beside the transaction, that its time limit has passed."""
    lease_id = app.job(job_id).record.lease_id
    assert lease_id is not None
    error = StepError(("builtins.TimeoutError",), "the attempt took too long", "TIMEOUT")
    row = NewStep("1", StepKind.STEP, "charge", StepOutcome.FAILED, tries=1, error=error)
    app.store.run(steps.record([StepBatch(job_id, lease_id, (row,))], now=app.now()))


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
@coloured
def test_a_transaction_that_fails_after_its_lease_was_lost_has_not_failed(app: App, colour: str):
    """The step belongs to another worker then, which calls it."""
    jobs, calls = list[int](), list[str]()

    def charge(connection: Any) -> str:
        calls.append("charge")
        if len(calls) == 1:
            lose(app, jobs[0])
            raise CardDeclined("no cover")
        return "receipt"

    @app.workflow()
    async def pays(flow: Flow) -> str:
        try:
            return await flow.transaction(in_colour(colour, charge))
        except CardDeclined:
            calls.append("caught")
            raise

    run = pays.start()
    jobs.append(run.job.id)
    drain(app)
    # The worker of the first drain counts as dead.
    drain(app)

    assert ("receipt", ["charge", "charge"]) == (run.result("2s"), calls)
    assert [("charge", "ok", 1)] == rows(run)


def lose(app: App, job_id: int) -> None:
    """Take a job from its worker, which counts as dead."""
    worker_id = app.job(job_id).record.worker_id
    assert worker_id is not None
    app.store.run(leases.sweep(10, gone=[worker_id], now=app.now()))


@lending
def test_a_named_transaction_that_waits_for_its_next_try_delays_no_other_call(app: App, calls: Calls):
    """Its place in the order of the ends is that of its last try."""
    times: list[datetime] = []

    def charge(connection: Any) -> str:
        times.append(app.now())
        if len(times) < 2:
            raise ConnectionError("the bank")
        return "receipt"

    seen: list[str] = []

    @app.workflow(steps="5 1h")
    async def pays(flow: Flow) -> list[str]:
        seen.clear()

        async def pay() -> None:
            seen.append(await flow.named("pay").transaction(charge))

        async def ship() -> None:
            seen.append(str(await flow.named("ship").step(calls.step("ship"))))

        async with asyncio.TaskGroup() as group:
            group.create_task(pay())
            group.create_task(ship())
        return seen

    run = pays.start()
    drain(app)

    assert ["0", "receipt"] == run.result("2s")
    assert 3600 == (times[1] - times[0]).total_seconds()
    assert ["ship"] == calls


@lending
def test_a_caught_failure_of_a_named_transaction_is_replayed(app: App):
    """It has a row with a number, like each end of a named call."""
    calls: list[str] = []

    def charge(connection: Any) -> str:
        calls.append("charge")
        raise CardDeclined("no cover")

    @app.workflow()
    async def pays(flow: Flow) -> str:
        try:
            await flow.named("pay").transaction(charge)
        except CardDeclined:
            await flow.named("later").sleep("1h")
        return "by invoice"

    run = pays.start()
    drain(app)

    assert ("by invoice", ["charge"]) == (run.result("2s"), calls)
    assert [1, 2] == [row.seq for row in run.timeline()]


@lending
def test_a_branch_that_fails_in_a_transaction_decides_its_group(app: App):
    """The failure is recorded, and so is the decision: the same branches are dropped in each pass."""

    def charge(connection: Any) -> str:
        raise CardDeclined("no cover")

    @app.workflow()
    async def pays(flow: Flow) -> str:
        try:
            await flow.gather(flow.transaction(charge), flow.sleep("1d"))
        except CardDeclined:
            await flow.sleep("1h")
        return "by invoice"

    run = pays.start()
    began = app.now()
    drain(app)

    assert "by invoice" == run.result("2s")
    assert 3600 == (app.now() - began).total_seconds()
    assert StepKind.GATHER in [row.kind for row in run.timeline()]


@pytest.mark.parametrize("app", ["memory"], indirect=True)
def test_a_store_that_lends_no_connection_fails_the_transaction(app: App):
    """A body may go on without it."""

    @app.workflow()
    async def pays(flow: Flow) -> str:
        with pytest.raises(ConfigurationError):
            await flow.transaction(lambda_named)
        await flow.sleep("1h")
        return "by invoice"

    run = pays.start()
    drain(app)

    assert "by invoice" == run.result("2s")


def lambda_named(connection: Any) -> None:
    """Do nothing."""


# ------------------------------------------------------------------------------------------------ calls of child runs


@every_store
def test_a_child_that_would_wait_for_its_parent_has_failed(app: App):
    """A body that catches that goes on, and is replayed."""

    @app.workflow()
    async def pays(flow: Flow) -> str:
        with pytest.raises(WaitsForItself, match="without end"):
            await flow.call(pays)
        await flow.sleep("1h")
        return "alone"

    run = pays.start()
    drain(app)

    assert "alone" == run.result("2s")
    assert [("pays", "failed", 0), ("sleep", "ok", 0)] == rows(run)
    replay(app, run.history())


@every_store
def test_a_child_that_the_app_refuses_has_failed(app: App):
    """A hook of `App.on_enqueue` raises; a run that begins again asks it again."""
    refusals: list[Exception] = [GiveUp("not today")]

    @app.on_enqueue
    def refuse(new: EnqueueRequest) -> None:
        if new.task == "ships" and refusals:
            raise refusals.pop()

    @app.workflow()
    async def ships(flow: Flow) -> str:
        return "shipped"

    @app.workflow()
    async def pays(flow: Flow) -> str:
        return await flow.call(ships)

    run = pays.start()
    drain(app)
    with pytest.raises(JobDead, match="not today"):
        run.result("2s")
    assert [("ships", "failed", 0)] == rows(run)

    run.job.retry()
    drain(app)

    assert "shipped" == run.result("2s")


@every_store
def test_a_child_of_another_app_has_failed(app: App):
    """A body that catches that goes on, and is replayed."""
    other = App("memory://")

    @other.workflow()
    async def ships(flow: Flow) -> None:
        """Do nothing."""

    @app.workflow()
    async def pays(flow: Flow) -> str:
        with pytest.raises(TaskDefinitionError, match="is a workflow of another app"):
            await flow.call(ships)
        await flow.sleep("1h")
        return "not shipped"

    run = pays.start()
    drain(app)

    assert "not shipped" == run.result("2s")
    other.close()
