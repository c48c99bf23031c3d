"""Writers that contend for one record, as in Amazon's "Exponential backoff and jitter" (2015). PURE."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from redrive.policy import Backoff, Failure, Policy
from redrive.simulate.contender import DEFAULTS, Contender, exponential, of_policy
from redrive.simulate.loop import DOWN, Answered, Load, Loop, call
from redrive.simulate.rng import SeededRandom
from redrive.simulate.scenarios.scenario import Quantity, Scenario

_WAY, _DEVIATION = 0.010, 0.002
_SLICE = 0.1


# Each writer reads the version, writes with it, and starts again if another writer was faster. The network takes 10 ms
# each way, with a deviation of 2 ms. All start at once, and each tries until it has succeeded. The published simulation
# doubles a base of 5 ms before the first delay is drawn: ``Backoff.exponential("10ms", "2s")`` is the same.
class _Record:
    """A record with a version, behind a network."""

    def __init__(self, loop: Loop, rng: SeededRandom) -> None:
        self.load = Load(_SLICE)
        self.done_at = 0.0
        self._loop = loop
        self._rng = rng
        self._version = 0

    def attempt(self, done: Answered) -> None:
        """Read, then write."""
        self._travel(partial(self._read, done))

    def done(self, _: Failure | None) -> None:
        self.done_at = self._loop.now

    def _travel(self, arrived: partial[None]) -> None:
        self._loop.after(abs(self._rng.gauss(_WAY, _DEVIATION)), arrived)

    def _read(self, done: Answered) -> None:
        self._travel(partial(self._got, done, self._version))

    def _got(self, done: Answered, version: int) -> None:
        self._travel(partial(self._write, done, version))

    def _write(self, done: Answered, version: int) -> None:
        self.load.arrive(self._loop.now)
        won = version == self._version
        self._version += won
        self._travel(partial(done, None if won else DOWN))


def _trial(contender: Contender, rng: SeededRandom, clients: int) -> tuple[float, ...]:
    loop = Loop()
    record = _Record(loop, rng)
    for _ in range(clients):
        call(loop, contender.open(), rng, record.attempt, record.done)
    loop.run()
    slices = record.load.counts(0, record.done_at) or [record.load.total]
    return record.load.total, record.done_at, max(slices) * len(slices) / sum(slices)


_BRISK = Policy(on=Exception, backoff=Backoff.exponential("10ms", "2s"))
_OWN = (
    of_policy("redrive, 10ms 2s", _BRISK),
    of_policy("redrive, 10ms 2s, equal", _BRISK.with_(jitter="equal")),
    of_policy("redrive, 10ms 2s, decorrelated", Policy(on=Exception, backoff=Backoff.decorrelated("10ms", "2s"))),
    replace(exponential(0.01, 2.0), name="exponential, 10ms 2s"),
)

CONTENTION = Scenario(
    "contention",
    "The work until all writers have written",
    "100 clients write one record under an optimistic lock, all at once, each until it succeeds.",
    (Quantity("calls"), Quantity("completion", "s", 1), Quantity("peak / mean", digits=1)),
    _trial,
    100,
    (*DEFAULTS, *_OWN),
    Contender.without_end,
)
