"""A large database on disk: ``python -m benchmarks.scale [fill] [drain] [lists] [pages] [prune] [--store STORE]``.

Ten million finished jobs and a million that wait are inserted by SQL, with what workers have counted. Each part can be
run by itself, on the database that ``fill`` has left in ``--home``; without parts all run, one after the other.

* *drain*: jobs of an empty database and of the large one, in turns; the median of the ratios of a pair is decisive.
* *lists*: the slowest of ten calls of each operation that operators use. ``jobs list`` is what the command reads,
  ``jobs.select`` what ``app.jobs.select`` reads, which does not end before all jobs are read or its limit is reached.
* *pages*: eleven answers of ``redrive web`` to each page of the dashboard, and the first contentful paint of five loads
  in Chromium after one more, each with an empty cache; the goal is 300 ms. It needs the environment of the tests.
  ``--due`` of the waiting jobs are due at once; the other parts need it to be 0.
* *prune*: a worker deletes finished jobs while single jobs arrive at a steady rate, and their pick-up is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from benchmarks import desk
from benchmarks.measure import Sizes, run_dry, send
from benchmarks.meter import METER, Meter
from benchmarks.page import markdown
from benchmarks.place import DATABASE, Place, fresh
from benchmarks.processes import cpu_seconds, running, wait
from benchmarks.server import kept
from benchmarks.subjects.redrive import KEEP, PATH, URL, Redrive, RedriveOnPostgres, RedriveOnSQLite
from benchmarks.viewers import served
from redrive.app.app import App
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.stores.operations import admin, queues

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["PARTS", "main"]

PARTS = ("fill", "drain", "lists", "pages", "prune")

LARGE = "large"
CHUNK = 500_000
"""Rows of one statement while filling."""

CHROMIUM = Path(os.environ.get("REDRIVE_CHROMIUM", "/usr/bin/chromium"))

PAINTED = 300
"""Milliseconds: the goal for the first contentful paint."""

_FIRST_PAINT = """() => new Promise(done => new PerformanceObserver(list => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) done(paint.startTime);
}).observe({type: "paint", buffered: true}))"""

_COLUMNS = """
    id, task, queue, priority, state, hold, policy, salt, enqueued_at, scheduled_at, attempt, started_at, claimed_at,
    finished_at, success_lease_id, success_worker_id
"""

_FINISHED = """
INSERT INTO redrive_jobs ({columns}, fingerprint, reason, error)
SELECT n, CASE WHEN n % 4 = 0 THEN 'other' ELSE one.task END, 'q' || (n % 5), 0,
    CASE WHEN n % 200 = 0 THEN 'dead' WHEN n % 200 = 1 THEN 'cancelled' ELSE 'succeeded' END,
    NULL, one.policy, one.salt, number.at, number.at, 1, number.at, number.at, number.at,
    CASE WHEN n % 200 > 1 THEN n * 1048576 END, CASE WHEN n % 200 > 1 THEN 1 END,
    CASE WHEN n % 200 = 0 THEN '1-' || (n / 200 % 20) END, CASE WHEN n % 200 = 0 THEN 'ERROR' END,
    CASE WHEN n % 200 = 0 THEN 'card of invoice ' || n || ' was declined' END
FROM (SELECT * FROM redrive_jobs ORDER BY id LIMIT 1) AS one
CROSS JOIN {numbers}
"""
"""One of 200 is dead, in 20 error groups, and one was cancelled."""

_REST = """
INSERT INTO redrive_payloads (job_id, payload) SELECT n, {payload} FROM {numbers};
INSERT INTO redrive_attempts (job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, error_type,
    error, traceback, rule)
SELECT id, id * 1048576, 1, 1, started_at, finished_at, 'failed', reason, 'shop.CardDeclined', error,
    'Traceback (most recent call last)', 'no retry left'
