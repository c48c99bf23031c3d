"""`redrive enqueue`: jobs by the name of their task."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redrive import App
from redrive.cli import cli
from tests.cli.conftest import Output


def invoke(*words: str) -> str:
    """Run the command, which succeeds, and answer what it printed."""
    result = CliRunner().invoke(cli, ["enqueue", "shop:app", *words])
    assert (0, None) == (result.exit_code, result.exception)
    return result.stdout


def test_a_job_is_enqueued_with_its_arguments(shop: App):
    """Take the arguments by position or by name, and print the id."""
    assert "job 1 of charge is enqueued\n" == invoke("charge", "--args", "[5]")
    made = json.loads(invoke("charge", "--kwargs", '{"cents": 7}', "--json"))
    assert {"job": "2", "run": None, "created": True, "note": "job 2 of charge is enqueued"} == made
    assert ["default", "default"] == [job.queue for job in shop.jobs.select()]


def test_a_job_of_a_cron_is_enqueued_by_its_name(shop: App):
    """A cron is a task, although no page enqueues it."""

    @shop.cron("@daily")
    def night() -> None:
        """Do nothing."""

    assert "job 1 of night is enqueued\n" == invoke("night")


def test_the_options_of_a_job_are_options_of_the_command(shop: App):
    """Pass queue, priority, key and delay on."""
    invoke("charge", "--args", "[5]", "--queue", "mail", "--priority", "-3", "--key", "k", "--delay", "1h")
    (job,) = shop.jobs.select()

    assert ("mail", -3, "k") == (job.queue, job.priority, job.key)
    assert timedelta(hours=1) == job.scheduled_at - job.enqueued_at


def test_a_due_time_is_an_instant(shop: App):
    """Make the job due at an instant with an offset; one in the past is due now."""
    invoke("charge", "--args", "[5]", "--at", "2060-03-01T06:00+02:00")
    invoke("charge", "--args", "[5]", "--at", "2020-03-01T06:00+02:00")
    late, soon = shop.jobs.select()

    assert timedelta(0) <= late.scheduled_at - late.enqueued_at < timedelta(seconds=1)
    assert abs(soon.scheduled_at - datetime(2060, 3, 1, 4, tzinfo=UTC)) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("chrage",), 2, "shop:app has no task 'chrage'; known tasks: charge, stop"),
        (
            ("charge", "inv-7", "5"),
            2,
            """'inv-7' is one argument too many: those of the task are a JSON list, --args '["inv-7","5"]'""",
        ),
        (("charge", "--args", "5"), 2, '--args is a JSON list, such as [7, "text"], not 5'),
        (("charge", "--args", "[5"), 2, "'[5' cannot be read: Input data was truncated"),
        (("charge", "--kwargs", "[5]"), 2, '--kwargs is a JSON object, such as {"cents": 7}, not [5]'),
        (("charge", "--args", '["x"]'), 2, "Expected `int`, got `str` - at `$.cents`"),
        (("charge", "--args", "[5]", "--delay", "5 fortnights"), 2, "there is no unit 'fortnights'"),
        (("charge", "--args", "[5]", "--delay", "5m", "--at", "2100-01-01T00:00Z"), 2, "give one of them"),
        (("charge", "--args", "[5]", "--at", "2100-01-01"), 2, "has no time zone: write an offset"),
        (("charge", "--args", "[5]", "--at", "soon"), 2, "Invalid value for '--at': 'soon' is not an instant"),
    ],
)
def test_wrong_jobs_are_refused(redrive, shop: App, words, status: int, message: str):
    """Refuse the call in one line, and make no job."""
    output = redrive("enqueue", "shop:app", *words)

    assert (status, "") == (output.status, output.out)
    assert message in " ".join(output.err.replace("│", "").split())
    assert () == shop.jobs.select()


@pytest.mark.usefixtures("shop")
def test_a_database_in_memory_is_refused(tmp_path: Path, redrive: Callable[..., Output]):
    """No worker would get the job: its database ends with the command."""
    (tmp_path / "passing.py").write_text(
        "from redrive import App\napp = App('memory://')\n@app.task\ndef charge(): ...\n"
    )
    output = redrive("enqueue", "passing:app", "charge")

    assert (2, "") == (output.status, output.out)
    assert "the database memory://, which ends with this command" in output.err
