"""Rare slow answers, as in "The Tail at Scale" (Dean and Barroso, 2013). PURE."""

from __future__ import annotations

from dataclasses import replace
from math import log

from redrive.policy.budget import RatioBudget
from redrive.policy.hedge import Hedge
from redrive.simulate.client import SimulatedClient
from redrive.simulate.contender import DEFAULTS, REDRIVE, Contender
from redrive.simulate.loop import Loop, quantile
from redrive.simulate.rng import SeededRandom
from redrive.simulate.scenarios.scenario import Quantity, Scenario

_EVERY = 0.01
# For each of the thousand clients: what p99.9 needs.
_CALLS = 20
_LEAST, _SPREAD = 0.005, 0.002
_SLOW, _SLOWEST = 0.01, 2.0


def _answer(rng: SeededRandom) -> float:
    usual = _LEAST - _SPREAD * log(1.0 - rng.random())
    return usual + rng.random() * _SLOWEST if rng.random() < _SLOW else usual


# Most answers come within 20 ms; one in a hundred takes up to two seconds. Nothing fails, so that retries alone change
# nothing: only a second copy of a slow call does (`redrive.retrying.hedging`).
class _Race:
    """One call and its copies: when the first answer comes."""

    def __init__(
        self, loop: Loop, rng: SeededRandom, client: SimulatedClient, gaps: list[float], took: list[float]
    ) -> None:
        self.sent = 0
        self._loop = loop
        self._rng = rng
        self._client = client
        self._gaps = gaps
        self._took = took
        self._began = 0.0
        self._first = float("inf")

    def begin(self) -> None:
        """Send the call itself."""
        self._began = self._loop.now
        self._made = self._client.begin(self._began)
        self._send()

    def _send(self) -> None:
        self.sent += 1
        now = self._loop.now
        answer = _answer(self._rng)
        self._first = min(self._first, now + answer)
        self._loop.after(answer, self._answered)
        if self.sent <= len(self._gaps) and self._first > now + self._gaps[self.sent - 1]:
            self._loop.after(self._gaps[self.sent - 1], self._hedge)

    def _hedge(self) -> None:
        if self._first > self._loop.now and self._client.afford(self._loop.now):
            self._send()

    def _answered(self) -> None:
        if self._loop.now >= self._first and self._made is not None:
            self._made.succeeded(self._loop.now)
            self._made = None
            self._took.append(self._loop.now - self._began)


def _tail(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    loop, client = Loop(), contender.open()
    took: list[float] = []
    gaps = [] if contender.hedge is None else [gap.total_seconds() for gap in contender.hedge.after]
    races = [_Race(loop, rng, client, gaps, took) for _ in range(clients * _CALLS)]
    for number, race in enumerate(races):
        loop.after(number * _EVERY, race.begin)
    loop.run()
    extra = 100 * (sum(race.sent for race in races) / len(races) - 1)
    return 1000 * quantile(took, 0.5), 1000 * quantile(took, 0.99), 1000 * quantile(took, 0.999), extra


_HEDGED = replace(REDRIVE, name='redrive, Hedge("20ms")', hedge=Hedge("20ms"))

TAIL = Scenario(
    "tail",
    "The latency of the slowest calls, and the cost of hedging",
    "20 000 calls; one in a hundred reaches a slow server; an answer takes 7 ms on average, a slow one 1 s more.",
    (Quantity("p50", "ms", 1), Quantity("p99", "ms", 1), Quantity("p99.9", "ms", 1), Quantity("extra calls", "%", 2)),
    _tail,
    1000,
    (*DEFAULTS, _HEDGED, _HEDGED.with_budget(RatioBudget(0.05))),
)
