"""Eight contenders on one due retry: one wins each time, and no stale outcome is accepted."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from redrive.stores.opening import open_store
from redrive.stores.operations import admin, checks, jobs
from redrive.stores.store import Store
from tests.acceptance.chaos import marks, sized
from tests.acceptance.contender import Contender
from tests.acceptance.processes import CHECKOUT
from tests.stores.helpers import SHARED, STORES, T0, new

# In tests/stores/conformance, eight contend for a claim, a race of a run, a slot and an instance, on each store.
pytestmark = [*marks, pytest.mark.night]

CONTENDERS = 8
TRIALS = sized(60, 1_000)
TIMEOUT = 5

Crowd = Callable[..., list[Any]]
"""Call the same method of all contenders at the same time, and return their replies."""


@contextlib.contextmanager
def processes(url: str) -> Iterator[Crowd]:
    """Contenders in processes of their own."""
    command = [sys.executable, str(CHECKOUT / "tests/acceptance/contender.py"), url]
    environment = os.environ | {"PYTHONPATH": f"{CHECKOUT / 'src'}{os.pathsep}{CHECKOUT}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    crowd = [subprocess.Popen(command, env=environment, **pipes) for _ in range(CONTENDERS)]

    def answers() -> list[Any]:
        return [json.loads(each.stdout.readline()) for each in crowd]

    def all_do(*what: object) -> list[Any]:
        for each in crowd:
            each.stdin.write(json.dumps(what) + "\n")
            each.stdin.flush()
        return answers()

    try:
        answers()
        yield all_do
    finally:
        for each in crowd:
            with contextlib.suppress(BrokenPipeError):
                each.stdin.close()
            each.stdout.close()
            each.wait()


@contextlib.contextmanager
def threads(store: Store) -> Iterator[Crowd]:
    """Contenders in threads of this process."""
    crowd = [Contender(store) for _ in range(CONTENDERS)]
    start = threading.Barrier(CONTENDERS)

    def run(contender: Contender, name: str, arguments: tuple[Any, ...]) -> Any:
        start.wait()
        return getattr(contender, name)(*arguments)

    with ThreadPoolExecutor(CONTENDERS) as pool:
        yield lambda name, *arguments: list(pool.map(lambda each: run(each, name, arguments), crowd))


@pytest.mark.parametrize("kind", STORES)
def test_one_worker_wins_each_lease_and_stale_writes_are_refused(kind: str, tmp_path: Path):
    """Each trial has exactly one winner, which fails or vanishes; the successes of former holders are refused."""
    url, trials = STORES[kind](tmp_path), TRIALS if kind != "turso" else sized(20, 1_000)  # it takes 0.3 s for each
    with contextlib.closing(open_store(url)) as store:
        job = store.run(jobs.enqueue([new(retry=f"{2 * trials} 1s 1s", attempt_timeout=f"{TIMEOUT}s")], now=T0)).ids[0]
        leases = []
        with processes(url) if kind in SHARED else threads(store) as crowd:
            for trial in range(trials):
                seconds = trial * (TIMEOUT + 1)
                won = [lease for lease in crowd("claim", seconds, trial % 2 == 1) if lease is not None]
                leases += won

                assert 1 == len(won), f"trial {trial}"
                crowd("end", seconds, "fail" if trial % 2 else "vanish")
        record = store.run(jobs.get(job))
        history = store.run(jobs.history(job))

        assert ("ready", trials, None) == (record.state, record.attempt, store.run(jobs.result(job)))
        assert leases == [each.lease_id for each in history]
        assert ["lost", "failed"] * (trials // 2) == [each.outcome for each in history]
        assert trials // 2 == record.failures
        assert () == store.run(checks.check()).findings
        assert 1 == store.run(admin.stats(now=T0)).unfinished
