"""Clients that have failed together: do they come back together, and before they are asked to? PURE."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

from redrive.policy import Backoff, Failure, Policy
from redrive.policy.duration import span
from redrive.policy.jitter import Jitter
from redrive.simulate.client import SimulatedCall
from redrive.simulate.contender import DEFAULTS, Contender, of_policy
from redrive.simulate.loop import DOWN, Answered, Load, Loop, call
from redrive.simulate.rng import SeededRandom
from redrive.simulate.scenarios.scenario import Quantity, Scenario

_REFUSES_IN = 0.25
_SETTLED, _UNTIL = 30.0, 60.0
_SLICE = 0.1


class _Member:
    """A client that never gets an answer but tries on."""

    def __init__(self, loop: Loop, rng: SeededRandom, made: SimulatedCall, load: Load, delays: Counter[float]) -> None:
        self._loop = loop
        self._rng = rng
        self._made = made
        self._load = load
        self._delays = delays

    def attempt(self) -> None:
        self._load.arrive(self._loop.now)
        self._loop.after(_REFUSES_IN, self._failed)

    def _failed(self) -> None:
        delay = self._made.failed(DOWN, self._loop.now, self._rng.random())
        if delay is not None:
            if self._loop.now > _SETTLED:
                self._delays[delay] += 1
            self._loop.after(delay, self.attempt)


def _herd(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    loop, load, delays = Loop(), Load(_SLICE), Counter[float]()
    client = contender.open()
    for _ in range(clients):
        made = client.begin(0.0)
        if made is not None:
            _Member(loop, rng, made, load, delays).attempt()
    loop.run(_UNTIL)
    counts = load.counts(_SETTLED, _UNTIL)
    total, waits = sum(counts), sum(delays.values())
    if not waits:
        return 0.0, 0.0, 0.0, 0.0
    mean = sum(delay * count for delay, count in delays.items()) / waits
    same = max(delays.values()) / waits if waits > 1 else 0.0
    return max(counts) * len(counts) / total, 100 * same, mean, total / (_UNTIL - _SETTLED)


_TEN = Policy(on=Exception, backoff=Backoff.exponential("100ms", "10s"))

HERD = Scenario(
    "herd",
    "The peak of load after many clients failed at once",
    "1000 clients fail at once and retry; from second 30 to 60 their calls are counted in slices of 100 ms.",
    (
        Quantity("peak / mean", digits=2),
        Quantity("equal delays", "%", 1),
        Quantity("mean delay", "s", 2),
        Quantity("calls per second"),
    ),
    _herd,
    1000,
    (
        *DEFAULTS,
        of_policy("redrive, equal", Policy(on=Exception, jitter="equal")),
        of_policy("redrive, decorrelated", Policy(on=Exception, backoff=Backoff.decorrelated("100ms", "5s"))),
        of_policy("redrive, up to 10s", _TEN),
    ),
    Contender.without_end,
)

_HINT = 5.0
_ANSWERS_IN = 0.01
# A hint is rounded up, to the next whole second by HTTP.
_TICK = timedelta(microseconds=1)


class _Throttled:
    """A service that refuses all calls until an instant, and sends that instant as a hint."""

    def __init__(self, loop: Loop) -> None:
        self.load = Load(_SLICE)
        self.succeeded = 0
        self._loop = loop

    def attempt(self, done: Answered) -> None:
        self.load.arrive(self._loop.now)
        left = _HINT - self._loop.now
        failure = Failure(DOWN.types, "come back later", hint=span(left) + _TICK) if left > 0 else None
        self._loop.after(_ANSWERS_IN, partial(done, failure))

    def done(self, failure: Failure | None) -> None:
        self.succeeded += failure is None


def _pushback(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    loop = Loop()
    target = _Throttled(loop)
    begin = partial(call, loop, contender.open(), rng, target.attempt, target.done)
    for _ in range(clients):
        loop.after(rng.random(), begin)
    loop.run(3 * _HINT)
    early = sum(target.load.counts(0, _HINT)) - clients
    after = target.load.counts(_HINT, 3 * _HINT)
    return early, max(after), 100 * target.succeeded / clients


PUSHBACK = Scenario(
    "pushback",
    "Calls before the time that the target has named",
    "100 clients call within a second and are asked to come back at second 5, as by Retry-After.",
    (Quantity("calls too early"), Quantity("peak after it, per 100 ms"), Quantity("success", "%", 1)),
    _pushback,
    100,
    (*DEFAULTS, of_policy("redrive, plus(0.5)", Policy(on=Exception, jitter=Jitter.plus(0.5)))),
)
