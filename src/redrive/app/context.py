"""What a handler may know about the attempt that it is, and may say and ask while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from redrive.app.attempt_handle import AttemptHandle, Stop
from redrive.app.transaction import Transaction
from redrive.engine.origin import Kind, read_origin
from redrive.errors import ConfigurationError

__all__ = ["Context", "Stop"]


@dataclass(frozen=True, slots=True)
class Context:
    """Given to a handler that has a parameter annotated with this class.

    Attributes:
        job_id: the job.
        task: name of the task.
        attempt: which execution this is, from 1.
        failures: how many executions have failed before this one.
        attempt_uid: names this execution and no other: ``<job id>.<lease id>``. Where the handler returns `Pending`,
            it is the token that `App.complete` and `App.fail` take.
        idempotency_key: the same for every attempt of this job, and for no other job in any database, also if a
            backup is restored or a standby takes over that has missed some commits. Send it to services that can
            recognise a repetition.
        started_at: when its first attempt started.
        deadline_at: when the attempt will be cut off; None in a context that you made yourself.
        link: to the worker; None in a context that you made yourself, for a test: nothing stops it then, and its
            heartbeats go nowhere.
        origin: what the job is for, such as ``cron:nightly/2026-01-01T03:00:00Z``; None where it is a task by itself.
    """

    job_id: int
    task: str
    attempt: int
    failures: int
    attempt_uid: str
    idempotency_key: str
    started_at: datetime
    deadline_at: datetime | None
    link: AttemptHandle | None = field(default=None, repr=False, compare=False)
    origin: str | None = None

    @property
    def occurs_at(self) -> datetime | None:
        """The occurrence of the cron that this run is for, however late or however often it is tried; else None."""
        origin = read_origin(self.origin)
        return None if origin is None else origin.occurs_at

    @property
    def key(self) -> str | None:
        """The key of what is refreshed, in an attempt at a refresh; else None."""
        origin = read_origin(self.origin)
        return origin.part if origin is not None and origin.kind is Kind.REFRESH else None

    @property
    def should_stop(self) -> bool:
        """Should this handler come to an end?

        It is told so when the job was cancelled, when the attempt has lost its job, when its soft timeout has passed,
        and when its worker shuts down. An ``async def`` handler is interrupted besides; a ``def`` handler cannot be,
        so one that takes long should look here now and then.
        """
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> Stop | None:
        """Why it should stop, if it should.

        After ``LOST`` nothing that it does counts any more. After ``SHUTDOWN`` it may still finish, within the worker's
        ``shutdown_timeout``, or ``raise Snooze(0)``, which spends nothing.
        """
        return None if self.link is None else self.link.reason

    def heartbeat(self, details: object = None, *, force: bool = False) -> None:
        """Say that the attempt goes on, and how far it is; for ``def`` handlers.

        What is said more often than once a second is put together: the latest is written, a second late at most. A
        heartbeat is not needed to keep the job, which the worker does; it is for people, who see it in ``redrive jobs
        show``, and for the handler, which learns here that it has lost its job.

        Args:
            details: anything that JSON can carry; without them, what was said before stays.
            force: write it at once, and fail where the database is away.

        Raises:
            LeaseLost: the attempt is over: the job was cancelled, or given to another worker.
            PayloadError: the details cannot be written as JSON.
            StoreError: the database refused, and ``force`` was given.
        """
        if self.link is not None:
            self.link.heartbeat(details, force=force)

    async def aheartbeat(self, details: object = None, *, force: bool = False) -> None:
        """Say that the attempt goes on, and how far it is; see `heartbeat`."""
        if self.link is not None:
            await self.link.aheartbeat(details, force=force)

    def transaction(self) -> Transaction:
        """Commit your own writes and the end of this attempt together, or neither.

        ``with ctx.transaction() as connection:`` in a ``def`` handler, ``async with`` in a coroutine. The connection
        is the driver's own, in a transaction that has begun, to the database of the app: a `sqlite3.Connection` on
        SQLite. Do not commit it yourself. When the block ends, the job has succeeded, with what `set_result` was given.

        Returns:
            The block.

        Raises:
            LeaseLost: on entering or leaving the block: the attempt is over, and what was written is undone.
            ConfigurationError: the store has no connection to lend, or this is not a job.
            OutcomeUnknown: on leaving the block: the answer to the commit was lost. Let it leave the handler: if the
                commit took effect, the job has succeeded and is not run again; if not, this attempt has failed.
            StoreError: the database refused, or is away; what was written is undone.
        """
        return Transaction(self._linked())

    def set_result(self, value: object) -> None:
        """Say what the job's result is, inside the block of `transaction`.

        Args:
            value: as the handler would return it.

        Raises:
            ConfigurationError: there is no open transaction: return the result instead.
            PayloadError: it cannot be stored.
        """
        link = self._linked()
        if not link.lent:
            message = "set_result() belongs inside `with ctx.transaction()`; elsewhere, return the result"
            raise ConfigurationError(message)
        link.result = link.write(value)

    def _linked(self) -> AttemptHandle:
        if self.link is None:
            message = "this Context belongs to no attempt: only a job that a worker runs has a transaction"
            raise ConfigurationError(message)
        return self.link
