"""`redrive worker`: run the jobs of an app until the process is stopped."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from redrive import App
from redrive.cli import cli
from redrive.cli.worker import stuck
from redrive.contrib import prometheus
from redrive.errors import StoreUnreachable
from redrive.runtime.worker import Worker

CHECKOUT = Path(__file__).parents[2]


class Left(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``os._exit`` raise, so that the test continues."""

    def leave(status: int) -> None:
        raise Left(status)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(logging, "shutdown", lambda: None)


def test_a_worker_runs_until_it_is_stopped(shop: App):
    """After SIGTERM the running job finishes, the status is 0, and the app is closed."""
    shop.tasks["charge"].enqueue(5)
    shop.tasks["stop"].options(priority=1).enqueue()
    result = CliRunner().invoke(cli, ["worker", "shop:app"])

    assert (0, None) == (result.exit_code, result.exception)
    assert (2, 0, ()) == (shop.jobs.stats().succeeded, shop.jobs.stats().running, shop.workers.select())
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


def test_its_options_reach_the_worker(shop: App, monkeypatch: pytest.MonkeyPatch):
    """Slots, queues and the time for draining."""
    seen: list[Worker] = []

    async def run(self: Worker) -> None:
        """Run it on an event loop."""
        seen.append(self)

    monkeypatch.setattr(Worker, "run", run)
    words = ["--concurrency", "7", "--queue", "fast", "--queue", "slow", "--shutdown-timeout", "1m30s", "--quiet"]
    result = CliRunner().invoke(cli, ["worker", "shop:app", *words])
    (worker,) = seen

    assert 0 == result.exit_code
    assert (False, None, None, None) == (
        worker._quota.until_empty,
        worker._quota.left,
        worker._name,
        worker._excluded,
    )
    assert (7, ["fast", "slow"], 90) == (
        worker._concurrency,
        worker._queues,
        worker._shutdown_timeout.total_seconds(),
    )


def test_a_worker_until_empty_runs_what_is_due_and_ends(shop: App):
    """Run due jobs of all queues but the excluded ones, and exit with 0; the log has the reason."""
    for queue in ("default", "slow"):
        shop.tasks["charge"].options(queue=queue).enqueue(5)
    shop.tasks["charge"].options(delay="1h").enqueue(5)
    words = ["--until-empty", "--exclude-queue", "slow", "--max-jobs", "9", "--name", "night"]
    result = CliRunner().invoke(cli, ["worker", "shop:app", *words])

    assert (0, None) == (result.exit_code, result.exception)
    assert (1, 1, 1) == (shop.jobs.stats().succeeded, shop.jobs.stats().due, shop.jobs.stats().scheduled)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--concurrency", "0"), "Invalid value for '--concurrency'"),
        (("--max-jobs", "0"), "Invalid value for '--max-jobs'"),
        (("--queue", "a", "--exclude-queue", "b"), "--exclude-queue: --queue serves only some queues already"),
        (("--name", ""), "the name of a worker is a text of 1 to 200 printable characters, got ''"),
        (("--shutdown-timeout", "soon"), "Invalid value for --shutdown-timeout: a duration"),
        (("--wait", "soon"), "such as 30s"),
    ],
)
def test_invalid_options_are_named(redrive, shop: App, words, why):
    """Exit with 2: the call is wrong."""
    output = redrive("worker", "shop:app", *words)

    assert (2, True) == (output.status, why in output.err)


def test_a_hanging_handler_in_a_thread_does_not_keep_the_process(shop: App, leaving):
    """After giving its job back, the process does not wait for a thread that cannot be stopped."""
    go = threading.Event()

    @shop.task
    def hang() -> None:
        """Stop the worker twice, and hang."""
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        go.wait(30)

    hang.enqueue()
    result = CliRunner().invoke(cli, ["worker", "shop:app", "--shutdown-timeout", "0s"])
    go.set()

    assert "Left(0)" == repr(result.exception)
    assert ("ready", 0) == (shop.job(1).state, shop.job(1).record.attempt)


def test_a_handler_that_ignores_the_stop_ends_with_the_process(shop: App, leaving, monkeypatch: pytest.MonkeyPatch):
    """Coroutines that suppress every cancellation cannot keep the process alive."""

    async def run(self: Worker) -> None:
        """Run it on an event loop."""

    monkeypatch.setattr(Worker, "run", run)
    monkeypatch.setattr(Worker, "abandoned", 1)
    result = CliRunner().invoke(cli, ["worker", "shop:app"])

    assert "Left(0)" == repr(result.exception)


