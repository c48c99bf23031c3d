"""Topics: publish events, and subscribe functions to them."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from redrive.app.arguments import checked_count, checked_function, checked_text, shown
from redrive.app.attempts.effects import joined
from redrive.app.payload import NOT_DECODED, check_document, dec_hook, enc_hook, find_loss
from redrive.app.protocol import AppProtocol
from redrive.app.topics.subscription import Subscription, checked_shards
from redrive.app.types import change, may_lose, type_name, unsupported
from redrive.engine.frozen import freeze
from redrive.engine.records import ENCODED
from redrive.engine.topics import (
    AT_ONCE,
    TO_TOPIC,
    Dead,
    NewTopicEvent,
    Order,
    Position,
    Publish,
    TopicEvent,
    task_name,
)
from redrive.errors import ConfigurationError, PayloadError, TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.seams import spelled
from redrive.stores.operations import events
from redrive.stores.operations.topics.subscriptions import SubscriptionDefinition
from redrive.stores.query import Operation

E = TypeVar("E")
C = TypeVar("C", bound=StrEnum)
Upcast: TypeAlias = Callable[[Any], Any]
U = TypeVar("U", bound=Upcast)

_SEPARATORS = "/#@"

#: The most events that one delivery takes.
MOST = 10_000

#: The policy of feeders, which never give up.
FEEDING = "1000000000 1s 1m"


class Registrar(Protocol):
    """The part of the registry of an app that topics use."""

    def subscription(self, function: Callable[..., Any], **settings: object) -> Subscription:
        """Register a function as a subscription."""


class Retention(msgspec.Struct, frozen=True):
    """How long the events of a topic are kept.

    Attributes:
        keep_for: the time; None for ever.
        keep_bytes: the size of the newest events that are kept; None for any.
    """

    keep_for: timedelta | None = None
    keep_bytes: int | None = None


class Topic(Generic[E]):
    """A stream of events that are kept, and read by subscriptions.

    Each subscription gets every event at least once after the transaction of its publisher has committed. Publishing
    costs the same with any number of subscriptions.

    `redrive.App.topic` makes it.
    """

    def __init__(
        self, app: AppProtocol, registry: Registrar, name: str, hint: object, *, version: int = 1, keep: Retention
    ) -> None:
        self.app = app
        self.name: str = _checked_name(name, "the name of a topic")
        self.hint = hint
        self.version: int = checked_count(version, f"topic {name!r}: version")
        self.keep = keep
        self.subscriptions: dict[str, Subscription] = {}
        self.registry = registry
        self._upcasts: dict[tuple[int, str | None], Upcast] = {}

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    # ---------------------------------------------------------------- types

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The types of its events by name; a union has several."""
        parts = typing.get_args(self.hint) if _is_union(self.hint) else (self.hint,)
        found: dict[str, Any] = {}
        for part in parts:
            problem = unsupported(part)
            if problem:
                raise TaskDefinitionError(f"topic {self.name!r}: its events cannot be stored: {problem}")
            name = name_of(part)
            if name in found:
                raise TaskDefinitionError(
                    f"topic {self.name!r}: two of its types are called {name!r}, and events are stored by the name of "
                    "their type: rename one"
                )
            found[name] = part
        return found

    @cached_property
    def _losing(self) -> frozenset[str]:
        return frozenset(name for name, part in self.types.items() if may_lose(part))

    @cached_property
    def _decoders(self) -> Mapping[str, msgspec.json.Decoder[Any]]:
        return {name: msgspec.json.Decoder(part, dec_hook=dec_hook) for name, part in self.types.items()}

    @spelled("@topic.upcast", "@topic.upcast(1)")
    def upcast(self, version: int, *, type: type | None = None) -> Callable[[U], U]:  # noqa: A002 - the word of users
        """Register a function that turns the data of an event of an older version into that of the next version.

        Events stay in the database as they were published. When one of an older version is delivered, the functions of
        its version and of the following ones are applied to its data, in order. A version without a function needs no
        change.

        Args:
            version: the older version; smaller than that of the topic.
            type: the type of the events, if the topic has several; by default all.

        Returns:
            A decorator for a function that takes the data as JSON has it, and returns that of the next version.

        Raises:
            TaskDefinitionError: the topic has no later version, or the version has such a function already.
        """
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < self.version:
            raise TaskDefinitionError(
                f"topic {self.name!r} has version {self.version}: upcast() takes an older one, from 1 on, got "
                f"{shown(version)}"
            )
        key = (version, None if type is None else name_of(type))
        if key[1] is not None and key[1] not in self.types:
            raise TaskDefinitionError(
                f"topic {self.name!r} has no events of the type {key[1]}; it has {', '.join(self.types)}"
            )
        if key in self._upcasts:
            raise TaskDefinitionError(f"topic {self.name!r} has two functions that upcast version {version}")

        def register(function: U) -> U:
            checked_function(function, "function that upcasts", f"@topic.upcast({version}) above a function")
            self._upcasts[key] = function
            return function

        return register

    def problem(self, event: TopicEvent) -> str | None:
        """Return why this code cannot read an event that other code may be able to read; None if it can."""
        if event.version > self.version:
            return (
                f"event {event.id} has version {event.version}, and this code has version {self.version} of the topic"
            )
        if event.payload is not None and event.payload.startswith(ENCODED):
            return f"event {event.id} is encoded, and this process cannot decode it: {NOT_DECODED}"
        if event.type not in self.types:
            known = ", ".join(sorted(self.types))
            return f"event {event.id} has the type {event.type}, and the topic has here only {known}"
        return None

    def decode(self, type_: str, version: int, raw: bytes | msgspec.Raw) -> E:
        """Return an event as the present code has it; raise `PayloadError` if it does not fit."""
        decoder = self._decoders.get(type_)
        if decoder is None or version > self.version:
            raise PayloadError(f"an event of the type {type_}, version {version}, is unknown to this code")
        try:
            steps = [
                step
                for each in range(version, self.version)
                for step in (self._upcasts.get((each, type_)) or self._upcasts.get((each, None)),)
                if step is not None
            ]
            if not steps:
                return decoder.decode(raw)  # type: ignore[no-any-return]
            data = msgspec.json.decode(raw)
            for step in steps:
                data = step(data)
            return decoder.decode(msgspec.json.encode(data, enc_hook=enc_hook))  # type: ignore[no-any-return]
        except Exception as error:
            # An upcast is the user's and may raise anything.
            raise PayloadError(f"an event does not match {type_}, version {self.version}: {error}") from error

    # ---------------------------------------------------------------- publish

    def publish(self, event: E, *, key: str | None = None, using: object = None, immediate: bool = False) -> None:
        """Publish an event.

        Inside the handler of a job, without ``using``, it is published when the attempt succeeds, in the same
        transaction; an attempt that fails publishes nothing.

        Args:
            event: of the type of the topic.
            key: events with the same key are delivered in order by subscriptions with ``order="key"``.
            using: your own connection to the same database; the event exists if and only if its transaction commits.
                On PostgreSQL the transaction notifies workers, so that ``PREPARE TRANSACTION`` refuses it, unless the
                URL of the store has ``notify=off``.
            immediate: publish at once also in a handler, whatever becomes of its attempt.

        Raises:
            PayloadError: the event is not of the type of the topic, or cannot be stored.
            ConfigurationError: the key is empty or too long.
            OutcomeUnknown: the answer to the commit was lost, and the event may have been published.
            StoreError: the database refused, or cannot be reached; nothing was published.
        """
        operation = self._publishing([self._new(event, key)], using, immediate=immediate)
        if operation is not None:
            self.app.store.run(operation, using=using)

    async def apublish(
        self, event: E, *, key: str | None = None, using: object = None, immediate: bool = False
    ) -> None:
        """Publish an event; see `publish`. On PostgreSQL ``using`` takes an asynchronous connection."""
        operation = self._publishing([self._new(event, key)], using, immediate=immediate)
        if operation is not None:
            await self.app.store.arun(operation, using=using)

    def publish_many(
        self,
        events: Iterable[E],
        *,
        key: Callable[[E], str | None] | None = None,
        using: object = None,
        immediate: bool = False,
    ) -> None:
        """Publish events in this order, all or none; see `publish`.

        Args:
            events: of the type of the topic.
            key: a function that returns the key of an event, or None.
            using: your own connection, as for `publish`.
            immediate: as for `publish`.

        Raises:
            PayloadError: an event is not of the type of the topic, or cannot be stored; its place is named.
            ConfigurationError: ``events`` is a single event, or a key is empty, too long or no text.
        """
        operation = self._publishing(self._many(events, key), using, immediate=immediate)
        if operation is not None:
            self.app.store.run(operation, using=using)

    async def apublish_many(
        self,
        events: Iterable[E],
        *,
        key: Callable[[E], str | None] | None = None,
        using: object = None,
        immediate: bool = False,
    ) -> None:
        """Publish events in this order, all or none; see `publish_many`."""
        operation = self._publishing(self._many(events, key), using, immediate=immediate)
        if operation is not None:
            await self.app.store.arun(operation, using=using)

    def _many(self, given: Iterable[E], key: Callable[[E], str | None] | None) -> list[NewTopicEvent]:
        if key is not None and not callable(key):
            raise ConfigurationError(f"publish_many(key=) is a function of an event, got {shown(key)}")
        if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
            raise ConfigurationError(
                f"topic {self.name!r}: publish_many() takes a list of events, got {shown(given)}; "
                "publish() takes one event"
            )
        new = []
        for place, event in enumerate(given):
            try:
                new.append(self._new(event, None if key is None else key(event)))
            except PayloadError as error:
                raise PayloadError(f"event {place}: {error}") from error
        return new

    def _new(self, event: E, key: str | None) -> NewTopicEvent:
        if key is not None:
            checked_text(key, f"topic {self.name!r}: the key of an event")
        name = self._type_of(event)
        try:
            raw = msgspec.json.encode(event, enc_hook=enc_hook)
            arrived = self._decoders[name].decode(raw)
        except Exception as error:
            # Serialisers and validators are the user's and may raise anything.
            raise PayloadError(f"topic {self.name!r}: the event {shown(event)} cannot be stored: {error}") from error
        kind = self.types[name]
        found = change(kind, event, arrived) or (find_loss(kind, raw, arrived) if name in self._losing else None)
        if found is not None:
            raise PayloadError(f"topic {self.name!r}: the event {shown(event)} would not arrive as it is: {found}")
        check_document(raw, f"topic {self.name!r}: the event", self.app.max_payload)
        return NewTopicEvent(self.name, raw, name, self.version, key)

    def _type_of(self, event: E) -> str:
        for name, part in self.types.items():
            origin = typing.get_origin(part) or part
            if origin in (Any, object) or (isinstance(origin, type) and isinstance(event, origin)):
                return name
            if not isinstance(origin, type) and len(self.types) == 1:
                return name
        expected = " or ".join(type_name(part) for part in self.types.values())
        raise PayloadError(
            f"topic {self.name!r} takes events of the type {expected}, got {type_name(type(event))}: {shown(event)}"
        )

    def _publishing(self, new: list[NewTopicEvent], using: object, *, immediate: bool) -> Operation[None] | None:
        """Return the operation that publishes; None if the attempt that runs here publishes at its end."""
        if not new:
            return None
        effects = None if using is not None or immediate else joined(self.app)
        if effects is None:
            return events.publish(new, now=self.app.now())
        effects.add(*map(Publish, new))
        return None

    # ---------------------------------------------------------------- subscribe

    @spelled("@topic.subscribe", '@topic.subscribe("mail")')
    def subscribe(
        self,
        name: str,
        *,
        retry: Policy | str | None = None,
        order: Literal["strict", "key", "none"] = "strict",
        start: Literal["beginning", "latest"] | datetime = "beginning",
        batch: int | None = None,
        at_once: int | None = None,
        types: Iterable[type] | None = None,
        dead: str = "continue",
        shards: int = 1,
        timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        idempotent: bool | None = None,
        keep_for: Duration | None = None,
        search: Iterable[str] = (),
    ) -> Callable[[Callable[..., Coroutine[Any, Any, None] | None]], Subscription]:
        """Register a function that gets every event of the topic, as a subscription with a cursor of its own.

        The function takes the event, or a list of events with ``batch``, and if needed a `redrive.Context`. A failed
        event becomes a job with the policy and the catch task of the subscription. A worker creates the subscription
        when it first starts with this code.

        Args:
            name: unique in the topic. The task is called ``<topic>.<name>``, and so is its queue.
            retry: a directive such as ``"5 1s catch recover"`` or a `Policy`; without it a failure is final.
            order: ``"strict"``: one event after the other; a failed one holds those behind it until it has succeeded or
                is dead. ``"key"``: the same for the events of each key, while different keys are delivered at once.
                ``"none"``: at once, in any order.
            start: where a new subscription begins: at the ``"beginning"``, after the ``"latest"`` event, or at an
                instant with a time zone.
            batch: the most events of one call, which then takes a list; ``ctx.fail(event)`` marks single ones as
                failed.
            at_once: calls at once of each shard, 10 by default; not with ``"strict"``.
            types: only events of these types.
            dead: ``"continue"`` delivers the events behind a dead one; ``"hold"`` stops the subscription, or with
                ``order="key"`` the key, until the dead event is redriven or skipped; ``"topic:failed"`` delivers those
                behind it, and publishes the dead one with its error to the topic ``failed`` of this app, as a
                `redrive.DeadLetter`.
            shards: feeders that share the events by key, each in one worker; ``redrive topics reshard`` changes the
                number later.
            timeout: the time limit of a call, by default an hour.
            soft_timeout: as for `redrive.App.task`.
            idempotent: as for `redrive.App.task`, for the jobs of failed events.
            keep_for: how long the jobs of failed events are kept after they ended; by default as for the app.
            search: as for `redrive.App.task`: fields of the events, by which the jobs of failed ones are found.

        Raises:
            TaskDefinitionError: the function takes another type, or returns something; the name is taken; or options
                contradict each other.
            PolicyError: the directive cannot be read.
            ConfigurationError: an option has no valid value.
        """
        label = task_name(self.name, _checked_name(name, f"topic {self.name!r}: the name of a subscription"))
        ordering = _chosen(Order, order, f"subscription {label!r}: order")
        _check_order(label, ordering, dead, is_shared=at_once is not None or shards != 1)
        if batch is not None and checked_count(batch, f"subscription {label!r}: batch") > MOST:
            raise ConfigurationError(f"subscription {label!r}: batch is at most {MOST}, got {batch}")
        settings = {
            "batch": batch,
            "at_once": AT_ONCE if at_once is None else checked_count(at_once, f"subscription {label!r}: at_once"),
            "definition": self._definition(name, ordering, dead, types, shards, start),
        }

        def register(function: Callable[..., Any]) -> Subscription:
            if isinstance(function, Subscription):
                raise TaskDefinitionError(
                    f"{function.name!r} is a subscription already, and one function is one: make another function"
                )
            return self.registry.subscription(
                function,
                topic=self,
                label=label,
                retry=retry,
                timeout=timeout,
                soft_timeout=soft_timeout,
                idempotent=idempotent,
                keep_for=keep_for,
                search=search,
                **settings,
            )

        return register

    def _definition(  # noqa: PLR0917 - the settings of a subscription
        self, name: str, order: Order, dead: str, wanted: Iterable[type] | None, shards: int, start: object
    ) -> SubscriptionDefinition:
        label = task_name(self.name, name)
        dead_topic = _dead_topic(dead, label)
        taken: tuple[str, ...] | None = None
        if wanted is not None:
            if isinstance(wanted, type | str) or not isinstance(wanted, Iterable):
                raise ConfigurationError(
                    f"subscription {label!r}: types= is a list of types of the topic, got {shown(wanted)}"
                )
            taken = tuple(dict.fromkeys(name_of(each) for each in wanted))
            missing = [each for each in taken if each not in self.types]
            if missing or not taken:
                raise ConfigurationError(
                    f"subscription {label!r}: types= has {', '.join(missing) or 'no type'}, and the topic has "
                    f"{', '.join(self.types)}"
                )
        return SubscriptionDefinition(
            topic=self.name,
            name=name,
            ordering=order,
            dead=Dead.CONTINUE if dead_topic else _chosen(Dead, dead, f"subscription {label!r}: dead"),
            dead_topic=dead_topic,
            types=taken,
            shards=checked_shards(shards, f"subscription {label!r}: shards"),
            start=checked_start(start, label),
            policy=freeze(Policy.parse(FEEDING).durable().with_(attempt_timeout="36500d")),
        )


