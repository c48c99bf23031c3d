"""Queues with settings: paused, limited, ordered, or with partitions in rotation."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.explain import CatchJob, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Failed, Outcome, Released, Succeeded
from redrive.engine.queue import QueueChange, QueueSettings, Rate
from redrive.engine.records import Claim, NewJob
from redrive.errors import ConfigurationError
from redrive.policy import Failure
from redrive.stores.operations import admin, jobs, leases, limited_queues, queues
from redrive.stores.operations.leases import Ending
from tests.stores.helpers import FATAL, LEASE, LONG, T0, Harness, failed, new, seconds


def of(partition: str, task: str = "send", **options: Any) -> NewJob:
    """Return a job of a partition."""
    return replace(new(task, **options), partition=partition)


def limit(store: Harness, name: str = "default", **changes: Any) -> QueueSettings:
    """Change the settings of a queue."""
    return store.do(queues.change(name, QueueChange(**changes), now=store.now))


def ids(claims: tuple[Claim, ...]) -> list[int]:
    """Return the ids of the claimed jobs."""
    return [claim.id for claim in claims]


def partitions(claims: tuple[Claim, ...]) -> list[str | None]:
    """Return the partitions of the claimed jobs."""
    return [claim.partition for claim in claims]


def named(store: Harness, name: str | None) -> list[tuple[str, int]]:
    """Return the jobs that a queue runs, that hold its places, and that it runs next, with what they do."""
    return [(each.kind, each.id) for each in store.do(queues.present(name, now=store.now))]


def running(store: Harness) -> int:
    """Return the number of open attempts."""
    return sum(job.state is State.RUNNING for job in store.jobs())


# ---------------------------------------------------------------------------------------------------- settings


def test_a_queue_begins_without_settings(store: Harness):
    """New queues have no settings and are not listed."""
    assert QueueSettings("mail") == store.do(queues.settings("mail"))
    assert () == store.do(queues.queues())


def test_omitted_settings_stay_and_none_removes_one(store: Harness):
    """Changes set the named fields only; None removes a limit, and each change is stamped."""
    limit(store, concurrency=5, rate=Rate(10, seconds(60)), aging_for=seconds(300))
    store.wait(1)
    after = limit(store, rate=None, ordered=True, per_partition=2)

    assert after == store.do(queues.settings("default"))
    assert QueueSettings(
        "default",
        concurrency=5,
        per_partition=2,
        ordered=True,
        aging_for=seconds(300),
        changed_at=T0 + seconds(1),
    ) == after  # fmt: skip
    assert (after,) == store.do(queues.queues())


def test_code_declares_until_an_operator_has_changed_the_queue(store: Harness):
    """Declarations replace each other until an operator changes the queue; after forget they apply again."""

    def declare(concurrency: int) -> int | None:
        store.do(queues.declare({"default": QueueChange(concurrency=concurrency)}, now=store.now))
        return store.do(queues.settings("default")).concurrency

    assert [3, 4] == [declare(3), declare(4)]
    limit(store, concurrency=9)
    assert 9 == declare(4)
    store.do(queues.forget("default", now=store.now))
    assert None is store.do(queues.settings("default")).concurrency
    assert 4 == declare(4)


# ---------------------------------------------------------------------------------------------------- pause


def test_a_paused_queue_starts_nothing(store: Harness):
    """While a queue is paused its jobs are not claimed and set no due time; running ones may end."""
    first, second = store.enqueue(new(), new())
    claim = store.take()
    limit(store, paused=True)

    assert leases.Claimed((), None) == store.claimed(9)
    assert State.SUCCEEDED is store.end(claim).state
    limit(store, paused=False)
    assert [second] == ids(store.claim(9))
    assert first == claim.id


def test_a_pause_remembers_its_beginning(store: Harness):
    """Pausing a paused queue keeps the time of the first pause."""
    limit(store, paused=True)
    store.wait(5)

    assert T0 == limit(store, paused=True).paused_at


def test_a_paused_queue_with_partitions_starts_nothing(store: Harness):
    """Pauses hold jobs of partitions too."""
    store.enqueue(of("a"), of("b"))
    limit(store, paused=True)

    assert leases.Claimed((), None) == store.claimed(9)


# ---------------------------------------------------------------------------------------------------- concurrency


@pytest.mark.case("I5")
def test_running_jobs_do_not_exceed_the_limit(store: Harness):
    """Running jobs of a limited queue never exceed its limit, and a saturated queue sets no due time."""
    limit(store, concurrency=2)
    store.enqueue(*[new() for _ in range(5)])
    claims = store.claimed(9)

    assert [1, 2] == ids(claims.claims)
    assert leases.Claimed((), None) == store.claimed(9)
    store.end(claims.claims[0])
    assert [3] == ids(store.claim(9))


def test_jobs_of_other_queues_are_not_blocked(store: Harness):
    """Jobs of a saturated queue do not delay other queues, however many and however early they are due."""
    limit(store, "slow", concurrency=1)
    store.enqueue(*[new(queue="slow", priority=-1) for _ in range(50)], new(queue="fast"))

    assert ["slow", "fast"] == [claim.queue for claim in store.claim(9)]
    assert [] == ids(store.claim(9))


def test_jobs_of_all_queues_share_one_order(store: Harness):
    """Jobs of queues with and without limits are in the order of priority, due time and id."""
    limit(store, "b", concurrency=9)
    limit(store, "c", concurrency=9)
    made = store.enqueue(*[new(queue="abc"[n % 3], priority=n % 2, delay=n % 5) for n in range(30)])
    store.wait(5)
    order = sorted(made, key=lambda number: ((number - 1) % 2, (number - 1) % 5, number))

    assert order[:8] == ids(store.claim(8))
    assert order[8:18] == ids(store.claim(10))


def test_a_limit_counts_what_runs_already(store: Harness):
    """Limits that are set while jobs run count these jobs."""
    store.enqueue(*[new() for _ in range(4)])
    first = store.claim(2)
    limit(store, concurrency=2)

    assert () == store.claim(9)
    store.end(first[0])
    assert [3] == ids(store.claim(9))


def test_a_lower_limit_takes_nothing_away(store: Harness):
    """Lowering a limit stops no running attempt, and the next starts once few enough are left."""
    limit(store, concurrency=3)
    store.enqueue(*[new() for _ in range(5)])
    claims = store.claim(9)
    limit(store, concurrency=1)
    ended = [ids(store.claim(9)) for claim in claims if store.end(claim)]

    assert [[], [], [4]] == ended


@pytest.mark.parametrize(
    "how", ["success", "failure", "death", "release", "cancel", "cancel and leave", "cancel and die", "leave", "lost"]
)
def test_each_end_of_an_attempt_frees_its_slot(store: Harness, how: str):
    """Ended attempts release their slot, whatever their outcome."""
    limit(store, concurrency=1)
    store.enqueue(new(), new(priority=1))
    worker = store.worker()
    (claim,) = store.claim(1, worker=worker)
    match how:
        case "success" | "failure" | "death" | "release":
            outcome = {"success": Succeeded(), "failure": failed(), "death": FATAL, "release": Released("x", LONG)}[how]
            store.end(claim, outcome)
        case "cancel":
            store.cancel(claim.id)
            store.settle((claim, Succeeded()))
        case "cancel and leave":
            store.cancel(claim.id)
            store.leave(worker)
        case "cancel and die":
            store.cancel(claim.id)
            store.wait(15)
            store.sweep()
        case "leave":
            store.leave(worker)
        case "lost":
            store.wait(15)
            store.sweep()

    assert 1 == len(store.claim(9))
    assert 1 == running(store)


@pytest.mark.case("D32")
@pytest.mark.parametrize(
    "outcome", [Succeeded(b"1"), failed(), Cancelled("enough")], ids=["succeeds", "fails", "agrees"]
)
def test_a_cancelled_handler_holds_its_slot_until_it_has_stopped(store: Harness, outcome: Outcome):
    """If a running job is cancelled, the next one of its queue starts after its handler has stopped."""
    limit(store, concurrency=1)
    first, second, third = store.enqueue(new(), new(), new())
    claim = store.take()
    store.cancel(first)

    assert State.CANCELLED == store.job(first).state
    assert () == store.claim(9)

    store.settle((claim, outcome))

    assert [second] == ids(store.claim(9))
    assert (State.CANCELLED, State.READY) == (store.job(first).state, store.job(third).state)


def test_a_cancelled_handler_holds_the_slot_of_its_partition(store: Harness):
    """Limits of a partition count a cancelled handler until it stops; other partitions continue."""
    limit(store, per_partition=1)
    store.enqueue(of("a"), of("a"), of("b"))
    (claim, _) = store.claim(9)
    store.cancel(claim.id)
    store.enqueue(of("b"), of("c"))

    assert [5] == ids(store.claim(9))
    store.settle((claim, Succeeded()))
    assert [2] == ids(store.claim(9))


@pytest.mark.parametrize("crowd", [0, 150], ids=["few", "many"])
def test_a_cancelled_handler_blocks_its_ordered_partition(store: Harness, crowd: int):
    """In an ordered queue the next job starts when the handler of the cancelled one has stopped."""
    limit(store, ordered=True)
    store.enqueue(of("a"), of("a"), *[of("a") for _ in range(crowd)])
    (claim,) = store.claim(9)
    store.cancel(claim.id)
    before = drained_claim(store)
    store.settle((claim, Succeeded()))

    assert ([], [2]) == (before, drained_claim(store))


def drained_claim(store: Harness) -> list[int]:
    """Return the jobs of several claims, enough to examine all partitions."""
    return [number for _ in range(3) for number in ids(store.claim(9))]


def test_a_thread_past_its_timeout_holds_its_slot(store: Harness):
    """Timed-out attempts with a running thread keep their slot until it stops, and their retry waits."""
    limit(store, concurrency=1)
    store.enqueue(new())
    claim = store.take()
    store.do(leases.settle([Ending(claim, failed(), 0.0, unstopped=True)], now=store.now))
    store.wait(60)
    before = store.claim(9)
    store.do(leases.settle([], stopped=[claim.lease_id], now=store.now))

    assert ((), [claim.id]) == (before, ids(store.claim(9)))


def test_the_holder_of_a_slot_is_named(store: Harness):
    """If a job waits for a slot, the job of the handler that has not stopped is named."""
    limit(store, concurrency=1)
    first, second = store.enqueue(new(), new())
    store.take()
    store.cancel(first)

    assert [("holder", first), ("next", second)] == named(store, "default")
    assert ((first, None),) == store.do(queues.status(second, now=store.now))[1].standing.holders


def test_a_limit_that_is_set_counts_handlers_that_have_not_stopped(store: Harness):
    """Limits set after a cancellation count the cancelled handlers that still run."""
    first, _ = store.enqueue(new(), new())
    store.claim(1)
    store.cancel(first)
    limit(store, concurrency=1)

    assert () == store.claim(9)


def test_a_sweep_of_a_live_worker_keeps_the_slot(store: Harness):
    """Attempts taken from a live worker keep their slot, since their handler may still run."""
    limit(store, concurrency=1)
    store.enqueue(new(attempt_timeout="30s"))
    claim = store.take()
    store.wait(60)
    store.sweep()
    before = store.claim(9)
    store.settle((claim, Succeeded()))

    assert ((), [claim.id]) == (before, ids(store.claim(9)))


@pytest.mark.slow
@pytest.mark.case("D34")
@pytest.mark.parametrize(("most", "claimers", "trials"), [(1, 2, 500), (5, 32, 60)])
def test_a_global_limit_holds_every_time(shared: Harness, most: int, claimers: int, trials: int):
    """In up to 500 trials on each store, simultaneous claimers get as many jobs as the limit allows."""
    trials = shared.trials(trials)
    limit(shared, concurrency=most)
    shared.enqueue(*[of("ab"[n % 2]) for n in range(trials * most)])
    rivals = [shared.worker(f"rival:{n}", lease_for=LONG) for n in range(claimers)]
    totals = []
    for _ in range(trials):
        answers = shared.at_once([leases.claim(rival, 3, lease_for=LONG, now=shared.now) for rival in rivals])
        claims = [claim for answer in answers for claim in answer.claims]
        totals.append(len(claims))
        shared.settle(*[(claim, Succeeded()) for claim in claims])

    assert [most] * trials == totals


@pytest.mark.case("D34")
def test_concurrent_claims_never_exceed_the_limit(store: Harness):
    """In each of 40 trials, eight simultaneous claimers get five jobs of a queue with five slots."""
    limit(store, concurrency=5)
    store.enqueue(*[new() for _ in range(200)])
    rivals = [store.worker(f"rival:{n}", lease_for=LONG) for n in range(8)]
    totals = []
    for _ in range(40):
        answers = store.at_once([leases.claim(rival, 4, lease_for=LONG, now=store.now) for rival in rivals])
        claims = [claim for answer in answers for claim in answer.claims]
        totals.append(len(claims))
        store.settle(*[(claim, Succeeded()) for claim in claims])

    assert [5] * 40 == totals


@pytest.mark.case("D35")
def test_the_slot_of_a_crashed_worker_is_freed(store: Harness):
    """After each of 100 crashes of its worker, the only slot is free again exactly once, and the crashed job runs
    again in its order."""
    limit(store, concurrency=1)
    store.enqueue(*[new() for _ in range(60)])
    held = []
    for number in range(100):
        worker = store.worker(f"doomed:{number}")
        (claim,) = store.claim(9, worker=worker)
        held.append(claim.id)
        assert () == store.claim(9, worker=store.worker())
        store.wait(LEASE.total_seconds())
        store.sweep()

    # A lost job is due from then on, so jobs with an earlier due time come first.
    assert [*range(1, 61), *range(1, 41)] == held
    assert [41] == ids(store.claim(9))
    assert () == store.claim(9)


# ---------------------------------------------------------------------------------------------------- partitions


def test_each_partition_has_its_limit(store: Harness):
    """Running jobs of each partition never exceed its limit; jobs without a partition are not limited by it."""
    limit(store, per_partition=2)
    store.enqueue(*[of(name) for name in "aaaabbbc"], new(), new(), new())
    claims = store.claim(20)

    assert Counter({"a": 2, "b": 2, "c": 1, None: 3}) == Counter(partitions(claims))
    store.end(next(claim for claim in claims if claim.partition == "a"))
    assert ["a"] == partitions(store.claim(20))


def test_both_limits_hold_together(store: Harness):
    """Limits of the queue and of each partition hold at the same time."""
    limit(store, concurrency=3, per_partition=2)
    store.enqueue(*[of("a") for _ in range(9)], *[of("b") for _ in range(9)])

    assert Counter("aab") == Counter(partitions(store.claim(20)))
    assert () == store.claim(20)


def test_a_saturated_partition_sets_no_next_due_time(store: Harness):
    """If all due jobs belong to saturated partitions, a worker waits for the next due job only."""
    limit(store, per_partition=1)
    store.enqueue(of("a"), of("a"), of("b", delay=30))
    store.claim(1)

    assert leases.Claimed((), seconds(30)) == store.claimed(9)


@pytest.mark.case("D37")
def test_a_tenant_with_ten_thousand_jobs_does_not_starve_another(store: Harness):
    """With ten slots, a tenant with ten jobs has finished within the first hundred jobs; without partitions the order
    is that of the ids."""
    store.enqueue(*[of("big") for _ in range(10_000)])
    store.enqueue(*[of("small") for _ in range(10)])
    done: list[str | None] = []
    while len(done) < 100:
        claims = store.claim(10)
        store.settle(*[(claim, Succeeded()) for claim in claims])
        done += partitions(claims)
    plain = store.enqueue(*[new(queue="plain") for _ in range(20)])

    assert 10 == done.count("small")
    assert 10 == done[:20].count("small")
    assert plain == ids(store.claim(20, queues=["plain"]))


@pytest.mark.parametrize("size", [1, 3, 7])
def test_partitions_are_served_in_turn(store: Harness, size: int):
    """Over claims of any size no partition is served twice before each other one has been served once."""
    store.enqueue(*[of(name) for name in "ddddbbbbccccaaaa"])
    order: list[str | None] = []
    while claims := store.claim(size):
        order += partitions(claims)

    assert list("abcd") * 4 == order


def test_within_a_partition_the_usual_order_holds(store: Harness):
    """Priority, due time and id order the jobs of a partition; a better priority overtakes no other partition."""
    store.enqueue(of("a", "a3", priority=1), of("a", "a1", priority=-1), of("a", "a2"), of("b", "b1", priority=9))

    assert ["a1", "b1", "a2", "a3"] == [claim.task for claim in store.claim(9)]


def walk(store: Harness, *, until: int) -> tuple[list[Claim], list[timedelta | None]]:
    """Claim with cursors, as a worker does, up to this many jobs; return also the pauses."""
    found: list[Claim] = []
    rests: list[timedelta | None] = []
    scans: tuple[limited_queues.QueueScan, ...] = ()
    while len(found) < until and (not rests or scans):
        answer = store.do(leases.claim(store.me, until - len(found), lease_for=LONG, scans=scans, now=store.now))
        found += answer.claims
        scans = answer.scans
        rests.append(answer.rest_for)
    return found, rests


CROWD = limited_queues.VISITS + 50


def test_a_free_partition_behind_many_jobs_is_found(store: Harness):
    """If more jobs are due than a claim examines and only the last partition is free, its job is found."""
    limit(store, per_partition=1)
    store.enqueue(*[of(f"p{n:04}", priority=k) for k in range(2) for n in range(CROWD)])
    taken, _ = walk(store, until=CROWD)
    store.enqueue(of("z"), of("z", priority=5))
    found, rests = walk(store, until=1)

    assert CROWD == len(taken) == len({claim.partition for claim in taken})
    assert ["z"] == [claim.partition for claim in found]
    assert len(rests) <= 4


def test_a_search_without_a_result_ends_in_a_wait(store: Harness):
    """If hundreds of partitions are blocked, a worker examines them in several claims and then waits."""
    limit(store, per_partition=1)
    store.enqueue(*[of(f"p{n:04}") for n in range(CROWD)] * 2)
    walk(store, until=CROWD)
    store.put(new(queue="other", delay=3600))

    assert ([], [limited_queues.RESUME_AFTER, seconds(3600)]) == walk(store, until=5)


# ---------------------------------------------------------------------------------------------------- order


@pytest.mark.case("D33")
def test_the_head_of_an_ordered_partition_blocks_it(store: Harness):
    """Jobs of an ordered partition wait while its first job runs or waits for its retry; then they follow in the order
    of their ids."""
    limit(store, ordered=True)
    a1, a2, b1 = store.enqueue(of("a", priority=5), of("a"), of("b"))
    claims = store.claim(2)
    head = next(claim for claim in claims if claim.id == a1)
    blocked = [store.claim(9)]
    store.end(head, failed())
    blocked.append(store.claim(9))
    rest = store.claimed(9).rest_for
    store.wait(1)
    again = store.take()
    blocked.append(store.claim(9))
    store.end(again)

    assert sorted([a1, b1]) == sorted(ids(claims))
    assert [(), (), ()] == blocked
    assert (seconds(1), a1) == (rest, again.id)
    assert [a2] == ids(store.claim(9))


@pytest.mark.case("D33")
def test_an_ordered_queue_refuses_a_job_without_a_partition(store: Harness):
    """Ordered queues refuse a job without a partition, and with it the whole enqueue."""
    limit(store, ordered=True)
    with pytest.raises(ConfigurationError, match="queue 'default' is ordered"):
        store.enqueue(of("a"), new())

    assert () == store.jobs()


@pytest.mark.case("D33")
@pytest.mark.parametrize("how", ["retry", "redrive", "skip"])
def test_a_dead_head_blocks_its_partition_until_an_operator_acts(store: Harness, how: str):
    """Dead heads block their partition until an operator skips them, or retries them and they succeed."""
    limit(store, ordered=True)
    first, second = store.enqueue(of("a"), of("a"))
    store.end(store.take(), FATAL)

    assert leases.Claimed((), None) == store.claimed(9)
    match how:
        case "retry":
            store.retry(first)
        case "redrive":
            store.redrive()
        case "skip":
            assert store.do(admin.skip(first, now=store.now))
    if how != "skip":
        claims = store.claim(9)
        assert [first] == ids(claims)
        store.end(claims[0])
    assert [second] == ids(store.claim(9))


@pytest.mark.case("D33")
def test_the_catch_of_a_dead_head_frees_its_partition(store: Harness):
    """Catch jobs of a dead head run outside the order; after their success the next job of the partition runs."""
    limit(store, ordered=True)
    _, second = store.enqueue(of("a", retry="0 catch mend"), of("a"))
    store.end(store.take(), FATAL)
    mend = store.take()

    assert ("mend", None) == (mend.task, mend.partition)
    assert () == store.claim(9)
    store.end(mend)
    assert [second] == ids(store.claim(9))


def test_a_cancelled_head_blocks_no_job(store: Harness):
    """Cancelled heads do not block their partition."""
    limit(store, ordered=True)
    first, second = store.enqueue(of("a"), of("a"))
    store.cancel(first)

    assert [second] == ids(store.claim(9))


def test_a_delayed_head_blocks_its_partition(store: Harness):
    """Ordered queues follow the order of enqueueing: jobs wait for a head that is due later."""
    limit(store, ordered=True)
    first, second = store.enqueue(of("a", delay=60), of("a"))

    assert leases.Claimed((), seconds(60)) == store.claimed(9)
    store.wait(60)
    claim = store.take()
    assert first == claim.id
    store.end(claim)
    assert [second] == ids(store.claim(9))


def test_a_free_partition_behind_many_blocked_ones_is_found(store: Harness):
    """If hundreds of partitions are blocked by retries of their heads, a free one is found in several claims."""
    limit(store, ordered=True)
    store.enqueue(*[of(f"p{n:04}", retry="5 1h") for n in range(CROWD)])
    heads, _ = walk(store, until=CROWD)
    store.settle(*[(claim, failed()) for claim in heads])
    store.enqueue(*[of(f"p{n:04}") for n in range(CROWD)], of("z"))
    found, rests = walk(store, until=1)

    assert CROWD == len(heads)
    assert (["z"], True) == ([claim.partition for claim in found], len(rests) <= 3)


def test_blocked_partitions_cause_no_busy_wait(store: Harness):
    """If hundreds of partitions are all blocked, a worker waits until the first head is due again."""
    limit(store, ordered=True)
    store.enqueue(*[of(f"p{n:04}", retry="5 1h") for n in range(CROWD)])
    heads, _ = walk(store, until=CROWD)
    store.settle(*[(claim, failed()) for claim in heads])
    store.enqueue(*[of(f"p{n:04}") for n in range(CROWD)])

    assert ([], [limited_queues.RESUME_AFTER, seconds(3600)]) == walk(store, until=5)


# ---------------------------------------------------------------------------------------------------- rate


@pytest.mark.case("D36")
def test_a_rate_holds_in_every_window(store: Harness):
    """Of 15 jobs under 5 in 1.8 s, claimed by three workers in steps of 0.1 s, no six start within 1.8 s, the first
    five start at once, and all have started after two more windows."""
    limit(store, rate=Rate.parse("5/1.8s"))
    store.enqueue(*[new() for _ in range(15)])
    workers = [store.worker(f"w{n}", lease_for=LONG) for n in range(3)]
    begun = []
    for step in range(150):
        for claim in store.claim(2, worker=workers[step % 3]):
            begun.append(claim.claimed_at)
            store.end(claim)
        if step % 3 == 2 and step > 5:
            store.wait(0.1)

    assert 15 == len(begun)
    assert all(later - earlier >= seconds(1.8) for earlier, later in zip(begun, begun[5:], strict=False))
    assert [T0] * 5 == begun[:5]
    assert begun[-1] - T0 <= 2 * seconds(1.8) + seconds(0.2)


def test_a_worker_waits_until_the_rate_allows_a_start(store: Harness):
    """If a rate is used up, a worker waits exactly until the oldest start leaves the window."""
    limit(store, rate=Rate(2, seconds(10)))
    store.enqueue(new(), new(), new(), new())
    first = store.claimed(1)
    store.wait(4)
    second = store.claimed(9)

    assert [1, 1] == [len(first.claims), len(second.claims)]
    assert leases.Claimed((), seconds(6), soon=True) == store.claimed(9)
    store.now += seconds(6) - timedelta(milliseconds=1)
    assert leases.Claimed((), timedelta(milliseconds=1), soon=True) == store.claimed(9)
    store.now += timedelta(milliseconds=1)
    assert 1 == len(store.claimed(9).claims)
    assert leases.Claimed((), seconds(4), soon=True) == store.claimed(9)


def test_retries_count_as_starts(store: Harness):
    """Every attempt counts for the rate, including retries."""
    limit(store, rate=Rate(2, seconds(10)))
    store.put(new(retry="9 1s"))
    store.end(store.take(), failed())
    store.wait(1)
    store.end(store.take(), failed())
    store.wait(2)

    assert leases.Claimed((), seconds(7), soon=True) == store.claimed(9)


def test_the_starts_of_a_queue_go_with_its_last_rate(store: Harness):
    """A rate that is set again begins anew; while another rate of the queue is left, the starts stay."""
    both = QueueChange(rate=Rate(1, seconds(3600)), rate_per_partition=Rate(1, seconds(3600)))
    started = []
    for change in (
        lambda: limit(store, rate_per_partition=None),
        lambda: limit(store, rate=None),
        lambda: limit(store, rate=None, rate_per_partition=None),
        lambda: store.do(queues.forget("default", now=store.now)),
    ):
        store.do(queues.change("default", both, now=store.now))
        store.enqueue(of("a"), of("a"))
        for claim in store.claim(9):
            store.end(claim)
        change()
        store.do(queues.change("default", both, now=store.now))
        started.append(len(store.claim(9)))
        limit(store, rate=None, rate_per_partition=None)
        for claim in store.claim(9):
            store.end(claim)

    assert [0, 0, 1, 1] == started


# ------------------------------------------------------------------------------------------------- rate per partition


def test_a_rate_per_partition_holds_in_every_window_of_each(store: Harness):
    """Of jobs of two partitions under 2 in 5 s for each, claimed by three workers, no partition starts three in 5 s."""
    limit(store, rate_per_partition=Rate.parse("2/5s"))
    store.enqueue(*[of("a") for _ in range(8)], *[of("b") for _ in range(3)], *[new() for _ in range(6)])
    workers = [store.worker(f"w{n}", lease_for=LONG) for n in range(3)]
    begun: dict[str | None, list[datetime]] = {"a": [], "b": [], None: []}
    for step in range(120):
        for claim in store.claim(3, worker=workers[step % 3]):
            begun[claim.partition].append(claim.claimed_at)
            store.end(claim)
        if step > 11:
            store.wait(0.25)

    assert [8, 3, 6] == [len(each) for each in begun.values()]
    assert [T0] * 4 == [*begun["a"][:2], *begun["b"][:2]]
    assert {T0} == {*begun[None]}
    for name in ("a", "b"):
        starts = begun[name]
        assert all(later - earlier >= seconds(5) for earlier, later in zip(starts, starts[2:], strict=False))
    assert begun["a"][-1] - T0 <= 3 * seconds(5) + seconds(1)


def test_a_worker_waits_until_a_partition_may_start_again(store: Harness):
    """It sleeps exactly until the first partition with a due job has its next start, or another job is due."""
    limit(store, rate_per_partition=Rate(1, seconds(10)))
    store.enqueue(of("a"), of("a"), of("c", delay=7))
    store.claim(1)
    store.wait(4)
    store.enqueue(of("b"))

    assert ["b"] == partitions(store.claim(9))
    assert leases.Claimed((), seconds(3), soon=True) == store.claimed(9)
    store.wait(3)
    assert ["c"] == partitions(store.claim(9))
    assert leases.Claimed((), seconds(3), soon=True) == store.claimed(9)
    store.wait(3)
    assert ["a"] == partitions(store.claim(9))
    assert leases.Claimed((), None) == store.claimed(9)


def test_a_rate_of_the_queue_and_one_of_its_partitions_both_hold(store: Harness):
    """The starts of a long span are kept for the one that needs them."""
    limit(store, rate=Rate(3, seconds(10)), rate_per_partition=Rate(2, seconds(60)), per_partition=2)
    store.enqueue(*[of("a") for _ in range(4)], *[of("b") for _ in range(4)])
    begun = []
    for _ in range(14):
        for claim in store.claim(9):
            begun.append((claim.partition, (claim.claimed_at - T0).total_seconds()))
            store.end(claim)
        store.wait(5)

    assert [("a", 0), ("b", 0), ("a", 0), ("b", 10), ("a", 60), ("b", 60), ("a", 60)] == begun


def test_a_start_counts_whatever_becomes_of_its_worker(store: Harness):
    """A dead worker's attempt and its repetition are two starts of the partition."""
    limit(store, rate_per_partition=Rate(2, seconds(3600)))
    worker = store.worker("mortal", lease_for=LEASE)
    store.enqueue(of("a"))
    (first,) = store.claim(1, worker=worker)
    store.wait(600)
    store.sweep()
    (again,) = store.claim(9)
    store.enqueue(of("a"))

    assert (first.id, 2) == (again.id, again.attempt)
    assert leases.Claimed((), seconds(3000), soon=True) == store.claimed(9)


