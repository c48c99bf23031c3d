"""Fixtures of retried calls: a jumping clock in force, and each event loop."""

from __future__ import annotations

import asyncio

import pytest
import trio
import trio.testing

from redrive.retrying.context import using
from tests.retrying.helpers import JumpingClock, JumpingLoop, LoopClock


@pytest.fixture
def clock():
    """Use a clock that jumps in all calls of the test."""
    jumping = JumpingClock()
    with using(clock=jumping):
        yield jumping


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    """Runs a coroutine function to its end, under each library."""
    return _RUNNERS[request.param]


_RUNNERS = {"asyncio": lambda main, *args: asyncio.run(main(*args)), "trio": trio.run}


@pytest.fixture(params=["asyncio", "trio"])
def jump(request):
    """Run the test with jumping time: timers of the library fire at once, and retried calls use its time."""
    return _JUMPERS[request.param]


def _jump_asyncio(main, *args):
    with using(clock=LoopClock()), asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main(*args))


def _jump_trio(main, *args):
    with using(clock=LoopClock()):
        return trio.run(main, *args, clock=trio.testing.MockClock(autojump_threshold=0))


_JUMPERS = {"asyncio": _jump_asyncio, "trio": _jump_trio}
