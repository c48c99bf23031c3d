"""An instance of a state machine, as it was read."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from redrive.app.attempts.origins import MachineProtocol
from redrive.app.machines.state import event_name
from redrive.engine.machine import InstanceRecord, InstanceStatus, Move, MoveRecord, step
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.rows import LAST


class MachineInstance:
    """An instance of a machine, as it was when it was read.

    Attributes:
        record: its row.
    """

    def __init__(self, machine: MachineProtocol, record: InstanceRecord) -> None:
        self._machine = machine
        self.record = record

    def __repr__(self) -> str:
        return f"<instance {self.record.key!r} of machine {self.record.machine}: {self.state}, {self.status}>"

    @property
    def key(self) -> str:
        """The key."""
        return self.record.key

    @property
    def state(self) -> str | None:
        """The state; None before its first transition has ended."""
        return self.record.state

    @property
    def to_state(self) -> str | None:
        """The state to which a transition runs, waits for a retry, or has failed; None otherwise."""
        return self.record.to_state

    @property
    def status(self) -> InstanceStatus:
        """Running, completed or failed."""
        return self.record.status

    @property
    def error(self) -> str | None:
        """The text of its last failure; None after the next move."""
        return self.record.error

    @property
    def job_id(self) -> int | None:
        """The job of the transition that runs, waits for a retry, or has failed; None otherwise."""
        return self.record.job_id

    @property
    def timeout_at(self) -> datetime | None:
        """When the timeout of its state is due; None without one."""
        return self.record.timeout_at

    @cached_property
    def data(self) -> Any:
        """The data; None without any.

        Raises:
            PayloadError: the stored data do not match the present class.
        """
        return self._machine.read_data(self.record.data)

    def can(self, event: object) -> bool:
        """Return True if an event would change the state now, or if one of a class could.

        Args:
            event: an event, for which guards are asked; or a class of events, for which they are not.

        Raises:
            MachineDefinitionError: two guards are true.
            Exception: a guard raised it.
        """
        if self.record.busy:
            return False
        if isinstance(event, type):
            return event in self.events()
        found = step(self._machine.definition, self.state, event_name(type(event)), event, self.data)
        return isinstance(found, Move)

    def events(self) -> tuple[type, ...]:
        """Return the classes of events for which the state has a transition; none while a transition runs."""
        if self.record.busy:
            return ()
        following = self._machine.definition.following(self.state)
        return tuple(dict.fromkeys(self._machine.tasks[each.name].event_type for each in following))

    def history(self, *, limit: int = 100, before: int = LAST) -> tuple[MoveRecord, ...]:
        """Read its events and moves, the latest first.

        Args:
            limit: the largest number of events.
            before: only events with smaller ids, such as the smallest one of the previous page.
        """
        operation = manage.history(self.record.machine, self.record.key, before=before, limit=limit)
        found: tuple[MoveRecord, ...] = self._machine.app.store.run(operation)
        return found

    async def ahistory(self, *, limit: int = 100, before: int = LAST) -> tuple[MoveRecord, ...]:
        """Read its events and moves; see `history`."""
        operation = manage.history(self.record.machine, self.record.key, before=before, limit=limit)
        found: tuple[MoveRecord, ...] = await self._machine.app.store.arun(operation)
        return found
