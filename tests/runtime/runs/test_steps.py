"""Steps: their records, their tries, their results and their errors."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from redrive import App, Flow, GiveUp, Policy, Snooze, SyncFlow
from redrive.engine.runs import StepKind
from redrive.errors import (
    FlowMisused,
    JobDead,
    PayloadError,
    PolicySyntaxError,
    ResultTooLarge,
    StepFailed,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
    TaskDefinitionError,
)
from redrive.runtime.runs.branches import apart
from redrive.runtime.runs.writes import Writes
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, Refusing, every_store, turn


def test_a_step_runs_once_in_all_passes(app: App, calls: Calls):
    """Recorded steps return their results without a call when the body is replayed."""
    first, second = calls.step("first"), calls.step("second")

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        one = await flow.step(first, 1)
        await flow.sleep("1d")
        return [one, await flow.step(second, 2)]

    run = body.start()
    drain(app)

    assert [1, 2] == run.result("2s")
    assert ["first", "second"] == calls


def test_a_step_waits_for_its_next_try_without_a_worker(app: App, calls: Calls):
    """Failed steps are tried again at the delays of their own policy; the run is parked in between."""
    charge = calls.step("charge", OSError("no route"), OSError("busy"))

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.step(charge, 7, retry=Policy.parse("5 1m").with_(jitter="none"))

    run = body.start()
    drained = drain(app, within="1s")

    assert ["charge"] == calls
    assert run.why.startswith("parked: due in 1m")
    assert "step charge is tried again after no route" in run.why
    assert drained.next_due_at is not None
    assert timedelta(minutes=3) - timedelta(seconds=1) <= drain(app).took <= timedelta(minutes=3)
    assert 7 == run.result("2s")
    assert [3, "ok", ["no route", "busy"]] == [
        run.timeline()[0].tries,
        run.timeline()[0].outcome,
        [each.error.message for each in run.timeline()[0].history.tries],
    ]


def test_a_retried_run_tries_its_step_at_once(app: App, calls: Calls):
    """Runs that wait for the next try of a step go on when an operator retries their job, without a wait."""
    charge = calls.step("charge", OSError("no route"))

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.step(charge, 7, retry=Policy.parse("5 1h").with_(jitter="none"))

    run = body.start()
    drain(app, within="1s")
    run.job.retry()
    drained = drain(app, within="1s")

    assert (["charge", "charge"], 7) == (list(calls), run.result("2s"))
    assert drained.took < timedelta(seconds=1)


def test_the_policy_of_the_workflow_is_for_steps_without_one(app: App, calls: Calls):
    """Steps without a policy have the one of `steps=`; without that, their first failure is final."""
    once, twice = calls.step("once", OSError("a")), calls.step("twice", OSError("b"))

    @app.workflow(steps="1 1s")
    async def patient(flow: Flow) -> int:
        return await flow.step(twice, 1)

    @app.workflow()
    async def strict(flow: Flow) -> int:
        return await flow.step(once, 1)

    patience, strictness = patient.start(), strict.start()
    drain(app)

    assert 1 == patience.result("2s")
    assert "dead" == strictness.state
    assert ["twice", "once", "twice"] == calls


def test_the_error_of_a_step_is_the_same_live_and_replayed(app: App):
    """Bodies receive an exception of the same class with the same arguments in each pass."""
    seen: list[tuple[str, tuple[Any, ...]]] = []

    def look_up(name: str) -> None:
        raise KeyError(name)

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            await flow.step(look_up, "x")
        except KeyError as error:
            seen.append((type(error).__name__, error.args))
        await flow.sleep("1h")

    body.start()
    drain(app)

    assert [("KeyError", ("x",))] * 2 == seen


def test_an_error_without_an_importable_class_becomes_step_failed(app: App):
    """Errors of local classes are `StepFailed` with the name of the class, also in the first pass."""

    class Local(Exception):
        """A class that no other process can import."""

    seen: list[str] = []

    def fail() -> None:
        raise Local("gone")

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            await flow.step(fail)
        except StepFailed as error:
            seen.append(f"{error} {error.reason} {error.error_type.endswith('Local')}")
        await flow.sleep("1h")

    body.start()
    drain(app)

    assert 2 == len(seen)
    assert 1 == len(set(seen))
    assert seen[0].startswith("step fail failed: ")
    assert seen[0].endswith("Local: gone ERROR True")


class Answered(Exception):
    """An exception with a constructor that takes other arguments than its text, and which pickle can make anew."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status

    def __reduce__(self) -> tuple[type[Answered], tuple[int]]:
        return type(self), (self.status,)


