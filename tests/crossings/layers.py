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
import trio

from tests.crossings.arrays import Row, Table, Void
from tests.crossings.calls import ASYNC, ATTEMPTS, DURABLE, LIBRARIES, SYNC, Play, policy_of, work

COLLECTED = ("collected", "dropped")
THREADS = ("thread", "executor")
DEADLINES = (None, "1h")

LAYERS = Table(
    "layers",
    {
        "outer": ("decorated", "called", "block", *DURABLE),
        "inner": ("decorated", "transport", "block"),
        # `collected` raises the error of a task later, `dropped` returns without it.
        "place": ("direct", "fallback", *COLLECTED, *THREADS),
        "library": LIBRARIES,
    },
    (
        Void("a plain function has no tasks", {"place": COLLECTED, "library": ["sync"]}),
        Void("only loops of asyncio have run_in_executor", {"place": ["executor"], "library": ["sync", "trio"]}),
        Void("workers run on asyncio", {"outer": DURABLE, "library": ["trio"]}),
    ),
)

# The other factors of a call.
CALL = {
    "failure": "httpx-connect",
    "names": "class",
    "word": "open",
    "callee": "function",
    "cancel": "none",
    "delay": "zero",
}


def expected(row: Row) -> int:
    """Return how often each target is called: all layers of one policy make the attempts of one layer.

    A job and a step would retry the failure, so that a call below them is made once in each of their attempts.
    """
    if row["outer"] in DURABLE and row["place"] == "dropped":
        # The first attempt has succeeded.
        return 1
    return ATTEMPTS


class Layer(Play):
    """A call with the policy of the row."""

    def __init__(self, form: str, library: str, deadline: str | None) -> None:
        super().__init__({**CALL, "form": form, "library": library})
        self.policy = policy_of(self.row).with_(deadline=deadline)

    def make(self) -> Any:
        """Make the call, or return what makes it where it is awaited."""
        return (SYNC if self.row["library"] == "sync" else ASYNC)[self.row["form"]](self)


class Outer(Layer):
    """A call, job or step that makes the inner calls of the row, each to a target of its own."""

    def __init__(self, row: Row, deadline: str | None) -> None:
        super().__init__(row["outer"], row["library"], deadline)
        self.place = row["place"]
        library = "sync" if self.place in THREADS else row["library"]
        targets = 2 if self.place == "fallback" else 1
        self.inner = [Layer(row["inner"], library, deadline) for _ in range(targets)]

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
        with contextlib.suppress(httpx.ConnectError):
            _make(outer)

        assert [expected(row)] * len(outer.inner) == [each.seen.calls for each in outer.inner], deadline


def _make(outer: Outer) -> None:
    if outer.row["form"] in DURABLE:
        work(outer)
    elif outer.row["library"] == "sync":
        outer.make()
    elif outer.row["library"] == "asyncio":
        asyncio.run(_awaited(outer.make))
    else:
        trio.run(_awaited, outer.make)


# --------------------------------------------------------------------------------------------------------- the places


def _fallback(first: Callable[[], object], second: Callable[[], object]) -> None:
    try:
        first()
    except httpx.ConnectError:
        second()


def _thread(inner: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, inner).result()


async def _awaited(inner: Callable[[], Awaitable[object]]) -> None:
    await inner()


async def _afallback(first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]) -> None:
    try:
        await first()
    except httpx.ConnectError:
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
        except httpx.ConnectError as error:
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
