"""Dead worker detection: long before the lease of a dead worker ends, and without harm to a living one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import App
from redrive.clock import SystemClock
from redrive.engine.records import Process
from redrive.errors import StoreError
from redrive.runtime import registration
from redrive.runtime.dead_workers import LOOK, DeadWorkers, Rescuer
from redrive.stores.operations import workers
from redrive.testing import VirtualClock
from tests.runtime.helpers import LONG, Registered, app_on, repeat, take

# ------------------------------------------------------------------------------------------------------------- process


@pytest.fixture
def child():
    """Start a process that waits."""
    popen = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield popen
    popen.kill()
    popen.communicate()


def of(popen: subprocess.Popen[bytes]) -> Process:
    """Return the identity with which that process would register."""
    place = (registration.present().birth or "").rpartition(" ")[0]
    _, moment = registration._begun(popen.pid)
    return Process("here", popen.pid, f"{place} {moment}")


def test_a_process_finds_itself_alive():
    """Processes that describe themselves are alive, and their description is constant."""
    assert registration.present() == registration.present()
    assert not registration.is_gone(registration.present())


def test_a_process_that_was_killed_is_gone(child):
    """Killed processes are gone, whether or not their parent has reaped them."""
    described = of(child)
    before = registration.is_gone(described)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    unreaped = registration.is_gone(described)
    child.wait()

    assert [False, True, True] == [before, unreaped, registration.is_gone(described)]


def test_a_suspended_process_is_not_gone(child):
    """Suspended processes are alive."""
    described = of(child)
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)

    assert not registration.is_gone(described)


def test_a_later_process_of_the_same_number_is_another_one(child):
    """If the process id is in use by a process with another start time, the earlier process is gone."""
    described = of(child)

    assert registration.is_gone(replace(described, birth=(described.birth or "") + "0"))


@pytest.mark.parametrize("birth", [None, "", "1", "another-boot pid:[1] 77"])
def test_processes_of_another_machine_never_count_as_gone(birth: str | None):
    """If the boot id or the process id namespace is foreign or missing, no process counts as gone."""
    assert not registration.is_gone(Process("elsewhere", 2**22 + 1, birth))


# ------------------------------------------------------------------------------------------------------------- registry


class Registry:
    """An app with the workers that the test prescribes."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.looks: list[Any] = []
        self.store = self
        self.now = app.now
        self.terms = app.terms
        self.settled = app.settled

    async def arun(self, operation: Any) -> Any:
        """Return the next prescribed answer; pass all other operations to the store."""
        if operation.name != "workers":
            return await self.app.store.arun(operation)
        answer = self.looks.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def app(tmp_path):
    """Return an app with a job that worker 1 holds under a long lease."""
    app = app_on(tmp_path, heartbeat_every="5s", lease_for="15s")
    yield app
    app.close()


def register(app: App, **options: Any) -> int:
    """Register a worker with a long lease."""
    return app.store.run(workers.register("w", concurrency=1, lease_for=LONG, now=app.now(), **options))


def running(app: App, worker: int) -> int:
    """Let a worker hold a job, and return the job."""
    app.task(name="send")(lambda number: None).enqueue(1)
    (claim,) = take(app, 1, worker=worker)
    return claim.id


def look(app: Any, times: int = 1, *, me: int = 99) -> None:
    """Run this number of checks."""

    async def run() -> None:
        """Run the checks as the duty does."""
        clock = VirtualClock()
        looking = asyncio.create_task(repeat(DeadWorkers(app, Registered(app, me)).duty, clock))
        while clock.monotonic() < times * LOOK and not looking.done():
            await clock_turn()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(run())


async def clock_turn() -> None:
    """Let others run."""
    await VirtualClock().asleep(0)


def test_a_worker_without_a_process_is_dead_at_once(app: App, child):
    """After one check the job of a process that is gone is ready again, as after any crash, before its lease ends."""
    worker = register(app, process=of(child))
    number = running(app, worker)
    child.kill()
    child.wait()
    look(app)
    record = app.job(number).record

    assert ("ready", 1, "WORKER_LOST") == (record.state, record.crashes, record.reason)
    assert () == app.workers.select()


