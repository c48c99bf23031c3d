"""Costs of crons and refreshes, which do not depend on the number of other tracked items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive.engine.outcome import Succeeded
from redrive.stores.operations import checks, leases, schedules
from redrive.stores.operations.refresh import finish, items, manage, start
from redrive.stores.operations.refresh.manage import NewItem
from redrive.stores.query import Operation
from tests.stores.helpers import T0, failed
from tests.stores.recurring import HALF, HOUR, cron, keeping, samples
from tests.stores.statements.sqlite.test_plans import FLAT, Counted

FEW, MANY = 500, 20_000

FRESH = keeping(give_up_after=100 * HOUR)


def wait(database: Counted, count: int) -> None:
    """Return this many items that wait for their schedule, twenty of them for one that comes first."""
    items = [NewItem(f"k{number:06}", b"{}") for number in range(count)]
    database.run(manage.track(FRESH, items, samples(), at_once=False, now=HALF))
    early = [NewItem(f"early{number:02}", b"{}") for number in range(20)]
    database.run(manage.track(FRESH, early, samples(), at_once=False, now=T0))


def run(database: Counted, count: int) -> None:
    """Return this many running items, twenty of them started long ago."""
    early = [NewItem(f"early{number:02}", b"{}") for number in range(20)]
    database.run(manage.track(FRESH, early, samples(), now=T0))
    items = [NewItem(f"k{number:06}", b"{}") for number in range(count)]
    database.run(manage.track(FRESH, items, samples(), now=HALF))


KINDS = {"wait": wait, "run": run}


@pytest.fixture(scope="module")
def made() -> Iterator[Callable[[str, int], Counted]]:
    """Create databases with this many items of a kind, each once."""
    known: dict[tuple[str, int], Counted] = {}

    def make(kind: str, count: int) -> Counted:
        if (kind, count) not in known:
            known[kind, count] = database = Counted()
            database.run(schedules.declare([FRESH, cron()], now=T0))
            KINDS[kind](database, count)
        return known[kind, count]

    yield make
    for each in known.values():
        each.connection.close()


ASKED: dict[str, tuple[str, Callable[[Counted], Operation[Any]]]] = {
    "a look": ("wait", lambda _: schedules.status(now=HALF)),
    "a look while all run": ("run", lambda _: schedules.status(now=HALF)),
    "a start of five": ("wait", lambda _: start.start_due("fresh", 5, samples(), now=HALF)),
    "a start of none": ("run", lambda _: start.start_due("fresh", 5, samples(), now=HALF)),
    "a sweep of five": ("run", lambda _: finish.end_overdue(5, samples(), now=HALF)),
    "a sweep of none": ("wait", lambda _: finish.end_overdue(5, samples(), now=HALF)),
    "a replan of none": ("wait", lambda _: start.replan("fresh", 5, samples(), now=HALF)),
    "an update": ("run", lambda _: manage.update("fresh", "k000001", 0.0, now=HALF)),
    "tracking once more": ("wait", lambda _: manage.track(FRESH, [NewItem("k000001", b"1")], samples(), now=HALF)),
    "a page": ("wait", lambda _: items.select("fresh", after="k000100", limit=10)),
    "a page of trouble": ("run", lambda _: items.select("fresh", limit=10, troubled=True)),
    "a check": ("wait", lambda _: checks.check(0, stride=100)),
}
"""The statements, with the kind of database that each of them uses."""


@pytest.mark.parametrize("what", ASKED)
def test_read_statements_cost_the_same_with_many_items(made: Callable[[str, int], Counted], what: str):
    """With forty times as many items, each statement takes at most 1.2 times the steps."""
    kind, operation = ASKED[what]
    few, many = (database.steps(operation(database)) for database in (made(kind, count) for count in (FEW, MANY)))

    assert many <= few * FLAT + 20


@pytest.mark.parametrize("outcome", [Succeeded(b"1"), failed()], ids=["success", "failure"])
def test_an_answer_costs_the_same_with_many_items(made: Callable[[str, int], Counted], outcome: Any):
    """Settling five attempts finds five items by their keys."""
    costs = []
    for count in (FEW, MANY):
        database = made("run", count)
        claims = database.run(database.claim(5, at=3600)).claims
        assert 5 == len(claims)
        endings = [leases.Ending(each, outcome, 0.0) for each in claims]
        costs.append(database.steps(leases.settle(endings, now=HALF)))

    assert costs[1] <= costs[0] * FLAT + 20


def test_the_cost_of_a_replan_follows_its_batch(made: Callable[[str, int], Counted]):
    """After a deployment a batch of ten costs the same, however many items are still to be rescheduled."""
    costs = []
    for count in (FEW, MANY):
        database = made("wait", count)
        database.run(schedules.declare([keeping()], now=HALF))
        costs.append(database.steps(start.replan("fresh", 10, samples(), now=HALF)))

    assert costs[1] <= costs[0] * FLAT + 20
    assert costs[0] > 20
