"""Shards of a subscription are shared between the live workers that serve it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.engine.lifecycle import State
from tests.acceptance.processes import Deployment, stage

WORK = '''
"""The app of this test: a topic with four shards."""

import os
from pathlib import Path

from redrive import App

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for=os.environ.get("LEASE_FOR", "3s"))
clicks = app.topic("clicks", tuple[str, int])


@clicks.subscribe("log", order="key", shards=4)
async def log(click: tuple[str, int]) -> None:
    """Note the event."""
    file = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"click {click[0]} {click[1]}\\n".encode())
    os.close(file)
'''

KEYS = 12


@pytest.fixture(name="shards", params=["sqlite", "postgres"])
def _shards(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    with stage(tmp_path, request.param, work=WORK) as opened:
        opened.lease_for = "3s"
        yield opened


def test_live_workers_share_the_shards(shards: Deployment):
    """Two workers have two of four shards each within a lease, and one has all when the other was killed; each event is
    delivered, in order by key."""
    stage, sent = shards, 0

    def publish() -> None:
        nonlocal sent
        stage.module.clicks.publish_many([(f"k{key}", sent) for key in range(KEYS)], key=lambda event: event[0])
        sent += 1

    def shares() -> list[int]:
        (status,) = stage.app.topics.select()
        return sorted(Counter(each.worker_id for each in status.feeders if each.state is State.RUNNING).values())

    def reached(expected: list[int]) -> bool:
        publish()
        return shares() == expected

    first = stage.ready_worker()
    stage.until(lambda: reached([4]))
    stage.ready_worker()
    stage.until(lambda: reached([2, 2]))
    first.popen.kill()
    stage.until(lambda: reached([4]))
    stage.until(lambda: not stage.app.topics.select()[0].lag.events)
    noted = [line.split() for line in stage.noted("click")]

    for key in range(KEYS):
        numbers = [int(number) for name, number in noted if name == f"k{key}"]
        assert list(range(sent)) == list(dict.fromkeys(numbers))
