"""The runs that cases of Couchbase's services ask for: a server that follows a script, and an orchestrator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from redrive.orchestrator import Orchestrator, Request
from redrive.testing import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.contrib.couchbase import Verdict
    from redrive.orchestrator import Attempt

__all__ = ["Answered", "Run", "run"]


class Answered(Exception):
    """An error of the scripted server; the orchestrator reads the verdict from it."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict
        self.retry_reason = verdict.classified()


@dataclass
class Run:
    """The end of a request.

    Attributes:
        request: the request.
        dispatches: how often it was sent.
        error: its final error; None for a result.
    """

    request: Request
    dispatches: int = 0
    error: Exception | None = None
    delays: list[float] = field(default_factory=list)


def run(
    verdicts: Iterable[Verdict], *, forever: bool = False, strategy: Any = None, timeout: str = "75s", **flags: bool
) -> Run:
    """Send a request with a scripted verdict for each of its answers.

    Args:
        verdicts: the verdict on each answer; after the last one the server answers with success.
        forever: repeat the last verdict instead.
        strategy: of the request; by default best effort.
        timeout: of the request.
        **flags: of the request: ``idempotent``, ``read_only``.
    """
    script = list(verdicts)
    answers = chain(script, repeat(script[-1] if forever else None))
    done = Run(Request(timeout=timeout, retry_strategy=strategy, clock=VirtualClock(), **flags))

    async def _send(_: Request, attempt: Attempt) -> None:
        attempt.dispatch("node1")
        done.dispatches += 1
        verdict = next(answers)
        if verdict is not None and verdict.error is not None:
            raise Answered(verdict)

    try:
        asyncio.run(Orchestrator().run(done.request, _send, marks=True))
    except Exception as error:  # noqa: BLE001 - what it ended with is what the case is about
        done.error = error
    waits = [attempt.delay for attempt in done.request.history]
    done.delays = [wait.total_seconds() * 1000 for wait in waits if wait is not None]
    return done
