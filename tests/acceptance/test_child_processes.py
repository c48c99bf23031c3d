"""Handlers of tasks with ``executor="process"`` run in child processes, which may die without harm to the worker."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from redrive import App, Filter, Job
from redrive.engine.lifecycle import FINAL, State
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.runtime.worker import Worker

pytestmark = [pytest.mark.acceptance]

PATIENCE = 60
"""Seconds after which a waiting test fails."""

WORK = '''
import ctypes
import logging
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from redrive import App, Context, Pending, Policy, Snooze, Tasks

HERE = Path(__file__).parent
app = App(f"sqlite:///{HERE}/jobs.db", heartbeat_every="200ms", lease_for="2s")
log = logging.getLogger("shop")


class Declined(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, card, why):
        super().__init__(card)


def note(name, text=""):
    (HERE / name).write_text(str(text or os.getpid()))


@app.task(executor="process")
def square(number: int) -> int:
    log.warning("squaring %d", number)
    return number * number


@app.task(executor="process")
def pid(number: int) -> int:
    return os.getpid()


@app.task(executor="process", retry="1 10ms")
def decline(number: int) -> None:
    raise Declined("card 7", "no money")


@app.task(executor="process")
def unwritable(number: int) -> object:
    return object()


@app.task(executor="process", timeout="300ms")
def spin(number: int) -> None:
    child = subprocess.Popen(["sleep", "600"])
    note("spinning", os.getpid())
    note("grandchild", child.pid)
    while True:
        pass


@app.task(executor="process")
def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process", idempotent=False)
def die_once(number: int) -> None:
    os._exit(3)


@app.task(executor="process")
def hold(number: int) -> str:
    note(f"holding-{number}")
    while not (HERE / "go").exists():
        time.sleep(0.005)
    return "finished"


@app.task(executor="process", soft_timeout="50ms")
def polite(ctx: Context, number: int) -> str:
    ctx.heartbeat({"at": number})
    note(f"polite-{number}")
    while number and not ctx.should_stop:
        time.sleep(0.005)
    return f"{ctx.job_id} {ctx.attempt} {ctx.stop_reason}"


@app.task(executor="process")
def until_stopped(ctx: Context, number: int) -> str:
    note("waiting-for-stop")
    while not ctx.should_stop:
        time.sleep(0.005)
    return str(ctx.stop_reason)


@app.task(executor="process")
def transact(ctx: Context, number: int) -> None:
    with ctx.transaction():
        pass


@app.task(executor="process")
def snooze(ctx: Context, number: int) -> str:
    if ctx.attempt == 1 and ctx.failures == 0 and not (HERE / "snoozed").exists():
        note("snoozed")
        raise Snooze("10ms")
    return "slept"


@app.task(executor="process")
def pending(number: int) -> Pending:
    return Pending("10ms")


@app.task
async def beside(number: int) -> int:
    return number


@app.task(retry=Policy(on=lambda error: isinstance(error, OSError), on_retry=lambda details: None, attempts=3))
def mail(number: int) -> int:
    return number


@app.task(executor="process")
def mails(number: int) -> None:
    mail.enqueue(number)


@app.task(executor="process", retry="1 10ms")
def threads(ctx: Context, number: int) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(mail.enqueue, range(number)))
    if ctx.attempt == 1:
        raise ConnectionError("warehouse")
'''


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module with tasks, which child processes can import."""
    (tmp_path / "children_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "children_work", raising=False)
    module = importlib.import_module("children_work")
    yield module
    module.app.close()
    sys.modules.pop("children_work", None)


def drained(app: App, *jobs: Job[Any], **options: Any) -> list[Job[Any]]:
    """Run a worker until these jobs have ended, and return them."""

    async def run() -> None:
        worker = Worker(app, **options)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await asyncio.to_thread(
                wait_until, lambda: running.done() or all(job.refresh().state in FINAL for job in jobs)
            )
        worker.stop()
        await running

    asyncio.run(run())
    return list(jobs)


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Return True if a process exists and is no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_results_come_back_from_another_process(work: ModuleType, caplog: pytest.LogCaptureFixture):
    """Arguments and results are JSON as for other handlers, and what a child logs is logged by the worker."""
    with caplog.at_level(logging.INFO):
        jobs = [work.square.enqueue(7), work.pid.enqueue(1), work.snooze.enqueue(1), work.beside.enqueue(3)]
        drained(work.app, *jobs)

    squared, child, slept, beside = [job.result() for job in jobs]
    assert (49, "slept", 3) == (squared, slept, beside)
    assert os.getpid() != child
    assert "squaring 7" in caplog.text


def test_an_error_in_a_child_is_the_same_as_in_a_thread(work: ModuleType):
    """The class, the text and the traceback are stored, also of an exception that cannot be pickled."""
    declined, unwritable = drained(work.app, work.decline.enqueue(1), work.unwritable.enqueue(1))

    assert ("dead", 2) == (declined.state, declined.record.attempt)
    last = declined.attempts[-1]
    assert ("card 7", "children_work.Declined") == (last.error, last.error_type)
    assert "raise Declined" in last.traceback
    assert "redrive/runtime" not in last.traceback
    assert ("dead", "BAD_RESULT") == (unwritable.state, unwritable.attempts[-1].reason)


def test_a_timeout_kills_the_child_and_the_processes_that_it_has_started(work: ModuleType, tmp_path: Path):
    """Handlers that compute for ever end at their timeout; other jobs go on."""
    spin, square = drained(work.app, work.spin.enqueue(1), work.square.enqueue(2), processes=1)

    assert ("dead", "succeeded") == (spin.state, square.state)
    assert "took longer than 0.3 s" in str(spin.record.error)
    for name in ("spinning", "grandchild"):
        number = int((tmp_path / name).read_text())
        wait_until(lambda number=number: not runs(number))  # type: ignore[misc]


@pytest.mark.parametrize(("how", "told"), [("exit", "exit code 3"), ("segfault", "SIGSEGV"), ("kill", "SIGKILL")])
def test_a_job_that_kills_its_child_three_times_is_poison(work: ModuleType, how: str, told: str):
    """The worker goes on with another child, and the other jobs succeed."""
    others = [work.square.enqueue(number) for number in range(10)]
    died, *rest = drained(work.app, work.die.enqueue(how), *others, processes=2)

    assert ("dead", 3, "POISON") == (died.state, died.record.attempt, died.attempts[-1].reason)
    assert told in str(died.record.error)
    assert {"succeeded"} == {job.state for job in rest}


def test_a_job_that_must_not_run_twice_is_lost_with_its_child(work: ModuleType):
    """It is dead with the reason LOST_IN_FLIGHT after the first death of a child."""
    (died,) = drained(work.app, work.die_once.enqueue(1))

    assert ("dead", 1, "LOST_IN_FLIGHT") == (died.state, died.record.attempt, died.attempts[-1].reason)


def test_a_context_in_a_child_has_what_needs_no_connection(work: ModuleType):
    """It has the attempt, soft timeouts and heartbeats; a transaction is refused with the remedy."""
    polite, transact = drained(work.app, work.polite.enqueue(1), work.transact.enqueue(1))

    assert f"{polite.id} 1 timeout" == polite.result()
    assert "this handler runs in a child process" in str(transact.record.error)


def test_a_job_may_wait_for_an_answer_from_outside(work: ModuleType):
    """`Pending` frees the child; without an answer in time the attempt has failed with the reason TIMEOUT."""
    (pending,) = drained(work.app, work.pending.enqueue(1))

    assert ("dead", "TIMEOUT") == (pending.state, pending.attempts[-1].reason)


def test_a_child_enqueues_jobs_with_functions_in_their_policies(work: ModuleType):
    """Functions that cannot be pickled stay in the child; the job is written with the end of the attempt."""
    (job,) = drained(work.app, work.mails.enqueue(7))

    assert (State.SUCCEEDED, 1) == (job.state, len(job.attempts))
    assert 1 == len(work.app.jobs.select(Filter(task="mail")))


def test_threads_of_a_child_belong_to_the_attempt(work: ModuleType):
    """What the threads of a handler in a child enqueue is written with the attempt that succeeds, and once."""
    (job,) = drained(work.app, work.threads.enqueue(3))

    assert (State.SUCCEEDED, 2) == (job.state, len(job.attempts))
    assert 3 == len(work.app.jobs.select(Filter(task="mail")))


def test_a_stop_reaches_the_handler_in_its_child(work: ModuleType, tmp_path: Path):
    """The handler reads the request in ``ctx.should_stop``, finishes, and its result is stored."""
    job = work.until_stopped.enqueue(1)

    async def run() -> None:
        worker = Worker(work.app)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, (tmp_path / "waiting-for-stop").exists)
        worker.stop()
        async with asyncio.timeout(PATIENCE):
            await running

    asyncio.run(run())

    assert "shutdown" == job.result()


