"""The objects that a handler receives and returns: its context, its transaction, and `Pending`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from redrive.app.attempts.effects import NO_LOANS
from redrive.app.attempts.handle import AttemptHandle, Stop
from redrive.app.attempts.origins import DeliveredEvent, Delivery, TransitionHandle
from redrive.app.attempts.resources import Resources
from redrive.engine.origin import Kind, read_origin
from redrive.engine.outcome import Settlement
from redrive.errors import ConfigurationError
from redrive.policy.duration import Duration, parse_wait
from redrive.retrying import rng
from redrive.seams import without
from redrive.stores.query import Operation
from redrive.stores.store import AsyncStoreTransaction, StoreTransaction

__all__ = ["Context", "Pending", "Stop", "Transaction"]


_KEYED = frozenset({Kind.REFRESH, Kind.MACHINE})


@dataclass(frozen=True, slots=True)
class Context:
    """The attempt that a handler executes, for handlers with a parameter that has this annotation.

    The parameter is no argument of `redrive.Task.enqueue`. Make it the first one: then type checkers check the
    arguments of the job. In another place, called ``ctx`` or ``context``, it makes them accept any arguments.

    Attributes:
        job_id: id of the job.
        task: name of the task.
        attempt: number of this execution, from 1.
        failures: the number of failed executions before this one.
        attempt_uid: unique id of this execution: ``<job id>.<lease id>``. If the handler returns `Pending`, it is the
            token for `App.complete` and `App.fail`.
        idempotency_key: the same for every attempt of this job, and for no other job in any database, also after a
            backup was restored or a standby that lacks some commits took over. Send it to services that can recognise
            a repetition.
        started_at: start of the first attempt.
        deadline_at: the time limit of this attempt; None in a context that you made yourself.
        link: the connection to the worker; None in a context that you made yourself, for a test: it never asks the
            handler to stop, and ignores heartbeats.
        origin: what the job was created for, such as ``cron:nightly/2026-01-01T03:00:00Z``; None for a plain task.
        delivery: the events of a delivery of a topic; None in other jobs. `events`, `redelivered` and `fail` use it.
        resources: what the start hooks of the worker have returned, by name; see `App.on_start`. In a context that you
            made yourself: ``Resources({"pool": fake})``, or any other mapping.
        transition: the transition of a state machine; None in other jobs.
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
    resources: Mapping[str, Any] = field(default_factory=Resources, repr=False, compare=False)
    transition: TransitionHandle | None = field(default=None, repr=False, compare=False)
    delivery: Delivery | None = field(default=None, repr=False, compare=False)

    if not TYPE_CHECKING:  # as in `redrive.App`
        __getattr__ = without("context")

    @property
    def events(self) -> tuple[DeliveredEvent, ...]:
        """The id, key, time, type and version of each event of a delivery of a topic; empty in other jobs."""
        return () if self.delivery is None else self.delivery.events

    @property
    def redelivered(self) -> bool:
        """True if an earlier call of the subscription may have got an event of this delivery."""
        return self.delivery is not None and self.delivery.redelivered

    @property
    def out_of_order(self) -> bool:
        """True if an operator has redriven the event, and later ones of its key may have been delivered before.

        With ``order="strict"``, later ones of the topic. Such a job has the tag ``out of order``.
        """
        return self.delivery is not None and self.delivery.out_of_order

    def fail(self, event: object, error: BaseException | str | None = None) -> None:
        """Mark one event of a delivery as failed, in a subscription with ``batch=``; the other events succeed.

        The event becomes a job with the policy of the subscription.

        Args:
            event: an event of the list that the handler has got.
            error: the exception that the policy decides about, or a text.

        Raises:
            ConfigurationError: this is no delivery, or it has no such event.
        """
        if self.delivery is None:
            raise ConfigurationError("ctx.fail() belongs to the delivery of a topic; in other jobs, raise an exception")
        self.delivery.fail(event, error)

    @property
    def occurs_at(self) -> datetime | None:
        """The occurrence of a cron, the same in each attempt of its job; None in other jobs."""
        origin = read_origin(self.origin)
        return None if origin is None else origin.occurs_at

    @property
    def key(self) -> str | None:
        """The key of the item in an attempt of a refresh, that of the instance in a transition; None in other jobs."""
        origin = read_origin(self.origin)
        return origin.part if origin is not None and origin.kind in _KEYED else None

    @property
    def data(self) -> Any:
        """The data of the instance, in a transition of a machine; None in other jobs, and without any.

        A change of the object is not stored; see `set_data`.
        """
        return None if self.transition is None else self.transition.data

    def set_data(self, value: object) -> None:
        """Replace the data of the instance, when this transition has ended; discarded if the attempt fails.

        Args:
            value: an object of the class that the machine declares.

        Raises:
            PayloadError: the data do not fit the class.
            ConfigurationError: this job is no transition, or the machine has no data.
        """
        self._transition("set_data").set_data(value)

    def next(self, event: object) -> None:
        """Send an event to the instance of this transition; its transition begins when this one has ended.

        The event is checked now, against the state that this transition leads to. It commits with the end of the
        attempt, and is discarded if the attempt fails.

        Args:
            event: an object of a class that a state after this one takes.

        Raises:
            NoTransition: no state after this one takes the event.
            MachineError: this attempt has a next event already.
            PayloadError: the event cannot be stored.
            ConfigurationError: this job is no transition of a machine.
            LeaseLost: the attempt has ended.
        """
        self._transition("next").next(event)

    def _transition(self, name: str) -> TransitionHandle:
        if self.transition is None:
            raise ConfigurationError(
                f"ctx.{name}() belongs to a transition of a state machine, and this job is none: use machine.send()"
            )
        return self.transition

    @property
    def should_stop(self) -> bool:
        """True if the handler should stop.

        That is so when the job was cancelled, when the attempt has lost its lease, when its soft timeout has passed,
        and when its worker shuts down. An ``async def`` handler is interrupted as well. A ``def`` handler cannot be
        interrupted: if it takes long, it should read this property from time to time.
        """
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> Stop | None:
        """The reason why the handler should stop, if it should.

        After ``LOST`` nothing that the handler does is stored. After ``SHUTDOWN`` it may still finish, within the
        worker's ``shutdown_timeout``, or ``raise Snooze(0)``, which does not count as an attempt.
        """
        return None if self.link is None else self.link.reason

    def heartbeat(self, details: object = None, *, force: bool = False) -> None:
        """Report progress, from a ``def`` handler.

        Reports within one second are merged: the latest one is written, at most a second late. The lease does not
        depend on it, because the worker renews that. The details are shown by ``redrive jobs show``, and the handler
        learns from the error that it has lost its job.

        Args:
            details: anything that can be written as JSON; None keeps the earlier details.
            force: write at once, and raise if the database cannot be reached.

        Raises:
            LeaseLost: the attempt is over: the job was cancelled, or given to another worker.
            PayloadError: the details cannot be written as JSON.
            StoreError: the database refused, and ``force`` was given.
        """
        if self.link is not None:
            self.link.heartbeat(details, force=force)

    async def aheartbeat(self, details: object = None, *, force: bool = False) -> None:
        """Report progress; see `heartbeat`."""
        if self.link is not None:
            await self.link.aheartbeat(details, force=force)

    def transaction(self) -> Transaction:
        """Return a block that commits your own writes and the end of this attempt together, or neither.

        ``with ctx.transaction() as connection:`` in a ``def`` handler, ``async with`` in a coroutine. The connection
        is the driver's own, to the database of the app and in a transaction that has begun: a `sqlite3.Connection` on
        SQLite. Do not commit it yourself. When the block ends, the job has succeeded with the value of `set_result`.

        Raises:
            LeaseLost: on entering or leaving the block: the attempt is over, and the writes are rolled back.
            ConfigurationError: the store has no connection to lend, or this is not a job.
            OutcomeUnknown: on leaving the block: the answer to the commit was lost. Let it leave the handler: if the
                commit took effect, the job has succeeded and does not run again; if not, this attempt has failed.
            StoreError: the database refused, or cannot be reached; the writes are rolled back.
        """
        return Transaction(self._linked())

    def set_result(self, value: object) -> None:
        """Set the result of the job, inside the block of `transaction`.

        Args:
            value: as the handler would return it.

        Raises:
            ConfigurationError: there is no open transaction: return the result instead.
            PayloadError: it cannot be stored.
        """
        link = self._linked()
        if not link.lent:
            raise ConfigurationError(
                "set_result() belongs inside `with ctx.transaction()`; elsewhere, return the result"
            )
        link.result = link.write(value)

    def _linked(self) -> AttemptHandle:
        if self.link is None:
            raise ConfigurationError(
                "this Context belongs to no attempt: only a job that a worker runs has a transaction"
            )
        return self.link


