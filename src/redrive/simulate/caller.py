"""One call in virtual time: attempts and waits, until it succeeds or is given up. PURE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from redrive.errors import CircuitOpen
from redrive.policy import Failure, Stage
from redrive.simulate.client import SimulatedClient
from redrive.simulate.loop import Loop
from redrive.simulate.rng import SeededRandom

# An attempt that a target in trouble has refused.
DOWN = Failure.of(ConnectionError("the target is down"))
# A call that was not sent.
REFUSED = Failure.of(CircuitOpen("the breaker is open"), stage=Stage.NOT_SENT)
# An attempt with an answer after the caller has stopped waiting.
LATE = Failure.of(TimeoutError("no answer in time"))

Answered: TypeAlias = Callable[[Failure | None], None]
"""Receives the failure of an attempt, or None if it succeeded."""
Send: TypeAlias = Callable[[Answered], None]
"""Makes one attempt."""


def call(loop: Loop, client: SimulatedClient, rng: SeededRandom, send: Send, done: Answered) -> None:
    """Start a call of a client; ``done`` receives its result like that of an attempt, for a layer above."""
    made = client.begin(loop.now)
    if made is None:
        done(REFUSED)
        return

    def ended(failure: Failure | None) -> None:
        if failure is None:
            made.succeeded(loop.now)
            done(None)
            return
        delay = made.failed(failure, loop.now, rng.random())
        if delay is None:
            done(failure)
        elif delay:
            loop.after(delay, again)
        else:
            send(ended)

    def again() -> None:
        send(ended)

    send(ended)
