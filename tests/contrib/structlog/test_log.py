"""structlog: events as log lines, and what a handler logs tied to its job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from redrive import Backoff, Policy, observe
from redrive.contrib.structlog import log
from tests.runtime.helpers import app_on, ended, working

CALLER = ("job_id", "task", "attempt")


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """Return the lines that are logged while the sink is added."""
    capture = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    with observe.only(log):
        yield capture.entries
    structlog.reset_defaults()


def test_an_event_is_a_line_with_its_fields_as_keys(lines: list[Any]):
    """Events are lines with a text and keys: spans in seconds, the failure as reason, type and text."""

    def fetch() -> None:
        raise ConnectionError("connection refused")

    Policy(on=ConnectionError, attempts=2, backoff=Backoff.constant(0)).outcome(fetch)
    retried, gave_up = lines

    assert ("warning", "warning") == (retried["log_level"], gave_up["log_level"])
    assert retried["event"].endswith("attempt 1 of 2 failed: ConnectionError: connection refused")
    assert (1, 0.0, "backoff") == (retried["attempt"], retried["delay"], retried["rule"])
    assert ("builtins.ConnectionError", "connection refused") == (gave_up["error_type"], gave_up["error"])


@pytest.mark.parametrize("threaded", [False, True])
def test_log_lines_of_a_handler_have_its_job(tmp_path: Path, lines: list[Any], threaded):
    """Log lines of a handler have the job, its task and the attempt, on the event loop or in a thread."""
    app = app_on(tmp_path)

    def plain() -> None:
        structlog.get_logger().info("mine")

    async def coroutine() -> None:
        plain()

    work = app.task(name="work")(plain if threaded else coroutine)

    async def scenario() -> None:
        async with working(app):
            await ended(work.enqueue())
        structlog.get_logger().info("mine")

    asyncio.run(scenario())
    app.close()
    inside, outside = [line for line in lines if line["event"] == "mine"]

    assert (1, "work", 1) == tuple(inside[name] for name in CALLER)
    assert {"event", "log_level"} == outside.keys()


def test_a_user_defined_event_may_have_any_field(lines: list[Any]):
    """Fields with the name of a key of structlog are left out."""

    class UserEvent(observe.CallEvent):
        _fields = ("name", "event")
        name = "fetch"
        event = "in the way"

        def __init__(self) -> None:
            """No arguments."""

        def __str__(self) -> str:
            return "own"

    observe.emit(UserEvent())

    assert [{"event": "own", "call": "fetch", "log_level": "info"}] == lines