def test_a_second_stop_kills_the_children_and_gives_their_jobs_back(work: ModuleType, tmp_path: Path):
    """No child is left when the worker has ended."""
    job = work.hold.enqueue(1)

    async def run() -> None:
        worker = Worker(work.app)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, (tmp_path / "holding-1").exists)
        worker.stop()
        worker.stop()
        async with asyncio.timeout(PATIENCE):
            await running

    asyncio.run(run())

    assert "ready" == job.refresh().state
    wait_until(lambda: not runs(int((tmp_path / "holding-1").read_text())))


def test_a_child_of_a_cancelled_job_is_killed(work: ModuleType, tmp_path: Path):
    """The worker notices within a second that the lease is lost."""
    held = work.hold.enqueue(1)

    async def run() -> None:
        worker = Worker(work.app)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, (tmp_path / "holding-1").exists)
        await asyncio.to_thread(held.cancel)
        child = int((tmp_path / "holding-1").read_text())
        await asyncio.to_thread(wait_until, lambda: not runs(child))
        worker.stop()
        await running

    asyncio.run(run())

    assert "cancelled" == held.refresh().state


@pytest.mark.parametrize("task", ["hold", "spin"])
def test_children_end_with_a_worker_that_is_killed(work: ModuleType, tmp_path: Path, task: str):
    """After kill -9 of the worker no child goes on, whether it waits or computes."""
    work.app.tasks[task].enqueue(1)
    command = [sys.executable, "-m", "redrive", "worker", "children_work:app"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
        name = {"hold": "holding-1", "spin": "spinning"}[task]
        wait_until(lambda: (tmp_path / name).exists() and bool((tmp_path / name).read_text()))
        child = int((tmp_path / name).read_text())
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        wait_until(lambda: not runs(child))
    if task == "spin":
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
            os.kill(int((tmp_path / "grandchild").read_text()), signal.SIGKILL)


def test_ctrl_c_leaves_the_child_of_a_running_job_its_time(work: ModuleType, tmp_path: Path):
    """A signal to the process group of the worker ends no child; the job finishes while the worker drains."""
    job = work.hold.enqueue(1)
    command = [sys.executable, "-m", "redrive", "worker", "children_work:app"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as worker:
        wait_until((tmp_path / "holding-1").exists)
        os.killpg(worker.pid, signal.SIGINT)
        (tmp_path / "go").touch()
        assert 0 == worker.wait(PATIENCE)

    assert "finished" == job.result()


# ------------------------------------------------------------------------------------------------------------- refusals


def test_functions_that_a_child_cannot_import_are_refused_at_the_declaration():
    """Local functions, lambdas and coroutine functions are refused with the task and the remedy."""
    app = App("memory://")

    def local(number: int) -> None:
        """Do nothing."""

    async def coroutine(number: int) -> None:
        """Do nothing."""

    with pytest.raises(TaskDefinitionError, match=r"task 'local': .* is local: write it at the top of a module"):
        app.task(executor="process")(local)
    with pytest.raises(TaskDefinitionError, match=r"task 'short': .* is local"):
        app.task(executor="process", name="short")(lambda number: number)
    with pytest.raises(TaskDefinitionError, match=r"task 'coroutine' is async"):
        app.task(executor="process")(coroutine)
    with pytest.raises(TaskDefinitionError, match=r"executor= is \"thread\" or \"process\", got 'fibre'"):
        app.task(executor="fibre")(local)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def send(n: int) -> None: ...\ntask = app.task(executor='process')(send)\ndel send", "is not there"),
        ("def send(n: int) -> None: ...\ntask = app.task(executor='process')(send)\nsend = print", "is another object"),
        ("@app.task(executor='process')\ndef send(request: CatchRequest) -> None: ...", "is a catch task"),
        (
            "@app.task(executor='process')\ndef send(n: int) -> None: ...\nsend.function.__module__ = '__main__'",
            "__main__",
        ),
    ],
)
def test_functions_that_are_not_in_their_module_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, told: str
):
    """The worker does not start, and its error names the task."""
    (tmp_path / "refused_work.py").write_text(
        f"from redrive import App, CatchRequest\napp = App('sqlite:///{tmp_path}/jobs.db')\n{code}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "refused_work", raising=False)
    app: App = importlib.import_module("refused_work").app

    with (
        contextlib.closing(app),
        pytest.raises(TaskDefinitionError, match=r"task 'send'.*executor=\"process\"") as error,
    ):
        asyncio.run(Worker(app).run())

    assert told in str(error.value)


def test_a_module_that_a_child_cannot_import_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The error has the traceback of the child."""
    (tmp_path / "broken_work.py").write_text(
        "import os\nfrom redrive import App\n"
        f"app = App('sqlite:///{tmp_path}/jobs.db')\n"
        f"if os.getpid() != {os.getpid()}:\n    raise OSError('no licence')\n"
        "@app.task(executor='process')\ndef send(n: int) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_work", raising=False)
    app: App = importlib.import_module("broken_work").app

    with contextlib.closing(app), pytest.raises(ConfigurationError, match=r"cannot import the tasks[\s\S]*no licence"):
        asyncio.run(Worker(app).run())


@pytest.mark.parametrize("processes", [0, -1, True, 1.5, "2"])
def test_a_number_of_processes_that_is_none_is_refused(processes: Any):
    """The message has the value and the meaning of None."""
    with pytest.raises(ConfigurationError, match=r"at least one child process, got processes="):
        Worker(App("memory://"), processes=processes)


def test_workers_share_jobs_by_their_free_children(work: ModuleType, tmp_path: Path):
    """Each of two workers with one child and many slots runs one job, and no further job is claimed."""
    jobs = [work.hold.enqueue(number) for number in range(4)]

    async def run() -> list[str]:
        workers = [Worker(work.app, processes=1) for _ in range(2)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await asyncio.to_thread(wait_until, lambda: len(list(tmp_path.glob("holding-*"))) == 2)
        states = [job.refresh().state for job in jobs]
        (tmp_path / "go").touch()
        await asyncio.to_thread(wait_until, lambda: all(job.refresh().state in FINAL for job in jobs))
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        return sorted(states)

    assert ["ready", "ready", "running", "running"] == asyncio.run(run())
