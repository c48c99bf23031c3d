"""Topics: events, subscriptions, cursors, and the order in which the events of a window are delivered. PURE.

A **subscription** reads the events of a topic. It has one **shard**, or several that share its events by key, and each
shard has a **cursor**. A cursor is two marks and a position: an event is new if it is not covered by the mark ``seen``;
the **window** is the new events that are covered by the mark ``until``; and all events of the window up to the id
``at_id`` are done, and up to ``done_id`` all but the ``unfinished`` ones, such as a slow event and those behind it. The
set of events of a window never changes, so a window that is interrupted goes on where it was.
On PostgreSQL a mark is a snapshot of transactions, and on SQLite it is an id: see
``docs/explanation/commit-safe-cursor.md``.

A **line** is a set of events that are delivered one after the other, by id. With the order ``strict`` a shard has one
line; with ``key`` each key is one; with ``none`` each event is one. A failed event becomes a job, and its line is
*held* until this job has ended. With ``strict`` the later events of the line wait in the topic. With ``key`` they
become jobs too, behind the failed one, so that the cursor can go on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import takewhile
from typing import Final, Generic, TypeAlias, TypeVar
from zlib import crc32

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.origin import Effect, Origin
from redrive.engine.records import Hold

E = TypeVar("E")


class Order(StrEnum):
    """The order in which a subscription gets events."""

    STRICT = "strict"
    """One after the other; a failed event holds all that follow."""
    KEY = "key"
    """The events of a key one after the other, different keys at once; a failed event holds those of its key."""
    NONE = "none"
    """At once, in any order; a failed event holds no other."""


class Dead(StrEnum):
    """The effect of a dead event on the events behind it."""

    CONTINUE = "continue"
    """They are delivered."""
    HOLD = "hold"
    """They wait until the dead event is redriven or skipped."""


#: The beginning of the name of a topic for dead events, in ``dead=``.
TO_TOPIC: Final = "topic:"

#: The events that a feeder delivers at once, by default, unless the order is strict.
AT_ONCE: Final = 10

#: The only line of a shard with strict order.
STRICT_LINE: Final = "strict"

#: The partition of feeders in the queue of their subscription; no line has this name.
FEEDER_LINE: Final = "feeder"

#: The tag of the job of a delivery that was started again after later events of its line had been delivered.
OUT_OF_ORDER: Final = "out of order"

#: The lines of single events, which have no order, begin with this.
ALONE: Final = "event:"

#: Hashes of keys are smaller than this.
SLOTS: Final = 1 << 31


class NewTopicEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to be published.

    Attributes:
        payload: JSON.
        type: the name of its type.
        version: the version of the topic's types.
    """

    topic: str
    payload: bytes
    type: str
    version: int = 1
    key: str | None = None


class Publish(Effect, frozen=True, gc=False):
    """Publish an event when the attempt has succeeded."""

    event: NewTopicEvent


class TopicEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a topic, as a feeder reads it.

    Attributes:
        payload: JSON; None if the subscription does not take the event.
    """

    id: int
    key: str | None
    type: str
    version: int
    at: datetime
    payload: bytes | None


class Envelope(msgspec.Struct, frozen=True):
    """An event in the arguments of a delivery."""

    id: int
    key: str | None
    type: str
    version: int
    at: datetime
    event: msgspec.Raw


class DeadLetter(msgspec.Struct, Generic[E], frozen=True, gc=False):
    """An event that a subscription could not handle, as its topic for dead events has it.

    A subscription with ``dead="topic:failed"`` publishes it to ``app.topic("failed", redrive.DeadLetter[Paid])``, under
    the key of the event.

    Attributes:
        topic: the topic of the event.
        subscription: the subscription of that topic that could not handle it.
        id: of the event in its topic; unique in the database.
        key: of the event.
        type: the name of its type.
        version: the version of the topic's types under which it was published.
        at: when it was published.
        event: the event itself, as it was published; without ``[...]`` it is data as JSON has it.
        job_id: the job of the delivery, which can be redriven; a further death is a further letter.
        attempts: executions of the handler.
        reason: of the last failure, one upper-case word, such as ``TIMEOUT``.
        error_type: the qualified name of the last exception, such as ``builtins.ValueError``.
        error: the text of the last error.
    """

    topic: str
    subscription: str
    id: int
    key: str | None
    type: str
    version: int
    at: datetime
    event: E
    job_id: int
    attempts: int
    reason: str | None = None
    error_type: str | None = None
    error: str | None = None


class SubscriptionRecord(msgspec.Struct, frozen=True, gc=False):
    """A subscription.

    Attributes:
        types: the names of the types that it takes; None means all.
        behind: events that were deleted by force before it had read them.
        reshard: the number of shards that it will have as soon as the present ones have ended.
        dead_topic: where dead events are published, as `DeadLetter`.
    """

    topic: str
    name: str
    ordering: Order
    dead: Dead
    types: tuple[str, ...] | None
    shards: int
    declared_at: datetime
    paused_at: datetime | None
    behind: int
    reshard: int | None
    dead_topic: str | None = None

    @property
    def after_dead(self) -> str:
        """The effect of a dead event: ``continue``, ``hold``, or the topic to which it is published."""
        return self.dead.value if self.dead_topic is None else f"{TO_TOPIC}{self.dead_topic}"

    @property
    def task(self) -> str:
        """The name of its task, which is also that of its queue."""
        return task_name(self.topic, self.name)


class Shard(msgspec.Struct, frozen=True, gc=False):
    """A shard of a subscription with its cursor; marks are text, as the dialect writes them.

    Attributes:
        job_id: the job of its feeder.
        epoch: grows with each move by an operator.
        turns: the number of writes by its feeders.
        seen: the mark of the events that are done.
        until: the end of the open window; None if none is open.
        final: the mark at which the shard ends, because the subscription gets another number of shards.
        at_id: every event of the window up to this id is done.
        done_id: every event of the window up to this id is done, too, except the ``unfinished`` ones.
        ahead_id: no event of the window beyond this id has been handed to a handler.
        stuck_id: the event that the code of the last feeder could not read, with the reason in ``stuck_why``.
    """

    topic: str
    subscription: str
    shard: int
    job_id: int
    epoch: int
    turns: int
    seen: str
    until: str | None
    final: str | None
    at_id: int
    done_id: int
    unfinished: list[int]
    ahead_id: int
    stuck_id: int | None
    stuck_why: str | None

    @property
    def ended(self) -> bool:
        """True if the shard has reached the mark at which it ends."""
        return self.final is not None and self.until is None and self.seen == self.final

    def opened(self, edge: str) -> Shard:
        """Return it with a new window: all that is new at this edge of the topic, or at the mark where it ends."""
        return msgspec.structs.replace(self, until=self.final or edge, at_id=0, done_id=0, unfinished=[], ahead_id=0)

    def closed(self) -> Shard:
        """Return it after its window, of which every event is done."""
        assert self.until is not None  # the caller has checked
        return msgspec.structs.replace(self, seen=self.until, until=None, at_id=0, done_id=0, unfinished=[], ahead_id=0)


class DeliveryRecord(msgspec.Struct, frozen=True, gc=False):
    """A job of a delivery that failed, or that waits behind one.

    Attributes:
        out_of_order: True if it was started again after later events of its line had been delivered.
    """

    id: int
    origin: str
    partition: str
    state: State
    hold: Hold | None
    attempt: int
    scheduled_at: datetime
    error: str | None
    note: str | None
    out_of_order: bool = False

    @property
    def event_id(self) -> int:
        """The id of the event."""
        return int(self.origin.rpartition("#")[2])


def circle(letters: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return topics of which the dead events would come back to the first one; empty if there are none.

    Args:
        letters: the topic of each subscription that publishes its dead events, and the topic to which it does.
    """
    following: dict[str, set[str]] = {}
    for topic, dead_topic in letters:
        following.setdefault(topic, set()).add(dead_topic)
    for first in sorted(following):
        paths: list[tuple[str, ...]] = [(first,)]
        seen: set[str] = set()
        while paths:
            path = paths.pop()
            for each in sorted(following.get(path[-1], set()) - seen):
                if each == first:
                    return (*path, first)
                seen.add(each)
                paths.append((*path, each))
    return ()


