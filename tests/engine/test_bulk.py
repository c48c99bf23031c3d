"""Bulk operations: the jobs that they mean, their pace and their end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.bulk import (
    BATCH,
    BulkAction,
    BulkOptions,
    BulkState,
    digest,
    frozen,
    scoped,
)
from redrive.engine.lifecycle import State
from redrive.engine.records import NEWEST, Filter
from redrive.errors import ConfigurationError
from tests.engine.helpers import NOW, OPERATION

LATER = NOW + timedelta(seconds=100)


def test_a_redrive_means_dead_jobs_that_were_neither_caught_nor_skipped():
    """Redrives without a state leave out jobs in other states, and dead jobs that were dealt with."""
    dead = Filter(task="a", state=State.DEAD, caught=False, skipped=False, oldest_first=True, limit=NEWEST)

    assert dead == scoped(BulkAction.REDRIVE, Filter(task="a"))
    assert replace(dead, task=None) == scoped(BulkAction.REDRIVE, Filter(all=True))
    assert True is scoped(BulkAction.REDRIVE, Filter(caught=True)).caught
    assert True is scoped(BulkAction.REDRIVE, Filter(skipped=True)).skipped
    assert None is scoped(BulkAction.REDRIVE, Filter(state=State.CANCELLED)).skipped


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (BulkAction.REDRIVE, Filter(ids=(1,))),
        (BulkAction.REDRIVE, Filter(state=State.CANCELLED)),
        (BulkAction.CANCEL, Filter(task="a")),
        (BulkAction.CANCEL, Filter(all=True)),
        (BulkAction.REPOLICY, Filter(state=State.WAITING)),
    ],
)
def test_other_filters_stay(action: BulkAction, wanted: Filter):
    """Filters with a state or ids, and those of cancels and repolicies, stay as they are, but mean all jobs."""
    assert replace(wanted, oldest_first=True, limit=NEWEST) == scoped(action, wanted)


@pytest.mark.parametrize(
    ("action", "wanted", "why"),
    [
        (BulkAction.REDRIVE, Filter(state=State.READY), "changes jobs that are cancelled, dead; .* for state ready"),
        (BulkAction.CANCEL, Filter(state=State.DEAD), "changes jobs that are ready, running, waiting; .* state dead"),
        (BulkAction.CANCEL, Filter(), "the filter has no condition"),
        (BulkAction.UNDO, Filter(task="a"), "takes an operation back, not jobs by filter"),
    ],
)
def test_a_filter_without_effect_is_refused(action: BulkAction, wanted: Filter, why: str):
    """Filters that mean only jobs on which the action has no effect are errors."""
    with pytest.raises(ConfigurationError, match=why):
        scoped(action, wanted)


def test_later_jobs_are_left_out():
    """Jobs above the bound, and for a redrive those that ended after the preview, are left out."""
    just_after = NOW + timedelta.resolution

    assert Filter(task="a", before_id=10) == frozen(BulkAction.CANCEL, Filter(task="a"), 9, NOW)
    redrive = frozen(BulkAction.REDRIVE, Filter(task="a", before_id=5), 9, NOW)
    assert Filter(task="a", before_id=5, finished_before=just_after) == redrive
    for given, expected in ((NOW - timedelta(1), NOW - timedelta(1)), (LATER, just_after)):
        assert expected == frozen(BulkAction.REDRIVE, Filter(finished_before=given), 9, NOW).finished_before


@pytest.mark.parametrize(
    ("rate", "limit", "size"),
    [(None, NEWEST, BATCH), ("10/1s", NEWEST, 50), ("1/1h", NEWEST, 1), ("9999/1s", NEWEST, BATCH), (None, 12, 9)],
)
def test_a_batch_has_the_jobs_of_some_seconds(rate: str | None, limit: int, size: int):
    """Batches have the jobs of five seconds at the rate, and at most those that are left of the limit."""
    operation = replace(OPERATION, rate=rate, wanted=replace(OPERATION.wanted, limit=limit), done=3, last_id=21)

    assert (size, 21, 100) == (operation.batch.limit, operation.batch.after_id, operation.batch.before_id)


def test_a_batch_moves_the_operation():
    """Batches add to the counts and move position and time; a batch that is late does not catch up."""
    operation = replace(OPERATION, rate="2/1s", last_error="boom")
    after = operation.advanced(NOW, done=4, kept=1, last_id=8)

    assert (4, 1, 8, None, BulkState.RUNNING) == (
        after.done,
        after.kept,
        after.last_id,
        after.last_error,
        after.state,
    )
    assert NOW + timedelta(seconds=2) == after.next_at
    assert LATER + timedelta(seconds=1) == after.advanced(LATER, done=2, kept=0, last_id=9).next_at


def test_an_operation_ends_with_its_jobs():
    """Operations are done if no job is left, or as many as the limit were changed."""
    limited = replace(OPERATION, wanted=replace(OPERATION.wanted, limit=5))
    for ended in (
        OPERATION.advanced(NOW, done=1, kept=0, last_id=None),
        limited.advanced(NOW, done=5, kept=0, last_id=9),
    ):
        assert (BulkState.DONE, NOW) == (ended.state, ended.ended_at)
    assert BulkState.RUNNING is limited.advanced(NOW, done=4, kept=9, last_id=9).state


def test_the_time_left_follows_from_the_rate():
    """The time that is left is known if the rate and the number of jobs are, while the operation runs."""
    operation = replace(OPERATION, rate="2/1s", done=20, kept=4)

    assert timedelta(seconds=8) == operation.left_for
    assert timedelta(0) == replace(operation, kept=44).left_for
    for changes in ({"rate": None}, {"matched": None}, {"state": BulkState.STOPPED}):
        assert None is replace(operation, **changes).left_for


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"done": 1}, None),
        ({"done": 1, "action": BulkAction.CANCEL}, None),
        ({}, "it has changed no job"),
        ({"done": 1, "undone_by": 8}, "operation 8 takes it back already"),
        (
            {"done": 1, "action": BulkAction.REPOLICY},
            "a repolicy cannot be undone: the policies before it are not kept",
        ),
        ({"done": 1, "action": BulkAction.UNDO}, "an undo cannot be undone: start a new operation"),
    ],
)
def test_redrives_and_cancels_can_be_undone(changes: dict[str, object], why: str | None):
    """Redrives and cancels that have changed jobs can be undone, once."""
    assert why == replace(OPERATION, **changes).why_not_undone()


def test_equal_operations_have_equal_digests():
    """Digests differ if anything that the operation does differs."""
    wanted = Filter(task="a")
    one = digest(BulkAction.CANCEL, wanted, BulkOptions())
    others = [
        digest(BulkAction.REPOLICY, wanted, BulkOptions()),
        digest(BulkAction.CANCEL, Filter(task="b"), BulkOptions()),
        digest(BulkAction.CANCEL, wanted, BulkOptions(why="x")),
        digest(BulkAction.CANCEL, wanted, BulkOptions(), rate="1/s"),
        digest(BulkAction.CANCEL, wanted, BulkOptions(), undoes=1),
    ]

    assert one == digest(BulkAction.CANCEL, Filter(task="a"), BulkOptions())
    assert 6 == len({one, *others})