def test_an_ordered_queue_keeps_its_order_at_a_rate(store: Harness):
    """The jobs of a partition start one after the other, and not faster than its rate."""
    limit(store, ordered=True, rate_per_partition=Rate(1, seconds(10)))
    numbers = store.enqueue(*[of("a") for _ in range(3)])
    seen = []
    for _ in range(7):
        for claim in store.claim(9):
            seen.append((claim.id, (claim.claimed_at - T0).total_seconds()))
            store.end(claim)
        store.wait(5)

    assert list(zip(numbers, [0, 10, 20], strict=True)) == seen


@pytest.mark.parametrize("ordered", [False, True])
def test_hundreds_of_partitions_at_their_rate_cause_no_busy_wait(store: Harness, ordered: bool):
    """A scan passes partitions that may not start, finds the one that may, and then waits for the first of them."""
    limit(store, ordered=ordered, rate_per_partition=Rate(1, seconds(3600)))
    store.enqueue(*[of(f"p{n:04}") for n in range(CROWD) for _ in range(2)])
    first, _ = walk(store, until=CROWD)
    store.settle(*[(claim, Succeeded()) for claim in first])
    blocked, rests = walk(store, until=5)
    store.enqueue(of("z"))
    late, _ = walk(store, until=1)

    assert sorted(f"p{n:04}" for n in range(CROWD)) == sorted(partitions(tuple(first)))
    assert ([], seconds(3600)) == (blocked, rests[-1])
    assert ["z"] == partitions(tuple(late))


