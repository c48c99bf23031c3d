"""How far a call goes beyond its deadline, and whether calls disturb one another. PURE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from redrive.simulate.caller import DOWN, LATE
from redrive.simulate.client import SimulatedCall
from redrive.simulate.contender import DEFAULTS, REDRIVE, Contender
from redrive.simulate.rng import SeededRandom
from redrive.simulate.scenarios.scenario import Quantity, Scenario

_WHOLE = 5.0
_SLOWEST = 2.0
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
        now += rng.random() * _SLOWEST
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