def test_a_worker_with_a_live_process_keeps_its_jobs(app: App, child):
    """While its process exists, a worker keeps its jobs."""
    worker = register(app, process=of(child))
    number = running(app, worker)
    look(app, 5)

    assert ("running", 1) == (app.job(number).state, len(app.workers.select()))


def looks(app: App, *locked: Any) -> Registry:
    """Return a registry in which, check by check, worker 1 has its lock, lacks it, or the database is unreachable."""
    (worker,) = app.workers.select()
    registry = Registry(app)
    beat = timedelta(seconds=5)
    for at, each in enumerate(locked):
        if isinstance(each, Exception):
            registry.looks.append(each)
        else:
            beaten = worker.heartbeat_at + beat * at if each == "beaten" else worker.heartbeat_at
            registry.looks.append((replace(worker, locked=each is True, heartbeat_at=beaten),))
    return registry


@pytest.mark.parametrize("session", [0.0, float("-inf")], ids=["young", "old"])
def test_a_free_lock_is_no_sign_to_a_young_session(app: App, session: float):
    """Right after the session of the observer has begun again, all locks may be free: only the heartbeat decides."""
    number = running(app, register(app, lock_id=7))
    registry = looks(app, False, False)
    dead = DeadWorkers(registry, Registered(app, 99), session=lambda: session + SystemClock.monotonic())
    asyncio.run(twice(dead))

    assert ("running" if session == 0.0 else "ready") == app.job(number).state


async def twice(dead: DeadWorkers) -> None:
    """Look two times."""
    await dead.look()
    await dead.look()


def test_a_free_lock_is_no_sign_to_a_worker_whose_own_lock_is_free(app: App):
    """A worker whose own lock has vanished, with that of the other one, takes nothing for the time of a lease."""
    me, other = register(app, lock_id=6), register(app, lock_id=7)
    number = running(app, other)
    both, registry = app.workers.select(), Registry(app)
    registry.looks = [[replace(each, locked=each.id == me and place > 0) for each in both] for place in range(3)]
    dead = DeadWorkers(registry, Registered(app, me))

    async def run() -> None:
        await dead.look()
        await twice(dead)

    asyncio.run(run())

    assert "running" == app.job(number).state


def test_a_sweep_waits_after_another_server_has_taken_over(app: App):
    """Take no lease for the time of one, so that workers can register again."""
    instant = timedelta(microseconds=1)
    worker = app.store.run(workers.register("w", concurrency=1, lease_for=instant))
    app.task(name="send")(lambda number: None).enqueue(1)
    number = take(app, 1, worker=worker, lease_for=instant)[0].id
    waiting, rescuer = Rescuer(app), Rescuer(app)
    waiting.wait()
    states = []
    for each in (waiting, rescuer):
        asyncio.run(each.look())
        states.append(app.job(number).state)

    assert ["running", "ready"] == states


@pytest.mark.parametrize(
    ("locked", "expected"),
    [
        ((False, False), "ready"),
        ((True, False, False), "ready"),
        ((False, True, False), "running"),
        ((False, StoreError(), False), "running"),
        ((False, "beaten"), "running"),
        ((True, True, True), "running"),
    ],
    ids=["free twice", "free after a while", "back in between", "check impossible", "heartbeat in between", "held"],
)
def test_a_free_lock_must_be_seen_twice_in_a_row(app: App, locked: tuple[Any, ...], expected: str):
    """If the lock of a worker is free in two checks in a row without a heartbeat between them, the worker is dead."""
    number = running(app, register(app, lock_id=7))
    look(looks(app, *locked), len(locked))

    assert expected == app.job(number).state


def test_a_worker_does_not_declare_itself_dead(app: App):
    """Whatever the checks return, the worker does not declare itself dead."""
    worker = register(app, lock_id=7)
    number = running(app, worker)
    look(looks(app, False, False, False), 3, me=worker)

    assert "running" == app.job(number).state
