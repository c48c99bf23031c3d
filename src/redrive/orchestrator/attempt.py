"""One attempt of a request: how far it got, and what is known of its outcome.

RFC 0049 decides by the *stage* in which an attempt failed, and so the stage should be proved and not guessed. The code
that sends says three things when they happen: `Attempt.dispatch` right before the first byte leaves, `Attempt.answer`
when a response has come, `Attempt.deliver` when a part of the result has reached the caller. What follows:

================================================  =====================  ==============================
said                                              stage                  did it take effect?
================================================  =====================  ==============================
nothing, or `undispatch`                          client dispatch        no
nothing, and a reason of `IN_FLIGHT`              network time           nobody knows
``dispatch``                                      network time           nobody knows
``dispatch``, ``answer(definite=False)``          response received      nobody knows
``dispatch``, ``answer()``                        response received      the response says it
================================================  =====================  ==============================

An answer that is not definite is one that proves nothing, as a proxy's "unavailable". Where the sending code says
nothing about the answer, the reason of the failure does: RFC 0049 marks the reasons that allow a retry of what is not
idempotent, and they are those of failures that have changed nothing. Two reasons say the opposite by their name, that
the request had left (`IN_FLIGHT`); they count as that even if the sending code never called `Attempt.dispatch`.

An attempt that is answered after its request has ended is not changed any more. If the request had timed out or was
cancelled, the answer is an orphan: it is reported once as `redrive.orchestrator.ResponseOrphaned`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from redrive.orchestrator.record import AttemptRecord
from redrive.policy import Reason, Stage
from redrive.retrying.circuit_breaker import Permit

__all__ = ["IN_FLIGHT", "Attempt"]

IN_FLIGHT = frozenset({"SOCKET_CLOSED_WHILE_IN_FLIGHT", "HTTP_SEND_REQUEST_FAILED"})
"""The reasons, by name, of failures after which the request may have left and no answer came."""


class _Owner(Protocol):
    """What an attempt needs of its request."""

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline; None without one."""
        ...

    @property
    def admit(self) -> Callable[[str | None], Permit | None]:
        """Asks the circuit breaker of an endpoint."""
        ...


class Attempt:
    """One attempt while it is being made; the function that sends gets it.

    Attributes:
        number: counted from 1.
        reason: why it failed; None until then.
        error: what it raised; None until then.
        delay: what is waited after it; None if nothing is.
        hint: when the server wants to be asked again, counted from the failure; no wait is shorter.
        dispatched: whether it has left.
        answered: whether a response has come; None if nobody said.
        definite: whether it is known if it took effect.
        delivered: whether a part of its result has reached the caller.
        endpoint: where it was sent.
        local_address: the client's end of the connection that it was sent on; None if that is not known.
        channel_id: the id of that connection; None if that is not known.
    """

    def __init__(self, number: int, owner: _Owner) -> None:
        self.number = number
        self.reason: Reason | None = None
        self.error: BaseException | None = None
        self.delay: timedelta | None = None
        self.hint: timedelta | None = None
        self.dispatched = False
        self.answered: bool | None = None
        self.definite = False
        self.delivered = False
        self.endpoint: str | None = None
        self.local_address: str | None = None
        self.channel_id: str | None = None
        self._owner: _Owner | None = owner
        self._orphaned: Callable[[AttemptRecord], None] | None = None
        self._permit: Permit | None = None

    @property
    def remaining(self) -> float | None:
        """Seconds that the attempt may take, not below 0; None without a limit.

        It shrinks from attempt to attempt. Hand it down, so that the server stops working when nobody waits any more.
        """
        left = None if self._owner is None else self._owner.remaining
        return None if left is None else max(0.0, left)

    @property
    def is_ambiguous(self) -> bool:
        """Whether nobody knows if it took effect."""
        return self.dispatched and not self.definite

    @property
    def record(self) -> AttemptRecord:
        """What is known of it now, as a value."""
        return AttemptRecord(
            self.number,
            self.reason,
            self.delay,
            self.dispatched,
            self.definite,
            self.endpoint,
            self.local_address,
            self.channel_id,
        )

    def dispatch(
        self, endpoint: str | None = None, *, local_address: str | None = None, channel_id: str | None = None
    ) -> None:
        """Say that it leaves; call this right before the first byte is written.

        Args:
            endpoint: where it goes; its circuit breaker is asked.
            local_address: the client's end of the connection, for events and records.
            channel_id: the id of the connection, for events and records.

        Raises:
            CircuitOpen: it may not go there now. Let it pass: the orchestrator knows what to do.
        """
        if self._permit is None and self._owner is not None:
            self._permit = self._owner.admit(endpoint)
        self.endpoint = endpoint
        self.local_address, self.channel_id = local_address, channel_id
        self.dispatched = True

    def undispatch(self) -> None:
        """Say that it did not leave after all: nothing was written."""
        self.dispatched = False
        if self._permit is not None:
            self._permit.dropped()
            self._permit = None

    def answer(self, *, definite: bool = True) -> None:
        """Say that a response has come. After the end of the request, report it as an orphan instead.

        Args:
            definite: whether it tells if the request took effect; a gateway's "unavailable" does not.
        """
        if self._owner is None:
            orphaned, self._orphaned = self._orphaned, None
            if orphaned is not None:
                orphaned(self.record)
            return
        self.dispatched = self.answered = True
        self.definite = definite

    def deliver(self) -> None:
        """Say that a part of the result has reached the caller: from now on it must not be sent again."""
        self.delivered = True

    def stand(self, stage: Stage) -> None:
        """Say how far it got, in one word, if `answer` has not been called.

        Args:
            stage: as a `redrive.policy.Failure` tells it.
        """
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
        """Note why it failed. Where nothing was said about an answer, the reason tells whether there was one.

        Args:
            reason: why.
            error: what it raised, if anything.
        """
        self.reason, self.error = reason, error
        if self.answered is None and reason.name in IN_FLIGHT:
            self.dispatched, self.answered = True, False
        elif self.dispatched and self.answered is None and reason.allows_non_idempotent_retry:
            self.answer()
        self.finish(error)

    def finish(self, error: BaseException | None) -> None:
        """Report to the circuit breaker how it ended; only the first report counts.

        Args:
            error: what it raised, or None if there was an answer.
        """
        if self._permit is not None:
            self._permit.settle(error, answered=self.answered is True or error is None)

    def release(self, orphaned: Callable[[AttemptRecord], None] | None = None) -> None:
        """Let go of the request, which has ended: the two should not keep each other in memory.

        Args:
            orphaned: reports an answer that comes from now on; None if such an answer is not reported.
        """
        self._owner, self._orphaned = None, orphaned
