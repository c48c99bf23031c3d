"""`redrive doctor`: what needs a person, and what to do."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from redrive import App, __version__
from redrive.stores.operations import workers


def test_a_healthy_database_needs_no_person(redrive, shop: App):
    """Print a line for each part, and exit with 0."""
    shop.store.run(workers.register("here:1", concurrency=1, lease_for=timedelta(hours=1), version=__version__))
    output = redrive("doctor", "shop:app")
    lines = output.out.splitlines()

    assert (0, "") == (output.status, output.err)
    assert ["ok"] * 5 == [line.split()[0] for line in lines]
    assert ["database:", "schema:", "clock:", "workers:", "oldest:"] == [line.split()[1] for line in lines]
    assert "sqlite:///shop.db?synchronous=normal, journal mode wal, synchronous normal" in lines[0]


def test_a_problem_is_printed_with_what_to_do(redrive, shop: App):
    """Print the command below the finding, and exit with 1."""
    shop.tasks["charge"].options(queue="mail").enqueue(5)
    shop.queue("mail").pause()
    output = redrive("doctor", "shop:app")
    lines = output.out.splitlines()

    assert (1, "2 problems\n") == (output.status, output.err)
    assert "problem  workers: no worker is alive, and jobs are due" in lines
    assert "         redrive queues resume shop:app mail" in lines


def test_findings_can_be_printed_as_json(redrive, shop: App):
    """Print one object per finding."""
    shop.tasks["charge"].enqueue(5)
    output = redrive("doctor", "shop:app", "--json")
    rows = {row["check"]: row for row in map(json.loads, output.out.splitlines())}

    assert 1 == output.status
    assert {
        "check": "workers",
        "severity": "problem",
        "text": "no worker is alive, and jobs are due",
        "advice": "redrive worker shop:app",
    } == rows["workers"]


def test_a_missing_database_is_a_problem(redrive, shop: App, tmp_path: Path):
    """Report it as a finding, and create none."""
    output = redrive("doctor", "shop:app")

    assert (1, "1 problem\n") == (output.status, output.err)
    assert output.out.startswith(f"problem  database: {tmp_path}/shop.db does not exist")
    assert not (tmp_path / "shop.db").exists()
