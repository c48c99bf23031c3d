"""Redriving many: by filter, with a limit, at a rate, to another queue, with a conflict in the middle."""

from __future__ import annotations

import itertools
from datetime import timedelta

import msgspec
import pytest

from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.stores.operations import leases
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import ManualWorker
from tests.stores.helpers import failed

EACH = 2_500
"""Dead jobs for each of two queues and two errors: 10,000 in all."""

FEW = 250
"""Dead jobs for each, in tests that do not depend on the number."""


@pytest.fixture(params=[FEW])
def each(request):
    """Return the number of dead jobs for each queue and error."""
    return request.param


@pytest.fixture
def dead(app, each):
    """Enqueue dead jobs on the queues a and b, half with the error E1; the last two of these on a share a key."""

    @app.task
    def work(number: int) -> None: ...

    manual_worker = ManualWorker(app, "A")
    for queue, error in itertools.product("ab", ("E1", "E2")):
        calls = work.options(queue=queue)
        numbers = calls.enqueue_many(range(each - 2 * (queue + error == "aE1")))
        if queue + error == "aE1":
            manual_worker.settle(*((claim, failed(error)) for claim in manual_worker.claim(each)))
            for _ in range(2):
                numbers.append(calls.options(key="k").enqueue(0))
                manual_worker.settle((manual_worker.take(), failed(error)))
        else:
            manual_worker.settle(*((claim, failed(error)) for claim in manual_worker.claim(each)))
    return work


@pytest.mark.case("D47")
@pytest.mark.slow
@pytest.mark.parametrize("each", [EACH], indirect=True)
def test_a_redrive_starts_only_the_selected_jobs(app, clock, dead):
    """Of 10,000 dead jobs exactly 500 move, oldest first, at 100 a second, to another queue; a dry run predicts it."""
    wanted = Filter(state=State.DEAD, caught=False, queue="a", error="E1", limit=500)
    before = app.jobs.stats()
    dry = app.jobs.redrive(wanted, rate="100/s", queue="a2", dry_run=True)

    assert (4 * EACH, 500, before) == (before.dead, len(dry.ids), app.jobs.stats())

    now = clock.now()
    done = app.jobs.redrive(wanted, rate="100/s", queue="a2", actor="ann@desk")
    moved = app.jobs.select(Filter(queue="a2", oldest_first=True, limit=1000))
    oldest = app.jobs.select(Filter(ids=tuple(range(1, 501)), oldest_first=True, limit=500))

    assert dry.ids == done.ids == tuple(job.id for job in moved) == tuple(job.id for job in oldest)
    assert [now + timedelta(milliseconds=10) * n for n in range(500)] == [job.scheduled_at for job in moved]
    assert 2 * EACH == len(app.jobs.select(Filter(queue="b", state=State.DEAD, limit=4 * EACH)))
    (line, *_) = app.database.audit()
    recorded = msgspec.json.decode(line.details)
    assert ("ann@desk", "redrive", 500, "a2") == (line.actor, line.action, len(recorded["ids"]), recorded["queue"])


@pytest.mark.case("D47")
def test_a_conflict_keeps_one_job_and_the_redrive_continues(app, each, dead):
    """Of two jobs with one key the second stays dead with the reason, is not counted as moved, and no job is lost."""
    wanted = Filter(state=State.DEAD, caught=False, queue="a", error="E1", limit=4 * each)
    dry = app.jobs.redrive(wanted, dry_run=True)
    done = app.jobs.redrive(wanted)
    first, second = each - 1, each

    assert (tuple(range(1, each)), ((second, f"stays dead: its key 'k' is held by job {first}"),)) == (
        done.ids,
        done.kept,
    )
    assert (dry.ids, dry.kept) == (done.ids, done.kept)
    assert State.DEAD is app.job(second).state
    assert 4 * each - (each - 1) == app.jobs.stats().dead
    assert () == app.database.verify()


@pytest.mark.case("D47")
def test_a_repeated_redrive_continues(app, each, dead):
    """Repeated redrives with a limit continue with the jobs that are still dead, until only the conflict is left."""
    wanted = Filter(state=State.DEAD, caught=False, queue="a", error="E1", limit=100)
    rounds = [len(app.jobs.redrive(wanted).ids) for _ in range(4)]

    assert [100, 100, each - 201, 0] == rounds


@pytest.mark.case("D47")
def test_jobs_scheduled_by_a_redrive_can_be_cancelled(app, clock, dead):
    """Jobs that a redrive at a rate has not started yet are cancelled by one command, which is audited too."""
    wanted = Filter(state=State.DEAD, caught=False, queue="a", error="E1", limit=100)
    app.jobs.redrive(wanted, rate="10/s")
    drain(app, within="5s")
    ended = app.jobs.cancel(Filter(hold=Hold.REDRIVE, limit=1000), why="enough", actor="bob")
    states = [job.state for job in app.jobs.select(Filter(ids=tuple(range(1, 101)), oldest_first=True, limit=100))]

    assert [State.SUCCEEDED] * 51 + [State.CANCELLED] * 49 == states
    assert 49 == len(ended)
    assert [("bob", "cancel"), (app.default_actor, "redrive")] == [
        (line.actor, line.action) for line in app.database.audit()
    ]


@pytest.mark.case("queue-06")
def test_a_dead_job_is_put_back_as_often_as_asked(app):
    """Jobs that died are put back with nothing spent, and once more after they died again."""

    @app.task
    def work() -> None: ...

    job, manual_worker = work.enqueue(), ManualWorker(app, "A")
    seen = []
    for _ in range(2):
        manual_worker.settle((manual_worker.take(), failed("no")))
        app.jobs.redrive(Filter(ids=(job.id,)))
        record = job.refresh().record
        seen.append((record.state, record.failures, record.redrives))

    assert [(State.READY, 0, 1), (State.READY, 0, 2)] == seen
    assert 2 == len(job.attempts)


@pytest.mark.case("queue-05")
def test_a_job_that_is_delivered_too_often_is_dead_with_a_reason(app, clock):
    """Jobs with workers that keep vanishing become dead without a separate sweep, and keep the reason."""

    @app.task
    def work() -> None: ...

    job = work.enqueue()
    for name in "ABC":
        ManualWorker(app, name).take()
        clock.advance(timedelta(minutes=1))
        app.store.run(leases.sweep(10, now=app.now()))
    record = job.refresh().record

    assert (State.DEAD, "POISON") == (record.state, record.reason)
    assert "presumed to kill its workers" in (record.note or "")
