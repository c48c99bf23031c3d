"""A task that keeps many things fresh, each on its schedule and with its retries (seed 004)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from redrive.app.local_call import Traits
from redrive.app.payload import type_name
from redrive.app.protocol import AppProtocol
from redrive.app.task import Options, Task
from redrive.engine.items import Disabled, TrackedItem
from redrive.engine.recurring import JobTemplate, RefreshDefinition, policy_document
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.retrying import rng
from redrive.schedule import RefreshPolicy
from redrive.stores.operations import schedules
from redrive.stores.operations.refresh import manage, read
from redrive.stores.operations.refresh.manage import NewItem
from redrive.stores.operations.refresh.write import MoveResult
from redrive.stores.query import Operation

__all__ = ["Refresh", "TrackOptions"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

KEY_BYTES = 2000
"""An index of PostgreSQL takes hardly more, together with the name of the refresh."""

SHOWN = 60
"""Characters of a bad key that a message shows."""

_Things: TypeAlias = list[tuple[str, Sequence[Any], Mapping[str, Any]]]
"""Keys, arguments by position, and arguments by name."""


class TrackOptions(Generic[P]):
    """The forms of keeping things fresh, under some options; see `Refresh.keeping`.

    Args:
        refresh: whose things.
        own: the policy of the things; None means that of the refresh.
        at_once: start new things now, or at their next planned refresh?
        using: the user's own connection.
    """

    def __init__(
        self,
        refresh: Refresh[P, Any, Any],
        own: RefreshPolicy | None = None,
        *,
        at_once: bool = True,
        using: Any = None,  # noqa: ANN401 - a connection of any library
    ) -> None:
        self._refresh = refresh
        self._own = None if own is None else policy_document(own)
        self._at_once = at_once
        self._using = using

    def track(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Keep a thing fresh; see `Refresh.track`."""
        return bool(self._run([(key, args, kwargs)]))

    async def atrack(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Keep a thing fresh; see `Refresh.track`."""
        return bool(await self._arun([(key, args, kwargs)]))

    def track_many(self, things: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        """Keep many things fresh, all or none; see `Refresh.track_many`."""
        return self._run([(key, args, {}) for key, *args in things])

    async def atrack_many(self, things: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        """Keep many things fresh, all or none; see `Refresh.track_many`."""
        return await self._arun([(key, args, {}) for key, *args in things])

    def _run(self, things: _Things) -> frozenset[str]:
        return self._refresh.app.store.run(self._operation(things), using=self._using)

    async def _arun(self, things: _Things) -> frozenset[str]:
        return await self._refresh.app.store.arun(self._operation(things), using=self._using)

    def _operation(self, things: _Things) -> Operation[frozenset[str]]:
        refresh = self._refresh
        refresh.app.check()
        wanted = [NewItem(_key(key), refresh.signature.write(tuple(args), kwargs)) for key, args, kwargs in things]
        definition, now = refresh.definition, refresh.app.now()
        operation = manage.track(
            definition, wanted, iter(rng.roll, None), own=self._own, at_once=self._at_once, now=now
        )
        return replace(operation, before=schedules.introduce(definition, now=now))


class Refresh(Task[P, R, C], Generic[P, R, C]):
    """A task that is run to keep things fresh; see `redrive.App.refresh`.

    Each *thing* has a key, and arguments that its attempts get. Calling the task runs the function here and now, and
    `enqueue` makes a job that is no attempt at anything.
    """

    def __init__(  # noqa: PLR0913 - a task, and what makes it a refresh
        self,
        app: AppProtocol,
        name: str,
        function: Callable[P, C],
        options: Options,
        *,
        traits: Traits | None = None,
        refresh: RefreshPolicy,
        on_disabled: Task[Any, Any, Any] | str | None,
    ) -> None:
        super().__init__(app, name, function, options, traits=traits)
        self.refresh_policy = refresh
        self._on_disabled = on_disabled.name if isinstance(on_disabled, Task) else on_disabled
        self._made = JobTemplate(name, options.queue, options.priority, options.policy)

    @property
    def definition(self) -> RefreshDefinition:
        """What the database keeps of it."""
        return RefreshDefinition(self.name, self.refresh_policy, self._made, self._told())

    def _told(self) -> JobTemplate | None:
        if self._on_disabled is None:
            return None
        task: Task[Any, Any, Any] | None = self.app.find(self._on_disabled)
        if task is None:
            message = f"refresh {self.name!r}: on_disabled={self._on_disabled!r}, but there is no such task"
            raise TaskDefinitionError(message)
        taken = task.signature.payload
        if len(taken) != 1 or task.signature.hints.get(taken[0]) is not Disabled:
            found = ", ".join(f"{each}: {type_name(task.signature.hints.get(each, Any))}" for each in taken)
            message = (
                f"refresh {self.name!r}: on_disabled={task.name!r} must take exactly one redrive.Disabled "
                f"(and a Context, if it likes), but it takes {found or 'nothing'}"
            )
            raise TaskDefinitionError(message)
        options = task.defaults
        return JobTemplate(task.name, options.queue, options.priority, options.policy, taken[0])

    def check(self) -> None:
        """Check that the tasks that it names are there and fit; see `redrive.App.check`."""
        super().check()
        self._told()

    # ---------------------------------------------------------------- tracking

    def keeping(
        self,
        *,
        policy: RefreshPolicy | str | None = None,
        at_once: bool = True,
        using: Any = None,  # noqa: ANN401 - a connection of any library
    ) -> TrackOptions[P]:
        """Track things otherwise than by default.

        Args:
            policy: a policy of their own, perhaps as a person has typed it; without it they have that of the refresh,
                and follow it when the code changes.
            at_once: start new things now, or at their next planned refresh?
            using: the user's own connection to the same database; the things are tracked if and only if its
                transaction commits. On PostgreSQL an asynchronous one is for the ``a`` forms.

        Returns:
            The forms of `track` under these options.

        Raises:
            ScheduleSyntaxError: the policy is not understood, with its line and its column.
        """
        own = RefreshPolicy.parse(policy) if isinstance(policy, str) else policy
        return TrackOptions(self, own, at_once=at_once, using=using)

    def track(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Keep a thing fresh from now on. A new one is started at once.

        One that is tracked already gets these arguments from its next attempt on, and the policy of the refresh. It is
        not started by this; see `update`.

        Args:
            key: names the thing; any text of up to 2000 bytes.
            *args: what its attempts get, as for the function, without its context.
            **kwargs: likewise.

        Returns:
            Is it new?

        Raises:
            PayloadError: the arguments do not fit the annotations, or cannot be stored.
            ConfigurationError: the key is empty or too long, or has a zero byte.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat it.
        """
        return TrackOptions(self).track(key, *args, **kwargs)

    async def atrack(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Keep a thing fresh; see `track`."""
        return await TrackOptions(self).atrack(key, *args, **kwargs)

    def track_many(self, things: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        """Keep many things fresh, all or none.

        Args:
            things: tuples of a key and the arguments by position.

        Returns:
            The keys of those that are new.

        Raises:
            PayloadError: arguments do not fit the annotations, or cannot be stored; nothing is tracked then.
            ConfigurationError: a key is empty or too long, or has a zero byte.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat it.
        """
        return TrackOptions(self).track_many(things)

    async def atrack_many(self, things: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        """Keep many things fresh, all or none; see `track_many`."""
        return await TrackOptions(self).atrack_many(things)

    def untrack(self, key: str, *, using: Any = None) -> bool:  # noqa: ANN401 - a connection of any library
        """Keep a thing fresh no longer. A running attempt is cancelled.

        Args:
            key: names the thing.
            using: the user's own connection, whose transaction this becomes a part of.

        Returns:
            Was it tracked?
        """
        return self.app.store.run(manage.untrack(self.name, _key(key), now=self.app.now()), using=using)

    async def auntrack(self, key: str, *, using: Any = None) -> bool:  # noqa: ANN401 - a connection of any library
        """Keep a thing fresh no longer; see `untrack`."""
        return await self.app.store.arun(manage.untrack(self.name, _key(key), now=self.app.now()), using=using)

    # ---------------------------------------------------------------- acting

    def update(
        self,
        key: str,
        *,
        at_once: bool = True,
        using: Any = None,  # noqa: ANN401 - a connection of any library
    ) -> MoveResult:
        """Somebody has changed the thing: it is enabled if it was given up, and all that was counted is forgotten.

        A running attempt is cancelled: it refreshes what is not any more.

        Args:
            key: names the thing.
            at_once: start now, or at the next planned refresh?
            using: the user's own connection, whose transaction this becomes a part of.

        Returns:
            What became of it, with the job of the attempt that was started.

        Raises:
            NotTracked: there is no such thing.
        """
        return self.app.store.run(self._update(key, at_once=at_once), using=using)

    async def aupdate(
        self,
        key: str,
        *,
        at_once: bool = True,
        using: Any = None,  # noqa: ANN401 - a connection of any library
    ) -> MoveResult:
        """Somebody has changed the thing; see `update`."""
        return await self.app.store.arun(self._update(key, at_once=at_once), using=using)

    def _update(self, key: str, *, at_once: bool) -> Operation[MoveResult]:
        return manage.update(self.name, _key(key), rng.roll(), at_once=at_once, now=self.app.now())

    def trigger(self, key: str, *, actor: str | None = None) -> MoveResult:
        """Start a thing now, due or not, paused or not. A running attempt is superseded.

        Args:
            key: names the thing.
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            STARTED, with the job; or DISABLED, and then nothing has changed.

        Raises:
            NotTracked: there is no such thing.
        """
        return self.app.store.run(self._trigger(key, actor))

    async def atrigger(self, key: str, *, actor: str | None = None) -> MoveResult:
        """Start a thing now; see `trigger`."""
        return await self.app.store.arun(self._trigger(key, actor))

    def _trigger(self, key: str, actor: str | None) -> Operation[MoveResult]:
        return manage.trigger(self.name, _key(key), rng.roll(), actor=actor or self.app.actor, now=self.app.now())

    def pause(self, key: str | None = None, *, actor: str | None = None) -> None:
        """Start nothing of a thing, or of all, until `resume`; attempts that run may finish.

        Args:
            key: names the thing; None means the refresh as a whole.
            actor: who does it, for the audit log; without it, who runs this process.

        Raises:
            NotTracked: there is no such thing.
            ScheduleNotFound: nothing was ever tracked, and no worker has declared the refresh.
        """
        self.app.store.run(self._pause(key, actor))

    async def apause(self, key: str | None = None, *, actor: str | None = None) -> None:
        """Start nothing of a thing, or of all; see `pause`."""
        await self.app.store.arun(self._pause(key, actor))

    def _pause(self, key: str | None, actor: str | None) -> Operation[Any]:
        by, now = actor or self.app.actor, self.app.now()
        if key is None:
            return schedules.pause(self.name, actor=by, now=now)
        return manage.pause(self.name, _key(key), actor=by, now=now)

    def resume(self, key: str | None = None, *, actor: str | None = None) -> None:
        """Go on. What was planned for the time of the pause is left out; a retry that became due is made.

        Args:
            key: names the thing; None means the refresh as a whole.
            actor: who does it, for the audit log; without it, who runs this process.

        Raises:
            NotTracked: there is no such thing.
            ScheduleNotFound: nothing was ever tracked, and no worker has declared the refresh.
        """
        self.app.store.run(self._resume(key, actor))

    async def aresume(self, key: str | None = None, *, actor: str | None = None) -> None:
        """Go on; see `resume`."""
        await self.app.store.arun(self._resume(key, actor))

    def _resume(self, key: str | None, actor: str | None) -> Operation[Any]:
        by, now = actor or self.app.actor, self.app.now()
        if key is None:
            return schedules.resume(self.name, actor=by, now=now)
        return manage.resume(self.name, _key(key), rng.roll(), actor=by, now=now)

    # ---------------------------------------------------------------- looking

    def get(self, key: str) -> TrackedItem:
        """Where a thing stands.

        Args:
            key: names the thing.

        Returns:
            Its row; `TrackedItem.state` is the state of seed 004.

        Raises:
            NotTracked: there is no such thing.
        """
        return self.app.store.run(read.get(self.name, _key(key)))

    async def aget(self, key: str) -> TrackedItem:
        """Where a thing stands; see `get`."""
        return await self.app.store.arun(read.get(self.name, _key(key)))

    def tracked(self, *, after: str = "", limit: int = 100, troubled: bool = False) -> tuple[TrackedItem, ...]:
        """Where things stand, by their keys, a page at a time.

        Args:
            after: only those with larger keys, such as the last one of the page before.
            limit: at most so many.
            troubled: only those whose last attempt has failed, and those that were given up.

        Returns:
            Their rows, without their arguments.
        """
        return self.app.store.run(read.select(self.name, after=after, limit=limit, troubled=troubled))

    async def atracked(self, *, after: str = "", limit: int = 100, troubled: bool = False) -> tuple[TrackedItem, ...]:
        """Where things stand; see `tracked`."""
        return await self.app.store.arun(read.select(self.name, after=after, limit=limit, troubled=troubled))


def _key(key: str) -> str:
    if 0 < _size(key) <= KEY_BYTES:
        return key
    shown = repr(key) if len(repr(key)) <= SHOWN else f"{repr(key)[:SHOWN]}..."
    message = (
        f"the key {shown} names nothing: a key is a text that is not empty, has no zero byte, "
        f"and is no longer than {KEY_BYTES} bytes"
    )
    raise ConfigurationError(message)


def _size(key: str) -> int:
    """Of a key, in UTF-8; 0 where it is none."""
    try:
        return 0 if "\0" in key else len(key.encode())
    except (TypeError, AttributeError, UnicodeEncodeError):
        return 0
