"""A handle on one job."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, cast

from redrive.app.attempts.effects import Effects
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.tasks import waiting
from redrive.clock import SystemClock
from redrive.engine.explain import Circumstances, why_not_running
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import AttemptRecord, JobRecord, Progress
from redrive.errors import ConfigurationError, JobNotFound, ResultTimeout
from redrive.observe.listeners import INFO, heard
from redrive.policy.duration import Duration
from redrive.seams import without
from redrive.stores.operations import admin, attempts, jobs, queues, redriving
from redrive.stores.urls import redacted

R = TypeVar("R")


class Job(Generic[R]):
    """A handle on one job. The row is read from the database when it is needed.

    ``actor`` is the name in the audit log, by default ``user@host`` of this process.

    Attributes:
        id: of the job.
        created: False if an enqueue has found an existing job with its key.
        enqueued_at: when this process has enqueued it, by the database's clock; None if it did not.
    """

    def __init__(
        self,
        app: AppProtocol,
        number: int,
        *,
        created: bool = True,
        enqueued_at: datetime | None = None,
        uncommitted: bool = False,
        pending: Effects | None = None,
    ) -> None:
        self.id = number
        # The effects of the attempt that writes the job at its end.
        self._pending = pending
        self.created = created
        self.enqueued_at = enqueued_at
        # On SQLite another process can give the id to another job, if the transaction of the enqueue is rolled back.
        self._enqueued_at = enqueued_at if uncommitted else None
        self._app = app
        self._record: JobRecord | None = None
        self._around: Circumstances | None = None

    if not TYPE_CHECKING:  # as in `redrive.App`
        __getattr__ = without("job")

        # Type checkers refuse ``await job`` as long as they see no method.
        def __await__(self) -> object:
            """Raise the error of a call that was awaited in place of its asynchronous colour."""
            raise TypeError(
                f"job {self.id} is enqueued, and cannot be awaited: `await task.aenqueue(...)` enqueues in a "
                "coroutine, `await job.aresult()` waits for the result, and `return job.id` keeps a job"
            )

    def __reduce__(self) -> NoReturn:
        """Raise the error of what pickles or copies a handle, which has the connection of its app."""
        raise TypeError(f"job {self.id} cannot be pickled or copied: keep job.id, and app.job({self.id}) is the job")

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    @property
    def record(self) -> JobRecord:
        """The row as it was last read; see `refresh`."""
        return self._record or self.refresh().record

    @property
    def state(self) -> State:
        """The state of the job when it was last read; see `refresh`."""
        return self.record.state

    @property
    def caught_at(self) -> datetime | None:
        """When its catch task succeeded, as last read."""
        return self.record.caught_at

    @property
    def why(self) -> str:
        """The reason why it was not running when it was last read, in one line."""
        if self._record is None or self._around is None:
            self.refresh()
        assert self._record is not None  # it was read
        assert self._around is not None  # the same
        return why_not_running(self._record, self._around)

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        """The closed attempts, oldest first, read now."""
        return run(self._app.store, self._attempts())

    async def aattempts(self) -> tuple[AttemptRecord, ...]:
        """Read the closed attempts; see `attempts`."""
        return await arun(self._app.store, self._attempts())

    def _attempts(self) -> Procedure[tuple[AttemptRecord, ...]]:
        found: tuple[AttemptRecord, ...] = yield jobs.history((yield from self._committed_id()))
        return found

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, sorted, read now."""
        return run(self._app.store, self._tags())

    async def atags(self) -> tuple[str, ...]:
        """Read the tags; see `tags`."""
        return await arun(self._app.store, self._tags())

    def _tags(self) -> Procedure[tuple[str, ...]]:
        number = yield from self._committed_id()
        found: dict[int, tuple[str, ...]] = yield jobs.tags([number])
        return found.get(number, ())

    @property
    def progress(self) -> Progress | None:
        """The latest details of ``ctx.heartbeat()``, read now."""
        return run(self._app.store, self._progress())

    async def aprogress(self) -> Progress | None:
        """Read the latest details of ``ctx.heartbeat()``; see `progress`."""
        return await arun(self._app.store, self._progress())

    def _progress(self) -> Procedure[Progress | None]:
        found: Progress | None = yield attempts.progress((yield from self._committed_id()))
        return found

    def refresh(self) -> Job[R]:
        """Read the row again, and return this handle.

        Raises:
            JobNotFound: there is no such job, for example because the transaction that enqueued it has not committed.
        """
        self._check_written()
        return self._seen(self._app.store.run(queues.status(self.id, now=self._app.now())))

    async def arefresh(self) -> Job[R]:
        """Read the row again; see `refresh`."""
        self._check_written()
        return self._seen(await self._app.store.arun(queues.status(self.id, now=self._app.now())))

    def _check_written(self) -> None:
        """Raise `JobNotFound` if the attempt that writes the job has not ended: a wait for it would never end."""
        if self._pending is not None and self._pending.is_open:
            raise JobNotFound(
                f"job {self.id} is written when this attempt succeeds, and does not exist before: end the handler, or "
                "enqueue by options(immediate=True), which writes at once"
            )

    def _seen(self, found: tuple[JobRecord, Circumstances]) -> Job[R]:
        self._check_same(found[0])
        self._record, self._around = found
        return self

    def _check_same(self, record: JobRecord) -> None:
        if self._enqueued_at not in {None, record.enqueued_at}:
            raise jobs.rolled_back(self.id)
        self._enqueued_at = None

    def identity(self, app: AppProtocol) -> tuple[int, datetime | None]:
        """Return the id, and the instant of the enqueue while it is unknown whether its transaction was committed.

        Raise `ConfigurationError` if the database of an app is another one, in which the id belongs to another job.
        """
        if self._app is not app and (self._app.url != app.url or app.url.startswith("memory:")):
            raise ConfigurationError(
                f"job {self.id} is in {redacted(self._app.url)}, and this app has another database, "
                f"{redacted(app.url)}, where the id may be that of another job: ask the app of the job"
            )
        self._check_written()
        return self.id, self._enqueued_at

    def _committed_id(self) -> Procedure[int]:
        """Return the id, after a check that the transaction that enqueued the job was committed."""
        self._check_written()
        if self._enqueued_at is not None:
            self._seen((yield queues.status(self.id, now=self._app.now())))
        return self.id

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to end and return its result, read by the return annotation of the task.

        Args:
            timeout: the time to wait: a ``timedelta``, seconds, or text such as ``"10s"``; None waits for ever. If
                there is no worker for the job after three seconds, a warning is logged.

        Raises:
            JobDead: it gave up; the message has its last error.
            JobCancelled: it was cancelled.
            ResultTimeout: it has not ended in time, or the database has not answered in time (one second later at the
                latest). The job goes on.
        """
        until = waiting.until(timeout)
        return waiting.wait(self._app.store, self._result(timeout, until), until, f"job {self.id}")

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Await the end of the job and return its result; see `result`."""
        until = waiting.until(timeout)
        return await waiting.await_(self._app.store, self._result(timeout, until), until, f"job {self.id}")

    def _result(self, timeout: object, until: float) -> waiting.Waiting[R]:
        """Wait until the job has ended."""
        self._check_written()
        seen, warn_at = -1, SystemClock.monotonic() + waiting.PATIENCE
        while True:
            version = self._app.store.version()
            if version != seen:
                seen = version
                found = yield jobs.get(self.id)
                self._check_same(found)
                self._record, self._around = found, None
                if found.state in FINAL:
                    return cast("R", waiting.value(self._app, found, (yield jobs.result(self.id))))
            if SystemClock.monotonic() >= warn_at:
                warn_at = float("inf")
                waiting.warn_unserved(self._app, *(yield queues.status(self.id, now=self._app.now())))
            if SystemClock.monotonic() >= until:
                self._seen((yield queues.status(self.id, now=self._app.now())))
                raise self._late(timeout)
            yield None

    def _late(self, timeout: object) -> ResultTimeout:
        assert self._around is not None  # it was just read
        why = waiting.why_late(self._app, self.record, self._around)
        return ResultTimeout(f"job {self.id} is {self.state} after {timeout}: {why}")

    def cancel(self, why: str | None = None, *, actor: str | None = None) -> bool:
        """Cancel the job if it has not ended. A running job loses its lease, and its handler is asked to stop.

        The run of a workflow is asked to end, as by `Run.cancel`, and takes its steps back before. Return True if this
        call has changed something. The reason ``why`` is shown on the job.

        Raises:
            JobNotFound: there is no such job.
        """
        return run(self._app.store, self.cancelling(why, actor))

    async def acancel(self, why: str | None = None, *, actor: str | None = None) -> bool:
        """Cancel the job if it has not ended; see `cancel`."""
        return await arun(self._app.store, self.cancelling(why, actor))

    def cancelling(self, why: str | None, actor: str | None) -> Procedure[bool]:
        """Cancel the job, as the procedure of both methods."""
        number = yield from self._committed_id()
        done: bool = yield admin.cancel(number, why=why, actor=actor or self._app.default_actor, now=self._app.now())
        if done and heard("redrive.jobs", INFO):
            from redrive.app.events import emit_cancelled

            emit_cancelled([(yield jobs.get(number))])
        return done

    def retry(self, *, actor: str | None = None) -> None:
        """Run the job once more, now: a waiting job is due at once, a dead or cancelled one starts again.

        Raises:
            JobNotFound: there is no such job.
            IllegalMove: it runs, has succeeded, was caught, is being caught, or another job holds its unique key.
        """
        run(self._app.store, self._retry(actor))

    async def aretry(self, *, actor: str | None = None) -> None:
        """Run the job once more, now; see `retry`."""
        await arun(self._app.store, self._retry(actor))

    def _retry(self, actor: str | None) -> Procedure[None]:
        number = yield from self._committed_id()
        yield redriving.retry(number, actor=actor or self._app.default_actor, now=self._app.now())

    def skip(self, *, actor: str | None = None) -> bool:
        """Let the jobs pass that this dead job of an ordered queue blocks; it stays dead.

        Return True if this call has skipped the job. A job that was skipped before, or was caught, blocks none.

        Raises:
            JobNotFound: there is no such job.
            IllegalMove: it is not dead.
        """
        return run(self._app.store, self._skip(actor))

    async def askip(self, *, actor: str | None = None) -> bool:
        """Let the jobs pass that this dead job blocks; see `skip`."""
        return await arun(self._app.store, self._skip(actor))

    def _skip(self, actor: str | None) -> Procedure[bool]:
        number = yield from self._committed_id()
        return bool((yield admin.skip(number, actor=actor or self._app.default_actor, now=self._app.now())))