def test_idle_threads_are_not_stuck(shop: App):
    """After the end of all handlers the process exits in the ordinary way."""
    done = threading.Thread(target=lambda: None, name="redrive-handler_0")
    done.start()
    done.join()

    assert False is stuck()


@pytest.mark.acceptance
def test_a_worker_is_a_process(shop: App, tmp_path: Path):
    """Run a job by the installed command, print the worker, and exit with 0 on SIGTERM."""
    shop.tasks["stop"].enqueue()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    command = [sys.executable, "-m", "redrive", "worker", "shop:app"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    assert (0, "succeeded") == (done.returncode, shop.job(1).state)
    start = next(line for line in done.stderr.splitlines() if "redrive.workers" in line)
    assert " INFO " in start
    assert f") serves all queues of sqlite:///{tmp_path}/shop.db" in start
    assert start.endswith(f", 50 at once; tasks: {', '.join(sorted(shop.tasks))}")


def test_a_worker_serves_its_metrics(shop: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Count from the start with `--metrics`, and serve the numbers at its address."""
    seen: list[object] = []
    monkeypatch.setattr(prometheus, "metrics", seen.append)
    monkeypatch.setattr(prometheus, "serve", lambda address: seen.append(address) or SimpleNamespace(url="there"))
    shop.tasks["stop"].enqueue()
    with caplog.at_level(logging.INFO):
        result = CliRunner().invoke(cli, ["worker", "shop:app", "--metrics", "127.0.0.1:9464"])

    assert (0, [shop, "127.0.0.1:9464"]) == (result.exit_code, seen)
    assert "metrics are at there" in caplog.text


def test_metrics_need_their_package(shop: App, monkeypatch: pytest.MonkeyPatch):
    """Without the package one line names what to install."""
    monkeypatch.setitem(sys.modules, "redrive.contrib.prometheus", None)
    result = CliRunner().invoke(cli, ["worker", "shop:app", "--metrics", ":0"])

    assert 0 != result.exit_code
    assert 'pip install "redrive[prometheus]"' in str(result.exception) + result.output


HOOKED = """
import os, signal, sys
from redrive import App, Context

app = App("sqlite:///hooked.db?synchronous=normal")

@app.on_start
def connect():
    if "BROKEN" in os.environ:
        raise ConnectionRefusedError("redis is down")
    yield {"greeting": "hello"}
    print("closed", flush=True)

@app.on_stop
def flush():
    print("flushed", flush=True)

@app.task
def greet(ctx: Context) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    return ctx.resources["greeting"]
"""


def run_hooked(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a worker of the app with hooks as a process, after one job was enqueued."""
    (folder / "hooked.py").write_text(HOOKED)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), **variables}
    enqueue = [sys.executable, "-c", "import hooked; hooked.greet.enqueue()"]
    subprocess.run(enqueue, check=True, cwd=folder, env=environment, timeout=60)
    command = [sys.executable, "-m", "redrive", "worker", "hooked:app", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=60)


@pytest.mark.acceptance
def test_stop_hooks_run_after_ctrl_c(tmp_path: Path):
    """After SIGINT the job finishes with the resource of the start hook, and both hooks end."""
    done = run_hooked(tmp_path)

    assert (0, "flushed\nclosed\n") == (done.returncode, done.stdout)
    app = App(f"sqlite:///{tmp_path}/hooked.db")
    assert "hello" == app.job(1).result(timeout=0)
    app.close()


@pytest.mark.acceptance
def test_an_error_of_a_start_hook_is_one_line(tmp_path: Path):
    """The process ends with 1 and one line that names hook, error and place; stop hooks run, and no job."""
    done = run_hooked(tmp_path, BROKEN="yes")
    (line,) = done.stderr.splitlines()

    assert (1, "flushed\n") == (done.returncode, done.stdout)
    assert "start hook hooked.connect failed: ConnectionRefusedError: redis is down (" in line
    assert "hooked.py, line 10)" in line


