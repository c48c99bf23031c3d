"""The log that is on from the start: what it writes, how it is switched off, and that nothing is written twice."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import redrive
from redrive import App, Backoff, CatchRequest, Policy, observe
from redrive.errors import Cancel, GiveUp, Snooze
from redrive.observe.listeners import LISTENERS, heard
from redrive.policy import History
from redrive.policy.failure import Failure
from redrive.policy.fields import Rule
from redrive.testing import VirtualClock, drain

POLICY = Policy(on=OSError, attempts=3, backoff=Backoff.constant(0))
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


@pytest.fixture(autouse=True)
def log_again() -> Iterator[None]:
    """Leave the log registered once."""
    yield
    observe.remove(observe.log)
    observe.add(observe.log)


class Calls:
    """A function that fails a number of times."""

    def __init__(self, failures: int, text: str = "refused") -> None:
        self.left = failures
        self.text = text

    def __call__(self) -> None:
        """Fail, or return."""
        self.left -= 1
        if self.left >= 0:
            raise ConnectionError(self.text)


def written(caplog: pytest.LogCaptureFixture, start: str = "redrive.") -> list[tuple[str, str]]:
    """Return the levels and messages of the records of these loggers."""
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.name.startswith(start)]


def run(app: App, call: Callable[[], None], **options: Any) -> None:
    """Run one job of a task that calls this, with its retries."""

    @app.task(**options)
    def work() -> None:
        call()

    work.enqueue()
    drain(app, sample=lambda: 0.0)


# --------------------------------------------------------------------------------------------- calls in this process


@pytest.mark.parametrize("policy", [POLICY, POLICY.with_(deadline="1h")], ids=["direct", "prepared"])
def test_retries_in_process_are_logged_without_a_sink(caplog, policy):
    """Each retry is a warning with the attempt, the error and the rule; the success after it is information."""
    caplog.set_level(logging.INFO)
    redrive.retry(policy)(Calls(2))()
    first, second, end = written(caplog)

    assert first[0] == second[0] == "WARNING"
    assert "is retried in 0s (backoff): attempt 1 of 3 failed: ConnectionError: refused" in first[1]
    assert "attempt 2 of 3 failed" in second[1]
    assert ("INFO", True) == (end[0], "succeeded after 3 attempts" in end[1])
    assert {"redrive.calls"} == {each.name for each in caplog.records}


def test_async_retries_are_logged(caplog):
    """Retries of a coroutine function are logged, and the end of a call that gives up."""
    calls = Calls(9)

    @redrive.retry(POLICY)
    async def fetch() -> None:
        calls()

    with pytest.raises(ConnectionError):
        asyncio.run(fetch())

    assert ["WARNING"] * 3 == [level for level, _ in written(caplog)]
    assert "gave up after 3 attempts" in caplog.messages[2]


def test_a_call_that_succeeds_at_once_logs_nothing(caplog):
    """Success at the first attempt and errors that the policy does not match are not logged."""
    caplog.set_level(logging.DEBUG)
    redrive.retry(POLICY)(Calls(0))()
    with pytest.raises(ConnectionError):
        redrive.retry(POLICY, on=ValueError)(Calls(1))()

    assert [] == written(caplog)


@pytest.mark.parametrize("text", ["one\ntwo", "\x1b[2J", "\u2028"])
def test_an_error_with_several_lines_is_one_entry(caplog, text):
    """Line breaks and escape sequences of error texts are escaped."""
    redrive.retry(POLICY)(Calls(1, text))()

    ((_, message),) = written(caplog)
    assert (True, 1) == (message.isprintable(), len(message.splitlines()))


def test_adding_the_log_again_writes_nothing_twice(caplog):
    """`observe.add(observe.log)` leaves one record for each event, and so does its removal."""
    registration = observe.add(observe.log)
    redrive.retry(POLICY)(Calls(1))()
    registration.remove()
    redrive.retry(POLICY)(Calls(1))()

    assert (2, []) == (len(written(caplog)), LISTENERS)


def test_the_log_can_be_switched_off_and_on(caplog):
    """`observe.remove(observe.log)` ends the log, also if it was added again; `observe.add` starts it."""
    observe.add(observe.log)
    observe.remove(observe.log)
    observe.remove(observe.log)
    redrive.retry(POLICY)(Calls(1))()
    silent = written(caplog), heard("redrive.calls", logging.ERROR)
    observe.add(observe.log)
    redrive.retry(POLICY)(Calls(1))()

    assert ([], False) == silent
    assert 1 == len(written(caplog))


def test_other_sinks_can_be_removed_by_name():
    """`observe.remove` removes a sink however often it was added; their registrations do nothing then."""
    seen: list[observe.Event] = []
    first, second = observe.add(seen.append), observe.add(seen.append)
    observe.remove(seen.append)
    redrive.retry(POLICY)(Calls(1))()
    with observe.add(seen.append):
        first.remove()
        second.remove()
        redrive.retry(POLICY)(Calls(1))()

    assert [observe.CallRetryScheduled, observe.CallSucceeded] == [type(event) for event in seen]
    assert not LISTENERS


def test_only_sinks_can_be_removed():
    """Anything that cannot be called is refused, as by `add`; a sink that is not registered is no error."""
    observe.remove(print)

    with pytest.raises(TypeError, match="'log' is no sink: give a function that takes an event"):
        observe.remove("log")  # type: ignore[arg-type]


@pytest.mark.parametrize(("level", "count"), [("WARNING", 1), ("ERROR", 0)])
def test_the_level_of_the_logger_decides(caplog, level, count):
    """The level of the logger `redrive`, set in the standard way, holds for its events."""
    caplog.set_level(level, "redrive")
    redrive.retry(POLICY)(Calls(1))()

    assert count == len(written(caplog))


def test_only_silences_the_log(caplog):
    """Inside `observe.only` the log receives events if it is named."""
    with observe.only():
        redrive.retry(POLICY)(Calls(1))()
    silent = written(caplog)
    with observe.only(observe.log):
        redrive.retry(POLICY)(Calls(1))()

    assert [] == silent
    assert 1 == len(written(caplog))


PROGRAM = """
    import redrive
    from redrive.testing import VirtualClock, drain

    @redrive.retry("1 1ms", on=OSError)
    def fetch():
        raise OSError("down")

    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry="1 1s")
    def send(to: str) -> None:
        raise ValueError("no\\nsuch")

    try:
        fetch()
    except OSError:
        pass
    send.enqueue("ada")
    drain(app)
    app.close()
