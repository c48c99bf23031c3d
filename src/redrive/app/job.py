"""A handle on one job."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, cast

from redrive.app.protocol import AppProtocol
from redrive.clock import SystemClock
from redrive.engine.explain import Circumstances, why_not_running
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import AttemptRecord, JobRecord, Progress
from redrive.errors import JobCancelled, JobDead, JobNotFound, ResultTimeout, StoreUnreachable
from redrive.observe.listeners import LISTENERS
from redrive.policy import parse_duration
from redrive.stores.operations import admin, attempts, jobs, queues, redriving
from redrive.stores.query import Operation

__all__ = ["Job"]

R = TypeVar("R")
S = TypeVar("S")

POLL = 0.005
"""Seconds between two looks at the store's version while waiting for a result; a look costs microseconds."""

LAST_LOOK = 1.0
"""Seconds that a database server may take to answer when the time to wait for a result is nearly over, or over."""


class Job(Generic[R]):
    """A handle on one job: cheap, and read from the database when asked.

    Args:
        app: whose.
        number: id of the job.
        created: was it made by the enqueue that answered this handle?
        enqueued_at: when it was enqueued, where that was in a transaction that may be rolled back. On SQLite another
            process can then give its number to another job.

    Attributes:
        id: of the job.
        created: False where an enqueue found that a job with its key was there already.
    """

    def __init__(
        self, app: AppProtocol, number: int, *, created: bool = True, enqueued_at: datetime | None = None
    ) -> None:
        self.id = number
        self.created = created
        self._enqueued_at = enqueued_at
        self._app = app
        self._record: JobRecord | None = None
        self._around: Circumstances | None = None

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
        """Why it was not running when it was last read, in one line."""
        if self._record is None or self._around is None:
            self.refresh()
        assert self._record is not None  # noqa: S101 - it was read
        assert self._around is not None  # noqa: S101 - the same
        return why_not_running(self._record, self._around)

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Its closed attempts, oldest first, read now."""
        return self._app.store.run(jobs.history(self._settled()))

    @property
    def progress(self) -> Progress | None:
        """What its handler last said of itself by ``ctx.heartbeat()``, read now."""
        return self._app.store.run(attempts.progress(self._settled()))

    def refresh(self) -> Job[R]:
        """Read the row again.

        Returns:
            This handle.

        Raises:
            JobNotFound: there is none, for example because the transaction that enqueued it has not committed.
        """
        return self._seen(self._app.store.run(queues.status(self.id, now=self._app.now())))

    async def arefresh(self) -> Job[R]:
        """Read the row again; see `refresh`."""
        return self._seen(await self._app.store.arun(queues.status(self.id, now=self._app.now())))

    def _seen(self, found: tuple[JobRecord, Circumstances]) -> Job[R]:
        self._check_same(found[0])
        self._record, self._around = found
        return self

    def _check_same(self, record: JobRecord) -> None:
        if self._enqueued_at not in {None, record.enqueued_at}:
            message = f"there is no such job: another one has the number {self.id} now, for its enqueue was rolled back"
            raise JobNotFound(message)
        self._enqueued_at = None

    def _settled(self) -> int:
        """Return the id, after a look whether the transaction that enqueued the job was committed."""
        if self._enqueued_at is not None:
            self.refresh()
        return self.id

    async def _asettled(self) -> int:
        """Return the id; see `_settled`."""
        if self._enqueued_at is not None:
            await self.arefresh()
        return self.id

    def result(self, timeout: timedelta | float | str | None = None) -> R:
        """Wait for the job to end and get what it returned.

        Args:
            timeout: how long to wait: a ``timedelta``, seconds, or text such as ``"10s"``; None waits for ever.

        Returns:
            The result, read by the return annotation of the task.

        Raises:
            JobDead: it gave up; the message has its last error.
            JobCancelled: somebody ended it.
            ResultTimeout: it has not ended in time, or the database has not answered in time (one second later at the
                latest); it goes on.
        """
        clock = SystemClock()
        until = _until(timeout, clock.monotonic())
        seen = -1
        while True:
            version = self._app.store.version()
            if version != seen:
                seen = version
                found = self._ask(jobs.get(self.id), until)
                self._check_same(found)
                self._record, self._around = found, None
                if self._record.state in FINAL:
                    return self._value(self._ask(jobs.result(self.id), until))
            if clock.monotonic() >= until:
                self._seen(self._ask(queues.status(self.id, now=self._app.now()), until))
                raise self._late(timeout)
            clock.sleep(POLL)

    def _ask(self, operation: Operation[S], until: float) -> S:
        """Run an operation, and give up where a database server has not answered by an instant, or soon after it."""
        try:
            return self._app.store.run(operation, timeout=max(until - SystemClock.monotonic(), LAST_LOOK))
        except StoreUnreachable as error:
            if SystemClock.monotonic() < until:
                raise
            raise ResultTimeout(self._silence()) from error

    async def aresult(self, timeout: timedelta | float | str | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """Await the end of the job and get what it returned; see `result`."""
        clock = SystemClock()
        until = _until(timeout, clock.monotonic())
        seen = -1
        while True:
            version = self._app.store.version()
            if version != seen:
                seen = version
                found = await self._aask(jobs.get(self.id), until)
                self._check_same(found)
                self._record, self._around = found, None
                if self._record.state in FINAL:
                    return self._value(await self._aask(jobs.result(self.id), until))
            if clock.monotonic() >= until:
                self._seen(await self._aask(queues.status(self.id, now=self._app.now()), until))
                raise self._late(timeout)
            await clock.asleep(POLL)

    async def _aask(self, operation: Operation[S], until: float) -> S:
        """Run an operation, and give up where a database server has not answered by an instant; see `_ask`."""
        try:
            async with asyncio.timeout(max(until - SystemClock.monotonic(), LAST_LOOK)):
                return await self._app.store.arun(operation)
        except (StoreUnreachable, TimeoutError) as error:
            if SystemClock.monotonic() < until:
                raise
            raise ResultTimeout(self._silence()) from error

    def _silence(self) -> str:
        return f"job {self.id} may have ended or not: the database did not answer in time"

    def _late(self, timeout: object) -> ResultTimeout:
        return ResultTimeout(f"job {self.id} is {self.state} after {timeout}: {self.why}")

    def _value(self, raw: bytes | None) -> R:
        record = self.record
        if record.state is State.DEAD:
            message = f"job {self.id} ({record.task}) gave up: {record.error} ({record.reason}; {record.note})"
            raise JobDead(message)
        if record.state is State.CANCELLED:
            message = f"job {self.id} ({record.task}) was cancelled: {record.note}"
            raise JobCancelled(message)
        return cast("R", self._app.read_result(record.task, raw))

    def cancel(self, why: str | None = None, *, actor: str | None = None) -> bool:
        """End the job if it has not ended; a running one loses its lease, and its handler is told.

        Args:
            why: shown on the job.
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            Was it cancelled by this call?

        Raises:
            JobNotFound: there is none.
        """
        done = self._app.store.run(self._cancel(self._settled(), why, actor))
        if done and LISTENERS:
            _tell_cancelled(self._app.store.run(jobs.get(self.id)))
        return done

    async def acancel(self, why: str | None = None, *, actor: str | None = None) -> bool:
        """End the job if it has not ended; see `cancel`."""
        done = await self._app.store.arun(self._cancel(await self._asettled(), why, actor))
        if done and LISTENERS:
            _tell_cancelled(await self._app.store.arun(jobs.get(self.id)))
        return done

    def _cancel(self, number: int, why: str | None, actor: str | None) -> Operation[bool]:
        return admin.cancel(number, why=why, actor=actor or self._app.actor, now=self._app.now())

    def retry(self, *, actor: str | None = None) -> None:
        """Run the job once more, now: a waiting one is due at once, a dead or cancelled one starts again.

        Args:
            actor: who does it, for the audit log; without it, who runs this process.

        Raises:
            JobNotFound: there is none.
            IllegalMove: it runs, has succeeded, was caught, is being caught, or another job holds its unique key.
        """
        self._app.store.run(redriving.retry(self._settled(), actor=actor or self._app.actor, now=self._app.now()))

    async def aretry(self, *, actor: str | None = None) -> None:
        """Run the job once more, now; see `retry`."""
        number = await self._asettled()
        await self._app.store.arun(redriving.retry(number, actor=actor or self._app.actor, now=self._app.now()))

    def skip(self, *, actor: str | None = None) -> bool:
        """Let those pass that this dead job of an ordered queue holds up; it stays dead.

        Args:
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            Was it skipped by this call? One that was skipped before, or was caught, holds up nobody.

        Raises:
            JobNotFound: there is none.
            IllegalMove: it is not dead.
        """
        return self._app.store.run(admin.skip(self._settled(), actor=actor or self._app.actor, now=self._app.now()))

    async def askip(self, *, actor: str | None = None) -> bool:
        """Let those pass that this dead job holds up; see `skip`."""
        number = await self._asettled()
        return await self._app.store.arun(admin.skip(number, actor=actor or self._app.actor, now=self._app.now()))


def _tell_cancelled(record: JobRecord) -> None:
    from redrive.app.events import emit_cancelled

    emit_cancelled([record])


def _until(timeout: Any, now: float) -> float:  # noqa: ANN401 - see `Job.result`
    return float("inf") if timeout is None else now + parse_duration(timeout).total_seconds()
