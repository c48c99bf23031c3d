"""The states of a machine, and the definition that they make."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from redrive.app.arguments import shown
from redrive.app.machines.state import StateTask, event_name
from redrive.engine.machine import MachineDefinition, MachineState, StateTimeout
from redrive.errors import MachineDefinitionError


class MachineStates:
    """The states of a machine, in the order of the code.

    Attributes:
        name: of the machine.
        tasks: the states by name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[str, StateTask] = {}
        self._checked = 0

    def add(self, task: StateTask) -> None:
        """Add a state; raise `MachineDefinitionError`, and leave it out, if it does not fit to the others."""
        self.tasks[task.label] = task
        self.__dict__.pop("definition", None)
        if task.signature.resolved:
            try:
                task.check_handler()
                self._check_added(task)
            except BaseException:
                del self.tasks[task.label]
                raise

    def _check_added(self, added: StateTask) -> None:
        """Check what can be checked before all states are known."""
        _ = added.timeout_event
        known = [task for task in self.tasks.values() if task.signature.resolved]
        self._check_event_names(known)
        states = {task.label: task.defined(self._name_of, None) for task in known}
        MachineDefinition(self.name, states).check_added(states[added.label])

    def _name_of(self, given: object, where: str) -> str:
        if isinstance(given, StateTask):
            if self.tasks.get(given.label) is not given:
                raise MachineDefinitionError(f"{where}={given!r} is a state of another machine")
            return given.label
        if isinstance(given, str) and given:
            return given
        raise MachineDefinitionError(f"{where} takes states, or names of states, got {shown(given)}")

    def _check_event_names(self, tasks: Iterable[StateTask]) -> None:
        kinds: dict[str, Any] = {}
        for task in tasks:
            other = kinds.setdefault(task.event, task.event_type)
            if other is not task.event_type:
                raise MachineDefinitionError(
                    f"machine {self.name!r}: two classes of events are called {task.event!r}: {other!r} and "
                    f"{task.event_type!r}; give one another name"
                )

    @cached_property
    def definition(self) -> MachineDefinition:
        """The states and their transitions."""
        self._check_event_names(self.tasks.values())
        states: dict[str, MachineState] = {}
        for task in self.tasks.values():
            task.check_handler()
            states[task.label] = task.defined(self._name_of, self._timeout_of(task))
        definition = MachineDefinition(self.name, states)
        for state in states.values():
            definition.check_added(state)
        return definition

    def _timeout_of(self, task: StateTask) -> StateTimeout | None:
        given = task.timeout_event
        if given is None:
            return None
        after, event = given
        codec = self.codec_of(type(event))
        if codec is None:
            raise MachineDefinitionError(
                f"machine {self.name!r}: the timeout of {task.label!r} sends {event_name(type(event))}, but no state "
                "takes that"
            )
        return StateTimeout(after, codec.event, codec.write_event(event))

    def codec_of(self, kind: type) -> StateTask | None:
        """Return a state that takes a class of events."""
        return next((task for task in self.tasks.values() if task.event_type is kind), None)

    @cached_property
    def version(self) -> str:
        """The digest of the states and their transitions, which is stored with each move."""
        parts = (f"{state.name}<{state.event}<{','.join(state.after)}" for state in self.definition.states.values())
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()

    def check(self) -> None:
        """Check the definition once; see `Machine.check`."""
        if self._checked == len(self.tasks):
            return
        for warning in self.definition.check():
            warnings.warn(warning, RuntimeWarning, stacklevel=3)
        self._checked = len(self.tasks)
