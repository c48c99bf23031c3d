"""The run of the demo: start the processes, enqueue, kill a worker midway, wait for the end, stop the processes.

The kill: once two fifths of the events are done, the worker that runs the most is stopped with SIGSTOP, so that what it
holds cannot change while the demo reads it; if it still holds a delivery it is killed with SIGKILL. The other workers
detect that when its heartbeats stop. Ctrl-C once lets the workers finish what they run; twice kills them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from redrive.app.app import App
from redrive.cli.demo.audit import DeadLetter, Delivery, LedgerLine, Result, audit, read_lines
from redrive.cli.screen import say
from redrive.clock import SystemClock
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import Filter, JobRecord
from redrive.errors import ConfigurationError, RedriveError

PACKAGE = Path(__file__).parents[2]  # of redrive itself

_ALL = 2**62  # no limit
_BATCH = 25  # events of one transaction
_LOOK_EVERY = 0.1  # seconds
_MIDWAY = 0.4
_STALLED_AFTER = 60.0  # seconds without a change; the longest regular pause is a lease that runs out, 3 s
_STOPS_WITHIN = 15.0  # seconds until a process that was asked to stop is killed
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def database_path(db: str) -> Path:
    """Return the file of a path or a ``sqlite:///`` URL; another store, or one in memory, is a ConfigurationError."""
    parts = urlsplit(db) if "://" in db else None
    path = db if parts is None else unquote(parts.path.removeprefix("/"))
    if path in {"", ":memory:"} or (parts is not None and (parts.scheme != "sqlite" or parts.netloc)):
        raise ConfigurationError(
            f"the demo needs a SQLite file that several processes can open, not {db!r}: "
            "give a path (--db demo.db) or a URL (--db sqlite:///demo.db)"
        )
    return Path(path).absolute()


def database_url(database: Path) -> str:
    """Return the URL of a database."""
    return f"sqlite:///{quote(str(database))}"


