"""A task that runs at the occurrences of a cron expression."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar

from redrive.app.local_call import Traits
from redrive.app.payload import type_name
from redrive.app.protocol import AppProtocol
from redrive.app.task import Options, Task
from redrive.engine.occurrence import Occurrence
from redrive.engine.recurring import CatchUp, CronDefinition, JobTemplate, Overlap, ScheduleRecord
from redrive.errors import ConfigurationError, ScheduleError, TaskDefinitionError
from redrive.policy import parse_duration
from redrive.schedule.timezone import aware
from redrive.stores.operations import crons, schedules
from redrive.stores.query import Operation

__all__ = ["Cron"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class Cron(Task[P, R, C], Generic[P, R, C]):
    """A task whose jobs are made by the clock, one for each occurrence; see `redrive.App.cron`.

    Calling it runs the function here and now, and `enqueue` makes a job that belongs to no occurrence.
    """

    def __init__(  # noqa: PLR0913 - a task, and what makes it a cron
        self,
        app: AppProtocol,
        name: str,
        function: Callable[P, C],
        options: Options,
        *,
        traits: Traits | None = None,
        pattern: str,
        tz: str,
        overlap: Overlap,
        catch_up: CatchUp,
        window: Any,  # noqa: ANN401 - a span, as `parse_duration` takes it
    ) -> None:
        super().__init__(app, name, function, options, traits=traits)
        made = JobTemplate(name, options.queue, options.priority, options.policy)
        try:
            span = parse_duration(window)
            self.definition = CronDefinition(name, pattern, tz, overlap, catch_up, span, made).checked()
        except ConfigurationError as error:
            message = f"cron {name!r}: {error}"
            raise ScheduleError(message) from error
        if catch_up is CatchUp.ALL and overlap is not Overlap.ALLOW:
            message = (
                f"cron {name!r}: catch_up='all' starts several occurrences at once, and overlap={overlap.value!r} "
                "forbids that; say overlap='allow' too (a queue with concurrency=1 runs them one after the other)"
            )
            raise TaskDefinitionError(message)

    def check(self) -> None:
        """Check that it is one that the clock can call, and that its catch task is there and fits."""
        self.check_signature()
        super().check()

    def check_signature(self) -> None:
        """Check that it takes nothing, and gives nothing.

        Raises:
            TaskDefinitionError: it does, or its annotations cannot be resolved.
        """
        if self.signature.payload:
            message = (
                f"cron {self.name!r} takes {', '.join(self.signature.payload)}: the clock has no arguments to give. "
                "It may take a Context, whose occurs_at is the occurrence"
            )
            raise TaskDefinitionError(message)
        returned = self.signature.hints.get("return", type(None))
        if returned is not type(None):
            message = f"cron {self.name!r} returns {type_name(returned)}, but nobody waits for it: make it -> None"
            raise TaskDefinitionError(message)

    # ---------------------------------------------------------------- looking

    @property
    def state(self) -> ScheduleRecord:
        """Where it stands, as the database has it now.

        Raises:
            ScheduleNotFound: no worker has declared it yet.
        """
        return self.app.store.run(schedules.get(self.name))

    async def astate(self) -> ScheduleRecord:
        """Where it stands; see `state`."""
        return await self.app.store.arun(schedules.get(self.name))

    def occurrences(self, *, before: datetime | None = None, limit: int = 100) -> tuple[Occurrence, ...]:
        """What became of its occurrences, the latest first.

        Args:
            before: only earlier ones, aware.
            limit: at most so many.

        Returns:
            The occurrences that were started, queued, skipped or missed.

        Raises:
            ScheduleError: the instant is not aware.
        """
        return self.app.store.run(self._occurrences(before, limit))

    async def aoccurrences(self, *, before: datetime | None = None, limit: int = 100) -> tuple[Occurrence, ...]:
        """What became of its occurrences; see `occurrences`."""
        return await self.app.store.arun(self._occurrences(before, limit))

    def _occurrences(self, before: datetime | None, limit: int) -> Operation[tuple[Occurrence, ...]]:
        end = None if before is None else aware("before", before)
        return schedules.occurrences(self.name, before=end, limit=limit)

    # ---------------------------------------------------------------- acting

    def trigger(self, *, actor: str | None = None) -> Occurrence:
        """Start it now, due or not, paused or not, and whatever runs.

        Args:
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            An occurrence at this very instant, with its job.

        Raises:
            ScheduleNotFound: no worker has declared it yet.
        """
        return self.app.store.run(crons.trigger(self.name, actor=actor or self.app.actor, now=self.app.now()))

    async def atrigger(self, *, actor: str | None = None) -> Occurrence:
        """Start it now; see `trigger`."""
        return await self.app.store.arun(crons.trigger(self.name, actor=actor or self.app.actor, now=self.app.now()))

    def backfill(self, since: datetime, until: datetime, *, actor: str | None = None) -> tuple[Occurrence, ...]:
        """Start all occurrences of a span that were not started. Doing it twice is doing it once.

        That holds as long as occurrences are remembered, which is as long as the app keeps jobs (``keep_for``).

        Args:
            since: aware; one at this very instant belongs to them.
            until: aware, not in the future; one at this very instant belongs to them.
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            Those that were started by this call.

        Raises:
            ScheduleNotFound: no worker has declared it yet.
            ScheduleError: there are more than 10,000, the end is not past, or an instant is not aware.
        """
        return self.app.store.run(self._backfill(since, until, actor))

    async def abackfill(self, since: datetime, until: datetime, *, actor: str | None = None) -> tuple[Occurrence, ...]:
        """Start all occurrences of a span that were not started; see `backfill`."""
        return await self.app.store.arun(self._backfill(since, until, actor))

    def _backfill(self, since: datetime, until: datetime, actor: str | None) -> Operation[tuple[Occurrence, ...]]:
        begin, end = aware("since", since), aware("until", until)
        return crons.backfill(self.name, begin, end, actor=actor or self.app.actor, now=self.app.now())

    def pause(self, *, actor: str | None = None) -> ScheduleRecord:
        """Start nothing of it until `resume`; what runs goes on.

        Args:
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            Where it stands now.

        Raises:
            ScheduleNotFound: no worker has declared it yet.
        """
        return self.app.store.run(schedules.pause(self.name, actor=actor or self.app.actor, now=self.app.now()))

    async def apause(self, *, actor: str | None = None) -> ScheduleRecord:
        """Start nothing of it until `aresume`; see `pause`."""
        return await self.app.store.arun(schedules.pause(self.name, actor=actor or self.app.actor, now=self.app.now()))

    def resume(self, *, actor: str | None = None) -> ScheduleRecord:
        """Go on. Occurrences of the time of the pause are left out.

        Args:
            actor: who does it, for the audit log; without it, who runs this process.

        Returns:
            Where it stands now.

        Raises:
            ScheduleNotFound: no worker has declared it yet.
        """
        return self.app.store.run(schedules.resume(self.name, actor=actor or self.app.actor, now=self.app.now()))

    async def aresume(self, *, actor: str | None = None) -> ScheduleRecord:
        """Go on; see `resume`."""
        return await self.app.store.arun(schedules.resume(self.name, actor=actor or self.app.actor, now=self.app.now()))
