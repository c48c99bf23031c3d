"""A task that refreshes many items, each on a schedule and with retries between planned times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import replace

from redrive.app.arguments import checked_text, only_started
from redrive.app.protocol import AppProtocol
from redrive.app.recurring.refreshes import Refreshes, checked_key
from redrive.app.recurring.schedules import ScheduledTask, Schedules
from redrive.app.tasks.enqueue import Options
from redrive.app.tasks.task import Q, Task, Traits
from redrive.app.types import type_name
from redrive.engine.items import Disabled, TrackedItem
from redrive.engine.recurring import JobTemplate, RefreshDefinition, policy_document
from redrive.errors import TaskDefinitionError
from redrive.retrying import rng
from redrive.schedule import RefreshPolicy
from redrive.stores.operations import schedules
from redrive.stores.operations.refresh import manage
from redrive.stores.operations.refresh.items import MoveResult
from redrive.stores.operations.refresh.manage import NewItem
from redrive.stores.query import Operation

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_Items: TypeAlias = list[tuple[str, Sequence[Any], Mapping[str, Any]]]
"""Keys, arguments by position, and arguments by name."""


class TrackOptions(Generic[P]):
    """The tracking methods of a refresh, under its defaults or under the options of `Refresh.keeping`."""

    def __init__(
        self,
        refresh: Refresh[P, Any, Any, ...],
        own: RefreshPolicy | None = None,
        *,
        at_once: bool = True,
        using: Any = None,
    ) -> None:
        self._refresh = refresh
        self._own = None if own is None else policy_document(own)
        self._at_once = at_once
        self._using = using

    def track(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Track an item from now on, and start its first attempt.

        An item that is tracked already gets these arguments from its next attempt on, and the policy of the refresh
        unless `Refresh.keeping` has another. Nothing is started then; see `Refresh.update`.

        Args:
            key: any text of up to 2000 bytes.
            *args: the arguments of the attempts, as for the function, without its context.
            **kwargs: likewise.

        Returns:
            True if the item is new.

        Raises:
            PayloadError: the arguments do not match the annotations, or cannot be stored.
            ConfigurationError: the key is empty or too long, or has a zero byte.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat the call.
        """
        return bool(self._store_items([(key, args, kwargs)]))

    async def atrack(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Track an item from now on; see `track`."""
        return bool(await self._astore_items([(key, args, kwargs)]))

    def track_many(self, items: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        """Track many items, all or none.

        Args:
            items: tuples of a key and the arguments by position.

        Returns:
            The keys of the new items.

        Raises:
            PayloadError: arguments do not match the annotations, or cannot be stored; nothing is tracked then.
            ConfigurationError: a key is empty or too long, or has a zero byte.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat the call.
        """
        return self._store_items([(key, args, {}) for key, *args in items])

    async def atrack_many(self, items: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        """Track many items, all or none; see `track_many`."""
        return await self._astore_items([(key, args, {}) for key, *args in items])

    def _store_items(self, items: _Items) -> frozenset[str]:
        return self._refresh.app.store.run(self._tracking(items), using=self._using)

    async def _astore_items(self, items: _Items) -> frozenset[str]:
        return await self._refresh.app.store.arun(self._tracking(items), using=self._using)

    def _tracking(self, items: _Items) -> Operation[frozenset[str]]:
        refresh = self._refresh
        refresh.app.check()
        new = [NewItem(checked_key(key), refresh.signature.write(tuple(args), kwargs)) for key, args, kwargs in items]
        definition, now = refresh.definition, refresh.app.now()
        operation = manage.track(definition, new, iter(rng.roll, None), own=self._own, at_once=self._at_once, now=now)
        return replace(operation, before=schedules.introduce(definition, now=now))


class Refresh(ScheduledTask[P, R, C, Q], TrackOptions[P], Generic[P, R, C, Q]):
    """A task that refreshes tracked items; see `redrive.App.refresh`.

    Each item has a key, and arguments for its attempts. Calling the task runs the function here and now, and `enqueue`
    inserts a job that is no attempt at an item.

    `TrackOptions` describes the methods that add items. ``actor`` is the name in the audit log, by default
    ``user@host`` of this process.
    """

    def __init__(
        self,
        app: AppProtocol,
        name: str,
        function: Callable[Q, C],
        options: Options,
        *,
        traits: Traits | None = None,
        refresh: RefreshPolicy,
        on_disabled: Task[Any, Any, Any] | str | None,
    ) -> None:
        super().__init__(app, name, function, options, traits=traits)
        TrackOptions.__init__(self, self)
        # A strategy without a name must fail here, not where a worker declares the refresh.
        policy_document(refresh)
        self.refresh_policy = refresh
        self._schedules = Schedules(app)
        self._items = Refreshes(app)
        self._on_disabled = on_disabled.name if isinstance(on_disabled, Task) else on_disabled
        if self._on_disabled is not None:
            checked_text(self._on_disabled, f"refresh {name!r}: on_disabled, a task or its name,")
        self._made = JobTemplate(name, options.queue, options.priority, options.policy)

    @property
    def definition(self) -> RefreshDefinition:
        """The schedule as workers declare it in the database."""
        return RefreshDefinition(self.name, self.refresh_policy, self._made, self._notified())

    def _notified(self) -> JobTemplate | None:
        """Check the task of ``on_disabled``, and return how its jobs are made."""
        if self._on_disabled is None:
            return None
        task: Task[Any, Any, Any] | None = self.app.find(self._on_disabled)
        if task is None:
            known = ", ".join(sorted(self.app.tasks))
            raise TaskDefinitionError(
                f"refresh {self.name!r}: on_disabled={self._on_disabled!r}, but there is no such task; "
                f"known tasks: {known or 'none'}"
            )
        if task.is_workflow:
            raise TaskDefinitionError(
                f"refresh {self.name!r}: on_disabled={task.name!r}: {only_started(task.name)}; "
                "name a task that calls that"
            )
        taken = task.signature.payload
        if len(taken) != 1 or task.signature.hints.get(taken[0]) is not Disabled:
            found = ", ".join(f"{each}: {type_name(task.signature.hints.get(each, Any))}" for each in taken)
            raise TaskDefinitionError(
                f"refresh {self.name!r}: on_disabled={task.name!r} must take exactly one redrive.Disabled "
                f"(and a Context, if needed), but it takes {found or 'nothing'}"
            )
        options = task.defaults
        return JobTemplate(task.name, options.queue, options.priority, options.policy, taken[0])

    def check(self) -> None:
        """Check that the tasks that it names exist and fit; see `redrive.App.check`."""
        super().check()
        self._notified()

    def keeping(
        self, *, policy: RefreshPolicy | str | None = None, at_once: bool = True, using: Any = None
    ) -> TrackOptions[P]:
        """Return the tracking methods under other options than the defaults.

        Args:
            policy: the policy of these items, for example as the user of an application typed it. Items without one
                have the policy of the refresh, and follow it when the code changes.
            at_once: start new items now, not at their next planned refresh.
            using: your own connection to the same database; the items are tracked if and only if its transaction
                commits. On PostgreSQL the ``a`` methods take an asynchronous connection.

        Raises:
            ScheduleSyntaxError: the policy cannot be parsed; the error has the line and the column.
            ScheduleError: the policy has a function without a name, which cannot be stored.
        """
        own = RefreshPolicy.parse(policy) if isinstance(policy, str) else policy
        return TrackOptions(self, own, at_once=at_once, using=using)

    def untrack(self, key: str, *, using: Any = None) -> bool:
        """Stop tracking an item and cancel its running attempt; return True if it was tracked.

        With ``using``, your own connection, the change becomes a part of its transaction.
        """
        return self._items.untrack(self.name, key, using=using)

    async def auntrack(self, key: str, *, using: Any = None) -> bool:
        """Stop tracking an item; see `untrack`."""
        return await self._items.auntrack(self.name, key, using=using)

    def update(self, key: str, *, at_once: bool = True, using: Any = None) -> MoveResult:
        """Begin anew with an item that was changed: enable it if it was disabled, and forget its failures.

        A running attempt is cancelled, because it refreshes the item as it was before the change.

        An attempt starts now, or at the next planned refresh if ``at_once`` is False. With ``using``, your own
        connection, the change becomes a part of its transaction. Return the outcome, with the job that was started.

        Raises:
            NotTracked: there is no such item.
        """
        return self._items.update(self.name, key, at_once=at_once, using=using)

    async def aupdate(self, key: str, *, at_once: bool = True, using: Any = None) -> MoveResult:
        """Begin anew with an item that was changed; see `update`."""
        return await self._items.aupdate(self.name, key, at_once=at_once, using=using)

    def trigger(self, key: str, *, actor: str | None = None) -> MoveResult:
        """Start an attempt at an item now, due or not, paused or not. A running attempt is superseded.

        Return STARTED, with the job; or DISABLED, and then nothing has changed.

        Raises:
            NotTracked: there is no such item.
        """
        return self._items.trigger(self.name, key, actor=actor)

    async def atrigger(self, key: str, *, actor: str | None = None) -> MoveResult:
        """Start an attempt at an item now; see `trigger`."""
        return await self._items.atrigger(self.name, key, actor=actor)

    def pause(self, key: str | None = None, *, actor: str | None = None) -> None:
        """Start no attempt at an item, or at any item without a key, until `resume`. Running attempts may finish.

        Raises:
            NotTracked: there is no such item.
            ScheduleNotFound: nothing was ever tracked, and no worker has declared the refresh.
        """
        if key is None:
            self._schedules.pause(self.name, actor=actor)
        else:
            self._items.pause(self.name, key, actor=actor)

    async def apause(self, key: str | None = None, *, actor: str | None = None) -> None:
        """Start no attempt at an item, or at any item, until `aresume`; see `pause`."""
        if key is None:
            await self._schedules.apause(self.name, actor=actor)
        else:
            await self._items.apause(self.name, key, actor=actor)

    def resume(self, key: str | None = None, *, actor: str | None = None) -> None:
        """End a pause. Refreshes that were planned during the pause are skipped; a retry that became due is started.

        Raises:
            NotTracked: there is no such item.
            ScheduleNotFound: nothing was ever tracked, and no worker has declared the refresh.
        """
        if key is None:
            self._schedules.resume(self.name, actor=actor)
        else:
            self._items.resume(self.name, key, actor=actor)

    async def aresume(self, key: str | None = None, *, actor: str | None = None) -> None:
        """End a pause; see `resume`."""
        if key is None:
            await self._schedules.aresume(self.name, actor=actor)
        else:
            await self._items.aresume(self.name, key, actor=actor)

    def get(self, key: str) -> TrackedItem:
        """Read the row of an item.

        Raises:
            NotTracked: there is no such item.
        """
        return self._items.get(self.name, key)

    async def aget(self, key: str) -> TrackedItem:
        """Read the row of an item; see `get`."""
        return await self._items.aget(self.name, key)

    def tracked(self, *, after: str = "", limit: int = 100, troubled: bool = False) -> tuple[TrackedItem, ...]:
        """Read a page of items by their keys: rows, without the arguments.

        Args:
            after: only larger keys, such as the last one of the previous page.
            limit: the largest number of items.
            troubled: only disabled items, and items with a failed last attempt.
        """
        return self._items.select(self.name, after=after, limit=limit, troubled=troubled)

    async def atracked(self, *, after: str = "", limit: int = 100, troubled: bool = False) -> tuple[TrackedItem, ...]:
        """Read a page of items by their keys; see `tracked`."""
        return await self._items.aselect(self.name, after=after, limit=limit, troubled=troubled)
