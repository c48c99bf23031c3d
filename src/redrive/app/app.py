"""The App: one database, and the tasks with jobs in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, UnsetType

from redrive.app.arguments import checked_clock, checked_count, checked_url
from redrive.app.attempts.resources import F, Hooks
from redrive.app.declarations import Declarations, Tasks
from redrive.app.flows.calls import checked_event, long_span
from redrive.app.flows.runs import Runs
from redrive.app.flows.steps import StepGate
from redrive.app.loading import ReadingStore, naming, refusal
from redrive.app.machines.machines import Machines
from redrive.app.operators.archive import Archive
from redrive.app.operators.bulk import BulkOperations
from redrive.app.operators.database import Database, Workers, default_actor
from redrive.app.operators.jobs import Jobs
from redrive.app.operators.queues import Queue, Queues, queue_change
from redrive.app.payload import Signature, UnknownSignature, write_value
from redrive.app.protocol import arun, run
from redrive.app.recurring.refreshes import Refreshes
from redrive.app.recurring.schedules import Schedules
from redrive.app.registry import FOREVER, Registry, retention_time
from redrive.app.tasks import completion, waiting
from redrive.app.tasks.enqueue import Enqueuer
from redrive.app.tasks.job import Job
from redrive.app.tasks.task import Task
from redrive.app.topics.topics import Topics
from redrive.clock import Clock
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.lease import LeaseTerms
from redrive.engine.outcome import Settlement
from redrive.engine.queue import Rate
from redrive.engine.runs import RESULT_LIMIT
from redrive.errors import ConfigurationError, JobError, TaskDefinitionError
from redrive.forks import ForkSafeLock
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.policy.fields import span
from redrive.seams import spelled, without
from redrive.stores.opening import aopen_store, open_store
from redrive.stores.operations import admin
from redrive.stores.operations.retention import RetentionTimes
from redrive.stores.operations.runs import waits
from redrive.stores.query import Operation
from redrive.stores.store import Store

if TYPE_CHECKING:
    from redrive.app.coded import Codec
    from redrive.app.tasks.batch import Batch

R = TypeVar("R")


class App(Declarations):
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
        keep_cancelled_for: how long cancelled jobs are kept; by default as long as ``keep_for``.
        keep_dead_for: how long other dead jobs are kept; by default for ever.
        retry: the policy of tasks and crons without one of their own, and without one of their queue; a directive or a
            `Policy`. Nothing is merged: a policy of a task or of a queue replaces it whole. The catch task that it
            names has the policy without the catch.
        archive: where workers write jobs before they delete them: the path of a file, or a function that stores lines
            of JSON; see `Jobs.archive`.
        max_payload: the most bytes of JSON of the arguments of a job or run, of a result, of the result of a step, of
            the values of a run together, of an event, and of a signal; by default 1 MiB. Larger ones are refused,
            because the database would read and write them with each claim and backup: store such content elsewhere,
            and pass a reference. What is stored already stays readable.
        codec: encodes the documents that the database stores, for example by encryption: arguments, results, values,
            signals, events, and the data of machines. See ``docs/how-to/encrypt-payloads.md``.

    Attributes:
        jobs: jobs by filter.
        operations: bulk operations: actions on many jobs that other processes carry on.
        queues: the settings of queues.
        schedules: crons and refreshes.
        refreshes: the items of refreshes.
        machines: the machines and their instances.
        topics: topics and their subscriptions.
        steps: the low-level gate of single steps.
        runs: the runs of workflows.
        workers: the workers.
        hooks: the functions of `on_start`, `on_stop`, `around` and `on_enqueue`.
        database: the audit log, and a check of the database.
        reference: the App in commands that the log of a worker recommends, such as ``payments.jobs:app``; the command
            line sets it.

    Raises:
        ConfigurationError: a healthy worker would lose its leases under these times, a time is not positive, or another
            argument is not of its type.
    """

    @spelled("App")
    def __init__(
        self,
        url: str = "sqlite:///redrive.db",
        *,
        heartbeat_every: Duration = "5s",
        lease_for: Duration = "15s",
        include: Iterable[str] = (),
        clock: Clock | None = None,
        keep_for: Duration = "7d",
        keep_dead_for: Duration = FOREVER,
        retry: Policy | str | None = None,
        keep_cancelled_for: Duration | None = None,
        archive: Archive | None = None,
        max_payload: int = RESULT_LIMIT,
        codec: Codec | None = None,
    ) -> None:
        self.url: str = checked_url(url)
        self.reference = "APP"
        self.keep: RetentionTimes = RetentionTimes(
            retention_time(keep_for, "keep_for"),
            retention_time(keep_dead_for, "keep_dead_for"),
            UNSET if keep_cancelled_for is None else retention_time(keep_cancelled_for, "keep_cancelled_for"),
        )
        self.archive = archive
        self._codec = codec
        self.max_payload: int = checked_count(max_payload, "App(max_payload=...)")
        self.terms: LeaseTerms = LeaseTerms(span(heartbeat_every, "heartbeat_every"), span(lease_for, "lease_for"))
        self.clock: Clock | None = checked_clock(clock)
        self.jobs: Jobs = Jobs(self)
        self.operations: BulkOperations = BulkOperations(self)
        self.queues: Queues = Queues(self)
        self.schedules: Schedules = Schedules(self)
        self.refreshes: Refreshes = Refreshes(self)
        self.machines: Machines = Machines(self)
        self.steps: StepGate = StepGate(self)
        self.runs: Runs = Runs(self)
        self.workers: Workers = Workers(self)
        self.database: Database = Database(self)
        self.hooks: Hooks = Hooks()
        self._registry = Registry(self, include, default=retry)
        self.machines.declared = self._registry.machines
        self.topics: Topics = Topics(self, self._registry.topics)
        self._lock = ForkSafeLock()
        self._store: Store | None = None
        self._uid: str | None = None

    # ---------------------------------------------------------------- definitions

    @spelled("app.queue", 'app.queue("mail", concurrency=5), and @app.task(queue="mail") above a function')
    def queue(
        self,
        name: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        per_partition: int | UnsetType | None = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        rate_per_partition: Rate | str | UnsetType | None = UNSET,
        ordered: bool | UnsetType = UNSET,
        aging: Duration | UnsetType | None = UNSET,
        retry: Policy | str | None = None,
    ) -> Queue:
        """Return a handle on a queue, and declare its limits.

        Workers apply the declared limits when they start. As soon as an operator has changed the queue (by
        `Queue.limit`, `Queue.pause`, or ``redrive queues``), those settings replace the declared ones, until
        `Queue.forget`.
        `Queue.limit` describes the limits.

        ``retry`` is the policy of tasks and crons of this queue that have none of their own; it replaces that of the
        app whole. Declare it above the tasks. It applies to the queue in the decorator, not to `Enqueuer.options`.

        Raises:
            ConfigurationError: a limit is not positive, or the rate cannot be read.
            PolicyError: the policy cannot be read.
            TaskDefinitionError: the queue has a policy already, or a task above would have it.
        """
        if retry is not None:
            self._registry.default_of(name, retry)
        change = queue_change(
            concurrency=concurrency,
            per_partition=per_partition,
            rate=rate,
            rate_per_partition=rate_per_partition,
            ordered=ordered,
            aging=aging,
        )
        return self.queues.declare(name, change)

    def batch(self) -> Batch:
        """Return an empty batch: jobs that are enqueued together, and one that runs when all of them have ended."""
        from redrive.app.tasks.batch import Batch

        return Batch(self)

    @spelled("@app.on_start")
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
            TaskDefinitionError: it is no function, or takes other parameters.
        """
        return self.hooks.add_start(function)

    @spelled("@app.on_stop")
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
            TaskDefinitionError: it is no function, yields, or takes other parameters.
        """
        return self.hooks.add_stop(function)

    def around(self, function: F, /) -> F:
        """Register a middleware: a function that wraps each call of a handler, of a step, and of an undo.

        It is a ``def`` with one ``yield``, where the call takes place, and takes the `Execution`. It runs in each
        attempt and each try, in the thread of the call, with its context variables, and within its time limit: around
        tasks, catch tasks, crons, refreshes, subscribers, states of machines, and the steps and undos of runs. It does
        not run around the body of a workflow, nor for a step whose result is recorded, nor for ``call()``. The first
        one in the code is outside.

        An error of the call is raised at the ``yield``. Another error that the middleware raises takes its place, and
        one before or behind the ``yield`` is a failure of the attempt too; the policy decides on it. Behind a handler
        that has ended its job by ``ctx.transaction()`` an error is only logged. `GiveUp`, `RetryAfter`, `Snooze` and
        `Cancel` work as in a handler. An error that the middleware catches and does not raise again stays the failure
        of the attempt.

        Args:
            function: a ``def`` with one ``yield``, which takes one parameter.

        Returns:
            The function.

        Raises:
            TaskDefinitionError: it is async, does not yield, or takes other parameters.
        """
        # Most programs have no middleware, and need not load it.
        from redrive.app.attempts.around import checked_middleware

        self.hooks.around.append(checked_middleware(function))
        return function

    def on_enqueue(self, function: F, /) -> F:
        """Register a function that is called with each job, and each run, before it is enqueued by this app.

        It is called where the program enqueues or starts: once for each job of ``enqueue_many``, in handlers and steps,
        with ``using=``, and for child runs when they begin. Jobs that redrive makes by itself have no caller, and do
        not come here: those of crons, refreshes and catch tasks, deliveries, and transitions of machines.

        Args:
            function: a ``def`` that takes the `EnqueueRequest`. It returns tags to be added, a text or several, or
                None. What it raises is raised by the enqueue, which then stores nothing.

        Returns:
            The function.

        Raises:
            TaskDefinitionError: it is async, yields, or takes other parameters.
        """
        from redrive.app.attempts.around import checked_listener

        checked_listener(function)
        self.hooks.enqueue.append(function)
        return function

    # ---------------------------------------------------------------- tasks

    def named(self, name: str) -> Enqueuer[..., Any]:
        """Return the enqueueing methods of a task by its name, also of one without code in this process.

        A task that this process has is the same as without the name: its options, and the check of its arguments. Any
        other is enqueued with arguments by name that JSON does not change; the workers that have the task check them.
        Its jobs have the queue ``default`` and the policy of the app, unless `Enqueuer.options` changes them.

        Args:
            name: the name of the task, as in `task`.

        Raises:
            ConfigurationError: the name is empty.
        """
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"app.named() takes the name of a task, got {name!r}")
        found = self.find(name)
        if found is not None:
            return found
        signature = UnknownSignature(name)
        signature.limit = self.max_payload
        return Enqueuer(self, name, signature, self._registry.options_of_unknown(name))

    def include(self, tasks: Tasks) -> None:
        """Register the tasks, crons and refreshes of a collection, which then belong to this app.

        Args:
            tasks: a collection of another module.

        Raises:
            TaskDefinitionError: a name is taken, the collection belongs to another app, or it is none.
        """
        if not isinstance(tasks, Tasks):
            raise TaskDefinitionError(
                f"app.include() takes a redrive.Tasks collection, got {tasks!r}; name modules in App(include=[...])"
            )
        tasks.included_in(self, self._registry)

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
            name: self.keep
            if isinstance(span, UnsetType)
            else RetentionTimes(span, self.keep.dead, self.keep.cancelled)
            for name, span in spans.items()
        }

    # ---------------------------------------------------------------- hooks of integrations

    def settled(self, moved: Sequence[Settlement], lost: Collection[int] = ()) -> None:
        """Receive the settlements that a worker of this app has committed, and the leases that had been lost."""

    async def finish(self) -> None:
        """Wait until the work that `settled` has started is done; a worker awaits it before it ends."""

    # ---------------------------------------------------------------- the database

    @property
    def store(self) -> Store:
        """The database, opened at its first use; it only reads during imports and in bodies of workflows."""
        if refusal() is not None:
            return cast("Store", ReadingStore(self._opened))
        return self._opened()

    def _opened(self) -> Store:
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = self._coded(open_store(self.url))
        return self._store

    def _coded(self, store: Store) -> Store:
        if self._codec is None:
            return store
        from redrive.app.coded import CodedStore

        return cast("Store", CodedStore(store, self._codec))

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
    def default_actor(self) -> str:
        """The default actor for the audit log: ``user@host`` of this process."""
        return default_actor()

    if not TYPE_CHECKING:  # a type checker would take every attribute for known
        __getattr__ = without("app")

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
            self._opened()
            return self
        with self._lock, naming(self.reference):
            if self._store is None:
                store = open_store(self.url, migrated=False)
                try:
                    store.check_schema()
                except BaseException:
                    store.close()
                    raise
                self._store = self._coded(store)
        return self

    async def aopen(self) -> App:
        """Open the database as `open` does, in a coroutine.

        Raises:
            ConfigurationError: a task is not complete.
            StoreError: the database cannot be opened.
        """
        self.check()
        if self._store is None:
            store = self._coded(await aopen_store(self.url))
            with self._lock:
                self._store, spare = self._store or store, self._store and store
            if spare is not None:
                spare.close()
        return self

    def close(self) -> None:
        """Finish what is queued and close the database; one in memory ends with that. A later use opens it again."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None
                self._uid = None

    # ---------------------------------------------------------------- jobs

    def job(self, number: int) -> Job[Any]:
        """Return a handle on a job by its id. It is read when one of its properties is read.

        Raises:
            ConfigurationError: the id is no whole number above zero.
        """
        return Job(self, checked_count(number, "the id of a job"))

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
            ConfigurationError: a job is in the database of another app.
            ResultTimeout: some have not ended in time, or the database has not answered in time. The jobs go on.
        """
        end, wanted = waiting.until(timeout), [job.identity(self) for job in jobs]
        steps = waiting.collect(self, wanted, timeout, end, return_exceptions=return_exceptions)
        return waiting.wait(self.store, steps, end, "some of the jobs")

    @overload
    async def aresults(self, jobs: Iterable[Job[R]], timeout: Duration | None = None) -> list[R]: ...
    @overload
    async def aresults(
        self, jobs: Iterable[Job[R]], timeout: Duration | None = None, *, return_exceptions: bool
    ) -> list[R | JobError]: ...
    async def aresults(
        self, jobs: Iterable[Job[Any]], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Await the ends of several jobs, and return their results; see `results`."""
        end, wanted = waiting.until(timeout), [job.identity(self) for job in jobs]
        steps = waiting.collect(self, wanted, timeout, end, return_exceptions=return_exceptions)
        return await waiting.await_(self.store, steps, end, "some of the jobs")

    def emit(self, name: str, value: object = None, *, keep_for: Duration = "30d", using: object = None) -> bool:
        """Publish a value for every run that waits for this name by ``flow.wait_for_event``, now or later.

        The first value of a name wins; later ones are dropped until it is deleted.

        Args:
            name: such as ``"invoice-7 paid"``.
            value: anything that can be written as JSON.
            keep_for: how long runs that begin to wait later receive it: a ``timedelta``, seconds, or text.
            using: your own connection to the same database; the value is published if its transaction commits.

        Returns:
            False if the name has a value already.

        Raises:
            PayloadError: the value cannot be written.
            ConfigurationError: the name is empty or begins with a colon.
        """
        return self.store.run(self._emit(name, value, keep_for), using=using)

    async def aemit(self, name: str, value: object = None, *, keep_for: Duration = "30d", using: object = None) -> bool:
        """Publish a value for every run that waits for this name; see `emit`."""
        return await self.store.arun(self._emit(name, value, keep_for), using=using)

    def _emit(self, name: str, value: object, keep_for: Duration) -> Operation[bool]:
        checked_event(name, "app.emit(): the name")
        keep = long_span(keep_for, "app.emit(): keep_for")
        return waits.emit(
            name, write_value(value, "app.emit(): the value", self.max_payload), keep=keep, now=self.now()
        )

    def read_result(self, task: str, raw: bytes | None) -> Any:
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
            LeaseLost: the attempt is over: its wait ended, or the job was cancelled or runs again.
            PayloadError: the result does not match the annotation; the attempt goes on waiting.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat the call.
        """
        return run(self.store, completion.complete(self, token, result))

    async def acomplete(self, token: str, result: object = None) -> bool:
        """Report success for an attempt with a handler that returned `Pending`; see `complete`."""
        return await arun(self.store, completion.complete(self, token, result))

    def report(self, token: str, details: object) -> None:
        """Report the progress of an attempt that waits for an answer from outside; the attempt goes on.

        The details are `Job.progress`, as those of ``ctx.heartbeat()``: a message for users, for example.

        Args:
            token: the handler's ``ctx.attempt_uid``.
            details: anything that can be written as JSON, such as ``{"message": "3 of 7 tables are read"}``; None keeps
                the earlier details.

        Raises:
            TokenError: the token does not name an attempt.
            JobNotFound: there is no such job.
            LeaseLost: the attempt is over; stop the work.
            PayloadError: the details cannot be written as JSON.
            StoreError: the database refused.
        """
        run(self.store, completion.report(self, token, details))

    async def areport(self, token: str, details: object) -> None:
        """Report the progress of an attempt that waits for an answer from outside; see `report`."""
        await arun(self.store, completion.report(self, token, details))

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
            LeaseLost: the attempt is over; the message names the cause.
            PayloadError: the error is none: a `Snooze` or a `Cancel`.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat the call.
        """
        return run(self.store, completion.fail(self, token, error))

    async def afail(self, token: str, error: Exception | str) -> bool:
        """Report the failure of an attempt with a handler that returned `Pending`; see `fail`."""
        return await arun(self.store, completion.fail(self, token, error))
