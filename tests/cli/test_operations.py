"""`redrive operations`, and the operations that `redrive jobs` starts."""

from __future__ import annotations

import json
from collections.abc import Callable

from redrive import App, Filter
from redrive.engine.lifecycle import State
from tests.cli.conftest import Output


def test_commands_by_filter_are_operations(shop: App, redrive: Callable[..., Output]):
    """Changes by filter are operations, which are listed, shown and taken back."""
    shop.tasks["charge"].options(delay="1h").enqueue_many([5, 6, 7])
    done = redrive("jobs", "cancel", "shop:app", "--task", "charge", "--why", "wrong", "--actor", "ann")
    table = redrive("operations", "list", "shop:app").out
    shown = redrive("operations", "show", "shop:app", "1").out
    undone = redrive("operations", "undo", "shop:app", "1")
    again = redrive("operations", "undo", "shop:app", "1")

    assert (0, "3 jobs are cancelled\n") == (done.status, done.out)
    assert "operation 1: workers carry it on if this command is interrupted\n" == done.err
    assert ["1", "done", "cancel", "task", "charge", "3", "0", "3", "-", "ann"] == table.splitlines()[1].split()
    assert "3 jobs changed, 0 kept, of 3\n" in shown
    assert "operation 2 has taken operation 1 back: 3 jobs changed, 0 kept\n" == undone.out
    assert "redrive: operation 1 cannot be undone: operation 2 takes it back already\n" == again.err
    assert {State.READY} == {shop.job(number).state for number in (1, 2, 3)}
    assert "undone by operation 2\n" in redrive("operations", "show", "shop:app", "1").out
    assert "undo of operation 1, started by" in redrive("operations", "show", "shop:app", "2").out


def test_operations_are_json(shop: App, redrive: Callable[..., Output]):
    """Lists and single operations are printed as JSON, with the ids of the jobs in each batch."""
    shop.tasks["charge"].options(delay="1h").enqueue(5)
    redrive("jobs", "cancel", "shop:app", "--task", "charge")
    listed = json.loads(redrive("operations", "list", "shop:app", "--json").out)
    shown = json.loads(redrive("operations", "show", "shop:app", "1", "--json").out)

    assert ("done", "task:charge", 1) == (listed["state"], listed["q"], listed["done"])
    assert [[], ["1"]] == [each["ids"] for each in shown["batches"]]


def test_an_operation_is_stopped(shop: App, redrive: Callable[..., Output]):
    """Operations that run are stopped; those that have ended, and unknown ones, are errors."""
    shop.tasks["charge"].options(delay="1h").enqueue(5)
    shop.operations.start(shop.operations.preview("cancel", Filter(task="charge")), rate="1/1h")

    assert "operation 1 is stopped: 0 jobs changed, 0 kept\n" == redrive("operations", "stop", "shop:app", "1").out
    assert "redrive: operation 1 is stopped: only one that runs can be stopped\n" == (
        redrive("operations", "stop", "shop:app", "1").err
    )
    assert (1, "redrive: there is no operation 9\n") == (
        (missing := redrive("operations", "show", "shop:app", "9")).status,
        missing.err,
    )


def test_a_dry_run_starts_no_operation(shop: App, redrive: Callable[..., Output]):
    """Dry runs, and filters that match nothing, start no operation."""
    shop.tasks["charge"].options(delay="1h").enqueue(5)
    redrive("jobs", "repolicy", "shop:app", "--task", "charge", "--dry-run")
    redrive("jobs", "cancel", "shop:app", "--task", "stop")

    assert "no operation has been started\n" == redrive("operations", "list", "shop:app").out
