"""Published and delivered events per second, with one and with ten subscriptions.

* *Publish* counts events per second that one process publishes one by one, each in a transaction of its own, and *bulk*
  those of a thousand per transaction, while no subscription runs.
* *Delivered* counts deliveries per second, from the first handler to the last, to subscriptions in one process: with
  ten of them an event counts ten times. *And progress written* counts until the last progress was written; redrive
  writes that every thousand events, and after a second. Handlers take up to 500 events at once, but for *one by one*.
* *Latency* is the time from just before the publish to the handler of a subscription, at a steady rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.flows.part import Part
from benchmarks.flows.topics.raw import RawFanOut
from benchmarks.flows.topics.redrive import AmongWriters, TopicOnPostgres
from benchmarks.goals import Goal
from benchmarks.measure import NOTHING, Sizes, drain, latency, singles
from benchmarks.place import Server
from benchmarks.subjects import Subject

__all__ = ["PARTS"]

EVENTS = 20_000
"""Deliveries per subscription."""

ALONE = Sizes(singles=1_000, latencies=200)

MINUTE = Sizes(latencies=300, rate=5.0)
"""For as long as a transaction of another database stays open."""

HEADINGS = {
    "publish": "publish\nevents/s",
    "bulk": "bulk\nevents/s",
    "delivered": "delivered\n/s",
    "settled": "and progress\nwritten/s",
    "cpu": "CPU\nµs/delivery",
    "wal": "WAL\nB/delivery",
    "p50": "latency\np50 ms",
    "p99": "latency\np99 ms",
}

GOALS = (
    Goal("publish", "redrive, 1", at_least=0.95, of="redrive, 10"),
    Goal("bulk", "redrive, 1", at_least=0.95, of="redrive, 10"),
    Goal("settled", at_least=20_000.0, of="redrive, 10"),
    Goal("settled", at_least=20_000.0, of="redrive, 1"),
)

QUIET, OPEN = "redrive, quiet", "redrive, open transaction"


def _subjects() -> dict[str, tuple[Subject, int]]:
    return {
        "raw fan-out, 1": (RawFanOut(1), 1),
        "raw fan-out, 10": (RawFanOut(10), 10),
        "redrive, 1": (TopicOnPostgres(1), 1),
        "redrive, 10": (TopicOnPostgres(10), 10),
        "redrive, 1, one by one": (TopicOnPostgres(1, single=True), 1),
    }


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
        "delivered": drained.handled,
        "settled": drained.settled,
        "cpu": drained.cpu,
        "wal": wal,
        "p50": p50,
        "p99": p99,
    }


def _minute(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
    kind = AmongWriters if name == OPEN else TopicOnPostgres
    p50, p99 = latency(kind(1, single=True), MINUTE, home, server)
    return {"p50": p50, "p99": p99}


PARTS = (
    Part("topics", "postgres", tuple(_subjects()), _measure, HEADINGS, GOALS, "events on postgres"),
    Part(
        "open-transaction",
        "postgres",
        (QUIET, OPEN),
        _minute,
        {name: HEADINGS[name] for name in ("p50", "p99")},
        (Goal("p50", QUIET, at_most=1.1, of=OPEN),),
        "events while a writing transaction of another database stays open for a minute",
    ),
)
