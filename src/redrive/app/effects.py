"""The effects that the handler of the running attempt has asked for."""

from __future__ import annotations

from contextvars import ContextVar

from redrive.engine.origin import Effect
from redrive.errors import LeaseLost


class Effects:
    """The effects of one attempt; they commit with its successful end."""

    __slots__ = ("_added", "_closed")

    def __init__(self) -> None:
        # Hot path: most attempts have none.
        self._added: list[Effect] | None = None
        self._closed = False

    def add(self, effect: Effect) -> None:
        """Add an effect; raise `LeaseLost` if the attempt has ended."""
        if self._closed:
            raise LeaseLost("the attempt has ended: what its handler asks for from now on changes nothing")
        if self._added is None:
            self._added = []
        self._added.append(effect)

    def close(self) -> tuple[Effect, ...]:
        """Return the effects in the order in which they were added; no other can be added."""
        self._closed = True
        return () if self._added is None else tuple(self._added)

    @property
    def added(self) -> tuple[Effect, ...]:
        """Return the effects so far."""
        return () if self._added is None else tuple(self._added)


#: The effects of the attempt that runs in this context; None outside of a handler.
CURRENT: ContextVar[Effects | None] = ContextVar("redrive_effects", default=None)