def test_an_error_is_made_anew_as_pickle_makes_it(app: App):
    """An error with other arguments than its text, or with the name of a file, has its attributes in each pass."""
    seen: list[tuple[int, str]] = []

    def ask() -> None:
        raise Answered(404)

    def read() -> None:
        raise FileNotFoundError(2, "No such file", "list.txt")

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            await flow.step(ask)
        except Answered as error:
            status = error.status
        try:
            await flow.step(read)
        except FileNotFoundError as error:
            seen.append((status, error.filename))
        await flow.sleep("1h")

    body.start()
    drain(app)

    assert [(404, "list.txt")] * 2 == seen


def test_values_always_pass_through_the_codec(app: App):
    """Results are decoded at once, so that a tuple without annotation is a list in each pass."""
    kinds: list[str] = []

    def pair() -> Any:
        return (1, 2)

    def typed() -> tuple[int, int]:
        return (1, 2)

    @app.workflow()
    async def body(flow: Flow) -> None:
        kinds.append(type(await flow.step(pair)).__name__ + type(await flow.step(typed)).__name__)
        await flow.sleep("1h")

    body.start()
    drain(app)

    assert ["listtuple", "listtuple"] == kinds


@every_store
@pytest.mark.case("W8")
def test_a_result_that_is_too_large_is_final(app: App, calls: Calls):
    """Steps with a result of 3 MiB are called once, under any policy, and the body can catch the error."""

    def dump() -> str:
        calls.append("dump")
        return "x" * 3 * 1024 * 1024

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.step(dump, retry="5 1s")
        except ResultTooLarge as error:
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert ["dump"] == calls
    assert "the result of step dump has 3,145,730 bytes of JSON, and the limit is 1,048,576" in run.result("2s")


def test_a_result_that_does_not_fit_is_final(app: App, calls: Calls):
    """Steps with a result that their annotation does not describe are called once."""

    def weigh() -> int:
        calls.append("weigh")
        return "heavy"  # type: ignore[return-value]

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.step(weigh, retry="5 1s")
        except PayloadError as error:
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert ["weigh"] == calls
    assert 'step weigh: the result "heavy" does not match -> int' in run.result("2s")


def test_a_flow_has_no_attributes_of_the_body(app: App):
    """Assignments to a flow are refused, with the call that stores a value."""
    texts: list[str] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            flow.state = "charged"
        except AttributeError as error:
            texts.append(str(error))
        with pytest.raises(AttributeError, match=r"flow\.now cannot be deleted"):
            del flow.now

    body.start()
    drain(app)

    assert 1 == len(texts)
    assert texts[0].startswith("flow.state cannot be assigned")
    assert "flow.set('state', ...)" in texts[0]


def test_a_step_has_a_timeout(app: App):
    """Tries that take longer than their timeout have failed, and the body receives a TimeoutError."""

    async def hang() -> None:
        await asyncio.Event().wait()

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.step(hang, timeout="20ms")
        except TimeoutError as error:
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert "the attempt took longer than 0.02 s" == run.result("2s")


def test_signals_of_handlers_work_in_steps(app: App, calls: Calls):
    """`GiveUp` fails a step at once, and `Snooze` waits without counting a try."""
    final, later = calls.step("final", GiveUp("no such card")), calls.step("later", Snooze("1h", "closed"))

    @app.workflow()
    async def body(flow: Flow) -> str:
        await flow.step(later)
        try:
            await flow.step(final, retry="5 1s")
        except GiveUp as error:
            return str(error)
        return ""

    run = body.start()
    drained = drain(app)

    assert "no such card" == run.result("2s")
    assert ["later", "later", "final"] == calls
    assert 1 == run.timeline()[0].tries
    assert timedelta(hours=1) == drained.took


