"""`redrive queues`: the limits of queues, for readers and for programs, and changes of them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from redrive import App
from redrive.cli import cli
from redrive.engine.queue import QueueSettings


def invoke(*words: str) -> str:
    """Run a command that succeeds, and answer what it printed."""
    result = CliRunner().invoke(cli, ["queues", *words])
    assert (0, None) == (result.exit_code, result.exception)
    return result.stdout


def test_limits_are_set_one_by_one(shop: App):
    """Change the given limits, keep the others, and remove a limit by ``none``."""
    first = invoke("limit", "shop:app", "mail", "--concurrency", "5", "--rate", "5/1.8s", "--ordered", "--aging", "5m")
    second = invoke("limit", "shop:app", "mail", "--concurrency", "none", "--per-partition", "2", "--unordered")

    assert (
        "queue mail: open; 5 at once, rate 5/1.8s, each partition in strict order, one priority higher each 5m\n"
        == first
    )
    assert "queue mail: open; 2 at once of each partition, rate 5/1.8s, one priority higher each 5m\n" == second
    assert (None, 2, False) == tuple(
        getattr(shop.queue("mail").settings, name) for name in ("concurrency", "per_partition", "ordered")
    )


def test_a_queue_is_paused_and_resumed(shop: App):
    """Print the new state after pause and resume."""
    paused = invoke("pause", "shop:app", "mail")

    assert paused.startswith("queue mail: paused since 20")
    assert shop.queue("mail").settings.paused_at is not None
    assert "queue mail: open; no limits\n" == invoke("resume", "shop:app", "mail")


def test_settings_of_a_queue_can_be_removed(shop: App):
    """After forget the queue has no settings."""
    shop.queue("mail").limit(concurrency=5)

    assert "queue mail: open; no limits\n" == invoke("forget", "shop:app", "mail")
    assert QueueSettings("mail") == shop.queue("mail").settings


def test_queues_are_listed(shop: App):
    """Print a row for each queue with settings of its own, markup in names included."""
    shop.queue("[b]mail").limit(concurrency=5)
    shop.queue("slow").pause()
    lines = invoke("list", "shop:app").splitlines()

    assert ["queue", "state", "limits"] == lines[0].split()
    assert ["[b]mail", "open", "5 at once"] == [part.strip() for part in lines[1].split("  ") if part.strip()]
    assert lines[2].startswith("slow")
    assert "paused since" in lines[2]


def test_queues_can_be_printed_as_json(shop: App):
    """With --json a list is one object in a line for each queue, with the rate as text."""
    shop.queue("mail").limit(rate="5/1.8s")
    (row,) = (json.loads(line) for line in invoke("list", "shop:app", "--json").splitlines())
    shown = json.loads(invoke("show", "shop:app", "mail", "--json"))

    assert ("mail", "5/1.8s", None) == (row["name"], row["rate"], row["paused_at"])
    assert row | {"held_by": []} == shown


def test_show_names_the_holders_of_slots(shop: App):
    """Print the holders of places of a limited queue, and none for an unlimited one."""
    before = invoke("show", "shop:app", "default")
    shop.queue("default").limit(concurrency=5)

    assert "queue default: open; no limits\n" == before
    assert "queue default: open; 5 at once\nheld: 0\n" == invoke("show", "shop:app", "default")


def test_lists_and_pages_of_jobs_show_a_paused_queue(shop: App):
    """Show in lists and pages of jobs that a queue is paused."""
    job = shop.tasks["charge"].enqueue(5)
    shop.queue("default").pause()
    runner = CliRunner()
    listed = runner.invoke(cli, ["jobs", "list", "shop:app"]).stdout
    shown = runner.invoke(cli, ["jobs", "show", "shop:app", str(job.id)]).stdout

    assert "queue paused since" in listed
    assert "queue paused since" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--concurrency", "many"), "'many' is not a whole number"),
        (("--concurrency", "0"), "concurrency must be positive"),
        (("--rate", "often"), "'often' is not a rate"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_an_invalid_limit_is_refused(redrive, words: tuple[str, ...], message: str):
    """Refuse an impossible limit in one line, with the status of a wrong call."""
    answer = redrive("queues", "limit", "shop:app", "mail", *words)

    assert 2 == answer.status
    assert message in answer.err
