"""Policies on Temporal's own server: delays, permanent failures, and a worker that is killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from redrive.contrib.temporal import PolicyInterceptor
from redrive.errors import GiveUp, RetryAfter
from redrive.policy import Policy

SERVER = Path(sys.executable).with_name("temporal")
QUEUE = "shop"
ATTEMPTS: dict[str, list[datetime]] = {}


@activity.defn
async def charge(invoice: str) -> str:
    """Fail as the invoice says, and note when it was called."""
    called = ATTEMPTS.setdefault(invoice, [])
    called.append(activity.info().started_time)
    kind, _, _ = invoice.partition(" ")
    if kind == "stolen":
        raise GiveUp("stolen card")
    if kind == "down" or len(called) < 2:
        raise RetryAfter("2s") if kind == "busy" else ConnectionError("down")
    return "paid"


@workflow.defn
class Order:
    """Charge one invoice."""

    @workflow.run
    async def run(self, invoice: str, limit: int) -> str:
        """Call the activity under Temporal's own policy, which redrive's replaces."""
        retry = RetryPolicy(maximum_attempts=limit) if limit else None
        paid: str = await workflow.execute_activity(
            "charge", invoice, start_to_close_timeout=timedelta(seconds=3), retry_policy=retry, result_type=str
        )
        return paid


@asynccontextmanager
async def server() -> AsyncIterator[WorkflowEnvironment]:
    """Yield Temporal's development server."""
    # Threads of its runtime do not outlive the event loop.
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(SERVER)) as environment:
        yield environment


def worker(client: Client, policy: Policy | str) -> Worker:
    """Return a worker with a policy for the activity."""
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[Order],
        activities=[charge],
        interceptors=[PolicyInterceptor({"charge": policy})],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


async def outcome(client: Client, invoice: str, limit: int = 0) -> Any:
    """Run a workflow to its end: its result, or the error of the activity."""
    try:
        return await client.execute_workflow(Order.run, args=[invoice, limit], id=invoice, task_queue=QUEUE)
    except WorkflowFailureError as failed:
        return failed.cause.cause if isinstance(failed.cause, ActivityError) else failed.cause


def waits(invoice: str) -> list[float]:
    """Return the seconds between the attempts at an invoice."""
    called = ATTEMPTS[invoice]
    return [(after - before).total_seconds() for before, after in itertools.pairwise(called)]


@pytest.mark.slow
def test_a_policy_decides_on_temporals_server():
    """Temporal repeats as often and as late as the policy says, and calls what fails for good once."""

    async def main() -> tuple[Any, ...]:
        async with server() as environment, worker(environment.client, "2 1s"):
            down, stolen, busy, limited = await asyncio.gather(
                *(outcome(environment.client, invoice) for invoice in ("down 1", "stolen 1", "busy 1")),
                outcome(environment.client, "down limited", limit=3),
            )
        return down, stolen, busy, limited

    down, stolen, busy, limited = asyncio.run(main())

    assert isinstance(down, ApplicationError)
    assert ("ConnectionError", True, ["attempts"]) == (down.type, down.non_retryable, list(down.details))
    assert "attempts" in down.message
    # A delay is a lower bound.
    assert [True, True] == [wait >= least for wait, least in zip(waits("down 1"), (1, 2), strict=True)]
    assert isinstance(stolen, ApplicationError)
    assert (1, "GiveUp") == (len(ATTEMPTS["stolen 1"]), stolen.type)
    assert "paid" == busy
    assert waits("busy 1")[0] >= 2
    assert ("ConfigurationError", False) == (limited.type, "down limited" in ATTEMPTS)


SHOP = """
import asyncio, sys
from temporalio.client import Client
import tests.contrib.temporal.test_server as shop

@shop.activity.defn(name="charge")
async def charge(invoice):
    info = shop.activity.info()
    print("called", info.attempt, flush=True)
    if sys.argv[2] == "hangs" and info.attempt == 1:
        await asyncio.sleep(3600)
    raise ConnectionError("down")

shop.charge = charge

async def main():
    client = await Client.connect(sys.argv[1])
    async with shop.worker(client, sys.argv[3]):
        print("ready", flush=True)
        await asyncio.Future()

asyncio.run(main())
"""


@asynccontextmanager
async def process(address: str, mode: str, policy: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield a worker in a process of its own, which has begun to listen."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SHOP, address, mode, policy, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout is not None
    try:
        assert b"ready" == (await started.stdout.readline()).strip()
        yield started
    finally:
        if started.returncode is None:
            os.kill(started.pid, signal.SIGKILL)
        await started.wait()


@pytest.mark.night
@pytest.mark.acceptance
def test_a_killed_worker_costs_an_attempt():
    """Temporal repeats the attempt of a killed worker; the next one, with another policy, goes on with its number."""

    async def main() -> tuple[Any, int]:
        async with server() as environment:
            address = environment.client.service_client.config.target_host
            ended = asyncio.create_task(outcome(environment.client, "killed 1"))
            async with process(address, "hangs", "9 1s") as first:
                assert first.stdout is not None
                assert b"called 1" == (await first.stdout.readline()).strip()
            async with process(address, "fails", "2 1s") as second:
                assert second.stdout is not None
                numbers = [int((await second.stdout.readline()).split()[1]) for _ in range(2)]
                return await ended, numbers[-1]

    error, last = asyncio.run(main())

    assert isinstance(error, ApplicationError)
    assert (3, "ConnectionError", ["attempts"]) == (last, error.type, list(error.details))
