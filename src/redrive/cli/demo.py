"""``redrive demo``: webhooks to an unreliable server, and the proof that none was lost.

The receiver and the workers of ``examples/webhooks`` run as processes, as a user would start them. Once two fifths of
the events are done, the worker that runs the most is killed. At the end ``audit.py`` there compares the database with
the ledger of the receiver and the dead letters.

Exit status: 0 if these agree that every event was delivered or caught; 1 if an event was lost or could not be finished;
2 if an option is wrong; 130 after Ctrl-C. Ctrl-C once lets the workers finish what they run; twice kills them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from redrive.app.app import App
from redrive.cli.screen import say
from redrive.clock import SystemClock
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError, RedriveError

_LOST, _WRONG, _INTERRUPTED = 1, 2, 130
_PACKAGE = Path(__file__).parents[1]
_DATABASE = "redrive-demo/webhooks.db"
_MIDWAY = 0.4
_LOOK_EVERY = 0.1  # seconds
_LOOK_TO_KILL_EVERY = 0.01  # seconds; a delivery may take less than the interval of other looks
_SHOW_EVERY = 1.0  # seconds
_STALLED_AFTER = 60.0  # seconds without a change; the longest regular pause is a lease that runs out, 3 s
_STOPS_WITHIN = 15.0  # seconds until a process that was asked to stop is killed
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(
    *,
    events: Annotated[int, typer.Option(min=0, max=300, help="Number of events; 0 finishes an earlier run.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the receiver's faults.")] = 7,
    db: Annotated[str, typer.Option(help="SQLite file; an existing one is continued.")] = _DATABASE,
    workers: Annotated[int, typer.Option(min=2, max=32, help="Worker processes; one is killed midway.")] = 2,
    open_: Annotated[
        bool, typer.Option("--open", help="Serve the dashboard of what has happened at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Deliver webhooks to an unreliable server, kill a worker midway, and prove that nothing was lost."""
    try:
        if open_ and not _has_dashboard():
            raise ConfigurationError('the dashboard is not installed: pip install "redrive[web]"')
        run = Demo(db, seed)
        result = run.perform(events, workers)
    except (RedriveError, OSError, msgspec.DecodeError) as error:
        say(f"redrive demo: {error}", err=True)
        raise typer.Exit(_WRONG) from error
    for line in run.audit.report(result):
        say(line)
    if run.trouble:
        say(f"redrive demo: {run.trouble}", err=True)
    if result.unfinished:
        later = f"deliver them with: redrive demo --events 0 --db {db}"
        say(f"redrive demo: {result.unfinished} events are safe in the database; {later}", err=True)
    if _has_dashboard() and (open_ or sys.stdout.isatty()):
        _show_dashboard(db, serves=open_)
    if result.is_proof and run.interrupted:
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(0 if result.is_proof and not (run.trouble or result.unfinished) else _LOST)


def _has_dashboard() -> bool:
    return all(importlib.util.find_spec(name) for name in ("jinja2", "starlette", "uvicorn"))


def _show_dashboard(db: str, *, serves: bool) -> None:
    """Serve the dashboard until Ctrl-C, or print how to."""
    if not serves:
        option = "" if db == _DATABASE else f" --db {shlex.quote(db)}"
        say(f"see what happened at http://127.0.0.1:8765/ with: redrive demo --events 0 --open{option}")
        return
    from redrive.cli.web import web

    # The server raises the signal again that has ended it.
    with contextlib.suppress(KeyboardInterrupt):
        web(["delivery:app"])


def program_folder() -> Path:
    """Return the folder of the webhook example: in the wheel, or in a checkout."""
    for folder in (_PACKAGE / "_examples" / "webhooks", _PACKAGE.parents[1] / "examples" / "webhooks"):
        if (folder / "delivery.py").exists():
            return folder
    raise ConfigurationError("this installation has no examples: install redrive from its wheel, or run in a checkout")


