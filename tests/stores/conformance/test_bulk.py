"""Bulk operations: a preview, batches that any process writes, and an undo."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive.engine.bulk import BulkAction, BulkOperation, BulkOptions, BulkState, scoped
from redrive.engine.lifecycle import State
from redrive.engine.queue import Rate
from redrive.engine.records import NEWEST, Filter, Hold, KeyUntil
from redrive.errors import IllegalMove, OperationNotFound
from redrive.stores.operations import admin, bulk, deleting, doctor, jobs, redriving
from redrive.stores.operations.bulk import BulkPreview
from tests.stores.helpers import T0, Harness, failed, new, seconds

SEND = Filter(task="send", limit=NEWEST)


def preview(store: Harness, action: str, wanted: Filter = SEND, **given: Any) -> BulkPreview:
    """Preview an operation."""
    does, times = BulkAction(action), {name: given.pop(name) for name in ("bound_id", "frozen_at") if name in given}
    return store.do(bulk.preview(does, scoped(does, wanted), BulkOptions(**given), now=store.now, **times))


def start(store: Harness, action: str, wanted: Filter = SEND, *, rate: str | None = None, **given: Any) -> int:
    """Start an operation and return its id."""
    speed = None if rate is None else Rate.parse(rate)
    return store.do(bulk.start(preview(store, action, wanted, **given), rate=speed, actor="ann", now=store.now)).id


def batch(store: Harness, number: int) -> list[int] | None:
    """Write a batch, and return the jobs that it has changed."""
    done = store.do(bulk.carry_out(number, now=store.now))
    return None if done is None else list(done.ids)


def finish(store: Harness, number: int) -> BulkOperation:
    """Write all batches."""
    while batch(store, number) is not None:
        pass
    return store.do(bulk.get(number))


def line(store: Harness, number: int) -> list[tuple[str, list[int], list[int]]]:
    """Return the lines of the audit log about an operation: action, changed jobs, kept jobs."""
    return [(each.action, list(each.ids), [one for one, _ in each.kept]) for each in store.do(bulk.lines(number))]


def test_jobs_that_die_after_the_preview_are_untouched(store: Harness):
    """Operations start the dead jobs of their previews; jobs that die later stay dead, also with smaller ids."""
    late = store.take(new())
    ids = [store.dead(), store.dead()]
    kept = store.dead(new(retry="2 1s catch mend"))
    found = preview(store, "redrive")
    store.wait(1)
    store.end(late, failed(permanent="gone"))
    newest = store.dead(new(priority=-1))
    number = start(store, "redrive", bound_id=found.bound_id, frozen_at=found.at)
    ended = finish(store, number)

    assert (2, 1, True, 3) == (found.changes, found.kept, found.is_whole, found.matched)
    assert ((("send", 2),), (("default", 2),)) == (found.by_task, found.by_queue)
    assert (ids, [kept]) == ([job.id for job in found.sample], [one for one, _ in found.reasons])
    assert (BulkState.DONE, 2, 1, 3) == (ended.state, ended.done, ended.kept, ended.matched)
    assert [State.READY, State.READY] == [store.job(one).state for one in ids]
    assert [State.DEAD, State.DEAD, State.DEAD] == [store.job(one).state for one in (late.id, newest, kept)]
    assert [("start_redrive", [], []), ("redrive", ids, [kept])] == line(store, number)


def test_a_rate_spreads_the_batches(store: Harness):
    """Batches are written as the rate allows, a second before their first job is due, and the due times follow it."""
    ids = [store.dead() for _ in range(3)]
    number = start(store, "redrive", rate="1/5s")

    assert (seconds(-1), None) == (store.do(bulk.look(now=store.now)).rest_for, store.do(bulk.get(number)).ended_at)
    assert [ids[0]] == batch(store, number)
    assert None is batch(store, number)
    store.wait(4)
    assert [ids[1]] == batch(store, number)
    store.wait(30)
    assert [ids[2]] == batch(store, number)
    store.wait(4)
    assert ([], None) == (batch(store, number), store.do(bulk.look(now=store.now)))
    assert [T0, T0 + seconds(5), T0 + seconds(34)] == [store.job(one).scheduled_at for one in ids]


def test_each_job_is_changed_once(store: Harness):
    """Processes that carry out an operation at once change each job once, and the audit log has it once."""
    ids = [store.dead() for _ in range(8)]
    number = start(store, "redrive", rate="1/2s")
    for _ in range(8):
        store.at_once([bulk.carry_out(number, now=store.now) for _ in range(3)])
        store.wait(10)
    finish(store, number)

    assert ids == [one for _, done, _ in line(store, number) for one in done]
    assert {1} == {store.job(one).redrives for one in ids}


def test_an_equal_operation_is_not_started_twice(store: Harness):
    """While an operation runs, a start of an equal one returns it; other ones are started."""
    store.dead()
    first = start(store, "redrive")
    again, other = start(store, "redrive"), start(store, "redrive", queue="slow")
    finish(store, first)

    assert (first, True, True) == (again, first != other, start(store, "redrive") not in (first, other))
    assert 3 == len(store.do(bulk.select()))
    assert (other,) == tuple(each.id for each in store.do(bulk.select(before_id=other + 1, limit=1)))


def test_jobs_are_cancelled_with_the_reason(store: Harness):
    """Cancels end unfinished jobs that had been enqueued at the preview, in any state."""
    running = store.take(new())
    ready, done = store.put(new(delay=99)), store.dead()
    number = start(store, "cancel", why="wrong prices")
    later = store.put()
    ended = finish(store, number)

    assert (2, 0, 2) == (ended.done, ended.kept, ended.matched)
    assert ["wrong prices", "wrong prices"] == [store.job(one).note for one in (running.id, ready)]
    assert [State.DEAD, State.READY] == [store.job(one).state for one in (done, later)]


def test_a_repolicy_uses_the_policies_of_its_start(store: Harness):
    """Repolicies store the policies with the operation; jobs of other tasks are kept with the reason."""
    ids, foreign = store.enqueue(new(), new()), store.put(new("other", queue="a"))
    documents = {"send": new(retry="9 1h").policy.document}
    number = start(store, "repolicy", Filter(all=True, limit=NEWEST), policies=documents)
    ended = finish(store, number)

    assert (2, 1) == (ended.done, ended.kept)
    assert [10, 10, 3] == [store.job(one).policy.attempts for one in (*ids, foreign)]
    assert 0 == finish(store, start(store, "repolicy", policies=documents)).done
    with pytest.raises(IllegalMove, match="cannot be undone: a repolicy cannot be undone"):
        store.do(bulk.undo(number, now=store.now))


def test_a_redrive_is_undone(store: Harness):
    """Undo cancels the jobs that have not started since; those that run, or were changed, stay with the reason."""
    ids = [store.dead() for _ in range(4)]
    number = start(store, "redrive", Filter(task="send", limit=3))
    finish(store, number)
    store.claim(1)
    store.cancel(ids[1], "by hand")
    undo = store.do(bulk.undo(number, actor="bob", now=store.now))
    ended = finish(store, undo.id)

    assert (number, undo.id, 3) == (undo.undoes, store.do(bulk.get(number)).undone_by, undo.matched)
    assert (BulkState.DONE, 1, 2) == (ended.state, ended.done, ended.kept)
    assert (State.CANCELLED, f"undone by operation {undo.id}") == (store.job(ids[2]).state, store.job(ids[2]).note)
    assert [State.RUNNING, State.CANCELLED, State.DEAD] == [store.job(ids[n]).state for n in (0, 1, 3)]
    reasons = dict(store.do(bulk.lines(undo.id))[-1].kept)
    assert "has been changed since: it is running" == reasons[ids[0]]
    with pytest.raises(IllegalMove, match=f"operation {undo.id} takes it back already"):
        store.do(bulk.undo(number, now=store.now))


def test_a_cancel_is_undone(store: Harness):
    """Undo starts cancelled jobs again, each not before it was due and with its failures; redriven ones stay."""
    due, later, taken, gone = store.enqueue(new(), new(delay=99), new(), new())
    number = start(store, "cancel")
    finish(store, number)
    store.wait(1)
    store.redrive(Filter(ids=(taken,)))
    store.do(admin.cancel(taken, now=store.now))
    ended = finish(store, store.do(bulk.undo(number, now=store.now)).id)

    assert (3, 1) == (ended.done, ended.kept)
    assert [store.now, T0 + seconds(99), store.now] == [store.job(one).scheduled_at for one in (due, later, gone)]
    assert {Hold.REDRIVE} == {store.job(one).hold for one in (due, later, gone)}
    assert State.CANCELLED is store.job(taken).state


def test_an_undo_is_made_once_and_leaves_deleted_jobs(store: Harness):
    """Jobs that were deleted since stay away; while an undo runs, no other one of the same operation is started."""
    back, gone = store.enqueue(new(), new())
    number = start(store, "cancel")
    assert store.do(bulk.carry_out(number, now=store.now))
    finish(store, number)
    store.do(deleting.delete(Filter(ids=(gone,)), now=store.now))
    undo = store.do(bulk.undo(number, now=store.now)).id
    with pytest.raises(IllegalMove, match=f"operation {number} cannot be undone: operation {undo} takes it back"):
        store.do(bulk.undo(number, now=store.now))
    ended = finish(store, undo)

    assert (1, 1, State.READY) == (ended.done, ended.kept, store.job(back).state)
    assert ("undo", [back], [gone]) == line(store, undo)[-1]


def test_a_preview_stops_at_many_jobs_that_would_stay(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Previews read no further when they have found as many jobs that would stay as they count."""
    monkeypatch.setattr(bulk, "COUNTED", 1)
    monkeypatch.setattr(redriving, "PAGE", 1)
    for _ in range(2):
        store.dead(new(retry="2 1s catch mend"))
    found = preview(store, "redrive")

    assert (0, 1, False) == (found.changes, found.kept, found.is_whole)