@pytest.mark.parametrize("round_", range(2))
def test_concurrent_claims_do_not_exceed_the_rate_of_a_partition(shared: Harness, round_: int):
    """Claims at the same instant start as many jobs of each partition as its rate allows, and no more."""
    limit(shared, rate_per_partition=Rate(2, seconds(60)))
    shared.enqueue(*[of(name) for name in "abc" for _ in range(5)])
    workers = [shared.worker(f"w{n}", lease_for=LONG) for n in range(4)]
    found = shared.at_once([leases.claim(each, 5, lease_for=LONG, now=shared.now) for each in workers])
    taken = Counter(claim.partition for each in found for claim in each.claims)
    for worker in workers:
        taken.update(claim.partition for claim in shared.claim(9, worker=worker))

    assert {"a": 2, "b": 2, "c": 2} == taken


def test_a_job_says_that_its_partition_has_reached_its_rate(store: Harness):
    """The answer to why a job does not run names the rate, the partition and the instant."""
    limit(store, rate_per_partition=Rate(1, seconds(3600)))
    store.worker("w", lease_for=LONG)
    _, number, other = store.enqueue(of("acme"), of("acme"), of("free"))
    store.claim(1)
    (job, around), (_, free) = (store.do(queues.status(each, now=store.now)) for each in (number, other))

    assert "rate 1/1h of partition 'acme' reached, next at 2026-01-01 13:00:00 UTC" in why_not_running(job, around)
    assert free.standing is not None
    assert free.standing.partition_next_at is None


