"""The items of refreshes: read them, and act on them."""

from __future__ import annotations

from typing import Any

from redrive.app.protocol import AppProtocol
from redrive.engine.items import TrackedItem
from redrive.errors import ConfigurationError
from redrive.retrying import rng
from redrive.stores.operations.refresh import items, manage
from redrive.stores.operations.refresh.items import Counts, MoveResult
from redrive.stores.query import Operation

KEY_BYTES = 2000
"""The longest key in UTF-8: together with the name of the refresh it must fit into an index entry of PostgreSQL."""

SHOWN = 60
"""Characters of a bad key in a message."""


class Refreshes:
    """The refreshes of an App and their items, as ``app.refreshes``.

    The methods take the name of a refresh, which may be one that only another version of the code has, and the key of
    an item. The methods of the same names of `redrive.Refresh` describe arguments, results and errors.
    """

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    def counts(self) -> tuple[Counts, ...]:
        """Count the items of each refresh, by name. The database reads every item for it."""
        return self._app.store.run(items.counts())

    async def acounts(self) -> tuple[Counts, ...]:
        """Count the items of each refresh; see `counts`."""
        return await self._app.store.arun(items.counts())

    def select(
        self, name: str, *, after: str = "", limit: int = 100, troubled: bool = False
    ) -> tuple[TrackedItem, ...]:
        """Read a page of items by their keys; see `redrive.Refresh.tracked`."""
        return self._app.store.run(items.select(name, after=after, limit=limit, troubled=troubled))

    async def aselect(
        self, name: str, *, after: str = "", limit: int = 100, troubled: bool = False
    ) -> tuple[TrackedItem, ...]:
        """Read a page of items by their keys; see `redrive.Refresh.tracked`."""
        return await self._app.store.arun(items.select(name, after=after, limit=limit, troubled=troubled))

    def get(self, name: str, key: str) -> TrackedItem:
        """Read one item; see `redrive.Refresh.get`."""
        return self._app.store.run(items.get(name, checked_key(key)))

    async def aget(self, name: str, key: str) -> TrackedItem:
        """Read one item; see `redrive.Refresh.get`."""
        return await self._app.store.arun(items.get(name, checked_key(key)))

    def untrack(self, name: str, key: str, *, using: Any = None) -> bool:
        """Stop tracking an item; see `redrive.Refresh.untrack`."""
        return self._app.store.run(manage.untrack(name, checked_key(key), now=self._app.now()), using=using)

    async def auntrack(self, name: str, key: str, *, using: Any = None) -> bool:
        """Stop tracking an item; see `redrive.Refresh.untrack`."""
        return await self._app.store.arun(manage.untrack(name, checked_key(key), now=self._app.now()), using=using)

    def update(
        self, name: str, key: str, *, at_once: bool = True, actor: str | None = None, using: Any = None
    ) -> MoveResult:
        """Enable an item and forget its failures; see `redrive.Refresh.update`."""
        return self._app.store.run(self.updating(name, key, actor, at_once=at_once), using=using)

    async def aupdate(
        self, name: str, key: str, *, at_once: bool = True, actor: str | None = None, using: Any = None
    ) -> MoveResult:
        """Enable an item and forget its failures; see `redrive.Refresh.update`."""
        return await self._app.store.arun(self.updating(name, key, actor, at_once=at_once), using=using)

    def updating(self, name: str, key: str, actor: str | None, *, at_once: bool = True) -> Operation[MoveResult]:
        """Restart an item, as the operation of both methods."""
        # Only an operator's update stands in the audit log; without an actor it is one of the application.
        now = self._app.now()
        return manage.update(name, checked_key(key), rng.roll(), at_once=at_once, actor=actor, now=now)

    def trigger(self, name: str, key: str, *, actor: str | None = None) -> MoveResult:
        """Start an attempt at an item now; see `redrive.Refresh.trigger`."""
        return self._app.store.run(self.triggering(name, key, actor))

    async def atrigger(self, name: str, key: str, *, actor: str | None = None) -> MoveResult:
        """Start an attempt at an item now; see `redrive.Refresh.trigger`."""
        return await self._app.store.arun(self.triggering(name, key, actor))

    def triggering(self, name: str, key: str, actor: str | None) -> Operation[MoveResult]:
        """Start an attempt of an item, as the operation of both methods."""
        by, now = actor or self._app.default_actor, self._app.now()
        return manage.trigger(name, checked_key(key), rng.roll(), actor=by, now=now)

    def pause(self, name: str, key: str, *, actor: str | None = None) -> MoveResult:
        """Start no attempt at an item until `resume`; see `redrive.Refresh.pause`."""
        return self._app.store.run(self.pausing(name, key, actor))

    async def apause(self, name: str, key: str, *, actor: str | None = None) -> MoveResult:
        """Start no attempt at an item until `aresume`; see `redrive.Refresh.pause`."""
        return await self._app.store.arun(self.pausing(name, key, actor))

    def pausing(self, name: str, key: str, actor: str | None) -> Operation[MoveResult]:
        """Pause an item, as the operation of both methods."""
        return manage.pause(name, checked_key(key), actor=actor or self._app.default_actor, now=self._app.now())

    def resume(self, name: str, key: str, *, actor: str | None = None) -> MoveResult:
        """End the pause of an item; see `redrive.Refresh.resume`."""
        return self._app.store.run(self.resuming(name, key, actor))

    async def aresume(self, name: str, key: str, *, actor: str | None = None) -> MoveResult:
        """End the pause of an item; see `redrive.Refresh.resume`."""
        return await self._app.store.arun(self.resuming(name, key, actor))

    def resuming(self, name: str, key: str, actor: str | None) -> Operation[MoveResult]:
        """Resume an item, as the operation of both methods."""
        by, now = actor or self._app.default_actor, self._app.now()
        return manage.resume(name, checked_key(key), rng.roll(), actor=by, now=now)


def checked_key(key: str) -> str:
    """Return the key of an item; raise `ConfigurationError` if it is empty, too long, no text, or has a zero byte."""
    if 0 < _size(key) <= KEY_BYTES:
        return key
    shown = repr(key) if len(repr(key)) <= SHOWN else f"{repr(key)[:SHOWN]}..."
    raise ConfigurationError(
        f"the key {shown} is invalid: a key is a text that is not empty, has no zero byte, "
        f"and is no longer than {KEY_BYTES} bytes"
    )


def _size(key: str) -> int:
    """Return the size of a key in UTF-8; 0 for an invalid one."""
    try:
        return 0 if "\0" in key else len(key.encode())
    except (TypeError, AttributeError, UnicodeEncodeError):
        return 0
