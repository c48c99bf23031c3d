"""The delivery of events to the handler of a subscription: what its context shows, and the events that it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from redrive.app.attempts.effects import Effects
from redrive.app.attempts.handle import AttemptHandle
from redrive.engine.machine import DataChange, MachineDefinition, NextMachineEvent
from redrive.engine.outcome import Settlement
from redrive.engine.records import Claim
from redrive.engine.topics import Envelope, Shard
from redrive.errors import ConfigurationError, MachineError
from redrive.stores.operations.topics import feed
from redrive.stores.operations.topics.feed import Lease
from redrive.stores.query import Operation
from redrive.stores.store import Store


class MachineProtocol(Protocol):
    """A machine, as its states, transitions and instances see it. They import this module, and the machine them."""

    app: Any
    name: str
    codec: Any

    @property
    def tasks(self) -> Mapping[str, Any]:
        """The states by name."""

    @property
    def definition(self) -> MachineDefinition:
        """The states and their transitions."""

    @property
    def version(self) -> str:
        """The digest of the definition."""

    def check(self) -> None:
        """Check the definition."""

    def next_event(self, key: str, state: str, event: object, data: object) -> NextMachineEvent:
        """Return the effect that begins the next transition from a state."""

    def read_data(self, raw: bytes | None) -> Any:
        """Return the data of an instance."""


class TransitionHandle:
    """One attempt of a transition.

    Attributes:
        key: the key of the instance.
        data: the data of the instance; None without any.
    """

    def __init__(self, machine: MachineProtocol, state: str, key: str, *, data: object, effects: Effects) -> None:
        self.key = key
        self.data: object = data
        self._machine = machine
        self._state = state
        self._effects = effects
        self._has_next = False

    def next(self, event: object) -> None:
        """Begin the next transition when this one has ended; see `redrive.Context.next`."""
        machine = self._machine
        if self._has_next:
            raise MachineError(
                f"machine {machine.name!r}: the transition of {self.key!r} to {self._state!r} already has its "
                "next event: ctx.next() takes one in each attempt"
            )
        self._effects.add(machine.next_event(self.key, self._state, event, self.data))
        self._has_next = True

    def set_data(self, value: object) -> None:
        """Replace the data of the instance; see `redrive.Context.set_data`."""
        codec = self._machine.codec
        if codec is None:
            raise ConfigurationError(
                f"machine {self._machine.name!r} has no data: declare their class by app.machine(..., data=Class)"
            )
        self._effects.add(DataChange(codec.write(value)))
        self.data = value


class DeliveredEvent(msgspec.Struct, frozen=True):
    """An event of a delivery.

    Attributes:
        id: unique in the topic; grows.
        key: the key that the publisher gave; None without one.
        published_at: the time of the publish.
        type: the name of its type.
        version: the version of the topic when it was published.
    """

    id: int
    key: str | None
    published_at: datetime
    type: str
    version: int


class FeedPlace(msgspec.Struct, frozen=True):
    """The feeder that makes a delivery, and its shard."""

    lease: Lease
    shard: Shard


class Delivery:
    """One call of the handler of a subscription.

    Attributes:
        events: the events, in the order in which the handler gets them.
        redelivered: True if an earlier call may have got one of them.
        out_of_order: True if the event was redriven after later ones of its line had been delivered.
        failed: the errors of the events that the handler has marked as failed, by their places.
        feed: the feeder; None in the job of a failed event.
        committed: True if the handler's transaction has written that its events are done.
    """

    def __init__(self, events: Sequence[Envelope], *, redelivered: bool, feed: FeedPlace | None = None) -> None:
        self.feed = feed
        self.committed = False
        self.events: tuple[DeliveredEvent, ...] = tuple(
            DeliveredEvent(each.id, each.key, each.at, each.type, each.version) for each in events
        )
        self.redelivered = redelivered
        self.out_of_order = False
        self.failed: dict[int, BaseException] = {}
        self.values: Sequence[Any] = ()

    def fail(self, event: object, error: BaseException | str | None) -> None:
        """Mark an event as failed; see `redrive.Context.fail`."""
        place = self._place(event)
        if isinstance(error, BaseException):
            self.failed[place] = error
        else:
            self.failed[place] = EventFailed(error or "the handler has marked the event as failed")

    def _place(self, event: object) -> int:
        for same in (lambda value: value is event, lambda value: value == event):
            for place, value in enumerate(self.values):
                if place not in self.failed and same(value):
                    return place
        raise ConfigurationError(f"ctx.fail() takes an event of this delivery that has not failed yet, got {event!r}")


class DeliveryHandle(AttemptHandle):
    """The connection between the delivery of events and the feeder that makes it.

    Every write names the job and the lease of the feeder. The handler's transaction does not end a job: it writes that
    the events are done.
    """

    def __init__(  # noqa: PLR0917 - the parts that it connects
        self,
        claim: Claim,
        store: Store,
        now: Callable[[], datetime | None],
        write: Callable[[Any], bytes | None],
        soft_for: float | None,
        effects: Effects,
        era: int | None,
        delivery: Delivery,
    ) -> None:
        super().__init__(claim, store, now, write, soft_for, effects, era)
        assert delivery.feed is not None  # the caller has checked
        self._feed = delivery.feed
        self._delivery = delivery
        self.job_id: int = self._feed.lease.job_id
        self.lease_id: int = self._feed.lease.lease_id

    def settle(self, sample: float) -> Operation[Any]:
        """Return the operation that writes in the handler's transaction that its events are done."""
        del sample
        done = [each.id for place, each in enumerate(self._delivery.events) if place not in self._delivery.failed]
        commit = feed.commit(self._feed.lease, self._feed.shard, done, self.effects.added, now=self.now())
        return replace(commit, era=self._era)

    def close(self, written: Settlement | bool) -> None:  # noqa: FBT001 - the answer of `settle`
        """Record that the handler's transaction was committed."""
        super().close(written)
        self._delivery.committed = True


class EventFailed(Exception):
    """An event that its handler has marked as failed."""
