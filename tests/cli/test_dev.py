"""`redrive dev`: the files that it watches, the clock, and one server from its link to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.cli.dev.files import Files
from redrive.cli.dev.process import AdvancedClock, DevWorker
from redrive.clock import SystemClock
from tests import postgres
from tests.acceptance.processes import CHECKOUT, PATIENCE


def test_changes_below_the_folder_are_found(tmp_path: Path):
    """Changed, new and removed modules are found, each once, and no files of other software."""
    for name in ("app.py", "jobs/mail.py", "notes.txt", ".git/hook.py", "venv/pyvenv.cfg", "venv/lib/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    files = Files(tmp_path)
    found = [files.changed()]
    os.utime(tmp_path / "app.py", ns=(1, 1))
    found += [files.changed(), files.changed()]
    (tmp_path / "jobs/mail.py").unlink()
    found.append(files.changed())
    (tmp_path / "jobs/new.py").touch()
    found.append(files.changed())
    for name in ("notes.txt", ".git/hook.py", "venv/lib/x.py"):
        os.utime(tmp_path / name, ns=(1, 1))
    found.append(files.changed())

    assert [None, Path("app.py"), None, Path("jobs/mail.py"), Path("jobs/new.py"), None] == found


def test_advanced_clocks_last(tmp_path: Path):
    """Another process goes on at the advanced time."""
    AdvancedClock(tmp_path / "offset").advance(timedelta(days=30))
    AdvancedClock(tmp_path / "offset").advance(timedelta(hours=1))
    ahead = AdvancedClock(tmp_path / "offset").now() - SystemClock().now()

    assert timedelta(days=30, minutes=59) < ahead < timedelta(days=30, minutes=61)


def test_workers_go_on_at_the_advanced_time(tmp_path: Path):
    """Jobs that are due in an hour run at once when the clock is advanced, and lose nothing."""
    clock = AdvancedClock(tmp_path / "offset")
    app = App("memory://", clock=clock)
    ran = threading.Event()

    @app.task
    def later() -> None:
        """Note the call."""
        ran.set()

    job = later.options(delay="1h").enqueue()

    async def run() -> None:
        """Advance the clock while the worker runs."""
        worker = DevWorker({"": app}, clock)
        running = asyncio.create_task(worker.run())
        await SystemClock().asleep(0)
        await asyncio.to_thread(worker.advance, timedelta(hours=1))
        assert await asyncio.to_thread(ran.wait, PATIENCE)
        worker.stop()
        await running

    asyncio.run(run())

    assert ("succeeded", 1) == (job.refresh().state, len(job.attempts))
    app.close()


SHOP = '''
import asyncio
import redrive

app = redrive.App("sqlite:///shop.db")


@app.task(retry="5 1h")
async def pay(cents: int) -> int:
    """Wait for the next version of this file."""
    print("paying", flush=True)
    await asyncio.sleep(WAIT)
    return cents
'''


def test_wrong_calls_end_with_an_error(redrive: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ports that are in use are named; so is an App that cannot be loaded, at the first start."""
    import socket

    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = redrive("dev", "shop:app", "--port", str(taken.getsockname()[1]))

    assert 2 == answer.status
    assert "Address already in use; --port 0 chooses one" in answer.err


class Terminal:
    """The output of a process, read by a thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.text = ""
        self._news = threading.Condition()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self.text += line
                self._news.notify_all()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a text, and return what has matched."""
        with self._news:
            assert self._news.wait_for(lambda: re.search(pattern, self.text), PATIENCE), self.text
            found = re.search(pattern, self.text)
            assert found is not None
            return found


@contextlib.contextmanager
def developing(
    folder: Path, shop: str, *options: str, second: str | None = None
) -> Iterator[tuple[subprocess.Popen[str], Terminal, httpx.Client]]:
    """Write the app, start `redrive dev` and log in by the link that it prints."""
    (folder / "shop.py").write_text(shop)
    command = [
        sys.executable,
        "-m",
        "redrive",
        "dev",
        "shop:app",
        *([second] if second else []),
        "--port",
        "0",
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            terminal = Terminal(process)
            url, path = terminal.until(r"open (http://127\.0\.0\.1:\d+)((?:/shop:app)?/login/\S+) ").groups()
            with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False, headers={"origin": url}) as browser:
                assert 303 == browser.get(path).status_code
                yield process, terminal, browser
        finally:
            process.kill()


