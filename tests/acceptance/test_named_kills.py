"""Bodies with named calls whose workers are killed."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from redrive import App, Run
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import Filter
from redrive.engine.runs import StepKind
from redrive.stores.operations import admin
from tests import postgres
from tests.acceptance import named
from tests.acceptance.processes import PATIENCE, Fleet

ORDINARY = range(40, 60)
"""The seeds of the bodies in the ordinary run, which have every part."""

pytestmark = [pytest.mark.acceptance, pytest.mark.realtime]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a database."""
    is_file = request.param == "sqlite"
    with contextlib.nullcontext(f"sqlite:///{tmp_path}/runs.db") if is_file else postgres.lent() as found:
        yield found


def play(app: App, url: str, folder: Path, seeds: range, kills: int) -> dict[str, Any]:
    """Run bodies under kills, and return figures; raise if one is wrong, held, or doubles a recorded effect."""
    chance = random.Random(seeds.start)
    workflow = app.tasks["body"]
    runs: dict[int, Run[int]] = {seed: workflow.start(seed, id=f"s{seed}") for seed in seeds}
    for run in runs.values():
        for _ in range(3):
            run.signal("number", 7)
    app.emit("ready", 11)
    fleet = Fleet("named", url, folder)
    until = time.monotonic() + PATIENCE + len(seeds)
    try:
        fleet.start()
        while open_ := [seed for seed, run in runs.items() if run.state not in FINAL]:
            assert time.monotonic() < until, (
                f"bodies {open_} go on: {[runs[each].why for each in open_][:3]}\n{fleet.log[-2000:]}"
            )
            if fleet.kills < kills:
                # A worker that has done something, and no third death of a run that has recorded nothing since.
                wait_until(app, len(fleet.lines()) + chance.randrange(1, 12), fleet, runs, until)
                time.sleep(chance.random() * 0.1)
                fleet.kill()
                fleet.start()
            else:
                time.sleep(0.1)
    finally:
        fleet.stop()
    wrong = {seed: run.state for seed, run in runs.items() if run.state is not State.SUCCEEDED}
    assert not wrong, f"{wrong}\n{fleet.log[-3000:]}"
    results = {seed: run.result("1s") for seed, run in runs.items()}
    assert {seed: named.wanted(seed) for seed in seeds} == results
    assert "Nothing was run" not in fleet.log
    assert "is held" not in fleet.log
    return {"bodies": len(runs), "kills": fleet.kills, "steps": len(fleet.lines()), **doubled(runs, folder)}


def wait_until(app: App, steps: int, fleet: Fleet, runs: dict[int, Run[int]], until: float) -> None:
    """Wait until the worker has taken so many steps, and no run would be taken for poison; or until all have ended."""
    while time.monotonic() < until:
        # Those of children, too: a body whose child is poison is dead.
        jobs = app.store.run(admin.select(Filter(limit=100 * len(runs))))
        left = [job for job in jobs if job.state not in FINAL]
        if not left or (len(fleet.lines()) >= steps and all(job.crashes < 2 for job in left)):
            return
        time.sleep(0.05)


def doubled(runs: dict[int, Run[int]], folder: Path) -> dict[str, int]:
    """Return how often a step was executed twice; raise if that was so although it was recorded."""
    executed: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for line in (folder / "ledger").read_text().splitlines():
        seed, *name, value, process, token = line.split(" ")
        executed[seed, " ".join(name), value].append((process, token))
    recorded = defaultdict(list)
    for seed, run in runs.items():
        for row in run.timeline():
            if row.kind is StepKind.STEP and row.result is not None:
                value, token = json.decode(row.result)
                recorded[str(seed), row.name, str(value)].append(token)
    unrecorded = 0
    for key, executions in executed.items():
        known = recorded[key]
        assert len(known) == len(set(known)), key
        # Calls with equal names and inputs are several executions. Behind each other one lies a kill.
        in_process = Counter(process for process, _ in executions)
        assert max(in_process.values()) <= len(known), f"{key}: {executions} {known}"
        assert len(known) > 1 or executions[-1][1] == known[0], f"{key}: {executions} {known}"
        unrecorded += len(executions) - len(known)
    return {"not recorded when killed": unrecorded}


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """Yield the app of the bodies, on this database."""
    made = App(url)
    made.workflow(name="body")(named.body.function)
    made.workflow(name="child")(named.child.function)
    yield made
    made.close()


def test_random_bodies_survive_kills(
    app: App, url: str, tmp_path: Path, record_property: Callable[[str, object], None]
):
    """Of 20 random bodies none is held and none doubles a recorded effect, and all results are right."""
    record_property("figures", play(app, url, tmp_path, ORDINARY, 3))


@pytest.mark.night
@pytest.mark.parametrize("first", range(1000, 1400, 100))
def test_many_random_bodies_survive_kills(
    app: App, url: str, tmp_path: Path, record_property: Callable[[str, object], None], first: int
):
    """The same of 400 bodies for each store, in batches with 12 kills."""
    record_property("figures", play(app, url, tmp_path, range(first, first + 100), 12))


def test_the_bodies_of_the_ordinary_run_have_every_part():
    """Gather, groups, streams, queues, races, shields, signals, events, children, sleeps, failures and branches."""
    parts = [run for seed in ORDINARY for run, _ in named.made(seed)[0]]
    found = {run.__qualname__.partition(".")[0] for run in parts}

    assert {part.__name__ for part in (*named.PARTS, named._branches)} == found
