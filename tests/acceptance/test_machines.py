"""State machines in real processes that are killed at each point of a transition."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.runtime.failpoints import POINTS
from tests.acceptance.processes import Deployment, stage

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

WORK = '''
"""A machine with handlers that note what they do, and die on request."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from redrive import App, CatchRequest, Context, FailedTransition

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for=os.environ.get("LEASE_FOR", "15s"))


def note(*words: object) -> None:
    """Write one line and see it on the disk."""
    file = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\\n").encode())
    os.fsync(file)
    os.close(file)


@dataclass
class Created:
    dies: bool = False


@dataclass
class Paid:
    pass


@dataclass
class Completed:
    pass


@dataclass
class Closed:
    pass


payment = app.machine("payment", data=int, retry="3 50ms")


@payment.start
async def created(event: Created, ctx: Context) -> None:
    """Call next and change the data; die before the end of the first attempt, and do neither in the second one."""
    note("run", ctx.attempt_uid)
    if event.dies and ctx.attempt > 1:
        return
    ctx.set_data(ctx.attempt)
    ctx.next(Paid())
    if event.dies:
        os.kill(os.getpid(), signal.SIGKILL)


@payment.state(after=[created], timeout=("200ms", Completed()))
def paid(event: Paid, ctx: Context) -> None:
    """Wait for the timeout."""
    note("run", ctx.attempt_uid)


@payment.state(after=[paid])
async def completed(event: Completed, ctx: Context) -> None:
    """Go on."""
    note("run", ctx.attempt_uid)
    ctx.next(Closed())


@app.task
async def mend(request: CatchRequest[Closed], ctx: Context) -> None:
    """Fail the first time, and kill the worker the second time, for one instance."""
    note("catch", ctx.attempt)
    if ctx.attempt == 1:
        raise RuntimeError("not yet")
    if ctx.attempt == 2 and ctx.key == "i0":
        os.kill(os.getpid(), signal.SIGKILL)


@payment.state(after=[completed], retry="0 50ms catch mend", failed_to="review")
async def closed(event: Closed) -> None:
    """Fail for good."""
    raise ValueError("no")


@payment.state()
async def review(event: FailedTransition) -> None:
    """Take what has failed."""
    note("review", event.error)
'''

KINDS = ["sqlite", "postgres"]


@pytest.mark.case("M10")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_worker_loses_and_doubles_no_transition(tmp_path: Path, kind: str, point: str):
    """Workers that die after the claim, before the settle or after it leave each instance with each move once."""
    with stage(tmp_path, kind, work=WORK) as stages:
        stages.lease_for = "1s"
        keys = [f"i{number}" for number in range(5)]
        for key in keys:
            stages.app.machines.find("payment").send(key, stages.module.Created(), key="begin")
        dead = stages.worker(fault=point)
        assert -9 == dead.ended()
        stages.worker()
        machine = stages.module.payment
        stages.until(lambda: all(machine.get(key).state == "review" for key in keys) or _again(stages))
        for key in keys:
            assert machine.send(key, stages.module.Created(), key="begin").id == machine.get(key).history()[-1].id
            states = [(move.to_state, str(move.status)) for move in reversed(machine.get(key).history())]
            assert [
                ("created", "moved"),
                ("paid", "moved"),
                ("completed", "moved"),
                ("closed", "failed"),
                ("review", "moved"),
            ] == states
            assert "no" == machine.get(key).history()[1].error
        assert () == stages.app.database.verify()


def _again(stages: Deployment) -> bool:
    """Start another worker, because the catch task has killed one."""
    running = [each for each in stages.processes if each.alive]
    if not running:
        stages.worker()
    return False


@pytest.mark.case("M4")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_killed_attempt_is_visible(tmp_path: Path, kind: str):
    """Attempts that die before their commit leave no next event and no data; the second one decides anew."""
    with stage(tmp_path, kind, work=WORK) as stages:
        machine = stages.module.payment
        machine.send("a", stages.module.Created(dies=True))
        first = stages.worker()
        assert -9 == first.ended()
        assert (None, None, 1) == (machine.get("a").state, machine.get("a").data, len(machine.get("a").history()))
        stages.worker()
        stages.until(lambda: machine.get("a").state == "created" or _again(stages))

        found = machine.get("a")
        assert (None, None, ["moved"]) == (found.data, found.to_state, [str(each.status) for each in found.history()])
        assert 2 == len(stages.executions)
        assert () == stages.app.database.verify()