def task_name(topic: str, subscription: str) -> str:
    """Return the name of the task of a subscription."""
    return f"{topic}.{subscription}"


def feeder_name(topic: str, subscription: str) -> str:
    """Return the name of the task of the feeders of a subscription."""
    return f"{topic}.{subscription}.feeder"


def delivered_event(origin: Origin) -> tuple[str, int] | None:
    """Return the subscription and the event of a delivery; None for a feeder."""
    subscription, mark, event = origin.part.rpartition("#")
    return (subscription, int(event)) if mark else None


def slot_of(key: str | None) -> int | None:
    """Return the hash of a key, the same in every process and version; None without a key."""
    return None if key is None else crc32(key.encode()) % SLOTS


def key_line(key: str) -> str:
    """Return the line of the events with a key; also the tag of their jobs if they are in another line."""
    return f"key:{key}"


def line_of(order: Order, event: TopicEvent) -> str:
    """Return the line of an event, which is also the partition of its job."""
    if order is Order.STRICT:
        return STRICT_LINE
    if order is Order.KEY and event.key is not None:
        return key_line(event.key)
    return f"{ALONE}{event.id}"


class Window:
    """The events of a window that were read and are not finished, and which of them may be delivered now.

    Args:
        at_once: deliveries at once.
        batch: events of one delivery, at most.
        at_id: the position in the window.
        done_id: the last event that is done beyond the position.
        unfinished: the events up to ``done_id`` that are not done.
        held: the lines that are held.

    Attributes:
        ended: the number of events that were finished; what is done is to be written when it has grown.
    """

    def __init__(
        self,
        order: Order,
        *,
        at_once: int = AT_ONCE,
        batch: int = 1,
        at_id: int = 0,
        done_id: int = 0,
        unfinished: Collection[int] = (),
        held: Collection[str] = (),
    ) -> None:
        self.order = order
        self.held: set[str] = set(held)
        self.ended: int = 0
        self._passed = 0
        self._begin_id = self._done_id = done_id
        self._begin_unfinished = frozenset(unfinished)
        self._last_id = at_id
        self._at_once = 1 if order is Order.STRICT else at_once
        self._batch = batch
        # A dict would take longer and longer to find its first key, after others were deleted from its front.
        self._open: OrderedDict[int, None] = OrderedDict()
        self._lines: dict[str, deque[TopicEvent]] = {}
        self._ready: deque[str] = deque()
        self._running: dict[int, tuple[str, ...]] = {}
        self._busy: set[str] = set()
        self._behind: list[TopicEvent] = []
        self._alone: set[int] = set()

    @property
    def running(self) -> int:
        """The number of deliveries that run."""
        return len(self._running)

    @property
    def unfinished(self) -> int:
        """The number of events that were added and are not finished."""
        return len(self._open)

    @property
    def at_id(self) -> int:
        """The position: every event of the window up to this id is done."""
        return next(iter(self._open)) - 1 if self._open else self._last_id

    def beyond(self) -> tuple[int, list[int]]:
        """Return the last event that is done beyond the position, and the events before it that are not done."""
        if self._done_id <= self.at_id:
            return 0, []
        unread = sorted(each for each in self._begin_unfinished if each > self._last_id)
        return self._done_id, [*takewhile(self._done_id.__gt__, self._open), *unread]

    @property
    def waiting(self) -> int:
        """The number of events that have not been started."""
        return sum(map(len, self._lines.values()))

    def add(self, events: Iterable[TopicEvent], *, done: Collection[int] = ()) -> None:
        """Add events, by id; those without payload, and those of `done`, are finished at once."""
        for event in events:
            self._last_id = event.id
            if event.payload is not None and event.id in done:
                self._done_id = max(self._done_id, event.id)
                self.ended += 1
                continue
            if event.payload is None or self._is_done(event.id):
                self._passed += 1
                continue
            self._open[event.id] = None
            line = line_of(self.order, event)
            if line in self.held and self.order is Order.KEY:
                self._behind.append(event)
                continue
            if line not in self._lines:
                self._lines[line] = deque()
                if line not in self._busy and line not in self.held:
                    self._ready.append(line)
            self._lines[line].append(event)
        if not self._open:
            # No later end of a delivery has the position written that has passed these events.
            self.ended, self._passed = self.ended + self._passed, 0

    def _is_done(self, number: int) -> bool:
        """Return True if an event was done when the window was begun."""
        return number <= self._begin_id and number not in self._begin_unfinished

    def next(self) -> tuple[TopicEvent, ...]:
        """Return the events of a delivery that may start now, and count it as running; none if none may start."""
        if not self._ready or len(self._running) >= self._at_once:
            return ()
        events: list[TopicEvent] = []
        lines: list[str] = []
        while self._ready and len(events) < self._batch:
            line = self._ready.popleft()
            waiting = self._lines[line]
            if events and waiting[0].id in self._alone:
                self._ready.appendleft(line)
                break
            lines.append(line)
            room = 1 if waiting[0].id in self._alone else self._batch
            while waiting and len(events) < room and (room == 1 or waiting[0].id not in self._alone):
                events.append(waiting.popleft())
            if not waiting:
                del self._lines[line]
            if room < self._batch:
                break
        self._busy.update(lines)
        events.sort(key=_event_id)
        self._running[events[0].id] = tuple(lines)
        return tuple(events)

    def behind(self) -> tuple[TopicEvent, ...]:
        """Take the events that become jobs behind a failed one of their key; they count as unfinished."""
        found, self._behind = tuple(self._behind), []
        return found

    def stopped(self, events: Sequence[TopicEvent], failed: Collection[TopicEvent] = ()) -> None:
        """Record the end of a delivery; the lines of failed events are held from now on."""
        for each in failed:
            self.hold(line_of(self.order, each))
        for line in self._running.pop(events[0].id):
            self._busy.discard(line)
            if line in self._lines and line not in self.held:
                self._ready.append(line)

    def hold(self, line: str) -> None:
        """Hold a line; with order by key, its events that wait become jobs."""
        if self.order is Order.NONE:
            return
        self.held.add(line)
        if self.order is Order.KEY:
            self._behind.extend(self._lines.pop(line, ()))

    def release(self, lines: Iterable[str]) -> None:
        """Deliver the events of held lines again, because their jobs have ended."""
        for line in lines:
            if line in self.held:
                self.held.discard(line)
                if line in self._lines and line not in self._busy:
                    self._ready.append(line)

    def retry(self, events: Sequence[TopicEvent]) -> None:
        """Put the events of a delivery that runs back in front of their lines; each is then delivered alone."""
        self._alone.update(event.id for event in events)
        for event in reversed(events):
            self._lines.setdefault(line_of(self.order, event), deque()).appendleft(event)
        self.stopped(events)

    def finish(self, ids: Iterable[int]) -> None:
        """Record that events are delivered, or have become jobs in the transaction that writes the position."""
        for each in ids:
            if each in self._open:
                del self._open[each]
                self._alone.discard(each)
                self._done_id = max(self._done_id, each)
                self.ended += 1


def _event_id(event: TopicEvent) -> int:
    return event.id


Position: TypeAlias = str | datetime | int
"""Where a cursor is put: ``beginning``, ``end``, an instant, or the id of an event."""
