"""Events of a topic with several subscriptions, and the command that users type."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects.redrive import BATCH, URL, Redrive, RedriveOnPostgres, RedriveOnSQLite
from redrive.app.app import App
from redrive.app.topics.topic import Topic

__all__ = ["AmongWriters", "TopicOnPostgres", "TopicOnSQLite", "app"]

SUBSCRIPTIONS, SINGLE = "REDRIVE_BENCH_SUBSCRIPTIONS", "REDRIVE_BENCH_SINGLE"
TOGETHER = 500
"""Events per call of a handler, as for the loop by hand."""


class Event(msgspec.Struct):
    """What is published."""

    at: float


def define(app: App, subscriptions: int, *, single: bool = False) -> Topic[Event]:
    """Register the topic of the benchmark: its handlers do nothing.

    Args:
        app: where.
        subscriptions: how many.
        single: hand out one event after the other, instead of batches.

    Returns:
        The topic.
    """
    meters: list[Meter] = []
    topic = app.topic("bench", Event)

    def meter() -> Meter:
        if not meters:
            meters.append(Meter.given())
        return meters[0]

    for number in range(subscriptions):
        if single:

            @topic.subscribe(f"s{number}")
            async def one(event: Event) -> None:
                meter().mark(event.at)

        else:

            @topic.subscribe(f"s{number}", batch=TOGETHER)
            async def batch(events: list[Event]) -> None:
                if events[0].at:
                    for event in events:
                        meter().mark(event.at)
                else:
                    meter().mark(jobs=len(events))

    return topic


app = App(os.environ.get(URL, "memory://"))
"""What the worker process loads."""

define(app, int(os.environ.get(SUBSCRIPTIONS, "1")), single=bool(os.environ.get(SINGLE)))


class _Topic(Redrive):
    """One worker process with default settings.

    Args:
        subscriptions: how many.
        single: hand out one event after the other, instead of batches.
    """

    kept = "the event"
    module = __name__

    def __init__(self, subscriptions: int, *, single: bool = False) -> None:
        self._subscriptions, self._single = subscriptions, single

    def create(self, place: Place) -> None:
        """Make the tables, and the subscriptions, which begin with the first event."""
        super().create(place)
        self._app.topics.declare()

    def define(self, app: App) -> None:
        """Register the topic."""
        self._topic = define(app, self._subscriptions, single=self._single)

    def enqueue(self, sent_at: float) -> None:
        """Publish one event."""
        self._topic.publish(Event(sent_at))

    def enqueue_many(self, count: int) -> None:
        """Publish a thousand events a transaction, until there are so many deliveries."""
        events = count // self._subscriptions
        for start in range(0, events, BATCH):
            self._topic.publish_many([Event(0.0)] * min(BATCH, events - start))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """``redrive worker``."""
        given = {URL: self.url, SUBSCRIPTIONS: str(self._subscriptions), SINGLE: "1" if self._single else ""}
        return (sys.executable, "-m", "redrive", "worker", f"{__name__}:app"), given

    def unfinished(self) -> bool:
        """Return True if a position is not at the end."""
        return any(each.lag.events for each in self._app.topics.select())


class TopicOnSQLite(_Topic, RedriveOnSQLite):
    """On a file."""


class TopicOnPostgres(_Topic, RedriveOnPostgres):
    """On PostgreSQL."""


class AmongWriters(TopicOnPostgres):
    """While a transaction of another database of the server has written, and stays open."""

    def create(self, place: Place) -> None:
        """Open that transaction, and make the tables."""
        super().create(place)
        assert place.server is not None
        self._writer = subprocess.Popen(
            [place.server.psql, "-X", "-q", place.server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert self._writer.stdin is not None
        self._writer.stdin.write("BEGIN; CREATE TABLE writer (x int); INSERT INTO writer VALUES (1);\n")
        self._writer.stdin.flush()

    def close(self) -> None:
        """End that transaction, and close the store."""
        self._writer.terminate()
        self._writer.wait()
        super().close()
