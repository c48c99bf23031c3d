"""The invariant checker: silent on what the engine does, and loud on what it would never do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Cancelled, Snoozed, Succeeded
from redrive.engine.records import KeyUntil
from redrive.stores.operations import checks
from tests.stores.helpers import Harness, failed, new, seconds


def found(store: Harness) -> list[str]:
    """The rules that are broken."""
    return sorted({each.rule for each in store.do(checks.check()).findings})


def busy(store: Harness) -> None:
    """A bit of everything: jobs in all states, with keys, catches and histories."""
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


def test_nothing_is_found_where_only_the_engine_was(store: Harness):
    """Whatever the engine did, nothing is wrong with it."""
    busy(store)

    assert [] == found(store)


def test_a_check_walks_in_strides(store: Harness):
    """A check says where to go on, and at the end that there are no more jobs."""
    store.enqueue(new(), new(), new())

    assert [2, None] == [store.do(checks.check(after, stride=2)).last_id for after in (0, 2)]


BREAKAGES = {
    "UPDATE redrive_jobs SET lease_id = 1000 WHERE state = 'running'": ["sequences"],
    "UPDATE redrive_jobs SET lease_id = 1 WHERE state = 'running'": ["leases"],
    "DELETE FROM redrive_keys WHERE kind = 'unique'": ["keys"],
    "UPDATE redrive_keys SET job_id = 2": ["keys"],
    "DELETE FROM redrive_payloads WHERE job_id = 5": ["payloads"],
    "DELETE FROM redrive_attempts WHERE outcome = 'succeeded'": ["successes"],
    "DELETE FROM redrive_attempts WHERE outcome = 'failed'": ["failures"],
    "UPDATE redrive_jobs SET failures = failures + 7 WHERE id = 1": ["failures"],
    "UPDATE redrive_jobs SET caught_at = NULL WHERE id = 4": ["catches"],
    "INSERT INTO redrive_results VALUES (1, x'01')": ["results"],
}
"""What nobody should do, and which rules it breaks."""


@pytest.mark.parametrize(("statement", "rules"), BREAKAGES.items())
def test_what_must_not_be_is_found(statement: str, rules: list[str]):
    """Each breakage of the database, done past the engine, is found by its rule."""
    store = Harness("memory://", "sync")
    try:
        busy(store)
        if rules == ["leases"]:
            store.take(new())
        store.raw._driver.script(lambda cursor: cursor.execute(statement))

        assert set(rules) <= set(found(store))
    finally:
        store.close()
