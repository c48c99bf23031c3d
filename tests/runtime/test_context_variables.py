"""What user code sees of context variables: those of its worker, never those of another job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from redrive import App, Backoff, CatchRequest, Context, Flow, GiveUp, Job, Policy, SyncFlow, observe
from redrive.runtime import child
from redrive.testing import drain
from tests.runtime.helpers import ended, until, working
from tests.runtime.runs.conftest import every_store

WORKER = "set before the start of the worker"

VALUE: ContextVar[str] = ContextVar("tests_value", default="default")

JOBS = 12
"""Jobs of each kind: more than the slots of a worker, so that most wait for the end of another one."""


@dataclass
class Begin:
    """The first event of an instance."""

    number: int


@dataclass
class Go:
    """The next event."""

    number: int


class Seen(list[tuple[str, str]]):
    """The kinds of code that were called, with what they saw. Each sets another value afterwards."""

    def note(self, kind: str) -> None:
        """Record the value, and set another one."""
        self.append((kind, VALUE.get()))
        VALUE.set(f"{kind} {len(self)}")

    @property
    def strangers(self) -> list[tuple[str, str]]:
        """The calls that saw a value that was set by another one."""
        return [each for each in self if each[1] != WORKER]

    @property
    def kinds(self) -> set[str]:
        """The kinds of code that were called."""
        return {kind for kind, _ in self}


SEEN = Seen()


def backoff(retry: int) -> float:
    """Return no delay."""
    SEEN.note("backoff")
    return 0.0 * retry


Backoff.register("tests.context_variables", backoff)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Empty the record, and set the value of the worker."""
    SEEN.clear()
    token = VALUE.set(WORKER)
    yield
    VALUE.reset(token)


def raises(kind: str, error: Exception) -> Any:
    """Record a call and raise."""
    SEEN.note(kind)
    raise error


def hook(kind: str) -> Callable[[object], None]:
    """Return a hook of a policy."""
    return lambda _: SEEN.note(kind)


def failing(app: App, start: list[Callable[[int], object]]) -> None:
    """Declare tasks that fail: with hooks, predicates, a backoff function and catch tasks."""

    @app.task
    def caught(request: CatchRequest[int]) -> None:
        SEEN.note("catch")

    def predicate(_: BaseException) -> bool:
        # Of the attempt, whose handler has set the value.
        assert VALUE.get().startswith("task that fails")
        return True

    policy = Policy(attempts=2, backoff=Backoff.named("tests.context_variables"), on=predicate, catch="caught").with_(
        on_retry=hook("retry hook"), on_give_up=hook("last hook")
    )

    @app.task(retry=policy)
    async def fails(number: int) -> None:
        raises("task that fails", OSError(str(number)))

    start.append(fails.enqueue)


def tasks(app: App, start: list[Callable[[int], object]]) -> None:
    """Declare tasks of both colours."""

    @app.task
    async def coroutine(number: int) -> None:
        SEEN.note("async task")
        await asyncio.to_thread(int, number)

    @app.task
    def thread(ctx: Context, number: int) -> None:
        SEEN.note("task")

    start += [coroutine.enqueue, thread.enqueue]


def workflows(app: App, start: list[Callable[[int], object]]) -> None:
    """Declare workflows of both colours, whose steps do not change what the others see."""

    def step(kind: str) -> None:
        # Of the body, in which no step has set the value.
        assert VALUE.get().startswith(f"{kind} ")
        VALUE.set("step")
        SEEN.append(("step", WORKER))

    def undo(_: object) -> None:
        step("body")
        SEEN.append(("undo", WORKER))

    @app.workflow()
    async def body(flow: Flow, number: int) -> None:
        SEEN.note("body")
        await flow.step(step, "body", undo=undo)
        await flow.gather(flow.step(step, "body"), flow.step(step, "body"))
        raise GiveUp(str(number))

    @app.workflow()
    def plain(flow: SyncFlow, number: int) -> None:
        SEEN.note("sync body")
        flow.step(step, "sync body")

    start += [lambda number: body.start(number).job, lambda number: plain.start(number).job]


def transactions(app: App, start: list[Callable[[int], object]]) -> None:
    """Declare steps that write in the transaction of their record, which need a database that lends connections."""

    def transacted(connection: object) -> None:
        SEEN.note("step in a transaction")

    @app.workflow()
    def writes(flow: SyncFlow, number: int) -> None:
        flow.transaction(transacted)

    start.append(lambda number: writes.start(number).job)


def machines(app: App, start: list[Callable[[int], object]]) -> None:
    """Declare a machine with a guard."""
    machine = app.machine("door", busy="queue")

    def guard(event: Go) -> bool:
        SEEN.note("guard")
        return True

    @machine.start
    async def opened(event: Begin) -> None:
        SEEN.note("async state")

    @machine.state(after=[opened], when=guard)
    def closed(event: Go) -> None:
        SEEN.note("state")

    start.append(lambda number: [machine.send(str(number), each(number)) for each in (Begin, Go)])


