"""Two processes that send events to the same instances at the same time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.chaos import sized
from tests.acceptance.processes import stage

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PAIRS = sized(150, 500)

WORK = '''
"""A machine, and a process that sends to each of its instances what is valid from one state only."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from redrive import App
from redrive.errors import MachineBusy, NoTransition

HERE = Path(__file__).parent
app = App((HERE / "url").read_text())
payment = app.machine("payment")


@dataclass
class Created:
    pass


@dataclass
class Paid:
    pass


@payment.start
async def created(event: Created) -> None:
    """Wait for the payment."""


@payment.state(after=[created])
async def paid(event: Paid) -> None:
    """Note the move."""
    with (HERE / "executions.log").open("a") as file:
        file.write("paid\\n")


def send(me: str, other: str, count: int) -> None:
    """Send to each instance when the other process is about to."""
    answers = []
    for number in range(count):
        assert payment.get(f"i{number}").state in {"created", "paid"}
        (HERE / f"{me}{number}").touch()
        until = time.monotonic() + 90
        while not (HERE / f"{other}{number}").exists():
            assert time.monotonic() < until
            time.sleep(0.0002)
        try:
            payment.send(f"i{number}", Paid())
            answers.append("sent")
        except MachineBusy:
            answers.append("busy")
        except NoTransition as error:
            answers.append(f"refused in {error.state}")
    (HERE / f"answers.{me}").write_text("\\n".join(answers))


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], int(sys.argv[3]))
'''


@pytest.mark.case("M1")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_processes_never_move_an_instance_twice(tmp_path: Path, kind: str):
    """Of two events that two processes send from one state, one moves the instance, hundreds of times; the other is
    refused as busy, or in the new state."""
    with stage(tmp_path, kind, work=WORK) as stages:
        machine = stages.module.payment
        for number in range(PAIRS):
            machine.send(f"i{number}", stages.module.Created())
        stages.run(sys.executable, "-m", "redrive", "worker", "work:app", "--until-empty").ended()
        stages.worker()
        senders = [stages.run(sys.executable, "work.py", *names, str(PAIRS)) for names in (("a", "b"), ("b", "a"))]
        assert [0, 0] == [each.ended() for each in senders]
        answers = [(tmp_path / f"answers.{name}").read_text().splitlines() for name in "ab"]
        stages.until(lambda: all(machine.get(f"i{number}").state == "paid" for number in range(PAIRS)))

        assert [1] * PAIRS == [pair.count("sent") for pair in zip(*answers, strict=True)]
        assert {each for answer in answers for each in answer} <= {"sent", "busy", "refused in paid"}
        assert PAIRS == len((tmp_path / "executions.log").read_text().splitlines())
        assert () == stages.app.database.verify()
