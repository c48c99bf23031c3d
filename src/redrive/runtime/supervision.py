"""The loop that runs the background duties of a worker and restarts a duty that fails.

A duty is a step that is repeated. A `StoreError` means that the database is unreachable or busy: `Outage` logs it.
Any other exception is a defect of redrive, of a driver, or of application code that the duty calls: it is logged with
its traceback, emitted as `redrive.observe.WorkerDutyFailed`, and listed with the worker until a step succeeds again.
After either one the duty rests, longer after each failure in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from redrive.app.app import App
from redrive.app.events import emit_apart
from redrive.clock import Clock
from redrive.engine.explain import span
from redrive.errors import StoreError
from redrive.errors.foreign import summary, trace
from redrive.observe import WorkerDutyFailed
from redrive.observe import log as observe_log
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import Block
from redrive.policy import Backoff
from redrive.runtime import log
from redrive.runtime.registration import WorkerRegistration
from redrive.stores.operations import workers

# Failures in a row by `MemoryError` that a duty survives: about half a minute.
MEMORY_LIMIT = 10

#: Seconds between two lines about an outage.
EVERY: Final = 60.0

#: Seconds after its last failure in which a duty still counts as one that waits. Most try again within 5 seconds; one
#: that was cancelled, or that tries once a minute, does not delay the line about the end.
WAITS: Final = 15.0

_RESTS = Backoff.exponential("100ms", "5s")
# The number of failures in a row after which rests grow no more.
_LONGEST = 10


def rest(failures: int) -> float:
    """Return the seconds to rest after so many failures in a row: 0.1, 0.2, 0.4 ... 5."""
    return _RESTS.delay(min(failures, _LONGEST)) or 0.0


@dataclass(frozen=True, slots=True)
class Duty:
    """One background duty of a worker."""

    name: str
    # Does the work once and returns the seconds to rest before the next step; None when the duty has ended.
    step: Callable[[], Awaitable[float | None]]
    shortest: float = 0.0  # the shortest rest after a failure, in seconds
    longest: float = math.inf  # the longest rest after a failure, in seconds


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of one turn of a duty, which looks for what is due and does it; a drain takes these turns, too.

    Attributes:
        done: how many were due and are done.
        rest_for: the time until the next one is due; None if nothing is planned.
        at: the instant of the poll, by the clock of the database, if the duty knows it.
        waiting: True if something waits for an end of an attempt.
    """

    done: int
    rest_for: timedelta | None = None
    at: datetime | None = field(default=None, compare=False)
    waiting: bool = field(default=False, compare=False)