class Demo:
    """One run. It starts the receiver and the workers as a user would, and sends them nothing but signals."""

    def __init__(self, db: str, seed: int) -> None:
        if importlib.util.find_spec("httpx") is None:
            raise ConfigurationError('the demo needs httpx, which is not installed: pip install "redrive[httpx]"')
        if "://" in db or db in {"", ":memory:"}:
            raise ConfigurationError(f"the demo needs the path of a SQLite file, as in --db demo.db, not {db!r}")
        self._folder, database = program_folder(), Path(db).absolute()
        if db == _DATABASE:
            database.parent.mkdir(exist_ok=True)
        self._ledger, self._letters, self._log = (
            database.with_name(f"{database.name}.{ending}") for ending in ("ledger.jsonl", "dead-letters.jsonl", "log")
        )
        # The processes run this redrive, from any directory.
        paths = os.pathsep.join((str(self._folder), str(_PACKAGE.parent)))
        os.environ.update(PYTHONPATH=paths, PYTHONUNBUFFERED="1")
        os.environ.update(WEBHOOKS_DB=f"sqlite:///{quote(str(database))}", WEBHOOKS_DEAD_LETTERS=str(self._letters))
        sys.path.insert(0, str(self._folder))
        self.program, self.audit = importlib.import_module("delivery"), importlib.import_module("audit")
        self._app: App = self.program.app
        self._seed, self._processes = seed, dict[str, subprocess.Popen[str]]()
        self._owned = {each.job.id for each in self.audit.deliveries() if each.is_open}
        self._before = self._app.jobs.stats(task="deliver")
        self._killed, self._held = "", frozenset[int]()
        self._started_at = self._changed_at = SystemClock.monotonic()
        self._counts = self._shown = ""
        self._show_at = 0.0
        self.interrupted, self.trouble = False, ""

    def perform(self, count: int, workers: int) -> Any:  # noqa: ANN401 - the Result of the example's audit
        """Deliver so many events and those of an earlier run, and return what became of them, also after Ctrl-C."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._app.close)
            self._output = undo.enter_context(self._log.open("ab"))
            self._output_starts = self._output.tell()
            undo.callback(self._kill_all)
            for each in _SIGNALS:
                undo.callback(signal.signal, each, signal.signal(each, self._interrupt))
            self._start_receiver()
            try:
                self._deliver(count, workers)
            except RedriveError as error:
                self.trouble = str(error)
            except KeyboardInterrupt:
                # A third Ctrl-C must not leave half of the processes running.
                for each in _SIGNALS:
                    signal.signal(each, signal.SIG_IGN)
            self._look(last=True)
            self._kill_all()
            cases = [each for each in self.audit.deliveries() if each.job.id in self._owned]
            ledger = importlib.import_module("ledger").read_ledger(self._ledger)
            letters = self.program.read_dead_letters(self._letters)
            return self.audit.Result(*self.audit.audit(cases, ledger, letters), self._killed, self._held)

    def _interrupt(self, _number: int, _frame: object) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def _deliver(self, count: int, workers: int) -> None:
        """Start the workers, enqueue, kill a worker on the way, wait for all jobs and catch jobs, and stop."""
        for number in range(1, workers + 1):
            process = self._start(f"worker {number}", "-m", "redrive", "worker", "delivery:app")
            self._note(f"worker {number} is process {process.pid}")
        if self._owned:
            self._note(f"{len(self._owned)} events are left from an earlier run; they go first")
        events = importlib.import_module("events").read_events(self._folder / "events.jsonl").good[:count]
        self._owned.update(job.id for job in self.program.deliver.enqueue_many(events))
        while not self.interrupted and self._app.jobs.stats().unfinished:
            done = self._look()
            self._check_processes()
            to_kill = done >= max(1, _MIDWAY * len(self._owned)) and not self._killed
            if to_kill:
                self._kill_one()
            SystemClock().sleep(_LOOK_TO_KILL_EVERY if to_kill else _LOOK_EVERY)
        if self.interrupted:
            self._note("finishing what runs now; press Ctrl-C again to stop at once")
        self._stop([name for name in self._processes if name != "receiver"])
        self._stop(["receiver"])

    def _note(self, text: str) -> None:
        say(f"{SystemClock.monotonic() - self._started_at:5.1f} s  {text}")

    def _look(self, *, last: bool = False) -> int:
        """Show changed counts, at most once a second, and return how many events have ended."""
        stats, before = self._app.jobs.stats(task="deliver"), self._before
        delivered: int = stats.succeeded - before.succeeded
        caught: int = stats.caught - before.caught
        counts = f"queued {stats.due + stats.scheduled}  running {stats.running}  retrying {stats.retrying}"
        counts += f"  delivered {delivered}  caught {caught}  of {len(self._owned)}"
        now = SystemClock.monotonic()
        if counts != self._counts:
            self._counts, self._changed_at = counts, now
        if counts != self._shown and (last or now >= self._show_at):
            self._note(counts)
            self._shown, self._show_at = counts, now + _SHOW_EVERY
        return delivered + caught

    # ---------------------------------------------------------------- the processes

    def _start_receiver(self) -> None:
        options = ("--ledger", str(self._ledger), "--seed", str(self._seed))
        receiver = self._start("receiver", str(self._folder / "receiver.py"), *options, pipe=True)
        assert receiver.stdout is not None  # it was started with a pipe
        with receiver.stdout as output:
            url = output.readline().strip().removeprefix("listening on ")
        if not url:
            raise RedriveError(self._last_line() or f"the receiver did not start; see {self._log}")
        os.environ["WEBHOOKS_URL"] = url

    def _start(self, name: str, *arguments: str, pipe: bool = False) -> subprocess.Popen[str]:
        process = self._processes[name] = subprocess.Popen(  # noqa: S603 - our own programs
            [sys.executable, *arguments],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else self._output,
            stderr=self._output,
            # A session of its own, so that a Ctrl-C in the terminal reaches the demo alone.
            start_new_session=True,
            # If the demo itself is killed, the kernel ends them.
            preexec_fn=_die_with_parent if _LIBC else None,  # noqa: PLW1509 - one system call, takes no lock
            text=True,
        )
        return process

    def _check_processes(self) -> None:
        ended = {name: each.poll() for name, each in self._processes.items() if each.poll() is not None}
        if "receiver" in ended:
            trouble = f"the receiver has ended with status {ended['receiver']}"
        elif len(ended) == len(self._processes) - 1:
            trouble = f"all workers have ended, the last with status {list(ended.values())[-1]}"
        elif SystemClock.monotonic() - self._changed_at > _STALLED_AFTER:
            trouble = f"nothing has moved for {_STALLED_AFTER:.0f} s"
        else:
            return
        raise RedriveError(f"{trouble}; the log {self._log} ends with: {self._last_line()}")

    def _last_line(self) -> str:
        return self._log.read_bytes()[self._output_starts :].decode(errors="replace").strip().rpartition("\n")[2]

    def _held_by(self, name: str) -> frozenset[int]:
        pid = str(self._processes[name].pid)
        ids = {worker.id for worker in self._app.workers.select() if worker.name.rpartition(":")[2] == pid}
        running = self._app.jobs.select(Filter(state=State.RUNNING, task="deliver", limit=self.audit.ALL))
        return frozenset(job.id for job in running if job.worker_id in ids)

    def _kill_one(self) -> None:
        """Kill the worker that runs the most, unless it is the last. It is stopped first, so that its jobs stay."""
        alive = [name for name, each in self._processes.items() if name != "receiver" and each.poll() is None]
        name = max(alive, key=lambda each: len(self._held_by(each)), default="")
        if len(alive) == 1:
            return
        self._processes[name].send_signal(signal.SIGSTOP)
        try:
            self._held = self._held_by(name)
        finally:
            self._processes[name].send_signal(signal.SIGKILL if self._held else signal.SIGCONT)
        if self._held:
            self._killed = name
            self._note(f"{name} is killed (SIGKILL) while it runs {len(self._held)} deliveries")

    def _stop(self, names: Sequence[str]) -> None:
        for name in names:
            self._processes[name].terminate()
        deadline = SystemClock.monotonic() + _STOPS_WITHIN
        for name in names:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._processes[name].wait(max(0.0, deadline - SystemClock.monotonic()))

    def _kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def _die_with_parent() -> None:
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
