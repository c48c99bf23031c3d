"""`redrive demo` as a person runs it: real processes, real HTTP, real signals."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples" / "webhooks"
DEMO = (sys.executable, "-m", "redrive", "demo")
PATIENCE = 90  # seconds until a test gives up; the demo itself must be done within 60


@dataclass(frozen=True)
class DemoOutput:
    """The output of a finished demo, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """Return the last line."""
        return self.out.splitlines()[-1]

    def number(self, row: str) -> int:
        """Return a number of the table."""
        (line,) = (line for line in self.out.splitlines() if line.strip().startswith(f"{row}  "))
        return int(line.strip().removeprefix(row).split()[0])


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Return a folder to run in, with the redrive of this checkout on the path."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "src"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


QUICK = "94"  # a seed at which all of the first 60 events recover or are gone: no seven attempts to wait for


def run(*options: str, command: tuple[str, ...] = DEMO) -> DemoOutput:
    """Run the demo to its end."""
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return DemoOutput(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a demo, and return it after its first deliveries with the process ids of its workers."""
    with subprocess.Popen([*DEMO, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        workers = []
        for line in process.stdout:
            if " is process " in line:
                workers.append(int(line.split()[-1]))
            if "running" in line and "running 0 " not in line:
                break
        try:
            yield process, workers
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> DemoOutput:
    """Return the remaining output."""
    out, err = process.communicate(timeout=PATIENCE)
    return DemoOutput(process.returncode, out, err)


def lines(path: Path) -> list[dict]:
    """Return the objects of a JSONL file."""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def input_lines(count: int) -> list[bytes]:
    """Return the first events that ship."""
    return (EXAMPLE / "events.jsonl").read_bytes().split(b"\n")[:count]


def test_all_events_are_delivered_and_reported(environment):
    """Thirty events, a killed worker: exit status 0, the sentence, the kill and its aftermath, and intact bodies."""
    output = run("--events", "30", "--db", "demo.db")
    assert (0, "") == (output.status, output.err)
    assert output.sentence.startswith("30 events in: ")
    assert ", 0 lost; " in output.sentence
    assert output.sentence.endswith(" by their idempotency key.")
    assert 30 == output.number("events in") == output.number("delivered") + output.number("caught")
    assert output.number("after retries") > 0
    assert output.number("repeats under the same key") > 0
    assert "(SIGKILL)" in output.out
    assert "all ran again elsewhere" in output.out
    assert "\x1b" not in output.out
    logged = (environment / "demo.db.log").read_text().splitlines()
    assert all("died at attempt" in line for line in logged if " ERROR " in line)
    # The tracebacks of deaths are indented.
    assert not any(line.startswith("Traceback") for line in logged)
    sent = {hashlib.sha256(line).hexdigest() for line in input_lines(30)}
    received = {entry["digest"] for entry in lines(environment / "demo.db.ledger.jsonl") if entry["digest"]}
    assert sent == received


@pytest.mark.realtime
def test_progress_is_printed_once_a_second_and_only_when_it_changes(environment):
    """Lines with all five counts are a second apart, except the last; each differs from the one before it."""
    output = run("--events", "8", "--seed", QUICK, "--db", "demo.db")
    progress = re.findall(
        r"^ *([\d.]+) s  (queued \d+  running \d+  retrying \d+  delivered \d+  caught \d+  of 8)$",
        output.out,
        re.MULTILINE,
    )
    times = [float(seconds) for seconds, _ in progress]
    assert all(later - earlier > 0.85 for earlier, later in itertools.pairwise(times[:-1]))
    assert all(before != after for (_, before), (_, after) in itertools.pairwise(progress))
    assert progress[-1][1].startswith("queued 0  running 0  retrying 0  ")


@pytest.mark.night  # the run after an interrupt, below, counts only what is left, and delivers it
def test_a_second_run_counts_only_its_own(environment):
    """On the same database a second run delivers again, under other keys, and counts what it delivered itself."""
    first, second = (run("--events", "6", "--seed", QUICK, "--db", "demo.db") for _ in range(2))
    assert (0, 0) == (first.status, second.status)
    assert 6 == first.number("events in") == second.number("events in")
    keys = {entry["key"] for entry in lines(environment / "demo.db.ledger.jsonl")}
    assert 12 == len(keys)


def test_one_interrupt_drains_and_the_next_run_delivers_the_remaining_events(environment):
    """Exit status 130, what runs is finished, the rest is counted, and a later run delivers exactly that."""
    with started("--events", "40", "--seed", QUICK, "--db", "demo.db") as (process, _):
        process.send_signal(signal.SIGINT)
        output = ended(process)
    left = output.number("still queued")
    assert (130, 1) == (output.status, output.err.count("\n"))
    assert "finishing what runs now" in output.out
    assert f"{left} events are safe in the database" in output.err
    assert "redrive demo --events 0 --db demo.db" in output.err
    later = run("--events", "0", "--seed", QUICK, "--db", "demo.db")
    assert (0, "") == (later.status, later.err)
    assert (left, 0, 0) == (later.number("events in"), later.number("lost"), running(environment / "demo.db"))
    assert f"{left} events are left from an earlier run; they go first" in later.out


@pytest.mark.night  # one interrupt of the demo, and two signals to a worker in tests/acceptance/test_workers.py
def test_two_interrupts_stop_at_once_and_the_jobs_run_later(environment):
    """After the second Ctrl-C the demo does not wait for workers; a later run delivers their jobs."""
    with started("--events", "40", "--seed", QUICK, "--db", "demo.db") as (process, workers):
        freeze(environment / "demo.db", workers)
        process.send_signal(signal.SIGINT)
        while "finishing what runs now" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        output = ended(process)
    assert (130, 0) == (output.status, output.number("lost"))
    assert running(environment / "demo.db") > 0
    later = run("--events", "0", "--seed", QUICK, "--db", "demo.db")
    assert (0, "") == (later.status, later.err)
    assert (output.number("still queued"), 0) == (later.number("events in"), running(environment / "demo.db"))


def freeze(database: Path, workers: list[int]) -> None:
    """Stop the workers at a moment when jobs are running; one of them may have been killed already."""
    while True:
        signal_all(workers, signal.SIGSTOP)
        if running(database):
            return
        signal_all(workers, signal.SIGCONT)


def signal_all(workers: list[int], number: signal.Signals) -> None:
    """Send a signal to those that live."""
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux ends processes when their parent is killed")
def test_a_killed_demo_leaves_no_process(environment):
    """SIGKILL to the demo itself ends its workers, and the next run on the same database delivers the rest."""
    with started("--events", "20", "--seed", QUICK, "--db", "demo.db") as (process, workers):
        living = watched(workers)
        assert living
        process.kill()
        for descriptor in living:
            assert select.select([descriptor], [], [], PATIENCE)[0]
            os.close(descriptor)
    assert 0 == run("--events", "0", "--seed", QUICK, "--db", "demo.db").status


def watched(workers: list[int]) -> list[int]:
    """Return a descriptor for each living worker, which becomes readable when the worker ends."""
    descriptors = []
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    return descriptors


def running(database: Path) -> int:
    """Return the number of jobs that a worker holds, living or dead."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        (count,) = connection.execute("SELECT count(*) FROM redrive_jobs WHERE state = 'running'").fetchone()
    connection.close()
    return count


# ------------------------------------------------------------------------------------------------------ honest failure


def doctored(environment: Path, file: str, old: str, new: str) -> tuple[str, ...]:
    """Run a demo of an example with one line changed."""
    folder = shutil.copytree(EXAMPLE, environment / "doctored")
    text = (folder / file).read_text(encoding="utf-8")
    assert 1 == text.count(old)
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    code = (
        "import importlib, pathlib, sys\n"
        "module = importlib.import_module('redrive.cli.demo')\n"
        f"module.program_folder = lambda: pathlib.Path({str(folder)!r})\n"
        "from redrive.cli import main\n"
        "main()"
    )
    return (sys.executable, "-c", code, "demo")


def test_a_ledger_that_does_not_confirm_a_delivery_is_a_loss(environment):
    """If the ledger of the receiver lacks a delivered event, the demo names its job and exits with 1."""
    command = doctored(
        environment,
        "ledger.py",
        'self._file.write(msgspec.json.encode(entry) + b"\\n")',
        'entry.event == "evt_0002" or self._file.write(msgspec.json.encode(entry) + b"\\n")',
    )
    output = run("--events", "3", "--db", "demo.db", command=command)
    assert (1, 1) == (output.status, output.number("lost"))
    assert "lost: job 2: the receiver never answered 2xx under its key" in output.out
    assert ", 1 lost; " in output.sentence


def test_a_catch_without_its_dead_letter_is_a_loss(environment):
    """If the dead-letter file lacks a caught event, the demo exits with 1."""
    command = doctored(environment, "delivery.py", "with _DEAD_LETTERS.open(", 'with Path("/dev/null").open(')
    event = b'{"id":"%s","type":"t","created_at":"2026-01-01T00:00:00Z","data":{}}'
    (environment / "doctored" / "events.jsonl").write_bytes(event % gone())
    output = run("--db", "demo.db", command=command)
    assert (1, 1) == (output.status, output.number("lost"))
    assert "it is not in the dead-letter file" in output.out


def gone() -> bytes:
    """Return the id of an event that the receiver answers with 410, at the default seed."""
    code = "from plan import *; print(next(n for n in range(999) if plan_for(7, str(n)).act(1) is Act.GONE))"
    return subprocess.check_output([sys.executable, "-c", code], cwd=EXAMPLE).strip()


def test_workers_that_die_are_reported_and_nothing_is_lost(environment):
    """If no worker is left, the demo exits with 1 and the reason, and the events stay queued."""
    command = doctored(environment, "delivery.py", "return httpx.AsyncClient(trust_env=False)", "os._exit(3)")
    output = run("--events", "3", "--db", "demo.db", command=command)
    assert (1, 3, 0) == (output.status, output.number("still queued"), output.number("lost"))
    assert "all workers have ended, the last with status 3" in output.err


# ----------------------------------------------------------------------------------------------------------- bad input


def test_a_ledger_in_use_is_reported_in_one_line_and_enqueues_nothing(environment):
    """Exit status 2, one line that names the ledger of the other demo, and no job in the database."""
    with (environment / "demo.db.ledger.jsonl").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        output = run("--db", "demo.db")
    assert (2, "", 1) == (output.status, output.out, output.err.count("\n"))
    assert "another receiver writes" in output.err
    again = run("--events", "0", "--db", "demo.db")
    assert (0, 0) == (again.status, again.number("events in"))


def test_a_file_that_is_no_database_is_not_changed(environment):
    """Exit status 2, one line that names the file, and the file untouched."""
    (environment / "diary").write_text("dear diary")
    output = run("--db", "diary")
    assert (2, "", 1) == (output.status, output.out, output.err.count("\n"))
    assert "is not an SQLite database" in output.err
    assert "dear diary" == (environment / "diary").read_text()


@pytest.mark.parametrize(
    ("db", "expected"),
    [
        ("missing/demo.db", "missing does not exist"),
        ("postgresql://host/db", "path of a SQLite file"),
        ("sqlite:///demo.db", "as in --db demo.db"),
        (":memory:", "path of a SQLite file"),
        ("", "path of a SQLite file"),
    ],
    ids=["folder", "store", "url", "memory", "empty"],
)
def test_impossible_databases_are_refused_in_one_line(environment, db, expected):
    """Exit with 2 and one line on standard error, without other output and without files."""
    output = run("--db", db)
    assert (2, "", 1) == (output.status, output.out, output.err.count("\n"))
    assert expected in output.err
    assert [] == [path.name for path in environment.iterdir() if path.is_file()]


def test_paths_with_special_characters_name_databases(environment):
    """Blanks, question marks and percent signs reach the workers; other files are named after it."""
    output = run("--events", "2", "--seed", QUICK, "--db", "50% of what?.db")
    assert (0, "") == (output.status, output.err)
    names = {path.name for path in environment.iterdir()}
    assert {"50% of what?.db", "50% of what?.db.ledger.jsonl", "50% of what?.db.log"} <= names
