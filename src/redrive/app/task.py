"""A registered function, and the forms of calling it durably."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

from redrive.app.home import Home
from redrive.app.job import Job
from redrive.app.payload import Returns, Signature
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.records import NewJob
from redrive.errors import PayloadError
from redrive.policy import Policy, parse_duration
from redrive.stores.operations import jobs
from redrive.stores.query import Operation

__all__ = ["Call", "Options", "Task"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Options:
    """How one job differs from what its task says.

    Attributes:
        queue: name of the queue.
        priority: smaller runs first.
        policy: the retry policy.
        delay: how long until the job is due.
    """

    queue: str
    priority: int
    policy: FrozenPolicy
    delay: timedelta = timedelta(0)


class Call(Generic[P, R]):
    """The enqueueing forms of a task, under some options.

    Args:
        app: where jobs go.
        name: of the task.
        signature: of its function.
        options: of the jobs.
    """

    def __init__(self, app: Home, name: str, signature: Signature, options: Options) -> None:
        self.app = app
        self.name = name
        self.signature = signature
        self._options = options

    def options(
        self,
        *,
        delay: timedelta | float | str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        retry: Policy | str | None = None,
    ) -> Call[P, R]:
        """Enqueue with other options than the task has; what is not given stays.

        Args:
            delay: how long until the job is due: a ``timedelta``, seconds, or text such as ``"5m"``.
            priority: smaller runs first.
            queue: name of the queue.
            retry: a policy or directive that replaces the task's as a whole; only ``timeout`` and ``idempotent`` of the
                task stay where it leaves them open.

        Returns:
            The enqueueing forms under these options.

        Raises:
            PolicyError: the directive or the delay cannot be read.
        """
        now = self._options
        changed = replace(
            now,
            delay=now.delay if delay is None else parse_duration(delay),
            priority=now.priority if priority is None else priority,
            queue=now.queue if queue is None else queue,
            policy=now.policy if retry is None else freeze(self._other_policy(retry)),
        )
        return Call(self.app, self.name, self.signature, changed)

    def _other_policy(self, retry: Policy | str) -> Policy:
        return self.app.policy(retry, self.name, instead_of=self._options.policy.policy)

    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def enqueue(self, *args: Any, using: Any, **kwargs: Any) -> Job[R]: ...  # noqa: ANN401 - P cannot name `using`
    def enqueue(self, *args: Any, using: Any = None, **kwargs: Any) -> Job[R]:
        """Make a durable job of this call.

        Args:
            *args: as for the function, without its context.
            using: the user's own connection to the same database; the job exists if and only if its transaction
                commits.
            **kwargs: as for the function, without its context.

        Returns:
            A handle on the job, which is stored when this returns (with ``using``: when the transaction commits).

        Raises:
            PayloadError: the arguments do not fit the annotations, or cannot be stored.
            StoreError: the database refused; nothing was enqueued.
        """
        (job,) = self._put([self._new(args, kwargs)], using)
        return job

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a durable job of this call; see `enqueue`."""
        operation = self._operation([self._new(args, kwargs)])
        (number,) = await self.app.store.arun(operation)
        return Job(self.app, number)

    def enqueue_many(self, calls: Iterable[Any], *, using: Any = None) -> list[Job[R]]:  # noqa: ANN401 - any library
        """Make durable jobs of many calls, all or none.

        Args:
            calls: one argument each for a task that takes one; tuples of arguments for one that takes several.
            using: the user's own connection, as for `enqueue`.

        Returns:
            Handles on the jobs, in the order of the calls.

        Raises:
            PayloadError: one of the calls does not fit; the message says which, and nothing was enqueued.
            StoreError: the database refused; nothing was enqueued.
        """
        return self._put(self._many(calls), using)

    async def aenqueue_many(self, calls: Iterable[Any]) -> list[Job[R]]:
        """Make durable jobs of many calls, all or none; see `enqueue_many`."""
        numbers = await self.app.store.arun(self._operation(self._many(calls)))
        return [Job(self.app, number) for number in numbers]

    def _many(self, calls: Iterable[Any]) -> list[NewJob]:
        single = len(self.signature.payload) == 1
        new = []
        for index, call in enumerate(calls):
            if not single and not isinstance(call, tuple):
                message = f"{self.name}: call {index} must be a tuple of {len(self.signature.payload)} arguments"
                raise PayloadError(message)
            try:
                new.append(self._new((call,) if single else call, {}))
            except PayloadError as error:
                message = f"call {index}: {error}"
                raise PayloadError(message) from error
        return new

    def _new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        options = self._options
        return NewJob(
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            payload=self.signature.write(args, kwargs),
            policy=options.policy,
            delay=options.delay,
        )

    def _operation(self, new: list[NewJob]) -> Operation[list[int]]:
        self.app.check()
        self.app.check_policy(self._options.policy.policy, self.signature)
        return jobs.enqueue(new, now=self.app.now())

    def _put(self, new: list[NewJob], using: Any) -> list[Job[R]]:  # noqa: ANN401 - a connection of any library
        numbers = self.app.store.run(self._operation(new), using=using)
        return [Job(self.app, number) for number in numbers]


class Task(Call[P, R], Generic[P, R, C]):
    """A registered function.

    Calling it runs the function here and now, as if it were not a task; `enqueue` makes a durable job of the call.
    Its type has three parts: the parameters, what a job's result is, and what a plain call gives (for ``async def`` a
    coroutine of the former).

    Args:
        app: where it is registered.
        name: unique in the app; jobs name their task by it.
        function: ``def`` or ``async def``.
        options: what its jobs have unless told otherwise.
    """

    def __init__(self, app: Home, name: str, function: Callable[P, C], options: Options) -> None:
        super().__init__(app, name, Signature(function, name), options)
        self.function = function
        self.returns = Returns(self.signature)
        functools.update_wrapper(self, function)

    @property
    def policy(self) -> Policy:
        """The retry policy of its jobs."""
        return self._options.policy.policy

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Name it as people do."""
        return f"<task {self.name}>"
