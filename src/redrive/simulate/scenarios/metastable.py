"""A failure that outlives its cause: Bronson and others, "Metastable Failures in Distributed Systems" (2021). PURE."""

from __future__ import annotations

from functools import partial
from math import inf, log

from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import RatioBudget, ThrottleBudget, TokenBudget
from redrive.simulate.caller import LATE, Answered, call
from redrive.simulate.contender import DEFAULTS, NONE, REDRIVE, UNLIMITED, Contender
from redrive.simulate.loop import Load, Loop
from redrive.simulate.rng import SeededRandom
from redrive.simulate.scenarios.scenario import Quantity, Scenario

_TRIGGER, _TRIGGER_ENDS, _UNTIL = 10.0, 20.0, 200.0
_PATIENCE = 1.0
_UTILISATION = 0.95
_SLOWED = 2.0
# Seconds of work in the queue at which no caller waits for an end any more.
_HOPELESS = 60.0


# A server processes one queue and does not notice that a caller has gone. Its load is 95 % of its capacity. For ten
# seconds it works at half its speed; the queue grows until every answer comes too late. Calls that have timed out are
# sent again, and the server works on requests that no caller waits for. The question is whether it recovers.
class _Server:
    """One queue; an answer comes when all before it have been worked off."""

    def __init__(self, loop: Loop, work: float) -> None:
        self.load = Load()
        # When the last attempt was sent that got its answer too late.
        self.late_at = 0.0
        self.hopeless = False
        self._loop = loop
        self._work = work
        self._free_at = 0.0

    def attempt(self, done: Answered) -> None:
        now = self._loop.now
        self.load.arrive(now)
        work = self._work * (_SLOWED if _TRIGGER <= max(now, self._free_at) < _TRIGGER_ENDS else 1.0)
        self._free_at = max(now, self._free_at) + work
        self.hopeless = self.hopeless or self._free_at - now > _HOPELESS
        if self.hopeless:
            return
        if self._free_at - now > _PATIENCE:
            self.late_at = now
            self._loop.after(_PATIENCE, partial(done, LATE))
        else:
            self._loop.after(self._free_at - now, partial(done, None))


def _metastable(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    loop = Loop()
    server = _Server(loop, 1.0 / clients)
    rate = _UTILISATION * clients
    begun = 0

    def arrive(begin: partial[None]) -> None:
        nonlocal begun
        begun += 1
        begin()
        if not server.hopeless:
            loop.after(-log(1.0 - rng.random()) / rate, partial(arrive, begin))

    arrive(partial(call, loop, contender.open(), rng, server.attempt, lambda _: None))
    loop.run(_UNTIL)
    counts = server.load.counts(_TRIGGER_ENDS, min(_TRIGGER_ENDS + 60, loop.now // 1))
    recovered = inf if server.hopeless or server.late_at > _UNTIL - 2 * _PATIENCE else server.late_at - _TRIGGER_ENDS
    return (max(0.0, recovered), sum(counts) / len(counts) / clients, server.load.total / begun)


METASTABLE = Scenario(
    "metastable",
    "Recovery after the cause of an overload has ended",
    "A server for 100 calls a second gets 95 and works at half speed for 10 s; callers wait 1 s for an answer.",
    (Quantity("recovery", "s"), Quantity("load in the minute after", digits=2), Quantity("amplification", digits=2)),
    _metastable,
    100,
    (
        NONE,
        *DEFAULTS,
        UNLIMITED,
        REDRIVE.with_budget(RatioBudget()),
        REDRIVE.with_budget(RatioBudget(0.2, minimum=10)),  # Finagle's
        REDRIVE.with_budget(RatioBudget(0.02)),
        REDRIVE.with_budget(TokenBudget()),
        REDRIVE.with_budget(ThrottleBudget()),
        REDRIVE.with_breaker(BreakerSettings()),
    ),
)
