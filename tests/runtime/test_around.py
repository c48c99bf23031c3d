"""The middleware of an app around handlers, steps and undos."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from redrive import App, Cancel, CatchRequest, Context, Execution, Filter, Flow, GiveUp, Snooze, SyncFlow
from redrive.engine.lifecycle import State
from redrive.errors import JobDead, TaskDefinitionError
from redrive.testing import drain
from tests.runtime.helpers import came, ended, working
from tests.runtime.runs.conftest import app as app_of_a_store
from tests.runtime.runs.conftest import every_store

app = app_of_a_store

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tests_tenant", default="none")


@dataclass
class Begin:
    """The event of an instance."""

    number: int


def in_child(number: int) -> int:
    """Return the double, in a child process."""
    return 2 * number


def noting(app: App) -> list[str]:
    """Register a middleware that notes the calls, and return its notes."""
    notes: list[str] = []

    @app.around
    def note(call: Execution) -> Iterator[None]:
        notes.append(f"{call.kind} {call.name} {call.attempt}")
        try:
            yield
        except BaseException as error:
            notes.append(type(error).__name__)
            raise

    return notes


def test_the_first_middleware_is_outside(app: App):
    """They are entered in the order of the code, and left the other way round, around both colours."""
    order: list[str] = []

    def named(name: str) -> None:
        @app.around
        def each(call: Execution) -> Iterator[None]:
            order.append(f"{name} before {call.task}")
            yield
            order.append(f"{name} after {call.task}")

    named("first")
    named("second")

    @app.task
    async def coroutine() -> None:
        order.append("coroutine")

    @app.task
    def thread() -> None:
        order.append("thread")

    for task in (coroutine, thread):
        task.enqueue()
        drain(app)
        name = task.name
        assert [
            f"first before {name}",
            f"second before {name}",
            name.rpartition(".")[2],
            f"second after {name}",
            f"first after {name}",
        ] == order
        order.clear()


@every_store
def test_a_middleware_knows_the_job(app: App):
    """It gets the names, the number of the attempt, the arguments without the context, the queue and the partition."""
    seen: list[Execution] = []

    @app.around
    def note(call: Execution) -> Iterator[None]:
        seen.append(call)
        yield

    @app.task(name="charge", queue="bank", retry="1 1s")
    def charge(ctx: Context, order: int, currency: str = "EUR") -> None:
        if ctx.attempt == 1:
            raise OSError

    job = charge.options(partition="shop").enqueue(7)
    drain(app)

    assert job.state is State.SUCCEEDED
    first = Execution("handler", "charge", "charge", job.id, 1, {"order": 7}, "bank", "shop")
    assert [first, Execution("handler", "charge", "charge", job.id, 2, {"order": 7}, "bank", "shop")] == seen


def test_what_it_sets_is_seen_by_the_call(filed: App):
    """Context variables reach handlers in the event loop and in threads; it runs in the thread of the handler."""

    async def main() -> None:
        places: list[tuple[str, bool]] = []

        @filed.around
        def tenant(call: Execution) -> Iterator[None]:
            here = threading.get_ident()
            token = TENANT.set(call.arguments["tenant"])
            yield
            places.append((TENANT.get(), here == threading.get_ident()))
            TENANT.reset(token)

        @filed.task
        async def coroutine(tenant: str) -> str:
            return TENANT.get()

        @filed.task
        def thread(tenant: str) -> tuple[str, int]:
            return TENANT.get(), threading.get_ident()

        jobs = [await coroutine.aenqueue("north"), await thread.aenqueue("south")]
        async with working(filed):
            await ended(*jobs)
        seen, in_thread = await jobs[0].aresult(), await jobs[1].aresult()

        assert ("north", "south", True) == (seen, in_thread[0], in_thread[1] != threading.get_ident())
        assert {("north", True), ("south", True)} == set(places)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "state"),
    [(OSError("no"), "dead"), (GiveUp("no"), "dead"), (Cancel("no"), "cancelled"), (Snooze("1h"), "ready")],
    ids=["an error", "give up", "cancel", "snooze"],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_what_it_raises_is_the_end_of_the_attempt(app: App, error: Exception, state: str, place: str):
    """Before the call the handler does not run; the policy decides as on an error of the handler."""
    called, closed = list[int](), list[str]()

    @app.around
    def outer(call: Execution) -> Iterator[None]:
        try:
            yield
        except BaseException as raised:
            closed.append(type(raised).__name__)
            raise

    @app.around
    def inner(call: Execution) -> Iterator[None]:
        if place == "before":
            raise error
        yield
        raise error

    @app.task
    def handler(number: int) -> None:
        called.append(number)

    job = handler.enqueue(1)
    drain(app, within=0)

    assert (state, [type(error).__name__]) == (str(job.state), closed)
    assert ([] if place == "before" else [1]) == called


def test_it_may_replace_the_error_of_the_call(app: App):
    """The policy decides on the error that leaves the outermost middleware."""

    @app.around
    def outer(call: Execution) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise GiveUp("the customer is gone") from error

    @app.around
    def inner(call: Execution) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise KeyError(7) from error

    @app.task(retry="5 1s")
    def handler() -> None:
        raise OSError

    job = handler.enqueue()
    drain(app)

    assert (State.DEAD, 1) == (job.state, len(job.attempts))
    with pytest.raises(JobDead, match="the customer is gone"):
        job.result(timeout=0)


def test_an_error_that_it_catches_stays_the_failure(app: App):
    """A middleware that does not raise again, as some that report errors, does not make the attempt succeed."""

    @app.around
    def reports(call: Execution) -> Iterator[None]:
        with contextlib.suppress(OSError):
            yield

    @app.task
    def handler() -> int:
        raise OSError("the disk is full")

    job = handler.enqueue()
    drain(app)

    with pytest.raises(JobDead, match="the disk is full"):
        job.result(timeout=0)


@every_store
def test_what_it_enqueues_joins_the_attempt(app: App):
    """Jobs of the middleware exist if the attempt succeeds."""

    @app.task
    def note(text: str) -> None:
        """Do nothing."""

    @app.around
    def audit(call: Execution) -> Iterator[None]:
        if call.task == "work":
            note.enqueue("before")
        yield
        if call.task == "work":
            note.enqueue("after")

    @app.task(name="work", retry="1 1s")
    def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise OSError

    work.enqueue()
    drain(app)

    assert 2 == len(app.jobs.select(Filter(task=note.name)))


@every_store
def test_it_runs_once_for_each_try_of_a_step(app: App):
    """A replay does not run it for recorded steps, and the body has none."""
    notes, left = noting(app), [OSError()]

    def reserve() -> int:
        return 1

    async def charge(number: int) -> int:
        if left:
            raise left.pop()
        return number

    def give_back(number: int) -> None:
        """Do nothing."""

    @app.workflow(name="order", retry="0")
    async def order(flow: Flow) -> None:
        await flow.step(reserve, undo=give_back)
        await flow.sleep("1h")
        await flow.step(charge, 1, retry="1 1h")
        await flow.sleep("1h")
        raise GiveUp("no")

    run = order.start()
    drain(app)

    assert str(run.state) == "dead"
    assert ["step reserve 1", "step charge 1", "OSError", "step charge 2", "undo give_back 1"] == notes


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_it_wraps_steps_of_a_sync_body_and_of_a_transaction(app: App):
    """The arguments of a step with a transaction have no connection; what it sets stays apart from the body."""
    seen: list[tuple[str, Any]] = []

    @app.around
    def tenant(call: Execution) -> Iterator[None]:
        seen.append((call.name, dict(call.arguments)))
        TENANT.set("north")
        yield

    def plain(number: int, *, text: str = "") -> str:
        return TENANT.get()

    def write(connection: object, number: int) -> str:
        return TENANT.get()

    @app.workflow(name="order")
    def order(flow: SyncFlow) -> list[str]:
        return [flow.step(plain, 1, text="a"), flow.transaction(write, 2), TENANT.get()]

    run = order.start()
    drain(app)

    assert ["north", "north", "none"] == run.result(timeout=0)
    assert [("plain", {"number": 1, "text": "a"}), ("write", {"number": 2})] == seen


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_a_transaction_has_the_number_of_its_try(app: App):
    """It is tried again like each step of its workflow."""
    numbers: list[int] = []

    @app.around
    def note(call: Execution) -> Iterator[None]:
        numbers.append(call.attempt)
        yield

    def write(connection: object) -> None:
        if len(numbers) < 3:
            raise ConnectionError

    @app.workflow(name="order", steps="5 1s")
    async def order(flow: Flow) -> None:
        await flow.sleep("1d")
        await flow.transaction(write)

    run = order.start()
    drain(app)

    assert ("succeeded", [1, 2, 3]) == (str(run.state), numbers)


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_an_async_step_does_not_leak_what_it_sets(app: App):
    """A context variable of the middleware of a step is not seen by the body, which a replay would not set."""

    @app.around
    def tenant(call: Execution) -> Iterator[None]:
        TENANT.set("north")
        yield

    async def read() -> str:
        return TENANT.get()

    async def write(connection: object) -> str:
        return TENANT.get()

    @app.workflow(name="order")
    async def order(flow: Flow) -> list[str]:
        return [await flow.step(read), await flow.transaction(write), TENANT.get()]

    run = order.start()
    drain(app)

    assert ["north", "north", "none"] == run.result(timeout=0)


def test_a_step_fails_with_what_it_raises(app: App):
    """The policy of the step decides on it, and its function is not called."""
    left = [OSError()]

    @app.around
    def refuse(call: Execution) -> Iterator[None]:
        if left:
            raise left.pop()
        yield

    def charge() -> int:
        return 1

    @app.workflow(name="order")
    async def order(flow: Flow) -> int:
        return await flow.step(charge, retry="1 1s")

    run = order.start()
    drain(app)

    assert 1 == run.result(timeout=0)


def test_it_wraps_every_kind_of_handler(app: App):
    """Catch tasks, crons, refreshes, subscribers and states of machines are wrapped as tasks are."""
    notes = noting(app)

    @app.task(name="caught")
    def caught(request: CatchRequest[int]) -> None:
        """Do nothing."""

    @app.task(name="fails", retry="0 catch caught")
    def fails(number: int) -> None:
        raise OSError

    @app.cron("0 3 * * *", name="nightly")
    def nightly() -> None:
        """Do nothing."""

    @app.refresh("every hour", name="fresh")
    def fresh(ctx: Context) -> None:
        """Do nothing."""

    machine = app.machine("door")

    @machine.start
    def opened(event: Begin) -> None:
        """Do nothing."""

    paid = app.topic("paid", int)

    @paid.subscribe("mail")
    def mail(number: int) -> None:
        """Do nothing."""

    fails.enqueue(1)
    fresh.track("a")
    machine.send("front", Begin(1))
    drain(app, within="1s")
    nightly.trigger()
    paid.publish(1)
    drain(app, within="1s")

    kinds = {each.rpartition(" ")[0] for each in notes}
    assert {"handler caught", "handler fails", "handler nightly", "handler fresh"} < kinds
    assert {True} == {any(name in each for each in kinds) for name in ("opened", "mail")}


def test_a_cancelled_attempt_leaves_its_middleware(filed: App):
    """A time limit and the end of a worker are raised at the yield of an async handler."""

    async def main() -> None:
        notes, begun = noting(filed), threading.Event()

        @filed.task(name="slow")
        async def slow() -> None:
            begun.set()
            await asyncio.Event().wait()

        job = await slow.aenqueue()
        async with working(filed):
            await came(begun)
            await job.acancel()
            await ended(job)

        assert ["handler slow 1", "CancelledError"] == notes

    asyncio.run(main())


def test_it_surrounds_a_child_process(filed: App):
    """It runs in the worker, and the handler in the child."""

    async def main() -> None:
        notes = noting(filed)
        job = await filed.task(executor="process", name="in_child")(in_child).aenqueue(2)
        async with working(filed):
            await ended(job)

        assert (4, ["handler in_child 1"]) == (await job.aresult(), notes)

    asyncio.run(main())


def test_only_a_def_with_a_yield_is_a_middleware(app: App):
    """Others are refused where they are declared."""

    async def coroutine(call: Execution) -> None:
        """Do nothing."""

    async def asynchronous(call: Execution) -> Any:
        yield

    def plain(call: Execution) -> None:
        """Do nothing."""

    def nothing() -> Iterator[None]:
        yield

    wrong: list[tuple[Any, str]] = [
        (coroutine, "is async"),
        (asynchronous, "is async"),
        (plain, "does not yield"),
        (nothing, "takes one parameter"),
        (7, "is no function"),
    ]
    for function, message in wrong:
        with pytest.raises(TaskDefinitionError, match=message):
            app.around(function)


def test_a_second_yield_is_a_failure(app: App):
    """The attempt fails, and the message says so."""

    @app.around
    def twice(call: Execution) -> Iterator[None]:
        yield
        yield

    @app.task
    def handler() -> None:
        """Do nothing."""

    job = handler.enqueue()
    drain(app)

    with pytest.raises(JobDead, match="the middleware .*twice yielded twice"):
        job.result(timeout=0)
