"""The demo's small parts: its input, its files, its display, its report, its signals."""

from __future__ import annotations

import io
import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from redrive.cli.demo.audit import Audit, Fate, Finding, Request
from redrive.cli.demo.events import complaint, take
from redrive.cli.demo.files import Files, program_folder
from redrive.cli.demo.progress import Counts, LiveDisplay, PlainDisplay, display_for
from redrive.cli.demo.report import Rescue, Run, rows, sentence, show_report
from redrive.cli.demo.signals import Interrupts
from redrive.errors import ConfigurationError


class Event(msgspec.Struct):
    """Any event."""

    id: str


@dataclass
class Line:
    """A broken line."""

    number: int
    text: str
    why: str


@dataclass
class Clock:
    """A clock that stands still until it is told otherwise."""

    time: float = 0.0

    def monotonic(self) -> float:
        """The time that it was told."""
        return self.time


# ------------------------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, ["a", "b", "c"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (7, ["a", "b", "c", "a#2", "b#2", "c#2", "a#3"])],
)
def test_as_many_events_as_asked_for_each_with_its_own_id(count, expected):
    """All by default, fewer or more on demand; where the file is gone through again, ids stay unique."""
    assert expected == [event.id for event in take([Event("a"), Event("b"), Event("c")], count)]


def test_a_complaint_names_file_line_reason_and_text():
    """A person can find the broken line and see what is wrong with it."""
    said = complaint("in.jsonl", Line(17, "hello", "JSON is malformed"))
    assert "in.jsonl, line 17 is no event and is left out (JSON is malformed): hello" == said


def test_a_complaint_about_a_huge_line_is_short():
    """20 KB of text do not land on the terminal."""
    said = complaint("in.jsonl", Line(1, "x" * 20_000, "cut"))
    assert "x" * 100 + "... (20000 characters)" in said
    assert len(said) < 250


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
    """Another store, or one in memory, is refused in one line that says what to give."""
    with pytest.raises(ConfigurationError, match="SQLite file"):
        Files.of(db)


def test_the_url_survives_odd_characters():
    """A path with a blank, a question mark or a percent sign is the same path in the URL."""
    files = Files(Path("/data/50% of what?.db"))
    assert files == Files.of(files.url)


def test_no_two_files_of_a_database_coincide():
    """Whatever the database is called, ledger, dead letters and log have other names."""
    for name in ("a.db", "a.log", "a.jsonl", "a"):
        files = Files(Path("/data") / name)
        assert 4 == len({files.database, files.ledger, files.dead_letters, files.log})


def test_the_example_is_found():
    """The folder that the demo runs has its program and its events."""
    assert {"delivery.py", "receiver.py", "events.jsonl"} <= {path.name for path in program_folder().iterdir()}


# ----------------------------------------------------------------------------------------------------------- display


def plain() -> tuple[PlainDisplay, Clock, io.StringIO]:
    """A display that prints lines, its clock, and what it printed."""
    clock, said = Clock(), io.StringIO()
    return PlainDisplay(Console(file=said, width=40), clock), clock, said


def test_without_a_terminal_there_are_plain_lines():
    """No escape codes, no redrawing."""
    assert isinstance(display_for(Console(file=io.StringIO()), Clock()), PlainDisplay)


def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch):
    """TERM=dumb is a terminal without a cursor."""
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(Console(file=io.StringIO(), force_terminal=True), Clock()), PlainDisplay)


def test_a_plain_line_has_time_and_all_five_counts_unwrapped():
    """One line says everything, however narrow the console."""
    display, clock, said = plain()
    clock.time = 2.5
    display.show(Counts(queued=1, running=2, retrying=3, delivered=4, caught=5), 15)
    assert "  2.5 s  queued 1  running 2  retrying 3  delivered 4  caught 5  of 15\n" == said.getvalue()


def test_plain_lines_come_once_a_second_and_only_with_news():
    """Counts that come too early are held back, those that say nothing new are left out."""
    display, clock, said = plain()
    for time, delivered in ((0.0, 1), (0.9, 2), (1.0, 3), (2.5, 3), (3.0, 4)):
        clock.time = time
        display.show(Counts(delivered=delivered), 9)
    told = [line.split("delivered ")[1][0] for line in said.getvalue().splitlines()]
    assert ["1", "3", "4"] == told


def test_counts_that_were_held_back_are_told_at_the_end():
    """The last line of counts is the last state."""
    display, _, said = plain()
    display.show(Counts(), 9)
    display.show(Counts(delivered=9), 9)
    display.close()
    assert "delivered 9" in said.getvalue().splitlines()[-1]


