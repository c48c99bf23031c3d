"""Schedules and tracked items, step by step: what happens if another transaction changes the same row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.items import TrackedItem, columns
from redrive.engine.lifecycle import State
from redrive.engine.origin import Kind, Origin, OriginResult
from redrive.engine.recurring import CronDefinition, Overlap, ScheduleRecord
from redrive.errors import NotTracked, ScheduleError
from redrive.schedule import RefreshState, refresh
from redrive.stores.operations import crons
from redrive.stores.operations.refresh import finish, manage
from redrive.stores.query import Operation, Query
from tests.engine.helpers import job as a_job
from tests.stores.helpers import T0
from tests.stores.operations.conversing import CLOCK, converse, names
from tests.stores.recurring import HOUR, cron, keeping, samples

DEFINITION = keeping(give_up_after=HOUR)
POLICY = DEFINITION.policy
ROW = ScheduleRecord(
    "fresh", DEFINITION.kind, DEFINITION.document, DEFINITION.timing, T0, None, None, None, None, None
)  # fmt: skip


def running(number: int) -> TrackedItem:
    """Return the row of a tracked item with this job as its open attempt."""
    state = refresh.trigger(POLICY, RefreshState(), now=T0 - HOUR, uid=str(number)).state
    return TrackedItem("fresh", "a", b"{}", None, DEFINITION.timing, T0, **columns(POLICY, state), job_id=number)


def partly(operation: Operation[Any], *answers: Sequence[Any]) -> list[Query]:
    """Answer the first statements of an operation, close it, and return the statements that it ran."""
    asked = [next(operation.steps)]
    asked += [operation.steps.send(answer) for answer in answers]
    operation.steps.close()
    return asked


def test_a_job_that_is_locked_is_left_alone():
    """Sweeps that cannot lock a job check that it exists, and then leave its item alone."""
    answers = [running(7)], [], [a_job(id=7)]
    done, asked = converse(finish.end_overdue(9, samples()), CLOCK, *answers)

    assert 0 == done
    assert ["clock", "refresh_overdue", "job_locks", "job_get"] == names(asked)


def test_a_sweep_locks_its_items_once_in_their_order():
    """Sweeps lock all their items by key before the first one moves, so that none waits in a circle."""
    late, queued = replace(running(7), key="a"), replace(running(8), key="b")
    jobs = [a_job(id=7, state=State.SUCCEEDED), a_job(id=8)]
    asked = partly(finish.end_overdue(9, samples()), CLOCK, [queued, late], jobs, [late, queued], [ROW], [])
    first, *_, move = [each for each in asked if each.name in {"refresh_rows", "refresh_put"}]

    assert ["a", "b"] == first.params["keys"]
    assert "refresh_put" == move.name
    assert names(asked).index("refresh_rows") < names(asked).index("refresh_put")


def test_an_item_that_changed_since_the_read_is_left_alone():
    """Idle items that failed for too long, and have succeeded since the read, are not swept."""
    failing = refresh.failure(POLICY, running(7).state, now=T0 - HOUR, uid="7").state
    before = replace(running(7), **columns(POLICY, failing), job_id=None)
    after = replace(before, **columns(POLICY, refresh.update(POLICY, failing, now=T0).state))
    done, asked = converse(finish.end_overdue(9, samples()), CLOCK, [before], [ROW], [after])

    assert 0 == done
    assert "refresh_idle" == names(asked)[-1]


def test_the_job_of_a_newer_attempt_is_locked_before_the_item():
    """If another attempt began during the wait for the lock, the item is given back until the new job is locked."""
    operation = manage.update("fresh", "a", 0.0)
    old, new = running(7), running(8)
    ended = a_job(id=7, state=State.CANCELLED)
    first = [old], [], [ended], [new], [], []
    asked = partly(operation, CLOCK, [ROW], *first, [new], [], [a_job(id=8)], [new], [], [new])

    again = ["refresh_get", "locks_mark", "job_lock", "refresh_rows"]
    assert [*again, "locks_release", "locks_keep", *again, "locks_keep", "refresh_get", "cancel"] == names(asked)[2:]
    assert 8 == asked[-1].params["id"]


def test_an_item_that_is_tracked_anew_during_the_wait_is_locked_too():
    """If the item was deleted and tracked again before its row could be locked, its new job is ended."""
    operation = manage.untrack("fresh", "a")
    old, new = running(7), running(8)
    first = [old], [], [a_job(id=7, state=State.CANCELLED)], [], [], []
    asked = partly(operation, CLOCK, *first, [new], [], [a_job(id=8)], [new], [], [new])

    assert "cancel" == asked[-1].name
    assert 8 == asked[-1].params["id"]


def test_an_item_that_was_untracked_during_the_wait_is_not_found():
    """If the item was deleted before its row could be locked, the operation reports it as not found."""
    operation = manage.update("fresh", "a", 0.0)
    with pytest.raises(NotTracked):
        converse(operation, CLOCK, [ROW], [running(7)], [], [a_job(id=7)], [], [], [], [])


def test_an_attempt_that_ends_during_the_wait_is_not_superseded():
    """If the attempt ended before its item could be locked, a trigger cancels no job, and starts from the new state."""
    ended = refresh.success(POLICY, running(7).state, now=T0, uid="7").state
    idle = replace(running(7), **columns(POLICY, ended), job_id=None)
    asked = partly(
        manage.trigger("fresh", "a", 0.0),
        *(CLOCK, [ROW], [running(7)], [], [a_job(id=7, state=State.SUCCEEDED)], [idle], [], [idle]),
    )

    assert ["locks_keep", "refresh_get", "take"] == names(asked)[-3:]


def test_a_pruned_job_is_not_cancelled():
    """Updating an item with a pruned job cancels no job."""
    operation = manage.untrack("fresh", "a")
    untracked, asked = converse(
        operation, CLOCK, [running(7)], [], [], [running(7)], [], [running(7)], [("a",)]
    )  # fmt: skip

    assert untracked
    assert "cancel" not in names(asked)


def test_a_miss_counts_from_the_deadline():
    """Missing jobs are reported as failed at the deadline of their item, not at the time of the sweep."""
    item = running(7)
    moved, asked = converse(
        finish.end_overdue(9, samples()), CLOCK, [item], [], [], [item], [ROW], [item], []
    )  # fmt: skip
    (row,) = asked[-1].many or ()

    assert 1 == moved
    assert item.deadline_at + timedelta(minutes=5) == row["refresh_at"]


def row_of(definition: CronDefinition, **changes: Any) -> ScheduleRecord:
    """Return the row of a cron that was created at run time."""
    given = (definition.document, definition.timing, T0, None, None, T0, 7, T0)
    return replace(ScheduleRecord(definition.name, definition.kind, *given, created=True), **changes)


def test_a_cron_that_is_deleted_while_its_job_ends_is_left_alone():
    """Ends of jobs that find the cron deleted after they have read it start nothing."""
    ended = OriginResult(Origin(Kind.CRON, "nightly", "2026-03-29T03:00:00Z"), 7, succeeded=True)
    steps = crons.finish_all([ended], T0)
    next(steps)
    query = steps.send([row_of(cron(overlap=Overlap.QUEUE))])

    assert "schedule_lock" == query.name
    with pytest.raises(StopIteration):
        steps.send([])


def test_the_first_of_two_concurrent_creations_wins():
    """Creation that has found no row, and then the row of another process with other values, is refused."""
    with pytest.raises(ScheduleError, match="the cron 'nightly' exists with other values"):
        converse(crons.create(cron(), now=None), CLOCK, [], [], [row_of(cron("45 * * * *"))])