def checked_start(start: object, label: str) -> Position:
    """Return where a new subscription begins."""
    if start in ("beginning", "latest"):
        return str(start)
    if isinstance(start, datetime):
        if start.utcoffset() is None:
            raise ConfigurationError(f"subscription {label!r}: start={start!r} has no time zone: add tzinfo=UTC")
        return start
    raise ConfigurationError(
        f"subscription {label!r}: start is 'beginning', 'latest' or a datetime with a time zone, got {shown(start)}"
    )


def name_of(kind: object) -> str:
    """Return the name under which events of a type are stored."""
    origin = typing.get_origin(kind) or kind
    return getattr(origin, "__name__", None) or str(origin)


def _chosen(kind: type[C], value: Any, what: str) -> C:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(each)) for each in kind)
        if kind is Dead:
            known += f", '{TO_TOPIC}...'"
        raise ConfigurationError(f"{what} is one of {known}, got {shown(value)}") from None


def _is_union(hint: object) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _dead_topic(dead: object, label: str) -> str | None:
    """Return the topic to which dead events are published; None if they are not."""
    if not isinstance(dead, str) or not dead.startswith(TO_TOPIC):
        return None
    return _checked_name(dead.removeprefix(TO_TOPIC), f"subscription {label!r}: the topic in dead=")


def _check_order(label: str, order: Order, dead: str, *, is_shared: bool) -> None:
    """Check that options fit the order of a subscription."""
    if order is Order.STRICT and is_shared:
        raise TaskDefinitionError(
            f"subscription {label!r}: with order='strict' events are delivered one after the other: leave out "
            "at_once= and shards=, or give order='key' or order='none'"
        )
    if order is Order.NONE and dead == "hold":
        raise TaskDefinitionError(
            f"subscription {label!r}: with order='none' no event waits for another: leave out dead='hold', or give "
            "order='key' or order='strict'"
        )


def _checked_name(name: object, what: str) -> str:
    text = checked_text(name, what)
    if any(each in text for each in _SEPARATORS) or not text.strip():
        raise ConfigurationError(f"{what} must not contain any of {' '.join(_SEPARATORS)}, got {shown(name)}")
    return text
