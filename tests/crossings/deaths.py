"""Workers in processes of their own, which die by SIGKILL. The long form plays each death so.

The functions of a scenario are closures, which cannot be sent to another process. So the process of a worker is forked:
it has the whole scenario, and what happens in it. Right before its death, and at its end, it leaves what has become of
the scenario in memory that both processes share; no other thread of it runs in between.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.crossings.world import World

SIZE = 1 << 24
"""Bytes of the shared memory, of which only those that are written exist."""

_LENGTH = 8


def work(world: World, left: list[Callable[[], object]]) -> bool:
    """Let a process do what is due and then each of the steps that are left; return False if it was killed."""
    with mmap.mmap(-1, SIZE) as memory:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            # Later versions of Python warn of a fork beside threads; redrive prepares its own ones for it.
            child = os.fork()
        if child == 0:
            _live(world, left, memory)
        _, status = os.waitpid(child, 0)
        length = int.from_bytes(memory[:_LENGTH], "little")
        assert length, f"a worker has left nothing, status {status}"
        state: dict[str, Any] = pickle.loads(memory[_LENGTH : _LENGTH + length])
    assert state["error"] is None, state["error"]
    _put(world, left, state)
    return not os.WIFSIGNALED(status)


def _live(world: World, left: list[Callable[[], object]], memory: mmap.mmap) -> None:
    """Work in the child, and end it."""
    error = None

    def die(worker_id: int | None) -> None:
        _leave(world, left, memory, None, worker_id)
        os.kill(os.getpid(), signal.SIGKILL)

    world.die = die
    try:
        world.work_here(left)
    except BaseException:  # noqa: BLE001 - it is raised in the parent
        error = traceback.format_exc()
    _leave(world, left, memory, error, None)
    os._exit(0)


def _leave(
    world: World, left: list[Callable[[], object]], memory: mmap.mmap, error: str | None, worker_id: int | None
) -> None:
    """Write what has become of a scenario, while no other thread runs."""
    sys.setswitchinterval(1000)
    state = {
        "error": error,
        "left": len(left),
        "buried": [] if worker_id is None else [worker_id],
        "now": world.clock._now,
        "healthy": world.healthy,
        "_version": world._version,
        "moments": {moment: len(events) for moment, events in world.moments.items()},
        "memory": [_picklable(each) for each in (world.ledger, *world.memory)],
    }
    raw = pickle.dumps(state)
    memory[: _LENGTH + len(raw)] = len(raw).to_bytes(_LENGTH, "little") + raw


def _picklable(thing: object) -> dict[str, Any]:
    """Return the attributes of an object that can be sent to another process."""
    found = {}
    for name, value in vars(thing).items():
        try:
            pickle.dumps(value)
        except Exception:  # noqa: BLE001, S112 - such as a lock, or the scenario itself
            continue
        found[name] = value
    return found


def _put(world: World, left: list[Callable[[], object]], state: dict[str, Any]) -> None:
    """Take over what has become of a scenario."""
    del left[: len(left) - state["left"]]
    world.clock._now = state["now"]
    world.healthy, world._version, world.buried = state["healthy"], state["_version"], state["buried"]
    for moment, count in state["moments"].items():
        events = world.moments.get(moment, [])
        # Those that are left are the last ones. An event that a worker itself has armed dies with it.
        world.moments[moment] = events[max(len(events) - count, 0) :]
    for thing, attributes in zip((world.ledger, *world.memory), state["memory"], strict=True):
        vars(thing).update(attributes)