def test_a_rate_per_partition_is_set_and_removed(store: Harness):
    """It is a setting as the others, with both of its parts."""
    set_ = limit(store, rate_per_partition=Rate(5, seconds(60)))
    rest = limit(store, concurrency=3)
    removed = limit(store, rate_per_partition=None)

    assert Rate(5, seconds(60)) == set_.rate_per_partition == rest.rate_per_partition
    assert (None, 3) == (removed.rate_per_partition, removed.concurrency)


# ---------------------------------------------------------------------------------------------------- priority


@pytest.mark.case("D38")
@pytest.mark.parametrize("limited", [False, True])
def test_a_rescued_job_with_high_priority_comes_first(store: Harness, limited: bool):
    """Rescued jobs with a high priority are claimed before new ones with a low one; with equal priorities the job that
    was due first is claimed first."""
    if limited:
        limit(store, concurrency=9)
    urgent = store.put(new(priority=-1))
    store.claim(1, worker=store.worker())
    store.enqueue(*[new(priority=5) for _ in range(3)])
    store.wait(15)
    store.sweep()

    assert [urgent, 2, 3, 4] == [store.take().id for _ in range(4)]


@pytest.mark.case("D38")
def test_aging_raises_the_priority_of_a_waiting_job(store: Harness):
    """With aging, each span that a job has been due raises it by one priority."""
    limit(store, aging_for=seconds(60))
    old = store.put(new(priority=2))
    store.wait(119)
    fresh = store.put(new(priority=0))
    early = store.take().id
    store.wait(1)
    also_fresh = store.put(new(priority=0))

    assert fresh == early
    assert [old, also_fresh] == ids(store.claim(9))


