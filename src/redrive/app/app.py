"""The App: one database, and the tasks with jobs in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, UnsetType

from redrive.app import completion, waiting
from redrive.app.context import Context, Pending
from redrive.app.database import Database, Workers, default_actor
from redrive.app.decorators import AnyArgument, ContextInside, CronDecorator, RefreshDecorator, TaskDecorator
from redrive.app.job import Job
from redrive.app.jobs import Jobs
from redrive.app.payload import Signature
from redrive.app.protocol import arun, run
from redrive.app.queues import Queue, Queues, queue_change
from redrive.app.refreshes import Refreshes
from redrive.app.registry import (
    FOREVER,
    Declaration,
    Registry,
    retention_time,
)
from redrive.app.resources import F, Hooks
from redrive.app.schedules import Schedules
from redrive.app.task import Task
from redrive.clock import Clock
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.lease import LeaseTerms
from redrive.engine.outcome import Transition
from redrive.engine.queue import Rate
from redrive.engine.recurring import CatchUp, Overlap
from redrive.errors import JobError, TaskDefinitionError
from redrive.policy import Policy, parse_duration
from redrive.policy.duration import Duration
from redrive.schedule import RefreshPolicy
from redrive.schedule.timezone import member
from redrive.stores.drivers.forks import ForkSafeLock
from redrive.stores.opening import open_store
from redrive.stores.operations import admin
from redrive.stores.operations.retention import RetentionTimes
from redrive.stores.store import Store

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """One database, and the tasks with jobs in it.

    The database is opened at its first use, so that importing a module with an App costs nothing and cannot fail.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute), ``turso:///app.db``,
            ``postgresql://...`` or ``memory://``.
        heartbeat_every: the time between two heartbeats of a worker: a ``timedelta``, seconds, or text.
        lease_for: the time after its last heartbeat when a worker counts as dead.
        include: modules to import before work starts, for tasks that are defined elsewhere.
        clock: for tests; without it the database's clock is used.
        keep_for: how long jobs are kept that succeeded, were cancelled, or were caught; ``"forever"`` keeps them all.
        keep_dead_for: how long other dead jobs are kept; by default for ever.

    Attributes:
        jobs: jobs by filter.
        queues: the settings of queues.
        schedules: crons and refreshes.
        refreshes: the items of refreshes.
        workers: the workers.
        hooks: the functions of `on_start` and `on_stop`.
        database: the audit log, and a check of the database.

    Raises:
        ConfigurationError: a healthy worker would lose its leases under these times, or a time is not positive.
    """

    def __init__(  # noqa: PLR0913 - the settings of an app, by keyword
        self,
        url: str = "sqlite:///redrive.db",
        *,
        heartbeat_every: Duration = "5s",
        lease_for: Duration = "15s",
        include: Iterable[str] = (),
        clock: Clock | None = None,
        keep_for: Duration = "7d",
        keep_dead_for: Duration = FOREVER,
    ) -> None:
        self.url = url
        self.keep = RetentionTimes(retention_time(keep_for, "keep_for"), retention_time(keep_dead_for, "keep_dead_for"))
        self.terms = LeaseTerms(parse_duration(heartbeat_every), parse_duration(lease_for))
        self.clock = clock
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.schedules = Schedules(self)
        self.refreshes = Refreshes(self)
        self.workers = Workers(self)
        self.database = Database(self)
        self.hooks = Hooks()
        self._registry = Registry(self, include)
        self._lock = ForkSafeLock()
        self._store: Store | None = None
        self._uid: str | None = None

    # ---------------------------------------------------------------- definitions

    @overload
    def task(
        self, function: Callable[Concatenate[AnyArgument, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[Concatenate[AnyArgument, P], R | Pending], /) -> Task[..., R, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Task[P, R, Coroutine[Any, Any, R], Concatenate[Context, P]]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], R | Pending], /
    ) -> Task[P, R, R, Concatenate[Context, P]]: ...
    @overload
    def task(
        self, function: ContextInside[Coroutine[Any, Any, R | Pending]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: ContextInside[R | Pending], /) -> Task[..., R, R]: ...
    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R | Pending], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        retry: Policy | str | None = None,
        queue: str = "default",
        timeout: Duration | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Duration | None = None,
        keep_for: Duration | None = None,
        aka: str | Iterable[str] = (),
    ) -> TaskDecorator: ...
    def task(  # noqa: PLR0913 - the options of a task, by keyword
        self,
        function: Callable[..., Any] | None = None,
        *,
        retry: Policy | str | None = None,
        queue: str = "default",
        timeout: Duration | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Duration | None = None,
        keep_for: Duration | None = None,
        aka: str | Iterable[str] = (),
    ) -> Any:
        """Register a function that can run durably, and return the task, which can still be called as the function.

        ``async def`` runs on the worker's event loop, ``def`` in a thread.

        Args:
            function: if used without parentheses.
            retry: a directive such as ``"5 1s catch recover"`` or a `Policy`; without it a failure is final.
            queue: the queue of its jobs.
            timeout: the time limit of an attempt, after which it is cut off and has failed; by default an hour.
            name: unique in the app; by default the name of the function.
            priority: jobs with a smaller one run first.
            idempotent: False if a job must not run again after its worker died: it then runs at most once, and is dead
                with the reason ``LOST_IN_FLIGHT``. True if also a `call` in process may be repeated in such a case. By
                default only jobs run again.
            soft_timeout: the time after which an attempt is asked to stop, before ``timeout`` cuts it off: an ``async
                def`` handler gets a `SoftTimeout`, and ``ctx.should_stop`` is true.
            keep_for: how long its jobs are kept after they ended; by default as for the app.
            aka: earlier names of a renamed task: jobs that are stored under them run as jobs of this task.

        Raises:
            PolicyError: the directive cannot be read; the message names the function.
            TaskDefinitionError: a name is taken, the parameters cannot be stored, or the soft timeout is not shorter
                than the hard one.
            CatchDefinitionError: the catch task takes another request, or returns something.
        """
        declaration = Declaration(retry, queue, timeout, name, priority, idempotent, soft_timeout, keep_for, aka)

        def register(target: Callable[..., Any]) -> Task[Any, Any, Any]:
            return self._registry.task(target, declaration)

        return register if function is None else register(function)

    def cron(  # noqa: PLR0913 - the options of a cron, by keyword
        self,
        pattern: str,
        *,
        tz: str = "UTC",
        retry: Policy | str | None = None,
        overlap: Literal["skip", "queue", "cancel", "allow"] = "skip",
        catch_up: Literal["one", "all", "none"] = "one",
        window: Duration = "1d",
        queue: str = "default",
        timeout: Duration | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Duration | None = None,
        keep_for: Duration | None = None,
    ) -> CronDecorator:
        """Register a function that runs at the occurrences of a cron expression.

        Each occurrence makes one job with retries of its own, whatever the number of workers. The worker that started
        last declares the crons of its code; crons that its code no longer has do not occur.

        Args:
            pattern: ``"*/5 * * * *"``; six fields begin with seconds, seven end with years; ``@daily`` and similar
                names; FTL's ``30s``, ``12h``, ``Mon``. The reference describes the fields.
            tz: the time zone of the pattern, such as ``Europe/Kyiv``. A time that does not exist occurs at the first
                instant after the gap; a time that exists twice occurs once.
            retry: a directive or a `Policy` for each job; without it a failure is final, until the next occurrence.
            overlap: what happens while the previous job has not ended: the occurrence is skipped (``"skip"``), waits
                for the end of that job, one occurrence at most (``"queue"``), cancels it (``"cancel"``), or runs beside
                it (``"allow"``).
            catch_up: which of the occurrences start that were missed while no worker ran: the last (``"one"``), all
                within ``window`` (``"all"``; only with ``overlap="allow"``), or none (``"none"``).
            window: a ``timedelta``, seconds, or text.
            queue: the queue of its jobs.
            timeout: the time limit of an attempt; by default an hour.
            name: unique in the app; by default the name of the function.
            priority: jobs with a smaller one run first.
            idempotent: as for `task`.
            soft_timeout: as for `task`.
            keep_for: as for `task`.

        Raises:
            ScheduleError: the pattern or the time zone cannot be read, or the pattern never occurs.
            PolicyError: the directive cannot be read.
            TaskDefinitionError: the name is taken or has a slash, the function takes arguments or returns something, or
                there is no pattern.

        Warns:
            RuntimeWarning: all its occurrences lie in the past.
        """
        if not isinstance(pattern, str):
            raise TaskDefinitionError(
                f'a cron is made by @app.cron("*/5 * * * *") above a function, and {pattern!r} is no text'
            )
        how = member(Overlap, "overlap", overlap)
        late = member(CatchUp, "catch_up", catch_up)
        declaration = Declaration(retry, queue, timeout, name, priority, idempotent, soft_timeout, keep_for)

        def register(target: Callable[..., Any]) -> Any:  # noqa: ANN401 - see `CronDecorator`
            return self._registry.cron(
                target, declaration, pattern=pattern, tz=tz, overlap=how, catch_up=late, window=window
            )

        return register

    def refresh(  # noqa: PLR0913 - the options of a refresh, by keyword
        self,
        policy: RefreshPolicy | str,
        *,
        on_disabled: Task[Any, Any, Any] | str | None = None,
        queue: str = "default",
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Duration | None = None,
        keep_for: Duration | None = None,
    ) -> RefreshDecorator:
        """Register a function that refreshes items on a schedule, with retries between planned times.

        `Refresh.track` adds items. Each attempt is a job. The refresh policy decides when the next one starts, and has
        the time limit of an attempt.

        Args:
            policy: in English, such as ``"Refresh every 2 hours; allow 10 minutes; on the first failure retry
                immediately"``, or as a value.
            on_disabled: the task that receives a `redrive.Disabled` when an item was given up.
            queue: the queue of its jobs.
            name: unique in the app; by default the name of the function.
            priority: jobs with a smaller one run first.
            idempotent: as for `task`. With False, an attempt has failed if its worker died, and the next one is another
                attempt.
            soft_timeout: as for `task`.
            keep_for: as for `task`.

        Raises:
            ScheduleSyntaxError: the policy cannot be parsed; the error has the line and the column.
            TaskDefinitionError: the name is taken or has a slash, the parameters cannot be stored, ``on_disabled``
                takes something else, or there is no policy.

        Warns:
            RuntimeWarning: all its planned refreshes lie in the past.
        """
        if not isinstance(policy, RefreshPolicy | str):
            raise TaskDefinitionError(
                f'a refresh is made by @app.refresh("Refresh every 2 hours") above a function, and {policy!r} is no '
                "policy"
            )
        found = RefreshPolicy.parse(policy) if isinstance(policy, str) else policy
        declaration = Declaration(None, queue, found.timeout, name, priority, idempotent, soft_timeout, keep_for)

        def register(target: Callable[..., Any]) -> Any:  # noqa: ANN401 - see `RefreshDecorator`
            return self._registry.refresh(target, declaration, refresh=found, on_disabled=on_disabled)

        return register

    def queue(  # noqa: PLR0913 - the limits of a queue, by keyword
        self,
        name: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        per_partition: int | UnsetType | None = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        ordered: bool | UnsetType = UNSET,
        aging: Duration | UnsetType | None = UNSET,
    ) -> Queue:
        """Return a handle on a queue, and declare its limits.

        Workers apply the declared limits when they start. As soon as an operator has changed the queue (by
        `Queue.limit`, `Queue.pause`, or ``redrive queues``), those settings replace the declared ones, until
        `Queue.forget`.
        `Queue.limit` describes the limits.

        Raises:
            ConfigurationError: a limit is not positive, or the rate cannot be read.
        """
        change = queue_change(
            concurrency=concurrency, per_partition=per_partition, rate=rate, ordered=ordered, aging=aging
        )
        return self.queues.declare(name, change)

    def on_start(self, function: F, /) -> F:
        """Register a function that each worker of this app runs when it starts, before it claims a job.

        It opens what handlers share, such as a pool of connections, and returns it in a dictionary by names:
        ``ctx.resources`` of each handler has the resources of all start hooks. With a ``yield`` in place of the
        ``return``, the part behind it runs when the worker stops, after the last handler.

        Args:
            function: sync or async, with one ``yield`` or none. It takes nothing, or one parameter, which receives the
                resources of the hooks before it. Sync hooks of a worker run in one thread.

        Returns:
            The function.

        Raises:
            TaskDefinitionError: it is no function, or takes something else.
        """
        return self.hooks.add_start(function)

    def on_stop(self, function: F, /) -> F:
        """Register a function that each worker of this app runs when it stops, after the last handler.

        Stop hooks run after every start: also after Ctrl-C, after an error of the worker, and after a start hook that
        failed. The last one in the code runs first. An error is logged, and the next hook runs. A hook that takes
        longer than 10 seconds is left behind.

        Args:
            function: sync or async. It takes nothing, or one parameter, which receives the resources.

        Returns:
            The function.

        Raises:
            TaskDefinitionError: it is no function, yields, or takes something else.
        """
        return self.hooks.add_stop(function)

    # ---------------------------------------------------------------- tasks

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The registered tasks by name."""
        return self._registry.tasks

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by ``task`` or by ``module.task``, as a job or a policy names it; None if there is none."""
        return self._registry.find(name)

    def served(self) -> frozenset[str]:
        """Return every name under which a job of these tasks may be stored.

        A worker claims jobs of these names: those of the tasks, of ``aka=``, and ``module.task`` of tasks that catch.
        """
        return self._registry.served()

    def check(self) -> None:
        """Check that every included module imports, and that every catch task exists and fits.

        Runs at the first enqueue and at the start of a worker, and again when tasks were added.

        Raises:
            ConfigurationError: something is missing; the message names it.
        """
        self._registry.check()

    def check_policy(self, policy: Policy, signature: Signature) -> None:
        """Check that the catch task that a policy names exists and fits."""
        self._registry.check_policy(policy, signature)

    def policies(self) -> Mapping[str, FrozenPolicy]:
        """Return the present policy of each task, by the name of the task and by its earlier names."""
        return {name: freeze(task.policy) for task in self.tasks.values() for name in task.names}

    def keeps(self) -> Mapping[str, RetentionTimes]:
        """Return how long the ended jobs of each task are kept, by its name and by its earlier names."""
        spans = {name: task.traits.keep_for for task in self.tasks.values() for name in task.names}
        return {
            name: self.keep if isinstance(span, UnsetType) else RetentionTimes(span, self.keep.dead)
            for name, span in spans.items()
        }

    # ---------------------------------------------------------------- hooks of integrations

    def settled(self, moved: Sequence[Transition], lost: Collection[int] = ()) -> None:
        """Receive the transitions that a worker of this app has committed, and the leases that had been lost."""

    async def finish(self) -> None:
        """Wait until the work that `settled` has started is done; a worker awaits it before it ends."""

    # ---------------------------------------------------------------- the database

    @property
    def store(self) -> Store:
        """The database, opened at its first use."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = open_store(self.url)
        return self._store

    @property
    def uid(self) -> str:
        """The unique id of this database, which is part of every idempotency key."""
        if self._uid is None:
            self._uid = self.store.run(admin.identify("uid"))
        return self._uid

    async def auid(self) -> str:
        """Return the unique id of this database without blocking the event loop; see `uid`."""
        if self._uid is None:
            self._uid = await self.store.arun(admin.identify("uid"))
        return self._uid

    @property
    def actor(self) -> str:
        """The default actor for the audit log: ``user@host`` of this process."""
        return default_actor()

    def now(self) -> datetime | None:
        """Return the instant of the injected clock; None in production, where the database's clock is used."""
        return None if self.clock is None else self.clock.now()

    def open(self, *, migrate: bool = True) -> App:
        """Check the tasks, open the database now, create or migrate it, and return this app.

        Without this the first use does it, which may be in the middle of a transaction of yours; see
        ``docs/how-to/enqueue-in-a-transaction.md``.

        Args:
            migrate: False for a program that only reads: the database must exist with a schema that this redrive can
                work with. It is not changed, and the tasks are not checked.

        Raises:
            ConfigurationError: a task is not complete.
            StoreError: the database cannot be opened; without ``migrate``, it does not exist or has another schema.
        """
        if migrate:
            self.check()
            _ = self.store
            return self
        with self._lock:
            if self._store is None:
                store = open_store(self.url, migrated=False)
                try:
                    store.check_schema()
                except BaseException:
                    store.close()
                    raise
                self._store = store
        return self

    def close(self) -> None:
        """Finish what is queued and close the database. A later use opens it again."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None
                self._uid = None

    # ---------------------------------------------------------------- jobs

    def job(self, number: int) -> Job[Any]:
        """Return a handle on a job by its id. It is read when one of its properties is read."""
        return Job(self, number)

    @overload
    def results(self, jobs: Iterable[Job[R]], timeout: Duration | None = None) -> list[R]: ...
    @overload
    def results(
        self, jobs: Iterable[Job[R]], timeout: Duration | None = None, *, return_exceptions: bool
    ) -> list[R | JobError]: ...
    def results(
        self, jobs: Iterable[Job[Any]], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for several jobs to end, and return their results in the order given. One query reads all of them.

        Args:
            jobs: handles on jobs of this app, for example those that ``enqueue_many`` has returned.
            timeout: the time to wait for all of them: a ``timedelta``, seconds, or text; None waits for ever.
            return_exceptions: put the `JobDead` or `JobCancelled` of a job in the place of its result, as
                `asyncio.gather` does. By default the first one that is found is raised at once.

        Raises:
            JobDead: a job gave up; the other jobs go on.
            JobCancelled: a job was cancelled.
            JobNotFound: a job does not exist.
            ResultTimeout: some have not ended in time, or the database has not answered in time. The jobs go on.
        """
        end, wanted = waiting.until(timeout), [job.identity for job in jobs]
        steps = waiting.collect(self, wanted, timeout, end, return_exceptions=return_exceptions)
        return waiting.wait(self.store, steps, end, "some of the jobs")

    @overload
    async def aresults(self, jobs: Iterable[Job[R]], timeout: Duration | None = None) -> list[R]: ...  # noqa: ASYNC109 - as `results`
    @overload
    async def aresults(
        self,
        jobs: Iterable[Job[R]],
        timeout: Duration | None = None,  # noqa: ASYNC109 - as `results`
        *,
        return_exceptions: bool,
    ) -> list[R | JobError]: ...
    async def aresults(
        self,
        jobs: Iterable[Job[Any]],
        timeout: Duration | None = None,  # noqa: ASYNC109 - as `results`
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Await the ends of several jobs, and return their results; see `results`."""
        end, wanted = waiting.until(timeout), [job.identity for job in jobs]
        steps = waiting.collect(self, wanted, timeout, end, return_exceptions=return_exceptions)
        return await waiting.await_(self.store, steps, end, "some of the jobs")

    def read_result(self, task: str, raw: bytes | None) -> Any:  # noqa: ANN401 - the user's
        """Read a stored result by the return annotation of its task; as plain JSON if there is no such task."""
        known = self.find(task)
        if known is not None:
            return known.returns.read(raw)
        return None if raw is None else msgspec.json.decode(raw)

    def complete(self, token: str, result: object = None) -> bool:
        """Report success for an attempt with a handler that returned `Pending`.

        The call may come before the handler has returned. It may be repeated, for example because the reply to the
        first one was lost: it counts once.

        Args:
            token: the handler's ``ctx.attempt_uid``.
            result: the result of the job, checked against the return annotation of the task.

        Returns:
            True if this call has ended the attempt, False if the same call has done so before.

        Raises:
            TokenError: the token does not name an attempt.
            JobNotFound: there is no such job.
            LeaseLost: the attempt is over: its wait ended, or the job was cancelled or runs again, as the message says.
            PayloadError: the result does not match the annotation; the attempt goes on waiting.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat the call.
        """
        return run(self.store, completion.complete(self, token, result))

    async def acomplete(self, token: str, result: object = None) -> bool:
        """Report success for an attempt with a handler that returned `Pending`; see `complete`."""
        return await arun(self.store, completion.complete(self, token, result))

    def fail(self, token: str, error: Exception | str) -> bool:
        """Report the failure of an attempt with a handler that returned `Pending`; the job's policy decides.

        Args:
            token: the handler's ``ctx.attempt_uid``.
            error: an exception is matched by the policy as if the handler had raised it: its class, and the signals
                `GiveUp` and `RetryAfter`. A text has no class.

        Returns:
            True if this call has ended the attempt, False if the same call has done so before.

        Raises:
            TokenError: the token does not name an attempt.
            JobNotFound: there is no such job.
            LeaseLost: the attempt is over, as the message says.
            PayloadError: the error is none: a `Snooze` or a `Cancel`.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat the call.
        """
        return run(self.store, completion.fail(self, token, error))

    async def afail(self, token: str, error: Exception | str) -> bool:
        """Report the failure of an attempt with a handler that returned `Pending`; see `fail`."""
        return await arun(self.store, completion.fail(self, token, error))
