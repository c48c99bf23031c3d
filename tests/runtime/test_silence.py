"""A database that does not answer: the heartbeat tries again, attempts end before their lease, and a stop ends."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redrive import App
from redrive.clock import SystemClock
from redrive.errors import StoreUnreachable
from redrive.runtime import heartbeat as heartbeat_module
from redrive.runtime import worker as worker_module
from redrive.runtime.attempts import Attempts
from redrive.runtime.dead_workers import Rescuer
from redrive.runtime.heartbeat import MARGIN, Heartbeat
from redrive.runtime.worker import Worker, in_time
from redrive.stores.query import Operation
from tests.runtime.helpers import PATIENCE, Recorded, Registered, app_on, register, until, working


@pytest.fixture(name="slow")
def _slow(tmp_path):
    """Return an app with leases so long that a busy machine meets their end in time."""
    app = app_on(tmp_path, heartbeat_every="100ms", lease_for="2s")
    yield app
    app.close()


@pytest.fixture(name="unswept")
def _unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the worker from sweeping its own expired leases."""

    async def sweep(_: Rescuer) -> tuple[()]:
        return ()

    monkeypatch.setattr(Rescuer, "_sweep", sweep)


class Silence:
    """A store that does not answer operations of these names.

    Args:
        app: the app of the store.
        monkeypatch: the fixture of the test.
        names: the operations.

    Attributes:
        asked: number of calls of these operations.
        over: set when it answers again."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.names, self.asked, self.over = names, 0, threading.Event()
        self._run, self._arun = app.store.run, app.store.arun
        monkeypatch.setattr(app.store, "run", self.run)
        monkeypatch.setattr(app.store, "arun", self.arun)

    def run(self, operation: Operation[Any], *, timeout: float = math.inf, **options: Any) -> Any:
        """Answer, or wait as a driver does."""
        if self._is_silent(operation):
            self.over.wait(min(timeout, PATIENCE))
            raise StoreUnreachable("no answer")
        return self._run(operation, **options)

    async def arun(self, operation: Operation[Any], **options: Any) -> Any:
        """Answer, or wait for ever."""
        if self._is_silent(operation):
            await asyncio.Event().wait()
        return await self._arun(operation, **options)

    def _is_silent(self, operation: Operation[Any]) -> bool:
        silent = operation.name in self.names and not self.over.is_set()
        self.asked += silent
        return silent


# ----------------------------------------------------------------------------------------------------------- heartbeat


def test_an_unanswered_heartbeat_is_repeated_before_the_lease_ends(slow: App, monkeypatch: pytest.MonkeyPatch):
    """Give each try half of the remaining lease, and start the next one soon after."""
    given: list[float] = []
    answered = threading.Event()
    run = slow.store.run

    def once(operation: Operation[Any], *, timeout: float) -> Any:
        given.append(timeout)
        if len(given) == 1:
            raise StoreUnreachable("no answer")
        answer = run(operation)
        answered.set()
        return answer

    worker = register(slow)
    monkeypatch.setattr(slow.store, "run", once)
    expired: list[None] = []
    attempts = Recorded()
    attempts.on_expired = lambda: expired.append(None)
    heartbeat = Heartbeat(slow, Registered(slow, worker), attempts)
    heartbeat.start()

    assert answered.wait(PATIENCE)
    heartbeat.stop()
    assert all(0 < each <= 1 for each in given[:2])
    assert [] == expired


def test_an_unanswered_check_does_not_delay_the_heartbeat(app: App, monkeypatch: pytest.MonkeyPatch):
    """Send a heartbeat at its time, however few checks there were."""
    now = [0.0]
    monkeypatch.setattr(SystemClock, "monotonic", staticmethod(lambda: now[0]))
    heartbeat = Heartbeat(app, Registered(app), Recorded())
    done: list[tuple[str, float]] = []

    def look() -> None:
        done.append(("look", now[0]))
        now[0] += 7
        raise StoreUnreachable("no answer")

    monkeypatch.setattr(heartbeat, "_look", look)
    monkeypatch.setattr(heartbeat, "_beat", lambda: done.append(("beat", now[0])))
    monkeypatch.setattr(heartbeat, "_stop", _Passing(now, 2))
    heartbeat._run()

    assert [("look", 0.5), ("beat", 8.0)] == done


class _Passing:
    """An event that advances the time with each wait, and is set after a number of waits.

    Args:
        now: the present second, in a list.
        count: number of waits.
        late: seconds that each wait lasts too long."""

    def __init__(self, now: list[float], count: int, late: float = 0.0) -> None:
        self.now, self.count, self.late = now, count, late

    def wait(self, seconds: float) -> bool:
        """Let them pass."""
        self.now[0] += seconds + self.late
        self.late = 0.0
        self.count -= 1
        return self.count < 0

    def is_set(self) -> bool:
        """Return True after the last wait."""
        return self.count < 0


def watched(
    app: App, monkeypatch: pytest.MonkeyPatch, waits: int, *, late: float = 0.0
) -> tuple[Heartbeat, list[float]]:
    """Return a heartbeat with a clock of its own, and the seconds at which it cancels the attempts."""
    now, expired = [0.0], []
    monkeypatch.setattr(SystemClock, "monotonic", staticmethod(lambda: now[0]))
    attempts = Recorded()
    attempts.on_expired = lambda: expired.append(now[0])
    heartbeat = Heartbeat(app, Registered(app), attempts)
    monkeypatch.setattr(heartbeat, "_stop", _Passing(now, waits, late))
    return heartbeat, expired


def test_attempts_end_shortly_before_the_lease(app: App, monkeypatch: pytest.MonkeyPatch):
    """Without replies to heartbeats all attempts end before the lease; attempts that start later end soon."""
    heartbeat, expired = watched(app, monkeypatch, 3)
    heartbeat._watch()

    assert [14.0, 15.0, 16.0] == expired


def test_an_extended_lease_ends_no_attempt(app: App, monkeypatch: pytest.MonkeyPatch):
    """Count the lease from the instant before the request; an older request does not shorten it."""
    heartbeat, expired = watched(app, monkeypatch, 2)
    heartbeat._registration.extended(10.0)
    heartbeat._registration.extended(5.0)
    heartbeat._watch()

    assert [24.0] == expired


def test_a_process_that_was_stopped_asks_the_database_first(app: App, monkeypatch: pytest.MonkeyPatch):
    """After a suspension the process asks the database whether its lease has ended, if it answers soon."""
    heartbeat, expired = watched(app, monkeypatch, 3, late=100.0)
    heartbeat._watch()

    assert [119.0, 120.0] == expired


# -------------------------------------------------------------------------------------------------------------- worker


@pytest.mark.usefixtures("unswept")
def test_a_worker_without_heartbeats_ends_its_attempts_itself(slow: App, monkeypatch: pytest.MonkeyPatch):
    """Cancel the handler before the lease ends; its job is given back with no attempt spent, and runs again."""
    silence = Silence(slow, monkeypatch, "beat", "held")
    ended: list[str] = []

    async def run() -> None:
        """Run it on an event loop."""
        started = asyncio.Event()

        @slow.task
        async def send() -> str:
            """Wait in the first run."""
            if started.is_set():
                return "again"
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                silence.over.set()
                ended.append(slow.job(1).state)

        job = await send.aenqueue()
        async with working(slow), asyncio.timeout(PATIENCE):
            assert "again" == await job.aresult()

    asyncio.run(run())

    assert ["running"] == ended
    history = [(each.outcome, each.number) for each in slow.job(1).attempts]
    assert [("released", 1), ("succeeded", 1)] == history
    assert "could not write a heartbeat in time" in (slow.job(1).attempts[0].verdict or "")


@pytest.mark.usefixtures("unswept")
def test_an_attempt_that_is_not_idempotent_continues(slow: App, monkeypatch: pytest.MonkeyPatch):
    """Let the attempt run until the lease is known to be lost, since no other worker may start it."""
    silence = Silence(slow, monkeypatch, "beat", "held")
    expired = threading.Event()
    on_expired = Attempts.expired

    def expire(attempts: Attempts) -> None:
        on_expired(attempts)
        expired.set()

    monkeypatch.setattr(Attempts, "expired", expire)

    async def run() -> str:
        """Run it on an event loop."""

        @slow.task(idempotent=False)
        async def send() -> str:
            """Wait until the lease is over."""
            await until(expired.is_set)
            silence.over.set()
            return "once"

        job = await send.aenqueue()
        async with working(slow), asyncio.timeout(PATIENCE):
            return await job.aresult()

    assert "once" == asyncio.run(run())


# ---------------------------------------------------------------------------------------------------------------- stop


def test_a_stop_does_not_wait_for_an_unanswered_heartbeat(slow: App, monkeypatch: pytest.MonkeyPatch):
    """Do not register the worker again when the answer comes late."""
    monkeypatch.setattr(heartbeat_module, "LAST_WAIT", 0.01)
    asked, leave, answered = threading.Event(), threading.Event(), threading.Event()

    def beat(_: Operation[Any], **__: float) -> Any:
        asked.set()
        leave.wait(PATIENCE)
        return heartbeat_module.workers.Pulse(alive=False, leases=frozenset())

    registration = Registered(slow)
    monkeypatch.setattr(slow.store, "run", beat)
    heartbeat = Heartbeat(slow, registration, Recorded())
    monkeypatch.setattr(heartbeat, "_report", answered.set)
    heartbeat.start()
    assert asked.wait(PATIENCE)
    heartbeat.stop()
    alive = heartbeat._thread.is_alive()
    leave.set()

    assert alive
    assert answered.wait(PATIENCE)
    assert 0 == registration.renewals


@pytest.mark.parametrize("name", ["claim", "settle"])
def test_a_stop_does_not_wait_for_an_unanswered_operation(slow: App, monkeypatch: pytest.MonkeyPatch, name: str):
    """Claims and settles in progress get no more time than the handlers."""
    monkeypatch.setattr("redrive.runtime.worker.LAST_WAIT", slow.terms.heartbeat_every)
    silence = Silence(slow, monkeypatch, name)
    slow.task(name="send")(lambda: None).enqueue()

    async def run() -> None:
        """Run it on an event loop."""
        worker = Worker(slow, shutdown_timeout=slow.terms.heartbeat_every)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await until(lambda: silence.asked > 0)
            worker.stop()
            silence.names = ()
            await running

    asyncio.run(run())

    assert () == slow.workers.select()


def counting(answers: Callable[[int], bool]) -> tuple[list[int], Callable[[], Any]]:
    """Return a call that gets an answer or waits for ever, and the numbers of its tries."""
    tries: list[int] = []

    async def call() -> None:
        tries.append(len(tries))
        if not answers(tries[-1]):
            await asyncio.Event().wait()

    return tries, call


def test_an_unanswered_sign_off_is_repeated(monkeypatch: pytest.MonkeyPatch):
    """Try to deregister again on another connection."""
    monkeypatch.setattr(worker_module, "SIGN_OFF", 0.01)
    tries, call = counting(lambda number: number == 1)
    asyncio.run(in_time(call, "worker 1 cannot sign off"))

    assert [0, 1] == tries


def test_a_sign_off_that_is_never_answered_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """If deregistration is never answered, the worker ends, and the error names what it could not do."""
    monkeypatch.setattr(worker_module, "SIGN_OFF", 0.01)
    tries, call = counting(lambda _: False)
    with pytest.raises(StoreUnreachable, match=r"worker 1 cannot sign off: the database has not answered within 2"):
        asyncio.run(in_time(call, "worker 1 cannot sign off"))

    assert [0, 1] == tries


def test_the_margin_is_a_share_of_a_short_lease(slow: App):
    """And a second of a long one."""
    heartbeats = [Heartbeat(app, Registered(app), Recorded()) for app in (slow, App("memory://"))]

    assert [pytest.approx(2 * MARGIN), 1.0] == [each._margin for each in heartbeats]
