"""A contender of eight for the same due retry; also a process, ``python contender.py URL``, that reads commands."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta

from redrive.engine.outcome import Outcome, Succeeded
from redrive.engine.records import Claim
from redrive.stores.opening import open_store
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import CONTENDED, Claimed, Ending, Settled
from redrive.stores.store import Store
from tests.stores.helpers import LONG, T0, failed

__all__ = ["Contender"]


class Contender:
    """A process that claims and settles, and now and then settles an attempt that it no longer holds.

    Args:
        store: the store that all contenders share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._me = store.run(workers.register("contender", concurrency=1, lease_for=LONG, now=T0))
        self._mine: Claim | None = None
        self._stale: Claim | None = None

    def claim(self, seconds: float, sweeping: bool) -> int | None:
        """Claim the due or expired job if no other contender does; return the lease.

        The previous holder reports its success once more, which must be refused."""
        now = T0 + timedelta(seconds=seconds)
        if sweeping:
            self._store.run(leases.sweep(10, grace=timedelta(0), now=now))
        claimed = self._claimed(now)
        while not claimed.claims and claimed.rest_for is not None and claimed.rest_for <= CONTENDED:
            # Another contender may hold the row only for a check: claim again, as a worker does.
            claimed = self._claimed(now)
        self._insist(seconds)
        self._mine = claimed.claims[0] if claimed.claims else None
        return self._mine and self._mine.lease_id

    def _claimed(self, now: datetime) -> Claimed:
        return self._store.run(leases.claim(self._me, 1, lease_for=LONG, now=now))

    def end(self, seconds: float, how: str) -> None:
        """Settle the claimed job as a failure, or abandon it; the others send stale outcomes at the same time."""
        if self._mine is None:
            self._insist(seconds)
            return
        if how == "fail":
            assert not self._settle(self._mine, failed(), seconds).lost
        self._stale, self._mine = self._mine, None

    def _insist(self, seconds: float) -> None:
        if self._stale is None:
            return
        settled = self._settle(self._stale, Succeeded(b'"late"'), seconds)
        assert settled.lost == {self._stale.lease_id}, "a stale write was accepted"

    def _settle(self, claim: Claim, outcome: Outcome, seconds: float) -> Settled:
        return self._store.run(leases.settle([Ending(claim, outcome, 0.0)], now=T0 + timedelta(seconds=seconds)))


def main() -> None:
    """Obey."""
    store = open_store(sys.argv[1])
    contender = Contender(store)
    print("null", flush=True)  # noqa: T201 - a reply to the parent: ready
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(contender, command)(*arguments)), flush=True)  # noqa: T201 - a reply to the parent
    store.close()


if __name__ == "__main__":
    main()
