"""A subject of a benchmark that fails is reported, and the others keep their figures."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import queue
from benchmarks.measure import Figures
from benchmarks.processes import Stuck, answer
from benchmarks.rounds import in_turns


def test_a_subject_that_fails_is_left_out_of_all_rounds():
    """The subject is not measured again, and the rounds have the figures of the others."""
    calls: list[str] = []

    def measure(name: str) -> int:
        calls.append(name)
        if name == "broken" and calls.count(name) == 2:
            raise Stuck("no job ran")
        return calls.count(name)

    measured, failed = in_turns(["good", "broken"], 3, measure)

    assert [{"good": 1}, {"good": 2}, {"good": 3}] == measured
    assert {"broken": "Stuck: no job ran"} == failed
    assert 2 == calls.count("broken")


def test_no_subject_is_left():
    """Rounds go on if all have failed."""
    assert ([{}, {}], {"broken": "KeyError: 'broken'"}) == in_turns(["broken"], 2, {}.__getitem__)


def test_a_process_that_ends_without_a_result_has_failed():
    """Its exit status is the reason."""
    assert "2" == answer([sys.executable, "-c", "print(1); print(2)"])
    with pytest.raises(Stuck, match="ended with status 3"):
        answer([sys.executable, "-c", "import sys; print(1); sys.exit(3)"])
    with pytest.raises(Stuck, match="ended with status 0"):
        answer([sys.executable, "-c", ""])


def test_a_process_that_is_stuck_is_killed_with_its_workers(tmp_path: Path):
    """After the limit the process and those that it has started are killed."""
    # Both processes hold the writing end, so that its reader comes to the end when both have ended.
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    code = "import os, sys, time; os.write(os.open(sys.argv[1], os.O_WRONLY), b'.'); os.fork(); time.sleep(600)"
    with pytest.raises(Stuck, match="has not answered within 5 s"):
        answer([sys.executable, "-c", code, str(tmp_path / "held")], 5)

    os.set_blocking(held, True)
    with os.fdopen(held, "rb") as reader:
        assert b"." == reader.read()


def test_the_report_has_the_figures_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A benchmark of queues prints the table of the others, and names the subject that failed with its reason."""

    def measure(_store: str, name: str, *_: object) -> tuple[Figures, str]:
        if name == "huey":
            raise Stuck("no job ran")
        return Figures(settled=1234.0), "the row"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue, "_measure", measure)
    monkeypatch.setattr(queue, "python", lambda _: Path(sys.executable))
    queue.main(["--rounds", "1", "--only", "redrive", "--only", "huey"])
    shown = capsys.readouterr().out

    assert "1,234" in shown
    assert "huey failed: Stuck: no job ran" in shown
