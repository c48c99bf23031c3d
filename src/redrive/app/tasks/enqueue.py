"""The options of jobs, and the methods that enqueue them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

import msgspec
from msgspec import structs
from msgspec.structs import replace

from redrive.app.arguments import check_name, checked_instant, checked_policy, checked_priority, checked_text, shown
from redrive.app.attempts.effects import Effects, joined
from redrive.app.payload import Signature
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.tasks.job import Job
from redrive.clock import SystemClock
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.records import Enqueue, KeyUntil, NewJob, OnConflict
from redrive.engine.search import tags_of
from redrive.errors import ConfigurationError, PayloadError, PolicyError

# Imported before an app has threads: in a process that is forked while a thread imports it, the import never ends.
from redrive.observe import logs as _logs  # noqa: F401 - for the import alone
from redrive.observe.listeners import DEBUG, heard
from redrive.policy import Policy
from redrive.policy.duration import LONGEST_WAIT, Duration
from redrive.policy.fields import wait
from redrive.seams import spelled, without
from redrive.stores.operations import jobs
from redrive.stores.operations.jobs import EnqueueResult
from redrive.stores.query import Operation

if TYPE_CHECKING:
    from redrive.app.events import EnqueueEvents

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=StrEnum)

# What a key stands for where nothing else is given.
_UNTIL, _CONFLICT = KeyUntil.END, OnConflict.RAISE

# Attempts of a policy whose waits need not be added up if each is short.
_FEW = 100

Name: TypeAlias = str | Callable[..., str]
"""A text, or a function that makes the text from the arguments of a job."""


class Options(msgspec.Struct, frozen=True):
    """The options of a job; see `Enqueuer.options`."""

    queue: str
    priority: int
    policy: FrozenPolicy
    delay: timedelta = timedelta(0)
    partition: Name | None = None
    key: Name | None = None
    key_until: KeyUntil = _UNTIL
    on_conflict: OnConflict = _CONFLICT
    idempotency_key: Name | None = None
    #: The longest time from the first debounced call to the due time.
    latest: timedelta | None = None
    #: When the job is due; if given, the delay does not count.
    due_at: datetime | None = None
    #: The end, or the length, of the time in which the job may start.
    expires: datetime | timedelta | None = None
    tags: tuple[str, ...] = ()
    #: The fields of the arguments that become tags; those of the task.
    search: tuple[str, ...] = ()
    #: True if an enqueue in a handler does not wait for the end of its attempt.
    immediate: bool = False


class Enqueuer(Generic[P, R]):
    """The enqueueing methods of a task, under some options."""

    def __init__(self, app: AppProtocol, name: str, signature: Signature, options: Options) -> None:
        self.app = app
        self.name = name
        self.signature = signature
        self._options = options
        self._check(options)

    if not TYPE_CHECKING:  # as in `redrive.App`
        __getattr__ = without("task")

    @property
    def defaults(self) -> Options:
        """The options of its jobs."""
        return self._options

    def _check(self, options: Options) -> None:
        checked_text(options.queue, f"{self.name}: queue")
        checked_priority(options.priority, f"{self.name}: priority")
        if options.key is not None or options.partition is not None or options.idempotency_key is not None:
            for what in ("key", "partition", "idempotency_key"):
                check_name(getattr(options, what), f"{self.name}: {what}", self.signature.parameters)

    @spelled("options")
    def options(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        expires: Duration | datetime | None = None,
        tags: str | Iterable[str] | None = None,
        priority: int | None = None,
        queue: str | None = None,
        retry: Policy | str | None = None,
        partition: Name | None = None,
        key: Name | None = None,
        key_until: Literal["start", "end"] | None = None,
        on_conflict: Literal["raise", "existing"] | None = None,
        idempotency_key: Name | None = None,
        immediate: bool | None = None,
    ) -> Enqueuer[P, R]:
        """Return the enqueueing methods under other options. Options that are not given stay as they are.

        Args:
            delay: the time until the job is due: a ``timedelta``, seconds, or text such as ``"5m"``.
            at: when the job is due, instead of a delay: a ``datetime`` with a time zone. An instant in the past means
                now.
            expires: when the job is cancelled if it has not started, with the reason ``EXPIRED``: a time from the
                enqueue on, or a ``datetime`` with a time zone. Its catch task does not run. A job that has started is
                retried by its policy.
            tags: texts by which jobs are found: ``Filter(tag=...)``, ``redrive jobs list --tag``. They replace those
                of earlier options.
            priority: smaller runs first.
            queue: name of the queue.
            retry: a policy or directive that replaces the task's as a whole; only ``timeout`` and ``idempotent`` of the
                task stay where it leaves them open.
            partition: the partition of the queue, such as a tenant; or a function of the arguments that returns it.
            key: unique among the unfinished jobs of this task; or a function of the arguments that returns it.
            key_until: ``"end"`` holds the key until the job has ended (default); ``"start"`` until it starts, so that
                one job may run while the next one waits.
            on_conflict: the behaviour if another job holds the key: ``"raise"`` `DuplicateJob` (default), or return a
                handle on the ``"existing"`` job.
            idempotency_key: identifies this request in the whole app, as long as the job is kept, also after it has
                ended: enqueueing it again returns a handle on the same job. A text, or a function of the arguments.
            immediate: True writes jobs that a handler enqueues at once, in a transaction of their own, whatever becomes
                of its attempt; see `enqueue`.

        Raises:
            PolicyError: the directive or a time span cannot be read, or a span is longer than 50 years.
            ConfigurationError: a name, a key or a tag is empty or too long, a function cannot be called with the
                arguments of a job, the priority is no whole number of 32 bits, ``key_until`` or ``on_conflict`` is
                another word, ``at`` comes with ``delay`` or for a debounced job, an instant has no time zone or is
                more than 50 years away, or the job expires before it is due or has expired already.
        """
        now, present = self._options, self.app.now()
        if isinstance(expires, datetime):
            expires = _not_past(self.name, _instant(self.name, "expires", expires, present), present)
        timing = _timing(self.name, now, delay=delay, at=at, expires=expires, present=present)
        changed = replace(
            now,
            **timing,
            tags=now.tags if tags is None else _tags(self.name, tags),
            priority=now.priority if priority is None else priority,
            queue=now.queue if queue is None else queue,
            policy=now.policy
            if retry is None
            else freeze(
                _without_new_functions(
                    durable_policy(retry, self.name, instead_of=now.policy.policy), now.policy.policy, self.name
                )
            ),
            partition=now.partition if partition is None else partition,
            key=now.key if key is None else key,
            key_until=now.key_until if key_until is None else _word(KeyUntil, "key_until", key_until),
            on_conflict=now.on_conflict if on_conflict is None else _word(OnConflict, "on_conflict", on_conflict),
            idempotency_key=now.idempotency_key if idempotency_key is None else idempotency_key,
            immediate=now.immediate if immediate is None else immediate,
        )
        return Enqueuer(self.app, self.name, self.signature, changed)

    def debounce(self, key: Name, *, quiet: Duration, at_most: Duration) -> Enqueuer[P, R]:
        """Return enqueueing methods that make one job from a burst of calls, with the arguments of the last call.

        The job is due ``quiet`` after the last call, at the latest ``at_most`` after the first one. A call after the
        job has started inserts a new job.

        Args:
            key: identifies the burst: a text, or a function of the arguments. Do not use it for jobs that are not
                debounced.
            quiet: a ``timedelta``, seconds, or text such as ``"2s"``.
            at_most: likewise.

        Raises:
            PolicyError: a span cannot be read.
            ConfigurationError: the key is empty, or ``at_most`` is shorter than ``quiet``.
        """
        delay, latest = wait(quiet, f"{self.name}: quiet"), wait(at_most, f"{self.name}: at_most")
        if latest < delay:
            raise ConfigurationError(
                f"{self.name}: debounce(quiet={quiet!r}, at_most={at_most!r}): at_most must not be shorter"
            )
        changed = replace(
            self._options,
            delay=delay,
            due_at=None,
            latest=latest,
            key=key,
            key_until=KeyUntil.START,
            on_conflict=OnConflict.BOUNCE,
        )
        return Enqueuer(self.app, self.name, self.signature, changed)

    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def enqueue(self, *args: object, using: object, **kwargs: object) -> Job[R]: ...
    def enqueue(self, *args: Any, using: Any = None, **kwargs: Any) -> Job[R]:
        """Enqueue a job.

        In the handler of a job, without ``using``, the job is written when the attempt succeeds, in the same
        transaction; an attempt that fails enqueues nothing. Keys are checked at once: if another job takes one in the
        meantime, that job stands for this one. ``options(immediate=True)`` writes at once.

        Args:
            *args: the arguments of the function, without its context.
            using: your own connection to the same database; the job exists if and only if its transaction commits.
                On PostgreSQL that transaction cannot be prepared (``PREPARE TRANSACTION``), as for `Topic.publish`.
            **kwargs: likewise.

        Returns:
            A handle on the job, which is stored when this returns (with ``using``: when the transaction commits; in a
            handler: when the attempt succeeds, and until then its row cannot be read).
            Its ``created`` is False if a key has led to an existing job.

        Raises:
            PayloadError: the arguments do not match the annotations, or cannot be stored.
            DuplicateJob: another job holds the key; nothing was enqueued, and your transaction goes on.
            OutcomeUnknown: the answer to the commit was lost, and the job may exist. With an ``idempotency_key`` (or
                a ``key``), set by `options`, the call can be repeated without a second job.
            StoreError: the database refused, or cannot be reached; nothing was enqueued.
        """
        (job,) = self._put([self._new(args, kwargs)], using)
        return job

    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    async def aenqueue(self, *args: object, using: object, **kwargs: object) -> Job[R]: ...
    async def aenqueue(self, *args: Any, using: Any = None, **kwargs: Any) -> Job[R]:
        """Enqueue a job; see `enqueue`. On PostgreSQL ``using`` takes an asynchronous connection."""
        (job,) = await self._aput([self._new(args, kwargs)], using)
        return job

    def enqueuing(self, *args: P.args, **kwargs: P.kwargs) -> Procedure[Job[R]]:
        """Enqueue a job outside of a handler, as the procedure of both methods."""
        (job,) = yield from self._storing([self._new(args, kwargs)], None)
        return job

    def enqueue_many(self, calls: Iterable[Any], *, using: object = None) -> list[Job[R]]:
        """Enqueue many jobs, all or none.

        Args:
            calls: the argument of each job; tuples of arguments if the task takes several; dictionaries of arguments by
                name if this process does not have the task.
            using: your own connection, as for `enqueue`.

        Returns:
            Handles on the jobs, in the order of the calls.

        Raises:
            PayloadError: the arguments of one call do not match; the message names it, and nothing was enqueued.
            DuplicateJob: another job holds the key of one of them; nothing was enqueued.
            OutcomeUnknown: the answer to the commit was lost: all jobs exist, or none; see `enqueue`.
            StoreError: the database refused, or cannot be reached; nothing was enqueued.
        """
        return self._put(self._many(calls), using)

    async def aenqueue_many(self, calls: Iterable[Any], *, using: object = None) -> list[Job[R]]:
        """Enqueue many jobs, all or none; see `enqueue_many`."""
        return await self._aput(self._many(calls), using)

    def prepared(self, calls: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> list[NewJob]:
        """Return the jobs of calls, each with its arguments, for a batch."""
        self._check_app()
        return [self._new(args, kwargs) for args, kwargs in calls]

    def prepared_many(self, calls: Iterable[Any]) -> list[NewJob]:
        """Return the jobs of calls as `enqueue_many` takes them, for a batch."""
        self._check_app()
        return self._many(calls)

    def _many(self, calls: Iterable[Any]) -> list[NewJob]:
        single = len(self.signature.payload) == 1
        if not isinstance(calls, Iterable):
            raise PayloadError(
                f"{self.name}: enqueue_many() takes a list with the arguments of each job, got {calls!r}"
            )
        new = []
        for index, call in enumerate(calls):
            if not self.signature.known and isinstance(call, Mapping):
                new.append(self._new((), call))
                continue
            if not single and not isinstance(call, tuple):
                raise PayloadError(
                    f"{self.name}: call {index} must be a tuple of {len(self.signature.payload)} arguments"
                )
            try:
                new.append(self._new((call,) if single else call, {}))
            except PayloadError as error:
                raise PayloadError(f"call {index}: {error}") from error
        return new

    def new_job(self, payload: bytes) -> NewJob:
        """Return a job with these arguments as JSON, without keys and partition."""
        options = self._options
        return NewJob(
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            payload=payload,
            policy=options.policy,
            delay=options.delay,
            due_at=options.due_at,
            expires=options.expires,
            tags=options.tags,
            search=tags_of(payload, options.search) if options.search else None,
        )

    def _new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        options = self._options
        try:
            new = self.new_job(self.signature.write(args, kwargs))
        except PayloadError as error:
            unknown = next((name for name in kwargs if name not in self.signature.parameters), None)
            if unknown is None or not self.signature.known:
                raise
            from redrive.vocabulary import unknown_argument

            raise unknown_argument(error, unknown, task=self.name) from error.__cause__
        if options.key is None and (options.on_conflict is not _CONFLICT or options.key_until is not _UNTIL):
            name = "on_conflict" if options.on_conflict is not _CONFLICT else "key_until"
            raise ConfigurationError(
                f'{self.name}: {name}= is about jobs of one key, and there is none: give key="invoice-7", too'
            )
        if options.key is not None or options.idempotency_key is not None or options.partition is not None:
            new = self._named(new, args, kwargs)
        return self.announced(new) if self.app.hooks.enqueue else new

    def announced(self, new: NewJob) -> NewJob:
        """Call the functions of `App.on_enqueue` with a job, and return it with the tags that they add."""
        from redrive.app.attempts.around import EnqueueRequest

        for function in self.app.hooks.enqueue:
            assert new.payload is not None  # it is no catch job
            about = EnqueueRequest(new.task, new.queue, new.priority, new.tags, new.payload, new.partition, new.key)
            tags = function(about)
            if tags is not None:
                name = getattr(function, "__qualname__", function)
                added = _tags(f"{self.name}: the result of {name} of @app.on_enqueue", tags)
                new = structs.replace(new, tags=tuple(dict.fromkeys((*new.tags, *added))))
        return new

    def _named(self, new: NewJob, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """Return a job with its keys and its partition."""
        options = self._options
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
        if name is None or isinstance(name, str):
            return name
        # None from a function would silently mean that the job has no key.
        return checked_text(name(*args, **kwargs), f"{self.name}: the result of the function {what}=")

    def _operation(self, new: list[NewJob], trace: str | None = None) -> Operation[EnqueueResult]:
        self._check_app()
        return jobs.enqueue(new, trace=trace, now=self.app.now())

    def _check_app(self) -> None:
        self.app.check()
        # Only the workers that have the code of the task have its catch task.
        if self.signature.known:
            self.app.check_policy(self._options.policy.policy, self.signature)

    def _put(self, new: list[NewJob], using: object) -> list[Job[R]]:
        held = self._joined(using)
        if held is not None:
            loan = held.loans[0] if self.app.store.local else None
            with self._watched(new, held) as watched:
                reserve = self.app.store.run if loan is None else loan.run
                placed = reserve(self._reservation(new, held))
            return self._join(held, new, placed, watched)
        return run(self.app.store, self._storing(new, using), using=using)

    async def _aput(self, new: list[NewJob], using: object) -> list[Job[R]]:
        held = self._joined(using)
        if held is not None:
            loan = held.loans[1] if self.app.store.local else None
            with self._watched(new, held) as watched:
                reserve = self.app.store.arun if loan is None else loan.run
                placed = await reserve(self._reservation(new, held))
            return self._join(held, new, placed, watched)
        return await arun(self.app.store, self._storing(new, using), using=using)

    def _storing(self, new: list[NewJob], using: object) -> Procedure[list[Job[R]]]:
        """Store jobs now, and return handles on them."""
        if not heard("redrive.jobs", DEBUG):
            return self._handles((yield self._operation(new)), using)
        with self._watched(new, using) as watched:
            placed = yield self._operation(new, watched.trace)
        watched.emit(placed)
        return self._handles(placed, using)

    # ---------------------------------------------------------------- in a handler

    def _joined(self, using: object) -> Effects | None:
        """Return the effects of the attempt that writes the jobs at its end; None if they are written now."""
        return None if using is not None or self._options.immediate else joined(self.app)

    def _reservation(self, new: list[NewJob], held: Effects) -> Operation[EnqueueResult]:
        held.check()
        self._check_app()
        has_keys = any(job.key is not None or job.idempotency_key is not None for job in new)
        return jobs.reserve(new, held.of(Enqueue) if has_keys else (), now=self.app.now())

    def _join(self, held: Effects, new: list[NewJob], placed: EnqueueResult, watched: EnqueueEvents) -> list[Job[R]]:
        """Add jobs to the effects of an attempt, and return handles on them."""
        existing = placed.existing
        held.add(
            *[
                Enqueue(number, job, watched.trace)
                for place, (number, job) in enumerate(zip(placed.taken, new, strict=True))
                if place not in existing or job.on_conflict is OnConflict.BOUNCE
            ]
        )
        watched.emit(placed)
        own = {each.id for each in held.of(Enqueue)} if existing else set(placed.ids)
        return [
            Job(self.app, number, created=place not in existing, pending=held if number in own else None)
            for place, number in enumerate(placed.ids)
        ]

    def _watched(self, new: list[NewJob], using: object) -> EnqueueEvents:
        from redrive.app.events import EnqueueEvents

        return EnqueueEvents(self.name, self._options.queue, new, using)

    def _handles(self, placed: EnqueueResult, using: object) -> list[Job[R]]:
        at, uncommitted = placed.at, using is not None
        if not placed.existing:
            return [Job(self.app, number, enqueued_at=at, uncommitted=uncommitted) for number in placed.ids]
        created = ((number, i not in placed.existing) for i, number in enumerate(placed.ids))
        return [
            Job(self.app, number, created=new, enqueued_at=at if new else None, uncommitted=uncommitted)
            for number, new in created
        ]


def durable_policy(
    retry: Policy | str | None,
    where: str,
    *,
    instead_of: Policy | None = None,
    kind: str = "task",
    is_bounded: bool = False,
) -> Policy:
    """Return the complete policy of a task or of some of its jobs. Open fields get the durable defaults.

    Unless ``is_bounded``, by a deadline that it gets afterwards, its waits must add up to `LONGEST_WAIT` at most.

    The policy ``instead_of``, which it replaces, gives ``idempotent`` and ``attempt_timeout`` if they are open.
    """
    try:
        given = Policy(attempts=1) if retry is None else checked_policy(retry)
        policy = Policy.parse(given) if isinstance(given, str) else given
        # These two describe the function, not its retries: a job that must run at most once does not lose that to
        # another number of retries.
        kept = ("idempotent", "attempt_timeout") if instead_of is not None else ()
        changes = {name: getattr(instead_of, name) for name in kept if getattr(policy, name) is None}
        # A job stores them. The functions that decide and observe are those of the present task.
        for each in (policy.backoff, *[rule.backoff for rule in policy.rules if rule.backoff is not None]):
            if not each.is_fixed:
                # Loaded at the first job by most programs.
                from redrive.policy.codec import backoff_to_dict

                backoff_to_dict(each)
        if not is_bounded and not _is_short(policy):
            from redrive.policy.explain import refuse_endless

            refuse_endless(policy)
        return (policy.with_(**changes) if changes else policy).durable()
    except PolicyError as error:
        raise error.within(f"{kind} {where}") from error


def _is_short(policy: Policy) -> bool:
    """Return True if the waits of a policy end soon enough, or on purpose not, without a look at its worst case."""
    if policy.parts is None and (policy.attempts is None or policy.deadline is not None):
        return True
    if policy.parts is not None or policy.rules or policy.attempts is None or policy.attempts > _FEW:
        return False
    return policy.attempts == 1 or (policy.backoff.delay(policy.attempts) or 0.0) * _FEW <= LONGEST_WAIT.total_seconds()


def _timing(
    task: str,
    now: Options,
    *,
    delay: Duration | None,
    at: datetime | None,
    expires: Duration | datetime | None,
    present: datetime | None,
) -> dict[str, Any]:
    """Return the options of the start of a job, changed by those that are given."""
    if at is not None and delay is not None:
        raise ConfigurationError(f"{task}: options(at=..., delay=...): give one of them, for both set the due time")
    if at is not None and now.latest is not None:
        raise ConfigurationError(f"{task}: a debounced job cannot be due at={at}: its last call sets the due time")
    changed: dict[str, Any] = {}
    if delay is not None:
        changed = {"delay": wait(delay, f"{task}: delay"), "due_at": None}
    if at is not None:
        changed = {"delay": timedelta(0), "due_at": _instant(task, "at", at, present)}
    if expires is not None:
        changed["expires"] = _expiry(task, expires)
    new = replace(now, **changed)
    due = new.delay if isinstance(new.expires, timedelta) else new.due_at
    if new.expires is not None and due is not None and new.expires <= due:  # type: ignore[operator]
        raise ConfigurationError(f"{task}: the job would expire ({new.expires}) before it is due ({due})")
    return changed


def _instant(task: str, option: str, given: datetime, present: datetime | None) -> datetime:
    if not isinstance(given, datetime):
        raise ConfigurationError(f"{task}: {option}= is a datetime, got {given!r}; a time from now on is delay=")
    if given.utcoffset() is None:
        raise ConfigurationError(f"{task}: {option}={given!r} has no time zone: add one, such as tzinfo=UTC")
    return checked_instant(given, f"{task}: {option}", present)


def _not_past(task: str, expires: datetime, present: datetime | None) -> datetime:
    if expires <= (present or SystemClock().now()):
        raise ConfigurationError(f"{task}: expires={expires} lies in the past: the job would never start")
    return expires


def _expiry(task: str, given: Duration | datetime) -> timedelta | datetime:
    if isinstance(given, datetime):
        return given
    left = wait(given, f"{task}: expires")
    if not left:
        raise ConfigurationError(f"{task}: expires={given!r} leaves no time to start: give a longer one")
    return left


def _tags(task: str, given: str | Iterable[str]) -> tuple[str, ...]:
    # The items of a mapping are its keys, and those of bytes are numbers.
    if isinstance(given, Mapping | bytes | bytearray) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{task}: tags are a text or several, such as ['spring'], got {shown(given)}")
    tags = (given,) if isinstance(given, str) else tuple(given)
    for each in tags:
        if not isinstance(each, str) or not each.strip():
            raise ConfigurationError(f"{task}: a tag is a text that is not empty, got {each!r}")
        checked_text(each, f"{task}: a tag")
    return tuple(dict.fromkeys(tags))


def _without_new_functions(policy: Policy, of: Policy, where: str) -> Policy:
    """Raise `ConfigurationError` if a policy of some jobs has functions that are not those of the task's policy."""
    if policy.has_functions and policy != policy.without_functions().with_functions(of):
        raise ConfigurationError(
            f"{where}: options(retry=...) has a function that the policy of the task does not have, and functions are "
            "not stored: name exception types in on=, or give the function in @app.task(retry=...)"
        )
    return policy


def _word(kind: type[E], option: str, value: str) -> E:
    allowed = [each for each in kind if each is not OnConflict.BOUNCE]
    for each in allowed:
        if each == value:
            return each
    raise ConfigurationError(f"{option} is {' or '.join(repr(str(each)) for each in allowed)}, not {value!r}")
