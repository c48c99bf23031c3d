"""`redrive workers`: the workers for readers and for programs."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from functools import partial

from typer.testing import CliRunner

from redrive import App, __version__
from redrive.cli import cli
from redrive.clock import SystemClock
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases, workers

register = partial(workers.register, lease_for=timedelta(hours=1))


def invoke(*words: str) -> str:
    """Run a command that succeeds, and answer what it printed."""
    result = CliRunner().invoke(cli, ["workers", *words])
    assert (0, None) == (result.exit_code, result.exception)
    return result.stdout


def test_workers_are_listed_with_what_they_serve(shop: App):
    """Print a row for each worker that has not shut down, with its slots, queues, tasks and version."""
    shop.store.run(register("here:1", concurrency=4, queues=["mail", "[b]"], tasks=["charge"], version="1.2"))
    dead = shop.store.run(register("here:2", concurrency=1, now=SystemClock().now() - timedelta(hours=2)))
    troubled = shop.store.run(register("here:3", concurrency=1))
    gone = shop.store.run(register("here:4", concurrency=1))
    shop.store.run(workers.report(troubled, "settling: KeyError"))
    shop.store.run(workers.leave(gone))
    head, *rows = (line.split("  ") for line in invoke("list", "shop:app").splitlines())
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]

    assert ["id", "worker", "state", "slots", "oldest", "queues", "tasks", "heartbeat", "version", "build"] == "".join(
        f"{part} " for part in head
    ).split()
    assert ["here:1", "alive", "0/4", "-", "mail, [b]", "1", "1.2", "-"] == [*cells[0][1:7], *cells[0][8:]]
    assert [str(dead), "here:2", "dead", "0/1", "-", "all", "all", "2h ago", "-", "-"] == cells[1]
    assert "in trouble: settling: KeyError" == cells[2][2]
    assert 3 == len(cells)


def test_workers_can_be_printed_as_json(shop: App):
    """Print one object per line, with whether the worker is alive and the number of its attempts."""
    shop.store.run(register("here:1", concurrency=4, queues=["mail"]))
    (row,) = (json.loads(line) for line in invoke("list", "shop:app", "--json").splitlines())

    assert ("here:1", True, 0, ["mail"], None) == tuple(
        row[name] for name in ("name", "alive", "busy", "queues", "tasks")
    )


def test_a_running_worker_shows_its_version_and_its_slots(shop: App):
    """List a worker while it runs an attempt: one of its slots is taken."""

    @shop.task
    async def look() -> str:
        """Return the list, as an operator sees it now."""
        return await asyncio.to_thread(invoke, "list", "shop:app", "--json")

    async def work() -> str:
        """Work until the job has ended."""
        worker = Worker(shop, concurrency=3)
        running = asyncio.create_task(worker.run())
        result = await job.aresult(timeout="30s")
        worker.stop()
        await running
        return result

    job = look.enqueue()
    row = json.loads(asyncio.run(work()))

    assert (__version__, 1, 3, True) == (row["version"], row["busy"], row["slots"], row["alive"])


def test_a_list_without_workers_names_the_command_that_starts_one(shop: App):
    """Print the command instead of an empty table."""
    shop.open()

    assert "no worker runs: redrive worker shop:app starts one\n" == invoke("list", "shop:app")
    assert "" == invoke("list", "shop:app", "--json")


def test_a_due_job_names_busy_workers(shop: App):
    """The list of jobs has the slots of the workers that could run a due job."""

    @shop.task
    async def look() -> str:
        """Return the reason of the other job."""
        await waiting.arefresh()
        return waiting.why

    async def work() -> str:
        """Work until the first job has ended."""
        worker = Worker(shop, concurrency=1)
        running = asyncio.create_task(worker.run())
        result = await job.aresult(timeout="30s")
        worker.stop()
        await running
        return result

    job = look.enqueue()
    waiting = look.enqueue()

    assert asyncio.run(work()).endswith(", waiting for a free worker: all are busy (1 of 1 slots)")


def test_a_worker_that_leaves_out_queues_is_listed_with_them(shop: App):
    """Print the queues that a worker does not serve."""
    shop.store.run(register("night", concurrency=1, excluded=["reports", "mail"]))

    assert "all but reports, mail" in invoke("list", "shop:app")


def test_a_worker_is_shown_with_its_jobs(shop: App):
    """Print whether it is stuck, its code, its oldest attempt and its jobs, and how all of them are listed."""
    old = shop.store.run(register("here:1", concurrency=4, build="1.0"))
    number = shop.store.run(register("here:2", concurrency=4, build="2.0"))
    shop.store.run(workers.beat(number, timedelta(hours=1), loop_lag_for=timedelta(seconds=25)))
    job = shop.tasks["charge"].enqueue(7)
    shop.store.run(leases.claim(number, 1, lease_for=timedelta(hours=1)))
    shown = invoke("show", "shop:app", str(number))

    assert f"worker {number}  here:2, stuck\n" in shown
    assert f"the event loop of worker {number} (here:2) is blocked since 25s\n" in shown
    assert re.search(rf"oldest attempt: \S+ \(job {job.id}\)", shown)
    assert "build 2.0\n" in shown
    assert f"redrive jobs list shop:app worker:{number}\n" in shown
    assert "build 1.0 (old)\n" in invoke("show", "shop:app", str(old))
    assert "1.0 (old)" in invoke("list", "shop:app")


def test_a_worker_that_is_not_there_is_an_error(shop: App):
    """The error has the command that lists the workers, and the one that lists the jobs that it had."""
    shop.open()
    result = CliRunner().invoke(cli, ["workers", "show", "shop:app", "7"])

    assert "redrive jobs list shop:app worker:7" in str(result.exception)
