"""Management commands that retry, with time that jumps."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from redrive import Policy
from redrive.contrib.django import RetryingCommand
from redrive.testing import VirtualClock, using
from tests.contrib.django.sample.management.commands.fetch_prices import Command


@pytest.fixture
def clock():
    """Time that jumps."""
    clock = VirtualClock()
    with using(clock=clock):
        yield clock


@pytest.fixture(autouse=True)
def supplier():
    """Return a supplier that answers."""
    Command.attempts.clear()
    Command.troubles.clear()


def fetch(*arguments: str, **options):
    """Call the command; return its output and its error output."""
    out, err = io.StringIO(), io.StringIO()
    call_command(Command(stdout=out, stderr=err, no_color=True), "acme", *arguments, **options)
    return out.getvalue(), err.getvalue()


def exit_code(*arguments: str) -> int:
    """Run the command as a shell does."""
    with pytest.raises(SystemExit) as left:
        Command(stdout=io.StringIO(), stderr=io.StringIO()).run_from_argv(["manage.py", "fetch_prices", *arguments])
    return left.value.code


def test_a_command_is_retried_by_its_policy(clock):
    """Failing commands run again with the same arguments, after the delays of the directive, and report each retry."""
    began = clock.now()
    Command.troubles[:] = [ConnectionError("out to lunch"), ConnectionError("still out")]

    output, complained = fetch()

    assert ("fetched\n", ["acme"] * 3) == (output, Command.attempts)
    assert 3.0 == (clock.now() - began).total_seconds()
    assert ["out to lunch", "still out"] == [line.rpartition(": ")[2] for line in complained.splitlines()]


def test_errors_printed_by_a_command_are_escaped(clock):
    """Neither the line about a retry nor the last error can act on the terminal, or look like a line of its own."""
    Command.troubles[:] = [ConnectionError("out\x1b[2J\nfetched")] * 3
    err = io.StringIO()
    with pytest.raises(SystemExit):
        Command(stdout=io.StringIO(), stderr=err, no_color=True).run_from_argv(["manage.py", "fetch_prices", "acme"])

    assert 3 == len(err.getvalue().splitlines())
    assert all(line.endswith("out\\u001b[2J\\nfetched") for line in err.getvalue().splitlines())


def test_a_command_that_succeeds_reports_no_retries():
    """Successful commands report no retries."""
    assert ("fetched\n", "") == fetch()


def test_the_last_error_is_raised_unchanged(clock):
    """`call_command` gets the error itself, with its record."""
    Command.troubles[:] = [ConnectionError(number) for number in range(9)]

    with pytest.raises(ConnectionError, match="2") as raised:
        fetch()

    assert 3 == raised.value.__retry__.attempts


def test_no_retry_makes_one_attempt():
    """`--no-retry` runs the command as if it had no policy."""
    Command.troubles[:] = [ConnectionError()]

    with pytest.raises(ConnectionError):
        fetch("--no-retry")

    assert ["acme"] == Command.attempts


def test_the_next_call_is_retried_again(clock):
    """`--no-retry` is about one call: the same command object retries the next one."""
    command = Command(stdout=io.StringIO(), stderr=io.StringIO())
    call_command(command, "acme", no_retry=True)
    Command.troubles[:] = [ConnectionError()]
    call_command(command, "acme")

    assert ["acme"] * 3 == Command.attempts


@pytest.mark.parametrize("error", [CommandError("no such supplier"), ValueError("a mistake")])
def test_errors_outside_of_retry_on_are_not_retried(error):
    """A CommandError, and exceptions that `retry_on` does not name, are not retried."""
    Command.troubles[:] = [error]

    with pytest.raises(type(error)):
        fetch()

    assert ["acme"] == Command.attempts


def test_exit_codes_distinguish_final_and_temporary_failures(clock):
    """0 is success, 1 what would fail again, 75 what may succeed later."""
    Command.troubles[:] = [CommandError("no such supplier")]
    assert 1 == exit_code("acme")

    Command.troubles[:] = [ConnectionError()] * 3
    assert 75 == exit_code("acme")

    Command.troubles[:] = [CommandError("not now", returncode=4)]
    assert 4 == exit_code("acme")


def test_errors_that_are_not_retried_show_their_traceback():
    """Exceptions that are not retried are raised on the command line unchanged."""
    Command.troubles[:] = [ValueError("a mistake")]

    with pytest.raises(ValueError, match="a mistake"):
        Command(stderr=io.StringIO()).run_from_argv(["manage.py", "fetch_prices", "acme"])


def test_a_policy_with_on_is_used_unchanged(clock):
    """Policies with `on` are taken unchanged, without a default deadline."""

    class Patient(RetryingCommand):
        """Fails for a minute."""

        retry = Policy(on=LookupError, attempts=5, backoff=Policy.parse("5 30s").backoff, jitter="none")
        tries = 0

        def handle(self, *args, **options):
            """Fail twice."""
            type(self).tries += 1
            if self.tries < 3:
                raise LookupError
            return "done"

    assert "done" == call_command(Patient(stdout=io.StringIO(), stderr=io.StringIO()))
    assert 3 == Patient.tries
