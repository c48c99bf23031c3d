"""What open dashboards cost a worker: ``python -m benchmarks.viewers [--store STORE] [--browser] [--docs]``.

A worker drains no-op jobs, in turns without a dashboard and with one that viewers have open. `redrive web` serves it in
a process of its own, and each viewer does what the page does in a browser: it keeps the stream of changes open, and
fetches the page after a change, at most once a second.

Rates differ more between two runs on a shared machine than a dashboard costs. So processor time is measured: of the
process of the dashboard and of its sessions at the database, as a share of all cores, and of the time that the worker
and the database use for the jobs in the same drain. A drain that is limited by the processor loses at most this share.
With ``--browser`` the overview is open in Chromium in a third of the drains, and the rates are compared: there, the
browser takes processor time of the same machine. This needs the environment of the tests.

At the end stands what the counters by minute cost, of which the charts are made: the processor time of an addition
beside that of a job in the worker and the database.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx

from benchmarks.measure import Sizes, fresh_subject, run_dry
from benchmarks.page import PAGE, markdown, written
from benchmarks.place import Server
from benchmarks.processes import cpu_seconds, running, wait
from benchmarks.queue import home, server_for
from benchmarks.subjects.redrive import URL, Redrive, RedriveOnPostgres, RedriveOnSQLite
from redrive.app.app import App
from redrive.engine.counters import Tally
from redrive.engine.outcome import Succeeded
from redrive.stores.operations import leases, workers

__all__ = ["main"]

SUBJECTS = {"postgres": RedriveOnPostgres, "sqlite": RedriveOnSQLite}

GOAL = 0.03
"""Of the processor time of a drain."""

OPEN = ((0, "/"), (1, "/"), (3, "/"), (1, "/jobs"), (3, "/jobs"))
"""The viewers of each drain of a round, and the page that they have open."""

BROWSER = "/ in Chromium"

IN_BROWSER = ((0, "/"), (1, "/"), (1, BROWSER))
"""With ``--browser``."""

CHROMIUM = os.environ.get("REDRIVE_CHROMIUM", "/usr/bin/chromium")

SESSIONS = "redrive-viewers"
"""The name of the sessions of the dashboard at the database."""

HEADINGS = ("viewers", "worker, µs a job", "database, µs a job", "pages/s", "dashboard, ms/s", "its sessions, ms/s",
    "of the cores", "of the drain")  # fmt: skip


@dataclass
class _Cost:
    """The processor time of a drain, in seconds, and the pages that viewers have fetched meanwhile."""

    viewers: int
    path: str
    worker: float = 0.0
    database: float = 0.0
    dashboard: float = 0.0
    sessions: float = 0.0
    took: float = 0.0
    rate: float = 0.0
    pages: list[float] = field(default_factory=list)

    def figures(self, jobs: int) -> tuple[float, ...]:
        """Return the columns of the table."""
        own, used = self.dashboard + self.sessions, self.worker + self.database
        spent = (self.dashboard / self.took, self.sessions / self.took, own / self.took / (os.cpu_count() or 1))
        return (self.worker / jobs * 1e6, self.database / jobs * 1e6, len(self.pages) / self.took, *spent, own / used)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.viewers", description="What open dashboards cost a worker.")
    parser.add_argument("--store", choices=[*SUBJECTS], default="postgres")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--browser", action="store_true", help="compare rates, also with the overview in Chromium")
    parser.add_argument("--docs", action="store_true", help="write the table into the page of the documentation")
    chosen = parser.parse_args(arguments)
    conditions = IN_BROWSER if chosen.browser else OPEN
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {each: [] for each in conditions}
    rates: dict[tuple[int, str], list[float]] = {each: [] for each in conditions}
    with home() as place, server_for(chosen.store, place) as server:
        # The first drain of a server makes the files of its log.
        _drained(SUBJECTS[chosen.store](), Sizes(jobs=chosen.jobs // 10), place, server, _Cost(*OPEN[0]))
        for number in range(chosen.rounds):
            for each in conditions[:: -1 if number % 2 else 1]:
                cost = _drained(SUBJECTS[chosen.store](), Sizes(jobs=chosen.jobs), place, server, _Cost(*each))
                found[each].append(cost.figures(chosen.jobs))
                rates[each].append(cost.rate)
    table = markdown(HEADINGS, [_row(each, [*zip(*rows, strict=True)]) for each, rows in found.items()])
    shares = sorted(row[-1] for rows in found.values() for row in rows)
    print(f"{table}\n\nat most {shares[-1]:.2%} of the processor time of a drain, goal {GOAL:.0%}", flush=True)
    for (viewers, path), of in rates.items():
        ratios = sorted(one / none for one, none in zip(of, rates[OPEN[0]], strict=True))
        words = f"{viewers} x {path}: {statistics.median(of):,.0f} jobs/s, {statistics.median(ratios):.3f} of none"
        print(f"{words} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)
    added, job = _added(), sum(statistics.median(column) for column in [*zip(*found[OPEN[0]], strict=True)][:2])
    print(f"counters: {added:.2f} of {job:.0f} µs per job of worker and database: {added / job:.1%}, at most 1 %")
    if chosen.docs:
        PAGE.write_text(written(PAGE.read_text(), f"viewers-{chosen.store}", "viewers", table))


def _row(watched: tuple[int, str], columns: Sequence[Sequence[float]]) -> list[str]:
    """Return a line of the table: medians, and the range of the last share."""
    viewers, path = watched
    worker, database, pages, dashboard, sessions, cores, drain = (statistics.median(each) for each in columns)
    if not viewers:
        return ["none", f"{worker:.1f}", f"{database:.1f}", *["-"] * 5]
    return [
        f"{viewers}, `{path}`", f"{worker:.1f}", f"{database:.1f}", f"{pages:.1f}", f"{dashboard * 1e3:.1f}",
        f"{sessions * 1e3:.1f}", f"{cores:.2%}", f"{drain:.2%} ({min(columns[-1]):.2%} to {max(columns[-1]):.2%})",
    ]  # fmt: skip


def _drained(subject: Redrive, sizes: Sizes, place: Path, server: Server | None, cost: _Cost) -> _Cost:
    """Drain a new database while viewers have a page open."""
    with fresh_subject(subject, place, server) as fresh:
        subject.enqueue_many(sizes.jobs)
        fresh.settle_down()
        with _dashboard(subject, fresh.folder, server, cost) if cost.viewers else contextlib.nullcontext():
            before, began = _cpu_of(server), time.monotonic()
            found = run_dry(subject, sizes, fresh, 0.0, 1)
            cost.database, cost.took = _cpu_of(server) - before, time.monotonic() - began
    cost.rate = found.settled
    cost.worker, cost.database = found.cpu * sizes.jobs / 1e6, cost.database - cost.sessions
    print(
        f"{cost.viewers} {cost.path}: {found.settled:,.0f} jobs/s, {len(cost.pages)} pages", file=sys.stderr, flush=True
    )
    return cost


@contextlib.contextmanager
def served(subject: Redrive, folder: Path, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """Serve the dashboard of a subject with ``redrive web``.

    Args:
        subject: whose database it shows.
        folder: for its output.
        **env: variables for its process.

    Yields:
        The process, and a client.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = (sys.executable, "-m", "redrive", "web", f"{subject.module}:app", "--port", str(port))
    with (
        running(command, {URL: subject.url, **env}, folder / "web") as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client,
    ):
        wait("the dashboard", lambda: _serves(client), process)
        yield process, client