class Transaction:
    """The block of ``ctx.transaction()``: it commits the handler's writes and the end of its attempt, or neither.

    An attempt that has lost its lease cannot commit, and a committed attempt is never repeated. This is the only way to
    an effect exactly once; effects elsewhere take place at least once. ``ctx.set_result()`` sets the result inside the
    block; another return value of the handler is logged as an error, because it comes too late to be stored.
    """

    def __init__(self, link: AttemptHandle) -> None:
        self._link = link
        self._loan: StoreTransaction
        self._async_loan: AsyncStoreTransaction
        self._before = 0

    def __enter__(self) -> Any:
        self._begin()
        self._loan = self._lend()
        if not self._loan.is_current:
            self._loan.rollback()
            raise self._link.lost()
        self._opened(self._loan, None)
        return self._loan.connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self._end()
            else:
                self._loan.rollback()
                _refuse_commit(error)
        finally:
            self._closed()

    def _opened(self, loan: StoreTransaction | None, async_loan: AsyncStoreTransaction | None) -> None:
        effects = self._link.effects
        self._link.lent = True
        self._before, effects.loans = len(effects.added), (loan, async_loan)

    def _closed(self) -> None:
        effects = self._link.effects
        self._link.lent, effects.loans = False, NO_LOANS
        if not self._link.ended:
            effects.drop(self._before)

    def _end(self) -> None:
        try:
            written = self._checked(self._loan.run(self._settle()))
        except BaseException:
            self._loan.rollback()
            raise
        self._loan.commit()
        self._link.close(written)

    async def __aenter__(self) -> Any:
        self._begin()
        self._async_loan = await self._alend()
        if not self._async_loan.is_current:
            await self._async_loan.rollback()
            raise self._link.lost()
        self._opened(None, self._async_loan)
        return self._async_loan.connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._aend()
            else:
                await self._async_loan.rollback()
                _refuse_commit(error)
        finally:
            self._closed()

    async def _aend(self) -> None:
        try:
            written = self._checked(await self._async_loan.run(self._settle()))
        except BaseException:
            await self._async_loan.rollback()
            raise
        try:
            await self._async_loan.commit()
        except asyncio.CancelledError:
            # The loan finishes its commit before it raises this.
            self._link.close(written)
            raise
        self._link.close(written)

    def _lend(self) -> StoreTransaction:
        return self._link.store.begin(self._link.is_current())

    async def _alend(self) -> AsyncStoreTransaction:
        return await self._link.store.abegin(self._link.is_current())

    def _begin(self) -> None:
        if self._link.lent:
            raise ConfigurationError(
                "ctx.transaction() is open already: an attempt ends once, so it has one transaction at a time"
            )
        self._link.check()
        self._link.result = None

    def _checked(self, written: Settlement | bool | None) -> Settlement | bool:  # noqa: FBT001 - the answer of `settle`
        if not written:
            raise self._link.lost()
        return written

    def _settle(self) -> Operation[Any]:
        self._link.check()
        return self._link.settle(rng.roll())


