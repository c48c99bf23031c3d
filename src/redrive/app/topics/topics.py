"""The topics of an App, as ``app.topics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redrive.app.arguments import checked_text, shown
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.topics.subscription import Subscription, SubscriptionHandle
from redrive.app.topics.topic import Topic
from redrive.engine.queue import QueueChange
from redrive.engine.topics import Order, Shard, task_name
from redrive.errors import ConfigurationError
from redrive.policy.duration import Duration
from redrive.policy.fields import span
from redrive.stores.operations import queues
from redrive.stores.operations.topics import cluster, lag, retention, subscriptions
from redrive.stores.operations.topics.lag import SubscriptionStatus
from redrive.stores.operations.topics.retention import Pruned, TopicSize
from redrive.stores.query import Operation


class Topics:
    """The topics of an App and their subscriptions, as ``app.topics``."""

    def __init__(self, app: AppProtocol, declared: Mapping[str, Topic[Any]]) -> None:
        self._app = app
        self.declared = declared
        """The topics of the code, by name."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """The subscriptions of the code, by the names of their tasks."""
        return {each.name: each for each in self._subscriptions()}

    def _subscriptions(self) -> Iterator[Subscription]:
        for topic in tuple(self.declared.values()):
            yield from tuple(topic.subscriptions.values())

    def fed_by(self, task: str) -> Subscription | None:
        """Return the subscription with feeders that have a task of this name; None if there is none."""
        return next((each for each in self._subscriptions() if each.feeder == task), None)

    def subscription(self, topic: str, name: str) -> SubscriptionHandle:
        """Return a handle on a subscription by its names, also on one without code in this process."""
        place = checked_text(topic, "the name of a topic"), checked_text(name, "the name of a subscription")
        return SubscriptionHandle(self._app, *place)

    def declare(self) -> None:
        """Create the subscriptions of the code that do not exist yet; a worker does this when it starts.

        Raises:
            TopicsRestored: the database was restored from a dump of another server.
        """
        run(self._app.store, self._declare())

    async def adeclare(self) -> None:
        """Create the subscriptions of the code that do not exist yet; see `declare`."""
        await arun(self._app.store, self._declare())

    def _declare(self) -> Procedure[None]:
        definitions = [each.definition for each in self._subscriptions()]
        if not definitions:
            return
        by_key = [each for each in definitions if each.ordering is Order.KEY]
        if by_key:
            # The jobs of the failed events of a key run one after the other.
            ordered = {task_name(each.topic, each.name): QueueChange(ordered=True) for each in by_key}
            yield queues.declare(ordered, now=self._app.now())
        yield subscriptions.declare(definitions, now=self._app.now())

    def select(self, topic: str | None = None) -> tuple[SubscriptionStatus, ...]:
        """Read the subscriptions of a topic, or of all: positions, lag, and events that hold others."""
        return self._app.store.run(lag.status(topic, now=self._app.now()))

    async def aselect(self, topic: str | None = None) -> tuple[SubscriptionStatus, ...]:
        """Read the subscriptions of a topic, or of all; see `select`."""
        return await self._app.store.arun(lag.status(topic, now=self._app.now()))

    def sizes(self) -> tuple[TopicSize, ...]:
        """Read the topics that have events or subscriptions, by name."""
        return self._app.store.run(retention.topics())

    async def asizes(self) -> tuple[TopicSize, ...]:
        """Read the topics that have events or subscriptions; see `sizes`."""
        return await self._app.store.arun(retention.topics())

    def prune(
        self,
        topic: str,
        *,
        keep_for: Duration | None = None,
        keep_bytes: int | None = None,
        force: bool = False,
        actor: str | None = None,
    ) -> Pruned:
        """Delete a batch of the oldest events of a topic, of those that every subscription has read.

        Args:
            topic: its name.
            keep_for: delete what is older: a ``timedelta``, seconds, or text.
            keep_bytes: delete what the topic has beyond so many bytes of events.
            force: also events that subscriptions have not read; they are then `behind` by that number.
            actor: for the audit log.

        Raises:
            ConfigurationError: neither a time nor a size is given.
        """
        return self._app.store.run(self._prune(topic, keep_for, keep_bytes, actor, force=force))

    async def aprune(
        self,
        topic: str,
        *,
        keep_for: Duration | None = None,
        keep_bytes: int | None = None,
        force: bool = False,
        actor: str | None = None,
    ) -> Pruned:
        """Delete a batch of the oldest events of a topic; see `prune`."""
        return await self._app.store.arun(self._prune(topic, keep_for, keep_bytes, actor, force=force))

    def _prune(
        self, topic: str, keep_for: Duration | None, keep_bytes: int | None, actor: str | None, *, force: bool
    ) -> Operation[Pruned]:
        if keep_for is None and keep_bytes is None:
            raise ConfigurationError("prune() takes keep_for= or keep_bytes=: what is beyond it is deleted")
        if keep_bytes is not None and (
            isinstance(keep_bytes, bool) or not isinstance(keep_bytes, int) or keep_bytes < 0
        ):
            raise ConfigurationError(f"prune(keep_bytes=) is a whole number, zero or more, got {shown(keep_bytes)}")
        if not isinstance(force, bool):
            raise ConfigurationError(f"prune(force=) is True or False, got {shown(force)}")
        return retention.prune(
            checked_text(topic, "the name of a topic"),
            keep_for=None if keep_for is None else span(keep_for, "keep_for"),
            keep_bytes=keep_bytes,
            force=force,
            actor=actor or self._app.default_actor,
            now=self._app.now(),
        )

    def rebase(self, *, actor: str | None = None) -> tuple[tuple[Shard, int | None], ...]:
        """Repair the cursors after the database was restored from a dump of another server.

        Events may be delivered again; none is skipped. Workers must not run.

        Returns:
            The shards as they were, each with the first event that is delivered; None if there is none.
        """
        return self._app.store.run(cluster.rebase(actor=actor or self._app.default_actor, now=self._app.now()))

    async def arebase(self, *, actor: str | None = None) -> tuple[tuple[Shard, int | None], ...]:
        """Repair the cursors after a restore; see `rebase`."""
        return await self._app.store.arun(cluster.rebase(actor=actor or self._app.default_actor, now=self._app.now()))
