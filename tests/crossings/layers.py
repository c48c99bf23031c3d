"""Layers of retries: a retried call inside another one, a job or a step, wherever it is made.

No clock of tests is in force for the calls, since each of them would stand in the scope of the clock from its start.
Their policy waits for zero seconds instead. Each row is played without a deadline and with one that is far away: a
deadline puts a call into the scope from its start, too, and must not change a number.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import trio

from redrive import App, Flow
from redrive.testing import VirtualClock, drain
from tests.crossings.arrays import Row, Table, Void
from tests.crossings.calls import ASYNC, ATTEMPTS, DURABLE, LIBRARIES, SYNC, Play, policy_of, work

# A step and an undo without a policy of their own, in a run with one.
BELOW = ("step-of-run", "undo-of-run")
WORKED = (*DURABLE, *BELOW)
COLLECTED = ("collected", "dropped")
THREADS = ("thread", "executor")
DEADLINES = (None, "1h")
# Each failure, and the word of its row: a call that may have taken effect is repeated if the policy says so.
FAILURES = {"httpx-connect": "open", "httpx-read": "yes", "httpx-503": "yes", "psycopg": "yes"}
FAILED = (httpx.HTTPError, psycopg.Error)

LAYERS = Table(
    "layers",
    {
        "outer": ("decorated", "called", "block", *WORKED),
        "inner": ("decorated", "transport", "block"),
        # `collected` raises the error of a task later, `dropped` returns without it.
        "place": ("direct", "fallback", *COLLECTED, *THREADS),
        "library": LIBRARIES,
        "failure": tuple(FAILURES),
    },
    (
        Void("a plain function has no tasks", {"place": COLLECTED, "library": ["sync"]}),
        Void("only loops of asyncio have run_in_executor", {"place": ["executor"], "library": ["sync", "trio"]}),
        Void("workers run on asyncio", {"outer": WORKED, "library": ["trio"]}),
        Void("a transport sends requests", {"inner": ["transport"], "failure": ["psycopg"]}),
        # So that in each place a call meets a status that is an answer first, and an error later.
        Void("a function raises a status as it raises other errors",
             {"inner": ["decorated", "block"], "failure": ["httpx-503"]}),
        Void("calls in the tasks and threads of a job or a step leave the retries to it, whatever fails",
             {"outer": DURABLE, "place": [*COLLECTED, *THREADS], "failure": ["httpx-503"]}),
    ),
)  # fmt: skip

# The other factors of a call.
CALL = {
    "names": "class",
    "callee": "function",
    "cancel": "none",
    "delay": "zero",
}


def expected(row: Row) -> int:
    """Return how often each target is called: all layers of one policy make the attempts of one layer.

    A job and a step would retry the failure, so that a call below them is made once in each of their attempts. A run
    does not repeat a step that has failed for good, nor an undo: a call in one makes its own attempts.
    """
    if row["outer"] in DURABLE and row["place"] == "dropped":
        # The first attempt has succeeded.
        return 1
    return ATTEMPTS


class Layer(Play):
    """A call with the policy of the row."""

    def __init__(self, row: Row, form: str, library: str, deadline: str | None) -> None:
        failure = row["failure"]
        super().__init__({**CALL, "failure": failure, "word": FAILURES[failure], "form": form, "library": library})
        self.policy = policy_of(self.row).with_(deadline=deadline)

    def make(self) -> Any:
        """Make the call, or return what makes it where it is awaited."""
        return (SYNC if self.row["library"] == "sync" else ASYNC)[self.row["form"]](self)


class Outer(Layer):
    """A call, job or step that makes the inner calls of the row, each to a target of its own."""

    def __init__(self, row: Row, deadline: str | None) -> None:
        super().__init__(row, row["outer"], row["library"], deadline)
        self.place = row["place"]
        library = "sync" if self.place in THREADS else row["library"]
        targets = 2 if self.place == "fallback" else 1
        self.inner = [Layer(row, row["inner"], library, deadline) for _ in range(targets)]

    def function(self) -> Callable[..., Any]:
        """Return the function that makes the inner calls."""
        library = self.row["library"]
        place, makes = PLACES[library][self.place], [each.make for each in self.inner]

        def outer() -> None:
            place(*makes)

        async def aouter() -> None:
            await place(*makes)

        return outer if library == "sync" else aouter


def play(row: Row) -> None:
    """Make the outer call of a row with each deadline, and compare the calls of each target with the expectation."""
    for deadline in DEADLINES:
        outer = Outer(row, deadline)
        with contextlib.suppress(*FAILED):
            _make(outer)

        assert [expected(row)] * len(outer.inner) == [each.seen.calls for each in outer.inner], deadline


def _make(outer: Outer) -> None:
    if outer.row["form"] in DURABLE:
        work(outer)
    elif outer.row["form"] in BELOW:
        _work_below(outer)
    elif outer.row["library"] == "sync":
        outer.make()
    elif outer.row["library"] == "asyncio":
        asyncio.run(_awaited(outer.make))
    else:
        trio.run(_awaited, outer.make)


def _work_below(outer: Outer) -> None:
    """Run a workflow that retries, with a step or an undo that does not."""
    app = App("memory://", clock=VirtualClock())
    function = outer.function()

    def nothing() -> None:
        pass

    def fails() -> None:
        raise httpx.ConnectError("refused")

    # An undo takes the result of its step, and a step takes no argument here.
    def undo(_result: None) -> object:
        return function()

    @app.workflow(retry=outer.policy)
    async def book(flow: Flow) -> None:
        if outer.row["form"] == "step-of-run":
            await flow.step(function)
        else:
            await flow.step(nothing, undo=undo)
            await flow.step(fails)

    book.start(id="o-1")
    drain(app)
    app.close()


# --------------------------------------------------------------------------------------------------------- the places


def _fallback(first: Callable[[], object], second: Callable[[], object]) -> None:
    try:
        first()
    except FAILED:
        second()


def _thread(inner: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, inner).result()


async def _awaited(inner: Callable[[], Awaitable[object]]) -> None:
    await inner()


async def _afallback(first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]) -> None:
    try:
        await first()
    except FAILED:
        await second()


async def _dropped(inner: Callable[[], Awaitable[object]]) -> list[object]:
    return list(await asyncio.gather(inner(), return_exceptions=True))


async def _executor(inner: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, inner)


async def _dropped_in_nursery(inner: Callable[[], Awaitable[object]]) -> list[object]:
    found: list[object] = []

    async def collect() -> None:
        try:
            await inner()
        except FAILED as error:
            found.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect)
    return found


def _collected(dropped: Callable[..., Awaitable[list[Any]]]) -> Callable[..., Awaitable[None]]:
    """Return a place that raises the error which another one drops."""

    async def collected(inner: Callable[[], Awaitable[object]]) -> None:
        (error,) = await dropped(inner)
        raise error

    return collected


PLACES: dict[str, dict[str, Callable[..., Any]]] = {
    "sync": {"direct": lambda inner: inner(), "fallback": _fallback, "thread": _thread},
    "asyncio": {
        "direct": _awaited,
        "fallback": _afallback,
        "collected": _collected(_dropped),
        "dropped": _dropped,
        "thread": asyncio.to_thread,
        "executor": _executor,
    },
    "trio": {
        "direct": _awaited,
        "fallback": _afallback,
        "collected": _collected(_dropped_in_nursery),
        "dropped": _dropped_in_nursery,
        "thread": trio.to_thread.run_sync,
    },
}
"""What the outer function does with the functions that make the inner calls."""