# ---------------------------------------------------------------------------------------------------- why


def test_circumstances_name_the_obstacles_of_a_job(store: Harness):
    """Circumstances of a job contain its queue's settings, partition head, slot holders and rate."""
    limit(store, "limited", concurrency=1)
    limit(store, "rated", rate=Rate(1, seconds(10)))
    limit(store, "ordered", ordered=True)
    made = store.enqueue(
        *[new(queue="limited"), new(queue="limited"), new(queue="rated"), new(queue="rated")],
        *[of("a", queue="ordered"), of("a", queue="ordered"), new(queue="plain", delay=9)],
    )
    store.claim(9)
    found = {number: store.do(queues.status(number, now=store.now)) for number in made}

    assert all(found[number][0].id == number for number in made)
    assert [1] == [number for number, _ in found[2][1].standing.holders]
    assert T0 + seconds(10) == found[4][1].standing.next_at
    assert (5, State.RUNNING) == (found[6][1].standing.head_id, found[6][1].standing.head_state)
    assert [None, None] == [found[1][1].standing, found[7][1].standing]
    assert [("running", 1), ("holder", 1), ("next", 2)] == named(store, "limited")
    assert [("running", number) for number in (1, 3, 5)] == named(store, None)
    jobs = tuple(found[number][0] for number in made)
    read = store.do(queues.circumstances(jobs, now=store.now))
    assert {number: found[number][1].standing for number in made} == {number: read[number].standing for number in made}


