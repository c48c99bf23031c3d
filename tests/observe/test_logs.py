"""Log records of redrive: one entry of a log each, whatever texts they contain."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from redrive import observe
from redrive.observe.jobs import WorkerStarted
from redrive.observe.logs import Block, EntryFormatter, logger

FORGED = "2026-01-01 12:00:00 INFO    redrive.worker: all is well"
EVIL = f"boom\x1b[2J\u202e\n{FORGED}"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Return the text that a handler of the standard library writes with its own formatter."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger("redrive")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


class Strange(Exception):
    """An exception without a text and without attributes."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def strange() -> None:
    """Raise it."""
    raise Strange


def nested() -> None:
    """Raise an error that came from another one."""
    raise KeyError from ValueError(EVIL)


def test_an_error_text_adds_no_line(written: io.StringIO):
    """Escape the text of an error in the line of its record."""
    logger("redrive.test").warning("job %d failed %.1f times: %s", 7, 2, ConnectionError(EVIL))

    assert f"WARNING job 7 failed 2.0 times: boom\\u001b[2J\\u202e\\n{FORGED}\n" == written.getvalue()


def test_a_traceback_is_indented(written: io.StringIO):
    """Escape the texts of chained errors, and begin none of their lines like a record."""
    try:
        nested()
    except KeyError:
        logger("redrive.test").exception("a duty failed")
    first, *rest = written.getvalue().splitlines()

    assert "ERROR a duty failed" == first
    assert all(line.startswith("    ") for line in rest if line)
    assert (True, False) == (f"    {FORGED}" in rest, "\x1b" in written.getvalue())


def test_a_block_keeps_its_lines(written: io.StringIO):
    """Show a traceback that is a string like any other."""
    logger("redrive.test").error("it failed%s", Block(f"Traceback:\n  {EVIL}"))

    assert f"ERROR it failed\n    Traceback:\n      boom\\u001b[2J\\u202e\n    {FORGED}\n" == written.getvalue()


@pytest.mark.parametrize("given", ["argument", "traceback"])
def test_an_error_with_a_broken_text_can_be_logged(written: io.StringIO, given: str):
    """Name an exception by its class if its text or attributes cannot be read."""
    try:
        strange()
    except Strange as error:
        if given == "argument":
            logger("redrive.test").error("failed: %s", error)
        else:
            logger("redrive.test").error("failed", exc_info=error)

    assert written.getvalue().startswith("ERROR failed")
    assert "Strange" in written.getvalue()


def test_events_are_one_line_with_escaped_facts(written: io.StringIO, caplog: pytest.LogCaptureFixture):
    """Write an event as one line, with facts that are safe for formatters that show them."""
    observe.log(WorkerStarted(worker_id=1, queues=(EVIL,), concurrency=5))

    assert f"INFO worker 1 serves boom\\u001b[2J\\u202e\\n{FORGED}, 5 at once\n" == written.getvalue()
    assert f"boom\\u001b[2J\\u202e\\n{FORGED}" == caplog.records[0].queues


def test_the_log_of_the_command_line_escapes_all_loggers():
    """Other libraries log error texts too: asyncio, for one, those of tasks that nothing awaited."""
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "never retrieved: %s", (EVIL,), None)

    assert f"never retrieved: boom\\u001b[2J\\u202e\n    {FORGED}" == EntryFormatter("%(message)s").format(record)
