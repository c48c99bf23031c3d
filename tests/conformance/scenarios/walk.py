"""A random walk through the life of jobs: workers that claim, work, fall silent and come back, operators, the sweep.

Hypothesis chooses the moves; a `Walk` makes each of them with the operations of worker processes and operators, and
records the data that the invariants need: which lease was given for which job, which jobs each change names, and which
attempts operators have granted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from redrive.app.app import App
from redrive.app.tasks.catch import CatchRequest
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Outcome, Released, Snoozed, Succeeded
from redrive.engine.records import Filter
from redrive.errors import IllegalMove
from redrive.policy import parse_duration
from redrive.testing import VirtualClock
from tests.conformance.scenarios.manual_workers import ManualWorker, boom, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.engine.records import Claim, JobRecord

__all__ = ["MOVES", "OUTCOMES", "Walk", "walking"]

EVERYBODY = Filter(oldest_first=True, limit=1_000_000)

OUTCOMES: tuple[Outcome, ...] = (
    boom(),
    Succeeded(b"1"),
    Snoozed(parse_duration("3s")),
    Released("shutdown"),
    Cancelled("no longer wanted"),
)
"""The outcomes of attempts; most attempts on a walk fail."""

_OUTCOMES = OUTCOMES + OUTCOMES[:1] * 5


@dataclass
class Walk:
    """The state and the record of a walk.

    Attributes:
        app: with three tasks and a new store.
        manual_workers: the workers of today.
        held: every claim that was ever given; most are stale sooner or later.
        granted: failures that operators forgave, by job.
        named: the jobs that the last move reports as changed.
    """

    app: App
    clock: VirtualClock
    manual_workers: list[ManualWorker] = field(default_factory=list)
    held: list[Claim] = field(default_factory=list)
    granted: Counter[int] = field(default_factory=Counter)
    named: set[int] = field(default_factory=set)

    @property
    def jobs(self) -> dict[int, JobRecord]:
        """Return all rows by id."""
        return {job.id: job for job in self.app.jobs.select(EVERYBODY)}

    @property
    def live(self) -> dict[int, int]:
        """Return the current leases, each with its job."""
        return {job.lease_id: job.id for job in self.jobs.values() if job.lease_id is not None}

    def move(self, name: str, number: int) -> None:
        """Make one move; the number chooses which worker, job or claim it is about."""
        self.named = getattr(self, f"_{name}")(number)

    def _enqueue(self, number: int) -> set[int]:
        task = self.app.tasks[("once", "thrice", "caught")[number % 3]]
        return {task.enqueue().id}

    def _advance(self, number: int) -> set[int]:
        self.clock.advance(number % 7)
        return set()

    def _claim(self, number: int) -> set[int]:
        claims = self.manual_workers[number % 2].claim(1 + number % 3)
        self.held += claims
        return {claim.id for claim in claims}

    def _settle(self, number: int) -> set[int]:
        if not self.held:
            return set()
        back, index = divmod(number, len(_OUTCOMES))
        claim = self.held[-1 - back % len(self.held)]
        settled = self.manual_workers[0].settle((claim, _OUTCOMES[index]))
        return {each.job_id for each in settled.moved} | {each.caught for each in settled.moved if each.caught}

    def _beat(self, number: int) -> set[int]:
        self.manual_workers[number % 2].beat()
        return set()

    def _sweep(self, number: int) -> set[int]:
        return {each.job_id for each in sweep(self.app, 1 + number % 3)}

    def _leave(self, number: int) -> set[int]:
        released = self.manual_workers[number % 2].leave()
        self.manual_workers[number % 2] = ManualWorker(self.app, "C", lease_for="5s")
        return set(released)

    def _cancel(self, number: int) -> set[int]:
        chosen = self._chosen(number)
        return {chosen.id} if chosen and self.app.job(chosen.id).cancel() else set()

    def _retry(self, number: int) -> set[int]:
        chosen = self._chosen(number)
        if chosen is None:
            return set()
        try:
            self.app.job(chosen.id).retry()
        except IllegalMove:
            return set()
        # What was cancelled has used nothing up, so that nothing has to be granted.
        self.granted[chosen.id] += chosen.state is State.DEAD
        return {chosen.id}

    def _redrive(self, number: int) -> set[int]:
        before = self.jobs
        started = self.app.jobs.redrive(Filter(task=("once", "thrice", "caught")[number % 3])).ids
        for each in started:
            self.granted[each] += before[each].failures
        return set(started)

    def _chosen(self, number: int) -> JobRecord | None:
        jobs = list(self.jobs.values())
        return jobs[number % len(jobs)] if jobs else None


@contextlib.contextmanager
def walking(url: str) -> Iterator[Walk]:
    """Open a new store with three tasks and two workers, and close it when the walk is over."""
    clock = VirtualClock()
    app = App(url, clock=clock)

    @app.task
    def once() -> None: ...

    @app.task(retry="2 1s", idempotent=False)
    def thrice() -> None: ...

    @app.task(retry="1 1s catch recover")
    def caught() -> None: ...

    @app.task
    def recover(request: CatchRequest) -> None: ...

    try:
        yield Walk(app, clock, [ManualWorker(app, name, lease_for="5s") for name in "AB"])
    finally:
        app.close()


_OFTEN = ("claim", "claim", "settle", "settle", "settle", "advance", "advance", "enqueue")
_SELDOM = ("sweep", "beat", "leave", "cancel", "retry", "redrive")

MOVES = st.lists(st.tuples(st.sampled_from(_OFTEN * 2 + _SELDOM), st.integers(0, 59)), min_size=40, max_size=120)
"""Lists of moves, each with its number."""
