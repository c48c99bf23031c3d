"""One of several processes that use a store at the same time: ``python contender.py URL COLOUR ROUNDS``.

It opens the store, prints "ready", waits for a line, and then enqueues, claims and settles in turn. At the end it
prints the enqueued and claimed jobs as JSON. It claims more than it enqueues, so that the processes have to share."""

from __future__ import annotations

import json
import sys

from redrive.engine.outcome import Succeeded
from tests.stores.helpers import Harness, new


def main() -> None:
    """Contend, and report."""
    url, colour, rounds = sys.argv[1:]
    store = Harness(url, colour)
    me = store.worker(f"contender:{sys.argv[0]}")
    print("ready", flush=True)  # noqa: T201 - read by the parent process
    sys.stdin.readline()
    enqueued: list[int] = []
    claimed: list[tuple[int, int]] = []
    for _ in range(int(rounds)):
        enqueued += store.enqueue(new(), new(queue="other"))
        claims = store.claim(3, worker=me)
        claimed += [(claim.id, claim.lease_id) for claim in claims]
        settled = store.settle(*[(claim, Succeeded(b"1")) for claim in claims])
        assert not settled.lost
    store.close()
    print(json.dumps({"enqueued": enqueued, "claimed": claimed}))  # noqa: T201 - read by the parent process


main()