def test_circumstances_name_workers_and_the_catch_job(store: Harness):
    """Circumstances of a job contain the database's time, the live workers and the latest catch job."""
    store.wait(1)
    dead = store.dead(new(retry="0 catch mend"))
    catch = store.take()
    catching = store.do(queues.status(dead, now=store.now))[1]
    store.cancel(catch.id)
    cancelled = store.do(queues.status(dead, now=store.now))[1]
    store.retry(catch.id)
    again = store.do(queues.status(dead, now=store.now))[1]
    due, later = store.put(), store.put(new(delay=9))
    read = store.do(queues.circumstances([store.job(number) for number in (due, later)], now=store.now))

    assert CatchJob(dead, catch.id, "mend", State.RUNNING) == catching.catch
    assert [State.CANCELLED, State.READY] == [cancelled.catch.state, again.catch.state]
    assert {store.now} == {catching.now, read[due].now, read[later].now}
    assert ([store.me], None) == ([worker.id for worker in read[due].workers], read[due].catch)
    assert {} == store.do(queues.circumstances([], now=store.now))


def test_circumstances_name_the_last_exception_of_a_dead_job(store: Harness):
    """Circumstances of dead jobs contain the class of the last exception; those of other jobs contain none."""
    number, ready = store.put(new(retry="1 5s")), store.put(new(delay=99))
    store.end(store.take(), Failed(Failure.of(ValueError("early"))))
    store.wait(60)
    store.end(store.take(), Failed(Failure.of(KeyError("id"))))
    read = store.do(queues.circumstances(store.jobs(), now=store.now))

    assert ["builtins.KeyError", None] == [read[number].error_type, read[ready].error_type]


