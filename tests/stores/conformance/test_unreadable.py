"""Jobs with unreadable policies: they are held, visible to operators, and block no other job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.engine import frozen
from redrive.engine.frozen import freeze
from redrive.engine.lease import UNREADABLE_LOOK
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded, Suspended
from redrive.engine.records import Filter, Hold
from redrive.policy import Backoff, Policy
from redrive.stores.operations.admin import select
from redrive.stores.operations.redriving import repolicy
from tests.stores.helpers import Harness, new, seconds

FUNCTION = {"works": True}


def tariff(retry: int) -> float:
    """Return a delay, or raise SystemExit after ``break_it()``."""
    if not FUNCTION["works"]:
        raise SystemExit("no tariff")
    return 1.0


Backoff.register("tests.unreadable.tariff", tariff)
ODD = new(backoff=Backoff.named("tests.unreadable.tariff"), jitter="none")


@pytest.fixture(autouse=True)
def _working() -> Iterator[None]:
    """Let the function work at first, and clear the cache of policies."""
    FUNCTION["works"] = True
    frozen.thaw.cache_clear()
    yield
    FUNCTION["works"] = True


def break_it() -> None:
    """Let the function fail from now on."""
    FUNCTION["works"] = False
    frozen.thaw.cache_clear()


def held(store: Harness) -> list[tuple[int, State]]:
    """Return the jobs that are held for their policies."""
    return [(job.id, job.state) for job in store.do(select(Filter(hold=Hold.BAD_POLICY)))]


def test_a_due_job_is_held_and_the_others_are_claimed(store: Harness):
    """If a function raises while the policy is read, only its own job is held."""
    odd, good = store.enqueue(ODD, new())
    break_it()
    claims = store.claim(2)
    note = store.job(odd).note

    assert ([good], [(odd, State.READY)]) == ([claim.id for claim in claims], held(store))
    assert note == (
        "its policy cannot be read: SystemExit: no tariff; waits for a worker that can read it, "
        "or for redrive jobs repolicy"
    )


def test_attempts_of_the_dead_that_cannot_be_decided_do_not_block_the_sweep(store: Harness):
    """Undecidable attempts, as many as one pass reads, are set aside, and the next pass takes the others."""
    dead = store.worker()
    odd = [store.take(ODD, worker=dead).id for _ in range(3)]
    good = store.take(new(), worker=dead).id
    break_it()
    store.wait(16)
    first, second, third = store.sweep(3), store.sweep(3), store.sweep(3)

    assert [odd, [good], []] == [sorted(each.job_id for each in moved) for moved in (first, second, third)]
    assert State.READY is store.job(good).state
    assert sorted((number, State.RUNNING) for number in odd) == sorted(held(store))


def test_expired_waits_that_cannot_be_decided_do_not_block_others(store: Harness):
    """Undecidable waits, as many as one pass reads, are set aside, and the next pass ends the others."""
    waiting = [store.take(wanted) for wanted in (ODD, ODD, new())]
    for claim in waiting:
        store.end(claim, Suspended(seconds(10)))
    break_it()
    store.wait(11)
    moved = [len(store.lapse(2)) for _ in range(3)]

    assert [2, 1, 0] == moved
    assert State.READY is store.job(waiting[2].id).state
    assert {State.WAITING} == {state for _, state in held(store)}


@pytest.mark.parametrize("waits", [False, True])
def test_held_jobs_are_decided_once_their_policy_can_be_read(store: Harness, waits: bool):
    """Held jobs are decided by the next pass, or once an operator changes their policy."""
    dead = store.worker()
    by_itself, by_hand = store.take(ODD, worker=dead), store.take(ODD, worker=dead)
    if waits:
        store.end(by_itself, Suspended(seconds(10)))
        store.end(by_hand, Suspended(seconds(10)))
    break_it()
    store.wait(16)
    look = store.lapse if waits else store.sweep
    look()
    done = store.do(repolicy(Filter(ids=(by_hand.id,)), {"send": freeze(Policy(attempts=2))}, now=store.now))

    assert (by_hand.id,) == done.ids
    assert [by_hand.id] == [each.job_id for each in look()]
    FUNCTION["works"] = True
    store.wait(UNREADABLE_LOOK.total_seconds())
    assert [by_itself.id] == [each.job_id for each in look()]
    assert [] == held(store)


def test_a_held_attempt_may_still_be_ended_by_its_worker(store: Harness):
    """Held attempts keep their lease, since a worker that was presumed dead may have finished the work."""
    dead = store.worker()
    claim = store.take(ODD, worker=dead)
    break_it()
    store.wait(16)
    store.sweep()
    store.end(claim, Succeeded())

    assert (State.SUCCEEDED, None) == (store.job(claim.id).state, store.job(claim.id).hold)


def test_a_held_job_is_released_by_repolicy(store: Harness):
    """Changing the policy of a held job makes it due at once, under the new policy."""
    number = store.put(ODD)
    break_it()
    store.claim()
    store.do(repolicy(Filter(ids=(number,)), {"send": freeze(Policy(attempts=2))}, now=store.now))

    assert [number] == [claim.id for claim in store.claim()]


def test_a_decision_that_raises_ends_its_own_job_only(store: Harness):
    """If a readable policy raises after the wait, the job is dead, with the traceback in its history."""
    odd, good = store.take(ODD), store.take(new())
    for claim in (odd, good):
        store.end(claim, Suspended(seconds(10)))
    FUNCTION["works"] = False
    store.wait(11)
    store.lapse()
    job, (line,) = store.job(odd.id), store.history(odd.id)

    assert (State.DEAD, "BAD_POLICY", State.READY) == (job.state, job.reason, store.job(good.id).state)
    assert "the decision about this attempt failed: SystemExit: no tariff" == job.error
    assert "in tariff\n" in (line.traceback or "")
    assert store.redrive(Filter(reason="BAD_POLICY")).ids == (odd.id,)