FROM redrive_jobs WHERE state = 'dead' AND id BETWEEN {first} AND {last}
"""

_HISTORY = """
INSERT INTO redrive_minutes (
    at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took, tries
)
SELECT {minute}, 1, 'q' || (n % 5), CASE WHEN n / 5 % 2 = 0 THEN 'other' ELSE 'noop' END, 970 + n % 90, 9, n % 7, 0,
    0, 0, {took}, {tries}
FROM {numbers};
INSERT INTO redrive_depths (at, queue, due, later, running, waiting, dead, oldest_for, due_capped)
SELECT {minute}, 'q' || (n % 5), n % 500, n % 90, n % 40, 0, n % 30, NULL, {no} FROM {numbers} WHERE n % 10 < 5;
INSERT INTO redrive_errors (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
SELECT fingerprint, min(task), 'ERROR', 'shop.CardDeclined', min(error), 'shop.py in charge', min(finished_at),
    max(finished_at), max(id)
FROM redrive_jobs WHERE fingerprint IS NOT NULL GROUP BY fingerprint;
INSERT INTO redrive_error_hours (fingerprint, at, worker_id, failures, deaths)
SELECT '1-' || (n % 20), {hour}, 1, 20 + n % 9, n % 9 FROM {hours}
"""
"""What workers count: 24 hours by minute of five queues with two tasks each, and a week of 20 error groups by hour."""

_WAITING = """
INSERT INTO redrive_jobs ({columns})
SELECT n, one.task, one.queue, 0, 'ready', 'delay', one.policy, one.salt, one.enqueued_at, one.enqueued_at + {due}, 0,
    NULL, NULL, NULL, NULL, NULL
FROM (SELECT * FROM redrive_jobs ORDER BY id LIMIT 1) AS one
CROSS JOIN {numbers}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description="A large database on disk.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="postgres")
    parser.add_argument("--home", type=Path, default=Path("build/scale"), help="the folder of the databases")
    parser.add_argument("--finished", type=int, default=10_000_000)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=0, help="of the waiting jobs; only for pages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000, help="that each draining drains")
    parser.add_argument("--seconds", type=float, default=40.0, help="for which the pruning is measured")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    home = chosen.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    with _large(chosen.store, home) as large:
        for part in chosen.parts or PARTS:
            globals()[f"_{part}"](large, chosen)


class _Large:
    """The large database: its place, and its subject."""

    def __init__(self, subject: Redrive, place: Place) -> None:
        self.subject = subject
        self.place = place

    def sql(self, text: str) -> str:
        """Run statements in it, and return the rows as text."""
        if self.place.server is not None:
            return self.place.ask(PATH + text)
        with contextlib.closing(sqlite3.connect(self.place.folder / "redrive.sqlite")) as connection:
            rows = [row for each in text.split(";") for row in connection.execute(each).fetchall()]
            connection.commit()
        return "\n".join("|".join(map(str, row)) for row in rows)


# All handlers have run when this is asked; a probe for due jobs would read every waiting one.
_RUNNING = "SELECT EXISTS (SELECT 1 FROM redrive_jobs WHERE state = 'running')"


class _OnPostgres(RedriveOnPostgres):
    unfinished_sql = _RUNNING


class _OnSQLite(RedriveOnSQLite):
    unfinished_sql = _RUNNING


@contextlib.contextmanager
def _large(store: str, home: Path) -> Iterator[_Large]:
    if store == "sqlite":
        yield _Large(_OnSQLite(), Place(home))
        return
    with kept(home / "data") as server:
        if not server.ask(f"SELECT 1 FROM pg_database WHERE datname = '{LARGE}'"):
            server.ask(f"CREATE DATABASE {LARGE}")
        yield _Large(_OnPostgres(), Place(home, server, LARGE))


def _fill(large: _Large, chosen: argparse.Namespace) -> None:
    began = time.monotonic()
    large.subject.create(large.place)
    with contextlib.closing(large.subject):
        large.subject.enqueue(0.0)
    on_server = large.place.server is not None
    for first in range(2, chosen.finished + 2, CHUNK):
        last = min(first + CHUNK - 1, chosen.finished + 1)
        step = "one.enqueued_at - interval '10 days' + n * interval '10 milliseconds'" if on_server else _PAST_SQLITE
        of = _numbers(first, last, on_server=on_server)
        numbers = f"LATERAL (SELECT n, {step} AS at FROM {of}) AS number" if on_server else f"{of} AS number"
        finished = _FINISHED.format(columns=_COLUMNS, numbers=numbers)
        large.sql(finished if on_server else finished.replace("number.at", _PAST_SQLITE))
        payload = "'[0.0]'" if on_server else "CAST('[0.0]' AS BLOB)"
        large.sql(_REST.format(numbers=of, first=first, last=last, payload=payload))
    first, last = chosen.finished + 2, chosen.finished + 1 + chosen.waiting
    due = "interval '1 day'" if on_server else str(86_400 * 1_000_000)
    large.sql(_WAITING.format(columns=_COLUMNS, numbers=_numbers(first, last, on_server=on_server), due=due))
    large.sql(f"UPDATE redrive_jobs SET scheduled_at = enqueued_at, hold = NULL WHERE id > {last - chosen.due}")
    large.sql("DELETE FROM redrive_jobs WHERE id = 1")
    if chosen.finished:
        large.sql(_history(on_server=on_server))
    if on_server:
        large.sql(f"SELECT setval('redrive_job_ids', {last}), setval('redrive_lease_ids', {last})")
    else:
        large.sql(f"UPDATE redrive_sequences SET value = {last} WHERE name IN ('job', 'lease'); ANALYZE")
    large.place.settle_down()
    print(
        f"{chosen.finished:,} finished and {chosen.waiting:,} waiting jobs: filled in {time.monotonic() - began:.0f} s",
        flush=True,
    )


_PAST_SQLITE = "one.enqueued_at - 864000000000 + n * 10000"


def _numbers(first: int, last: int, *, on_server: bool) -> str:
    if on_server:
        return f"generate_series({first}::bigint, {last}) AS n"
    counter = f"SELECT {first} AS n UNION ALL SELECT n + 1 FROM counter WHERE n < {last}"
    return f"(WITH RECURSIVE counter (n) AS ({counter}) SELECT n FROM counter)"


def _history(*, on_server: bool) -> str:
    took, tries = [0, 12, 80, 400, 300, 150, 20, 6, 2, 0, 0, 0, 0, 0, 0, 0, 0], [5, 3, 1, 0, 0, 0]
    now = "(SELECT now FROM redrive_clock)"
    if on_server:
        places = {"minute": f"date_trunc('minute', {now}) - n / 10 * interval '1 minute'", "no": "false"}
        places |= {"hour": f"date_trunc('hour', {now}) - n / 20 * interval '1 hour'"}
        places |= {"took": f"'{{{str(took)[1:-1]}}}'", "tries": f"'{{{str(tries)[1:-1]}}}'"}
    else:
        places = {"minute": f"{now} / 60000000 * 60000000 - n / 10 * 60000000", "no": "0"}
        places |= {"hour": f"{now} / 3600000000 * 3600000000 - n / 20 * 3600000000"}
        places |= {"took": f"'{took}'", "tries": f"'{tries}'"}
    numbers, hours = (_numbers(0, most, on_server=on_server) for most in (24 * 60 * 10 - 1, 7 * 24 * 20 - 1))
    return _HISTORY.format(**places, numbers=numbers, hours=hours)


def _drain(large: _Large, chosen: argparse.Namespace) -> None:
    sizes, ratios = Sizes(jobs=chosen.jobs), []
    for number in range(1, chosen.rounds + 1):
        with fresh(chosen.home.absolute(), large.place.server) as empty:
            rates = [_drained(large.subject, place, sizes) for place in (empty, large.place)]
        ratios.append(rates[1] / rates[0])
        print(f"drain {number}: {rates[0]:,.0f}/s empty, {rates[1]:,.0f}/s large: {ratios[-1]:.2f}", flush=True)
    print(f"drain: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), at least 0.9", flush=True)


def _drained(subject: Redrive, place: Place, sizes: Sizes) -> float:
    subject.create(place)
    with contextlib.closing(subject):
        subject.enqueue_many(sizes.jobs)
        if place.server is not None:
            place.ask("CHECKPOINT")
        return run_dry(subject, sizes, place, 0.0, 1).settled


def _lists(large: _Large, _chosen: argparse.Namespace) -> None:
    large.subject.create(large.place)
    with contextlib.closing(large.subject), contextlib.closing(App(large.subject.url)) as app:
        for name, call in _calls(app).items():
            _print_times(name, call)


def _print_times(name: str, call: Callable[[], object]) -> None:
    times = []
    for _ in range(10):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    print(f"{name:>34}: median {statistics.median(times):7.1f} ms, slowest {max(times):7.1f} ms", flush=True)


def _pages(large: _Large, chosen: argparse.Namespace) -> None:
    # Only this part needs the environment of the tests.
    from playwright.sync_api import sync_playwright

    large.subject.create(large.place)
    large.subject.close()
    large.subject.module = desk.__name__
    listed, found = _desk(large.subject.url), []
    lists = [f"/jobs?q=state:{state}" for state in State]
    lists += ["/jobs?q=task:nothing", "/jobs?q=error:nothing", "/jobs?q=queue:q3+state:dead", "/find?q=inv-443"]
    with (
        tempfile.TemporaryDirectory(dir=chosen.home) as folder,
        served(large.subject, Path(folder)) as (process, client),
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"]) as browser,
    ):
        for path in [*listed, *lists]:
            first = _seconds(client, path)
            before = cpu_seconds(process)
            times = [_seconds(client, path) for _ in range(10)]
            cpu = (cpu_seconds(process) - before) * 100
            paints = [_painted(browser, f"{client.base_url}{path}") for _ in range(6)][1:]
            weight = _weighed(browser, f"{client.base_url}{path}")
            found.append((path, first, statistics.median(times), cpu, statistics.median(paints), max(paints), *weight))
            print(*found[-1], file=sys.stderr, flush=True)
        process.terminate()
    print(markdown(_PAGES, [[f"`{path}`", *(f"{each:.0f}" for each in figures)] for path, *figures in found]))
    slow = sum(each[4] > PAINTED for each in found)
    print(f"\n{slow} of {len(found)} pages above the goal of {PAINTED} ms for the first contentful paint")


_PAGES = (
    "page", "first answer, ms", "median of ten, ms", "processor, ms", "first paint, ms", "slowest of five, ms",
    "first visit, kB", "sent, kB", "sent later, kB",
)  # fmt: skip


def _desk(url: str) -> list[str]:
    """Add the things of the desk, and return the addresses of the pages."""
    command = "from benchmarks import desk; desk.fill(); print(*desk.pages(), sep='\\n')"
    environment = {**os.environ, URL: url}
    done = subprocess.run(
        [sys.executable, "-c", command], check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.split()


def _seconds(client: httpx.Client, path: str) -> float:
    """Return the milliseconds until the answer of the server is there."""
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return (time.perf_counter() - began) * 1e3


def _painted(browser: Browser, url: str) -> float:
    """Return the milliseconds from the start of the navigation to the first contentful paint, without a cache."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(url)
        return float(page.evaluate(_FIRST_PAINT))
    finally:
        context.close()


_SIZES = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .filter(each => each.initiatorType !== "fetch").map(each => [each.decodedBodySize, each.transferSize])"""


def _weighed(browser: Browser, url: str) -> tuple[float, float, float]:
    """Return the kilobytes of a first visit, as they are and as they are sent, and of those sent on a second one."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(url)
        page.evaluate("document.fonts.ready.then(() => 0)")
        first = page.evaluate(_SIZES)
        page.goto(url)
        later = page.evaluate(_SIZES)
    finally:
        context.close()
    return sum(each[0] for each in first) / 1e3, sum(each[1] for each in first) / 1e3, sum(e[1] for e in later) / 1e3


def _calls(app: App) -> dict[str, Callable[[], object]]:
    filters = {
        "all": Filter(),
        "succeeded": Filter(state=State.SUCCEEDED),
        "dead": Filter(state=State.DEAD),
        "dead, oldest first": Filter(state=State.DEAD, oldest_first=True),
        "cancelled": Filter(state=State.CANCELLED),
        "ready": Filter(state=State.READY),
        "held": Filter(hold=Hold.DELAY),
        "of a task": Filter(task="other"),
        "of a queue": Filter(queue="q3"),
        "dead of a queue": Filter(state=State.DEAD, queue="q0"),
        "of a task without jobs": Filter(task="nothing"),
        "with an error that none has": Filter(error="nothing"),
    }
    calls: dict[str, Callable[[], object]] = {
        "stats": app.jobs.stats,
        "stats of a task": functools.partial(app.jobs.stats, task="other"),
        "queues list": lambda: app.store.run(queues.depths(now=app.now())),
    }
    for name, where in filters.items():
        if where.hold is None and not where.oldest_first:
            page = functools.partial(admin.page, where, budget=admin.BUDGET)
            calls[f"jobs list: {name}"] = lambda page=page: app.store.run(page())  # type: ignore[misc]
        calls[f"jobs.select: {name}"] = functools.partial(app.jobs.select, where)
    return calls


def _prune(large: _Large, chosen: argparse.Namespace) -> None:
    """Delete the finished jobs of a copy, so that the other parts can be measured again."""
    server = large.place.server
    assert server is not None, "the pruning is measured on PostgreSQL"
    server.ask(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
    server.ask(f"CREATE DATABASE {DATABASE} TEMPLATE {LARGE} STRATEGY file_copy")
    place, subject = Place(chosen.home.absolute(), server), _OnPostgres()
    with tempfile.TemporaryDirectory(dir=chosen.home) as folder:
        subject.create(place)
        try:
            for keep in (None, "1s"):
                _print_pruned(subject, place, Path(folder), keep, chosen.seconds)
        finally:
            subject.close()
            server.ask(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def _print_pruned(subject: Redrive, place: Place, folder: Path, keep: str | None, seconds: float) -> None:
    meter = Meter.create(folder / "meter")
    command, env = subject.worker()
    env |= {METER: str(folder / "meter"), KEEP: keep or "1000d"}
    with running(command, env, folder / "log") as process:
        subject.enqueue(0.0)
        wait("the first job", lambda: meter.count > 0, process)
        first = _deleted(place)
        if keep is not None:
            wait("the first deletion", lambda: _deleted(place) > first, process)
        before, began = _deleted(place), time.monotonic()
        send(subject, Sizes(latencies=round(seconds * 50), rate=50))
        rate = (_deleted(place) - before) / (time.monotonic() - began)
        wait("the last job", lambda: meter.count > round(seconds * 50), process)
    cuts = statistics.quantiles(meter.latencies, n=100)
    latency = f"pick-up p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms"
    print(f"prune, kept {keep or 'for ever'}: {rate:,.0f} jobs/s deleted; {latency}", flush=True)


def _deleted(place: Place) -> int:
    """Return the number of jobs that were deleted since the database was made; late by a second at most."""
    counted = "SELECT n_tup_del FROM pg_stat_user_tables WHERE schemaname = 'redrive' AND relname = 'redrive_jobs'"
    return int(place.ask(counted) or 0)


if __name__ == "__main__":
    main()
