"""Every pair of a feature, a verb, a moment and an ending, on SQLite and on PostgreSQL; CONTRIBUTING describes it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crossings import calls, deliveries, jobs, layers, machines, refreshes, runs
from tests.crossings.arrays import SEED, Row, Table, ids
from tests.stores.helpers import empty

TABLES = (
    runs.RUNS,
    deliveries.DELIVERIES,
    machines.MACHINES,
    refreshes.REFRESHES,
    jobs.JOBS,
    calls.CALLS,
    calls.REQUESTS,
    layers.LAYERS,
)


def crossing(table: Table) -> pytest.MarkDecorator:
    """Return the mark that runs a test for each row of a table."""
    rows = table.rows()
    return pytest.mark.parametrize("row", rows, ids=ids(rows, table))


@pytest.fixture(scope="module", autouse=True)
def _settled() -> Iterator[None]:
    """Have collections of garbage pass over the objects of all tests before: each row on PostgreSQL ends with one."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def play(scenario: Callable[[Row, str], None], row: Row, folder: Path) -> None:
    """Play a scenario on an empty store of its kind."""
    if row["store"] == "sqlite":
        with empty("file", folder) as url:
            scenario(row, url)
        return
    # A worker that dies in the middle of a statement leaves its connection to the garbage collector, and that warns.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning), empty("postgres", folder) as url:
        scenario(row, url)
        gc.collect()


@crossing(runs.RUNS)
def test_a_run(row: Row, tmp_path: Path):
    """A run ends as the model says, with the effects that it says."""
    play(runs.play, row, tmp_path)


@crossing(deliveries.DELIVERIES)
def test_deliveries(row: Row, tmp_path: Path):
    """Each event is delivered, in its order, with one job and one effect at most."""
    play(deliveries.play, row, tmp_path)


@crossing(machines.MACHINES)
def test_an_instance(row: Row, tmp_path: Path):
    """An instance comes to a state that the model allows, and makes each transition as often as that allows."""
    play(machines.play, row, tmp_path)


@crossing(refreshes.REFRESHES)
def test_an_item(row: Row, tmp_path: Path):
    """An item is refreshed as often as the model says, and waits for its next time unless it stands still."""
    play(refreshes.play, row, tmp_path)


@crossing(jobs.JOBS)
def test_a_job(row: Row, tmp_path: Path):
    """A job ends as the model says, does its work as often as that allows, and is counted."""
    play(jobs.play, row, tmp_path)


@crossing(calls.CALLS)
def test_a_call(row: Row):
    """A call in process makes the attempts and waits that its policy decides on, and a cancellation ends it."""
    calls.play(row)


@crossing(calls.REQUESTS)
def test_a_request(row: Row):
    """A request through a retrying transport is sent as often as its policy decides, and a cancellation ends it."""
    calls.play(row)


@crossing(layers.LAYERS)
def test_layers(row: Row):
    """A retried call in another one, in a job or in a step does not multiply its attempts, wherever it is made."""
    layers.play(row)


@pytest.mark.parametrize("table", TABLES, ids=[table.name for table in TABLES])
def test_each_combination_is_in_a_row(table: Table, record_property: Callable[[str, object], None]):
    """Each pair of values, in the long form each triple, is in a row or makes no sense; the numbers are printed."""
    rows = table.rows()
    pairs, triples = (len(table.seen(rows, size)) for size in (2, 3))
    figure = f"crossings of {table.name}: {len(rows)} rows with {pairs} pairs and {triples} triples, seed {SEED}"
    record_property("figure", figure)

    assert [] == table.missing(rows)
