"""Subscriptions: the functions that get the events of a topic, and the handles on their cursors."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import msgspec

from redrive.app.arguments import checked_count, shown
from redrive.app.payload import KeyOrder, Signature, refuse_encoded
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.tasks.enqueue import Options
from redrive.app.tasks.task import Task, Traits
from redrive.app.types import members_of, type_name
from redrive.engine import topics
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError, PayloadError, TaskDefinitionError
from redrive.stores.operations.admin import BulkResult
from redrive.stores.operations.topics import lag
from redrive.stores.operations.topics import subscriptions as operations
from redrive.stores.operations.topics.lag import SubscriptionStatus
from redrive.stores.operations.topics.subscriptions import MovePreview, SubscriptionDefinition
from redrive.stores.query import Operation

#: The most shards of a subscription.
MOST_SHARDS = 256

_ENVELOPES = msgspec.json.Decoder(tuple[topics.Envelope, ...])


class TopicReader(Protocol):
    """The part of a topic that its subscriptions use."""

    name: str
    hint: Any
    types: Mapping[str, Any]

    def decode(self, type_: str, version: int, raw: bytes | msgspec.Raw) -> Any:
        """Return an event as the present code has it."""

    def problem(self, event: topics.TopicEvent) -> str | None:
        """Return why this code cannot read an event that other code may be able to read."""


def envelopes(raw: bytes) -> tuple[topics.Envelope, ...]:
    """Return the events in the arguments of a delivery."""
    return _ENVELOPES.decode(raw)


def pack(events: tuple[topics.TopicEvent, ...]) -> bytes:
    """Return the arguments of a delivery of events, as JSON."""
    return msgspec.json.encode(
        [
            topics.Envelope(each.id, each.key, each.type, each.version, each.at, msgspec.Raw(each.payload or b""))
            for each in events
        ]
    )


class SubscriptionSignature(Signature):
    """The parameter of a subscription's function: an event, or a list of events."""

    def __init__(self, function: Callable[..., Any], name: str, topic: TopicReader, *, batch: bool) -> None:
        super().__init__(function, name)
        self._topic = topic
        self._batch = batch

    @property
    def parameter(self) -> str:
        """The name of the parameter for the event."""
        if len(self.payload) != 1:
            raise TaskDefinitionError(
                f"subscription {self.name!r}: {self.function.__qualname__} takes ({', '.join(self.parameters)}); it "
                "takes one event, and a redrive.Context if needed"
            )
        return self.payload[0]

    def check_types(self) -> None:
        """Raise `TaskDefinitionError` unless the function takes the events of the topic and returns nothing."""
        hint = self.hints.get(self.parameter, Any)
        if self._batch and hint not in (Any, list):
            origin, parts = typing.get_origin(hint), typing.get_args(hint)
            if not isinstance(origin, type) or not issubclass(list, origin):
                raise TaskDefinitionError(
                    f"subscription {self.name!r}: request type {type_name(hint)} differs from a list of events: with "
                    f"batch= the function takes list[{type_name(self._topic.hint)}]"
                )
            hint = parts[0] if parts else Any
        wanted = set(self._wanted)
        if hint not in (Any, object, list) and not wanted <= set(members_of(hint)):
            raise TaskDefinitionError(
                f"subscription {self.name!r}: request type {type_name(hint)} differs from the event type "
                f"{type_name(self._topic.hint)} of the topic {self._topic.name!r}"
            )
        returned = self.hints.get("return", type(None))
        if returned not in (type(None), Any):
            raise TaskDefinitionError(
                f"subscription {self.name!r}: {self.function.__qualname__} returns {type_name(returned)}, and a "
                "subscription must return nothing (-> None)"
            )

    @cached_property
    def _wanted(self) -> tuple[Any, ...]:
        return tuple(self._topic.types.values())

    def only(self, names: tuple[str, ...]) -> None:
        """Restrict the events to some types of the topic."""
        self._wanted = tuple(self._topic.types[name] for name in names)

    @property
    def request(self) -> Any:
        """The type of the request in a `CatchRequest`: that of one event."""
        return self._topic.hint

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, order: KeyOrder = None) -> bytes:
        """Raise `PayloadError`: jobs of a subscription are made of events."""
        del args, kwargs, order
        raise PayloadError(
            f"{self.name} is a subscription and gets its events from the topic {self._topic.name!r}: publish the event"
        )

    def read(self, raw: bytes) -> dict[str, Any]:
        """Return the argument of a delivery by name; raise `PayloadError` if this code cannot read an event."""
        try:
            found = envelopes(raw)
        except msgspec.MsgspecError as error:
            refuse_encoded(raw, "the document of its events")
            raise PayloadError(f"the events of the delivery cannot be read: {error}") from error
        values = [self._topic.decode(each.type, each.version, each.event) for each in found]
        return {self.parameter: values if self._batch else values[0]}

    def read_request(self, raw: bytes, hint: object) -> tuple[Any, Any]:
        """Return the event of a failed delivery for its catch task, and the type of the events."""
        refuse_encoded(raw, "the document of its events")
        (event,) = envelopes(raw)
        if hint in (Any, object):
            return msgspec.json.decode(event.event), self.request
        return self._topic.decode(event.type, event.version, event.event), self.request


