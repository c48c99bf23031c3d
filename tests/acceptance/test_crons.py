"""Crons of a fleet that loses the worker that starts them: each occurrence has one job, and none is missed."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from redrive.engine.occurrence import Occurrence
from redrive.engine.origin import of_cron
from tests.acceptance.processes import Deployment, stage

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

TAKEOVER = timedelta(seconds=10)
"""D54: how soon another worker has started the occurrences that the leader has left."""

WORK = '''
"""A cron of each second; the worker that starts it dies in between if the test prescribes so."""

import contextlib
import os
import signal
from pathlib import Path

from redrive import App, Context
from redrive.stores.operations import crons

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for="15s")
written = crons._put


def die_here(decided):
    """Write an occurrence, and perhaps die before its job is written."""
    fresh = yield from written(decided)
    with contextlib.suppress(FileNotFoundError):
        (HERE / "die").rename(HERE / "died")
        (HERE / "died").write_text(decided[0].occurs_at.isoformat())
        os.kill(os.getpid(), signal.SIGKILL)
    return fresh


crons._put = die_here


@app.cron("* * * * * *", overlap="allow", catch_up="all")
async def tick(context: Context) -> None:
    """Do nothing."""
'''


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return an app with a cron, in a folder and a database of its own."""
    with stage(tmp_path, request.param, work=WORK) as opened:
        yield opened


def fired(stage: Deployment) -> list[Occurrence]:
    """Return all occurrences, in order."""
    found: tuple[Occurrence, ...] = stage.module.tick.occurrences(limit=1000)
    return [*reversed(found)]


@pytest.mark.case("D54")
def test_a_cron_is_fired_by_another_worker_if_the_first_dies_while_firing(stage: Deployment):
    """Of three workers the one dies that fires, after the occurrence and before its job: another one fires it anew."""
    fleet = [stage.worker() for _ in range(3)]
    stage.until(lambda: all(each.logged("serves all queues") for each in fleet))
    stage.until(lambda: len(stage.app.schedules.select()) == 1 and len(fired(stage)) >= 2)
    (stage.folder / "die").touch()
    stage.until(lambda: [each.alive for each in fleet].count(False) == 1)
    left = datetime.fromisoformat((stage.folder / "died").read_text())
    stage.until(lambda: fired(stage)[-1].occurs_at >= left + timedelta(seconds=2))
    for each in fleet:
        each.send(signal.SIGTERM)
    statuses = sorted(each.ended() for each in fleet)
    occurrences = fired(stage)
    taken = next(each for each in occurrences if each.occurs_at == left)

    assert [-signal.SIGKILL, 0, 0] == statuses
    assert {timedelta(seconds=1)} == {
        later.occurs_at - each.occurs_at for each, later in itertools.pairwise(occurrences)
    }
    assert [of_cron("tick", each.occurs_at) for each in occurrences] == [job.origin for job in stage.jobs()]
    assert [each.job_id for each in occurrences] == [job.id for job in stage.jobs()]
    assert min(each.decided_at - each.occurs_at for each in occurrences) >= timedelta(0)
    assert TAKEOVER >= taken.decided_at - left
