"""Concurrent changes of the same items on PostgreSQL: no deadlocks, and no leftovers.

Two workers settle batches, two sweep, one starts, one tracks all items over and over in changing orders, and three
update, trigger and untrack. Each does so a number of times; a clock that all of them advance makes items due and
overdue all the time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import errors, sql

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.outcome import Succeeded
from redrive.errors import NotTracked
from redrive.schedule import Exhausted
from redrive.stores.opening import open_store
from redrive.stores.operations import checks, leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.refresh import finish, manage, start
from redrive.stores.operations.refresh.manage import NewItem
from redrive.stores.store import Store
from tests import postgres
from tests.stores.helpers import LONG, T0, Harness, failed, seconds
from tests.stores.recurring import Clockwork, keeping, samples

ROUNDS = 25

KEYS = ["a", "b", "c"]

DEFINITION = keeping(delays=(seconds(1),) * 3, on_exhausted=Exhausted.WAIT_NEXT)

_ticks = itertools.count()


def _now() -> dict[str, object]:
    return {"now": T0 + next(_ticks) * seconds(20)}


def _work(store: Store, seed: int) -> None:
    me = store.run(workers.register("h:1", concurrency=9, lease_for=LONG, now=T0))
    for step in range(ROUNDS):
        claims = store.run(leases.claim(me, 3, lease_for=LONG, **_now())).claims
        endings = [Ending(each, failed() if (each.id + step + seed) % 3 else Succeeded(), 0.0) for each in claims]
        store.run(leases.settle(endings, **_now()))


def _sweep(store: Store, _: int) -> None:
    for _round in range(ROUNDS):
        store.run(finish.end_overdue(10, samples(), **_now()))


def _start(store: Store, _: int) -> None:
    for _round in range(ROUNDS):
        store.run(start.start_due("fresh", 10, samples(), **_now()))


def _track(store: Store, seed: int) -> None:
    orders = itertools.cycle(itertools.permutations(KEYS))
    for order in itertools.islice(orders, seed, seed + ROUNDS):
        items = [NewItem(key, b"{}") for key in order]
        store.run(manage.track(DEFINITION, items, samples(), **_now()))


def _people(store: Store, seed: int) -> None:
    wants: list[Callable[[str], object]] = [
        lambda key: store.run(manage.update("fresh", key, 0.0, **_now())),
        lambda key: store.run(manage.trigger("fresh", key, 0.0, **_now())),
        lambda key: store.run(manage.untrack("fresh", key, **_now())),
    ]
    for step in range(seed, seed + ROUNDS):
        try:
            wants[2 if step % 11 == 0 else step % 2](KEYS[step * seed % 3])
        except NotTracked:
            continue  # another thread has untracked it


EVERYBODY = [_work, _work, _sweep, _sweep, _start, _track, _people, _people, _people]


def test_concurrent_changes_of_the_same_items():
    """No operation fails by a deadlock, the invariants hold, and each remaining attempt belongs to its item."""
    url = postgres.url()
    root = Clockwork(Harness(url, "sync"), DEFINITION)
    root.track(*KEYS)
    stores = [open_store(url) for _ in EVERYBODY]
    with ThreadPoolExecutor(len(EVERYBODY)) as pool:
        work = zip(EVERYBODY, stores, strict=True)
        running = [pool.submit(each, store, seed) for seed, (each, store) in enumerate(work)]
    errors = [each.exception() for each in running if each.exception()]
    root.track(*KEYS)
    going = sorted(job.id for job in root.jobs() if job.state not in FINAL)
    expected = sorted(item.job_id for key in KEYS if (item := root.item(key)).job_id is not None)
    findings = root.do(checks.check()).findings
    for each in (root.store, *stores):
        each.close()

    assert [] == errors
    assert expected == going
    assert () == findings


ACTIONS = {
    "trigger": lambda: manage.trigger("fresh", "a", 0.0, now=T0 + seconds(1)),
    "update": lambda: manage.update("fresh", "a", 0.0, now=T0 + seconds(1)),
    "untrack": lambda: manage.untrack("fresh", "a", now=T0 + seconds(1)),
}


def _ended(root: Clockwork, changing: Store) -> tuple[list[State], object]:
    """Return the states of all attempts, the first one first, and what a check finds; close the stores."""
    states = [job.state for job in sorted(root.jobs(), key=lambda job: job.id)]
    findings = root.do(checks.check()).findings
    changing.close()
    root.store.close()
    return states, findings


ITEM = "SELECT FROM {}.redrive_refreshes FOR UPDATE"

JOB = "SELECT FROM {}.redrive_jobs WHERE state = 'ready' FOR UPDATE"


@pytest.mark.parametrize("action", ACTIONS)
def test_an_attempt_that_begins_during_the_wait_is_ended_although_it_is_locked(action: str):
    """A change that waits for an item ends the attempt that has begun, after the claim that holds its job."""
    url = postgres.url(name := postgres.fresh())
    root = Clockwork(Harness(url, "sync"), DEFINITION)
    root.track("a", at_once=False)
    schema = sql.Identifier(name)
    changing = open_store(url)
    with (
        ThreadPoolExecutor(2) as pool,
        postgres.connect(autocommit=False) as first,
        postgres.connect(autocommit=False) as second,
        postgres.connect(autocommit=False) as claim,
    ):
        root.store.raw.run(manage.trigger("fresh", "a", 0.0, now=T0), using=first)
        holds = pool.submit(second.execute, sql.SQL(ITEM).format(schema))
        postgres.until_blocked(first)
        changed = pool.submit(changing.run, ACTIONS[action]())
        postgres.until_blocked(second)
        first.commit()
        holds.result()
        claim.execute(sql.SQL(JOB).format(schema))
        second.commit()
        postgres.until_blocked(claim)
        claim.commit()
        changed.result()
    states, findings = _ended(root, changing)

    assert [State.CANCELLED, State.READY][: len(states)] == states
    assert () == findings


@pytest.mark.parametrize("action", ACTIONS)
def test_an_item_that_is_tracked_anew_during_the_wait_is_changed_with_its_attempt(action: str):
    """A change that waits for an item, which is deleted and tracked again, ends the attempt of the new one."""
    url = postgres.url()
    root = Clockwork(Harness(url, "sync"), DEFINITION)
    root.track("a", at_once=False)
    changing = open_store(url)
    with ThreadPoolExecutor(1) as pool, postgres.connect(autocommit=False) as first:
        root.store.raw.run(manage.untrack("fresh", "a", now=T0), using=first)
        root.store.raw.run(manage.track(DEFINITION, [NewItem("a", b"{}")], samples(), now=T0), using=first)
        changed = pool.submit(changing.run, ACTIONS[action]())
        postgres.until_blocked(first)
        first.commit()
        changed.result()
    states, findings = _ended(root, changing)

    assert [State.CANCELLED, State.READY][: len(states)] == states
    assert () == findings


@pytest.mark.parametrize("action", ACTIONS)
def test_a_change_leaves_no_savepoint_in_the_transaction_of_its_caller(action: str):
    """A caller who changes many items in one transaction has no subtransaction for each of them."""
    root = Clockwork(Harness(postgres.url(), "sync"), DEFINITION)
    root.track("a", at_once=False)
    with postgres.connect(autocommit=False) as mine:
        root.store.raw.run(ACTIONS[action](), using=mine)
        with pytest.raises(errors.InvalidSavepointSpecification):
            mine.execute("ROLLBACK TO SAVEPOINT locks")
    root.store.close()