class Pending:
    """A return value of handlers: the outcome of the attempt will be reported from outside.

    The worker's slot becomes free. The job waits for `App.complete` or `App.fail`, which take the handler's
    ``ctx.attempt_uid``. If neither comes in time, the attempt has failed with the reason ``TIMEOUT``, and the policy
    decides.

    Args:
        timeout: the time to wait: a ``timedelta``, seconds, or text such as ``"1h"``.

    Raises:
        PolicyError: the timeout cannot be read, or is longer than 50 years.
    """

    __slots__ = ("timeout",)

    def __init__(self, timeout: Duration) -> None:
        self.timeout: timedelta = parse_wait(timeout)

    def __repr__(self) -> str:
        return f"Pending({self.timeout!r})"


def _refuse(_: Context, name: str, value: object) -> None:
    if name == "data":
        raise ConfigurationError("ctx.data cannot be assigned: ctx.set_data(value) replaces the data of the instance")
    raise FrozenInstanceError(f"cannot assign {name} = {value!r}: the context of an attempt cannot be changed")


# The method of a frozen dataclass with slots raises a TypeError about super() for the name of a property.
Context.__setattr__ = _refuse  # type: ignore[method-assign, assignment]


# The store has SQLite refuse the statements that end a transaction, and its error does not name them.
def _refuse_commit(error: BaseException | None) -> None:
    """Raise `ConfigurationError` if a block has failed because it tried to end its transaction by itself."""
    if type(error).__module__ == "sqlite3" and str(error) == "not authorized":
        raise ConfigurationError(
            "the end of the block of ctx.transaction() commits: leave out commit(), rollback(), `with connection` and "
            "BEGIN, COMMIT and ROLLBACK"
        ) from error
