"""Enqueueing a file of events by hand, and the audit by hand."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "webhooks"
GOOD = b'{"id":"e","type":"t","created_at":"2026-01-01T00:00:00Z","data":{}}'


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a program of the example in an empty folder."""
    monkeypatch.setenv("WEBHOOKS_DB", "sqlite:///webhooks.db")

    def program(name, *arguments):
        command = [sys.executable, str(FOLDER / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)

    return program


def test_broken_lines_are_reported_and_good_lines_are_enqueued(run, tmp_path):
    """Print file, number, reason and the beginning of each broken line; enqueue the others; exit with 1."""
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([GOOD, b"hello\x1b", b"x" * 20_000, GOOD]))
    done = run("send.py", "in.jsonl")
    first, second = done.stderr.splitlines()
    with contextlib.closing(sqlite3.connect(tmp_path / "webhooks.db")) as database, database:
        tasks = database.execute("SELECT task FROM redrive_jobs").fetchall()
    database.close()

    assert (1, "2 events are enqueued\n") == (done.returncode, done.stdout)
    assert first.startswith("in.jsonl, line 2 is not an event (JSON is malformed")
    assert first.endswith(r"): 'hello\x1b'")
    assert second.startswith("in.jsonl, line 3 ")
    assert second.endswith("x" * 100 + "... (20000 characters)'")
    assert [("deliver",)] * 2 == tasks


def test_a_missing_file_of_events_is_reported_in_one_line(run):
    """Exit with 1 and the name of the file."""
    done = run("send.py", "missing.jsonl")
    assert (1, "", "missing.jsonl cannot be read: No such file or directory\n") == (
        done.returncode,
        done.stdout,
        done.stderr,
    )


def test_the_audit_counts_what_is_not_delivered_yet(run, tmp_path):
    """Report enqueued events as queued, without a ledger and without dead letters."""
    (tmp_path / "in.jsonl").write_bytes(GOOD)
    run("send.py", "in.jsonl")
    done = run("audit.py")
    assert (0, "") == (done.returncode, done.stderr)
    assert "1 events in: 0 delivered, 0 of them after retries, 0 caught, 0 lost, 1 still queued;" in done.stdout
