"""The connection between the handler of a transition and its machine: the next event, and the data of the instance."""

# ruff: noqa: ANN401 - events and data of the user may have any type

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from redrive.app.effects import Effects
from redrive.engine.machine import DataChange, MachineDefinition, NextEvent
from redrive.errors import ConfigurationError, MachineError


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

    def next_event(self, key: str, state: str, event: Any, data: Any) -> NextEvent:
        """Return the effect that begins the next transition from a state."""

    def read_data(self, raw: bytes | None) -> Any:
        """Return the data of an instance."""


class TransitionHandle:
    """One attempt of a transition.

    Attributes:
        key: the key of the instance.
        data: the data of the instance; None without any.
    """

    def __init__(self, machine: MachineProtocol, state: str, key: str, *, data: Any, effects: Effects) -> None:
        self.key = key
        self.data = data
        self._machine = machine
        self._state = state
        self._effects = effects
        self._has_next = False

    def next(self, event: Any) -> None:
        """Begin the next transition when this one has ended; see `redrive.Context.next`."""
        machine = self._machine
        if self._has_next:
            raise MachineError(
                f"machine {machine.name!r}: the transition of {self.key!r} to {self._state!r} already has its "
                "next event: ctx.next() takes one in each attempt"
            )
        self._effects.add(machine.next_event(self.key, self._state, event, self.data))
        self._has_next = True

    def set_data(self, value: Any) -> None:
        """Replace the data of the instance; see `redrive.Context.set_data`."""
        codec = self._machine.codec
        if codec is None:
            raise ConfigurationError(
                f"machine {self._machine.name!r} has no data: declare their class by app.machine(..., data=Class)"
            )
        self._effects.add(DataChange(codec.write(value)))
        self.data = value
