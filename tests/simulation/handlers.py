"""Handlers of the simulated tasks, which follow the plan of their job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from redrive.errors import StoreError
from tests.simulation import product
from tests.simulation.scheduler import EPOCH

__all__ = ["Handlers"]

CREATING = ("enqueue", "publish", "start", "tour")
"""The kinds of steps that create a job, an event or a run with a number."""

SLOW_TRANSACTION = 5.0
"""Seconds after which a handler that wanted a short transaction waited for too long."""


CLEANING = 1.0
"""Seconds that a handler takes to stop."""


class Unnamed(BaseException):
    """An exception of a handler that is not an `Exception`."""


class Handlers:
    """The handlers of one simulation.

    Args:
        simulation: that they run in.
    """

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self._steps = {step.number: step for step in simulation.plan.steps if step.kind in CREATING}

    async def begin(self, ctx: Any) -> None:
        """Do what a coroutine does first."""

    def begin_in_thread(self, ctx: Any) -> None:
        """Do what a function in a thread does first."""

    async def asleep(self, ctx: Any, number: int) -> int:
        """Follow the plan of a job, in a coroutine."""
        with self._running(ctx):
            await self.begin(ctx)
            how, seconds = self._steps[number].how, self._steps[number].seconds
            if how == "block":
                self._simulation.scheduler.sleep(seconds)
            elif how == "cling":
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    await asyncio.sleep(CLEANING)
            else:
                for _ in range(2):
                    with contextlib.suppress(StoreError):
                        await ctx.aheartbeat({"number": number})
                    await asyncio.sleep(seconds / 2)
            self._end(how, ctx)
            if how == "self_cancel":
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
            self._returned(ctx)
            return number

    def sleep(self, ctx: Any, number: int) -> int:
        """Follow the plan of a job, in a thread."""
        with self._running(ctx):
            self.begin_in_thread(ctx)
            self._simulation.scheduler.sleep(self._steps[number].seconds)
            self._end(self._steps[number].how, ctx)
            self._returned(ctx)
            return number

    async def book(self, ctx: Any, number: int, connection: Any) -> None:
        """Write a row in the transaction that ends the attempt."""
        with self._running(ctx):
            connection.execute("INSERT INTO effects VALUES (?, ?)", (ctx.job_id, ctx.attempt_uid))
            await asyncio.sleep(self._steps[number].seconds)
            self._end(self._steps[number].how, ctx)
            ctx.set_result(None)
            self._returned(ctx)
            waited = self._simulation.scheduler.now - _claimed(ctx)
            if "slow_transaction" in self._simulation.profile.strict and waited > SLOW_TRANSACTION:
                self._simulation.observer.violated(
                    "slow_transaction", f"job {ctx.job_id} had its transaction after {waited:.1f} s"
                )

    def catch(self, ctx: Any) -> None:
        """Take over a dead job."""
        with self._running(ctx):
            self._returned(ctx)

    def tick(self, ctx: Any) -> None:
        """Run an occurrence of the cron."""
        with self._running(ctx):
            self._returned(ctx)

    @contextlib.contextmanager
    def _running(self, ctx: Any) -> Iterator[None]:
        lease = int(ctx.attempt_uid.rpartition(".")[2])
        process = self._simulation.scheduler.current.process
        self._simulation.starts += 1
        self._simulation.note(process.name, "starts", ctx.job_id, lease)
        start = self._simulation.observer.started(ctx.job_id, lease, process)
        try:
            yield
        finally:
            start.ended = self._simulation.scheduler.now

    def _returned(self, ctx: Any) -> None:
        lease = int(ctx.attempt_uid.rpartition(".")[2])
        for each in self._simulation.observer.ledger.starts[ctx.job_id]:
            each.returned = each.returned or each.lease == lease

    def _end(self, how: str, ctx: Any) -> None:
        match how:
            case "fail" if ctx.failures == 0:
                message = "once"
                raise ValueError(message)
            case "die":
                message = "always"
                raise ValueError(message)
            case "snooze" if len(self._simulation.observer.ledger.starts[ctx.job_id]) == 1:
                raise product.snooze()
            case "interrupt":
                raise KeyboardInterrupt
            case "exit":
                raise SystemExit(3)
            case "close":
                raise GeneratorExit
            case "base":
                raise Unnamed


def _claimed(ctx: Any) -> float:
    """Return the virtual time at which an attempt was claimed."""
    return (ctx.link.claim.claimed_at - EPOCH).total_seconds()