class Display:
    """The progress: a line a second, and none without a change."""

    def __init__(self, clock: type[SystemClock] = SystemClock) -> None:
        self._clock, self._start, self._next, self._text, self._shown = clock, clock.monotonic(), 0.0, "", ""

    def note(self, text: str) -> None:
        """Print a line."""
        say(f"{self._clock.monotonic() - self._start:5.1f} s  {text}")

    def show(self, counts: Counter[str], total: int) -> None:
        """Show how many of the events are in which state."""
        text = "  ".join(f"{name} {counts[name]}" for name in ("queued", "running", "retrying", "delivered", "caught"))
        self._text = f"{text}  of {total}"
        if self._clock.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Show the last state, if it was held back."""
        if self._text != self._shown:
            self.note(self._text)
            self._shown, self._next = self._text, self._clock.monotonic() + 1.0


class Demo:
    """One run. It starts the receiver and the workers as a user would, and sends them nothing but signals."""

    def __init__(self, database: Path, folder: Path, *, seed: int, port: int) -> None:
        if importlib.util.find_spec("httpx") is None:
            raise ConfigurationError('the demo needs httpx, which is not installed: pip install "redrive[httpx]"')
        self._folder = folder
        self._ledger, self._letters, self._log = (
            database.with_name(f"{database.name}.{ending}") for ending in ("ledger.jsonl", "dead-letters.jsonl", "log")
        )
        # The processes run this redrive, from any directory.
        paths = os.pathsep.join((str(folder), str(PACKAGE.parent)))
        os.environ.update(PYTHONPATH=paths, PYTHONUNBUFFERED="1")
        os.environ.update(WEBHOOKS_DB=database_url(database), WEBHOOKS_DEAD_LETTERS=str(self._letters))
        program = importlib.import_module("delivery")
        self._app: App = program.app
        self._deliver, self._catch = program.deliver, program.to_dead_letters
        self._receiver_options = ["--ledger", str(self._ledger), "--seed", str(seed), "--port", str(port)]
        self._owned = {each.job.id for each in self._deliveries() if each.job.state not in FINAL or each.catching}
        self._left_over, self._before = len(self._owned), self._app.jobs.stats(task=self._deliver.name)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._known_dead: set[str] = set()
        self._killed, self._held, self._asked = "", frozenset[int](), False
        self._counts, self._changed_at = Counter[str](), SystemClock.monotonic()

    def perform(self, events: Sequence[Any], workers: int, *, broken: int = 0) -> Result:
        """Deliver the events, and return what became of them, also after Ctrl-C or a failure."""
        withheld, trouble = list(events), ""
        with contextlib.ExitStack() as undo:
            undo.callback(self._app.close)
            self._output = undo.enter_context(self._log.open("ab"))
            self._output_starts = self._output.tell()
            undo.callback(self._kill_all)
            before = {each: signal.signal(each, self._interrupt) for each in _SIGNALS}
            undo.callback(lambda: [signal.signal(each, handler) for each, handler in before.items()])
            self._start_receiver()
            self._display = Display()
            try:
                for _ in range(workers):
                    self._start_worker()
                if self._left_over:
                    self._display.note(f"{self._left_over} events are left from an earlier run; they go first")
                while withheld and not self._asked:
                    self._owned.update(job.id for job in self._deliver.enqueue_many(withheld[:_BATCH]))
                    del withheld[:_BATCH]
                    self._look()
                self._wait()
                if self._asked:
                    self._display.note("finishing what runs now; press Ctrl-C again to stop at once")
                self._stop([name for name in self._processes if name != "receiver"])
                self._look(alive=False)
                self._stop(["receiver"])
            except RedriveError as error:
                trouble = str(error)
            except KeyboardInterrupt:
                # A third Ctrl-C must not leave half of the processes running.
                for each in _SIGNALS:
                    signal.signal(each, signal.SIG_IGN)
            self._display.flush()
            self._kill_all()
            cases = [each for each in self._deliveries() if each.job.id in self._owned]
            letters = read_lines(self._letters, DeadLetter)
            verdicts, requests = audit(cases, read_lines(self._ledger, LedgerLine), letters)
        return Result(
            verdicts,
            requests,
            left_over=self._left_over,
            broken=broken,
            withheld=len(withheld),
            killed=self._killed,
            held=self._held,
            interrupted=self._asked,
            trouble=trouble,
        )

    def _interrupt(self, _number: int, _frame: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    # ---------------------------------------------------------------- the database

    def _deliveries(self) -> Iterable[Delivery]:
        catches: dict[int | None, list[JobRecord]] = defaultdict(list)
        for job in self._app.jobs.select(Filter(task=self._catch.name, limit=_ALL)):
            catches[job.parent_id].append(job)
        for job in self._app.jobs.select(Filter(task=self._deliver.name, limit=_ALL)):
            keys = frozenset(self._app.jobs.idempotency_key(each.id) for each in catches[job.id])
            running = any(each.state not in FINAL for each in catches[job.id])
            yield Delivery(job, self._app.jobs.idempotency_key(job.id), keys, catching=running)

    def _look(self, *, alive: bool = True) -> int:
        """Show the counts, return how many events have ended, and raise an error if the run cannot go on."""
        stats, before = self._app.jobs.stats(task=self._deliver.name), self._before
        delivered, caught = stats.succeeded - before.succeeded, stats.caught - before.caught
        counts = Counter(queued=stats.due + stats.scheduled, running=stats.running, retrying=stats.retrying)
        counts.update(delivered=delivered, caught=caught)
        self._display.show(counts, len(self._owned))
        if counts != self._counts:
            self._counts, self._changed_at = counts, SystemClock.monotonic()
        if alive:
            self._check_processes()
        return counts["delivered"] + counts["caught"]

    def _check_processes(self) -> None:
        ended = {name: each.poll() for name, each in self._processes.items() if each.poll() is not None}
        if "receiver" in ended:
            raise self._broken(f"the receiver has ended with status {ended['receiver']}")
        if len(ended) == len(self._processes) - 1:
            raise self._broken(f"all workers have ended, the last with status {list(ended.values())[-1]}")
        for name in ended.keys() - self._known_dead:
            self._display.note(f"{name} has ended by itself (status {ended[name]}); the others go on")
            self._known_dead.add(name)
        if SystemClock.monotonic() - self._changed_at > _STALLED_AFTER:
            raise self._broken(f"nothing has moved for {_STALLED_AFTER:.0f} s")

    def _broken(self, what: str) -> RedriveError:
        return RedriveError(f"{what}; the log {self._log} ends with: {self._last_line()}")

    def _wait(self) -> None:
        """Wait until everything has ended, catches included, and kill a worker on the way."""
        tasks = (self._deliver.name, self._catch.name)
        while not self._asked and any(self._app.jobs.stats(task=name).unfinished for name in tasks):
            if self._look() >= max(1, _MIDWAY * len(self._owned)) and not self._killed:
                self._kill_one()
            SystemClock().sleep(_LOOK_EVERY)

    def _held_by(self, name: str) -> frozenset[int]:
        pid = str(self._processes[name].pid)
        ids = {worker.id for worker in self._app.workers.select() if worker.name.rpartition(":")[2] == pid}
        running = self._app.jobs.select(Filter(state=State.RUNNING, task=self._deliver.name, limit=_ALL))
        return frozenset(job.id for job in running if job.worker_id in ids)

    # ---------------------------------------------------------------- the processes

    def _start_receiver(self) -> None:
        receiver = self._start("receiver", str(self._folder / "receiver.py"), *self._receiver_options, pipe=True)
        assert receiver.stdout is not None  # noqa: S101 - it was started with a pipe
        with receiver.stdout as output:
            url = output.readline().strip().removeprefix("listening on ")
        if not url:
            raise RedriveError(self._last_line() or f"the receiver did not start; see {self._log}")
        os.environ["WEBHOOKS_URL"] = url

    def _start_worker(self) -> None:
        name = f"worker {len(self._processes)}"
        self._display.note(f"{name} is process {self._start(name, '-m', 'redrive', 'worker', 'delivery:app').pid}")

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

    def _last_line(self) -> str:
        return self._log.read_bytes()[self._output_starts :].decode(errors="replace").strip().rpartition("\n")[2]

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

    def _kill_one(self) -> None:
        alive = [name for name, each in self._processes.items() if name != "receiver" and each.poll() is None]
        name = max(alive, key=lambda each: len(self._held_by(each)))
        victim = self._processes[name]
        victim.send_signal(signal.SIGSTOP)
        try:
            self._held = self._held_by(name)
        finally:
            if not self._held:
                victim.send_signal(signal.SIGCONT)
        if self._held:
            victim.kill()
            victim.wait()
            self._killed = name
            self._known_dead.add(name)
            self._display.note(f"{name} is killed (SIGKILL) while it runs {len(self._held)} deliveries")
            if len(alive) == 1:
                self._start_worker()


def _die_with_parent() -> None:
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