def test_an_error_of_a_step_that_leaves_the_body_is_final(app: App, calls: Calls):
    """Runs are not repeated for a recorded error, which would be raised again."""
    charge = calls.step("charge", OSError("no route"))

    @app.workflow(retry="5 1s")
    async def body(flow: Flow) -> int:
        return await flow.step(charge)

    run = body.start()
    drain(app)

    with pytest.raises(JobDead, match="no route"):
        run.result("2s")
    assert ["charge"] == calls
    assert 1 == len(run.job.attempts)


def test_an_error_of_the_body_is_retried_by_the_policy_of_the_run(app: App, calls: Calls):
    """Errors outside of steps are attempts of the run; recorded steps are not repeated."""
    charge, flaky = calls.step("charge"), calls.step("flaky", OSError("no route"))

    @app.workflow(retry="5 1s")
    async def body(flow: Flow) -> int:
        await flow.step(charge)
        return flaky(3)

    run = body.start()
    drain(app)

    assert 3 == run.result("2s")
    assert ["charge", "flaky", "flaky"] == calls


def test_a_def_workflow_runs_in_a_thread(app: App, calls: Calls):
    """Bodies of `def` workflows make steps, waits and branches as coroutines do."""
    one, two = calls.step("one"), calls.step("two")

    async def three(number: int) -> int:
        calls.append("three")
        return number

    @app.workflow()
    def body(flow: SyncFlow) -> list[int]:
        first = flow.step(one, 1)
        flow.sleep("1h")
        both = flow.gather(lambda: flow.step(two, 2), lambda: flow.step(three, 3))
        return [first, *both, *flow.map(one, [4, 5], at_once=1)]

    run = body.start()
    drain(app)

    assert [1, 2, 3, 4, 5] == run.result("2s")
    assert ["one", "two", "three", "one", "one"] == [calls[0], *sorted(calls[1:3], reverse=True), *calls[3:]]


def test_a_step_inside_a_step_is_refused(app: App):
    """Functions of steps cannot call the flow."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def outer() -> None:
            await flow.step(inner)

        def inner() -> None:
            """Do nothing."""

        try:
            await flow.step(outer)
        except FlowMisused as error:
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert "a step inside the step 'outer'" in run.result("2s")


@pytest.mark.parametrize("how", ["create_task", "gather", "thread"])
def test_branches_that_the_flow_does_not_know_are_refused(app: App, calls: Calls, how: str):
    """Steps in tasks and threads of the body's own are refused with the remedy."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> str:
        async def branch() -> None:
            await flow.step(step)

        async def wrong() -> None:
            if how == "create_task":
                await asyncio.create_task(branch())
            elif how == "gather":
                await asyncio.gather(flow.step(step), flow.step(step))
            else:
                await asyncio.to_thread(flow.now)

        try:
            await wrong()
        except FlowMisused as error:
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert "use flow.gather(), flow.map() or flow.first() in place of asyncio.create_task()" in run.result("2s")
    assert [] == calls


def test_a_call_that_is_never_awaited_is_an_error(app: App, calls: Calls):
    """Bodies that forget an await fail with the line of the call."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> None:
        flow.step(step)

    run = body.start()
    drain(app)

    with pytest.raises(JobDead, match=r"a call of the flow was never awaited: runs/test_steps\.py:\d+"):
        run.result("2s")


def test_a_call_is_awaited_once(app: App, calls: Calls):
    """Calls of the flow cannot be awaited twice."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> str:
        call = flow.step(step)
        await call
        try:
            await call
        except FlowMisused as error:
            return str(error)
        return ""

    run = body.start()
    drain(app)

    assert run.result("2s").endswith("a call of the flow can be awaited once")


