"""Crons and refreshes as schedules: what the code declares, and what the database has."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar

from redrive.app.protocol import AppProtocol
from redrive.app.task import Q, Task
from redrive.engine.occurrence import Occurrence
from redrive.engine.recurring import Definition, ScheduleRecord
from redrive.schedule.timezone import aware
from redrive.stores.operations import crons, schedules
from redrive.stores.query import Operation

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class ScheduledTask(Task[P, R, C, Q], Generic[P, R, C, Q]):
    """A task with a schedule: a `redrive.Cron` or a `redrive.Refresh`."""

    @property
    @abc.abstractmethod
    def definition(self) -> Definition:
        """The schedule as workers declare it in the database."""


class Schedules:
    """The schedules of an App, as ``app.schedules``: crons, and refreshes as a whole.

    The methods take the name of a schedule, which may be one that only another version of the code has. The methods of
    the same names of `redrive.Cron` and `redrive.Refresh` describe arguments, results and errors.
    """

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    @property
    def declared(self) -> Mapping[str, ScheduledTask[Any, Any, Any]]:
        """The crons and refreshes of the code, by name."""
        return {name: task for name, task in self._app.tasks.items() if isinstance(task, ScheduledTask)}

    def select(self) -> tuple[ScheduleRecord, ...]:
        """Read the crons and refreshes of the database by name, also those that the code no longer has."""
        return self._app.store.run(schedules.select())

    async def aselect(self) -> tuple[ScheduleRecord, ...]:
        """Read the crons and refreshes of the database; see `select`."""
        return await self._app.store.arun(schedules.select())

    def get(self, name: str) -> ScheduleRecord:
        """Read the row of a schedule; see `redrive.Cron.state`."""
        return self._app.store.run(schedules.get(name))

    async def aget(self, name: str) -> ScheduleRecord:
        """Read the row of a schedule; see `redrive.Cron.state`."""
        return await self._app.store.arun(schedules.get(name))

    def pause(self, name: str, *, actor: str | None = None) -> ScheduleRecord:
        """Start nothing of a schedule until `resume`; see `redrive.Cron.pause`."""
        return self._app.store.run(schedules.pause(name, actor=self._by(actor), now=self._app.now()))

    async def apause(self, name: str, *, actor: str | None = None) -> ScheduleRecord:
        """Start nothing of a schedule until `aresume`; see `redrive.Cron.pause`."""
        return await self._app.store.arun(schedules.pause(name, actor=self._by(actor), now=self._app.now()))

    def resume(self, name: str, *, actor: str | None = None) -> ScheduleRecord:
        """End the pause of a schedule; see `redrive.Cron.resume`."""
        return self._app.store.run(schedules.resume(name, actor=self._by(actor), now=self._app.now()))

    async def aresume(self, name: str, *, actor: str | None = None) -> ScheduleRecord:
        """End the pause of a schedule; see `redrive.Cron.resume`."""
        return await self._app.store.arun(schedules.resume(name, actor=self._by(actor), now=self._app.now()))

    def trigger(self, name: str, *, actor: str | None = None) -> Occurrence:
        """Start a cron now; see `redrive.Cron.trigger`."""
        return self._app.store.run(crons.trigger(name, actor=self._by(actor), now=self._app.now()))

    async def atrigger(self, name: str, *, actor: str | None = None) -> Occurrence:
        """Start a cron now; see `redrive.Cron.trigger`."""
        return await self._app.store.arun(crons.trigger(name, actor=self._by(actor), now=self._app.now()))

    def backfill(
        self, name: str, since: datetime, until: datetime, *, actor: str | None = None
    ) -> tuple[Occurrence, ...]:
        """Start all occurrences of a span that were not started; see `redrive.Cron.backfill`."""
        return self._app.store.run(self._backfill(name, since, until, actor))

    async def abackfill(
        self, name: str, since: datetime, until: datetime, *, actor: str | None = None
    ) -> tuple[Occurrence, ...]:
        """Start all occurrences of a span that were not started; see `redrive.Cron.backfill`."""
        return await self._app.store.arun(self._backfill(name, since, until, actor))

    def _backfill(
        self, name: str, since: datetime, until: datetime, actor: str | None
    ) -> Operation[tuple[Occurrence, ...]]:
        begin, end = aware("since", since), aware("until", until)
        return crons.backfill(name, begin, end, actor=self._by(actor), now=self._app.now())

    def occurrences(self, name: str, *, before: datetime | None = None, limit: int = 100) -> tuple[Occurrence, ...]:
        """Read the past occurrences of a cron, the latest first; see `redrive.Cron.occurrences`."""
        return self._app.store.run(_occurrences(name, before, limit))

    async def aoccurrences(
        self, name: str, *, before: datetime | None = None, limit: int = 100
    ) -> tuple[Occurrence, ...]:
        """Read the past occurrences of a cron, the latest first; see `redrive.Cron.occurrences`."""
        return await self._app.store.arun(_occurrences(name, before, limit))

    def _by(self, actor: str | None) -> str:
        return actor or self._app.actor


def _occurrences(name: str, before: datetime | None, limit: int) -> Operation[tuple[Occurrence, ...]]:
    end = None if before is None else aware("before", before)
    return schedules.occurrences(name, before=end, limit=limit)
