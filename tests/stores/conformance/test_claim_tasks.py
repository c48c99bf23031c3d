"""Claims by task: workers claim only jobs of the tasks that they have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from redrive.engine.explain import why_not_running
from redrive.engine.queue import QueueChange, Rate
from redrive.stores.operations import leases, limited_queues, queues, workers
from tests.stores.helpers import LONG, T0, Harness, new, seconds

MINE = ["mine", "package.mine"]


def taken(store: Harness, count: int = 9, *, tasks: Sequence[str] | None = None) -> list[str]:
    """Claim, and return the tasks in the order in which they should start."""
    return [claim.task for claim in store.claim(count, tasks=MINE if tasks is None else tasks)]


def test_a_claim_takes_only_the_given_tasks(store: Harness):
    """Jobs of other tasks stay unchanged: ready, due, without a hold and without a lease."""
    other = store.put(new("other"))
    store.enqueue(new("mine"), new("package.mine"), new("mine", queue="b", priority=5))

    assert ["mine", "package.mine", "mine"] == taken(store)
    assert (0, None, T0) == (store.job(other).attempt, store.job(other).hold, store.job(other).scheduled_at)
    assert ["other"] == taken(store, tasks=["other"])


def test_tasks_share_one_order(store: Harness):
    """Jobs of all tasks of a worker start by priority, then due time, then id."""
    late = new("mine", delay=1)
    store.enqueue(late, new("package.mine", priority=1), new("package.mine"), new("mine", priority=-1), new("mine"))
    store.wait(2)

    assert [4, 3, 5, 1, 2] == [claim.id for claim in store.claim(9, tasks=MINE)]


def test_a_claim_without_tasks_takes_no_job(store: Harness):
    """Workers without tasks claim nothing."""
    store.put(new("mine"))

    assert [] == taken(store, tasks=[])


def test_a_worker_waits_until_a_job_of_its_tasks_is_due(store: Harness):
    """Jobs of other tasks, due now or sooner, do not shorten the pause of a worker."""
    store.enqueue(new("other"), new("other", delay=1))

    assert leases.Claimed((), None) == store.claimed(tasks=MINE)
    store.put(new("mine", delay=60))
    assert leases.Claimed((), seconds(60)) == store.claimed(tasks=MINE)


@pytest.mark.parametrize("partition", [None, "a"])
def test_limited_queues_serve_only_the_given_tasks(store: Harness, partition: str | None):
    """In a limited queue, more jobs of another task than a claim examines do not hide the worker's jobs."""
    store.do(queues.change("default", QueueChange(concurrency=5), now=T0))
    crowd = [replace(new("other"), partition=partition)] * (limited_queues.WINDOW + 1)
    store.enqueue(
        *crowd, *[replace(new("mine"), partition=partition)] * 2, replace(new("mine", delay=9), partition="b")
    )

    assert ["mine", "mine"] == taken(store)
    assert seconds(9) == store.claimed(tasks=MINE).rest_for


def test_partitions_of_other_tasks_are_skipped(store: Harness):
    """Claiming one job reaches its partition though hundreds of others have only jobs of another task."""
    store.do(queues.change("default", QueueChange(per_partition=1), now=T0))
    crowd = [replace(new("other"), partition=f"p{n:03}") for n in range(limited_queues.WINDOW * 2)]
    own = [replace(new("mine"), partition=f"q{n}") for n in range(limited_queues.WINDOW + 1)]
    store.enqueue(*crowd, *own)
    scans: tuple[limited_queues.QueueScan, ...] = ()
    for _ in range(6):
        answer = store.do(leases.claim(store.me, 1, lease_for=LONG, tasks=MINE, scans=scans, now=store.now))
        scans = answer.scans
        if answer.claims:
            break

    assert ["mine"] == [claim.task for claim in answer.claims]


def test_an_ordered_partition_waits_for_the_worker_of_its_first_job(store: Harness):
    """Workers of an ordered queue do not overtake a first job with a task that they lack."""
    store.do(queues.change("default", QueueChange(ordered=True), now=T0))
    store.enqueue(replace(new("other"), partition="a"), replace(new("mine"), partition="a"))

    assert [] == taken(store)
    (first,) = store.claim(9, tasks=["other"])
    store.end(first)
    assert ["mine"] == taken(store)


