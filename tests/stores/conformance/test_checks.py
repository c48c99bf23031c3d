"""The invariant checker: no finding for valid states, and one for each violated invariant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Cancelled, Snoozed, Succeeded
from redrive.engine.queue import QueueChange
from redrive.engine.records import KeyUntil
from redrive.stores.operations import checks, queues, settlements
from redrive.stores.query import Query
from redrive.stores.statements import loader
from tests.stores.helpers import FATAL, Harness, failed, new, seconds
from tests.stores.recurring import HALF, Clockwork, cron


def found(store: Harness) -> list[str]:
    """Return the violated rules."""
    return sorted({each.rule for each in store.do(checks.check()).findings})


def busy(store: Harness) -> None:
    """Return a store with jobs in all states, with keys, catches and histories."""
    keyed = replace(new(), key="u", key_until=KeyUntil.START, idempotency_key="k")
    store.enqueue(keyed, new(), new(), new(retry="0 catch mend"), new(delay=60))
    first, second, third, fourth = store.claim(4)
    store.end(first, failed())
    store.end(second, Succeeded(b"1"))
    store.end(third, Snoozed(seconds(1)))
    store.end(fourth, failed())
    store.end(store.take())
    store.end(store.take(new()), Cancelled("enough"))
    store.take(new())
    store.dead()


def test_changes_of_the_engine_cause_no_finding(store: Harness):
    """Changes made by the engine cause no finding."""
    busy(store)

    assert [] == found(store)


def test_the_attempts_that_a_catch_job_forgets_are_not_missed(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """A history of a catch job without its oldest attempts is no finding."""
    for module in (checks, settlements):
        monkeypatch.setattr(module, "CATCH_HISTORY", 3)
    store.end(store.take(new(retry="0 catch mend")), FATAL)
    for _ in range(5):
        catch = store.take()
        store.end(catch, failed())
        store.wait(7200)

    assert ([3, 4, 5], []) == ([each.number for each in store.history(catch.id)], found(store))


def test_a_check_reads_in_batches(store: Harness):
    """Checks return the next start id, or the end of the table."""
    store.enqueue(new(), new(), new())

    assert [2, None] == [store.do(checks.check(after, stride=2)).last_id for after in (0, 2)]


BREAKAGES = {
    "UPDATE redrive_jobs SET lease_id = 1000 << 20 WHERE state = 'running'": ["sequences"],
    "UPDATE redrive_jobs SET lease_id = 1 WHERE state = 'running'": ["leases"],
    "DELETE FROM redrive_keys WHERE kind = 'unique'": ["keys"],
    "UPDATE redrive_keys SET job_id = 2": ["keys"],
    "DELETE FROM redrive_payloads WHERE job_id = 5": ["payloads"],
    "DELETE FROM redrive_attempts WHERE outcome = 'failed'": ["failures"],
    "UPDATE redrive_jobs SET failures = failures + 7 WHERE id = 1": ["failures"],
    "UPDATE redrive_jobs SET caught_at = NULL WHERE id = 4": ["catches"],
    "INSERT INTO redrive_results VALUES (1, x'01')": ["results"],
    "DELETE FROM redrive_attempts WHERE job_id = 1": ["attempts"],
    "UPDATE redrive_jobs SET attempt = attempt + 1 WHERE id = 1": ["attempts"],
    "UPDATE redrive_jobs SET attempt = attempt + 1 WHERE state = 'running'": ["attempts"],
    "UPDATE redrive_attempts SET lease_id = (SELECT max(lease_id) FROM redrive_attempts) WHERE job_id = 1": ["leases"],
    "UPDATE redrive_attempts SET lease_id = 1000 << 20 WHERE job_id = 1": ["leases"],
}
"""Invalid changes of the database, and the rules that they violate."""


@pytest.mark.parametrize(("statement", "rules"), BREAKAGES.items())
def test_invalid_changes_are_found(statement: str, rules: list[str]):
    """Each invalid change of the database is found by its rule."""
    store = Harness("memory://", "sync")
    try:
        busy(store)
        if rules == ["leases"]:
            store.take(new())
        store.raw.script(lambda cursor: cursor.execute(statement))

        assert set(rules) <= set(found(store))
    finally:
        store.close()


@contextlib.contextmanager
def mutated(store: Harness, name: str, old: str, new: str) -> Iterator[None]:
    """Change a statement of redrive within the block, on SQLite."""
    statements: Any = loader.statements("sqlite")
    assert old in statements[name]
    with mock.patch.dict(statements, {name: statements[name].replace(old, new)}):
        yield


@pytest.fixture
def memory() -> Iterator[Harness]:
    """Return a store in memory with statements that can be changed."""
    store = Harness("memory://", "sync")
    yield store
    store.close()


@pytest.mark.parametrize("by", ["code", "a person"])
def test_an_uncounted_limit_is_found(memory: Harness, by: str):
    """More running attempts than the limit of their queue are a finding while they run."""
    limit = QueueChange(concurrency=1)
    now = memory.now
    memory.do(queues.declare({"q": limit}, now=now) if by == "code" else queues.change("q", limit, now=now))
    memory.wait(1)
    memory.enqueue(*[new(queue="q")] * 3)
    assert ([1], []) == ([claim.id for claim in memory.claim(3)], found(memory))

    with mutated(memory, "queue_held", "slot = :queue", "slot = :queue AND 0"):
        memory.claim(3)
    texts = [each.text for each in memory.do(checks.check()).findings]

    assert ["queue q runs 2 jobs at once, but its limit is 1"] == texts


def test_a_lowered_limit_is_no_finding(memory: Harness):
    """Attempts that ran before a deployment lowered the limit are no finding."""
    memory.do(queues.declare({"q": QueueChange(concurrency=2)}, now=memory.now))
    memory.enqueue(*[new(queue="q")] * 2)
    memory.claim(2)
    memory.wait(1)
    memory.do(queues.declare({"q": QueueChange(concurrency=1)}, now=memory.now))

    assert [] == found(memory)


def test_a_job_that_was_handed_out_twice_is_found(memory: Harness):
    """Claiming a job that already has a lease leaves an attempt open for ever, which is a finding."""
    memory.enqueue(new())
    (first,) = memory.claim(1)
    memory.enqueue(new())
    lane = "partition IS NULL AND queue = lane.queue"
    with mutated(memory, "claim", f"state = 'ready' AND {lane}", f"state IN ('ready', 'running') AND {lane}"):
        again, _ = memory.claim(2)
    assert (first.id, ["attempts"]) == (again.id, found(memory))

    memory.end(again, Succeeded(b"1"))
    (finding,) = memory.do(checks.check()).findings

    assert "job 1 counts 2 attempts that have ended, but its history has 1" == finding.text


def test_attempts_that_overlap_are_found(memory: Harness):
    """Attempts of one job do not overlap, except for a minute by which a clock may be set back."""
    store = memory
    store.enqueue(new(retry="3 1s"))
    first = store.take()
    store.end(first, failed())
    store.wait(5)
    second = store.take()
    store.end(second, failed())

    def later(by: int) -> list[str]:
        statement = "UPDATE redrive_attempts SET finished_at = finished_at + ? WHERE number = 1"
        store.raw.script(lambda cursor: cursor.execute(statement, (by * 1_000_000,)))
        return [each.text for each in store.do(checks.check()).findings]

    assert [] == later(30)
    began = f"lease {second.lease_id} of job 1 began before lease {first.lease_id} had ended"
    assert [f"{began}: two attempts ran at once, or the clock was set back"] == later(60)


def recurring(store: Harness) -> Clockwork:
    """Return a store with running, retrying, disabled and paused items, and a cron that has fired."""
    clockwork = Clockwork(store)
    clockwork.track("runs", "fails", "over", "rests", "again")
    claims = {claim.origin: claim for claim in store.claim(5)}
    store.settle((claims["refresh:fresh/fails"], failed()), (claims["refresh:fresh/over"], FATAL))
    clockwork.pause("rests")
    clockwork.trigger("again")
    clockwork.declare(cron())
    clockwork.until(HALF)
    clockwork.fire()
    return clockwork


def test_changes_of_schedules_cause_no_finding(store: Harness):
    """Changes made by schedules cause no finding."""
    recurring(store)

    assert [] == found(store)


def test_an_attempt_rerun_by_an_operator_is_no_finding(store: Harness):
    """Former attempts that an operator reruns beside the present one are no finding."""
    clockwork = Clockwork(store)
    clockwork.track("a")
    clockwork.trigger()
    store.retry(clockwork.jobs()[0].id)

    assert [] == found(store)


def test_an_item_that_waits_for_no_job_is_found(store: Harness):
    """Items with a missing, ended or foreign job never continue, which is a finding."""
    clockwork = recurring(store)
    over, other = clockwork.jobs()[2].id, store.put()
    texts = []
    for number in (4711, over, other):
        clockwork.rename("rests", job_id=number)
        texts += [each.text for each in store.do(checks.check()).findings if each.id == number]

    assert [
        "fresh/rests waits for job 4711, which is not there",
        f"fresh/rests waits for job {over}, which is for refresh:fresh/over",
        f"fresh/rests waits for job {other}, which is for nothing",
    ] == texts


def test_an_item_that_missed_the_end_of_its_attempt_is_found(store: Harness):
    """If the end of an attempt could not update its item, that is a finding until the deadline."""
    clockwork = Clockwork(store)
    claim = clockwork.running()
    clockwork.spoil_policy()
    store.end(claim)
    (finding,) = store.do(checks.check()).findings

    assert (claim.id, "refreshes", f"fresh/a waits for job {claim.id}, which is succeeded") == (
        finding.id,
        finding.rule,
        finding.text,
    )


def test_an_attempt_without_a_waiting_item_is_found(store: Harness):
    """Running attempts of an item that waits for another attempt are a finding."""
    clockwork = recurring(store)
    first, second = (clockwork.item(key).job_id for key in ("runs", "rests"))
    clockwork.rename("runs", job_id=second or 0)
    texts = {each.text for each in store.do(checks.check()).findings}

    assert f"job {first} is running, but fresh/runs waits for job {second}" in texts


def test_a_cron_with_a_job_of_another_origin_is_found(store: Harness):
    """If the latest job of a cron has another origin, that is a finding."""
    clockwork = recurring(store)
    other = store.put()
    row = {
        name: getattr(clockwork.schedule(), name)
        for name in ("name", "paused_at", "paused_by", "resumed_at", "next_at")
    }
    clockwork.ask(Query("schedule_move", row | {"job_id": other, "queued_at": None}))
    (finding,) = store.do(checks.check()).findings

    assert ("crons", f"cron nightly has made job {other}, which is for nothing") == (finding.rule, finding.text)
