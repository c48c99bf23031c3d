"""Refreshes with real worker processes: a fleet, a kill, a handler that hangs, and a machine that is suspended."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import Refresh
from redrive.engine.items import TrackedItem
from tests.acceptance.processes import LONG, Deployment, stage

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

WORK = '''
"""The app of these tests; the workers import it as ``work``."""

import asyncio
import os
import time
from pathlib import Path

from redrive import App, Context

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for=os.environ.get("LEASE_FOR", "15s"))


def note(*words: object) -> None:
    """Write one line and see it on the disk."""
    file = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\\n").encode())
    os.fsync(file)
    os.close(file)


@app.refresh("Refresh every 30 days; allow 1 minute")
async def quick(context: Context) -> None:
    """Do little."""
    note("run", context.attempt_uid, context.key)


@app.refresh("Refresh every 30 days; allow 1 hour; on the first failure, retry after 1 hour")
async def patient(context: Context) -> None:
    """Wait for the test, in the first execution only."""
    note("run", context.attempt_uid, (await patient.aget("k")).attempt_no)
    while context.attempt == 1 and not (HERE / "go").exists():
        await asyncio.sleep(0.005)


@app.refresh("Refresh every 30 days; allow 1 second; on the first failure, retry immediately; then every 2 seconds")
async def hog(context: Context) -> None:
    """In the first attempt, wait for the test, and block the event loop."""
    is_first = not (HERE / "begun").exists()
    (HERE / "begun").touch()
    note("run", context.attempt_uid, context.key)
    while is_first and not (HERE / "go").exists():
        time.sleep(0.005)
    note("end", context.attempt_uid)


@app.refresh("Refresh every 6 seconds; allow 3 seconds; retry 9 times")
async def hung(context: Context) -> None:
    """Never end by itself."""
    note("run", context.attempt_uid, (await hung.aget("k")).attempt_no, time.time())
    await asyncio.sleep(60)


@app.refresh("Refresh every 30 days; allow 3 seconds; retry immediately")
async def crowded(context: Context) -> None:
    """Take a part of the time that is allowed."""
    note("run", context.attempt_uid, context.key)
    await asyncio.sleep(0.5)
'''

KEYS = [f"customer/{number}" for number in range(60)]


@pytest.fixture(name="scenario", params=["sqlite", "postgres"])
def _scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app on a new database."""
    with stage(tmp_path, request.param, work=WORK) as opened:
        yield opened


def refresh(scenario: Deployment, name: str) -> Refresh:
    """Return one of the refreshes."""
    found = scenario.app.schedules.declared[name]
    assert isinstance(found, Refresh)
    return found


def rested(scenario: Deployment, name: str) -> TrackedItem:
    """Wait until the only item of a refresh has succeeded."""
    found = refresh(scenario, name)
    scenario.until(lambda: found.get("k").job_id is None and found.get("k").attempt_no == 0)
    scenario.all_ended()
    return found.get("k")


def settled(scenario: Deployment) -> list[list[str]]:
    """Return the outcomes of the executions of each job, oldest job first."""
    return [[str(each.outcome) for each in scenario.app.job(job.id).attempts] for job in scenario.jobs()]


def test_a_fleet_starts_each_item_once(scenario: Deployment):
    """Sixty items are due in one instant, and three workers poll: each is started by one of them, and run once."""
    for _ in range(2):
        scenario.worker()
    scenario.ready_worker()
    quick = refresh(scenario, "quick")
    quick.keeping(at_once=False).track("another")
    quick.pause()
    quick.track_many([(key,) for key in KEYS])
    assert 0 == scenario.app.jobs.stats().unfinished
    quick.resume()
    scenario.until(lambda: sum(each.started_at is not None for each in quick.tracked()) == len(KEYS))
    scenario.all_ended()

    assert KEYS == sorted((line.split()[1] for line in scenario.executions), key=KEYS.index)
    assert [["succeeded"]] * len(KEYS) == settled(scenario)
    assert scenario.leases("succeeded") == {line.split()[0] for line in scenario.executions}
    assert 0 == scenario.run(sys.executable, "-m", "redrive", "check", "work:app").ended()


@pytest.mark.night  # tests/conformance/scenarios/test_refreshes.py proves it to the second, with a clock of its own
def test_a_retry_that_fits_exactly_is_made_between_planned_refreshes(scenario: Deployment):
    """Three seconds are allowed every six: with the latency of real processes, the first retry comes after three."""
    scenario.ready_worker()
    refresh(scenario, "hung").keeping(at_once=False).track("k")
    scenario.until(lambda: len(scenario.executions) == 3)
    (first, _), (second, _), _ = [tuple(map(float, line.split()[1:])) for line in scenario.executions]
    # The database's instants of the claims: a handler reads its own clock some milliseconds after its claim.
    one, two = [job.attempts[0].started_at for job in map(scenario.app.job, (1, 2))]

    assert (1, 2) == (first, second)
    assert 3 <= (two - one).total_seconds() < 5.5


def test_an_attempt_that_waits_in_a_full_queue_keeps_its_whole_timeout(scenario: Deployment):
    """Sixty keys, four slots: most wait for longer than an attempt may take, and all succeed at the first one."""
    scenario.worker("--concurrency", "4")
    crowded = refresh(scenario, "crowded")
    crowded.track_many([(key,) for key in KEYS])
    scenario.all_ended()

    assert [["succeeded"]] * len(KEYS) == settled(scenario)
    assert {(0, False)} == {(each.attempt_no, each.disabled_until_update) for each in crowded.tracked()}


def test_a_killed_worker_costs_no_attempt(scenario: Deployment):
    """Run the job again on another worker, as the same attempt, with no retry used up."""
    patient = refresh(scenario, "patient")
    victim = scenario.ready_worker()
    patient.track("k")
    scenario.until(lambda: len(scenario.executions) == 1)
    scenario.worker()
    victim.send(signal.SIGKILL)
    scenario.until(lambda: len(scenario.executions) == 2)
    rested(scenario, "patient")

    assert ["1", "1"] == [line.split()[1] for line in scenario.executions]
    assert ([["lost", "succeeded"]], ()) == (settled(scenario), scenario.app.database.verify())


# A worker that was suspended writes as late as one that hangs.
@pytest.mark.parametrize("how", ["hangs", pytest.param("suspended", marks=pytest.mark.night)])
def test_an_attempt_past_its_deadline_has_failed_and_its_late_success_is_ignored(scenario: Deployment, how: str):
    """Another worker sees the deadline pass and makes the retry; the first one comes back, and is not listened to."""
    scenario.lease_for = LONG  # so that only the deadline can end the attempt
    hog = refresh(scenario, "hog")
    victim = scenario.ready_worker()
    hog.track("k")
    scenario.until(lambda: len(scenario.executions) == 1)
    if how == "suspended":
        scenario.stop(victim)
    scenario.worker()
    before = rested(scenario, "hog")
    first, *others = settled(scenario)
    assert (["failed"], ["succeeded"]) == (first, others[-1])

    scenario.go()
    victim.send(signal.SIGCONT)
    scenario.until(lambda: scenario.executions[0].split()[0] in scenario.noted("end"))
    victim.send(signal.SIGTERM)
    victim.ended()

    assert (before, first) == (hog.get("k"), settled(scenario)[0])
    assert () == scenario.app.database.verify()