def test_a_misspelled_environment_variable_is_a_warning(
    shop: App, redrive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Variables of the program itself, and those that redrive reads, are none."""
    for name in ("REDRIVE_DISABLE", "REDRIVE_BUILD", "REDRIVE_URL"):
        monkeypatch.setenv(name, "1")
    redrive("worker", "shop:app", "--until-empty")

    text = "the environment variable REDRIVE_DISABLE is not read; did you mean REDRIVE_DISABLED?"
    assert [text] == [each for each in caplog.messages if "variable" in each]


def test_a_queue_that_nothing_uses_is_a_warning(shop: App, redrive, caplog: pytest.LogCaptureFixture):
    """Name the misspelled queue and the known ones; queues of the code, of settings and of jobs are known."""
    shop.queue("slow").limit(concurrency=1)
    shop.tasks["charge"].options(queue="mail", delay="1h").enqueue(5)
    words = [word for name in ("default", "slow", "mail", "defualt") for word in ("--queue", name)]
    serving = redrive("worker", "shop:app", *words, "--until-empty")
    excluding = redrive("worker", "shop:app", "--exclude-queue", "defualt", "--until-empty")

    text = "no task, no setting and no job has the queue 'defualt'; known queues: default, slow"
    assert (0, 0) == (serving.status, excluding.status)
    assert [text, text] == [each for each in caplog.messages if "known" in each]


def second(shop: App, url: str) -> App:
    """Add a second App to the module, with a task and a queue of its own, and the name ``other``."""
    app = App(url)
    app.task(name="charge", queue="other")(lambda: None)
    sys.modules["shop"].other = app  # type: ignore[attr-defined]
    return app


def test_a_queue_that_one_of_several_apps_uses_is_no_warning(shop: App, redrive, caplog: pytest.LogCaptureFixture):
    """Each app serves the queues that it has; only a queue that none has may be misspelled."""
    other = second(shop, "memory://")
    words = ["--queue", "default", "--queue", "other", "--queue", "othre", "--until-empty"]
    done = redrive("worker", "shop:app", "shop:other", *words)
    other.close()

    assert 0 == done.status
    (text,) = [each for each in caplog.messages if "known queues" in each]
    assert text.startswith("no task, no setting and no job has the queue 'othre'; ")


def test_a_queue_is_not_looked_up_while_the_database_is_away(
    shop: App, redrive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The worker waits for it, and must not end before."""

    def away(*_: object) -> None:
        raise StoreUnreachable("away")

    monkeypatch.setattr(type(shop.queues), "select", away)
    done = redrive("worker", "shop:app", "--queue", "defualt", "--until-empty")

    assert 0 == done.status
    assert [] == [each for each in caplog.messages if "known queues" in each]


def test_two_apps_with_the_same_tasks_in_one_database_are_a_warning(
    shop: App, redrive, caplog: pytest.LogCaptureFixture
):
    """It may be the wrong database; other apps may share one."""
    other = second(shop, shop.url)
    shared = redrive("worker", "shop:app", "shop:other", "--until-empty")
    other.close()

    assert 0 == shared.status
    text = (
        "shop:app and shop:other have the same database, and both run the jobs of charge there: one of them is enough"
    )
    assert 1 == caplog.messages.count(text)


def test_the_health_of_several_databases_is_checked(shop: App, redrive):
    """The answer names the app."""
    shop.open()
    other = second(shop, "sqlite:////absent/folder/jobs.db")
    failed = redrive("health", "shop:app", "shop:other")
    other.url = "memory://"
    passed = redrive("health", "shop:app", "shop:other")
    other.close()

    assert (1, "failed: shop:other store, shop:other schema\n") == (failed.status, failed.err)
    assert (0, "ok\n") == (passed.status, passed.out)


def test_a_failed_worker_ends_the_process_although_a_handler_of_another_app_hangs(
    shop: App, leaving, caplog: pytest.LogCaptureFixture
):
    """The error is logged, and the status is that of the error."""
    other, go, hangs = second(shop, "memory://"), threading.Event(), threading.Event()

    @shop.task
    def hang() -> None:
        """Hang."""
        hangs.set()
        go.wait(30)

    @other.on_start
    def connect() -> None:
        """Fail when the handler of the other app hangs."""
        hangs.wait(30)
        raise ConnectionError("redis is down")

    hang.enqueue()
    result = CliRunner().invoke(cli, ["worker", "shop:app", "shop:other", "--shutdown-timeout", "0s"])
    go.set()
    other.close()

    assert "Left(1)" == repr(result.exception)
    assert any(each.endswith("leaving; handlers in threads end with the process") for each in caplog.messages)
    assert "ready" == shop.job(1).state