class _Name(msgspec.Struct, frozen=True):
    topic: str
    name: str


class SubscriptionHandle:
    """A handle on a subscription in the database, also on one without code in this process.

    ``actor`` is the name in the audit log, by default ``user@host`` of this process. Every method raises
    `redrive.errors.SubscriptionNotFound` if no worker has created the subscription yet.
    """

    def __init__(self, app: AppProtocol, topic: str, name: str) -> None:
        self._place = _Name(topic, name)
        self.app = app

    def __repr__(self) -> str:
        return f"<subscription {topics.task_name(self._place.topic, self._place.name)}>"

    def status(self) -> SubscriptionStatus:
        """Read the position, the lag, and the events that hold others."""
        return _only(self.app.store.run(self._status()), self._place)

    async def astatus(self) -> SubscriptionStatus:
        """Read the position, the lag, and the events that hold others; see `status`."""
        return _only(await self.app.store.arun(self._status()), self._place)

    def _status(self) -> Operation[tuple[SubscriptionStatus, ...]]:
        return lag.status(self._place.topic, self._place.name, now=self.app.now())

    def pause(self, *, actor: str | None = None) -> topics.SubscriptionRecord:
        """Deliver no further event until `resume`; calls that run go on."""
        return self.app.store.run(
            operations.pause(*self._where, actor=actor or self.app.default_actor, now=self.app.now())
        )

    async def apause(self, *, actor: str | None = None) -> topics.SubscriptionRecord:
        """Deliver no further event until `aresume`; see `pause`."""
        return await self.app.store.arun(
            operations.pause(*self._where, actor=actor or self.app.default_actor, now=self.app.now())
        )

    def resume(self, *, actor: str | None = None) -> topics.SubscriptionRecord:
        """End a pause."""
        return self.app.store.run(
            operations.resume(*self._where, actor=actor or self.app.default_actor, now=self.app.now())
        )

    async def aresume(self, *, actor: str | None = None) -> topics.SubscriptionRecord:
        """End a pause; see `resume`."""
        return await self.app.store.arun(
            operations.resume(*self._where, actor=actor or self.app.default_actor, now=self.app.now())
        )

    def move(self, to: topics.Position, *, actor: str | None = None) -> int:
        """Put the cursor at another position, while workers run.

        Failed events that wait for their next attempt are cancelled: from now on the cursor decides what is delivered.

        Args:
            to: ``"beginning"``, ``"end"``, an instant with a time zone, or the id of the first event to deliver.
            actor: for the audit log.

        Returns:
            The number of cancelled deliveries.

        Raises:
            ConfigurationError: the position has none of these forms.
            IllegalMove: the subscription is getting another number of shards.
        """
        return self.app.store.run(self._move(to, actor))

    async def amove(self, to: topics.Position, *, actor: str | None = None) -> int:
        """Put the cursor at another position, while workers run; see `move`."""
        return await self.app.store.arun(self._move(to, actor))

    def _move(self, to: topics.Position, actor: str | None) -> Operation[int]:
        position = checked_position(to)
        return operations.move(*self._where, position, actor=actor or self.app.default_actor, now=self.app.now())

    def preview_move(self, to: topics.Position) -> MovePreview:
        """Return the number of events that `move` to this position would skip, deliver again and cancel.

        Raises:
            ConfigurationError: the position has none of the forms that `move` takes.
        """
        return self.app.store.run(operations.preview(*self._where, checked_position(to)))

    async def apreview_move(self, to: topics.Position) -> MovePreview:
        """Return the number of events that `move` would skip, deliver again and cancel; see `preview_move`."""
        return await self.app.store.arun(operations.preview(*self._where, checked_position(to)))

    def skip(self, event: int | None = None, *, actor: str | None = None) -> topics.DeliveryRecord:
        """End the delivery that holds others: the event is dead with its last error, and those behind it follow.

        Args:
            event: the id of the event; without it the only one that holds others.
            actor: for the audit log.

        Raises:
            IllegalMove: no event holds others, or several do and none is given.
        """
        return self.app.store.run(self._skip(event, actor))

    async def askip(self, event: int | None = None, *, actor: str | None = None) -> topics.DeliveryRecord:
        """End the delivery that holds others; see `skip`."""
        return await self.app.store.arun(self._skip(event, actor))

    def _skip(self, event: int | None, actor: str | None) -> Operation[topics.DeliveryRecord]:
        if event is not None:
            checked_count(event, "the id of an event")
        return operations.skip(*self._where, event, actor=actor or self.app.default_actor, now=self.app.now())

    def redrive(self, *, limit: int | None = None, rate: str | None = None, actor: str | None = None) -> BulkResult:
        """Start dead deliveries again, oldest first, by default all; see `redrive.app.operators.jobs.Jobs.redrive`.

        Unless the subscription was held by them, later events have been delivered: they come out of order.
        """
        return run(self.app.store, self.redriving(limit, rate, actor))

    async def aredrive(
        self, *, limit: int | None = None, rate: str | None = None, actor: str | None = None
    ) -> BulkResult:
        """Start dead deliveries again, oldest first; see `redrive`."""
        return await arun(self.app.store, self.redriving(limit, rate, actor))

    def redriving(self, limit: int | None, rate: str | None, actor: str | None) -> Procedure[BulkResult]:
        """Start dead events again, as the procedure of both methods."""
        found: BulkResult = yield from typing.cast("Any", self.app).jobs.redriving(self._dead(limit), rate, None, actor)
        return found

    def _dead(self, limit: int | None) -> Filter:
        return Filter(
            state=State.DEAD,
            task=topics.task_name(*self._where),
            caught=False,
            skipped=False,
            oldest_first=True,
            limit=limit,
        )

    def reshard(self, shards: int, *, actor: str | None = None) -> topics.SubscriptionRecord:
        """Give the subscription another number of shards, as soon as the present ones have read all events of now.

        Raises:
            ConfigurationError: the number is not positive.
            IllegalMove: the order is strict, or the subscription is getting another number already.
        """
        return self.app.store.run(self._reshard(shards, actor))

    async def areshard(self, shards: int, *, actor: str | None = None) -> topics.SubscriptionRecord:
        """Give the subscription another number of shards; see `reshard`."""
        return await self.app.store.arun(self._reshard(shards, actor))

    def _reshard(self, shards: int, actor: str | None) -> Operation[topics.SubscriptionRecord]:
        number = checked_shards(shards, "the number of shards")
        return operations.reshard(*self._where, number, actor=actor or self.app.default_actor, now=self.app.now())

    def forget(self, *, actor: str | None = None) -> None:
        """Delete the subscription with its cursor; a worker that declares it creates it again when it starts."""
        self.app.store.run(operations.forget(*self._where, actor=actor or self.app.default_actor, now=self.app.now()))

    async def aforget(self, *, actor: str | None = None) -> None:
        """Delete the subscription with its cursor; see `forget`."""
        await self.app.store.arun(
            operations.forget(*self._where, actor=actor or self.app.default_actor, now=self.app.now())
        )

    @property
    def _where(self) -> tuple[str, str]:
        return self._place.topic, self._place.name