@contextlib.contextmanager
def _dashboard(subject: Redrive, folder: Path, server: Server | None, cost: _Cost) -> Iterator[None]:
    """Serve the dashboard, with viewers, and note its processor time."""
    named = f"{subject.url}{'&' if '?' in subject.url else '?'}application_name={SESSIONS}"
    with served(subject, folder, **({} if server is None else {URL: named})) as (process, client):
        in_browser = cost.path == BROWSER
        with (
            ThreadPoolExecutor(1) as thread,
            _chromium(str(client.base_url)) if in_browser else contextlib.nullcontext(),
        ):
            # The first page compiles its template.
            client.get("/" if in_browser else cost.path).raise_for_status()
            watched = asyncio.sleep(0) if in_browser else _watch(str(client.base_url), cost)
            watching = thread.submit(asyncio.run, watched)
            dashboard, sessions = cpu_seconds(process), _sessions(server)
            try:
                yield
            finally:
                cost.dashboard, cost.sessions = cpu_seconds(process) - dashboard, _sessions(server) - sessions
                process.terminate()
        # A viewer that was refused something has measured nothing.
        watching.result()


@contextlib.contextmanager
def _chromium(url: str) -> Iterator[None]:
    """Have the overview open in Chromium, with its live updates."""
    # Only this needs the environment of the tests.
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page()
        page.goto(f"{url}/")
        page.locator("#live", has_text="live").wait_for()
        yield


