"""Sell orders while the workers are killed at random, then audit.

::

    python play.py [--orders 30] [--kills 6] [--seed 1]

Each kill is ``kill -9`` of a worker at a random moment; another worker is started in its place.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time

from audit import audit
from shop import EFFECTS, FOLDER, Order, app, checkout

from redrive.engine.lifecycle import FINAL

KINDS = ("plain", "plain", "sold_out", "lost")


def worker() -> subprocess.Popen[bytes]:
    """Start a worker process."""
    command = [sys.executable, "-m", "redrive", "worker", "shop:app", "--concurrency", "8"]
    return subprocess.Popen(command, stderr=(FOLDER / "workers.log").open("ab"))  # noqa: S603 - this very program


def main() -> int:
    """Play, and return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=int, default=30)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    EFFECTS.touch()
    orders = [Order(number, number * 100, KINDS[number % len(KINDS)]) for number in range(options.orders)]
    runs = [checkout.start(order, id=f"order-{order.number}") for order in orders]
    for run, order in zip(runs, orders, strict=True):
        if order.kind != "lost":
            run.signal("shipped", order.number, key=f"parcel-{order.number}")
    workers = [worker(), worker()]
    try:
        for _ in range(options.kills):
            time.sleep(chance.uniform(0.2, 1.0))
            victim = chance.choice(workers)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            workers[workers.index(victim)] = worker()
        until = time.monotonic() + 120
        while any(run.job.refresh().state not in FINAL for run in runs) and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        for each in workers:
            each.send_signal(signal.SIGTERM)
        for each in workers:
            each.wait()
    faults = audit(orders, options.kills)
    app.close()
    print("\n".join(faults) or f"{len(orders)} orders, {options.kills} kills: every result and effect is right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
