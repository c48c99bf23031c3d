"""One attempt of a request: its stage, and whether its effect is known.

RFC 0049 decides by the *stage* in which an attempt failed, so the stage must be proved. The sending code calls three
methods: `Attempt.dispatch` right before the first byte is written, `Attempt.answer` when a response has come,
`Attempt.deliver` when a part of the result has reached the caller. The results:

================================================  =====================  ==============================
calls                                             stage                  did it take effect?
================================================  =====================  ==============================
none, or `undispatch`                             client dispatch        no
none, and a reason of `IN_FLIGHT`                 network time           unknown
``dispatch``                                      network time           unknown
``dispatch``, ``answer(definite=False)``          response received      unknown
``dispatch``, ``answer()``                        response received      known from the response
================================================  =====================  ==============================
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from redrive.orchestrator.events import RequestAttemptRecord
from redrive.policy import Reason, Stage
from redrive.retrying.circuit_breaker import Permit

#: The reasons, by name, of failures after which the request may have left and no answer came.
IN_FLIGHT = frozenset({"SOCKET_CLOSED_WHILE_IN_FLIGHT", "HTTP_SEND_REQUEST_FAILED"})


class _Owner(Protocol):
    """The part of a request that an attempt uses."""

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline; None without one."""
        ...

    @property
    def elapsed(self) -> timedelta:
        """The time since its start."""
        ...

    @property
    def admit(self) -> Callable[[str | None], Permit | None]:
        """Ask the circuit breaker of an endpoint."""
        ...


class Attempt:
    """One attempt in progress; the sending function gets it."""

    def __init__(self, number: int, owner: _Owner) -> None:
        #: The number of the attempt, from 1.
        self.number = number
        #: Reason of the failure; None until then.
        self.reason: Reason | None = None
        #: Exception of the failure; None until then.
        self.error: BaseException | None = None
        #: The wait after the attempt; None if there is none.
        self.delay: timedelta | None = None
        #: The time from the failure until the server accepts the next request; a lower bound of the wait.
        self.hint: timedelta | None = None
        #: True if it was sent.
        self.dispatched: bool = False
        #: True if a response has come; None if unknown.
        self.answered: bool | None = None
        #: True if it is known whether it took effect.
        self.definite: bool = False
        #: True if a part of its result has reached the caller.
        self.delivered: bool = False
        #: The endpoint that the attempt was sent to.
        self.endpoint: str | None = None
        #: The client's end of its connection; None if unknown.
        self.local_address: str | None = None
        #: The id of its connection; None if unknown.
        self.channel_id: str | None = None
        #: The time from the start of the request until the attempt was sent; None if it was not.
        self.dispatched_after: timedelta | None = None
        #: The time from the start of the request until it was answered or had failed; None before.
        self.ended_after: timedelta | None = None
        self._owner: _Owner | None = owner
        self._orphaned: Callable[[RequestAttemptRecord], None] | None = None
        self._permit: Permit | None = None

    @property
    def remaining(self) -> float | None:
        """Seconds that the attempt may take, not below 0; None without a limit. Pass it to the server as its limit."""
        left = None if self._owner is None else self._owner.remaining
        return None if left is None else max(0.0, left)

    @property
    def is_ambiguous(self) -> bool:
        """True if it is unknown whether it took effect."""
        return self.dispatched and not self.definite

    @property
    def record(self) -> RequestAttemptRecord:
        """The present state as a value."""
        return RequestAttemptRecord(
            self.number,
            self.reason,
            self.delay,
            self.dispatched,
            self.definite,
            self.endpoint,
            self.local_address,
            self.channel_id,
            self.dispatched_after if self.dispatched else None,
            self.ended_after,
        )

    def dispatch(
        self, endpoint: str | None = None, *, local_address: str | None = None, channel_id: str | None = None
    ) -> None:
        """Record that it is sent; call this right before the first byte is written.

        Args:
            endpoint: where it goes; its circuit breaker is asked.
            local_address: the client's end of the connection, for events and records.
            channel_id: the id of the connection, for events and records.

        Raises:
            CircuitOpen: the breaker of the endpoint refuses. Do not catch it; the orchestrator handles it.
        """
        if self._permit is None and self._owner is not None:
            self._permit = self._owner.admit(endpoint)
        self.endpoint = endpoint
        self.local_address, self.channel_id = local_address, channel_id
        self.dispatched = True
        self._time()

    def undispatch(self) -> None:
        """Record that nothing was written after all."""
        self.dispatched = False
        if self._permit is not None:
            self._permit.dropped()
            self._permit = None

    def answer(self, *, definite: bool = True) -> None:
        """Record a response. After the end of the request, report it as an orphan instead.

        Args:
            definite: True if it shows whether the request took effect; "unavailable" from a gateway does not.
        """
        # After the end of its request an attempt does not change any more; its answer is reported once.
        if self._owner is None:
            orphaned, self._orphaned = self._orphaned, None
            if orphaned is not None:
                orphaned(self.record)
            return
        self.dispatched = self.answered = True
        self.definite = definite
        self._time(ended=True)

    def deliver(self) -> None:
        """Record that a part of the result has reached the caller, so that the request is not sent again."""
        self.delivered = True

    def stand(self, stage: Stage) -> None:
        """Record the stage of a `redrive.policy.Failure`, unless `answer` was called."""
        if self.answered is not None:
            return
        if stage is Stage.NOT_SENT:
            self.undispatch()
        elif stage is Stage.ANSWERED:
            self.answer()
        else:
            self.dispatched = True
            self.answered = False

    def fail(self, reason: Reason, error: BaseException | None = None) -> None:
        """Record the failure. If `answer` was not called, the reason decides whether there was a response."""
        self.reason, self.error = reason, error
        # The reasons of `IN_FLIGHT` mean by definition that the request had been sent. The reasons that allow a retry
        # of non-idempotent requests are those of failures without an effect, so they are definite answers.
        if self.answered is None and reason.name in IN_FLIGHT:
            self.dispatched = True
            self.answered = False
        elif self.dispatched and self.answered is None and reason.allows_non_idempotent_retry:
            self.answer()
        self.finish(error)

    def finish(self, error: BaseException | None) -> None:
        """Record the end, and report it to the circuit breaker, once; ``error`` is None if there was an answer."""
        self._time(ended=True)
        if self._permit is not None:
            self._permit.settle(error, answered=self.answered is True or error is None)

    def _time(self, *, ended: bool = False) -> None:
        """Record when the attempt was sent or has ended, the first time."""
        if self._owner is None:
            return
        if not ended:
            self.dispatched_after = self._owner.elapsed
        elif self.ended_after is None:
            self.ended_after = self._owner.elapsed

    def release(self, orphaned: Callable[[RequestAttemptRecord], None] | None = None) -> None:
        """Drop the reference to the request, which has ended; ``orphaned`` reports a later answer."""
        self._owner, self._orphaned = None, orphaned
