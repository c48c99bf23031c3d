"""A target that is down, or fails now and then, layers that all retry, and a failure that outlives its cause. PURE.

The last one is from "Metastable Failures in Distributed Systems" (Bronson and others, 2021).
"""

from __future__ import annotations

from functools import partial
from math import inf, log

from redrive.policy import Failure
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import RatioBudget, ThrottleBudget, TokenBudget
from redrive.simulate.client import SimulatedClient
from redrive.simulate.contender import DEFAULTS, NONE, REDRIVE, UNLIMITED, Contender
from redrive.simulate.loop import DOWN, LATE, Answered, Load, Loop, Send, call
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


# Seconds between two calls of a client.
_EVERY = 0.1
# Of each client.
_CALLS = 100
_DOWN_FOR = _CALLS * _EVERY
# Calls of each client when the target is well again.
_AFTER = 30
_REFUSES_IN, _ANSWERS_IN = 1.0, 0.01
_SLICE = 0.5

_BUDGETED = (
    UNLIMITED,
    REDRIVE.with_budget(RatioBudget()),
    REDRIVE.with_budget(RatioBudget(0.2, minimum=10)),  # Finagle's
    REDRIVE.with_budget(TokenBudget()),
)


def _arrivals(loop: Loop, rng: SeededRandom, clients: int, begin: partial[None], calls: int) -> None:
    """Each client begins a call every 100 ms, in a rhythm of its own."""

    def arrive(left: int) -> None:
        begin()
        if left > 1:
            loop.after(_EVERY, partial(arrive, left - 1))

    for _ in range(clients):
        loop.after(rng.random() * _EVERY, partial(arrive, calls))


class _Outage:
    """A target that is down for ten seconds, and then well again."""

    def __init__(self, loop: Loop) -> None:
        self.load = Load(_SLICE)
        self.succeeded = 0
        self._loop = loop

    def attempt(self, done: Answered) -> None:
        self.load.arrive(self._loop.now)
        if self._loop.now < _DOWN_FOR:
            self._loop.after(_REFUSES_IN, partial(done, DOWN))
        else:
            self._loop.after(_ANSWERS_IN, partial(done, None))

    def done(self, failure: Failure | None) -> None:
        self.succeeded += failure is None


def _outage(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    loop = Loop()
    target = _Outage(loop)
    begin = partial(call, loop, contender.open(), rng, target.attempt, target.done)
    _arrivals(loop, rng, clients, begin, _CALLS + _AFTER)
    loop.run()
    calls = clients * _CALLS
    during = sum(target.load.counts(0, _DOWN_FOR))
    usual = clients / _EVERY
    after = target.load.counts(_DOWN_FOR, 2 * _DOWN_FOR)
    late = [number for number, count in enumerate(after, 1) if count > 1.1 * usual * _SLICE]
    success = 100 * target.succeeded / (calls + clients * _AFTER)
    return during / calls, target.load.peak() / usual, _SLICE * max(late, default=0), success


OUTAGE = Scenario(
    "outage",
    "The load that retries add in a full outage",
    "100 clients of one process make 10 calls a second each; for the first 10 of 13 s all attempts fail after 1 s.",
    (
        Quantity("amplification", digits=2),
        Quantity("peak / usual load", digits=2),
        Quantity("recovery", "s", 1),
        Quantity("success", "%", 1),
    ),
    _outage,
    100,
    (NONE, *DEFAULTS, *_BUDGETED),
)


class _Flaky:
    """A target that fails with a probability."""

    def __init__(self, loop: Loop, rng: SeededRandom, rate: float) -> None:
        self.attempts = self.succeeded = 0
        self._loop = loop
        self._rng = rng
        self._rate = rate

    def attempt(self, done: Answered) -> None:
        self.attempts += 1
        failed = self._rng.random() < self._rate
        self._loop.after(_ANSWERS_IN, partial(done, DOWN if failed else None))

    def done(self, failure: Failure | None) -> None:
        self.succeeded += failure is None


def _flaky(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    figures: list[float] = []
    calls = clients * _CALLS
    for rate in (0.01, 0.1, 0.5):
        loop = Loop()
        target = _Flaky(loop, rng, rate)
        begin = partial(call, loop, contender.open(), rng, target.attempt, target.done)
        _arrivals(loop, rng, clients, begin, _CALLS)
        loop.run()
        figures += [100 * target.succeeded / calls, target.attempts / calls]
    return tuple(figures)


FLAKY = Scenario(
    "flaky",
    "The calls that retries save if a share of the attempts fails, and their cost",
    "100 clients of one process make 10 calls a second each for 10 s; 1, 10 or 50 % of the attempts fail.",
    tuple(
        measure
        for rate in (1, 10, 50)
        for measure in (Quantity(f"success at {rate} %", "%", 2), Quantity(f"load at {rate} %", digits=2))
    ),
    _flaky,
    100,
    (NONE, *DEFAULTS, *_BUDGETED),
)

_TOP_CALLS, _TOP_FOR = 10, 3.0
# Calls of the innermost function for each one from outside; more are shown as "never".
_MOST = 250
_DEPTHS = (3, 5)
_LEAF_IN = 0.05


def _layered(loop: Loop, rng: SeededRandom, layers: list[SimulatedClient], leaf: Send) -> Send:
    """Send an attempt of the outermost layer: each layer's attempt is a call of the layer below."""
    send = leaf
    for client in reversed(layers):
        send = partial(call, loop, client, rng, send)
    return send


def _stack(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    figures: list[float] = []
    for depth in _DEPTHS:
        loop, load = Loop(), Load()

        def leaf(done: Answered, loop: Loop = loop, load: Load = load) -> None:
            load.arrive(loop.now)
            loop.after(_LEAF_IN, partial(done, DOWN))

        below = [NONE if contender.yields else contender] * (depth - 1)
        layers = [each.open() for each in (contender, *below)]
        top = partial(_layered(loop, rng, layers, leaf), lambda _: None)
        calls = clients * _TOP_CALLS
        for _ in range(calls):
            loop.after(rng.random() * _TOP_FOR, top)
        until, ended = 0.0, False
        while not ended and load.total <= _MOST * calls:
            until += 1.0
            ended = loop.run(until)
        figures.append(load.total / calls if ended else inf)
    return tuple(figures)


STACK = Scenario(
    "stack",
    "The calls of the innermost function for one call from outside, while it is down",
    "300 calls in 3 s go through 3 and 5 layers of one process, each with the same policy; never: more than 250.",
    tuple(Quantity(f"{depth} layers", digits=2) for depth in _DEPTHS),
    _stack,
    30,
    (NONE, *DEFAULTS, *_BUDGETED),
)
