"""A producer of `make failover`: it calls until a file exists, and notes the answer of each call.

``ack``: the call has returned. ``refused``: nothing was written, says the error. ``unknown``: the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import sys
from collections.abc import Awaitable, Callable

from work import HERE, atx, events, flow, note, once, plain, tx

from redrive.errors import OutcomeUnknown, StoreError

KINDS = ("plain", "tx", "once", "flow", "event", "atx", "plain", "event")
TASKS = {"plain": plain, "tx": tx, "atx": atx, "once": once}
REST = 0.1
"""Seconds between two calls."""


def call(kind: str, number: int) -> object:
    """Make a call of a kind."""
    match kind:
        case "flow":
            return flow.start(number, id=f"f{number}")
        case "event":
            return events.publish(number)
    return TASKS[kind].enqueue(number)


def acall(kind: str, number: int) -> Awaitable[object]:
    """Make a call of a kind, as a coroutine."""
    match kind:
        case "flow":
            return flow.astart(number, id=f"f{number}")
        case "event":
            return events.apublish(number)
    return TASKS[kind].aenqueue(number)


async def produce(first: int, made: Callable[[str, int], Awaitable[object]]) -> None:
    """Make calls until `enough`, and note their answers."""
    for number, kind in zip(itertools.count(first), itertools.cycle(KINDS), strict=False):
        if (HERE / "enough").exists():
            return
        try:
            await made(kind, number)
            answer = "ack"
        except OutcomeUnknown:
            answer = "unknown"
        except StoreError:
            answer = "refused"
        note(answer, kind, number)
        await asyncio.sleep(REST)


if __name__ == "__main__":
    # The number of the first call, and the colour of all.
    asyncio.run(
        produce(int(sys.argv[1]), acall if sys.argv[2] == "async" else functools.partial(asyncio.to_thread, call))
    )
