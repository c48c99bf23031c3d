"""A task that runs at the occurrences of a cron expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar

from msgspec import structs

from redrive.app.protocol import AppProtocol
from redrive.app.recurring.schedules import ScheduledTask, Schedules, cron_definition
from redrive.app.tasks.enqueue import Options
from redrive.app.tasks.task import Q, Traits
from redrive.app.types import type_name
from redrive.engine.frozen import FrozenPolicy
from redrive.engine.occurrence import Occurrence
from redrive.engine.recurring import CatchUp, CronDefinition, JobTemplate, Overlap, ScheduleRecord
from redrive.errors import PayloadError, TaskDefinitionError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class Cron(ScheduledTask[P, R, C, Q], Generic[P, R, C, Q]):
    """A task with one job for each occurrence of a cron expression; see `redrive.App.cron`.

    Calling it runs the function here and now, and `enqueue` inserts a job that belongs to no occurrence.

    `pause` and `resume` return the row of the schedule. ``actor`` is the name in the
    audit log, by default ``user@host`` of this process.
    """

    def __init__(
        self,
        app: AppProtocol,
        name: str,
        function: Callable[Q, C],
        options: Options,
        *,
        traits: Traits | None = None,
        pattern: str,
        tz: str,
        overlap: Overlap,
        catch_up: CatchUp,
        window: Any,
        jitter: Any,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(app, name, function, options, traits=traits)
        self._schedules = Schedules(app)
        self._arguments = arguments
        made = JobTemplate(name, options.queue, options.priority, options.policy)
        self._definition = cron_definition(
            name, pattern, made, tz=tz, overlap=overlap, catch_up=catch_up, window=window, jitter=jitter
        )

    @property
    def definition(self) -> CronDefinition:
        """The schedule as workers declare it in the database."""
        return self._definition

    def adopted(self, app: AppProtocol, policy: FrozenPolicy | None) -> None:
        """Become a cron of an app; see `Task.adopted`."""
        super().adopted(app, policy)
        if policy is not None:
            made = structs.replace(self._definition.job, policy=policy)
            self._definition = structs.replace(self._definition, job=made)

    def check(self) -> None:
        """Check the signature of the function, and that the catch task exists and fits."""
        self.check_signature()
        super().check()

    def check_signature(self) -> None:
        """Check that the function takes the arguments of the cron and returns nothing."""
        if self._arguments is not None:
            try:
                payload = self.signature.write((), self._arguments).decode()
            except PayloadError as error:
                raise TaskDefinitionError(f"cron {self.name!r}: arguments={self._arguments!r}: {error}") from error
            made = structs.replace(self._definition.job, payload=payload)
            self._definition = structs.replace(self._definition, job=made)
        elif self.signature.payload:
            raise TaskDefinitionError(
                f"cron {self.name!r} takes {', '.join(self.signature.payload)}: the clock has no arguments to give. "
                "It may take a Context, whose occurs_at is the occurrence; fixed arguments are given by "
                "@app.cron(..., arguments={...})"
            )
        returned = self.signature.hints.get("return", type(None))
        if returned is not type(None):
            raise TaskDefinitionError(
                f"cron {self.name!r} returns {type_name(returned)}, but nothing reads the result: make it -> None"
            )

    @property
    def state(self) -> ScheduleRecord:
        """The row of the schedule, read now.

        Raises:
            ScheduleNotFound: no worker has declared it yet.
        """
        return self._schedules.get(self.name)

    async def astate(self) -> ScheduleRecord:
        """Read the row of the schedule; see `state`."""
        return await self._schedules.aget(self.name)

    def occurrences(self, *, before: datetime | None = None, limit: int = 100) -> tuple[Occurrence, ...]:
        """Read past occurrences that were started, queued, skipped or missed, the latest first.

        Args:
            before: only earlier ones; an aware instant (otherwise `ScheduleError`).
            limit: the largest number of occurrences.
        """
        return self._schedules.occurrences(self.name, before=before, limit=limit)

    async def aoccurrences(self, *, before: datetime | None = None, limit: int = 100) -> tuple[Occurrence, ...]:
        """Read the past occurrences; see `occurrences`."""
        return await self._schedules.aoccurrences(self.name, before=before, limit=limit)

    def trigger(self, *, actor: str | None = None) -> Occurrence:
        """Start a job now, also before an occurrence is due, during a pause, and while another job runs.

        Return an occurrence at the present instant, with its job.

        Raises:
            ScheduleNotFound: no worker has declared the cron yet.
        """
        return self._schedules.trigger(self.name, actor=actor)

    async def atrigger(self, *, actor: str | None = None) -> Occurrence:
        """Start a job now; see `trigger`."""
        return await self._schedules.atrigger(self.name, actor=actor)

    def backfill(self, since: datetime, until: datetime, *, actor: str | None = None) -> tuple[Occurrence, ...]:
        """Start all occurrences of a span that were not started, and return them. A second call starts nothing.

        That holds as long as occurrences are stored, which is as long as the app keeps jobs (``keep_for``).

        Args:
            since: the first instant, aware and inclusive.
            until: the last instant, aware and inclusive; not in the future.
            actor: for the audit log.

        Raises:
            ScheduleNotFound: no worker has declared the cron yet.
            ScheduleError: there are more than 10,000 occurrences, the end is not past, or an instant is not aware.
        """
        return self._schedules.backfill(self.name, since, until, actor=actor)

    async def abackfill(self, since: datetime, until: datetime, *, actor: str | None = None) -> tuple[Occurrence, ...]:
        """Start all occurrences of a span that were not started; see `backfill`."""
        return await self._schedules.abackfill(self.name, since, until, actor=actor)

    def pause(self, *, actor: str | None = None) -> ScheduleRecord:
        """Start no job until `resume`. Jobs that it has made go on, also one that waits for its jitter or for a retry.

        Raises:
            ScheduleNotFound: no worker has declared the cron yet.
        """
        return self._schedules.pause(self.name, actor=actor)

    async def apause(self, *, actor: str | None = None) -> ScheduleRecord:
        """Start no job until `aresume`; see `pause`."""
        return await self._schedules.apause(self.name, actor=actor)

    def resume(self, *, actor: str | None = None) -> ScheduleRecord:
        """End a pause. The occurrences during the pause are skipped.

        Raises:
            ScheduleNotFound: no worker has declared the cron yet.
        """
        return self._schedules.resume(self.name, actor=actor)

    async def aresume(self, *, actor: str | None = None) -> ScheduleRecord:
        """End a pause; see `resume`."""
        return await self._schedules.aresume(self.name, actor=actor)
