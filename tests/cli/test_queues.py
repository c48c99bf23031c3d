"""`redrive queues`: the limits of queues, for readers and for programs, and changes of them."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial

import pytest
from typer.testing import CliRunner

from redrive import App
from redrive.cli import cli
from redrive.engine.queue import QueueSettings
from redrive.stores.operations import queues as operations
from redrive.stores.operations import workers


def invoke(*words: str) -> str:
    """Run a command that succeeds, and answer what it printed."""
    result = CliRunner().invoke(cli, ["queues", *words])
    assert (0, None) == (result.exit_code, result.exception)
    return result.stdout


def test_limits_are_set_one_by_one(shop: App):
    """Change the given limits, keep the others, and remove a limit by ``none``."""
    first = invoke(
        "limit", "shop:app", "mail", "--new", "--concurrency", "5", "--rate", "5/1.8s", "--ordered", "--aging", "5m"
    )
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
    paused = invoke("pause", "shop:app", "mail", "--new")

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

    assert ["queue", "due", "oldest", "later", "running", "dead", "workers", "state"] == lines[0].split()
    cells = ["[b]mail", "0", "-", "0", "0", "0", "0", "open; 5 at once"]
    assert cells == [part.strip() for part in lines[1].split("  ") if part.strip()]
    assert ["default", "slow"] == [line.split()[0] for line in lines[2:]]
    assert "paused since" in lines[3]


def test_queues_are_listed_with_their_jobs_and_workers(shop: App):
    """Count jobs by state, with the age of the oldest due one, and the live workers that serve the queue."""
    shop.tasks["charge"].enqueue(5)
    shop.tasks["charge"].options(queue="mail", delay="1h").enqueue(5)
    register = partial(workers.register, concurrency=1, lease_for=timedelta(hours=1))
    shop.store.run(register("here:1"))
    shop.store.run(register("here:2", queues=["default"]))
    first, second = (line.split() for line in invoke("list", "shop:app").splitlines()[1:])

    assert ["default", "1", "0", "0", "0", "2", "open"] == [first[0], first[1], *first[3:]]
    assert first[2].endswith("s")
    assert ["mail", "0", "-", "1", "0", "0", "1", "open"] == second


def test_a_count_that_reached_its_limit_has_a_plus(shop: App, monkeypatch: pytest.MonkeyPatch):
    """A number that may be larger is marked in the list, on the page of the queue and in JSON."""
    monkeypatch.setattr(operations, "MOST", 3)
    shop.tasks["charge"].enqueue_many([5] * 3)
    shop.tasks["charge"].options(delay="1h").enqueue_many([5] * 4)
    shop.tasks["charge"].options(delay="1h", priority=2).enqueue(5)
    _, line = invoke("list", "shop:app").splitlines()
    shown = json.loads(invoke("show", "shop:app", "default", "--json"))

    assert ["3+", "4+"] == [each for each in line.split() if each.endswith("+")]
    assert "jobs: 3+ due, 4+ later, 0 running" in invoke("show", "shop:app", "default")
    numbers = [(shown["load"][each]["value"], shown["load"][each]["capped"]) for each in ("due", "later", "running")]
    assert [(3, True), (4, True), (0, False)] == numbers


@pytest.mark.parametrize("command", ["show", "pause", "resume", "limit", "forget"])
def test_an_unknown_queue_is_refused_with_the_known_ones(redrive, shop: App, command: str):
    """Misspelled queues are not paused: it would look as if the right one was."""
    shop.open()
    output = redrive("queues", command, "shop:app", "defualt")

    assert (2, "") == (output.status, output.out)
    assert "there is no queue 'defualt' in the code, and no job with it; known queues: default" in output.err
    assert () == shop.queues.select()


def test_queues_can_be_printed_as_json(shop: App):
    """With --json a list is one object in a line for each queue, with the rate as text."""
    shop.queue("mail").limit(rate="5/1.8s")
    _, row = (json.loads(line) for line in invoke("list", "shop:app", "--json").splitlines())
    shown = json.loads(invoke("show", "shop:app", "mail", "--json"))

    assert ("mail", ["rate 5/1.8s"], None) == (row["name"], row["limits"], row["paused_at"])
    assert ("5/1.8s", [], row) == (shown["rate"], shown["held_by"], shown["load"])


def test_show_names_the_holders_of_slots(shop: App):
    """Print the holders of places of a limited queue, and none for an unlimited one."""
    shop.open()
    before = invoke("show", "shop:app", "default")
    shop.queue("default").limit(concurrency=5)

    jobs = "jobs: 0 due, 0 later, 0 running, 0 waiting, 0 dead; 0 live workers serve it\n"
    assert f"queue default: open; no limits\n{jobs}" == before
    assert f"queue default: open; 5 at once\n{jobs}held: 0\n" == invoke("show", "shop:app", "default")


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
    answer = redrive("queues", "limit", "shop:app", "mail", "--new", *words)

    assert 2 == answer.status
    assert message in answer.err


def test_a_change_without_a_limit_is_refused(redrive, shop: App):
    """Name the options, and the command that shows the present limits; change nothing."""
    shop.open()
    answer = redrive("queues", "limit", "shop:app", "default")

    assert (2, "") == (answer.status, answer.out)
    assert "no limit is given: write --concurrency, --per-partition, --rate" in answer.err
    assert "redrive queues show shop:app default prints the present ones" in answer.err
    assert () == shop.database.audit()
