"""Workers that are killed while they run workflows, at the points that the scenarios name."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from msgspec import json

from redrive import Run
from redrive.engine.lifecycle import FINAL
from tests import postgres
from tests.acceptance.processes import CHECKOUT, PATIENCE

pytestmark = pytest.mark.acceptance

FLOWS = '''
"""Workflows of the tests of kills."""

import asyncio
import os
import random
import signal
import time
import uuid
from pathlib import Path

from redrive import App, Flow, GiveUp
from redrive.errors import TimedOut

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for="3s")


def note(word: str) -> None:
    """Write one line and see it on the disk."""
    file = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (word + "\\n").encode())
    os.fsync(file)
    os.close(file)


def die_once(name: str) -> None:
    """Kill this process, the first time."""
    flag = HERE / name
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def one() -> None:
    """Do the first step."""
    note("one")


def two() -> None:
    """Do the second step."""
    note("two")


def three() -> None:
    """Do the third step."""
    note("three")


def undo_one(_: None) -> None:
    """Fail twice."""
    note("undo_one")
    if (HERE / "executions.log").read_text().count("undo_one") < 3:
        raise OSError("closed")


def undo_two(_: None) -> None:
    """Take the process along, once."""
    note("undo_two")
    die_once("undo-two")


def undo_three(_: None) -> None:
    """Take the third step back."""
    note("undo_three")


def fails() -> None:
    """Fail for good."""
    note("fails")
    raise GiveUp("no seat")


@app.workflow()
async def saga(flow: Flow) -> None:
    """Take three steps back."""
    await flow.step(one, undo=undo_one, retry="5 100ms")
    await flow.step(two, undo=undo_two, retry="5 100ms")
    await flow.step(three, undo=undo_three, retry="5 100ms")
    await flow.step(fails)


@app.workflow()
async def waits(flow: Flow) -> str:
    """Die between the recorded timeout and the next step."""
    try:
        return await flow.wait_for("shipped", str, timeout="200ms")
    except TimedOut:
        die_once("timed-out")
    await flow.step(one)
    return "lost"


def inside() -> None:
    """Die inside a step."""
    note("inside")
    die_once("inside")


@app.workflow()
async def steps(flow: Flow) -> str:
    """Die inside the second step, and behind the third."""
    await flow.step(one)
    await flow.step(inside)
    await flow.step(two)
    die_once("behind")
    return "done"


def flaky() -> int:
    """Fail twice."""
    note("flaky")
    tries = (HERE / "executions.log").read_text().count("flaky")
    if tries < 3:
        raise OSError("closed")
    return tries


def long() -> None:
    """Die once the failure of the other branch is recorded."""
    note("long")
    while not any("flaky" == row.name and row.tries for row in app.runs.get("retries", "r").timeline()):
        time.sleep(0.01)
    die_once("long")


@app.workflow()
async def retries(flow: Flow) -> int:
    """Wait for the tries of one step, and die before they end."""
    number, _ = await flow.gather(flow.step(flaky, retry="5 3s"), other(flow))
    return number


async def other(flow: Flow) -> None:
    """Die while the other branch waits."""
    await flow.step(long)


receiver = os.open(HERE / "tokens.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def token(number: int, name: str) -> str:
    """Write a token that no other execution has, and return it."""
    made = uuid.uuid4().hex
    os.write(receiver, f"{number} {name} {made}\\n".encode())
    return made


async def act(number: int, name: str) -> str:
    """Take a random time on the event loop."""
    await asyncio.sleep(random.random() / 50)
    return token(number, name)


def act_in_thread(number: int, name: str) -> str:
    """Take a random time in a thread."""
    time.sleep(random.random() / 50)
    return token(number, name)


@app.workflow()
async def orders(flow: Flow, number: int) -> list[list[str]]:
    """Take two steps in each of three branches, which end in another order in each pass."""

    async def branch(name: str, step: object) -> list[str]:
        return [await flow.step(step, number, f"{name}{each}") for each in (1, 2)]

    return await flow.gather(branch("a", act), branch("b", act_in_thread), branch("c", act))
'''


STEPS = {f"1.{branch}.{number}": f"{'abc'[branch]}{number}" for branch in range(3) for number in (1, 2)}
"""The paths of the steps of ``orders``, and their names in its log."""


class Stage:
    """A folder with the module, its database and its workers."""

    def __init__(self, folder: Path, module: ModuleType) -> None:
        self.folder = folder
        self.flows = module

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker."""
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
        command = [sys.executable, "-m", "redrive", "worker", "flows:app"]
        log = (self.folder / "workers.log").open("ab")
        with log:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stderr=log)

    def play(self, run: Run[object], kills: int) -> None:
        """Run workers until a run has ended; so many of them must be killed."""
        worker, killed, until = self.worker(), 0, time.monotonic() + PATIENCE
        try:
            while run.state not in FINAL and time.monotonic() < until:
                time.sleep(0.02)
                if worker.poll() is not None:
                    assert -signal.SIGKILL == worker.returncode
                    killed += 1
                    worker = self.worker()
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE)
        assert kills == killed, run.why

    def finish(self, runs: Sequence[Run[object]]) -> None:
        """Run one worker until all runs have ended."""
        worker, until = self.worker(), time.monotonic() + PATIENCE
        while open_ones := [run for run in runs if run.state not in FINAL]:
            assert time.monotonic() < until, open_ones[0].why
            time.sleep(0.05)
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(PATIENCE)

    @property
    def tokens(self) -> list[tuple[int, str, str]]:
        """The run, the step and the token of each execution."""
        file = self.folder / "tokens.log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(number), name, token) for number, name, token in map(str.split, lines)]

    @property
    def ran(self) -> list[str]:
        """The functions that ran, in their order."""
        return (self.folder / "executions.log").read_text().split()


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Return a folder with the workflows."""
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "executions.log").touch()
    file = f"sqlite:///{tmp_path}/flows.db"
    with postgres.lent() if request.param == "postgres" else contextlib.nullcontext(file) as url:
        (tmp_path / "url").write_text(url)
        spec = importlib.util.spec_from_file_location("flows", tmp_path / "flows.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield Stage(tmp_path, module)
        module.app.close()


@pytest.mark.case("W10")
def test_undos_go_on_after_a_kill(stage: Stage):
    """The undo in which the worker died runs again, the others once or by their policy, and the run ends failed."""
    run = stage.flows.saga.start(id="r")
    stage.play(run, kills=1)

    assert "dead" == run.state
    assert "no seat (three undone, two undone, one undone)" == run.job.refresh().record.error
    assert ["one", "two", "three", "fails", "undo_three", "undo_two", "undo_two", *["undo_one"] * 3] == stage.ran


@pytest.mark.case("W2")
def test_a_recorded_timeout_survives_a_kill(stage: Stage):
    """After the kill the body sees the timeout again; the signal that came later stays unread."""
    run = stage.flows.waits.start(id="r")
    worker = stage.worker()
    assert -signal.SIGKILL == worker.wait(PATIENCE)
    run.signal("shipped", "here")
    stage.play(run, kills=0)

    assert "lost" == run.result("5s")
    assert ["one"] == stage.ran
    assert ["shipped"] == [each.name for each in run.signals()]


@pytest.mark.case("W1")
def test_branches_in_random_orders_survive_kills(stage: Stage):
    """Recorded steps ran to their records once, under the same paths, in 200 random orders and through two kills."""
    runs = [stage.flows.orders.start(number, id=f"r{number}") for number in range(200)]
    # What is recorded after each kill: the token of a step, and how many executions it has had.
    recorded: dict[tuple[int, str], tuple[str, int]] = {}
    for lines in (400, 900):
        worker, until = stage.worker(), time.monotonic() + PATIENCE
        while len(stage.tokens) < lines and time.monotonic() < until:
            time.sleep(0.005)
        worker.kill()
        worker.wait(PATIENCE)
        executions = Counter((number, name) for number, name, _ in stage.tokens)
        for number, run in enumerate(runs):
            rows = [(row.path, json.decode(row.result)) for row in run.timeline()]
            recorded |= {(number, path): (token, executions[number, STEPS[path]]) for path, token in rows}
    stage.finish(runs)
    executions = Counter((number, name) for number, name, _ in stage.tokens)
    tokens = {token: (number, name) for number, name, token in stage.tokens}

    assert 400 < len(recorded) < 1200
    assert 1200 < executions.total()
    for number, run in enumerate(runs):
        rows = {row.path: json.decode(row.result) for row in run.timeline()}
        assert STEPS == {path: tokens[token][1] for path, token in rows.items()}
        assert {number} == {tokens[token][0] for token in rows.values()}
        assert sorted(rows.values()) == sorted(token for pair in run.result("5s") for token in pair)
        found = {path: (token, executions[number, STEPS[path]]) for path, token in rows.items()}
        assert all(before == found[path] for (of, path), before in recorded.items() if of == number)


@pytest.mark.case("D49")
@pytest.mark.case("scn-03")
@pytest.mark.case("scn-04")
@pytest.mark.case("probe-11")
def test_only_unfinished_steps_run_again_after_kills(stage: Stage):
    """Steps in which the worker died run again, recorded ones do not, and another worker goes on by itself."""
    run = stage.flows.steps.start(id="r")
    stage.play(run, kills=2)

    assert "done" == run.result("5s")
    assert {"one": 1, "inside": 2, "two": 1} == Counter(stage.ran)


@pytest.mark.case("W5")
@pytest.mark.case("D50")
def test_tries_of_a_branch_survive_a_kill(stage: Stage):
    """Steps that wait for their next try keep their count and their time, while the worker dies in another branch."""
    run = stage.flows.retries.start(id="r")
    stage.play(run, kills=1)
    row = next(each for each in run.timeline() if each.name == "flaky")

    assert 3 == run.result("5s")
    assert {"flaky": 3, "long": 2} == Counter(stage.ran)
    assert 3 == row.tries
    assert row.history is not None
    first, second = row.history.tries
    assert first.delay is not None
    assert second.at - first.at >= first.delay


def test_the_example_of_a_checkout_is_right_after_kills(tmp_path: Path):
    """`examples/checkout` kills workers at random, and its audit of results and effects finds nothing."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), "CHECKOUT_FOLDER": str(tmp_path)}
    command = [sys.executable, "play.py", "--orders", "12", "--kills", "3"]
    done = subprocess.run(
        command,
        cwd=CHECKOUT / "examples" / "checkout",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE,
    )

    assert (0, "12 orders, 3 kills: every result and effect is right\n") == (done.returncode, done.stdout), done.stderr