"""


def test_a_program_without_logging_sees_retries_and_deaths():
    """In a program that has configured no logging, Python writes retries and deaths to standard error."""
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True, timeout=60
    )
    lines = found.stderr.splitlines()

    assert lines[0].startswith("__main__.fetch is retried in 1ms (backoff): attempt 1 of 2 failed: OSError: down")
    assert "__main__.fetch gave up after 2 attempts" in lines[1]
    assert ", at " in lines[2]
    assert lines[2].endswith("UTC (backoff): attempt 1 of 2 failed: ValueError: no\\nsuch")
    assert lines[3].startswith("job 1 (send) died at attempt 2 of 2 (attempts): 2 of 2 attempts failed; last failure: ")
    assert "    Traceback (most recent call last):" == lines[4]
    assert all(line.startswith("    ") for line in lines[4:])


# ------------------------------------------------------------------------------------------------------ durable jobs


def test_a_death_is_an_error_with_its_traceback(app, caplog):
    """Retries are warnings with the instant of the next attempt; the death is an error with its traceback."""
    run(app, Calls(9, "a\nb"), retry="1 1s")
    retried, died = [each for each in caplog.records if each.name == "redrive.jobs"]

    assert (
        "job 1 (work) is retried in 1s, at 2026-01-01 00:00:01 UTC (backoff): "
        "attempt 1 of 2 failed: ConnectionError: a\\nb"
    ) == retried.getMessage()
    assert ("WARNING", "ERROR") == (retried.levelname, died.levelname)
    assert died.exc_text.startswith("    Traceback (most recent call last):\n")
    assert "ConnectionError: a" in died.exc_text
    assert died.exc_text == died.traceback
    assert (None, 2) == (retried.exc_text, died.max_attempts)


def test_a_permanent_failure_names_the_limit(app, caplog):
    """Jobs that give up early are logged with the number of attempts that they could have had."""

    def work() -> None:
        raise GiveUp("no such account")

    run(app, work, retry="5 1s")

    ((level, message),) = written(caplog)
    assert "ERROR" == level
    assert message.startswith("job 1 (work) died at attempt 1 of 6 (permanent): no such account; last failure: ")


def test_a_success_is_logged_at_debug_with_its_duration(app, caplog):
    """Success is logged at DEBUG with its duration, beside the enqueue and the start."""
    caplog.set_level(logging.DEBUG, "redrive")
    run(app, Calls(0))

    assert [
        ("DEBUG", "1 job of work on queue default"),
        ("DEBUG", "job 1 (work) is enqueued on default"),
        ("DEBUG", "job 1 (work) starts: attempt 1 on worker 1"),
        ("DEBUG", "job 1 (work) succeeded at attempt 1 in 0.000 s"),
    ] == written(caplog, "redrive.jobs")


def test_a_success_is_not_logged_at_info(app, caplog):
    """Success writes nothing at INFO."""
    caplog.set_level(logging.INFO, "redrive")
    run(app, Calls(0))

    assert [] == written(caplog)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Cancel("not wanted"), "job 1 (work) is cancelled: not wanted"),
        (Snooze("5s", "too early"), "job 1 (work) is snoozed for 5s: too early"),
    ],
)
def test_decisions_of_a_handler_are_information(app, caplog, error, text):
    """Cancelled and snoozed jobs are logged at INFO."""
    caplog.set_level(logging.INFO, "redrive")
    errors = iter([error])

    def work() -> None:
        for each in errors:
            raise each

    run(app, work)

    assert [("INFO", text)] == written(caplog)


def test_an_operator_who_cancels_is_information(app, caplog):
    """Jobs that a program cancels are logged at INFO, and cost no read if that is not written."""

    @app.task
    def work() -> None:
        """Never called."""

    caplog.set_level(logging.INFO, "redrive")
    work.enqueue().cancel("enough")

    assert [("INFO", "job 1 (work) is cancelled: enough")] == written(caplog)


def test_a_catch_is_logged_from_its_start_to_its_end(app, caplog):
    """Deaths name the catch; its failures are warnings, the fifth is an error, and its success is information."""
    caplog.set_level(logging.INFO, "redrive")
    calls = Calls(6)

    @app.task
    def recover(request: CatchRequest) -> None:
        calls()

    run(app, Calls(9), retry="0 catch recover")
    died, *failed, caught = written(caplog)

    assert died[1].endswith("; recover catches it")
    assert ["WARNING"] * 4 + ["ERROR", "WARNING"] == [level for level, _ in failed]
    assert failed[4][1].endswith("attempt 5 failed: ConnectionError: refused; the catch is stuck: 5 failures")
    assert ("INFO", "job 1 is caught by job 2 (recover)") == caught


# ----------------------------------------------------------------------------------------------- attempts that are left


@pytest.mark.parametrize(
    ("policy", "attempts", "by_rule", "left"),
    [
        (Policy(attempts=5), 2, (), 3),
        (Policy(attempts=5), 9, (), 0),
        (Policy(attempts=None, deadline="1h"), 2, (), None),
        (Policy(attempts=None, deadline="1h", backoff=Backoff.listed([1, 2, 3], end="stop")), 2, (), 2),
        (Policy(attempts=3, backoff=Backoff.listed([1, 2, 3], end="stop")), 2, (), 1),
        (Policy(attempts=5, rules=[Rule("builtins.OSError", attempts=3)]), 2, (1,), 1),
        (Policy(attempts=5, rules=[Rule("builtins.KeyError", attempts=3)]), 2, (0,), 3),
        (Policy(attempts=5) & Policy(attempts=3), 2, (), 1),
        (Policy(attempts=None, deadline="1h") | Policy(attempts=3), 2, (), None),
    ],
)
def test_the_remaining_attempts_are_those_of_the_policy(policy, attempts, by_rule, left):
    """`Policy.remaining` counts the attempts that follow if all fail alike; rules and combinations have their own."""
    start = VirtualClock().now()
    failure = Failure(("builtins.OSError", "builtins.Exception"), "refused")

    assert left == policy.remaining(History(attempts, start, None, by_rule), failure)
