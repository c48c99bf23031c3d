"""Published and delivered events per second, with one and with ten subscriptions.

* *Publish* counts events per second that one process publishes one by one, each in a transaction of its own, and *bulk*
  those of a thousand per transaction, while no subscription runs.
* *Delivered* counts deliveries per second, from the first handler until the last progress was written, to subscriptions
  in one process: with ten of them an event counts ten times.
* *Latency* is the time from just before the publish to the handler of a subscription, at a steady rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.flows.part import Part
from benchmarks.flows.topics.raw import RawFanOut
from benchmarks.measure import NOTHING, Sizes, drain, latency, singles
from benchmarks.place import Server
from benchmarks.subjects import Subject

__all__ = ["PARTS"]

EVENTS = 20_000
"""Deliveries per subscription."""

ALONE = Sizes(singles=1_000, latencies=200)

HEADINGS = {
    "publish": "publish\nevents/s",
    "bulk": "bulk\nevents/s",
    "delivered": "delivered\n/s",
    "cpu": "CPU\nµs/delivery",
    "wal": "WAL\nB/delivery",
    "p50": "latency\np50 ms",
    "p99": "latency\np99 ms",
}


def _subjects() -> dict[str, tuple[Subject, int]]:
    return {f"{kind.name}, {number}": (kind(number), number) for kind in (RawFanOut,) for number in (1, 10)}


def _measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
    subject, number = _subjects()[name]
    publish = singles(subject, ALONE, home, server)
    drained = drain(subject, Sizes(jobs=EVENTS * number), home, server)
    p50, p99 = latency(subject, ALONE, home, server) if number == 1 else (NOTHING, NOTHING)
    assert drained.before is not None
    assert drained.after is not None
    wal = (drained.after.wal - drained.before.wal) / EVENTS / number
    return {
        "publish": publish,
        "bulk": drained.bulk / number,
        "delivered": drained.settled,
        "cpu": drained.cpu,
        "wal": wal,
        "p50": p50,
        "p99": p99,
    }


PARTS = (Part("topics", "postgres", tuple(_subjects()), _measure, HEADINGS, (), "events on postgres"),)
