"""What an App declares, and a collection that it includes: tasks, workflows, crons, refreshes and topics."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from redrive.app import decorators
from redrive.app.arguments import checked_count
from redrive.app.attempts.context import Context, Pending
from redrive.app.flows.flow_steps import declare_step
from redrive.app.protocol import AppProtocol
from redrive.app.registry import FOREVER, Declaration, Registry, retention_time
from redrive.app.tasks.task import Executor, Task
from redrive.app.topics.topic import Retention, Topic
from redrive.engine.recurring import CatchUp, Overlap
from redrive.engine.runs import MAX_STEPS, RESULT_LIMIT
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.schedule import RefreshPolicy
from redrive.schedule.timezone import member
from redrive.seams import spelled, without

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")
F = TypeVar("F", bound=Callable[..., Any])


class Declarations:
    """The decorators of `redrive.App` and of `redrive.Tasks`."""

    _registry: Registry

    @overload
    def task(
        self, function: Callable[Concatenate[decorators.AnyArgument, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[Concatenate[decorators.AnyArgument, P], R | Pending], /) -> Task[..., R, R]: ...  # type: ignore[overload-overlap]
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
        self, function: decorators.ContextInside[Coroutine[Any, Any, R | Pending]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: decorators.ContextInside[R | Pending], /) -> Task[..., R, R]: ...
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
        executor: Executor = "thread",
        search: Iterable[str] = (),
    ) -> decorators.TaskDecorator: ...
    @spelled("@app.task")
    def task(
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
        executor: Executor = "thread",
        search: Iterable[str] = (),
    ) -> Any:
        """Register a function that can run durably, and return the task, which can still be called as the function.

        ``async def`` runs on the worker's event loop, ``def`` in a thread or in a child process.

        Args:
            function: if used without parentheses.
            retry: a directive such as ``"5 1s catch recover"`` or a `Policy`; without it a failure is final. An error
                that another attempt would meet again ends a job at its first attempt, unless ``Policy(on=...)`` names
                it: one that an integration knows, such as a 404, or a programming error, with the reason
                ``PROGRAMMING_ERROR``.
            queue: the queue of its jobs.
            timeout: the time limit of an attempt, after which it is cut off and has failed; by default an hour.
            name: unique in the app; by default the name of the function.
            priority: jobs with a smaller one run first.
            idempotent: False if a job must not run again after its worker died, or after an exception that leaves its
                outcome unknown (`redrive.policy.stage`): it then runs at most once, and is dead. A lost worker has the
                reason ``LOST_IN_FLIGHT``. It also holds for policies around a plain call of the function. True if also
                a `call` in process may be repeated in such a case. By default only jobs run again.
            soft_timeout: the time after which an attempt is asked to stop, before ``timeout`` cuts it off: an ``async
                def`` handler gets a `SoftTimeout`, and ``ctx.should_stop`` is true.
            keep_for: how long its jobs are kept after they ended; by default as for the app.
            aka: earlier names of a renamed task: jobs that are stored under them run as jobs of this task.
            executor: ``"process"`` runs a ``def`` function in a child process of the worker, for computing that would
                hold up the other handlers. Its timeout kills it, and if it dies, the worker goes on. The function
                stands at the top of a module. Its context has no resources and no transaction.
            search: fields of the arguments by which jobs are found, such as ``["invoice", "lines.sku"]``: each enqueue
                writes their values as tags, such as ``17`` for ``invoice=17``. A text or a number is a value; a list
                has those of its members, 100 at most. A value of more than 64 bytes is stored as its beginning and a
                digest of the whole. Without it, values are found among the newest 20,000 jobs. Jobs that were enqueued
                before keep the tags that they have, as do those that a process without this code has enqueued.

        Raises:
            PolicyError: the directive cannot be read; the message names the function.
            TaskDefinitionError: a name is taken, the parameters cannot be stored, the soft timeout is not shorter than
                the hard one, a child process cannot import the function, a field of ``search`` is none of the
                arguments, or dashboards redact it.
            CatchDefinitionError: the catch task takes another request, or returns something.
        """
        declaration = Declaration(
            retry,
            queue,
            timeout,
            name,
            priority,
            idempotent,
            soft_timeout,
            keep_for,
            aka,
            executor=executor,
            search=search,
        )

        def register(target: Callable[..., Any]) -> Task[Any, Any, Any]:
            return self._registry.task(target, declaration)

        return register if function is None else register(function)

    @spelled("@app.workflow", "@app.workflow()")
    def workflow(
        self,
        *,
        version: int = 1,
        retry: Policy | str | None = None,
        steps: Policy | str | None = None,
        deadline: Duration | None = None,
        timeout: Duration | None = None,
        max_steps: int = MAX_STEPS,
        queue: str = "default",
        name: str | None = None,
        priority: int = 0,
        keep_for: Duration | None = None,
        aka: str | Iterable[str] = (),
        search: Iterable[str] = (),
    ) -> decorators.WorkflowDecorator:
        """Register a function with recorded steps, so that a run of it continues where it was after a crash.

        The first parameter of the function is a `Flow` (``async def``) or a `SyncFlow` (``def``), which makes steps,
        waits and branches. `Workflow.start` starts a run. The function is replayed from its beginning when a worker
        continues a run; recorded steps return their recorded results.

        Args:
            version: of the code. A run continues with the function of the version that started it. Keep the earlier
                function, under the same ``name`` and its own version, until its runs have ended.
            retry: the policy of the run: what follows when an error leaves the body. Another attempt replays what is
                recorded. It may have a catch. Without it, such an error is final.
            steps: the policy of steps that have none of their own; without it their first failure is final.
            deadline: the time from the first attempt of a run after which it is not continued: it undoes its steps and
                is dead, also if it waits, is paused or is held then.
            timeout: the time limit of one pass of the body, without the time in which the run is parked; an hour by
                default.
            max_steps: the number of recorded steps at which a run fails.
            queue: the queue of its runs.
            name: unique in the app; by default the name of the function.
            priority: runs with a smaller one are continued first.
            keep_for: how long its runs are kept after they ended; by default as for the app.
            aka: earlier names of a renamed workflow.
            search: as for `task`: fields of the arguments by which runs are found. The id of a run needs none.

        Raises:
            PolicyError: a directive cannot be read.
            TaskDefinitionError: the name is taken, with this version, or has a slash; or the function does not take
                the flow first.
        """
        declaration = Declaration(
            retry, queue, timeout, name, priority, None, None, keep_for, aka, deadline, search=search
        )

        def register(target: Callable[..., Any]) -> Any:
            return self._registry.workflow(target, declaration, version=version, steps=steps, max_steps=max_steps)

        return register

    @overload
    def step(self, function: F, /) -> F: ...
    @overload
    def step(self, *, name: str | None = None, aka: str | Iterable[str] = ()) -> Callable[[F], F]: ...
    @spelled("@app.step")
    def step(
        self, function: Callable[..., Any] | None = None, *, name: str | None = None, aka: str | Iterable[str] = ()
    ) -> Any:
        """Give a function the name under which ``flow.step`` records it, and return the function as it is.

        Only a function that was renamed, or that must have another name than its own, needs this: without it, a step
        is recorded by the name of its function.

        Args:
            function: if used without parentheses.
            name: of the step; by default the name of the function.
            aka: earlier names of the step. Runs that have recorded one of them continue with this function.

        Raises:
            TaskDefinitionError: an earlier name is none, or the function is a task, which has a name of its own.
            ConfigurationError: the name is no text, is empty, or begins with a colon.
        """

        def declare(target: Callable[..., Any]) -> Callable[..., Any]:
            declare_step(target, name, aka)
            return target

        return declare if function is None else declare(function)

    @spelled("@app.cron", '@app.cron("*/5 * * * *")')
    def cron(
        self,
        pattern: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        tz: str = "UTC",
        retry: Policy | str | None = None,
        overlap: Literal["skip", "queue", "cancel", "allow"] = "skip",
        catch_up: Literal["one", "all", "none"] = "one",
        window: Duration = "1d",
        jitter: Duration = 0,
        queue: str = "default",
        timeout: Duration | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Duration | None = None,
        keep_for: Duration | None = None,
    ) -> decorators.CronDecorator:
        """Register a function that runs at the occurrences of a cron expression, or in intervals.

        Each occurrence makes one job with retries of its own, with any number of workers. The worker that started
        last declares the crons of its code; crons that its code no longer has do not occur.

        Args:
            pattern: ``"*/5 * * * *"``; six fields begin with seconds, seven end with years; ``@daily`` and similar
                names; FTL's ``30s``, ``12h``, ``Mon``. The reference describes the fields. Or English that begins with
                "every", such as ``every 90 minutes`` or ``every 2 weeks on Monday at 9 AM``; its intervals are counted
                from the midnight that began 1 January 2001, and hours, minutes and seconds are elapsed time.
            arguments: the arguments of each job, by name; without it the function takes none but a `Context`.
            tz: the time zone of the pattern, such as ``Europe/Kyiv``. A time that does not exist occurs at the first
                instant after the gap; a time that exists twice occurs once.
            retry: a directive or a `Policy` for each job; without it a failure is final, until the next occurrence.
            overlap: what happens while the previous job has not ended: the occurrence is skipped (``"skip"``), waits
                for the end of that job, one occurrence at most (``"queue"``), cancels it (``"cancel"``), or runs beside
                it (``"allow"``).
            catch_up: which of the occurrences start that were missed while no worker ran: the last (``"one"``), all
                within ``window`` (``"all"``; only with ``overlap="allow"``), or none (``"none"``).
            window: a ``timedelta``, seconds, or text.
            jitter: each job starts later than its occurrence by a span below this, a ``timedelta``, seconds, or text.
                The span is computed from the name and the occurrence, so every process computes the same one, and crons
                of the same time do not start together. It is shorter than the time between two occurrences.
            queue: the queue of its jobs.
            timeout: the time limit of an attempt; by default an hour.
            name: unique in the app; by default the name of the function.
            priority: jobs with a smaller one run first.
            idempotent: as for `task`.
            soft_timeout: as for `task`.
            keep_for: as for `task`.

        Raises:
            ScheduleError: the pattern or the time zone cannot be read, the pattern never occurs, or the jitter is too
                long.
            PolicyError: the directive cannot be read.
            TaskDefinitionError: the name is taken or has a slash, the function takes other arguments or returns
                something, or there is no pattern.

        Warns:
            RuntimeWarning: all its occurrences lie in the past, or its intervals have two lengths, as of ``45m``, which
                occurs at the minutes 0 and 45.
        """
        if not isinstance(pattern, str):
            raise TaskDefinitionError(
                f'a cron is made by @app.cron("*/5 * * * *") above a function, and {pattern!r} is no text'
            )
        how = member(Overlap, "overlap", overlap)
        late = member(CatchUp, "catch_up", catch_up)
        declaration = Declaration(retry, queue, timeout, name, priority, idempotent, soft_timeout, keep_for)

        def register(target: Callable[..., Any]) -> Any:
            return self._registry.cron(
                target,
                declaration,
                pattern=pattern,
                tz=tz,
                overlap=how,
                catch_up=late,
                window=window,
                jitter=jitter,
                arguments=arguments,
            )

        return register

    @spelled("@app.refresh", '@app.refresh("Refresh every 2 hours")')
    def refresh(
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
    ) -> decorators.RefreshDecorator:
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
            ScheduleError: the policy has a function without a name, which cannot be stored.
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

        def register(target: Callable[..., Any]) -> Any:
            return self._registry.refresh(target, declaration, refresh=found, on_disabled=on_disabled)

        return register

    @spelled("app.machine", 'orders = app.machine("orders"), and @orders.state(...) above a function')
    def machine(
        self,
        name: str,
        *,
        retry: Policy | str | None = None,
        data: object = None,
        busy: Literal["raise", "queue", "drop"] = "raise",
        queue: str = "default",
        priority: int = 0,
        idempotent: bool | None = None,
        attempt_timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        keep_for: Duration | None = None,
        keep_completed_for: Duration = FOREVER,
        search: Iterable[str] = (),
    ) -> Machine:
        """Return a new state machine; `Machine.start` and `Machine.state` register its states.

        Args:
            name: unique in the app, without a slash.
            retry: the policy of transitions without one of their own: a directive or a `Policy`. It replaces the one of
                the queue or of the app whole. A catch task that it names must take the events of these transitions.
            data: the class of the data of an instance; None if instances have none.
            busy: what happens to an event while a transition of its instance runs: `MachineBusy` is raised
                (``"raise"``), it waits for its turn (``"queue"``), or it is dropped (``"drop"``).
            queue: the queue of the transitions.
            priority: jobs with a smaller one run first.
            idempotent: as for `task`.
            attempt_timeout: the time limit of one attempt of a transition; by default an hour.
            soft_timeout: as for `task`.
            keep_for: how long the jobs of transitions are kept, as for `task`.
            keep_completed_for: how long completed instances are kept with their history, from their last move on. Then
                workers delete them, and the next event of the key creates a new instance. By default for ever. Other
                instances are kept until `Machine.delete`.
            search: as for `task`: fields of events by which the jobs of transitions are found. The key of an instance
                needs none.

        Raises:
            MachineDefinitionError: another machine has the name, the name has a slash, or the data cannot be stored.
            ConfigurationError: the name is empty, ``busy`` is another word, or ``keep_completed_for`` is not positive.
            PolicyError: a time cannot be read.
        """
        declaration = Declaration(
            retry, queue, attempt_timeout, None, priority, idempotent, soft_timeout, keep_for, search=search
        )
        return self._registry.machine(declaration, name, data=data, busy=busy, keep_completed_for=keep_completed_for)

    @overload
    def topic(
        self, name: str, type: type[E], /, *, version: int = 1, keep_for: Duration = "7d", keep_bytes: int | None = None
    ) -> Topic[E]: ...
    @overload
    def topic(
        self, name: str, type: object, /, *, version: int = 1, keep_for: Duration = "7d", keep_bytes: int | None = None
    ) -> Topic[Any]: ...
    @spelled("app.topic", 'orders = app.topic("orders", Order), and @orders.subscribe("mail") above a function')
    def topic(
        self,
        name: str,
        type: Any,  # noqa: A002 - a class, or a union of classes
        /,
        *,
        version: int = 1,
        keep_for: Duration = "7d",
        keep_bytes: int | None = None,
    ) -> Topic[Any]:
        """Declare a topic: a stream of events, which `Topic.subscribe` delivers to functions.

        Args:
            name: unique in the app; without ``/``, ``#`` and ``@``.
            type: the type of the events, or a union of types.
            version: grows when the types change in a way in which stored events would not fit; see `Topic.upcast`.
            keep_for: how long events are kept: a ``timedelta``, seconds, or text; ``"forever"`` keeps them all. An
                event that a subscription has not read is kept longer.
            keep_bytes: keep only the newest events, of so many bytes together.

        Raises:
            TaskDefinitionError: the name is taken, or the type cannot be stored as JSON.
            ConfigurationError: an option has no valid value.
        """
        span = retention_time(keep_for, f"topic {name!r}: keep_for")
        size = None if keep_bytes is None else checked_count(keep_bytes, f"topic {name!r}: keep_bytes")
        return self._registry.topic(name, type, version=version, keep=Retention(span, size))


class Tasks(Declarations):
    """A collection of tasks, crons, refreshes and topics, declared without an App.

    It has the declarations of an App: `task`, `cron`, `refresh` and `topic`. `redrive.App.include` makes them tasks of
    an app; until then they can be called, but not enqueued. A library can so offer tasks, and modules of a program need
    not import the module of the app.
    """

    #: Until it is included; then its tasks have the limit of the app.
    max_payload = RESULT_LIMIT

    def __init__(self) -> None:
        self._app: AppProtocol | None = None
        self._registry = Registry(cast("AppProtocol", self), ())

    def __repr__(self) -> str:
        return f"Tasks({', '.join(self._registry.tasks)})"

    def now(self) -> datetime | None:
        """Return the present instant of an injected clock; None before the collection is included."""
        return None if self._app is None else self._app.now()

    def included_in(self, app: AppProtocol, registry: Registry) -> None:
        """Make all tasks of this collection, and those that are declared later, tasks of an app."""
        if self._app is not None:
            raise TaskDefinitionError(f"{self!r} is included in an app already; a collection belongs to one app")
        registry.adopt(self._registry, app)
        self._app, self._registry = app, registry

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the app."""
        # Tasks see the collection as their app, so that handles that were made before the inclusion work after it.
        app = self.__dict__.get("_app")
        if app is None or name.startswith("__"):
            if name.startswith("__") or hasattr(type(self), name) or not hasattr(AppProtocol, name):
                return without("app")(self, name)
            known = ", ".join(self._registry.tasks)
            raise ConfigurationError(
                f"the tasks of this collection ({known}) belong to no App yet: include it with app.include(tasks)"
            )
        return getattr(app, name)


if TYPE_CHECKING:
    from redrive.app.machines.machine import Machine
