"""Unique keys, idempotency keys, debounce: which job stands for which call, and which job gives way."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest

from redrive.app.app import App
from redrive.engine.keys import SUPERSEDED
from redrive.engine.lifecycle import State
from redrive.errors import DuplicateJob, JobNotFound
from redrive.stores.operations import retention
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import ManualWorker, boom, sweep


@pytest.fixture
def ran():
    """Return the arguments of the calls that ran, in order."""
    return []


@pytest.fixture
def send(app, ran):
    """Return a task that records and returns its argument."""

    @app.task(retry="3 1s")
    def send(what: int) -> int:
        ran.append(what)
        return what

    return send


@pytest.mark.case("D20")
def test_a_key_conflict_blocks_no_rescue(app, clock, send):
    """Of two lost jobs one finds its key taken: it is closed and names the other job; the other one is rescued."""
    keyed = send.options(key="k", key_until="start")
    first, plain = keyed.enqueue(1), send.enqueue(3)
    ManualWorker(app, "A", lease_for="1s").claim(2)
    second = keyed.enqueue(2)
    clock.advance("10s")
    sweep(app)

    assert (State.CANCELLED, SUPERSEDED) == (first.refresh().state, first.record.reason)
    assert f"superseded by job {second.id}, which holds its key 'k'" == first.record.note
    assert [State.READY, State.READY] == [plain.refresh().state, second.refresh().state]
    with pytest.raises(DuplicateJob) as refused:
        keyed.enqueue(4)
    assert second.id == refused.value.job_id

    drain(app)
    assert [State.SUCCEEDED, State.SUCCEEDED] == [plain.refresh().state, second.refresh().state]


@pytest.mark.case("D27")
def test_a_key_conflict_leaves_the_users_transaction_usable(tmp_path):
    """Enqueuing a duplicate inside the user's transaction leaves it usable; its other changes are committed."""
    path = tmp_path / "shop.db"
    app = App(f"sqlite:///{path}")

    @app.task
    def send(what: int) -> None: ...

    held = send.options(key="k").enqueue(1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(DuplicateJob) as refused:
            send.options(key="k").enqueue(2, using=connection)
        existing = send.options(key="k", on_conflict="existing").enqueue(3, using=connection)
        other = send.options(key="l").enqueue(4, using=connection)
        connection.execute("INSERT INTO orders VALUES (2)")

        with pytest.raises(JobNotFound):
            other.refresh()
    with closing(sqlite3.connect(path)) as connection:
        assert [(1,), (2,)] == connection.execute("SELECT id FROM orders").fetchall()

    assert (held.id, held.id, False) == (refused.value.job_id, existing.id, existing.created)
    assert State.READY is other.refresh().state
    app.close()


@pytest.mark.case("D41")
def test_an_idempotency_key_is_one_execution_until_it_is_pruned(app, clock, send, ran):
    """Ten producers get one job; so does a call after its end; when the job is pruned the key makes a new one."""
    keyed = send.options(idempotency_key="k")
    with ThreadPoolExecutor(10) as pool:
        jobs = list(pool.map(keyed.enqueue, range(10)))
    assert (1, 1) == (len({job.id for job in jobs}), sum(job.created for job in jobs))

    drain(app)
    again = keyed.enqueue(11)
    assert (jobs[0].id, False, ran[0]) == (again.id, False, again.result(0))

    @app.task
    def other(what: int) -> None: ...

    with pytest.raises(DuplicateJob, match="belongs to job"):
        other.options(idempotency_key="k").enqueue(12)

    clock.advance("8d")
    found = app.store.run(retention.survey(0, app.keep, now=app.now()))
    assert 1 == app.store.run(retention.prune(found))
    later = keyed.enqueue(13)
    drain(app)
    assert (True, [13]) == (later.created and later.id != again.id, ran[1:])


@pytest.mark.case("D43")
def test_a_waiting_retry_is_superseded_by_a_running_job_with_its_key(app, clock, send):
    """Retries that meet a running job with their key are closed and name it; other retries are not held up."""
    manual_worker = ManualWorker(app, "A")
    first = send.options(key="u", key_until="start").enqueue(1)
    one = manual_worker.take()
    second = send.options(key="u", key_until="end").enqueue(2)
    two = manual_worker.take()
    third = send.options(key="v", key_until="start").enqueue(3)
    three = manual_worker.take()
    manual_worker.settle((one, boom()), (three, boom()))

    assert (State.CANCELLED, SUPERSEDED) == (first.refresh().state, first.record.reason)
    assert f"superseded by job {second.id}, which holds its key 'u'" == first.record.note
    assert (State.RUNNING, State.READY) == (second.refresh().state, third.refresh().state)

    clock.advance("1s")
    assert third.id == manual_worker.take().id
    assert State.SUCCEEDED is manual_worker.end(two).state


@pytest.mark.case("D44")
def test_debounce_keeps_one_job_and_has_a_latest_start(app, clock, send, ran):
    """Calls at 0, 1, 2.5 s and then every second are one job, which runs at 5 s with the last arguments before that."""
    began = clock.now()
    calls = send.debounce("k", quiet="2s", at_most="5s")
    jobs = [calls.enqueue(0)]
    for what, pause in ((1, 1), (2, 1.5), (3, 1), (4, 1)):
        clock.advance(pause)
        jobs.append(calls.enqueue(what))

    assert (1, [True, False, False, False, False]) == (len({job.id for job in jobs}), [job.created for job in jobs])
    assert began + timedelta(seconds=5) == jobs[0].refresh().record.scheduled_at
    drain(app)
    assert ([4], began + timedelta(seconds=5)) == (ran, jobs[0].refresh().record.claimed_at)

    following = calls.enqueue(5)
    assert (True, began + timedelta(seconds=7)) == (following.created, following.record.scheduled_at)


@pytest.mark.case("D44")
def test_a_debounced_job_runs_when_it_has_been_quiet(app, clock, send, ran):
    """Two seconds after the last call the job runs, if no further call is made."""
    calls = send.debounce(lambda what: "k", quiet="2s", at_most="5s")
    calls.enqueue(0)
    clock.advance(1)
    job = calls.enqueue(1)
    due = clock.now() + timedelta(seconds=2)
    drain(app)

    assert ([1], due) == (ran, job.refresh().record.claimed_at)
