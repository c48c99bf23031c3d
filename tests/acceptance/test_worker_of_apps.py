"""One worker process for apps with databases of their own, as `redrive worker shops:eu shops:us`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.clock import SystemClock
from tests import postgres
from tests.acceptance.processes import CHECKOUT
from tests.proxy import Proxy

CLOCK = SystemClock()

SHOPS = '''
import logging, os, time
from pathlib import Path
from redrive import App


def compute(number: int) -> int:
    """Log in a child process."""
    logging.getLogger("shop").warning("computing %d", number)
    return 2 * number


def shop(name):
    """Return the app of a shop."""
    app = App(os.environ[name], heartbeat_every="200ms", lease_for="3s")

    @app.on_start
    def connect():
        if os.environ.get("BROKEN") == name:
            while not Path("held_US").exists():
                time.sleep(0.01)
            raise ConnectionRefusedError("redis is down")

    @app.task
    def note(number: int) -> str:
        return f"{name} {number}"

    @app.task
    def hold(number: int) -> None:
        """Run until there is a file."""
        Path(f"held_{name}").touch()
        while not Path("go").exists():
            time.sleep(0.01)

    @app.task(retry="0")
    def fail() -> None:
        raise ValueError("wrong")

    app.task(executor="process")(compute)
    return app


eu, us = shop("EU"), shop("US")
same = eu
'''


def wait(condition: Callable[[], Any], seconds: float = 90) -> Any:
    """Wait until a condition holds, and return its value."""
    end = CLOCK.monotonic() + seconds
    while not (found := condition()):
        assert CLOCK.monotonic() < end, "the condition has not come about"
        CLOCK.sleep(0.02)
    return found


class Shops:
    """Two apps, and the worker process for both."""

    def __init__(self, folder: Path, eu: str, us: str) -> None:
        self.folder = folder
        self.urls = {"EU": eu, "US": us}
        self.eu, self.us = App(eu), App(us)
        self.log = folder / "worker.log"
        (folder / "shops.py").write_text(SHOPS)

    @contextlib.contextmanager
    def worker(self, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `redrive worker` with both apps, and kill it at the end of the block."""
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), **self.urls, **variables}
        command = [sys.executable, "-m", "redrive", "worker", "shops:eu", "shops:us", *words]
        with self.log.open("w") as log, subprocess.Popen(command, cwd=self.folder, env=environment, stderr=log) as it:
            try:
                yield it
            finally:
                it.kill()

    def logged(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the log, and return what has matched."""
        found: re.Match[str] = wait(lambda: re.search(pattern, self.log.read_text()))
        return found

    def close(self) -> None:
        """Close both apps."""
        self.eu.close()
        self.us.close()


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[Shops]:
    """Return two apps on files."""
    found = Shops(tmp_path, *[f"sqlite:///{tmp_path}/{name}.db?synchronous=normal" for name in ("eu", "us")])
    yield found
    found.close()


@pytest.mark.acceptance
def test_one_process_serves_both_and_ends_by_one_signal(shops: Shops, tmp_path: Path):
    """The log and the metrics name the app, also for jobs with the same id; running jobs of both finish."""
    jobs = [app.named(name).enqueue(number=1) for name in ("note", "hold") for app in (shops.eu, shops.us)]
    for app in (shops.eu, shops.us):
        app.named("fail").enqueue()
        jobs.append(app.named("compute").enqueue(number=21))
    with shops.worker("--metrics", ":0", "--health", ":0", "--concurrency", "2") as process:
        wait(lambda: (tmp_path / "held_EU").exists() and (tmp_path / "held_US").exists())
        wait(lambda: all(app.jobs.stats().dead == 1 for app in (shops.eu, shops.us)))
        wait(lambda: all(app.jobs.stats().succeeded == 2 for app in (shops.eu, shops.us)))
        metrics = httpx.get(shops.logged(r"metrics are at (\S+)")[1], trust_env=False).text
        ready = httpx.get(shops.logged(r"answered at (http://\S+):")[1] + "/readyz", trust_env=False)
        process.send_signal(signal.SIGTERM)
        for name in ("eu", "us"):
            shops.logged(rf"shops:{name}: the worker finishes 1 running job")
        (tmp_path / "go").touch()
        status = process.wait(60)

    assert 0 == status
    assert ["EU 1", "US 1", None, None, 42, 42] == [job.result(timeout=0) for job in jobs]
    assert [(), ()] == [app.workers.select() for app in (shops.eu, shops.us)]
    names = ("loop", *[f"shops:{app} {each}" for app in ("eu", "us") for each in READY])
    assert {"ok": True, "checks": dict.fromkeys(names, True)} == ready.json()
    log = shops.log.read_text()
    for name in ("eu", "us"):
        assert re.search(rf"ERROR   redrive.jobs: shops:{name}: job 3 \(fail\) died at attempt 1", log)
        assert re.search(rf"INFO    redrive.workers: shops:{name}: worker 1 .* 2 at once", log)
        assert re.search(rf"WARNING shop: shops:{name}: computing 21", log)
        assert re.search(
            rf'redrive_job_attempts_total{{app="shops:{name}",[^}}]*outcome="died"[^}}]*task="fail"}} 1.0', metrics
        )
        assert f'redrive_store_up{{app="shops:{name}"}} 1.0' in metrics
        assert f'redrive_workers{{app="shops:{name}"}} 1.0' in metrics


READY = ("store", "schema", "registered", "lease", "serving")


@pytest.mark.acceptance
def test_a_second_signal_gives_the_jobs_of_both_back(shops: Shops, tmp_path: Path):
    """The process ends although handlers in threads go on."""
    jobs = [app.named("hold").enqueue(number=1) for app in (shops.eu, shops.us)]
    with shops.worker() as process:
        wait(lambda: (tmp_path / "held_EU").exists() and (tmp_path / "held_US").exists())
        process.send_signal(signal.SIGINT)
        shops.logged("shops:us: the worker finishes 1 running job")
        process.send_signal(signal.SIGINT)
        status = process.wait(60)

    assert 0 == status
    assert [("ready", 0)] * 2 == [(job.state, job.record.attempt) for job in jobs]


@pytest.mark.acceptance
def test_a_failed_start_of_one_ends_the_process(shops: Shops, tmp_path: Path):
    """With the status 1 and one line that names hook and error; the running job of the other app finishes."""
    job = shops.us.named("hold").enqueue(number=1)
    with shops.worker(BROKEN="EU") as process:
        shops.logged("the worker of shops:eu has failed, and the process ends")
        (tmp_path / "go").touch()
        status = process.wait(60)

    assert (1, "succeeded") == (status, job.state)
    assert re.search(
        "redrive: start hook shops.shop.<locals>.connect failed: ConnectionRefusedError", shops.log.read_text()
    )


@pytest.mark.acceptance
def test_the_same_app_twice_is_refused(shops: Shops):
    """By the same name and by two names."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), **shops.urls}
    answers = []
    for names in (("shops:eu", "shops:eu"), ("shops:eu", "shops:same")):
        command = [sys.executable, "-m", "redrive", "worker", *names]
        done = subprocess.run(
            command, cwd=shops.folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        answers.append((done.returncode, done.stderr.strip()))

    assert [
        (2, "redrive: shops:eu is given twice"),
        (2, "redrive: shops:eu and shops:same are the same App"),
    ] == answers


@pytest.mark.acceptance
def test_a_database_that_is_away_keeps_only_its_own_jobs(tmp_path: Path):
    """While it is away at the start, and once more later, the other app is served.

    The process waits for it without a limit, is started and live, and not ready.
    """
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as proxy:
        schema = postgres.fresh()
        direct = App(postgres.url(schema))
        direct.open()
        shops = Shops(
            tmp_path,
            f"postgresql://postgres@{proxy.host}:{proxy.port}/postgres?schema={schema}",
            f"sqlite:///{tmp_path}/us.db?synchronous=normal",
        )
        waiting, served = direct.named("note").enqueue(number=1), shops.us.named("note").enqueue(number=1)
        proxy.refuse()
        with shops.worker("--wait", "30s", "--health", ":0") as process:
            address = shops.logged(r"answered at (http://\S+):")[1]
            shops.logged("shops:eu: the worker waits for its database: ")
            assert "US 1" == served.result(timeout=60)
            states = [httpx.get(f"{address}/{each}", trust_env=False) for each in ("startupz", "livez", "readyz")]
            proxy.accept()
            assert "EU 1" == waiting.result(timeout=60)
            wait(lambda: httpx.get(f"{address}/readyz", trust_env=False).status_code == 200)
            proxy.refuse()
            proxy.cut()
            wait(lambda: not httpx.get(f"{address}/readyz", trust_env=False).json()["checks"]["shops:eu lease"])
            assert "US 2" == shops.us.named("note").enqueue(number=2).result(timeout=60)
            live = httpx.get(f"{address}/livez", trust_env=False).status_code
            proxy.accept()
            assert "EU 2" == direct.named("note").enqueue(number=2).result(timeout=60)
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
        shops.close()
        direct.close()

    assert [200, 200, 503] == [each.status_code for each in states]
    assert {"shops:eu registered": False, "shops:us registered": True} == json.loads(states[0].text)["checks"]
    assert (200, 0) == (live, status)
