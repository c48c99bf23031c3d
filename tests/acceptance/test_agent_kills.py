"""Agents whose workers are killed."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import json

from redrive import App, Run
from redrive.engine.lifecycle import FINAL, State
from redrive.stores.operations import managing_runs
from tests import postgres
from tests.acceptance import agents
from tests.acceptance.processes import PATIENCE, Fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.realtime]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a database."""
    is_file = request.param == "sqlite"
    with contextlib.nullcontext(f"sqlite:///{tmp_path}/runs.db") if is_file else postgres.lent() as found:
        yield found


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """Yield an app with the workflows, on this database."""
    made = App(url)
    made.workflow(name="talk")(agents.talk.function)
    made.workflow(name="shop")(agents.shop.function)
    yield made
    made.close()


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    """Yield a fleet without a worker."""
    made = Fleet("agents", url, tmp_path)
    yield made
    made.stop()


def until(condition: Callable[[], bool], fleet: Fleet, seconds: float = PATIENCE) -> None:
    """Wait for a condition."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, fleet.log[-3000:]
        time.sleep(0.05)


def play(app: App, fleet: Fleet, first: int, kills: int) -> dict[str, int]:
    """Hold conversations one batch after the other while workers are killed, and return figures.

    Raise if a conversation is wrong or held, or a tool was executed again although its answer was recorded.
    """
    chance, runs = random.Random(first), {}
    open_: dict[int, Run[str]] = {}
    fleet.start()
    while fleet.kills < kills or open_:
        if fleet.kills < kills and len(open_) < 4:
            seeds = range(first + len(runs), first + len(runs) + 6)
            started = {seed: app.tasks["talk"].start(seed, id=f"s{seed}") for seed in seeds}
            runs |= started
            open_ |= started
        steps = len(fleet.lines()) + chance.randrange(1, 8)
        until(lambda: _may_die(app, open_, fleet, steps), fleet)  # noqa: B023 - called at once
        if fleet.kills < kills and open_:
            time.sleep(chance.random() * 0.1)
            fleet.kill()
            fleet.start()
    wrong = {seed: (run.state, run.why) for seed, run in runs.items() if run.state is not State.SUCCEEDED}
    assert not wrong, f"{wrong}\n{fleet.log[-3000:]}"
    assert "is held" not in fleet.log
    return {"conversations": len(runs), "kills": fleet.kills, **checked(runs, fleet.lines())}


def _may_die(app: App, open_: dict[int, Run[str]], fleet: Fleet, steps: int) -> bool:
    """Return True if the worker has called so many tools, and no run would be taken for poison; or if all have ended.

    Runs that have ended are taken out.
    """
    jobs = {seed: app.store.run(managing_runs.get("talk", run.id)).job for seed, run in open_.items()}
    for seed in [seed for seed, job in jobs.items() if job.state in FINAL]:
        del open_[seed]
    return not open_ or (len(fleet.lines()) >= steps and all(jobs[seed].crashes < 2 for seed in open_))


def checked(runs: dict[int, Run[str]], lines: list[str]) -> dict[str, int]:
    """Compare conversations, records and effects, and return how many effects there were, and were not recorded."""
    effects: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for line in lines:
        seed, call, process, token = line.split(" ")
        effects[seed, call].append((process, token))
    unrecorded = 0
    for seed, run in runs.items():
        said = [each.split(":") for each in run.result("1s").split(" ")]
        assert agents.wanted(seed) == [each[:3] for each in said]
        recorded = [json.decode(row.result or b"")["result"] for row in run.timeline() if "call_tool" in row.name]
        assert sorted(":".join(each) for each in said) == sorted(recorded)
        for call, _, _, token in said:
            executions = effects.pop((str(seed), call))
            # Behind each other execution lies a kill.
            assert executions[-1][1] == token
            assert max(Counter(process for process, _ in executions).values()) == 1
            unrecorded += len(executions) - 1
    assert not effects
    return {"effects": len(lines), "not recorded when killed": unrecorded}


def test_conversations_survive_kills(app: App, fleet: Fleet, record_property: Callable[[str, object], None]):
    """With 3 kills each effect of a tool happens once for its recorded step, and each conversation is right."""
    record_property("figures", play(app, fleet, 100, 3))


@pytest.mark.night
@pytest.mark.parametrize("first", [1000, 2000])
def test_conversations_survive_many_kills(
    app: App, fleet: Fleet, record_property: Callable[[str, object], None], first: int
):
    """The same with 50 kills for each store, in two batches."""
    figures = play(app, fleet, first, 25)
    record_property("figures", figures)

    assert figures["kills"] == 25


def test_an_approval_survives_a_kill(app: App, fleet: Fleet):
    """A worker dies while an agent waits for an approval; another one calls the tool after the signal, once."""
    run = app.tasks["shop"].start(id="s1")
    fleet.start()
    until(lambda: bool(fleet.lines()) and "approve c1" in run.why, fleet)
    fleet.kill()
    fleet.start()
    run.signal("approve c1", True)

    assert run.result(PATIENCE) == "bought ship"
    assert ["asked 1", "bought ship", "asked 3"] == fleet.lines()