def test_a_long_ordered_partition_waits_for_the_worker_of_its_first_job(store: Harness):
    """Ordered partitions wait for their first job's task even if more wait than a claim examines."""
    store.do(queues.change("default", QueueChange(ordered=True), now=T0))
    lines = [f"p{n:03}" for n in range(limited_queues.WINDOW + 1)]
    store.enqueue(*[replace(new("other"), partition=line) for line in lines])
    store.enqueue(*[replace(new("mine"), partition=line) for line in lines])
    store.enqueue(replace(new("mine"), partition="z"))

    assert ["z"] == [claim.partition for claim in store.claim(9, tasks=MINE)]


def test_jobs_of_other_tasks_are_not_held(store: Harness):
    """Claims never hold a job of another task."""
    number = store.put(new("other"))
    for _ in range(3):
        store.claim(9, tasks=MINE)
        store.wait(1)

    assert (None, T0) == (store.job(number).hold, store.job(number).scheduled_at)


def test_a_due_job_with_a_task_that_no_live_worker_has_is_reported(store: Harness):
    """Jobs are served if a live worker of their queue has their task; stopped and silent workers do not count."""
    store.do(workers.register("a:1", concurrency=1, lease_for=seconds(9), queues=["mail"], tasks=["mine"], now=T0))
    store.do(workers.register("b:1", concurrency=1, lease_for=LONG, tasks=["both"], now=T0))
    pairs = [("mine", "mail"), ("mine", "other"), ("both", "mail"), ("both", "other"), ("none", "mail")]
    store.enqueue(*[new(task, queue=queue) for task, queue in pairs])

    def unserved() -> set[tuple[str, str]]:
        """Return the tasks and queues of the jobs that no live worker serves."""
        found = store.do(queues.circumstances(store.jobs(), now=store.now))
        why = {(job.task, job.queue): why_not_running(job, found[job.id]) for job in store.jobs()}
        return {pair for pair in why if "no live worker" in why[pair]}

    assert {("mine", "other"), ("none", "mail")} == unserved()
    store.wait(10)
    assert {("mine", "mail"), ("mine", "other"), ("none", "mail")} == unserved()
    store.do(workers.register("c:1", concurrency=1, lease_for=LONG, now=store.now))
    assert set() == unserved()


@pytest.mark.parametrize("partition", [None, "a"])
def test_excluded_queues_are_left_alone(store: Harness, partition: str | None):
    """Claims take nothing from excluded queues, plain or limited, and do not wait for their jobs."""
    store.do(queues.change("limited", QueueChange(concurrency=5), now=T0))
    store.enqueue(
        new("mine", queue="plain"),
        replace(new("mine", queue="limited"), partition=partition),
        new("mine", queue="other"),
    )

    excluded = ["plain", "limited"]
    assert ["other"] == [claim.queue for claim in store.claim(9, excluded=excluded)]
    assert leases.Claimed((), None) == store.claimed(9, excluded=excluded)
    assert {"plain", "limited"} == {claim.queue for claim in store.claim(9, excluded=["none"])}


def test_a_claim_reports_jobs_that_wait_for_a_rate(store: Harness):
    """Due jobs that only the rate of their queue holds are due soon; those in a full or paused queue are not."""
    store.do(queues.change("rated", QueueChange(rate=Rate(1, seconds(60))), now=T0))
    store.do(queues.change("full", QueueChange(concurrency=1), now=T0))
    store.enqueue(*(new("mine", queue=queue) for queue in ("rated", "rated", "full", "full")))

    assert 2 == len(store.claim(9))
    assert True is store.claimed(9, queues=["rated"]).soon
    assert False is store.claimed(9, queues=["full"]).soon


def test_a_worker_is_stored_with_its_excluded_queues(store: Harness):
    """The row of a worker has its name and the queues that it leaves out."""
    number = store.do(
        workers.register("night shift", concurrency=1, lease_for=LONG, excluded=["reports"], tasks=MINE, now=store.now)
    )
    (row,) = [each for each in store.do(workers.workers()) if each.id == number]

    assert ("night shift", None, ("reports",)) == (row.name, row.queues, row.excluded)
    assert (True, False) == (row.serves("default"), row.serves("reports"))
