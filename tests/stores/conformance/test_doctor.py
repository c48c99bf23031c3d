"""What a diagnosis reads: the state of a database and its workers."""

from __future__ import annotations

import pytest

from redrive.engine.outcome import Held, Parked, Unreadable
from redrive.engine.queue import QueueChange, Rate
from redrive.engine.records import Hold
from redrive.engine.settle import CATCH_STUCK_AFTER
from redrive.stores.operations import admin, counters, doctor, queues
from redrive.stores.operations.queues import DepthState
from tests.stores.helpers import FATAL, Harness, failed, new, seconds
from tests.stores.runs import begin, run


def test_the_database_is_described(store: Harness):
    """Return the version of the database, and no worker, job or queue of a new one."""
    found = store.do(doctor.examine(store.now))

    assert found.server["version"]
    assert "on" != found.server.get("read_only")
    assert (store.now, (), {}, (), (), (), (), ()) == (
        found.now,
        found.workers,
        found.busy,
        found.depths,
        found.settings,
        found.lanes,
        found.catches,
        found.held,
    )


def test_workers_jobs_and_queues_are_counted(store: Harness):
    """Return workers with their attempts, the jobs of queues, and the tasks of jobs that are ready."""
    worker = store.worker()
    store.put(new(task="send", queue="mail"))
    store.claim(worker=worker)
    store.enqueue(new(task="send", queue="mail"), new(task="print", queue="mail", delay=60))
    store.put(new(task="send", queue="slow"))
    store.do(queues.change("slow", QueueChange(paused=True), now=store.now))
    found = store.do(doctor.examine(store.now))

    assert ([worker], {worker: 1}) == ([each.id for each in found.workers], dict(found.busy))
    assert (("mail", "print"), ("mail", "send")) == found.lanes
    assert {"mail": 1, "slow": 1} == {queue: each.jobs for queue, each in found.jobs(DepthState.DUE).items()}
    assert ["slow"] == [each.name for each in found.settings]


def test_no_task_is_left_out(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """The tasks of ready jobs are all read, so that one without a worker is found among many others."""
    monkeypatch.setattr(doctor, "READ", 1)
    store.enqueue(new(task="a"), new(task="z"))

    assert (("default", "a"), ("default", "z")) == store.do(doctor.examine(store.now)).lanes


def test_what_decides_on_due_jobs_is_read(store: Harness):
    """Return the workers, the depths of due jobs alone, and the settings and starts of their queues alone."""
    worker = store.worker()
    store.enqueue(new(queue="mail"), new(queue="mail"), new(queue="later", delay=60))
    for queue in ("mail", "later"):
        store.do(queues.change(queue, QueueChange(rate=Rate(1, seconds(60))), now=store.now))
    store.claim(worker=worker, queues=("mail",))
    found = store.do(doctor.waiting(store.do(queues.depths(now=store.now)).queues, store.now))

    assert [worker] == [each.id for each in found.workers]
    assert [("mail", DepthState.DUE, 1)] == [(each.queue, each.standing, each.jobs) for each in found.depths]
    assert [("mail", 1, store.now + seconds(60))] == [(each.name, each.begun, each.next_at) for each in found.settings]


def test_catch_jobs_that_fail_again_and_again_are_read(store: Harness):
    """Return unfinished catch jobs with many failures."""
    store.end(store.take(new(retry="0 catch recover")), FATAL)
    for _ in range(CATCH_STUCK_AFTER):
        assert () == store.do(doctor.examine(store.now)).catches
        (claim,) = store.claim()
        store.end(claim, failed("no bank"))
        store.wait(86_400)

    (stuck,) = store.do(doctor.examine(store.now)).catches

    assert (claim.id, "recover", claim.parent_id, CATCH_STUCK_AFTER) == (
        stuck.id,
        stuck.task,
        stuck.parent_id,
        stuck.failures,
    )


def test_held_runs_are_read(store: Harness):
    """Return the runs with code that does not fit their steps, with the reason and its time."""
    begin(store, run("a"), run("b"))
    first, second = store.claim(2)
    store.end(first, Held("step 2 was `two`"))
    store.end(second, Parked(None, "waits"))

    assert (doctor.HeldRun("checkout", "a", "step 2 was `two`", store.now),) == store.do(doctor.examine(store.now)).held


def test_jobs_that_no_worker_can_read_are_counted(store: Harness):
    """Return them for each task and reason, with the first one, and since when it waits."""
    store.enqueue(new(task="send"), new(task="send"), new(task="print"))
    for claim, of_policy in zip(store.claim(3), (False, False, True), strict=True):
        store.end(claim, Unreadable("no field", of_policy))
    found = {each.task: each for each in store.do(doctor.examine(store.now)).unreadable}

    assert {"send", "print"} == set(found)
    assert (Hold.BAD_PAYLOAD, 2, 1, store.now) == (
        found["send"].hold,
        found["send"].number,
        found["send"].id,
        found["send"].since,
    )
    assert (Hold.BAD_POLICY, 1, 3) == (found["print"].hold, found["print"].number, found["print"].id)


def test_a_skipped_job_is_not_counted_as_dead(store: Harness):
    """An operator has decided about it."""
    for _ in range(2):
        store.end(store.take(new(queue="mail")), FATAL)
    store.do(admin.skip(1, now=store.now))
    found = store.do(doctor.examine(store.now))

    assert {"mail": 1} == {queue: each.jobs for queue, each in found.jobs(DepthState.DEAD).items()}
    assert {"mail": 1} == {queue: each.jobs for queue, each in found.jobs(DepthState.SKIPPED).items()}
    store.do(counters.note_depths(now=store.now))
