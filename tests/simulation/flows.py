"""The topic, the workflows and the refresh of a fleet.

Their handlers write to the table ``writes``: as a user does, on a connection of their own before they succeed, or in
the transaction of redrive that records their success. `flow_invariants` compares these rows with the records."""

from __future__ import annotations

import asyncio
from typing import Any

from redrive import App, Context, Flow
from tests.simulation.handlers import Handlers

__all__ = ["ITEM", "TOUR", "TRIP", "FlowHandlers", "declare"]

ITEM = "item"
"""The item that the refresh of the fleet keeps up to date."""

TRIP = "trip"
"""A workflow with all that a run may do."""

TOUR = "tour"
"""A workflow whose steps follow each other without a rest, so that most failovers lose a row in the middle of it."""

RETRY = "2 200ms"
"""The policy of the steps of runs."""

AGAIN = 0.1
"""Seconds between two tries to write, and between such a write and what follows it."""

PUT = "INSERT INTO writes VALUES (?, ?)"


def declare(made: App, perform: Any) -> None:
    """Declare them in the app of one process.

    Args:
        made: the app.
        perform: receives the calls of the handlers."""
    _declare_topic(made, perform)
    _declare_workflows(made, perform)
    _declare_tour(made, perform)

    @made.refresh("Refresh every 2 seconds; allow 1 minute")
    async def renewed(number: int, ctx: Context) -> None:
        perform.tick(ctx)


def _declare_topic(made: App, perform: Any) -> None:
    news = made.topic("news", int)

    @news.subscribe("told", order="none", retry="3 300ms")
    async def told(number: int, ctx: Context) -> None:
        await perform.told(ctx, number)

    @news.subscribe("filed", order="none", retry="3 300ms")
    async def filed(number: int, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await perform.filed(ctx, number, connection)


def _declare_workflows(made: App, perform: Any) -> None:
    # A step fails once at most, so that a run that fails has failed because of the database.
    async def pack(number: int) -> int:
        return await perform.step("pack", number)

    async def carry(number: int) -> int:
        return await perform.step("carry", number)

    async def hand_over(number: int) -> int:
        return await perform.step("hand_over", number)

    async def unpack(number: int) -> int:
        return await perform.step("unpack", number)

    async def pay(connection: Any, number: int) -> int:
        return await perform.pay(connection, number)

    @made.workflow()
    async def errand(flow: Flow, number: int) -> int:
        await flow.step(carry, number, retry=RETRY)
        await flow.sleep("200ms")
        return await flow.step(hand_over, number, retry=RETRY)

    @made.workflow(name=TRIP)
    async def trip(flow: Flow, number: int) -> int:
        await flow.step(pack, number, retry=RETRY)
        await flow.transaction(pay, number)
        await flow.call(errand, number)
        return await flow.step(unpack, number, retry=RETRY)


def _declare_tour(made: App, perform: Any) -> None:
    async def visit(number: int) -> int:
        return await perform.step("visit", number)

    @made.workflow()
    async def detour(flow: Flow, number: int) -> int:
        # From tasks of the body, which any other order would hold.
        calls = [flow.named("visit", inputs=each).step(visit, number, retry=RETRY) for each in range(2)]
        return sum(await asyncio.gather(*calls))

    @made.workflow(name=TOUR)
    async def tour(flow: Flow, number: int) -> int:
        for _ in range(3):
            for _ in range(2):
                await flow.step(visit, number, retry=RETRY)
            await flow.call(detour, number)
        return number


class FlowHandlers(Handlers):
    """The handlers of one simulation with flows.

    Args:
        simulation: that they run in.
    """

    def __init__(self, simulation: Any) -> None:
        super().__init__(simulation)
        self._failed: set[tuple[str, int]] = set()

    def _write(self, place: str, unit: str) -> bool:
        """Write a row on a connection of the user; return False if that fails."""
        process, queue = self._simulation.scheduler.current.process, self._simulation.connection_queue
        if self._simulation.disturbances.is_away(process) or queue.owner is not None:
            return False
        queue.acquire(process)
        queue.cursor.execute(PUT, (place, unit))
        queue.release(commit=True, wakes=False)
        return True

    async def write(self, place: str, unit: str) -> None:
        """Write a row on a connection of the user, as soon as the database is there and free."""
        while not self._write(place, unit):  # noqa: ASYNC110 - a user has no event for that either
            await asyncio.sleep(AGAIN)

    async def begin(self, ctx: Any) -> None:
        """Write that the attempt has begun, and take some time."""
        await self.write("job", ctx.attempt_uid)
        await asyncio.sleep(AGAIN)

    def begin_in_thread(self, ctx: Any) -> None:
        """Write that the attempt has begun."""
        while not self._write("job", ctx.attempt_uid):
            self._simulation.scheduler.sleep(AGAIN)

    async def told(self, ctx: Any, number: int) -> None:
        """Follow the plan of an event."""
        step = self._steps[number]
        await asyncio.sleep(step.seconds / 2)
        self._end(step.how, ctx)
        await self.write("told", str(number))
        await asyncio.sleep(step.seconds / 2)
        self._simulation.flows.told.add(number)

    async def filed(self, ctx: Any, number: int, connection: Any) -> None:
        """Follow the plan of an event in the transaction that ends its delivery."""
        connection.execute(PUT, ("filed", str(number)))
        self._end(self._steps[number].how, ctx)

    async def step(self, name: str, number: int) -> int:
        """Follow the plan of a run in one of its steps."""
        step = self._steps[number]
        await asyncio.sleep(step.seconds / 2)
        if step.how == "fail" and (name, number) not in self._failed:
            self._failed.add((name, number))
            message = "once"
            raise ValueError(message)
        await self.write(name, str(number))
        await asyncio.sleep(step.seconds / 2)
        return number

    async def pay(self, connection: Any, number: int) -> int:
        """Write in the transaction that records the step."""
        connection.execute(PUT, ("pay", str(number)))
        return number
