"""How far a call goes beyond its deadline, whether calls disturb one another, and rare slow answers. PURE.

The last one is from "The Tail at Scale" (Dean and Barroso, 2013).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log

from redrive.policy.budget import RatioBudget
from redrive.policy.hedge import Hedge
from redrive.simulate.client import SimulatedCall, SimulatedClient
from redrive.simulate.contender import DEFAULTS, REDRIVE, Contender
from redrive.simulate.loop import DOWN, LATE, Loop, quantile
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


_WHOLE = 5.0
_LATEST = 2.0
_HORIZON = 60.0
# Attempts of a call that are compared.
_LONGEST = 10


@dataclass(frozen=True, slots=True)
class _Cut(Contender):
    """Its attempts are coroutines, which are cut off at the deadline (`redrive.retrying.loops`)."""


def _given(contender: Contender) -> Contender:
    """Return the contender with the deadline of the scenario, if it has such a parameter, and no other limit."""
    if contender.policy is not None:
        return replace(contender, policy=contender.policy.with_(attempts=None, deadline=_WHOLE))
    if contender.timeout is not None or contender.name == "tenacity":
        return replace(contender, attempts=None, timeout=_WHOLE)
    return replace(contender, attempts=None)


def _ends(contender: Contender, rng: SeededRandom) -> float:
    """Return when a call ends if all its attempts fail; calls do not interact, so no event loop is needed."""
    now, cuts = 0.0, isinstance(contender, _Cut)
    made = contender.open().begin(now)
    while made is not None and now < _HORIZON:
        now += rng.random() * _LATEST
        if cuts and now >= _WHOLE:
            return _WHOLE
        delay = made.failed(LATE, now, rng.random())
        if delay is None:
            return now
        now += delay
    return inf


def _deadline(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    over = [max(0.0, _ends(contender, rng) - _WHOLE) for _ in range(clients)]
    return sum(over) / clients, max(over), 100 * sum(each > 0 for each in over) / clients


DEADLINE = Scenario(
    "deadline",
    "The time that calls take beyond their deadlines",
    "1000 calls get 5 s each, if the library has such an option; an attempt takes up to 2 s and fails.",
    (Quantity("mean overshoot", "s", 2), Quantity("longest overshoot", "s", 2), Quantity("calls too late", "%", 1)),
    _deadline,
    1000,
    (replace(REDRIVE, name="redrive, plain functions"), _Cut("redrive, coroutines", REDRIVE.policy), *DEFAULTS[1:]),
    _given,
)


def _isolation(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    seeds = [rng.getrandbits(64) for _ in range(clients)]
    alone = [_FailingCall(contender.open().begin(0.0), SeededRandom(seed)) for seed in seeds]
    for call in alone:
        for _ in range(_LONGEST):
            call.go_on()
    client = contender.open()
    together = [_FailingCall(client.begin(0.0), SeededRandom(seed)) for seed in seeds]
    turns = together * _LONGEST
    rng.shuffle(turns)
    for call in turns:
        call.go_on()
    differing = sum(one.waits != other.waits for one, other in zip(alone, together, strict=True))
    return differing, sum(len(call.waits) for call in together)


class _FailingCall:
    """One call that always fails."""

    def __init__(self, made: SimulatedCall | None, rng: SeededRandom) -> None:
        self.waits: list[float | None] = []
        self._made = made
        self._rng = rng

    def go_on(self) -> None:
        """Let the next attempt fail, unless the call has ended."""
        if self._made is not None and None not in self.waits[-1:]:
            self.waits.append(self._made.failed(DOWN, float(len(self.waits)), self._rng.random()))


ISOLATION = Scenario(
    "isolation",
    "The effect of one call on the delays of another",
    "1000 calls through one policy take turns at random; each is compared with the same call alone.",
    (Quantity("calls that differ"), Quantity("attempts")),
    _isolation,
    1000,
    prepare=lambda contender: replace(contender, budget=None, breaker=None),
)