def test_an_undo_stops_its_operation(store: Harness):
    """Operations that run are stopped by their undo, which takes back what they have done."""
    ids = [store.dead() for _ in range(3)]
    number = start(store, "redrive", rate="1/5s")
    batch(store, number)
    undo = store.do(bulk.undo(number, now=store.now))
    finish(store, undo.id)

    assert (BulkState.STOPPED, None) == (store.do(bulk.get(number)).state, batch(store, number))
    assert [State.CANCELLED, State.DEAD, State.DEAD] == [store.job(one).state for one in ids]
    assert ["start_redrive", "redrive", "stop_operation"] == [each for each, _, _ in line(store, number)]


def test_an_operation_is_stopped_once(store: Harness):
    """Stopped operations write no batch, and are not stopped again; unknown ones are errors."""
    store.dead()
    number = start(store, "redrive")

    assert BulkState.STOPPED is store.do(bulk.stop(number, actor="bob", now=store.now)).state
    assert (None, None) == (batch(store, number), store.do(bulk.look(now=store.now)))
    with pytest.raises(IllegalMove, match=f"operation {number} is stopped: only one that runs"):
        store.do(bulk.stop(number, now=store.now))
    for unknown in (bulk.get(99), bulk.stop(99, now=store.now), bulk.undo(99, now=store.now)):
        with pytest.raises(OperationNotFound, match="there is no operation 99"):
            store.do(unknown)
    with pytest.raises(IllegalMove, match="it has changed no job"):
        store.do(bulk.undo(number, now=store.now))


