"""The App: one database, the tasks whose jobs it keeps, and the questions one asks of both."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import msgspec

from redrive.app.job import Job
from redrive.app.payload import Signature
from redrive.app.registry import Registry
from redrive.app.task import Options, Task
from redrive.clock import Clock
from redrive.engine.frozen import freeze
from redrive.engine.lease import LeaseTerms
from redrive.engine.records import Job as JobRecord
from redrive.engine.records import Stats, Worker
from redrive.engine.select import Filter
from redrive.errors import PolicyError, TaskDefinitionError
from redrive.policy import Policy, parse_duration
from redrive.stores.operations import admin, workers
from redrive.stores.store import Store, open_store

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class Register(Protocol):
    """What ``@app.task(...)`` is: a decorator that keeps the parameters and the result of its function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class App:
    """One database and the tasks whose jobs it keeps.

    The database is opened at its first use, so that importing a module with an App costs nothing and cannot fail.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute) or ``memory://``.
        heartbeat_every: how often a worker says that it lives: a ``timedelta``, seconds, or text.
        lease_for: how long a silent worker is believed.
        include: modules to import before work starts, for tasks that live elsewhere.
        clock: for tests; without it the database's clock rules.

    Raises:
        ConfigurationError: the terms are such that a healthy worker would lose its jobs.
    """

    def __init__(
        self,
        url: str = "sqlite:///redrive.db",
        *,
        heartbeat_every: timedelta | float | str = "5s",
        lease_for: timedelta | float | str = "15s",
        include: Iterable[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.url = url
        self.terms = LeaseTerms(parse_duration(heartbeat_every), parse_duration(lease_for))
        self._registry = Registry(include)
        self.clock = clock
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._uid: str | None = None

    # ---------------------------------------------------------------- tasks

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The registered tasks by name."""
        return self._registry.tasks

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        retry: Policy | str | None = None,
        queue: str = "default",
        timeout: timedelta | float | str | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool = True,
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
        idempotent: bool = True,
    ) -> Any:
        """Register a function that may be run durably.

        ``async def`` runs on the worker's event loop, ``def`` in a thread.

        Args:
            function: when used without parentheses.
            retry: a directive such as ``"5 1s catch recover"`` or a `Policy`; without it a failure is final.
            queue: where its jobs wait.
            timeout: how long one attempt may take.
            name: unique in the app; by default the function's own name.
            priority: smaller runs first.
            idempotent: may it run again when its worker vanished halfway? With False it runs at most once, and such a
                job is dead with the reason ``LOST_IN_FLIGHT``.

        Returns:
            The task, which can still be called as the function.

        Raises:
            PolicyError: the directive cannot be read; the message names the function.
            TaskDefinitionError: the name is taken, or the parameters cannot be stored.
            CatchDefinitionError: the catch task takes another request, or returns something.
        """

        def register(target: Callable[..., Any]) -> Task[Any, Any, Any]:
            if not inspect.isroutine(target):
                message = f"{target!r} is no function; a task is made by @app.task or @app.task(retry=..., queue=...)"
                raise TaskDefinitionError(message)
            label = name or target.__name__
            options = Options(queue, priority, freeze(self._policy(retry, target, timeout, idempotent=idempotent)))
            return self._registry.add(Task(self, label, target, options))

        return register if function is None else register(function)

    def _policy(
        self,
        retry: Policy | str | None,
        function: Callable[..., Any],
        timeout: timedelta | float | str | None,
        *,
        idempotent: bool,
    ) -> Policy:
        where = f"{function.__module__}.{function.__qualname__}"
        policy = self.policy(retry, where)
        changes: dict[str, Any] = {} if idempotent else {"idempotent": False}
        if timeout is not None:
            changes["attempt_timeout"] = timeout
        try:
            return policy.with_(**changes) if changes else policy
        except PolicyError as error:
            raise type(error)(f"task {where}: {error}") from error

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
            message = f"task {where}: {error}"
            raise type(error)(message) from error

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by ``task`` or by ``module.task`` (seed 001).

        Args:
            name: as a job or a policy names it.

        Returns:
            The task, or None where this app has none of that name.
        """
        return self._registry.find(name)

    def check(self) -> None:
        """Check that the app is whole: every included module imports, every catch task exists and fits.

        Runs at the first enqueue and at the start of a worker, and again when tasks were added.

        Raises:
            ConfigurationError: something is missing; the message says what.
        """
        self._registry.check()

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
        """What names a job, over all its attempts, and no other job in any database.

        Args:
            number: id of the job.

        Returns:
            The key that its handler finds in ``ctx.idempotency_key``.
        """
        return f"{self.uid}-{number}"

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

    def jobs(self, wanted: Filter | None = None) -> tuple[JobRecord, ...]:
        """Read jobs.

        Args:
            wanted: which; by default the newest 100.

        Returns:
            Their rows.
        """
        return self.store.run(admin.select(wanted or Filter()))

    def redrive(self, wanted: Filter, *, dry_run: bool = False) -> admin.Redriven:
        """Start dead or cancelled jobs again, with all their failures forgiven.

        Args:
            wanted: which; jobs in other states are not touched.
            dry_run: only say which.

        Returns:
            Which were started, and which were kept and why.
        """
        return self.store.run(admin.redrive(wanted, dry_run=dry_run, now=self.now()))

    def stats(self, *, after_id: int = 0, task: str | None = None) -> Stats:
        """Count jobs by what they are doing.

        Args:
            after_id: only jobs with a larger id.
            task: only jobs of this task.

        Returns:
            The counts.
        """
        return self.store.run(admin.stats(after_id=after_id, task=task, now=self.now()))

    def workers(self) -> tuple[Worker, ...]:
        """Read the workers that have not left.

        Returns:
            The workers, oldest first.
        """
        return self.store.run(workers.workers())

    def read_result(self, task: str, raw: bytes | None) -> Any:  # noqa: ANN401 - the user's
        """Read a stored result by the return annotation of its task.

        Args:
            task: its name; where this app has no such task the result is plain JSON.
            raw: JSON, or None.

        Returns:
            The value.
        """
        known = self._registry.tasks.get(task)
        if known is not None:
            return known.returns.read(raw)
        return None if raw is None else msgspec.json.decode(raw)
