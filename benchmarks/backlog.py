"""Due jobs in front of a million waiting ones on PostgreSQL, while a snapshot prevents autovacuum from cleaning up.

``python -m benchmarks.backlog [--waiting N] [--due N] [--no-snapshot]``. A worker drains the due jobs; a session with
an open snapshot, such as a backup or a report, keeps each row version that the worker replaces. The output contains the
time of each tenth of the jobs, the entries read of each index, and the buffers that the statements of a claim without
floors and of a settle touch at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg

from benchmarks.queue import home, server_for
from redrive import App
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import parameters
from redrive.stores.statements import loader

__all__ = ["main"]

BATCH = 10_000
LEASE = timedelta(minutes=5)
AT_ONCE = 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.backlog", description="Due jobs in front of waiting ones.")
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--no-snapshot", action="store_true")
    chosen = parser.parse_args(arguments)
    with home() as place, server_for("postgres", place) as server:
        assert server is not None
        _measure(server.url, chosen.waiting, chosen.due, snapshot=not chosen.no_snapshot)


def _measure(url: str, waiting: int, due: int, *, snapshot: bool) -> None:
    app = App(url)
    times: list[float] = []

    @app.task(retry="3 1s")
    async def nothing() -> None:
        times.append(time.monotonic())

    app.open()
    for options, count in (({"delay": "1d"}, waiting), ({}, due)):
        for _ in range(count // BATCH):
            nothing.options(**options).enqueue_many([()] * BATCH)  # type: ignore[arg-type] # delay only
    print(f"{waiting:,} jobs wait, {due:,} are due", file=sys.stderr, flush=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    with psycopg.connect(url) as reader:
        if snapshot:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1 FROM redrive.redrive_meta")
        began = time.monotonic()
        asyncio.run(_drain(app, times, due))
        _print_times(began, times)
        nothing.enqueue_many([()] * AT_ONCE)
        _print_buffers(app, url)
    _print_reads(url)
    app.close()


async def _drain(app: App, times: list[float], due: int) -> None:
    worker = Worker(app, concurrency=AT_ONCE)
    running = asyncio.create_task(worker.run())
    while len(times) < due and not running.done():  # noqa: ASYNC110 - the handler counts, and sets nothing else
        await asyncio.sleep(0.05)
    worker.stop()
    await running


def _print_times(began: float, times: list[float]) -> None:
    tenth = max(len(times) // 10, 1)
    marks = [began, *times[tenth - 1 :: tenth]]
    each = ", ".join(f"{after - before:.1f}" for before, after in pairwise(marks))
    print(f"drained in {times[-1] - began:.1f} s (tenths: {each} s); the first began after {times[0] - began:.2f} s")


def _print_buffers(app: App, url: str) -> None:
    """Print what the statements of one claim and one settle touch, without doing them."""
    store = app.store
    worker = store.run(workers.register("benchmark", concurrency=AT_ONCE, lease_for=LEASE))
    claims = store.run(leases.claim(worker, AT_ONCE, lease_for=LEASE)).claims
    held = {"job_ids": [each.id for each in claims], "lease_ids": [each.lease_id for each in claims]}
    where: dict[str, Any] = {"queues": None, "tasks": None, **parameters(())}
    now = datetime.now(UTC)
    asked: dict[str, dict[str, Any]] = {
        "next_due": where | {"now": None},
        "claim": where | {"now": now, "worker_id": worker, "count": AT_ONCE},
        "settle_succeeded": held | {"now": now},
    }
    for name, params in asked.items():
        lines = _explain(url, name, params)
        touched = next(line.strip() for line in lines if "Buffers:" in line)
        print(f"{name:>18}: {touched}; {lines[-1].strip()}")


def _explain(url: str, name: str, params: Mapping[str, Any]) -> list[str]:
    text = "\n".join(line for line in loader.statements("postgres")[name].splitlines() if not line.startswith("--"))
    text = re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", text.replace("%", "%%"))
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path TO redrive")
        connection.execute("SET jit TO off")
        connection.execute("SET enable_seqscan TO off")
        rows = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) {text}".encode(), params).fetchall()
        connection.rollback()
    return [row[0] for row in rows]


def _print_reads(url: str) -> None:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT indexrelname, idx_scan, idx_tup_read FROM pg_stat_user_indexes "
            "WHERE schemaname = 'redrive' ORDER BY idx_tup_read DESC LIMIT 4"
        ).fetchall()
    for name, scans, read in rows:
        print(f"{name:>24}: {scans:>9,} scans read {read:>13,} entries")


if __name__ == "__main__":
    main()