def test_a_batch_that_failed_is_tried_again(store: Harness):
    """The error of a batch is stored, and the next batch is due half a minute later and removes it."""
    ids = [store.dead()]
    number = start(store, "redrive")
    store.do(bulk.failed(number, "ValueError: x", now=store.now))

    assert ("ValueError: x", None) == (store.do(bulk.get(number)).last_error, batch(store, number))
    (each,) = [
        each for each in doctor.diagnose(store.do(doctor.examine(store.now)), (), "1") if each.check == "operations"
    ]
    (found,) = store.do(doctor.examine(store.now)).operations
    assert doctor.RunningBulk(number, "redrive", 0, 1, None, "ValueError: x") == found
    assert f"a batch of operation {number} (redrive) fails, and is tried again: ValueError: x" == each.text
    assert f"redrive operations show APP {number}, or redrive operations stop APP {number}" == each.advice
    store.wait(30)
    assert ids == batch(store, number)
    assert None is store.do(bulk.get(number)).last_error
    assert () == store.do(doctor.examine(store.now)).operations


def test_a_batch_reads_a_bounded_number_of_rows(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Batches read a few rows of the table if no index finds the jobs; previews then state that more may match."""
    monkeypatch.setattr(admin, "FEW", 0)
    monkeypatch.setattr(bulk, "STRIDE", 4)
    monkeypatch.setattr(bulk, "READ", 6)
    rare = [store.enqueue(*[new("often")] * 5, new())[-1] for _ in range(3)]
    found = preview(store, "cancel")
    number = start(store, "cancel")
    batches = []
    while (done := batch(store, number)) is not None:
        batches.append(done)

    assert (1, False, None) == (found.changes, found.is_whole, found.matched)
    assert (rare, True) == ([one for done in batches for one in done], len(batches) > 3)


def acts(store: Harness, job_id: int, most: int = 5) -> list[tuple[str, str, dict[str, Any]]]:
    """Return what operators did with a job: actor, action and details, newest first."""
    found = store.do(jobs.details(job_id, acts=most, most=1)).acts
    return [(each.actor, each.action, msgspec.json.decode(each.details)) for each in found]


def test_a_bulk_operation_stands_with_each_of_its_jobs(store: Harness):
    """Each job has the operation, its actor and its reason; an id that begins alike is another job."""
    for _ in range(11):
        store.put(new(delay=99))
    number = start(store, "cancel", Filter(task="send", limit=10), why="wrong prices")
    finish(store, number)
    store.do(redriving.retry(1, actor="bob", now=store.now))

    cancelled = ("ann", "cancel", {"operation": number, "why": "wrong prices"})
    assert [("bob", "retry", {"ids": [1]}), cancelled] == acts(store, 1)
    assert [cancelled] == acts(store, 10)
    assert [] == acts(store, 11)
    assert [("bob", "retry", {"ids": [1]})] == acts(store, 1, most=1)


def test_a_job_that_an_operation_has_kept_has_the_reason(store: Harness):
    """It was chosen, and could not be changed."""
    keyed = replace(new(), key="k", key_until=KeyUntil.END)
    kept, redriven = store.dead(keyed), store.dead()
    store.put(keyed)
    number = start(store, "redrive")
    finish(store, number)

    assert [("ann", "redrive", {"operation": number})] == acts(store, redriven)
    ((actor, action, details),) = acts(store, kept)
    assert ("ann", "redrive", number) == (actor, action, details["operation"])
    assert "key" in details["kept"]


def test_a_change_of_several_jobs_at_once_stands_with_each(store: Harness):
    """Also without an operation, and if its filter is one thing, such as a queue."""
    for _ in range(2):
        store.put(new(delay=99))
    store.do(admin.cancel_all(Filter(queue="default"), why="closed", actor="ann", now=store.now))

    told = ("ann", "cancel", {"filter": {"queue": "default"}, "why": "closed"})
    assert [[told], [told]] == [acts(store, 1), acts(store, 2)]
