"""Progress reports of handlers, accepted from the current attempt only."""

from __future__ import annotations

from redrive.engine.outcome import Suspended
from redrive.engine.records import Progress
from redrive.stores.operations import attempts, workers
from redrive.stores.operations import managing_runs as manage
from tests.stores.helpers import Harness, failed, new, seconds
from tests.stores.runs import begin, run


def test_the_last_report_is_kept(store: Harness):
    """Reports store the details, the lease and the time."""
    claim = store.take(new())
    before = store.progress(claim.id)
    store.report((claim, '{"done":1}'))
    store.wait(5)

    assert (None, frozenset({claim.lease_id})) == (before, store.report((claim, '{"done":2}')))
    assert Progress(claim.id, claim.lease_id, '{"done":2}', store.now) == store.progress(claim.id)


def test_a_heartbeat_without_details_keeps_the_last_report(store: Harness):
    """Heartbeats without details change the time only."""
    claim = store.take(new())
    store.report((claim, "[1]"))
    store.wait(5)
    store.report((claim, None))

    assert Progress(claim.id, claim.lease_id, "[1]", store.now) == store.progress(claim.id)


def test_a_first_heartbeat_without_details_is_null(store: Harness):
    """Store a first heartbeat without details with null details."""
    claim = store.take(new())
    store.report((claim, None))

    assert Progress(claim.id, claim.lease_id, "null", store.now) == store.progress(claim.id)


def test_a_stale_attempt_reports_nothing(store: Harness):
    """Reports under a lost lease change nothing, and the others of the batch are stored."""
    zombie = store.take(new(retry="3 1s"))
    store.end(zombie, failed())
    store.wait(1)
    claim, other = store.take(), store.take(new())
    store.report((claim, '"B"'))

    assert frozenset({other.lease_id}) == store.report((zombie, '"A"'), (other, '"C"'))
    assert ('"B"', '"C"') == (_stored(store, claim.id), _stored(store, other.id))


def _stored(store: Harness, number: int) -> str | None:
    progress = store.progress(number)
    return progress and progress.details


def test_progress_outlives_the_attempt(store: Harness):
    """Progress of the last attempt can be read by the next attempt and by operators."""
    claim = store.take(new())
    store.report((claim, "50"))
    store.end(claim)

    assert "50" == _stored(store, claim.id)
    assert frozenset() == store.report((claim, "60"))


def test_an_attempt_can_ask_whether_it_is_current(store: Harness):
    """Attempts are current until they end, also while they wait."""
    claim = store.take(new())
    ask = [(claim.id, claim.lease_id), (claim.id, claim.lease_id + 1), (claim.id + 1, claim.lease_id)]

    assert [True, False, False] == [store.do(attempts.is_current(*each)) for each in ask]

    store.end(claim, Suspended(seconds(1)))
    waiting = store.do(attempts.is_current(claim.id, claim.lease_id))
    store.cancel(claim.id)

    assert (True, False) == (waiting, store.do(attempts.is_current(claim.id, claim.lease_id)))


def test_a_check_returns_the_lost_leases(store: Harness):
    """Between two heartbeats a worker can read its lost leases; waiting attempts are not included."""
    worker = store.worker()
    claims = [store.take(new(), worker=worker) for _ in range(3)]
    store.cancel(claims[0].id)
    store.end(claims[1], Suspended(seconds(60)))

    assert frozenset({claims[2].lease_id}) == store.do(workers.held(worker))
    assert frozenset() == store.do(workers.held(worker + 1))


def test_a_worker_reads_what_operators_ask_of_its_runs(store: Harness):
    """A look answers the runs that were cancelled or paused, by their leases, and nothing of other jobs."""
    begin(store, run("a"), run("b"), run("c"))
    store.enqueue(new())
    first, second, *others = store.claimed(4).claims
    store.do(manage.cancel("checkout", "a", now=store.now))
    store.do(manage.pause("checkout", "b", now=store.now))

    pulse = store.do(workers.look(store.me))
    assert {first.lease_id: "cancel", second.lease_id: "pause"} == pulse.asked
    assert {first.lease_id, second.lease_id, *(each.lease_id for each in others)} == pulse.leases
    assert pulse.asked == store.do(workers.beat(store.me, seconds(60), now=store.now)).asked
