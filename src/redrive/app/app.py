"""The App: one database, the tasks whose jobs it keeps, and the questions one asks of both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import msgspec
from msgspec import UnsetType

from redrive.app.completion import Answers
from redrive.app.job import Job
from redrive.app.local_call import Traits, earlier_names
from redrive.app.operator import Operator
from redrive.app.payload import Signature
from redrive.app.pending import Pending
from redrive.app.queue import Queues
from redrive.app.registry import Registry
from redrive.app.retention import FOREVER, keep
from redrive.app.schedules import Said, Schedules
from redrive.app.task import Options, Task
from redrive.clock import Clock
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.keys import idempotency_key
from redrive.engine.lease import LeaseTerms, limit_of
from redrive.errors import PolicyError, TaskDefinitionError
from redrive.policy import Policy, parse_duration
from redrive.stores.drivers.forks import ForkSafeLock
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.operations.retention import RetentionTimes
from redrive.stores.store import Store

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
K = TypeVar("K", bound=Task[Any, Any, Any])


class Register(Protocol):
    """What ``@app.task(...)`` is: a decorator that keeps the parameters and the result of its function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R | Pending], /) -> Task[P, R, R]: ...


class App(Operator, Answers, Queues, Schedules):
    """One database and the tasks whose jobs it keeps.

    The database is opened at its first use, so that importing a module with an App costs nothing and cannot fail.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute) or ``memory://``.
        heartbeat_every: how often a worker says that it lives: a ``timedelta``, seconds, or text.
        lease_for: how long a silent worker is believed.
        include: modules to import before work starts, for tasks that live elsewhere.
        clock: for tests; without it the database's clock rules.
        keep_for: how long jobs are kept that succeeded, were cancelled, or were caught; ``"forever"`` keeps them all.
        keep_dead_for: how long dead jobs are kept that nobody has caught; by default for ever.

    Raises:
        ConfigurationError: the terms are such that a healthy worker would lose its jobs, or a span is not positive.
    """

    def __init__(  # noqa: PLR0913 - the settings of an app, by keyword
        self,
        url: str = "sqlite:///redrive.db",
        *,
        heartbeat_every: timedelta | float | str = "5s",
        lease_for: timedelta | float | str = "15s",
        include: Iterable[str] = (),
        clock: Clock | None = None,
        keep_for: timedelta | float | str = "7d",
        keep_dead_for: timedelta | float | str = FOREVER,
    ) -> None:
        self.url = url
        self.keep = RetentionTimes(keep(keep_for, "keep_for"), keep(keep_dead_for, "keep_dead_for"))
        self.terms = LeaseTerms(parse_duration(heartbeat_every), parse_duration(lease_for))
        self._registry = Registry(include)
        self.clock = clock
        self._lock = ForkSafeLock()
        self._store: Store | None = None
        self._uid: str | None = None

    # ---------------------------------------------------------------- tasks

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The registered tasks by name."""
        return self._registry.tasks

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
        timeout: timedelta | float | str | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: timedelta | float | str | None = None,
        keep_for: timedelta | float | str | None = None,
        aka: str | Iterable[str] = (),
    ) -> Register: ...
    def task(  # noqa: PLR0913 - what one may say of a task, by keyword
        self,
        function: Callable[..., Any] | None = None,
        *,
        retry: Policy | str | None = None,
        queue: str = "default",
        timeout: timedelta | float | str | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: timedelta | float | str | None = None,
        keep_for: timedelta | float | str | None = None,
        aka: str | Iterable[str] = (),
    ) -> Any:
        """Register a function that may be run durably.

        ``async def`` runs on the worker's event loop, ``def`` in a thread.

        Args:
            function: when used without parentheses.
            retry: a directive such as ``"5 1s catch recover"`` or a `Policy`; without it a failure is final.
            queue: where its jobs wait.
            timeout: how long one attempt may take before it is cut off and has failed; an hour if not given.
            name: unique in the app; by default the function's own name.
            priority: smaller runs first.
            idempotent: may it run again when its worker vanished halfway? With False it runs at most once, and such a
                job is dead with the reason ``LOST_IN_FLIGHT``. Jobs of a task that says nothing run again; a `call`
                in process is repeated in such a case only if the task says True.
            soft_timeout: when an attempt is asked to come to an end, before ``timeout`` cuts it off: an ``async def``
                handler meets a `SoftTimeout`, and ``ctx.should_stop`` is true.
            keep_for: how long its jobs are kept after they ended; without it, as long as the app says.
            aka: earlier names of a task that was renamed: jobs that are stored under them run as jobs of this task.

        Returns:
            The task, which can still be called as the function.

        Raises:
            PolicyError: the directive cannot be read; the message names the function.
            TaskDefinitionError: a name is taken, the parameters cannot be stored, or the soft timeout is not shorter
                than the hard one.
            CatchDefinitionError: the catch task takes another request, or returns something.
        """
        said = Said(retry, queue, timeout, name, priority, idempotent, soft_timeout, keep_for, aka)

        def register(target: Callable[..., Any]) -> Task[Any, Any, Any]:
            if not inspect.isroutine(target):
                message = f"{target!r} is no function; a task is made by @app.task or @app.task(retry=..., queue=...)"
                raise TaskDefinitionError(message)
            return self.define(target, said, Task)

        return register if function is None else register(function)

    def define(self, target: Callable[..., Any], said: Said, kind: Callable[..., K]) -> K:
        """Register a function as a task of some kind.

        Args:
            target: the function.
            said: what its decorator was told.
            kind: makes the task.

        Returns:
            The task.

        Raises:
            PolicyError: the directive cannot be read; the message names the function.
            TaskDefinitionError: the name is taken, the parameters cannot be stored, or the soft timeout is not shorter
                than the hard one.
            CatchDefinitionError: the catch task takes another request, or returns something.
        """
        label = said.name or target.__name__
        policy = self._policy(said.retry, target, said.timeout, idempotent=said.idempotent)
        options = Options(said.queue, said.priority, freeze(policy))
        traits = _traits(label, said.retry, said.idempotent, said.soft_timeout, policy)
        if said.keep_for is not None:
            traits = replace(traits, keep_for=keep(said.keep_for, f"task {label!r}: keep_for"))
        traits = replace(traits, aka=earlier_names(label, said.aka))
        made = kind(self, label, target, options, traits=traits)
        self._registry.add(made)
        return made

    def _policy(
        self,
        retry: Policy | str | None,
        function: Callable[..., Any],
        timeout: timedelta | float | str | None,
        *,
        idempotent: bool | None,
    ) -> Policy:
        where = f"{function.__module__}.{function.__qualname__}"
        policy = self.policy(retry, where)
        changes: dict[str, Any] = {"idempotent": False} if idempotent is False else {}
        if timeout is not None:
            changes["attempt_timeout"] = timeout
        try:
            return policy.with_(**changes) if changes else policy
        except PolicyError as error:
            raise error.within(f"task {where}") from error

    def policy(self, retry: Policy | str | None, where: str, *, instead_of: Policy | None = None) -> Policy:
        """Make the durable policy of a task.

        Args:
            retry: a directive, a policy, or None for one attempt.
            where: the task, for messages.
            instead_of: the policy that it replaces. What says how the function behaves and not how it is retried, its
                ``idempotent`` and its ``attempt_timeout``, is taken from there if ``retry`` leaves it open: a job that
                must run at most once does not lose that to another number of retries.

        Returns:
            The complete policy; what the user left open has the durable defaults of `spec/policy.md`.

        Raises:
            PolicyError: it cannot be read; the message names the task.
        """
        try:
            policy = Policy.parse(retry) if isinstance(retry, str) else retry or Policy(attempts=1)
            kept = ("idempotent", "attempt_timeout") if instead_of is not None else ()
            changes = {name: getattr(instead_of, name) for name in kept if getattr(policy, name) is None}
            return (policy.with_(**changes) if changes else policy).durable()
        except PolicyError as error:
            raise error.within(f"task {where}") from error

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by ``task`` or by ``module.task`` (seed 001).

        Args:
            name: as a job or a policy names it.

        Returns:
            The task, or None where this app has none of that name.
        """
        return self._registry.find(name)

    def served(self) -> frozenset[str]:
        """Return every name under which a job of these tasks may be stored.

        A worker claims jobs of these names: those of the tasks, of ``aka=``, and ``module.task`` of tasks that catch.
        """
        return self._registry.served()

    def check(self) -> None:
        """Check that the app is whole: every included module imports, every catch task exists and fits.

        Runs at the first enqueue and at the start of a worker, and again when tasks were added.

        Raises:
            ConfigurationError: something is missing; the message says what.
        """
        self._registry.check()

    def policies(self) -> Mapping[str, FrozenPolicy]:
        """The present policy of each task, by the name of the task and by its earlier names."""
        return {name: freeze(task.policy) for task in self.tasks.values() for name in task.names}

    def keeps(self) -> Mapping[str, RetentionTimes]:
        """How long the ended jobs of each task are kept, by the name of the task and by its earlier names."""
        spans = {name: task.traits.keep_for for task in self.tasks.values() for name in task.names}
        return {
            name: self.keep if isinstance(span, UnsetType) else RetentionTimes(span, self.keep.dead)
            for name, span in spans.items()
        }

    def check_policy(self, policy: Policy, signature: Signature) -> None:
        """Check that what a policy names is there.

        Args:
            policy: of a task, or of some of its jobs.
            signature: of the task's function.

        Raises:
            CatchDefinitionError: there is no such catch task, it takes another request, or it returns something.
        """
        self._registry.check_policy(policy, signature)

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
        """What names this database and no other; part of every idempotency key."""
        if self._uid is None:
            self._uid = self.store.run(admin.identify("uid"))
        return self._uid

    def idempotency_key(self, number: int) -> str:
        """Return the key that the handler of a job finds in ``ctx.idempotency_key``.

        Raises:
            JobNotFound: there is no job of this number.
        """
        return idempotency_key(self.uid, number, self.store.run(jobs.salt(number)))

    async def auid(self) -> str:
        """Return what names this database without blocking the event loop; see `uid`."""
        if self._uid is None:
            self._uid = await self.store.arun(admin.identify("uid"))
        return self._uid

    def now(self) -> datetime | None:
        """The instant that operations are told: None in production, where the database's clock rules (law 8)."""
        return None if self.clock is None else self.clock.now()

    def open(self) -> App:
        """Check that the app is whole and open its database now, creating or migrating it.

        Without this the first use does it, which may be in the middle of a transaction of yours; see
        ``docs/how-to/enqueue-in-a-transaction.md``.

        Returns:
            This app.

        Raises:
            ConfigurationError: the app is not whole.
            StoreError: the database cannot be opened.
        """
        self.check()
        _ = self.store
        return self

    def close(self) -> None:
        """Finish what is queued and close the database. A later use opens it again."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None
                self._uid = None

    # ---------------------------------------------------------------- questions

    def job(self, number: int) -> Job[Any]:
        """Get a handle on a job.

        Args:
            number: its id.

        Returns:
            The handle; the job is looked up when something is asked of it.
        """
        return Job(self, number)

    def read_result(self, task: str, raw: bytes | None) -> Any:  # noqa: ANN401 - the user's
        """Read a stored result by the return annotation of its task.

        Args:
            task: its name; where this app has no such task the result is plain JSON.
            raw: JSON, or None.

        Returns:
            The value.
        """
        known = self.find(task)
        if known is not None:
            return known.returns.read(raw)
        return None if raw is None else msgspec.json.decode(raw)


def _traits(
    name: str,
    retry: Policy | str | None,
    idempotent: bool | None,  # noqa: FBT001 - as `App.task` was told
    soft_timeout: timedelta | float | str | None,
    policy: Policy,
) -> Traits:
    said = retry.idempotent if idempotent is None and isinstance(retry, Policy) else idempotent
    if soft_timeout is None:
        return Traits(None, said)
    soft, hard = parse_duration(soft_timeout), limit_of(policy)
    if not timedelta(0) < soft < hard:
        message = f"task {name!r}: its soft timeout ({soft}) must be positive, and shorter than its timeout ({hard})"
        raise TaskDefinitionError(message)
    return Traits(soft, said)
