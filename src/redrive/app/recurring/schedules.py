"""Crons and refreshes as schedules: those that the code declares, and those of the database."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from redrive.app.arguments import checked_text, only_started
from redrive.app.protocol import AppProtocol
from redrive.app.tasks.enqueue import Enqueuer
from redrive.app.tasks.task import Q, Task
from redrive.engine.occurrence import Occurrence
from redrive.engine.origin import Kind
from redrive.engine.recurring import CatchUp, CronDefinition, Definition, JobTemplate, Overlap, ScheduleRecord
from redrive.errors import ConfigurationError, ScheduleError, TaskDefinitionError
from redrive.policy import Policy, parse_duration
from redrive.policy.duration import Duration
from redrive.schedule.timezone import aware, member
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

    def create(
        self,
        name: str,
        when: str,
        task: Task[Any, Any, Any] | str,
        *,
        arguments: Mapping[str, Any] | None = None,
        tz: str = "UTC",
        retry: Policy | str | None = None,
        overlap: Literal["skip", "queue", "cancel", "allow"] = "skip",
        catch_up: Literal["one", "all", "none"] = "one",
        window: Duration = "1d",
        jitter: Duration = 0,
        queue: str | None = None,
        priority: int | None = None,
        replace: bool = False,
        actor: str | None = None,
    ) -> ScheduleRecord:
        """Create a cron at run time, such as one for each customer.

        The database has it until `delete`. Every worker starts its occurrences, also one that runs already and one
        without the task; its jobs then wait for a worker that has it. A cron with the same values stays as it is.

        Args:
            name: unique among the schedules of the database; without a slash.
            when: a pattern, as for `redrive.App.cron`.
            task: a task, or the name of one, also of one without code in this process, as for
                `redrive.App.named`. It may take a `Context` with the occurrence as ``occurs_at``.
            arguments: the arguments of each job, by name.
            tz: the time zone of the pattern.
            retry: a directive or a `Policy` instead of the present one of the task.
            overlap: as for `redrive.App.cron`.
            catch_up: as for `redrive.App.cron`.
            window: as for `redrive.App.cron`: a ``timedelta``, seconds, or text.
            jitter: likewise.
            queue: the queue of its jobs, by default that of the task.
            priority: that of its jobs, by default that of the task.
            replace: True to give an existing cron of this name these values. It keeps its next occurrence if the
                pattern and the time zone stay.
            actor: for the audit log.

        Returns:
            The row of the cron.

        Raises:
            ScheduleError: the name is declared by the code or has a slash, a cron of this name has other values, the
                pattern or the time zone cannot be read, the pattern never occurs again, the jitter is too long, or the
                task is a refresh.
            PayloadError: the arguments do not match the task.
            ConfigurationError: another value is not valid.
        """
        job = {"arguments": arguments, "retry": retry, "queue": queue, "priority": priority}
        times = {"tz": tz, "overlap": overlap, "catch_up": catch_up, "window": window, "jitter": jitter}
        return self._app.store.run(self.creating(name, when, task, job, times, replace=replace, actor=actor))

    async def acreate(
        self,
        name: str,
        when: str,
        task: Task[Any, Any, Any] | str,
        *,
        arguments: Mapping[str, Any] | None = None,
        tz: str = "UTC",
        retry: Policy | str | None = None,
        overlap: Literal["skip", "queue", "cancel", "allow"] = "skip",
        catch_up: Literal["one", "all", "none"] = "one",
        window: Duration = "1d",
        jitter: Duration = 0,
        queue: str | None = None,
        priority: int | None = None,
        replace: bool = False,
        actor: str | None = None,
    ) -> ScheduleRecord:
        """Create a cron at run time; see `create`."""
        job = {"arguments": arguments, "retry": retry, "queue": queue, "priority": priority}
        times = {"tz": tz, "overlap": overlap, "catch_up": catch_up, "window": window, "jitter": jitter}
        return await self._app.store.arun(self.creating(name, when, task, job, times, replace=replace, actor=actor))

    def _template(
        self,
        name: str,
        task: Task[Any, Any, Any] | str,
        arguments: Mapping[str, Any] | None,
        **options: Any,
    ) -> JobTemplate:
        """Check the name and the task of a cron, and return its jobs."""
        self._app.check()
        checked_text(name, "the name of a cron")
        if "/" in name:
            raise ScheduleError(f"cron {name!r}: a slash separates the name of a schedule from the key of an item")
        if name in self.declared:
            raise ScheduleError(f"cron {name!r}: the code declares a schedule of this name; choose another one")
        if not isinstance(task, Task | str):
            raise ScheduleError(f"cron {name!r}: task is a task or the name of one, got {task!r}")
        if isinstance(task, Task) and self._app.find(task.name) is None:
            raise ScheduleError(
                f"cron {name!r}: {task.name!r} is a task of another app, which has a database of its own"
            )
        found: Enqueuer[..., Any] = self._app.named(task.name if isinstance(task, Task) else task)
        if isinstance(found, ScheduledTask) and found.definition.kind is Kind.REFRESH:
            raise ScheduleError(f"cron {name!r}: {found.name!r} is a refresh, whose items have their own times")
        if isinstance(found, Task) and found.is_workflow:
            raise ScheduleError(
                f"cron {name!r}: {only_started(found.name)}; schedule a task that calls that, with an id made of the "
                "occurrence (Context.occurs_at)"
            )
        given = {} if arguments is None else arguments
        if not isinstance(given, Mapping):
            raise ScheduleError(f"cron {name!r}: arguments are given by name, as {{'cents': 7}}, got {arguments!r}")
        used = found.options(**options)
        if used.signature.known:
            self._app.check_policy(used.defaults.policy.policy, used.signature)
        payload = used.signature.write((), given)
        new = used.new_job(payload)
        return JobTemplate(new.task, new.queue, new.priority, new.policy, payload=payload.decode(), search=new.search)

    def creating(
        self,
        name: str,
        when: str,
        task: Task[Any, Any, Any] | str,
        job: Mapping[str, Any],
        times: Mapping[str, Any],
        *,
        replace: bool,
        actor: str | None,
    ) -> Operation[ScheduleRecord]:
        """Create a cron by the options of its jobs and those of its times, as the operation of both methods."""
        made, how = self._template(name, task, **job), dict(times)
        how["overlap"] = member(Overlap, "overlap", how["overlap"])
        how["catch_up"] = member(CatchUp, "catch_up", how["catch_up"])
        cron = cron_definition(name, when, made, **how)
        return crons.create(cron, replace=replace, actor=self._by(actor), now=self._app.now())

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a cron that was created at run time: it does not occur again. Its jobs stay.

        Args:
            name: the name of the cron.
            actor: for the audit log.

        Raises:
            ScheduleNotFound: there is no schedule of this name.
            ScheduleError: the code of a worker declares it.
        """
        self._app.store.run(crons.delete(name, actor=self._by(actor), now=self._app.now()))

    async def adelete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a cron that was created at run time; see `delete`."""
        await self._app.store.arun(crons.delete(name, actor=self._by(actor), now=self._app.now()))

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
        return actor or self._app.default_actor


def _occurrences(name: str, before: datetime | None, limit: int) -> Operation[tuple[Occurrence, ...]]:
    end = None if before is None else aware("before", before)
    return schedules.occurrences(name, before=end, limit=limit)


def cron_definition(
    name: str,
    pattern: str,
    made: JobTemplate,
    *,
    tz: str,
    overlap: Overlap,
    catch_up: CatchUp,
    window: Any,
    jitter: Any,
) -> CronDefinition:
    """Return the definition of a cron, checked."""
    if not isinstance(pattern, str):
        raise ScheduleError(f'cron {name!r}: a pattern is a text such as "*/5 * * * *", got {pattern!r}')
    try:
        spans = parse_duration(window), made, parse_duration(jitter)
        definition = CronDefinition(name, pattern, tz, overlap, catch_up, *spans).checked()
    except ConfigurationError as error:
        raise ScheduleError(f"cron {name!r}: {error}") from error
    if catch_up is CatchUp.ALL and overlap is not Overlap.ALLOW:
        raise TaskDefinitionError(
            f"cron {name!r}: catch_up='all' starts several occurrences at once, and overlap={overlap.value!r} "
            "forbids that; add overlap='allow' (a queue with concurrency=1 runs them one after the other)"
        )
    return definition
