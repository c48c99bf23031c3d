"""The effects that the handler of the running attempt has asked for."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar

from redrive import forks
from redrive.engine.origin import Effect
from redrive.errors import LeaseLost

if TYPE_CHECKING:
    from redrive.stores.store import AsyncStoreTransaction, StoreTransaction

E = TypeVar("E", bound=Effect)

NO_LOANS = (None, None)
"""The open transactions of a handler that has none."""

_ADDING = forks.hold(threading.Lock())


class Owner(Protocol):
    """An app."""

    @property
    def url(self) -> str:
        """The URL of its database."""


class Effects:
    """The effects of one attempt; they commit with its successful end.

    Args:
        owner: the app of its job, or the URL of that in a child process. What other apps write does not join.

    Attributes:
        loans: the open transaction of a ``def`` handler, and that of a coroutine.
    """

    __slots__ = ("_added", "_closed", "_owner", "is_written", "loans")

    def __init__(self, owner: object = None) -> None:
        self._owner = owner
        # Hot path: most attempts have none.
        self._added: list[Effect] | None = None
        self._closed = False
        #: True if a transaction of the handler has ended the attempt.
        self.is_written: bool = False
        self.loans: tuple[StoreTransaction | None, AsyncStoreTransaction | None] = NO_LOANS

    def add(self, *effects: Effect) -> None:
        """Add effects; raise `LeaseLost` if the attempt has ended. Any thread may call it."""
        with _ADDING:
            if self._added is None:
                self._added = []
            count = len(self._added)
            self._added.extend(effects)
            # Checked at last: `close`, which is called for each attempt, takes no lock if nothing was added.
            if self._closed:
                del self._added[count:]
                self.check()

    def check(self) -> None:
        """Raise `LeaseLost` if the attempt has ended."""
        if self._closed:
            raise LeaseLost("the attempt has ended: what its handler asks for from now on changes nothing")

    def close(self, *, written: bool = False) -> tuple[Effect, ...]:
        """Return the effects in the order in which they were added; no other can be added.

        ``written`` is True if a transaction of the handler has ended the attempt.
        """
        self._closed = True
        self.is_written = written
        if self._added is None:
            return ()
        with _ADDING:
            return tuple(self._added)

    def drop(self, count: int) -> None:
        """Drop all effects behind the first ones, which were added in a transaction that is rolled back."""
        if self._added is not None:
            del self._added[count:]

    @property
    def is_open(self) -> bool:
        """True until the attempt has ended."""
        return not self._closed

    @property
    def added(self) -> tuple[Effect, ...]:
        """Return the effects so far."""
        return () if self._added is None else tuple(self._added)

    def of(self, kind: type[E]) -> list[E]:
        """Return the effects of a kind so far."""
        return [each for each in self.added if isinstance(each, kind)]

    def takes(self, app: Owner) -> bool:
        """Return True if what an app writes joins the end of the attempt.

        After a handler has completed its attempt by a transaction of its own, nothing does.
        """
        return not self.is_written and (self._owner is app or self._owner == app.url)


def joined(app: Owner) -> Effects | None:
    """Return the effects of the attempt that runs in this context; None if what an app writes does not join its end."""
    effects = CURRENT.get()
    return effects if effects is not None and effects.takes(app) else None


#: The effects of the attempt that runs in this context; None outside of a handler.
CURRENT: ContextVar[Effects | None] = ContextVar("redrive_effects", default=None)


def _forget() -> None:
    CURRENT.set(None)


# What a handler's child process adds would never be written. It writes by itself instead, as one that is spawned does.
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
