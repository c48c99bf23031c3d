"""The connection between a running attempt and its worker: progress reports one way, requests to stop the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from redrive.app.attempts.effects import Effects
from redrive.clock import SystemClock
from redrive.engine.outcome import Settlement, Succeeded
from redrive.engine.records import Claim
from redrive.errors import LeaseLost, PayloadError, StoreError
from redrive.stores.operations import attempts, leases
from redrive.stores.operations.attempts import ProgressReport
from redrive.stores.operations.leases import Ending
from redrive.stores.query import Operation

if TYPE_CHECKING:
    from redrive.stores.store import Store

EVERY = 1.0
"""The shortest time in seconds between two writes of the progress of an attempt; reports in between are merged."""

_monotonic = SystemClock.monotonic


class Stop(StrEnum):
    """The reason why a handler should stop."""

    LOST = "lost"
    """The attempt has lost its lease: the job was cancelled, given to another worker, or the time limit is over."""
    TIMEOUT = "timeout"
    """Its soft timeout has passed."""
    SHUTDOWN = "shutdown"
    """Its worker is shutting down."""


class AttemptHandle:
    """The connection between one attempt and its worker.

    Attributes:
        lent: True while the handler is in its transaction, which may end the attempt and so remove its lease.
        ended: True if the handler's transaction has ended the attempt.
        result: the result that the transaction stores.
        settlement: how the transaction has settled the attempt; None in the delivery of a feeder.
        effects: what commits with the end of the attempt.
        forward: passes each request to stop on to the child process of the handler, if it runs in one.
    """

    # Three threads use an object: the event loop, the handler, and the heartbeat. It needs no lock, because each field
    # has one writer at a time, or is a single value that may be written twice.

    def __init__(  # noqa: PLR0917 - what connects an attempt
        self,
        claim: Claim,
        store: Store,
        now: Callable[[], datetime | None],
        write: Callable[[Any], bytes | None],
        soft_for: float | None,
        effects: Effects | None = None,
        era: int | None = None,
    ) -> None:
        """Start with the seconds ``soft_for`` from now until the handler should stop; ``era`` is that of the claim."""
        self.claim = claim
        #: The job and the lease that every write of the handler names.
        self.job_id: int = claim.id
        self.lease_id: int = claim.lease_id
        self.store = store
        self.now = now
        self.write = write
        self.effects: Effects = effects or Effects()
        self.lent = False
        self.ended: bool = False
        self.result: bytes | None = None
        self.settlement: Settlement | None = None
        self.forward: Callable[[Stop], None] | None = None
        self._era = era
        self._began = _monotonic()
        self._soft_until = None if soft_for is None else self._began + soft_for
        self._stop: Stop | None = None
        self._reported_at: float | None = None
        self._pending: deque[ProgressReport] = deque(maxlen=1)

    @property
    def uid(self) -> str:
        """The unique id of the attempt."""
        return f"{self.job_id}.{self.lease_id}"

    @property
    def reason(self) -> Stop | None:
        """The reason why the handler should stop, if it should."""
        if self._stop is None and self._soft_until is not None and _monotonic() >= self._soft_until:
            self._stop = Stop.TIMEOUT
        return self._stop

    def stop(self, why: Stop) -> None:
        """Ask the handler to stop."""
        # No other reason replaces a lost lease.
        if self._stop is not Stop.LOST:
            self._stop = why
        if self.forward is not None:
            self.forward(why)

    def close(self, written: Settlement | bool) -> None:  # noqa: FBT001 - the answer of `settle`
        """Record that the handler's transaction has ended the attempt; ``written`` is the answer to `settle`."""
        self.ended = True
        self.settlement = None if isinstance(written, bool) else written
        self.effects.close(written=True)

    def is_current(self) -> Operation[bool]:
        """Return the operation that asks whether the lease is current."""
        return replace(attempts.is_current(self.job_id, self.lease_id), era=self._era)

    def settle(self, sample: float) -> Operation[Any]:
        """Return the operation that ends the attempt in the handler's transaction; its answer is true if it could."""
        ending = Ending(self.claim, Succeeded(self.result, self.effects.added), sample)
        # The claim has the time of the database.
        about = self.claim.claimed_at + timedelta(seconds=_monotonic() - self._began)
        return replace(leases.settle_one(ending, about=about, now=self.now()), era=self._era)

    def check(self) -> None:
        """Raise `LeaseLost` if the attempt is known to be over."""
        if self.ended:
            raise LeaseLost(f"attempt {self.uid} was completed by its own transaction")
        if self._stop is Stop.LOST:
            raise self.lost()

    def lost(self) -> LeaseLost:
        """Record that the lease is lost, and return the error."""
        self._stop = Stop.LOST
        return LeaseLost(f"attempt {self.uid} is over: what it does from now on changes nothing")

    def take_report(self, details: object, *, force: bool) -> ProgressReport | None:
        """Take a report; return it if it must be written now, None if the worker writes it later."""
        self.check()
        report = ProgressReport(self.job_id, self.lease_id, progress_json(details))
        if not force and self._reported_at is not None and _monotonic() < self._reported_at + EVERY:
            if details is not None:
                self._pending.append(report)
            return None
        self._reported_at = _monotonic()
        self._pending.clear()
        return report

    def keep_report(self, report: ProgressReport) -> None:
        """Keep a report from the child process of the handler, which the worker writes."""
        self._pending.append(report)

    def due_report(self) -> ProgressReport | None:
        """Return the report that is still to be written, if one is due."""
        if not self._pending or (self._reported_at is not None and _monotonic() < self._reported_at + EVERY):
            return None
        self._reported_at = _monotonic()
        return self._take_pending()

    def last_report(self) -> ProgressReport | None:
        """Return the report that is still to be written when the handler has ended, if its lease still allows that."""
        return None if self.ended or self._stop is Stop.LOST else self._take_pending()

    def _take_pending(self) -> ProgressReport | None:
        try:
            return self._pending.pop()
        except IndexError:  # taken by another thread
            return None

    def heartbeat(self, details: object, *, force: bool) -> None:
        """Report progress; see `Context.heartbeat`."""
        report = self.take_report(details, force=force)
        if report is not None:
            try:
                current = self.store.run(attempts.report([report], now=self.now()))
            except StoreError:
                self._postpone(report, force=force)
            else:
                self._check_written(current)

    async def aheartbeat(self, details: object, *, force: bool) -> None:
        """Report progress; see `Context.aheartbeat`."""
        report = self.take_report(details, force=force)
        if report is not None:
            try:
                current = await self.store.arun(attempts.report([report], now=self.now()))
            except StoreError:
                self._postpone(report, force=force)
            else:
                self._check_written(current)

    def _check_written(self, current: frozenset[int]) -> None:
        if self.lease_id not in current:
            raise self.lost()

    def _postpone(self, report: ProgressReport, *, force: bool) -> None:
        # The worker writes the report later: a database that is briefly unreachable must not end a healthy attempt.
        if force:
            raise  # noqa: PLE0704 - called where a StoreError is handled
        if report.details is not None and not self._pending:
            self._pending.append(report)


def progress_json(details: object) -> str | None:
    """Return the details of a report of progress as JSON; raise `PayloadError` if they cannot be written."""
    if details is None:
        return None
    try:
        return msgspec.json.encode(details).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, NotImplementedError) as error:
        raise PayloadError(f"the details of a progress report cannot be written as JSON: {error}") from error
