"""Random walks of a subscription through the store, with crashes at each named point, compared with a model.

Events are published, read in windows, delivered, handed to jobs after a failure, and passed. The feeder loses its lease
before it writes its position (the effect is done and the position is not), after it (the reply of the commit is lost),
and an operator moves the cursor meanwhile. No event is left out, and none is handed to two jobs."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from redrive.engine.topics import Order, TopicEvent
from redrive.errors import LeaseLost
from redrive.stores.operations import checks
from redrive.stores.operations.topics import subscriptions
from redrive.stores.operations.topics.feed import Reading
from tests.stores.helpers import failed
from tests.stores.topics import Reader, payloads, publish
from tests.stores.walking import Walk, walks


class TopicMachine(Walk):
    """A subscription in a store, and its model.

    Attributes:
        published: the payload of each event, in the order of their publish.
        position: the number of events that the feeder has passed.
        end: the number of events up to the end of the open window; None without one.
        window: the events of the open window that are beyond the position, as they were read.
        given: the number of jobs for each event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.published: list[int] = []
        self.position = 0
        self.end: int | None = None
        self.window: list[TopicEvent] = []
        self.given: dict[bytes, int] = {}
        self.names: dict[int, bytes] = {}

    @initialize(count=st.integers(0, 3))
    def arrive(self, count: int) -> None:
        """Publish events, and let a worker take the feeder of the subscription."""
        self.publish(count)
        self.worker = self.store.worker()
        self.reader = Reader(self.store, Order.NONE, worker=self.worker)
        self._opened()

    def _opened(self) -> None:
        """Note the window that SQLite and Turso open over the past events when the cursor is placed before them."""
        self.end = None if self.reader.shard.until is None else len(self.published)

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        """Publish events in one transaction."""
        numbers = [len(self.published) + number for number in range(count)]
        publish(self.store, *numbers)
        self.published += numbers

    # --------------------------------------------------------------------------------------------------- the feeder

    @rule()
    def read(self) -> None:
        """Read the rest of the open window, or open one with all that is new."""
        if self.end is None and self.position < len(self.published):
            self.end = len(self.published)
        found = self.reader.turn(reading=Reading(after=self.reader.shard.at_id)).events
        self.window = list(found)
        for event in found:
            assert event.payload is not None
            self.names[event.id] = event.payload

        assert payloads(found) == [b"%d" % each for each in self.published[self.position : self.end]]

    @precondition(lambda self: self.window)
    @rule(data=st.data(), fails=st.booleans(), times=st.integers(1, 2))
    def deliver(self, data: st.DataObject, fails: bool, times: int) -> None:
        """Pass events, the last of which may have failed, and write that once, or again after a lost reply."""
        count = data.draw(st.integers(1, len(self.window)))
        self._pass(count, fails=fails)
        if times == 2:
            # The feeder did not receive the reply, so it counts one write less than the shard.
            self.reader.shard = replace(self.reader.shard, turns=self.reader.shard.turns - 1)
            self._pass(count, fails=fails)
        self._passed(count, fails=fails)

    def _pass(self, count: int, *, fails: bool) -> None:
        last = self.window[count - 1]
        diverted = (self.reader.job(last, failed()),) if fails else ()
        self.reader.turn(last.id, diverted=diverted, closes=count == len(self.window), healthy=True)

    def _passed(self, count: int, *, fails: bool) -> None:
        if fails:
            name = self.names[self.window[count - 1].id]
            self.given[name] = self.given.get(name, 0) + 1
        self.position += count
        self.window = self.window[count:]
        if not self.window:
            self.end = None

    @rule(data=st.data(), writes=st.booleans())
    def crash(self, data: st.DataObject, writes: bool) -> None:
        """Lose the feeder before or after its write; another worker goes on, and the former one writes nothing."""
        if writes and self.window:
            count = data.draw(st.integers(1, len(self.window)))
            self._pass(count, fails=False)
            self._passed(count, fails=False)
        former, lost = self.reader.lease, self.reader.shard
        self.store.wait(16)
        self.worker = self.store.worker("host:2")
        self.store.sweep()
        (claim,) = self.store.claimed(10, tasks=["pay.log.feeder"], worker=self.worker).claims
        self.reader.lease = former
        with pytest.raises(LeaseLost):
            self.reader.turn(lost.at_id)
        self.reader.attach(claim)
        self.window = []
        self.reader.turn(healthy=True)

    @precondition(lambda self: self.published)
    @rule(to=st.sampled_from(["beginning", "end"]))
    def move(self, to: str) -> None:
        """Move the cursor; what the feeder writes afterwards with its former position is refused."""
        self.store.do(subscriptions.move("pay", "log", to, now=self.store.now))
        self.position = 0 if to == "beginning" else len(self.published)
        self.window = []

        assert self.reader.turn().moved
        self._opened()

    @rule()
    def pass_time(self) -> None:
        """Advance the clock, with a heartbeat."""
        self.store.wait(5)
        self.store.beat(self.worker)

    # ----------------------------------------------------------------------------------------------- invariants

    @invariant()
    def it_holds(self) -> None:
        """Compare the lag and the jobs with the model, and check the invariants of the store."""
        given: dict[bytes, int] = {}
        for job in self.store.jobs():
            _, mark, number = (job.origin or "").partition("#")
            if mark:
                name = self.names[int(number)]
                given[name] = given.get(name, 0) + 1

        assert self.given == given
        if hasattr(self, "reader"):
            assert len(self.published) - self.position == self.reader.status.lag.events
        assert () == self.store.do(checks.check()).findings


TestMemory = walks(TopicMachine, "memory", 40, steps=25)
TestFile = walks(TopicMachine, "file", 10, steps=25)
TestTurso = walks(TopicMachine, "turso", 2, steps=25)
TestPostgres = walks(TopicMachine, "postgres", 4, steps=25)
