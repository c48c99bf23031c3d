"""A handle on one job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, cast

from redrive.app.home import Home
from redrive.clock import SystemClock
from redrive.engine.explain import why_not_running
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import Attempt
from redrive.engine.records import Job as JobRecord
from redrive.errors import JobCancelled, JobDead, ResultTimeout
from redrive.policy import parse_duration
from redrive.stores.operations import admin, jobs

__all__ = ["Job"]

R = TypeVar("R")

POLL = 0.005
"""Seconds between two looks at the store's version while waiting for a result; a look costs microseconds."""


class Job(Generic[R]):
    """A handle on one job: cheap, and read from the database when asked.

    Args:
        app: whose.
        number: id of the job.
    """

    def __init__(self, app: Home, number: int) -> None:
        self.id = number
        self._app = app
        self._record: JobRecord | None = None

    def __repr__(self) -> str:
        """Name it as people do."""
        return f"<job {self.id}>"

    @property
    def record(self) -> JobRecord:
        """The row, as last read; see `refresh`."""
        return self._record or self.refresh().record

    @property
    def state(self) -> State:
        """What the job was doing when it was last read; see `refresh`."""
        return self.record.state

    @property
    def caught_at(self) -> datetime | None:
        """When its catch task took it, as last read."""
        return self.record.caught_at

    @property
    def why(self) -> str:
        """Why it is not running, in one line, as last read."""
        return why_not_running(self.record, self._app.now() or SystemClock().now())

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Its closed attempts, oldest first, read now."""
        return self._app.store.run(jobs.history(self.id))

    def refresh(self) -> Job[R]:
        """Read the row again.

        Returns:
            This handle.

        Raises:
            JobNotFound: there is none, for example because the transaction that enqueued it has not committed.
        """
        self._record = self._app.store.run(jobs.get(self.id))
        return self

    async def arefresh(self) -> Job[R]:
        """Read the row again; see `refresh`."""
        self._record = await self._app.store.arun(jobs.get(self.id))
        return self

    def result(self, timeout: timedelta | float | str | None = None) -> R:
        """Wait for the job to end and get what it returned.

        Args:
            timeout: how long to wait: a ``timedelta``, seconds, or text such as ``"10s"``; None waits for ever.

        Returns:
            The result, read by the return annotation of the task.

        Raises:
            JobDead: it gave up; the message has its last error.
            JobCancelled: somebody ended it.
            ResultTimeout: it has not ended in time; it goes on.
        """
        clock = SystemClock()
        until = _until(timeout, clock.monotonic())
        seen = -1
        while True:
            version = self._app.store.version()
            if version != seen:
                seen = version
                if self.refresh().state in FINAL:
                    return self._value(self._app.store.run(jobs.result(self.id)))
            self._check_time(until, clock.monotonic(), timeout)
            clock.sleep(POLL)

    async def aresult(self, timeout: timedelta | float | str | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """Await the end of the job and get what it returned; see `result`."""
        clock = SystemClock()
        until = _until(timeout, clock.monotonic())
        seen = -1
        while True:
            version = self._app.store.version()
            if version != seen:
                seen = version
                if (await self.arefresh()).state in FINAL:
                    return self._value(await self._app.store.arun(jobs.result(self.id)))
            self._check_time(until, clock.monotonic(), timeout)
            await clock.asleep(POLL)

    def _check_time(self, until: float, now: float, timeout: object) -> None:
        if now >= until:
            message = f"job {self.id} is {self.state} after {timeout}: {self.why}"
            raise ResultTimeout(message)

    def _value(self, raw: bytes | None) -> R:
        record = self.record
        if record.state is State.DEAD:
            message = f"job {self.id} ({record.task}) gave up: {record.error} ({record.reason}; {record.note})"
            raise JobDead(message)
        if record.state is State.CANCELLED:
            message = f"job {self.id} ({record.task}) was cancelled: {record.note}"
            raise JobCancelled(message)
        return cast("R", self._app.read_result(record.task, raw))

    def cancel(self, why: str | None = None) -> bool:
        """End the job if it has not ended; a running one loses its lease, and its handler is told.

        Args:
            why: shown on the job.

        Returns:
            Was it cancelled by this call?

        Raises:
            JobNotFound: there is none.
        """
        return self._app.store.run(admin.cancel(self.id, why=why, now=self._app.now()))

    async def acancel(self, why: str | None = None) -> bool:
        """End the job if it has not ended; see `cancel`."""
        return await self._app.store.arun(admin.cancel(self.id, why=why, now=self._app.now()))

    def retry(self) -> None:
        """Run the job once more, now: a waiting one is due at once, a dead or cancelled one starts again.

        Raises:
            JobNotFound: there is none.
            IllegalMove: it runs, has succeeded, was caught, or is being caught.
        """
        self._app.store.run(admin.retry(self.id, now=self._app.now()))


def _until(timeout: Any, now: float) -> float:  # noqa: ANN401 - see `Job.result`
    return float("inf") if timeout is None else now + parse_duration(timeout).total_seconds()
