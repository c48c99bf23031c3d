"""The connection between the handler of a transition and its machine: the next event, and the data of the instance."""

# ruff: noqa: ANN401 - events and data of the user may have any type

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.app.effects import Effects
from redrive.engine.machine import DataChange
from redrive.errors import ConfigurationError, MachineError

if TYPE_CHECKING:
    from redrive.app.state import StateTask


class TransitionHandle:
    """One attempt of a transition.

    Attributes:
        key: the key of the instance.
        data: the data of the instance; None without any.
    """

    def __init__(self, task: StateTask, key: str, data: Any, effects: Effects) -> None:
        self.key = key
        self.data = data
        self._task = task
        self._effects = effects
        self._has_next = False

    def next(self, event: Any) -> None:
        """Begin the next transition when this one has ended; see `redrive.Context.next`."""
        machine = self._task.machine
        if self._has_next:
            raise MachineError(
                f"machine {machine.name!r}: the transition of {self.key!r} to {self._task.label!r} already has its "
                "next event: ctx.next() takes one in each attempt"
            )
        self._effects.add(machine.next_event(self.key, self._task.label, event, self.data))
        self._has_next = True

    def set_data(self, value: Any) -> None:
        """Replace the data of the instance; see `redrive.Context.set_data`."""
        codec = self._task.machine.codec
        if codec is None:
            raise ConfigurationError(
                f"machine {self._task.machine.name!r} has no data: declare their class by app.machine(..., data=Class)"
            )
        self._effects.add(DataChange(codec.write(value)))
        self.data = value
