"""The demo's small parts: its input, its files, its display, its report, its signals."""

from __future__ import annotations

import importlib
import io
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from redrive.cli.demo.audit import EventFate, EventVerdict, LedgerLine, Result, rows, sentence, show_report
from redrive.cli.demo.run import Demo, Display, Files
from redrive.errors import ConfigurationError

# The package and its command have the same name.
_DEMO = importlib.import_module("redrive.cli.demo")
events_of, program_folder, take = _DEMO._events, _DEMO.program_folder, _DEMO.take


class Event(msgspec.Struct):
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
    assert expected == [event.id for event in take([Event("a"), Event("b"), Event("c")], count)]


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
    assert path == Files.of(db).database


@pytest.mark.parametrize("db", ["postgresql://host/db", "memory://", "sqlite://", ":memory:", "", "sqlite://host/x"])
def test_a_database_that_several_processes_cannot_share_is_refused(db):
    """Refuse another store, or one in memory, in one line that names a suitable one."""
    with pytest.raises(ConfigurationError, match="SQLite file"):
        Files.of(db)


def test_the_url_survives_odd_characters():
    """Blanks, question marks and percent signs in a path survive in the URL."""
    files = Files(Path("/data/50% of what?.db"))
    assert files == Files.of(files.url)


def test_the_files_of_a_database_have_distinct_names():
    """Whatever the database is called, ledger, dead letters and log have other names."""
    for name in ("a.db", "a.log", "a.jsonl", "a"):
        files = Files(Path("/data") / name)
        assert 4 == len({files.database, *map(files.beside, ("ledger.jsonl", "dead-letters.jsonl", "log"))})


def test_the_example_is_found():
    """Find the folder with the program and the events of the demo."""
    assert {"delivery.py", "receiver.py", "events.jsonl"} <= {path.name for path in program_folder().iterdir()}


# ----------------------------------------------------------------------------------------------------------- display


def plain() -> tuple[Display, Clock, io.StringIO]:
    """Return a display that prints lines, its clock, and its output."""
    clock, output = Clock(), io.StringIO()
    return Display(Console(file=output, width=40), clock), clock, output


def test_terminals_that_cannot_redraw_get_plain_lines(monkeypatch):
    """TERM=dumb is a terminal without a cursor."""
    monkeypatch.setenv("TERM", "dumb")
    output = io.StringIO()
    Display(Console(file=output, force_terminal=True), Clock()).show(Counter(delivered=7), 10)

    assert "  0.0 s  queued 0  running 0  retrying 0  delivered 7  caught 0  of 10\n" == output.getvalue()


def test_plain_lines_have_the_time_and_all_five_counts_unwrapped():
    """Print all counts in one line, however narrow the console is."""
    display, clock, output = plain()
    clock.time = 2.5
    display.show(Counter(queued=1, running=2, retrying=3, delivered=4, caught=5), 15)

    assert "  2.5 s  queued 1  running 2  retrying 3  delivered 4  caught 5  of 15\n" == output.getvalue()


def test_plain_lines_come_once_a_second_and_only_with_changes():
    """Counts that come too early are held back, unchanged ones are left out."""
    display, clock, output = plain()
    for time, delivered in ((0.0, 1), (0.9, 2), (1.0, 3), (2.5, 3), (3.0, 4)):
        clock.time = time
        display.show(Counter(delivered=delivered), 9)

    assert ["1", "3", "4"] == [line.split("delivered ")[1][0] for line in output.getvalue().splitlines()]


def test_delayed_counts_are_printed_at_the_end():
    """Closing prints the last state."""
    display, _, output = plain()
    display.show(Counter(), 9)
    display.show(Counter(delivered=9), 9)
    display.close()

    assert "delivered 9" in output.getvalue().splitlines()[-1]


def test_terminals_get_a_bar_and_counts():
    """Notes are printed above them."""
    output = io.StringIO()
    display = Display(Console(file=output, force_terminal=True, width=100), Clock())
    display.show(Counter(running=2, delivered=7), 10)
    display.note("worker 1 [is] killed")
    display.close()

    assert "7/10" in output.getvalue()
    assert "worker 1 [is] killed" in output.getvalue()


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


def report(run: Result, *, terminal: bool) -> str:
    """Return the printed report of a run."""
    printed = io.StringIO()
    show_report(Console(file=printed, force_terminal=terminal, width=120), run)
    return printed.getvalue()


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
    """Its longest texts, frame included, need no more than 80 columns."""
    findings = (*FINDINGS, EventVerdict(5, EventFate.UNFINISHED, 1))
    run = Result(findings, REQUESTS, left_over=9, broken=1, withheld=1, killed="worker 12", held=frozenset({1}))
    widths = [max(len(str(row[column])) for row in rows(run)) for column in range(3)]
    assert sum(widths[::2]) + len("number") + 10 <= 80


def test_lost_events_are_named():
    """Report a loss with the job and the missing record."""
    run = Result((EventVerdict(7, EventFate.LOST, 1, "the receiver never answered 2xx under its key"),))
    assert "lost: job 7: the receiver never answered 2xx under its key\n" in report(run, terminal=False)


def test_a_report_without_a_terminal_is_plain_text():
    """Print neither frames nor escape codes, and the sentence last."""
    printed = report(Result(FINDINGS, REQUESTS), terminal=False)
    assert printed.isascii()
    assert "\x1b" not in printed
    assert sentence(Result(FINDINGS, REQUESTS)) == printed.splitlines()[-1]


def test_a_report_in_a_terminal_is_a_table():
    """Print the numbers in a frame, and the sentence below."""
    printed = report(Result(FINDINGS, REQUESTS, seconds=12.3), terminal=True)
    assert "after 12.3 s" in printed
    assert "┃" in printed
    assert sentence(Result(FINDINGS, REQUESTS)) in printed


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