def reserved(retry: int) -> int:
    """Have a parameter that flow.step() takes."""
    return retry


def plain(number: int) -> int:
    """Return the number."""
    return number


def numbers() -> Any:
    """Be a generator function."""
    yield 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda flow: flow.step(3), TaskDefinitionError, "takes a function, got 3"),
        (lambda flow: flow.step(lambda: 1), TaskDefinitionError, "has no name"),
        (lambda flow: flow.step(numbers), TaskDefinitionError, "is a generator function"),
        (lambda flow: flow.step(reserved, 1), TaskDefinitionError, "a parameter cannot be called 'retry'"),
        (lambda flow: flow.step(plain), PayloadError, "plain: argument 'number' is missing"),
        (lambda flow: flow.step(plain, 1, retry="often"), PolicySyntaxError, "step 'plain'"),
        (lambda flow: flow.step(plain, 1, retry="5 1s catch refund"), TaskDefinitionError, "a step has no catch"),
        (lambda flow: flow.step(plain, 1, undo=3), TaskDefinitionError, "undo= takes a function of the result"),
        (lambda flow: flow.step(plain, 1, timeout="soon"), PolicySyntaxError, "step 'plain': timeout"),
        (lambda flow: flow.step(plain, "x"), PayloadError, "Expected `int`, got `str`"),
        (lambda flow: flow.step(len, "x"), TaskDefinitionError, "step 'len' is a function in C"),
        (lambda flow: flow.call(len), TaskDefinitionError, "takes a workflow"),
    ],
)
def test_wrong_steps_are_refused_where_they_are_made(app: App, make: Any, error: type[Exception], text: str):
    """Functions, arguments and options that cannot be used are errors at the line of the call."""
    seen: list[str] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            make(flow)
        except error as wrong:
            seen.append(str(wrong))

    body.start()
    drain(app)

    assert 1 == len(seen)
    assert text in seen[0]


def test_now_random_and_uuid_are_the_same_in_each_pass(app: App, calls: Calls):
    """Times, random numbers and UUIDs of the flow do not change when the body is replayed."""
    step = calls.step("step")
    seen: list[tuple[Any, ...]] = []

    @app.workflow()
    async def body(flow: Flow) -> None:
        begin = flow.now()
        await flow.sleep("1h")
        await flow.step(step)
        seen.append((begin, flow.now(), flow.random.random(), flow.uuid(), flow.id, flow.version, flow.workflow))
        await flow.sleep("1h")

    body.start(id="r")
    drain(app)

    assert 2 == len(seen)
    assert seen[0] == seen[1]
    assert timedelta(hours=1) == seen[0][1] - seen[0][0]
    assert ("r", 1, "body") == seen[0][4:]


def test_two_runs_have_different_random_numbers(app: App):
    """Random numbers depend on the run."""

    @app.workflow()
    async def body(flow: Flow) -> float:
        return flow.random.random()

    runs = [body.start(id="a"), body.start(id="b")]
    drain(app)

    assert 2 == len({run.result("2s") for run in runs})


def test_values_are_readable_from_outside(app: App, calls: Calls):
    """Values that the body sets are stored with its next row, also when it parks."""
    step = calls.step("step")

    @app.workflow()
    async def body(flow: Flow) -> None:
        flow.set("state", "charging")
        await flow.step(step)
        flow.set("state", {"parcels": 2})
        await flow.sleep("1h")

    run = body.start()
    assert run.value("state") is None
    drain(app, within="1m")

    assert {"parcels": 2} == run.value("state")
    assert {"state": {"parcels": 2}} == run.values()


def test_a_value_is_stored_although_the_row_after_it_was_refused(app: App, calls: Calls, refusing: Refusing):
    """A body may catch the error of a step; values, and rows that no call waits for, are written with the next row."""
    one, two = calls.step("one"), calls.step("two")
    refusing(StepKind.STEP)

    @app.workflow()
    async def body(flow: Flow) -> None:
        flow.set("state", "charging")
        assert flow.patched("new words")
        with pytest.raises(StoreError, match="refused"):
            await flow.step(one)
        await flow.step(two)

    run = body.start()
    drain(app)

    assert ("succeeded", {"state": "charging"}) == (run.job.refresh().state, run.values())
    assert ["new words", "two"] == [row.name for row in run.timeline()]