def _only(found: tuple[SubscriptionStatus, ...], place: _Name) -> SubscriptionStatus:
    if not found:
        raise operations.unknown(place.topic, place.name)
    return found[0]


def checked_shards(number: Any, what: str) -> int:
    """Return a number of shards: each has a feeder, which reads all events of the topic."""
    if checked_count(number, what) > MOST_SHARDS:
        raise ConfigurationError(f"{what} is at most {MOST_SHARDS}, got {number}")
    return int(number)


def checked_position(to: object) -> topics.Position:
    """Return a position to which a cursor can be moved."""
    if to in ("beginning", "end"):
        return str(to)
    if isinstance(to, datetime):
        if to.utcoffset() is None:
            raise ConfigurationError(f"move(to={to!r}): the instant has no time zone: add tzinfo=UTC")
        return to
    if isinstance(to, int) and not isinstance(to, bool) and 0 < to < 1 << 63:
        return to
    raise ConfigurationError(
        f"move(to=) is 'beginning', 'end', a datetime with a time zone, or the id of an event, got {shown(to)}"
    )


class Subscription(Task[Any, None, Any, Any], SubscriptionHandle):
    """A function that gets the events of a topic, as a subscription; see `Topic.subscribe`.

    Calling it runs the function here and now. The task of the same name runs the jobs of failed events.

    Attributes:
        batch: the most events of one call; None if the function takes a single event.
        at_once: calls at once of each shard.
        definition: the subscription as workers declare it in the database.
    """

    def __init__(
        self,
        app: AppProtocol,
        name: str,
        function: Callable[..., Any],
        options: Options,
        *,
        traits: Traits | None = None,
        topic: TopicReader,
        batch: int | None,
        at_once: int,
        definition: SubscriptionDefinition,
    ) -> None:
        Task.__init__(self, app, name, function, options, traits=traits)
        self._place = _Name(definition.topic, definition.name)
        self.topic = topic
        self.batch = batch
        self.at_once: int = 1 if definition.ordering is topics.Order.STRICT else at_once
        self.definition = definition
        self.signature: SubscriptionSignature = SubscriptionSignature(function, name, topic, batch=batch is not None)
        if definition.types is not None:
            self.signature.only(definition.types)

    @property
    def feeder(self) -> str:
        """The name of the task of its feeders."""
        return topics.feeder_name(self._place.topic, self._place.name)

    def __repr__(self) -> str:
        return f"<subscription {self.name}>"

    def check_types(self) -> None:
        """Check that the function takes the events of the topic, and returns nothing."""
        self.signature.check_types()
