"""What ties an attempt to the worker that runs it: signs of life go one way, the wish that it stop goes the other.

One is made for each attempt whose handler asks for its `Context`. It is used from three threads: the event loop's, the
handler's, and the keeper's. Nothing here needs a lock, because each field has one writer at a time or is a single
value that may be written twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.clock import SystemClock
from redrive.engine.records import Claim
from redrive.errors import LeaseLost, PayloadError, StoreError
from redrive.stores.operations import attempts
from redrive.stores.operations.attempts import ProgressReport

if TYPE_CHECKING:
    from redrive.stores.store import Store

__all__ = ["EVERY", "AttemptHandle", "Stop"]

EVERY = 1.0
"""Seconds between two writes of one attempt's details, at least; what is said more often is put together."""

_monotonic = SystemClock.monotonic


class Stop(StrEnum):
    """Why a handler should stop."""

    LOST = "lost"
    """The attempt is not its own any more: the job was cancelled, or given to another worker, or its time is over."""
    TIMEOUT = "timeout"
    """Its soft timeout has passed."""
    SHUTDOWN = "shutdown"
    """Its worker is shutting down."""


class AttemptHandle:
    """What ties one attempt to its worker.

    Args:
        claim: the attempt.
        store: where its job is.
        now: the injected instant, in tests.
        write: makes JSON of a result.
        soft_for: seconds after which the handler should stop, from now on.
    """

    __slots__ = (
        "_pending",
        "_said_at",
        "_soft_until",
        "_stop",
        "claim",
        "ended",
        "lent",
        "now",
        "result",
        "store",
        "write",
    )

    def __init__(
        self,
        claim: Claim,
        store: Store,
        now: Callable[[], datetime | None],
        write: Callable[[Any], bytes | None],
        soft_for: float | None,
    ) -> None:
        self.claim = claim
        self.store = store
        self.now = now
        self.write = write
        self.lent = False
        """Is the handler in its transaction? It may be ending the attempt, so that its lease is rightly gone."""
        self.ended = False
        """Has the handler's transaction ended the attempt?"""
        self.result: bytes | None = None
        """What it was given as the result."""
        self._soft_until = None if soft_for is None else _monotonic() + soft_for
        self._stop: Stop | None = None
        self._said_at: float | None = None
        self._pending: deque[ProgressReport] = deque(maxlen=1)

    @property
    def uid(self) -> str:
        """What names the attempt."""
        return f"{self.claim.id}.{self.claim.lease_id}"

    # ------------------------------------------------------------------------------------------------ from outside

    @property
    def reason(self) -> Stop | None:
        """Why the handler should stop, if it should."""
        if self._stop is None and self._soft_until is not None and _monotonic() >= self._soft_until:
            self._stop = Stop.TIMEOUT
        return self._stop

    def stop(self, why: Stop) -> None:
        """Tell the handler that it should stop. A lost attempt is the last word.

        Args:
            why: the reason.
        """
        if self._stop is not Stop.LOST:
            self._stop = why

    def check(self) -> None:
        """Check that the attempt is not known to be over.

        Raises:
            LeaseLost: it is.
        """
        if self.ended:
            message = f"attempt {self.uid} was completed by its own transaction"
            raise LeaseLost(message)
        if self._stop is Stop.LOST:
            raise self.lost()

    def lost(self) -> LeaseLost:
        """Note that the store says so, and make the error."""
        self._stop = Stop.LOST
        return LeaseLost(f"attempt {self.uid} is over: what it does from now on changes nothing")

    # ------------------------------------------------------------------------------------------------- signs of life

    def say(self, details: object, *, force: bool) -> ProgressReport | None:
        """Take what the handler says of itself.

        Args:
            details: anything that JSON can carry; None for nothing new.
            force: write it at once.

        Returns:
            What is to be written now; None where that is left to the worker, because the last write was just now.

        Raises:
            LeaseLost: the attempt is known to be over.
            PayloadError: the details cannot be written as JSON.
        """
        self.check()
        report = ProgressReport(self.claim.id, self.claim.lease_id, _json(details))
        if not force and self._said_at is not None and _monotonic() < self._said_at + EVERY:
            if details is not None:
                self._pending.append(report)
            return None
        self._said_at = _monotonic()
        self._pending.clear()
        return report

    def unsaid(self) -> ProgressReport | None:
        """Take what is still to be written, if it is time to."""
        if not self._pending or (self._said_at is not None and _monotonic() < self._said_at + EVERY):
            return None
        self._said_at = _monotonic()
        return self._pending.pop()

    def heartbeat(self, details: object, *, force: bool) -> None:
        """Write what the handler says of itself; see `Context.heartbeat`."""
        report = self.say(details, force=force)
        if report is not None:
            try:
                current = self.store.run(attempts.report([report], now=self.now()))
            except StoreError:
                self._put_off(report, force=force)
            else:
                self._check_written(current)

    async def aheartbeat(self, details: object, *, force: bool) -> None:
        """Write what the handler says of itself; see `Context.aheartbeat`."""
        report = self.say(details, force=force)
        if report is not None:
            try:
                current = await self.store.arun(attempts.report([report], now=self.now()))
            except StoreError:
                self._put_off(report, force=force)
            else:
                self._check_written(current)

    def _check_written(self, current: frozenset[int]) -> None:
        if self.claim.lease_id not in current:
            raise self.lost()

    def _put_off(self, report: ProgressReport, *, force: bool) -> None:
        """Leave a report to the worker: that the database is away for a moment must not end a healthy attempt."""
        if force:
            raise  # noqa: PLE0704 - called where a StoreError is handled
        if report.details is not None and not self._pending:
            self._pending.append(report)


def _json(details: object) -> str | None:
    if details is None:
        return None
    try:
        return msgspec.json.encode(details).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, NotImplementedError) as error:
        message = f"the details of a heartbeat cannot be written as JSON: {error}"
        raise PayloadError(message) from error