def test_a_long_run_is_warned_about_and_stopped(app: App, calls: Calls, caplog: pytest.LogCaptureFixture):
    """Runs fail at the limit of recorded steps, and continue with `flow.restart`."""
    step = calls.step("step")

    @app.workflow(max_steps=5)
    async def endless(flow: Flow) -> None:
        while True:
            await flow.step(step)

    @app.workflow(max_steps=5)
    async def counts(flow: Flow, begin: int) -> int:
        for number in range(begin, begin + 3):
            await flow.step(step, number)
        if begin < 9:
            flow.restart(begin + 3)
        return begin

    stopped, counted = endless.start(), counts.start(0)
    drain(app)

    with pytest.raises(JobDead, match="has 5 recorded steps, and the limit is 5: begin anew by flow.restart"):
        stopped.result("2s")
    assert 9 == counted.result("2s")
    assert 3 == counted.record.epoch
    assert "has 5 recorded steps" in caplog.text


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("state", ["40P01", "40001"])
def test_a_transaction_that_another_one_has_ended_is_repeated(app: App, colour: str, state: str):
    """Steps in transactions that end by a deadlock, which changes nothing, are called again."""
    calls: list[int] = []
    end = f"DO $$ BEGIN RAISE EXCEPTION 'ended' USING ERRCODE = '{state}'; END $$"

    def charge(connection: Any, number: int) -> int:
        calls.append(number)
        if len(calls) < 3:
            connection.execute(end)
        return number

    async def charge_async(connection: Any, number: int) -> int:
        calls.append(number)
        if len(calls) < 3:
            await connection.execute(end)
        return number

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.transaction(charge if colour == "sync" else charge_async, 7)

    run = body.start()
    drain(app)

    assert (7, [7, 7, 7]) == (run.result("2s"), calls)
    assert 1 == len(run.job.attempts)


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("error", [StoreUnreachable, StoreBusy, StoreFull], ids=lambda error: error.__name__)
def test_a_transaction_whose_function_meets_another_store_fails(app: App, colour: str, error: type[Exception]):
    """What another store answers to a step in a transaction, which stands, is a failure of the step."""
    calls: list[int] = []

    def charge(connection: Any, number: int) -> int:
        calls.append(number)
        raise error("the database of the customers")

    async def charge_async(connection: Any, number: int) -> int:
        return charge(connection, number)

    @app.workflow()
    async def body(flow: Flow) -> str:
        with pytest.raises(error) as caught:
            await flow.transaction(charge if colour == "sync" else charge_async, 7)
        return str(caught.value)

    run = body.start()
    drain(app)

    assert ([7], True) == (calls, "the database of the customers" in run.result("2s"))


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_transaction_whose_server_goes_is_repeated(app: App, colour: str):
    """Steps in transactions that end with their connection, which changes nothing, are called again."""
    calls: list[int] = []
    end = "SELECT pg_terminate_backend(pg_backend_pid())"

    def charge(connection: Any, number: int) -> int:
        calls.append(number)
        if len(calls) == 1:
            connection.execute(end)
        return number

    async def charge_async(connection: Any, number: int) -> int:
        calls.append(number)
        if len(calls) == 1:
            await connection.execute(end)
        return number

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.transaction(charge if colour == "sync" else charge_async, 7)

    run = body.start()
    drain(app)

    assert (7, [7, 7]) == (run.result("2s"), calls)
    assert 1 == len(run.job.attempts)


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_transaction_that_fails_beside_its_server_fails(app: App, colour: str):
    """Steps in transactions fail with the error of their statement, or of their code."""
    calls: list[int] = []

    def charge(connection: Any, number: int) -> int:
        calls.append(number)
        if len(calls) == 2:
            raise ValueError("no")
        return connection.execute("SELEC 1")

    async def charge_async(connection: Any, number: int) -> int:
        if len(calls) == 1:
            return charge(connection, number)
        calls.append(number)
        return await connection.execute("SELEC 1")

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        errors = []
        for number in range(2):
            try:
                await flow.transaction(charge if colour == "sync" else charge_async, number)
            except Exception as error:  # noqa: BLE001 - each library has its own
                errors.append(str(error))
        return errors

    run = body.start()
    drain(app)
    first, second = run.result("2s")

    assert ([0, 1], True, "no") == (calls, "syntax error" in first, second.rpartition(": ")[2])


