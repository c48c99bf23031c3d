"""What clears the reason why a job is not running."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.explain import CatchJob, Circumstances, Obstacle, obstacle, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.queue import QueuePosition, QueueSettings
from redrive.engine.records import Hold, JobRecord
from tests.engine.helpers import T0, job, seconds, worker

NOW = T0 + seconds(90)
LATER = job(scheduled_at=NOW + seconds(1))
LIMITED = QueuePosition(QueueSettings("mail", concurrency=1), holders=((3, None),))
PARTED = QueuePosition(QueueSettings("mail", per_partition=1), holders=((3, "acme"), (4, "other")))
PAUSED = QueuePosition(QueueSettings("mail", paused_at=T0))
ORDERED = QueuePosition(QueueSettings("mail", ordered=True), head_id=5, head_state=State.DEAD)
RATED = QueuePosition(QueueSettings("mail", rate_count=1, rate_for=seconds(9)), next_at=NOW + seconds(1))


def caught_by(state: State) -> Circumstances:
    """Return what is around a dead job with a catch job in a state."""
    return Circumstances(NOW, catch=CatchJob(7, 8, "recover", state))


@pytest.mark.parametrize(
    ("row", "around", "advice", "jobs"),
    [
        (job(), Circumstances(NOW), "redrive worker shop:app", ()),
        (job(), Circumstances(NOW, (worker(queues=("print",)),)), "redrive worker shop:app --queue mail", ()),
        (job(), Circumstances(NOW, (worker(tasks=("print",)),)), "redrive workers list shop:app", ()),
        (job(), Circumstances(NOW, (worker(trouble="KeyError"),)), "redrive workers list shop:app", ()),
        (job(), Circumstances(NOW, (worker(running=4),)), "redrive worker shop:app", ()),
        (job(), Circumstances(NOW, (worker(),), LIMITED), "redrive queues show shop:app mail", (3,)),
        (
            job(partition="acme"),
            Circumstances(NOW, (worker(),), PARTED),
            "redrive queues show shop:app mail",
            (3,),
        ),
        (job(), Circumstances(NOW, (worker(),), RATED), "redrive queues show shop:app mail", ()),
        (job(), Circumstances(NOW, (worker(),), PAUSED), "redrive queues resume shop:app mail", ()),
        (job(partition="a"), Circumstances(NOW, (worker(),), ORDERED), "redrive jobs show shop:app 5", (5,)),
        (LATER, Circumstances(NOW, standing=PAUSED), "redrive queues resume shop:app mail", ()),
        (LATER, Circumstances(NOW, standing=LIMITED), "redrive jobs retry shop:app 7", ()),
        (replace(LATER, hold=Hold.BREAKER), Circumstances(NOW), "redrive jobs retry shop:app 7", ()),
        (replace(LATER, hold=Hold.UNKNOWN_TASK), Circumstances(NOW), "redrive workers list shop:app", ()),
        (replace(LATER, hold=Hold.BAD_PAYLOAD), Circumstances(NOW), "redrive jobs retry shop:app 7", ()),
        (replace(LATER, hold=Hold.BAD_POLICY), Circumstances(NOW), "redrive jobs repolicy shop:app 7", ()),
        (
            replace(LATER, hold=Hold.PAUSED, origin="run:checkout/order-42"),
            Circumstances(NOW),
            "redrive runs resume shop:app checkout/order-42",
            (),
        ),
        (job(state=State.DEAD), Circumstances(NOW), "redrive jobs retry shop:app 7", ()),
        (job(state=State.DEAD), caught_by(State.DEAD), "redrive jobs retry shop:app 8", (8,)),
        (job(state=State.DEAD), caught_by(State.CANCELLED), "redrive jobs retry shop:app 7", ()),
    ],
)
def test_each_obstacle_has_the_command_that_clears_it(
    row: JobRecord, around: Circumstances, advice: str, jobs: tuple[int, ...]
):
    """The command names the app, the queue or the job, and the jobs that hold it up are named."""
    found = obstacle(row, around)

    assert found is not None
    assert (advice, jobs) == (found.advice("shop:app"), found.jobs)
    assert found.text in why_not_running(row, around)


@pytest.mark.parametrize(
    ("row", "around"),
    [
        (job(), Circumstances(NOW, (worker(),))),
        (job(state=State.RUNNING, claimed_at=T0), Circumstances(NOW)),
        (job(state=State.SUCCEEDED), Circumstances(NOW)),
        (job(state=State.DEAD, caught_at=T0), Circumstances(NOW)),
        (job(state=State.DEAD, finished_at=T0, skipped_at=T0 + timedelta(microseconds=1)), Circumstances(NOW)),
        (job(state=State.DEAD), caught_by(State.RUNNING)),
        (replace(LATER, hold=Hold.PARKED), Circumstances(NOW)),
    ],
)
def test_jobs_that_run_or_have_ended_have_no_obstacle(row: JobRecord, around: Circumstances):
    """Nothing is to be cleared for a job that is next, runs, has ended, or belongs to a run that waits."""
    assert obstacle(row, around) is None


def test_names_in_commands_are_quoted():
    """Queues with a space are one word of the command; what no command clears has none."""
    row = job(queue="big mail")

    assert "redrive worker APP --queue 'big mail'" == _advice(row, Circumstances(NOW, (worker(queues=("mail",)),)))
    assert Obstacle("a long wait").advice("APP") is None


def _advice(row: JobRecord, around: Circumstances) -> str | None:
    found = obstacle(row, around)
    return None if found is None else found.advice("APP")
