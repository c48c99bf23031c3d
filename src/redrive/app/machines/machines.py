"""The machines of an App and their instances, for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from redrive.app.arguments import checked_count, shown
from redrive.app.attempts.origins import MachineProtocol
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.recurring.refreshes import checked_key
from redrive.engine.machine import InstanceRecord, InstanceStatus, MoveRecord, StrandedCount, entered
from redrive.errors import ConfigurationError, IllegalMove, MachineDefinitionError
from redrive.schedule.timezone import member
from redrive.stores.operations import clock, redriving
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.manage import InstanceCount
from redrive.stores.operations.machines.rows import LAST, Known
from redrive.stores.query import Operation

BATCH = 1000
"""Instances that one transaction of a migration moves."""


class MigrationResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a migration, or of its dry run.

    Attributes:
        moved: the number of instances that were moved, or would be, by their old state.
        busy: the number of instances that stay, because a transition of them runs, waits for a retry, or has failed.
        stranded: the number of instances in other states that the definition does not have.
    """

    moved: dict[str, int]
    busy: dict[str, int]
    stranded: dict[str, int]


class MachineHandle:
    """A handle on the instances of a machine in the database, also of one without code in this process.

    ``actor`` is the name in the audit log, by default ``user@host`` of this process.

    Attributes:
        name: of the machine.
    """

    def __init__(self, app: AppProtocol, name: str) -> None:
        self.app = app
        self.name = name

    @property
    def _found(self) -> Any:
        return self.app.machines.find(self.name)

    # ---------------------------------------------------------------- reading

    def record(self, instance: str) -> InstanceRecord:
        """Read the row of an instance.

        Raises:
            InstanceNotFound: there is none with this key.
        """
        return self.app.store.run(manage.get(self.name, checked_key(instance)))

    async def arecord(self, instance: str) -> InstanceRecord:
        """Read the row of an instance; see `record`."""
        return await self.app.store.arun(manage.get(self.name, checked_key(instance)))

    def select(
        self,
        *,
        state: str | None = None,
        status: InstanceStatus | Literal["running", "completed", "failed"] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> tuple[InstanceRecord, ...]:
        """Read a page of instances by their keys.

        Args:
            state: only instances in this state.
            status: only instances with this status.
            after: only larger keys, such as the last one of the previous page.
            limit: the largest number of instances.
        """
        return self.app.store.run(_select(self.name, state, status, after, limit))

    async def aselect(
        self,
        *,
        state: str | None = None,
        status: InstanceStatus | Literal["running", "completed", "failed"] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> tuple[InstanceRecord, ...]:
        """Read a page of instances; see `select`."""
        return await self.app.store.arun(_select(self.name, state, status, after, limit))

    def counts(self) -> tuple[InstanceCount, ...]:
        """Count the instances by state and status; the database reads every one for it."""
        return self.app.store.run(manage.counts(self.name))

    async def acounts(self) -> tuple[InstanceCount, ...]:
        """Count the instances; see `counts`."""
        return await self.app.store.arun(manage.counts(self.name))

    def history(self, instance: str, *, before: int = LAST, limit: int = 100) -> tuple[MoveRecord, ...]:
        """Read the events and moves of an instance, the latest first.

        Args:
            instance: its key.
            before: only events with smaller ids, such as the smallest one of the previous page.
            limit: the largest number of events.
        """
        return self.app.store.run(self._history(instance, before, limit))

    async def ahistory(self, instance: str, *, before: int = LAST, limit: int = 100) -> tuple[MoveRecord, ...]:
        """Read the events and moves of an instance; see `history`."""
        return await self.app.store.arun(self._history(instance, before, limit))

    def _history(self, instance: str, before: int, limit: int) -> Operation[tuple[MoveRecord, ...]]:
        number = checked_count(limit, "history(): limit")
        return manage.history(self.name, checked_key(instance), before=before, limit=number)

    def overdue(self, *, limit: int = 100) -> tuple[InstanceRecord, ...]:
        """Read instances that have been in a state for longer than its ``within=``, the longest there first.

        Raises:
            MachineDefinitionError: the code of this process has no such machine.
        """
        return run(self.app.store, self.late(limit))

    async def aoverdue(self, *, limit: int = 100) -> tuple[InstanceRecord, ...]:
        """Read instances that are overdue; see `overdue`."""
        return await arun(self.app.store, self.late(limit))

    def late(self, limit: int) -> Procedure[tuple[InstanceRecord, ...]]:
        """Read overdue instances, as the procedure of both methods."""
        definition = self._found.definition
        at: datetime = self.app.now() or (yield clock.present())
        limits = [(each.name, at - each.within) for each in definition.states.values() if each.within is not None]
        found: tuple[InstanceRecord, ...] = yield manage.since(
            self.name, limits, limit=checked_count(limit, "overdue(): limit")
        )
        return found

    def stranded(self) -> dict[str, int]:
        """Count the instances in states that the code does not have, by state.

        Raises:
            MachineDefinitionError: the code of this process has no such machine.
        """
        return run(self.app.store, self._stranded())

    async def astranded(self) -> dict[str, int]:
        """Count the instances in states that the code does not have; see `stranded`."""
        return await arun(self.app.store, self._stranded())

    def _stranded(self) -> Procedure[dict[str, int]]:
        rows: Sequence[StrandedCount] = yield manage.stranded(self._found.known)
        return {row.state: row.number for row in rows if row.what == "state" and row.state is not None}

    # ---------------------------------------------------------------- acting

    def retry(self, instance: str, *, actor: str | None = None) -> None:
        """Run a failed transition once more, or one that waits for a retry now.

        Raises:
            InstanceNotFound: there is none with this key.
            IllegalMove: no transition has failed or waits.
        """
        run(self.app.store, self.retrying(instance, actor))

    async def aretry(self, instance: str, *, actor: str | None = None) -> None:
        """Run a failed transition once more; see `retry`."""
        await arun(self.app.store, self.retrying(instance, actor))

    def retrying(self, instance: str, actor: str | None) -> Procedure[None]:
        """Retry a transition, as the procedure of both methods."""
        found: InstanceRecord = yield manage.get(self.name, checked_key(instance))
        if found.job_id is None:
            raise IllegalMove(
                f"machine {self.name!r}: {instance!r} has no transition to retry; it is in {found.state!r}"
            )
        yield redriving.retry(found.job_id, actor=actor or self.app.default_actor, now=self.app.now())

    def skip(self, instance: str, *, actor: str | None = None) -> InstanceRecord:
        """Drop the event of a failed transition; the instance takes events in its state again.

        Raises:
            InstanceNotFound: there is none with this key.
            IllegalMove: no transition has failed.
        """
        return self.app.store.run(self._skip(instance, actor))

    async def askip(self, instance: str, *, actor: str | None = None) -> InstanceRecord:
        """Drop the event of a failed transition; see `skip`."""
        return await self.app.store.arun(self._skip(instance, actor))

    def _skip(self, instance: str, actor: str | None) -> Operation[InstanceRecord]:
        return manage.skip(self.name, checked_key(instance), actor=actor or self.app.default_actor, now=self.app.now())

    def reset(self, instance: str, state: str, *, actor: str | None = None) -> InstanceRecord:
        """Put an instance into a state; no handler runs. A failed transition is dropped, and the timeout begins anew.

        Raises:
            InstanceNotFound: there is none with this key.
            MachineBusy: a transition runs or waits for a retry.
            MachineDefinitionError: the code of this process has no such machine, or the machine no such state.
        """
        return self.app.store.run(self.resetting(instance, state, actor))

    async def areset(self, instance: str, state: str, *, actor: str | None = None) -> InstanceRecord:
        """Put an instance into a state; see `reset`."""
        return await self.app.store.arun(self.resetting(instance, state, actor))

    def resetting(self, instance: str, state: str, actor: str | None) -> Operation[InstanceRecord]:
        """Put an instance into a state, as the operation of both methods."""
        found = self._found
        _check_state(found, state)
        how = entered(found.definition, state, found.version)
        by = actor or self.app.default_actor
        return manage.reset(self.name, checked_key(instance), state, how, actor=by, now=self.app.now())

    def delete(self, instance: str, *, actor: str | None = None) -> None:
        """Delete an instance with its history; its jobs stay. Its next event creates it anew.

        Raises:
            InstanceNotFound: there is none with this key.
            MachineBusy: a transition runs or waits for a retry.
        """
        self.app.store.run(self._delete(instance, actor))

    async def adelete(self, instance: str, *, actor: str | None = None) -> None:
        """Delete an instance with its history; see `delete`."""
        await self.app.store.arun(self._delete(instance, actor))

    def _delete(self, instance: str, actor: str | None) -> Operation[None]:
        return manage.delete(
            self.name, checked_key(instance), actor=actor or self.app.default_actor, now=self.app.now()
        )

    def migrate(self, states: Mapping[str, str], *, dry_run: bool = False, actor: str | None = None) -> MigrationResult:
        """Move the instances of renamed or dropped states to other states, in batches; no handler runs.

        Instances with a transition stay; repeat the call when these have ended. Timeouts of the new states begin at the
        move.

        Args:
            states: the new state for each old one.
            dry_run: True only counts.
            actor: for the audit log.

        Raises:
            MachineDefinitionError: the code of this process has no such machine, or the machine lacks a new state.
        """
        return run(self.app.store, self._migrate(states, actor, dry_run=dry_run))

    async def amigrate(
        self, states: Mapping[str, str], *, dry_run: bool = False, actor: str | None = None
    ) -> MigrationResult:
        """Move the instances of renamed or dropped states to other states; see `migrate`."""
        return await arun(self.app.store, self._migrate(states, actor, dry_run=dry_run))

    def _migrate(self, states: Mapping[str, str], actor: str | None, *, dry_run: bool) -> Procedure[MigrationResult]:
        found = self._found
        if not isinstance(states, Mapping):
            raise ConfigurationError(
                f"migrate() takes the new state for each old one, {{old: new}}, got {shown(states)}"
            )
        for new in states.values():
            _check_state(found, new)
        rows: Sequence[InstanceCount] = yield manage.counts(self.name)
        busy = _summed((row.state, row.busy) for row in rows if row.state in states and row.busy)
        undefined = found.definition.undefined({row.state for row in rows if row.state} - states.keys())
        stranded = _summed((row.state, row.number) for row in rows if row.state in undefined)
        if dry_run:
            free = _summed((row.state, row.number - row.busy) for row in rows if row.state in states)
            return MigrationResult(free, busy, stranded)
        moved: dict[str, int] = {}
        by = actor or self.app.default_actor
        for old, new in states.items():
            how, after, moved[old] = entered(found.definition, new, found.version), "", 0
            while True:
                batch = yield manage.migrate(
                    self.name, old, new, how, after=after, limit=BATCH, actor=by, now=self.app.now()
                )
                moved[old] += len(batch.keys)
                if batch.last is None:
                    break
                after = batch.last
        return MigrationResult(moved, busy, stranded)

    def rearm(self, state: str) -> int:
        """Compute the timeouts of the instances in a state again, from the instants at which they entered it.

        A changed ``timeout=`` applies to later moves only, unless this is called. Instances with a transition keep
        theirs. Return the number of instances.

        Raises:
            MachineDefinitionError: the code of this process has no such machine, or the machine no such state.
        """
        return run(self.app.store, self._rearm(state))

    async def arearm(self, state: str) -> int:
        """Compute the timeouts of the instances in a state again; see `rearm`."""
        return await arun(self.app.store, self._rearm(state))

    def _rearm(self, state: str) -> Procedure[int]:
        found = self._found
        _check_state(found, state)
        how, after, number = entered(found.definition, state, found.version), "", 0
        while True:
            batch = yield manage.rearm(self.name, state, how, after=after, limit=BATCH)
            number += len(batch.keys)
            if batch.last is None:
                return number
            after = batch.last


class Machines:
    """The machines of an App, as ``app.machines``."""

    def __init__(self, app: AppProtocol) -> None:
        self._app = app
        self.declared: dict[str, Any] = {}
        """The machines of the code, by name."""

    @property
    def known(self) -> Known:
        """The machines of the code, their states, and the classes of their events."""
        each = [self.declared[name].known for name in sorted(self.declared)]
        return Known(
            tuple(name for known in each for name in known.machines),
            tuple(state for known in each for state in known.states),
            tuple(event for known in each for event in known.events),
        )

    def machine(self, name: str) -> MachineHandle:
        """Return a handle on the instances of a machine by its name, also of one without code in this process."""
        return MachineHandle(self._app, name)

    def counts(self) -> tuple[InstanceCount, ...]:
        """Count instances by machine, state and status; the database reads every instance for it."""
        return self._app.store.run(manage.counts())

    async def acounts(self) -> tuple[InstanceCount, ...]:
        """Count instances; see `counts`."""
        return await self._app.store.arun(manage.counts())

    def find(self, machine: str) -> Any:
        """Return a machine of the code.

        Raises:
            MachineDefinitionError: the code of this process has no such machine.
        """
        found = self.declared.get(machine)
        if found is None:
            known = ", ".join(sorted(self.declared))
            raise MachineDefinitionError(
                f"there is no machine {machine!r} in this app; known machines: {known or 'none'}"
            )
        return found


def _select(
    machine: str, state: str | None, status: Any, after: str, limit: int
) -> Operation[tuple[InstanceRecord, ...]]:
    wanted = None if status is None else member(InstanceStatus, "status", status)
    return manage.select(
        machine, state=state, status=wanted, after=after, limit=checked_count(limit, "select(): limit")
    )


def _check_state(machine: MachineProtocol, state: str) -> None:
    if state not in machine.definition.states:
        known = ", ".join(machine.definition.states)
        raise MachineDefinitionError(f"machine {machine.name!r} has no state {state!r}; known states: {known}")


def _summed(pairs: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for state, number in pairs:
        found[state] = found.get(state, 0) + number
    return found
