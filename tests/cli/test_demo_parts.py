"""The demo's small parts: its input, its files, its display, its report, its signals."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from redrive.cli.demo.audit import EventFate, EventVerdict, LedgerLine, Result, report, rows
from redrive.cli.demo.run import Demo, Display, database_path, database_url
from redrive.errors import ConfigurationError

# The package and its command have the same name.
_DEMO = importlib.import_module("redrive.cli.demo")
events_of, program_folder, take = _DEMO._events, _DEMO.program_folder, _DEMO.take


class SampleEvent(msgspec.Struct):
    """Any event."""

    id: str


@dataclass
class Clock:
    """A clock that stands still until a test moves it."""

    time: float = 0.0

    def monotonic(self) -> float:
        """Return the time that the test has set."""
        return self.time


# ------------------------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, ["a", "b", "c"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (7, ["a", "b", "c", "a#2", "b#2", "c#2", "a#3"])],
)
def test_the_given_number_of_events_is_made_with_distinct_ids(count, expected):
    """Ship all events by default, fewer or more on demand; if the file is read again, ids stay unique."""
    assert expected == [event.id for event in take([SampleEvent("a"), SampleEvent("b"), SampleEvent("c")], count)]


def test_broken_lines_are_printed_with_file_number_reason_and_text(tmp_path, capsys):
    """Readers find the line and see what is wrong with it; of a huge line they see the beginning."""
    path = tmp_path / "in.jsonl"
    path.write_text('{"id":"e","type":"t","created_at":"2026-01-01T00:00:00Z","data":{}}\nhello\n' + "x" * 20_000)
    events, broken = events_of(program_folder(), path, None)
    first, second = capsys.readouterr().err.splitlines()

    assert (["e"], 2) == ([event.id for event in events], broken)
    assert first.startswith("redrive demo: in.jsonl, line 2 is not an event and is left out (JSON is malformed")
    assert first.endswith("): hello")
    assert second.endswith("x" * 100 + "... (20000 characters)")
    assert len(second) < 250


# ------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("db", "path"),
    [
        ("shop.db", Path.cwd() / "shop.db"),
        ("/data/shop", Path("/data/shop")),
        ("sqlite:///shop.db", Path.cwd() / "shop.db"),
        ("sqlite:////data/shop.db", Path("/data/shop.db")),
        ("sqlite:////data/my%20shop.db", Path("/data/my shop.db")),
    ],
)
def test_a_database_is_named_by_path_or_url(db, path):
    """Relative and absolute, with and without scheme."""
    assert path == database_path(db)


@pytest.mark.parametrize("db", ["postgresql://host/db", "memory://", "sqlite://", ":memory:", "", "sqlite://host/x"])
def test_a_database_that_several_processes_cannot_share_is_refused(db):
    """Refuse another store, or one in memory, in one line that names a suitable one."""
    with pytest.raises(ConfigurationError, match="SQLite file"):
        database_path(db)


def test_the_url_survives_odd_characters():
    """Blanks, question marks and percent signs in a path survive in the URL."""
    path = Path("/data/50% of what?.db")
    assert path == database_path(database_url(path))


def test_the_files_of_a_database_have_distinct_names(tmp_path, monkeypatch):
    """Whatever the database is called, ledger, dead letters and log have other names."""
    monkeypatch.setattr("os.environ", dict(os.environ))
    folder = program_folder()
    monkeypatch.syspath_prepend(str(folder))
    for name in ("a.db", "a.log", "a.jsonl", "a"):
        monkeypatch.delitem(sys.modules, "delivery", raising=False)
        database = tmp_path / name
        demo = Demo(database, folder, seed=7, port=0)
        demo._app.close()
        assert 4 == len({database, demo._ledger, demo._letters, demo._log})


def test_the_example_is_found():
    """Find the folder with the program and the events of the demo."""
    assert {"delivery.py", "receiver.py", "events.jsonl"} <= {path.name for path in program_folder().iterdir()}


# ----------------------------------------------------------------------------------------------------------- display


def test_a_line_has_the_time_and_all_five_counts_unwrapped(capsys):
    """Print all counts in one line, however narrow the terminal is."""
    clock = Clock()
    display = Display(clock)
    clock.time = 2.5
    display.show(Counter(queued=1, running=2, retrying=3, delivered=4, caught=5), 15)

    assert "  2.5 s  queued 1  running 2  retrying 3  delivered 4  caught 5  of 15\n" == capsys.readouterr().out


def test_lines_come_once_a_second_and_only_with_changes(capsys):
    """Counts that come too early are held back, unchanged ones are left out."""
    clock = Clock()
    display = Display(clock)
    for time, delivered in ((0.0, 1), (0.9, 2), (1.0, 3), (2.5, 3), (3.0, 4)):
        clock.time = time
        display.show(Counter(delivered=delivered), 9)

    assert ["1", "3", "4"] == [line.split("delivered ")[1][0] for line in capsys.readouterr().out.splitlines()]


def test_delayed_counts_are_printed_at_the_end(capsys):
    """Flushing prints the last state."""
    display = Display(Clock())
    display.show(Counter(), 9)
    display.show(Counter(delivered=9), 9)
    display.flush()

    assert "delivered 9" in capsys.readouterr().out.splitlines()[-1]


def test_notes_have_the_time_and_hostile_text_escaped(capsys):
    """Print names of processes literally, and no escape codes."""
    Display(Clock()).note("worker 1 [is] killed\x1b[2J")

    assert "  0.0 s  worker 1 [is] killed\\u001b[2J\n" == capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------ report

FINDINGS = (
    EventVerdict(1, EventFate.DELIVERED, 1),
    EventVerdict(2, EventFate.DELIVERED, 3),
    EventVerdict(3, EventFate.CAUGHT, 7),
    EventVerdict(4, EventFate.GONE, 1),
)
REQUESTS = (
    LedgerLine("k2", 1, None, accepted=True, duplicate=False),
    LedgerLine("k2", 2, 200, accepted=False, duplicate=True),
)


def sentence(run: Result) -> str:
    """Return the last line of a report."""
    return list(report(run))[-1]


def test_the_summary_contains_all_counts():
    """Events in, delivered, after retries, caught, lost, repeats."""
    expected = (
        "4 events in: 2 delivered, 1 of them after retries, 2 caught, 0 lost; "
        "the receiver recognised 1 repeats by their idempotency key."
    )
    assert expected == sentence(Result(FINDINGS, REQUESTS))


def test_queued_jobs_are_in_the_summary():
    """After an interruption the sentence gives the number of queued jobs."""
    assert "0 lost, 1 still queued;" in sentence(Result((EventVerdict(1, EventFate.UNFINISHED, 0),)))


def test_the_table_adds_up():
    """Delivered, caught and lost are the events; their parts are they."""
    table = {name.strip(): number for name, number, _ in rows(Result(FINDINGS, REQUESTS))}
    assert table["events in"] == table["delivered"] + table["caught"] + table["lost"]
    assert table["delivered"] == table["at the first attempt"] + table["after retries"]
    assert table["caught"] == table["gone (410), no retry"] + table["retries exhausted"]


def test_the_table_fits_into_eighty_columns():
    """Its longest texts need no more than 80 columns."""
    findings = (*FINDINGS, EventVerdict(5, EventFate.UNFINISHED, 1))
    run = Result(findings, REQUESTS, left_over=9, broken=1, withheld=1, killed="worker 12", held=frozenset({1}))
    assert max(map(len, list(report(run))[:-1])) <= 80


def test_lost_events_are_named():
    """Report a loss with the job and the missing record."""
    run = Result((EventVerdict(7, EventFate.LOST, 1, "the receiver never answered 2xx under its key"),))
    assert "lost: job 7: the receiver never answered 2xx under its key" in list(report(run))


def test_a_report_is_plain_text():
    """Print neither frames nor escape codes, and the table before the sentence."""
    *table, last = report(Result(FINDINGS, REQUESTS))
    assert all(line.isascii() and line.isprintable() for line in (*table, last))
    assert "caught                             2  database; dead-letter file" in table
    assert last.startswith("4 events in: ")


@pytest.mark.parametrize(
    ("jobs", "expected"), [({1, 2}, "all ran again elsewhere"), ({1, 5}, "1 ran again elsewhere")], ids=["all", "some"]
)
def test_the_jobs_of_killed_workers_are_tracked(jobs, expected):
    """Count the deliveries that the killed worker held, and those of them that other workers finished."""
    findings = (*FINDINGS, EventVerdict(5, EventFate.LOST, 1, "gone"))
    run = Result(findings, killed="worker 1", held=frozenset(jobs))
    assert ("held by worker 1 when killed", 2, expected) == rows(run)[-1]


# ----------------------------------------------------------------------------------------------------------- signals


def test_the_first_signal_drains_and_the_second_stops():
    """Once sets a flag, twice raises KeyboardInterrupt."""
    demo = object.__new__(Demo)
    demo._asked = False
    demo._interrupt(signal.SIGINT, None)
    asked = demo._asked

    assert asked
    with pytest.raises(KeyboardInterrupt):
        demo._interrupt(signal.SIGINT, None)
