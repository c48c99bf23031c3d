"""Workers with jobs, runs, instances and events are killed, suspended past their leases, and lose PostgreSQL."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from redrive import Filter
from tests.acceptance.chaos import EVERYTHING, enough, marks, sized
from tests.acceptance.processes import Deployment
from tests.acceptance.servers import own
from tests.acceptance.storm import Part, Storm, acknowledged, calm, check, load, produce

pytestmark = marks

SEED = int(os.environ.get("REDRIVE_CHAOS_SEED", time.time_ns() % 1_000_000))
"""Of the faults; a test that fails shows it."""


OPEN = ("ready", "running")


class Jobs(Part):
    """Plain jobs, beside the rest."""

    work = '''

@app.task(retry="10 20ms")
async def plain(number: int, context: Context) -> int:
    """Fail the first time."""
    note("job", number, os.getpid())
    if context.failures == 0:
        raise RuntimeError("not yet")
    return number
'''
    producer = """
producers.append(lambda number: attempt(lambda: work.plain.enqueue(number), "job", number))
"""

    def settled(self, stage: Deployment) -> bool:
        """Return True if each job has ended."""
        return not any(stage.app.jobs.select(Filter(task="plain", state=state, limit=1)) for state in OPEN)

    def audit(self, stage: Deployment, storm: Storm) -> None:
        """Check that each acknowledged job has succeeded."""
        done = {job.id for job in stage.app.jobs.select(Filter(task="plain", state="succeeded", limit=EVERYTHING))}

        assert len(acknowledged(stage, "job")) <= len(done)
        assert () == stage.app.jobs.select(Filter(task="plain", state="dead", limit=10))


PARTS: tuple[Part, ...] = (Jobs(),)


def _ride_out(stage: Deployment, storm: Storm) -> None:
    """Produce under a storm, let the workers finish, and audit what they have done."""
    try:
        producer = produce(stage, PARTS, pause=0.02)
        storm.blow(sized(10, 600))
        enough(stage, producer)
        calm(stage, PARTS, patience=sized(90, 900))
        storm.end()
        for part in PARTS:
            part.audit(stage, storm)
        check(stage)
    except AssertionError as error:
        error.add_note(f"REDRIVE_CHAOS_SEED={SEED}, faults: {storm.faults}")
        raise


def test_flows_on_postgres_survive_a_storm(tmp_path: Path):
    """Three workers are killed and suspended, and the server restarts: each recorded step ran to its record once, no
    transition is lost or doubled, no event is skipped, and the events of a key keep their order."""
    with (
        own(Path(tempfile.mkdtemp(prefix="redrive-storm-"))) as server,
        load(tmp_path, "postgres", PARTS, url=server.url()) as stage,
    ):
        stage.lease_for = "2s"
        _ride_out(stage, Storm(stage, 3, SEED, server))


def test_flows_on_sqlite_survive_a_storm(tmp_path: Path):
    """One worker is killed and suspended, with the same promises."""
    with load(tmp_path, "sqlite", PARTS) as stage:
        stage.lease_for = "2s"
        _ride_out(stage, Storm(stage, 1, SEED))