def test_circumstances_name_the_jobs_that_were_claimed_ahead(store: Harness):
    """Workers with more jobs than slots have not started the last ones of their claims; feeders need no slot."""
    worker = store.worker()
    feeder = replace(new(priority=-1), origin="topic:payments/mail@0")
    first = store.enqueue(feeder, *[new(priority=5 - number) for number in range(4)])
    claims = list(store.claim(9, worker=worker))
    store.wait(1)
    store.enqueue(*[new(priority=0) for _ in range(2)])
    claims += store.claim(9, worker=worker)
    read = store.do(queues.circumstances([store.job(each.id) for each in claims], now=store.now))

    assert [first[0], *reversed(first[1:])] == [each.id for each in claims[:5]]
    assert [False] * 5 + [True] * 2 == [read[each.id].is_ahead for each in claims]
    store.settle(*[(each, Succeeded()) for each in claims[:3]])
    assert not store.do(queues.status(claims[-1].id, now=store.now))[1].is_ahead


def test_circumstances_have_the_time_of_the_database(store: Harness):
    """If no instant is injected, the result has that of the transaction."""
    number = store.do(jobs.enqueue([new()])).ids[0]
    job, around = store.do(queues.status(number))

    assert around.now >= job.scheduled_at > T0


def test_starts_are_never_more_than_the_rate_over_many_claims(store: Harness):
    """Over irregular claims of random sizes no window holds more starts than the rate."""
    limit(store, rate=Rate(3, seconds(5)))
    store.enqueue(*[new() for _ in range(40)])
    begun = []
    for step in range(80):
        begun += [claim.claimed_at for claim in store.claim(1 + step % 4)]
        store.wait((step * 7 % 11) / 5)

    assert 40 == len(begun)
    assert all(later >= earlier for earlier, later in pairwise(begun))
    assert all(later - earlier >= seconds(5) for earlier, later in zip(begun, begun[3:], strict=False))


def test_an_unused_rate_delays_no_job(store: Harness):
    """If the rate is not used up, the circumstances of a job have no next start of its queue."""
    limit(store, "mail", rate=Rate(2, seconds(10)))
    (number,) = store.enqueue(new(queue="mail"))
    standing = store.do(queues.status(number, now=store.now))[1].standing

    assert standing is not None
    assert standing.next_at is None


def test_each_queue_has_its_own_limits_in_one_reading(store: Harness):
    """Circumstances of jobs of several limited queues contain the holders and the next start of each queue alone."""
    names = ["a", "b", "c"]
    for number, name in enumerate(names):
        limit(store, name, concurrency=1, rate=Rate(1, seconds(10 * (number + 1))))
    first = [store.put(new(queue=name)) for name in names]
    second = [store.put(new(queue=name)) for name in names]
    store.claim(9)
    read = store.do(queues.circumstances([store.job(number) for number in second], now=store.now))
    found = [read[number].standing for number in second]

    assert [((number, None),) for number in first] == [each.holders for each in found]
    assert [T0 + seconds(10 * number) for number in (1, 2, 3)] == [each.next_at for each in found]