class Outage:
    """The duties that wait for the database, and what the log has about that. Safe to use from any thread.

    A worker has about fifteen duties, each of which tries again within 5 seconds. So an outage is the first failure of
    each duty, then one line a minute with what has failed since, and one line at its end.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, float] = {}
        """The duties that wait, with the instants of their last failures."""
        self._tries = Counter[str]()
        """The tries that have failed in this outage, by duty."""
        self._since = clock.now()
        self._began = self._logged = 0.0

    def failed(self, name: str, error: Exception) -> None:
        """Record that a duty waits; log its first failure, and once a minute all that has failed."""
        with self._lock:
            now = self._clock.monotonic()
            if not self._waiting:
                self._tries.clear()
                self._since, self._began, self._logged = self._clock.now(), now, now
            self._waiting[name] = now
            self._tries[name] += 1
            is_first, is_due = self._tries[name] == 1, now - self._logged >= EVERY
            if is_due:
                self._logged = now
            since = f"{self._since:%Y-%m-%d %H:%M:%S} UTC ({span(timedelta(seconds=now - self._began))})"
            failed = self._failed()
        if is_first:
            log.warning("%s waits: %s", name, error)
        if is_due:
            log.warning("since %s %s; the last error: %s", since, failed, error)

    def worked(self, name: str) -> None:
        """Record that a duty works, and log the end of the outage if no other one waits."""
        if not self._waiting:
            return
        with self._lock:
            now, before = self._clock.monotonic(), self._waiting
            self._waiting = {each: at for each, at in before.items() if each != name and now - at < WAITS}
            has_ended = bool(before) and not self._waiting
            lasted, failed = span(timedelta(seconds=now - self._began)), self._failed()
        if has_ended:
            log.info("the database is back: after %s nothing waits for it; %s", lasted, failed)

    def _failed(self) -> str:
        tries = self._tries.total()
        number = "1 try has failed" if tries == 1 else f"{tries} tries have failed"
        return f"{number}: {', '.join(f'{name} {count}' for name, count in sorted(self._tries.items()))}"


class Supervisor:
    """Repeats duties and records which of them fail."""

    def __init__(
        self,
        clock: Clock,
        failed: Callable[[str, BaseException, int], None] = lambda *_: None,
        changed: Callable[[str | None], None] = lambda _: None,
        outage: Outage | None = None,
    ) -> None:
        self._clock = clock
        self._outage = outage or Outage(clock)
        self._failed = failed
        self._changed = changed
        self._failures: dict[str, int] = {}
        self._errors: dict[str, str] = {}

    @property
    def defects(self) -> str | None:
        """The duties that fail because of a defect, with their errors; None if there are none."""
        return "; ".join(f"{name}: {why}" for name, why in sorted(self._errors.copy().items())) or None

    async def run(self, duty: Duty) -> None:
        """Repeat a duty until it ends.

        Raise `MemoryError` if the duty has failed more than `MEMORY_LIMIT` times in a row for lack of memory.
        """
        while True:
            try:
                seconds = await duty.step()
            except Exception as error:
                failures = self.failed(duty.name, error)
                if isinstance(error, MemoryError) and failures > MEMORY_LIMIT:
                    raise
                seconds = min(max(rest(failures), duty.shortest), duty.longest)
            else:
                self.succeeded(duty.name)
            if seconds is None:
                return
            if seconds > 0:
                await self._clock.asleep(seconds)

    def failed(self, name: str, error: Exception) -> int:
        """Record that a step has failed, and return the failures in a row. Safe to call from any thread."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if isinstance(error, StoreError):
            self._outage.failed(name, error)
            return failures
        with contextlib.suppress(MemoryError):
            self._report(name, error, failures)
        return failures

    def _report(self, name: str, error: Exception, failures: int) -> None:
        why = summary(error)
        if self._errors.get(name) == why:
            log.error("%s failed again, %d times in a row: %s", name, failures, why)
        else:
            log.error("%s failed, and is started again: %s%s", name, why, Block(trace(error)))
            self._errors[name] = why
            self._changed(self.defects)
        self._failed(name, error, failures)

    def succeeded(self, name: str) -> None:
        """Record that a step has succeeded. Safe to call from any thread."""
        self._outage.worked(name)
        if name not in self._failures:
            return
        del self._failures[name]
        if self._errors.pop(name, None) is not None:
            log.info("%s works again", name)
            self._changed(self.defects)


async def first(*awaitables: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
    """Wait until one of these ends, and raise its error. The other tasks go on; bare coroutines are cancelled."""
    tasks = [each if isinstance(each, asyncio.Task) else asyncio.ensure_future(each) for each in awaitables]
    own = [task for task, each in zip(tasks, awaitables, strict=True) if task is not each]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*own)
    for task in done:
        if not task.cancelled():
            task.result()


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Reporter:
    """The background duty that reports failing duties."""

    def __init__(self, app: App, registration: WorkerRegistration) -> None:
        self._app = app
        self._registration = registration
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._defects: str | None = None
        self.duty: Duty = Duty("reporting", self._step)

    def failed(self, name: str, error: BaseException, failures: int) -> None:
        """Emit an event about a duty that failed so many times in a row. Safe to call from any thread."""
        if LISTENERS:
            worker = self._registration
            event = WorkerDutyFailed(
                worker_id=worker.id, queues=worker.queues, duty=name, error=summary(error), failures=failures
            )
            # The supervisor has logged it, with its traceback.
            emit_apart(event, but=observe_log)

    def changed(self, defects: str | None) -> None:
        """Have the list of failing duties written. Safe to call from any thread."""
        self._defects = defects
        self._loop.call_soon_threadsafe(self._changed.set)

    def again(self) -> None:
        """Have the list written once more, because the worker has a new row."""
        if self._defects is not None:
            self._changed.set()

    async def _step(self) -> float:
        await self._changed.wait()
        self._changed.clear()
        try:
            await self._app.store.arun(workers.report(self._registration.id, self._defects))
        except BaseException:
            self._changed.set()
            raise
        return 0.0