def topics(app: App, start: list[Callable[[int], object]]) -> None:
    """Declare subscriptions of both colours."""
    topic = app.topic("paid", int)

    @topic.subscribe("first")
    async def first(number: int) -> None:
        SEEN.note("async subscriber")
        if number % 2:
            raise OSError(str(number))

    @topic.subscribe("second", order="none")
    def second(number: int) -> None:
        SEEN.note("subscriber")

    start.append(topic.publish)


def sink(event: observe.Event) -> None:
    """Record an event of an attempt that a duty emits."""
    if isinstance(event, observe.JobRetryScheduled | observe.JobDied | observe.JobSucceeded | observe.JobCaught):
        SEEN.note("sink")


def hooked(app: App) -> None:
    """Declare hooks of a worker; the parts of a generator share their variables."""

    @app.on_start
    def opens() -> Iterator[None]:
        SEEN.note("start hook")
        token = VALUE.set("of the generator")
        yield
        VALUE.reset(token)

    @app.on_start
    async def starts() -> None:
        SEEN.note("async start hook")

    @app.on_stop
    async def stops() -> None:
        SEEN.note("async stop hook")

    @app.on_stop
    def ends() -> None:
        SEEN.note("stop hook")


DECLARED = (tasks, failing, workflows, machines, topics)

KINDS = {
    *("async task", "task", "task that fails", "catch", "backoff", "retry hook", "last hook"),
    *("body", "sync body", "step", "undo", "async state", "state", "guard", "async subscriber", "subscriber"),
    *("start hook", "async start hook", "stop hook", "async stop hook", "sink"),
}


def declared(app: App, *more: Callable[[App, list[Callable[[int], object]]], None]) -> Callable[[int], list[object]]:
    """Declare all kinds of code, and return a function that starts one job of each."""
    hooked(app)
    starts: list[Callable[[int], object]] = []
    for declare in (*DECLARED, *more):
        declare(app, starts)
    return lambda number: [start(number) for start in starts]


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_no_code_of_a_worker_sees_what_another_job_has_set(filed: App, concurrency: int):
    """Each handler, body, hook, guard and sink sees the context variables of the worker, also behind a backlog."""
    start = declared(filed, transactions)
    jobs = [job for number in range(JOBS) for job in start(number) if isinstance(job, Job)]

    async def run() -> None:
        async with working(filed, concurrency=concurrency):
            await ended(*jobs)
            for kind in ("async subscriber", "subscriber", "state", "catch"):
                await until(lambda kind=kind: JOBS <= [each for each, _ in SEEN].count(kind))

    with observe.add(sink):
        asyncio.run(run())
    assert ([], {*KINDS, "step in a transaction"}) == (SEEN.strangers, SEEN.kinds)


@every_store
def test_no_code_of_a_drain_sees_what_another_job_has_set(app: App):
    """The test kit gives user code the context variables of the test, as a worker gives those of the worker."""
    start = declared(app)

    @app.cron("* * * * *")
    def cron() -> None:
        SEEN.note("cron")

    @app.refresh("- Refresh every minute\n- Allow 10 seconds to complete")
    async def refresh(key: str) -> None:
        SEEN.note("refresh")

    for number in range(3):
        refresh.track(str(number), str(number))
        start(number)
    with observe.add(sink):
        drain(app, within="3m")
    assert ([], {*KINDS, "cron", "refresh"}) == (SEEN.strangers, SEEN.kinds)


def test_the_handlers_of_a_child_process_do_not_see_what_another_one_has_set():
    """A child process runs each handler in a copy of the context variables that it had when it was ready."""
    sent: list[Any] = []

    def handler() -> str:
        SEEN.note("process")
        return VALUE.get()

    channel: Any = type("Channel", (), {"send": staticmethod(sent.append)})()
    process = child._Child(channel, {"task": child._Handler(handler, "task")}, "memory://")
    for _ in range(3):
        process._calls.put(child.Run("task", b"{}", None, None, None, datetime(2026, 1, 1, tzinfo=UTC)))
    process._calls.put(None)
    process.work()
    assert [b'"process 1"', b'"process 2"', b'"process 3"'] == [each.result for each in sent]
    assert [] == SEEN.strangers


def test_a_value_of_a_sink_around_an_attempt_is_seen_by_its_handler(filed: App):
    """What a sink sets around an attempt, such as the current span of a trace, is seen inside and nowhere else."""

    class Around:
        def __call__(self, event: observe.Event) -> object:
            return self if isinstance(event, observe.JobStarted) else None

        def __enter__(self) -> None:
            VALUE.set("trace")

        def __exit__(self, *_: object) -> None:
            """Leave it to the end of the context."""

    @filed.task
    def handler(number: int) -> str:
        return VALUE.get()

    jobs = handler.enqueue_many(range(3))

    async def run() -> None:
        async with working(filed, concurrency=1):
            await ended(*jobs)

    with observe.add(Around()):
        asyncio.run(run())
    assert ["trace"] * 3 == [job.result(0) for job in jobs]
    assert WORKER == VALUE.get()