def test_a_terminal_sees_bar_and_counts():
    """The live display draws the numbers, and prints notes above them."""
    said = io.StringIO()
    display = display_for(Console(file=said, force_terminal=True, width=100), Clock())
    assert isinstance(display, LiveDisplay)
    display.show(Counts(running=2, delivered=7), 10)
    display.note("worker 1 [is] killed")
    display.close()
    assert "7/10" in said.getvalue()
    assert "worker 1 [is] killed" in said.getvalue()


# ------------------------------------------------------------------------------------------------------------ report

FINDINGS = (
    Finding(1, Fate.DELIVERED, 1),
    Finding(2, Fate.DELIVERED, 3),
    Finding(3, Fate.CAUGHT, 7),
    Finding(4, Fate.GONE, 1),
)
REQUESTS = (
    Request("k2", 1, None, accepted=True, duplicate=False),
    Request("k2", 2, 200, accepted=False, duplicate=True),
)


def report(run: Run, *, terminal: bool) -> str:
    """What is printed about a run."""
    said = io.StringIO()
    show_report(Console(file=said, force_terminal=terminal, width=120), run)
    return said.getvalue()


def test_the_sentence_says_it_all():
    """Events in, delivered, after retries, caught, lost, repeats."""
    expected = (
        "4 events in: 2 delivered, 1 of them after retries, 2 caught, 0 lost; "
        "1 times the receiver saw a repeat under the same idempotency key."
    )
    assert expected == sentence(Run(Audit(FINDINGS, REQUESTS)))


def test_what_is_still_queued_is_in_the_sentence():
    """After an interruption the sentence says how much is left."""
    assert "0 lost, 1 still queued;" in sentence(Run(Audit((Finding(1, Fate.UNFINISHED, 0),), ())))


def test_the_table_adds_up():
    """Delivered, caught and lost are the events; their parts are they."""
    table = {name.strip(): number for name, number, _ in rows(Run(Audit(FINDINGS, REQUESTS)))}
    assert table["events in"] == table["delivered"] + table["caught"] + table["lost"]
    assert table["delivered"] == table["at the first attempt"] + table["after retries"]
    assert table["caught"] == table["gone (410), no retry"] + table["retries exhausted"]


def test_the_table_fits_into_eighty_columns():
    """Its longest texts, frame included, need no more than 80 columns."""
    findings = (*FINDINGS, Finding(5, Fate.UNFINISHED, 1))
    run = Run(Audit(findings, REQUESTS), left_over=9, broken=1, withheld=1, rescue=Rescue("worker 12", frozenset({1})))
    widths = [max(len(str(row[column])) for row in rows(run)) for column in range(3)]
    assert sum(widths[::2]) + len("number") + 10 <= 80


def test_lost_events_are_named():
    """A loss is told with the job and with what is missing."""
    run = Run(Audit((Finding(7, Fate.LOST, 1, "the receiver never answered 2xx under its key"),), ()))
    assert "lost: job 7: the receiver never answered 2xx under its key\n" in report(run, terminal=False)


def test_a_report_without_a_terminal_is_plain_text():
    """No frames, no escape codes, and the sentence stands last."""
    said = report(Run(Audit(FINDINGS, REQUESTS)), terminal=False)
    assert said.isascii()
    assert "\x1b" not in said
    assert sentence(Run(Audit(FINDINGS, REQUESTS))) == said.splitlines()[-1]


def test_a_report_in_a_terminal_is_a_table():
    """A frame around the numbers, and the sentence below."""
    said = report(Run(Audit(FINDINGS, REQUESTS), seconds=12.3), terminal=True)
    assert "after 12.3 s" in said
    assert "┃" in said
    assert sentence(Run(Audit(FINDINGS, REQUESTS))) in said


@pytest.mark.parametrize(
    ("jobs", "told"), [({1, 2}, "all ran again elsewhere"), ({1, 5}, "1 ran again elsewhere")], ids=["all", "some"]
)
def test_the_killed_workers_jobs_are_followed_up(jobs, told):
    """The table says how many deliveries the killed worker held and how many of them were finished by others."""
    findings = (*FINDINGS, Finding(5, Fate.LOST, 1, "gone"))
    run = Run(Audit(findings, ()), rescue=Rescue("worker 1", frozenset(jobs)))
    assert ("held by worker 1 when killed", 2, told) == rows(run)[-1]


# ----------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_stops(number):
    """Once sets a flag, twice raises KeyboardInterrupt."""
    with Interrupts() as interrupts:
        assert not interrupts.asked
        signal.raise_signal(number)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_a_third_signal_is_not_heard_while_everything_is_taken_down():
    """After `ignore` nothing interrupts any more."""
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        interrupts.ignore()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked


def test_the_handlers_are_given_back():
    """What handled the signals before handles them again afterwards."""
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert before != signal.getsignal(signal.SIGINT)
    assert before == signal.getsignal(signal.SIGINT)