SET: ContextVar[str] = ContextVar("tests_set", default="default")


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("colour", ["coroutine", "function", "awaitable", "transaction", "def transaction"])
def test_a_body_does_not_see_what_its_steps_set(app: App, colour: str):
    """A body and its undos see the same values when the function of a step has just run and when it is replayed."""
    seen: list[str] = []

    async def sets(connection: Any = None) -> int:
        seen.append(f"step: {SET.get()}")
        SET.set("of a step")
        await turn()
        seen.append(f"step: {SET.get()}")
        return 1

    def sets_here(connection: Any = None) -> int:
        SET.set("of a step")
        return 1

    def begins(connection: Any = None) -> Any:
        return sets()

    async def undo(_: int) -> None:
        seen.append(f"undo: {SET.get()}")
        SET.set("of an undo")

    step: Callable[..., Any] = {
        "function": sets_here,
        "awaitable": begins,
        "def transaction": sets_here,
    }.get(colour, sets)

    @app.workflow()
    async def body(flow: Flow) -> None:
        SET.set("of the body")
        if "transaction" in colour:
            await flow.transaction(step)
        else:
            await flow.step(step, undo=undo)
        seen.append(f"body: {SET.get()}")
        await flow.step(sets, undo=undo)
        await flow.sleep("1m")
        raise GiveUp("no seat")

    body.start()
    drain(app)

    assert {"body: of the body", "undo: of the body"} == {each for each in seen if not each.startswith("step")}
    assert 2 == seen.count("body: of the body")
    assert seen.count("step: of the body") == seen.count("step: of a step") > 0


def test_a_function_apart_is_awaited_like_any_other():
    """Values, errors and cancellations pass through a call in a context of its own."""
    caught: list[str] = []

    async def waits(release: asyncio.Future[str]) -> str:
        try:
            return await release
        except asyncio.CancelledError:
            caught.append("cancelled")
            raise
        except OSError as error:
            caught.append(str(error))
            return "after an error"

    async def calls() -> tuple[str, str]:
        fails, stays, ends = (asyncio.get_running_loop().create_future() for _ in range(3))
        fails.set_exception(OSError("closed"))
        ends.set_result("a value")

        async def outside() -> str:
            return await apart("waits", functools.partial(waits, stays))

        task = asyncio.ensure_future(outside())
        await turn()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await apart("fails", functools.partial(waits, fails)), await apart("x", functools.partial(waits, ends))

    answers = asyncio.run(calls())

    assert (("after an error", "a value"), ["cancelled", "closed"]) == (answers, caught)


def test_work_that_is_cancelled_before_it_begins_is_closed():
    """The end of an event loop cancels a try of a step that has not begun, and leaves no coroutine to be awaited."""

    async def work() -> None:
        """Do nothing."""

    async def cancelled() -> Coroutine[Any, Any, None]:
        """Cancel the task of some work before its first turn, and return the work."""
        writes: Any = SimpleNamespace(_loop=asyncio.get_running_loop(), unfinished=set(), _finished=lambda task: None)
        begun = work()
        waiting = asyncio.ensure_future(Writes.finish(writes, begun))
        await turn()
        (task,) = writes.unfinished
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return begun

    assert inspect.CORO_CLOSED == inspect.getcoroutinestate(asyncio.run(cancelled()))
