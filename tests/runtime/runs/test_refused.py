"""What writes is refused in the body of a run, which is replayed, and permitted in what a replay does not call."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from redrive import App, Context, Filter, Flow, Policy, SyncFlow
from redrive.app.loading import REFUSAL
from redrive.app.tasks.task import Task
from redrive.engine.lifecycle import State
from redrive.errors import FlowMisused, NonDeterminism
from redrive.runtime.runs.branches import Branch
from redrive.runtime.runs.refused import BodyRefusal
from redrive.testing import drain, replay
from tests.runtime.helpers import ended, working
from tests.runtime.runs.conftest import every_store


@dataclass
class Paid:
    """An event."""

    cents: int


@dataclass
class Shop:
    """One of each kind, and what exists of it."""

    app: App
    charge: Task[Any, Any, Any]
    other: Any
    order: Any
    payments: Any
    prices: Any

    def written(self) -> tuple[int, int, int, int]:
        """Return the numbers of jobs of the task, of instances, of events and of runs of the other workflow."""
        app = self.app
        events = sum(each.events for each in app.topics.sizes())
        runs = [each for each in app.runs.select() if each.workflow == "other"]
        return len(app.jobs.select(Filter(task="charge"))), len(self.order.select()), events, len(runs)


@pytest.fixture
def shop(app: App) -> Shop:
    """Return an app with one of each kind, and a dead job, the first one."""

    @app.task
    def charge(number: int) -> None:
        if number < 0:
            raise ValueError("negative")

    @app.workflow()
    async def other(flow: Flow, number: int) -> int:
        return number

    order = app.machine("order")

    @order.start()
    def paid(event: Paid, ctx: Context) -> None:
        """Do nothing."""

    @app.refresh("Refresh every hour")
    def prices(key: str) -> None:
        """Do nothing."""

    charge.enqueue(-1)
    drain(app, within="1m")
    return Shop(app, charge, other, order, app.topic("payments", Paid), prices)


WRITES: dict[str, Callable[[Shop], Any]] = {
    "enqueue": lambda shop: shop.charge.enqueue(1),
    "aenqueue": lambda shop: shop.charge.aenqueue(1),
    "enqueue_many": lambda shop: shop.charge.enqueue_many([1, 2]),
    "options": lambda shop: shop.charge.options(delay="1h").enqueue(1),
    "debounce": lambda shop: shop.charge.debounce("a", quiet="1s", at_most="2s").enqueue(1),
    "named": lambda shop: shop.app.named("unknown").enqueue(x=1),
    "publish": lambda shop: shop.payments.publish(Paid(1)),
    "apublish": lambda shop: shop.payments.apublish(Paid(1)),
    "publish_many": lambda shop: shop.payments.publish_many([Paid(1)]),
    "start": lambda shop: shop.other.start(1),
    "astart": lambda shop: shop.other.astart(1),
    "send": lambda shop: shop.order.send("a", Paid(1)),
    "asend": lambda shop: shop.order.asend("a", Paid(1)),
    "track": lambda shop: shop.prices.track("a", "a"),
    "emit": lambda shop: shop.app.emit("ready", 1),
    "signal": lambda shop: shop.app.runs.get("body", "own").signal("go", 1),
    "cancel a run": lambda shop: shop.app.runs.get("body", "own").cancel(),
    "pause a run": lambda shop: shop.app.runs.get("body", "own").apause(),
    "cancel jobs": lambda shop: shop.app.jobs.cancel(Filter(task="charge")),
    "redrive jobs": lambda shop: shop.app.jobs.aredrive(Filter(task="charge")),
    "redrive a job": lambda shop: shop.app.job(1).retry(),
    "pause a queue": lambda shop: shop.app.queue("default").pause(),
    "set a queue": lambda shop: shop.app.queue("default").limit(concurrency=1),
}


def line_of(function: Callable[..., Any], below: int = 0) -> str:
    """Return a line of a function, so many lines below its first one, as messages have it."""
    line = function.__code__.co_firstlineno + below
    return f"runs/test_refused.py:{line}: this writes to the database of jobs in the body"


async def done(value: Any) -> None:
    """Await what one colour of a verb returns."""
    if inspect.isawaitable(value):
        await value


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_writes_is_refused_in_a_body(shop: Shop, write: Callable[[Shop], Any]):
    """Each verb that writes fails the run at its first attempt with the line of the user, and writes nothing."""
    before = shop.written(), shop.app.queue("default").settings

    @shop.app.workflow(retry="3 1s")
    async def body(flow: Flow) -> None:
        await done(write(shop))

    run = body.start(id="own")
    drain(shop.app, within="2h")
    record = run.job.refresh().record

    assert (State.DEAD, 1, "PROGRAMMING_ERROR") == (record.state, len(run.job.attempts), run.job.attempts[0].reason)
    assert str(record.error).startswith((line_of(write), line_of(done, 3)))
    assert before == (shop.written(), shop.app.queue("default").settings)
    assert State.DEAD == shop.app.job(1).state


def _in_helper(shop: Shop) -> None:
    _helper(shop)


def _helper(shop: Shop) -> None:
    shop.charge.enqueue(1)


PLACES: dict[str, Callable[[Flow, Shop], Any]] = {}


def place(function: Callable[[Flow, Shop], Any]) -> Callable[[Flow, Shop], Any]:
    """Add a place in the code of a workflow."""
    PLACES[function.__name__.strip("_")] = function
    return function


async def _enqueues(shop: Shop) -> None:
    await asyncio.sleep(0)  # noqa: TID251 - not a sleep
    await shop.charge.aenqueue(1)  # here


@place
async def _branch_of_gather(flow: Flow, shop: Shop) -> None:
    await flow.gather(flow.step(nothing), _enqueues(shop))


@place
async def _branch_of_first(flow: Flow, shop: Shop) -> None:
    await flow.first(flow.sleep("1h"), _enqueues(shop))


@place
async def _branch_within_a_branch(flow: Flow, shop: Shop) -> None:
    async def inner() -> None:
        await flow.gather(flow.step(nothing), _enqueues(shop))

    await flow.gather(inner(), flow.sleep("1h"))


@place
async def _behind_a_step(flow: Flow, shop: Shop) -> None:
    await flow.step(nothing)
    await _enqueues(shop)


@place
async def _behind_a_wait(flow: Flow, shop: Shop) -> None:
    await flow.sleep("1h")
    await _enqueues(shop)


@place
async def _gathered_by_asyncio(flow: Flow, shop: Shop) -> None:
    await asyncio.gather(shop.charge.aenqueue(1), shop.charge.aenqueue(2))  # here


@place
async def _task_of_asyncio(flow: Flow, shop: Shop) -> None:
    lost = asyncio.create_task(shop.charge.aenqueue(1))
    await asyncio.sleep(0)  # here  # noqa: TID251 - not a sleep
    await asyncio.sleep(0)  # noqa: TID251 - not a sleep
    lost.exception()


@place
async def _in_a_thread(flow: Flow, shop: Shop) -> None:
    await asyncio.to_thread(shop.charge.enqueue, 1)  # here


@place
async def _function_in_a_thread(flow: Flow, shop: Shop) -> None:
    await asyncio.to_thread(lambda: shop.charge.enqueue(1))  # here


@place
async def _in_a_thread_of_the_loop(flow: Flow, shop: Shop) -> None:
    await asyncio.get_running_loop().run_in_executor(None, shop.charge.enqueue, 1)  # here


@place
async def _in_an_own_pool(flow: Flow, shop: Shop) -> None:
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, shop.charge.enqueue, 1)  # here


@place
async def _in_a_thread_of_its_own(flow: Flow, shop: Shop) -> None:
    def caught() -> None:
        with contextlib.suppress(FlowMisused):
            shop.charge.enqueue(1)  # here

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()


@place
async def _in_a_thread_of_a_pool(flow: Flow, shop: Shop) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shop.charge.enqueue, 1).result()  # here


@place
async def _swallowed(flow: Flow, shop: Shop) -> None:
    with contextlib.suppress(Exception):
        await _enqueues(shop)


@place
async def _swallowed_before_a_step(flow: Flow, shop: Shop) -> None:
    with contextlib.suppress(Exception):
        await _enqueues(shop)
    await flow.step(unreached)


@place
async def _in_the_end(flow: Flow, shop: Shop) -> None:
    try:
        await flow.step(nothing)
    finally:
        await _enqueues(shop)


def nothing() -> None:
    """Do nothing."""


def unreached() -> None:
    """Fail the test."""
    pytest.fail("the body went on")


@every_store
@pytest.mark.parametrize("body", PLACES.values(), ids=PLACES)
def test_every_place_of_a_body_is_refused(shop: Shop, body: Callable[[Flow, Shop], Any]):
    """Branches, tasks and threads belong to the body; an error that it catches, or never sees, still ends the run."""

    @shop.app.workflow()
    async def placed(flow: Flow) -> None:
        await body(flow, shop)

    run = placed.start()
    drain(shop.app, within="1d")
    error = str(run.job.refresh().record.error)

    assert (State.DEAD, 1) == (run.state, len(shop.app.jobs.select(Filter(task="charge"))))
    source = _enqueues if "# here" not in inspect.getsource(body) else body
    lines, first = inspect.getsourcelines(source)
    wanted = next(first + number for number, line in enumerate(lines) if "# here" in line)
    assert error.startswith(f"runs/test_refused.py:{wanted}: this writes"), error


@every_store
def test_a_body_in_a_thread_is_refused(shop: Shop):
    """Bodies that are no coroutine, their branches and helpers are refused in drain mode and by a worker."""

    def body(flow: SyncFlow, kind: str) -> None:
        if kind == "branch":
            flow.gather(lambda: flow.step(nothing), lambda: _helper(shop))
        if kind == "loop":
            asyncio.run(shop.charge.aenqueue(1))
        flow.step(nothing)
        _helper(shop)

    started = shop.app.workflow(name="threaded")(body)
    runs = [started.start(each) for each in ("", "branch", "loop")]
    drain(shop.app, within="2h")

    assert [State.DEAD] * 3 == [run.state for run in runs]
    line = inspect.getsourcelines(body)[1] + 4
    places = [str(run.job.refresh().record.error).split(": this writes")[0] for run in runs]
    helper = line_of(_helper).split(":")[1]
    assert [f"runs/test_refused.py:{each}" for each in (int(helper) + 1, int(helper) + 1, line)] == places
    assert 1 == len(shop.app.jobs.select(Filter(task="charge")))


def test_a_worker_refuses_and_permits(shop: Shop):
    """A worker refuses in bodies of both colours, and permits in steps of both, in threads and on its event loop."""

    def in_step(number: int) -> None:
        shop.charge.enqueue(number)

    async def in_async_step(number: int) -> None:
        await shop.charge.aenqueue(number)

    @shop.app.workflow()
    def plain(flow: SyncFlow, bad: bool) -> None:
        flow.step(in_step, 1)
        flow.step(in_async_step, 2)
        if bad:
            _helper(shop)

    @shop.app.workflow()
    async def coroutine(flow: Flow, bad: bool) -> None:
        await flow.gather(flow.step(in_step, 3), flow.step(in_async_step, 4))
        if bad:
            _helper(shop)

    runs = [each.start(bad) for each in (plain, coroutine) for bad in (False, True)]

    async def main() -> None:
        async with working(shop.app):
            await ended(*[run.job for run in runs])

    asyncio.run(main())

    assert [State.SUCCEEDED, State.DEAD] * 2 == [run.state for run in runs]
    assert 9 == len(shop.app.jobs.select(Filter(task="charge")))


@every_store
def test_steps_transactions_undos_and_hooks_write(shop: Shop):
    """What a replay does not call may write: steps, their hooks and undos, transactions, and reads of the body."""
    numbers = iter(range(1, 100))

    def write() -> None:
        shop.charge.enqueue(next(numbers))

    def hook(details: object) -> None:
        write()

    async def awrite() -> None:
        await shop.charge.aenqueue(next(numbers))
        await asyncio.gather(shop.charge.aenqueue(next(numbers)), asyncio.to_thread(write))

    def undone(result: None) -> None:
        write()

    tried = []

    def fails_once() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise OSError("once")

    @shop.app.workflow()
    async def body(flow: Flow) -> None:
        assert 1 <= len(await shop.app.jobs.aselect(Filter(task="charge")))
        await flow.step(write, undo=undone)
        await flow.step(awrite)
        await flow.step(fails_once, retry=Policy.parse("3 1s").with_(on_retry=hook))
        assert State.DEAD == (await shop.app.job(1).arefresh()).record.state
        raise ValueError("now undo")

    run = body.start()
    drain(shop.app, within="2h")

    assert (State.DEAD, 2) == (run.state, len(tried))
    assert "now undo (write undone)" == run.job.refresh().record.error
    assert 1 + 6 == len(shop.app.jobs.select(Filter(task="charge")))


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_a_transaction_writes(shop: Shop):
    """The function of flow.transaction() enqueues on its connection, and without it."""

    def on_connection(connection: Any) -> None:
        shop.charge.enqueue(1, using=connection)

    @shop.app.workflow()
    async def body(flow: Flow) -> None:
        await flow.transaction(on_connection)

    run = body.start()
    drain(shop.app, within="2h")

    assert (State.SUCCEEDED, 2) == (run.state, len(shop.app.jobs.select(Filter(task="charge"))))


def test_a_replay_refuses(shop: Shop):
    """A replay of a history, which has no database, refuses the call that a change of the code has brought."""

    @shop.app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(nothing)

    run = body.start()
    drain(shop.app, within="2h")
    history = run.history()
    replay(shop.app, history)
    changed = App("memory://")

    @changed.workflow(name="body")
    async def later(flow: Flow) -> None:
        await flow.step(nothing)
        with contextlib.suppress(Exception):
            shop.charge.enqueue(1)

    with pytest.raises(NonDeterminism, match=r"runs/test_refused.py:\d+: this writes"):
        replay(changed, history)


def test_a_run_that_has_recorded_steps_behind_the_call_is_held(shop: Shop):
    """A run that an earlier redrive let write in its body waits for corrected code, and goes on with it."""
    calls = []

    def later() -> None:
        calls.append(1)

    bad = []

    @shop.app.workflow()
    async def body(flow: Flow) -> None:
        if bad:
            _helper(shop)
        await flow.step(later)
        await flow.sleep("1h")

    run = body.start()
    drain(shop.app, within="1m")
    bad.append(1)
    drain(shop.app, within="2h")

    assert State.READY == run.state
    assert "this writes to the database of jobs in the body of a workflow" in run.why

    bad.clear()
    drain(shop.app, within="2h")
    assert (State.SUCCEEDED, [1]) == (run.state, calls)


@every_store
def test_a_run_that_writes_while_it_parks_is_held(shop: Shop):
    """A call in a block that ends with the parking is refused, and the run waits for corrected code."""
    bad, calls = [True], []

    def first() -> None:
        calls.append(1)

    @shop.app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(first)
        try:
            await flow.sleep("1m")
        finally:
            if flow.parking and bad:
                _helper(shop)

    run = body.start()
    drain(shop.app, within="10m")

    assert (State.READY, 1) == (run.state, len(shop.app.jobs.select(Filter(task="charge"))))
    assert "this writes to the database of jobs in the body of a workflow" in run.why

    bad.clear()
    drain(shop.app, within="10m")
    assert (State.SUCCEEDED, [1]) == (run.state, calls)


def test_a_handler_that_calls_a_flow_function_writes(shop: Shop):
    """Nothing of a body is left behind for the handlers, and for the runs, that follow on the same event loop."""

    @shop.app.task
    async def handler() -> None:
        assert REFUSAL.get() is None
        await shop.charge.aenqueue(1)

    @shop.app.workflow()
    async def body(flow: Flow) -> None:
        await flow.sleep("1m")
        raise ValueError("no")

    body.start()
    drain(shop.app, within="2h")
    handler.enqueue()
    drain(shop.app, within="2h")

    assert 2 == len(shop.app.jobs.select(Filter(task="charge")))


def test_a_refusal_without_a_line_names_the_body():
    """Where no frame is left, the message still says what is wrong."""
    noted: list[FlowMisused] = []
    branch = Branch("", None, "seed")  # type: ignore[arg-type]
    found: list[FlowMisused] = []

    thread = threading.Thread(target=lambda: found.append(BodyRefusal(branch, noted.append).refused()))
    thread.start()
    thread.join()

    assert found == noted
    assert re.match(r"(its body|.*py:\d+): this writes", str(found[0]))
