"""A registered function, and the forms of calling it durably."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from msgspec import structs

from redrive.app.job import Job
from redrive.app.local_call import Direct, Traits
from redrive.app.payload import Returns, Signature
from redrive.app.protocol import AppProtocol
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.records import KeyUntil, NewJob, OnConflict
from redrive.errors import ConfigurationError, PayloadError
from redrive.observe.listeners import LISTENERS
from redrive.policy import Policy, parse_duration
from redrive.stores.operations import jobs
from redrive.stores.operations.jobs import EnqueueResult
from redrive.stores.query import Operation

if TYPE_CHECKING:
    from redrive.app.events import Enqueue

__all__ = ["Call", "Name", "Options", "Task"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
E = TypeVar("E", bound=StrEnum)


Name: TypeAlias = str | Callable[..., str]
"""A text for all jobs of a call, or a function that makes it of the arguments of each."""


@dataclass(frozen=True, slots=True)
class Options:
    """How one job differs from what its task says.

    Attributes:
        queue: name of the queue.
        priority: smaller runs first.
        policy: the retry policy.
        delay: how long until the job is due.
        partition: whose turn it is in its queue, or what finds that out from the arguments.
        key: unique in the task, or what finds it out from the arguments.
        key_until: how long the key is held.
        on_conflict: what becomes of a job whose key another one holds.
        idempotency_key: names the request, or finds that out from the arguments.
        latest: how long a debounced job may be put off.
    """

    queue: str
    priority: int
    policy: FrozenPolicy
    delay: timedelta = timedelta(0)
    partition: Name | None = None
    key: Name | None = None
    key_until: KeyUntil = KeyUntil.END
    on_conflict: OnConflict = OnConflict.RAISE
    idempotency_key: Name | None = None
    latest: timedelta | None = None


class Call(Generic[P, R]):
    """The enqueueing forms of a task, under some options.

    Args:
        app: where jobs go.
        name: of the task.
        signature: of its function.
        options: of the jobs.
    """

    def __init__(self, app: AppProtocol, name: str, signature: Signature, options: Options) -> None:
        self.app = app
        self.name = name
        self.signature = signature
        self._options = options

    def options(  # noqa: PLR0913 - what one may say of a job, by keyword
        self,
        *,
        delay: timedelta | float | str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        retry: Policy | str | None = None,
        partition: Name | None = None,
        key: Name | None = None,
        key_until: Literal["start", "end"] | None = None,
        on_conflict: Literal["raise", "existing"] | None = None,
        idempotency_key: Name | None = None,
    ) -> Call[P, R]:
        """Enqueue with other options than the task has; what is not given stays.

        Args:
            delay: how long until the job is due: a ``timedelta``, seconds, or text such as ``"5m"``.
            priority: smaller runs first.
            queue: name of the queue.
            retry: a policy or directive that replaces the task's as a whole; only ``timeout`` and ``idempotent`` of the
                task stay where it leaves them open.
            partition: whose turn it is in its queue, such as a tenant; or a function that makes it of the arguments.
            key: among the jobs of this task that have not ended, there is one with this key at most; or a function
                that makes the key of the arguments.
            key_until: ``"end"``: the key is held until the job has ended (default). ``"start"``: until it starts, so
                that one may run while the next one waits.
            on_conflict: what an enqueue does whose key is held: ``"raise"`` `DuplicateJob` (default), or answer the
                ``"existing"`` job.
            idempotency_key: names this request in the whole app, for as long as the job is kept, also after it has
                ended: enqueueing it again answers the same job; or a function that makes it of the arguments.

        Returns:
            The enqueueing forms under these options.

        Raises:
            PolicyError: the directive or the delay cannot be read.
            ConfigurationError: a key is empty, or ``key_until`` or ``on_conflict`` is none of these words.
        """
        now = self._options
        changed = replace(
            now,
            delay=now.delay if delay is None else parse_duration(delay),
            priority=now.priority if priority is None else priority,
            queue=now.queue if queue is None else queue,
            policy=now.policy if retry is None else freeze(self._other_policy(retry)),
            partition=now.partition if partition is None else partition,
            key=now.key if key is None else key,
            key_until=now.key_until if key_until is None else _word(KeyUntil, "key_until", key_until),
            on_conflict=now.on_conflict if on_conflict is None else _word(OnConflict, "on_conflict", on_conflict),
            idempotency_key=now.idempotency_key if idempotency_key is None else idempotency_key,
        )
        return Call(self.app, self.name, self.signature, changed)

    def debounce(self, key: Name, *, quiet: timedelta | float | str, at_most: timedelta | float | str) -> Call[P, R]:
        """Enqueue so that a burst of calls becomes one job, with the arguments of the last call.

        The job is due when nobody has enqueued it for ``quiet``, at the latest ``at_most`` after the first call. The
        next call after it has started makes a new job.

        Args:
            key: what belongs together; or a function that makes it of the arguments. Debounced jobs need keys of
                their own.
            quiet: a ``timedelta``, seconds, or text such as ``"2s"``.
            at_most: likewise.

        Returns:
            The enqueueing forms.

        Raises:
            PolicyError: a span cannot be read.
            ConfigurationError: the key is empty, or ``at_most`` is shorter than ``quiet``.
        """
        delay, latest = parse_duration(quiet), parse_duration(at_most)
        if latest < delay:
            message = f"{self.name}: debounce(quiet={quiet!r}, at_most={at_most!r}): at_most must not be shorter"
            raise ConfigurationError(message)
        changed = replace(
            self._options,
            delay=delay,
            latest=latest,
            key=key,
            key_until=KeyUntil.START,
            on_conflict=OnConflict.BOUNCE,
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
            Its ``created`` is False where a key has led to a job that was there already.

        Raises:
            PayloadError: the arguments do not fit the annotations, or cannot be stored.
            DuplicateJob: another job holds the key; nothing was enqueued, and your transaction goes on.
            OutcomeUnknown: the answer to the commit was lost, and the job may be there. Give the call an
                ``idempotency_key`` (or a ``key``) by `options`; then it can be repeated without a second job.
            StoreError: the database refused, or is away; nothing was enqueued.
        """
        (job,) = self._put([self._new(args, kwargs)], using)
        return job

    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    async def aenqueue(self, *args: Any, using: Any, **kwargs: Any) -> Job[R]: ...  # noqa: ANN401 - P cannot name `using`
    async def aenqueue(self, *args: Any, using: Any = None, **kwargs: Any) -> Job[R]:
        """Make a durable job of this call; see `enqueue`. ``using`` is an asynchronous connection on PostgreSQL."""
        (job,) = await self._aput([self._new(args, kwargs)], using)
        return job

    def enqueue_many(self, calls: Iterable[Any], *, using: Any = None) -> list[Job[R]]:  # noqa: ANN401 - any library
        """Make durable jobs of many calls, all or none.

        Args:
            calls: one argument each for a task that takes one; tuples of arguments for one that takes several.
            using: the user's own connection, as for `enqueue`.

        Returns:
            Handles on the jobs, in the order of the calls.

        Raises:
            PayloadError: one of the calls does not fit; the message says which, and nothing was enqueued.
            DuplicateJob: another job holds the key of one of them; nothing was enqueued.
            OutcomeUnknown: the answer to the commit was lost: all of the jobs may be there, or none; see `enqueue`.
            StoreError: the database refused, or is away; nothing was enqueued.
        """
        return self._put(self._many(calls), using)

    async def aenqueue_many(self, calls: Iterable[Any], *, using: Any = None) -> list[Job[R]]:  # noqa: ANN401 - any library
        """Make durable jobs of many calls, all or none; see `enqueue_many`."""
        return await self._aput(self._many(calls), using)

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
        new = NewJob(
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            payload=self.signature.write(args, kwargs),
            policy=options.policy,
            delay=options.delay,
        )
        if options.key is None and options.idempotency_key is None and options.partition is None:
            return new
        key = self._name("key", options.key, args, kwargs)
        return structs.replace(
            new,
            key=key,
            key_until=None if key is None else options.key_until,
            on_conflict=options.on_conflict,
            idempotency_key=self._name("idempotency_key", options.idempotency_key, args, kwargs),
            partition=self._name("partition", options.partition, args, kwargs),
            latest=options.latest,
        )

    def _name(self, what: str, name: Name | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        found: object = name(*args, **kwargs) if callable(name) else name
        if found is None or (isinstance(found, str) and found):
            return found
        message = f"{self.name}: {what} must be a text that is not empty, got {found!r}"
        raise ConfigurationError(message)

    def _operation(self, new: list[NewJob], trace: str | None = None) -> Operation[EnqueueResult]:
        self.app.check()
        self.app.check_policy(self._options.policy.policy, self.signature)
        return jobs.enqueue(new, trace=trace, now=self.app.now())

    def _put(self, new: list[NewJob], using: Any) -> list[Job[R]]:  # noqa: ANN401 - a connection of any library
        if not LISTENERS:
            return self._handles(self.app.store.run(self._operation(new), using=using), using)
        with self._watched(new, using) as watched:
            placed = self.app.store.run(self._operation(new, watched.trace), using=using)
        watched.tell(placed)
        return self._handles(placed, using)

    async def _aput(self, new: list[NewJob], using: Any) -> list[Job[R]]:  # noqa: ANN401 - a connection of any library
        if not LISTENERS:
            return self._handles(await self.app.store.arun(self._operation(new), using=using), using)
        with self._watched(new, using) as watched:
            placed = await self.app.store.arun(self._operation(new, watched.trace), using=using)
        watched.tell(placed)
        return self._handles(placed, using)

    def _watched(self, new: list[NewJob], using: object) -> Enqueue:
        from redrive.app.events import Enqueue

        return Enqueue(self.name, self._options.queue, new, using)

    def _handles(self, placed: EnqueueResult, using: object) -> list[Job[R]]:
        at = None if using is None else placed.at
        if not placed.existing:
            return [Job(self.app, number, enqueued_at=at) for number in placed.ids]
        created = [i not in placed.existing for i in range(len(placed.ids))]
        return [
            Job(self.app, number, created=new, enqueued_at=at if new else None)
            for number, new in zip(placed.ids, created, strict=True)
        ]


def _word(kind: type[E], option: str, value: str) -> E:
    allowed = [each for each in kind if each is not OnConflict.BOUNCE]
    for each in allowed:
        if each == value:
            return each
    message = f"{option} is {' or '.join(repr(str(each)) for each in allowed)}, not {value!r}"
    raise ConfigurationError(message)


class Task(Call[P, R], Direct[P, R, C], Generic[P, R, C]):
    """A registered function.

    Calling it runs the function here and now, as if it were not a task; `enqueue` makes a durable job of the call.
    Its type has three parts: the parameters, what a job's result is, and what a plain call gives (for ``async def`` a
    coroutine of the former).

    Args:
        app: where it is registered.
        name: unique in the app; jobs name their task by it.
        function: ``def`` or ``async def``.
        options: what its jobs have unless told otherwise.
        traits: what the function is like.
    """

    def __init__(
        self, app: AppProtocol, name: str, function: Callable[P, C], options: Options, *, traits: Traits | None = None
    ) -> None:
        super().__init__(app, name, Signature(function, name), options)
        self.function = function
        self.traits = traits or Traits()
        self.returns = Returns(self.signature)
        functools.update_wrapper(self, function)

    @property
    def defaults(self) -> Options:
        """What its jobs have unless told otherwise."""
        return self._options

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which its jobs may be stored: its own, and its earlier ones."""
        return (self.name, *self.traits.aka)

    @property
    def policy(self) -> Policy:
        """The retry policy of its jobs."""
        return self._options.policy.policy

    def check(self) -> None:
        """Check that what it names is there and fits; see `redrive.app.app.App.check`."""
        self.app.check_policy(self.policy, self.signature)
        _ = self.returns.decoder

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Name it as people do."""
        return f"<task {self.name}>"