@pytest.mark.realtime
@pytest.mark.acceptance
def test_a_saved_file_starts_the_app_again(tmp_path: Path):
    """The link logs in; a saved file gives the running job back, with nothing spent, to the new code; pages stay
    logged in; and the server ends within 3 seconds while three pages hold their streams open."""
    clock = SystemClock()
    with developing(tmp_path, SHOP.replace("WAIT", "3600"), "--memory") as (process, terminal, browser):
        browser.post("/dev", data={"action": "enqueue", "task": "pay", "arg.cents": "5"})
        terminal.until("paying")
        (tmp_path / "shop.py").write_text(SHOP.replace("WAIT", "0"))
        terminal.until(r"shop\.py has changed")
        terminal.until(r"(?s)has changed.*paying")
        job = _ended(browser, clock)
        with contextlib.ExitStack() as streams:
            # A stream is closed with its iterator.
            pages = [streams.enter_context(browser.stream("GET", "/live")).iter_text() for _ in range(3)]
            for page in pages:
                next(page)
            before = clock.monotonic()
            process.send_signal(signal.SIGINT)
            status = process.wait(PATIENCE)
            took = clock.monotonic() - before

    assert ["released", "succeeded"] == [each["outcome"] for each in job["attempts"]]
    assert 1 == job["job"]["attempts"]
    assert 0 == status
    assert took < 3  # after which uvicorn ends them
    assert not (tmp_path / "shop.db").exists()


@pytest.mark.realtime
@pytest.mark.acceptance
def test_several_apps_are_developed_together(tmp_path: Path):
    """Each has a link that logs in, a worker and a throw-away database; the clock is advanced for all."""
    shop = SHOP.replace("WAIT", "0") + SHOP.replace("WAIT", "0").replace("app", "other").partition("import redrive")[2]
    with developing(tmp_path, shop, "--memory", second="shop:other") as (process, terminal, browser):
        path = terminal.until(r"open http://127\.0\.0\.1:\d+(/shop:other/login/\S+) ")[1]
        assert 303 == browser.get(path).status_code
        for name in ("app", "other"):
            for delay in ("", "1h"):
                form = {"action": "enqueue", "task": "pay", "arg.cents": "5", "delay": delay}
                browser.post(f"/shop:{name}/dev", data=form)
        terminal.until("(?s)paying.*paying")
        browser.post("/shop:other/dev", data={"action": "jump", "by": "1h"})
        terminal.until("(?s)paying.*paying.*paying.*paying")
        process.send_signal(signal.SIGINT)
        status = process.wait(PATIENCE)

    assert 0 == status
    assert not (tmp_path / "shop.db").exists()


@pytest.mark.acceptance
def test_an_app_on_postgresql_keeps_its_database(tmp_path: Path):
    """Without --memory the form enqueues into the database of the app, the worker runs the job there, and the clock,
    which is that of the server, is not advanced."""
    with postgres.lent() as url:
        shop = SHOP.replace("WAIT", "0").replace("sqlite:///shop.db", url)
        with developing(tmp_path, shop) as (process, terminal, browser):
            browser.post("/dev", data={"action": "enqueue", "task": "pay", "arg.cents": "5"})
            terminal.until("paying")
            ended = _ended(browser, SystemClock())["job"]["state"]
            refused = browser.post("/dev", data={"action": "jump", "by": "1h"})
            process.send_signal(signal.SIGINT)
            status = process.wait(PATIENCE)
        app = App(url).open(migrate=False)
        stored = app.job(1).state
        app.close()

    assert ("succeeded", "succeeded", 0) == (ended, stored, status)
    assert 409 == refused.status_code
    assert "with redrive dev --memory only" in refused.text


def _ended(browser: httpx.Client, clock: SystemClock) -> Any:
    """Return the job when it has ended."""
    deadline = clock.monotonic() + PATIENCE
    while True:
        job = browser.get("/api/v1/jobs/1").json()
        if job["job"]["finished_at"]:
            return job
        assert clock.monotonic() < deadline, job
        clock.sleep(0.02)
