"""One line on what in its queue keeps a due job from running."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.explain import Circumstances, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.queue import QueuePosition, QueueSettings
from redrive.engine.records import Hold
from tests.engine.helpers import T0, job, seconds, worker

NOW = T0 + seconds(90)
DUE = job(id=7, partition="acme")
OPEN = QueueSettings("default")
PAUSED = replace(OPEN, paused_at=T0)
LIMITED = replace(OPEN, concurrency=2)
SHARED = replace(OPEN, per_partition=1)
RATED = replace(OPEN, rate_count=5, rate_for=seconds(1.8))
ORDERED = replace(OPEN, ordered=True)
HOLDERS = ((1, None), (2, "acme"))


def around(standing: QueuePosition) -> Circumstances:
    """Return the circumstances of a job at this position in its queue, with a live worker."""
    return Circumstances(NOW, (worker(),), standing)


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (QueuePosition(PAUSED), f"queue paused since {T0:%Y-%m-%d %H:%M:%S} UTC"),
        (QueuePosition(LIMITED, holders=HOLDERS), "limit 2/2 held by jobs 1, 2"),
        (
            QueuePosition(replace(OPEN, concurrency=7), holders=tuple((n, None) for n in range(1, 8))),
            "limit 7/7 held by jobs 1, 2, 3, 4, 5 and 2 more",
        ),
        (QueuePosition(SHARED, holders=HOLDERS), "limit 1/1 of partition 'acme' held by job 2"),
        (
            QueuePosition(RATED, next_at=NOW + seconds(1.5)),
            f"rate 5/1.8s reached, next at {NOW + seconds(1.5):%Y-%m-%d %H:%M:%S}.5 UTC",
        ),
        (
            QueuePosition(ORDERED, head_id=3, head_state=State.RUNNING),
            "blocked by job 3 of the same partition, which is running",
        ),
        (
            QueuePosition(ORDERED, head_id=3, head_state=State.DEAD),
            "blocked by job 3 of the same partition, which is dead: retry, redrive or skip that one",
        ),
        (QueuePosition(OPEN), "waiting for a free worker"),
        (QueuePosition(LIMITED, holders=HOLDERS[:1]), "waiting for a free worker"),
        (QueuePosition(SHARED, holders=((2, "other"),)), "waiting for a free worker"),
        (QueuePosition(RATED, next_at=NOW), "waiting for a free worker"),
        (QueuePosition(ORDERED, head_id=7, head_state=State.READY), "waiting for a free worker"),
        (QueuePosition(ORDERED), "waiting for a free worker"),
    ],
)
def test_the_line_of_a_due_job_names_its_obstacle(standing: QueuePosition, expected: str):
    """Lines of due jobs name the pause, the head of the partition, the holders of slots, or the rate."""
    assert f"due since 1m 30s, {expected}" == why_not_running(DUE, around(standing))


def test_a_job_without_a_partition_has_no_predecessor():
    """In an ordered queue no job blocks one without a partition."""
    standing = QueuePosition(
        replace(ORDERED, per_partition=1), head_id=3, head_state=State.RUNNING, holders=((1, None),)
    )

    assert "due since 1m 30s, waiting for a free worker" == why_not_running(job(), around(standing))


def test_the_line_of_a_job_that_is_not_due_begins_with_its_due_time():
    """Jobs that are due later show when, and also that their queue is paused."""
    later = job(scheduled_at=NOW + seconds(60), hold=Hold.RETRY)
    paused = f"; queue paused since {T0:%Y-%m-%d %H:%M:%S} UTC"

    assert f"retrying: due in 1m{paused}" == why_not_running(later, around(QueuePosition(PAUSED)))
    assert "retrying: due in 1m" == why_not_running(later, around(QueuePosition(LIMITED, holders=HOLDERS)))


def test_the_last_reason_stays_in_the_line():
    """Due jobs that are blocked still show what they waited for before."""
    held_up = why_not_running(job(hold=Hold.LOST), around(QueuePosition(LIMITED, holders=HOLDERS)))

    assert "due since 1m 30s, limit 2/2 held by jobs 1, 2; its worker was lost" == held_up


def test_a_line_names_two_obstacles():
    """If a queue is paused and no worker would take the job, the line names both."""
    expected = f"due since 1m 30s, queue paused since {T0:%Y-%m-%d %H:%M:%S} UTC, no worker is alive"

    assert expected == why_not_running(DUE, Circumstances(NOW, (), QueuePosition(PAUSED)))