def _serves(client: httpx.Client) -> bool:
    try:
        return client.get("/livez").is_success
    except httpx.TransportError:
        return False


async def _watch(url: str, cost: _Cost) -> None:
    await asyncio.gather(*(_view(url, cost) for _ in range(cost.viewers)))


async def _view(url: str, cost: _Cost) -> None:
    """Do what the script of the page does, until the server stops."""
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as client:
        last = await _fetch(client, cost)
        with contextlib.suppress(httpx.TransportError):
            async with client.stream("GET", "/live") as stream:
                async for line in stream.aiter_lines():
                    if line == "event: changed":
                        await asyncio.sleep(max(0.0, last + 1.0 - time.monotonic()))
                        last = await _fetch(client, cost)


async def _fetch(client: httpx.AsyncClient, cost: _Cost) -> float:
    began = time.monotonic()
    (await client.get(cost.path)).raise_for_status()
    cost.pages.append(time.monotonic() - began)
    return began


def _sessions(server: Server | None) -> float:
    """Return the processor time of the sessions of the dashboard, which stay open; 0 without a server."""
    if server is None:
        return 0.0
    pids = server.ask(f"SELECT pid FROM pg_stat_activity WHERE application_name = '{SESSIONS}'").split()
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(tick) for each in stats for tick in each[11:13]) / os.sysconf("SC_CLK_TCK")


def _cpu_of(server: Server | None) -> float:
    """Return the processor time of all processes of a server, also of those that have ended; 0 without a server."""
    if server is None:
        return 0.0
    main_process = Path(server.ask("SHOW data_directory"), "postmaster.pid").read_text().split()[0]
    every = [each.read_text().rpartition(")")[2].split() for each in Path("/proc").glob("[0-9]*/stat")]
    own = Path(f"/proc/{main_process}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, own[11:15])) + sum(sum(map(int, each[11:13])) for each in every if each[1] == main_process)
    return ticks / os.sysconf("SC_CLK_TCK")


def _added() -> float:
    """Return the processor time of the addition of one ended attempt, in microseconds."""
    app = App("memory://")

    @app.task
    def nothing() -> None:
        pass

    app.open()
    nothing.enqueue_many([()] * 100)
    worker = app.store.run(workers.register("bench", concurrency=100, lease_for=timedelta(minutes=1)))
    claims = app.store.run(leases.claim(worker, 100, lease_for=timedelta(minutes=1))).claims
    moved = app.store.run(leases.settle([leases.Ending(each, Succeeded(), 0.0) for each in claims])).moved
    app.close()
    tally, began = Tally(), time.process_time()
    for _ in range(2_000):
        tally.add(moved, worker)
    return (time.process_time() - began) / (2_000 * len(moved)) * 1e6


if __name__ == "__main__":
    main()
