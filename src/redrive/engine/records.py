"""Jobs, attempts, workers and the audit log as they are read from a store. PURE.

Each record is a frozen struct with the names of the columns; ``stores/values`` decodes rows into them.
Instants are aware UTC and named ``*_at``, spans are ``timedelta`` and named ``*_for`` or ``*_after``.

A job has three counters:

* ``attempt`` counts executions, from 1. A snooze and a release give their number back; a crash does not.
* ``failures`` counts the executions that the policy regards as failed; `Policy.decide` gets this number. A crash of an
  idempotent task does not count.
* ``crashes`` counts crashes in a row, for `redrive.engine.lease.POISON_LIMIT`. Any other end of an attempt resets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lifecycle import State
from redrive.engine.origin import Effect
from redrive.engine.search import Bounds, whole
from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import Policy, parse_duration

# Records are msgspec structs: one is made for every job and attempt, and a frozen dataclass of this size takes ten
# times as long to make (3 µs). No record contains itself, so the garbage collector need not track them (gc=False).


ENCODED: Final = b'{"redrive:encoded":'
"""The beginning of a document that the codec of an app has encoded: an object of JSON with one text."""


class Hold(StrEnum):
    """The reason why a ready job waits for its ``scheduled_at``."""

    DELAY = "delay"
    """The job was enqueued with a delay."""
    RETRY = "retry"
    """The last attempt failed; the policy set the delay."""
    SNOOZE = "snooze"
    """The handler raised `Snooze`."""
    RELEASE = "release"
    """A worker gave the job back unfinished."""
    UNKNOWN_TASK = "unknown_task"
    """The worker that claimed the job has no such task."""
    BAD_PAYLOAD = "bad_payload"
    """The worker that claimed the job cannot decode its arguments; a worker with other code, or another key, may."""
    BAD_POLICY = "bad_policy"
    """The policy cannot be decoded; the job waits for a worker that can, or for an operator to replace the policy."""
    LOST = "lost"
    """The worker died."""
    REDRIVE = "redrive"
    """An operator redrove the job."""
    DEBOUNCE = "debounce"
    """The job is debounced: another enqueue with its key puts it off."""
    BREAKER = "breaker"
    """The circuit breaker of the policy is open."""
    PARKED = "parked"
    """The run waits for an instant, a signal, an emitted value, a child run or the next try of a step."""
    PAUSED = "paused"
    """An operator paused the run."""
    BATCH = "batch"
    """The job follows a batch of which not all jobs have ended."""
    HELD = "held"
    """The code of the worker does not fit the recorded steps of the run; a worker with other code may."""


class AttemptOutcome(StrEnum):
    """The way an attempt ended, as its history stores it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"


class KeyUntil(StrEnum):
    """The end of the span for which a job holds its unique key."""

    START = "start"
    """Until a worker claims the job: the next job with the key can be enqueued while this one runs."""
    END = "end"
    """Until the job has succeeded, died or been cancelled."""


class OnConflict(StrEnum):
    """The effect of an enqueue with a unique key that another job holds."""

    RAISE = "raise"
    """Raise `redrive.errors.DuplicateJob`, which names the other job."""
    EXISTING = "existing"
    """Return the other job."""
    BOUNCE = "bounce"
    """Put the other job off and give it these arguments: debounce."""


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to be inserted."""

    task: str
    queue: str
    priority: int  # smaller runs first
    payload: bytes | None  # the arguments as JSON; None for a catch job, which reads those of its parent
    policy: FrozenPolicy
    delay: timedelta = timedelta(0)  # time from the transaction's now until the job is due
    parent_id: int | None = None  # the dead job that this job catches
    partition: str | None = None
    key: str | None = None  # unique among the jobs of the task
    key_until: KeyUntil | None = None
    on_conflict: OnConflict = OnConflict.RAISE
    idempotency_key: str | None = None  # unique among all enqueues of the app, until the job is pruned
    latest: timedelta | None = None  # time from the transaction's now up to which a debounced job can be put off
    due_at: datetime | None = None  # when the job is due; if given, the delay does not count
    expires: datetime | timedelta | None = None  # the end, or the length, of the time in which it may start
    tags: tuple[str, ...] = ()
    origin: str | None = None
    search: tuple[str, ...] | None = None  # the tags of its arguments; None if its task declares no fields
    follows: bool = False  # True if it waits for the jobs of a batch

    @property
    def all_tags(self) -> tuple[str, ...]:
        """Its tags, and those of its arguments, each once."""
        return tuple(dict.fromkeys((*self.tags, *self.search))) if self.search else self.tags


class Enqueue(Effect, frozen=True, gc=False):
    """Insert a job when the attempt has succeeded, under an id that was taken for it."""

    id: int
    job: NewJob
    trace: str | None = None  # the trace context to store with the job


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A claimed job: all that deciding about its attempt needs. By default it is the first attempt of a plain job."""

    id: int
    # The right to this attempt; monotonic, never repeated. Its low 20 bits are random.
    lease_id: int
    task: str
    queue: str
    started_at: datetime  # start of the first attempt; the deadline counts from here
    claimed_at: datetime
    payload: bytes | None
    policy: Policy
    priority: int = 0
    worker_id: int = 0
    attempt: int = 1
    failures: int = 0
    crashes: int = 0
    snoozes: int = 0
    by_rule: tuple[int, ...] = ()  # earlier failures matched by each rule of the policy, and the state of its backoffs
    last_delay: timedelta | None = None  # the delay before this attempt, if it is a retry
    parent_id: int | None = None
    partition: str | None = None
    key: str | None = None
    key_until: KeyUntil | None = None
    scheduled_at: datetime | None = None  # when the job was due; for a suspended attempt, when its wait ends
    origin: str | None = None
    # Since when no worker has been able to decode the arguments; None if none has failed to.
    unreadable_at: datetime | None = None
    salt: int = 0  # the random part of the idempotency key

    @property
    def catching(self) -> bool:
        """Return True for a catch job."""
        return self.parent_id is not None


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job with its current state.

    Attributes:
        priority: smaller runs first.
        hold: why the job waits, while it is ready and not due.
        note: the last decision about the job, as a sentence.
        started_at: start of the first attempt since the job was enqueued or redriven.
        caught_at: when its catch task succeeded.
        skipped_at: when the jobs behind it in its ordered partition could pass: when it died, by the rule of its
            subscription, or later, by an operator; see `is_skipped`.
        failures: failed executions, as the policy counts them.
        parent_id: the dead job that this job catches.
        origin: see `redrive.engine.origin`; None for a job that was enqueued by itself.
        reason: the reason of the last failure, one upper-case word; None once the job has succeeded.
        error: the text of the last error; None once the job has succeeded.
        expires_at: when the job is cancelled if it has not started.
        fingerprint: the error group of the last failure; see `redrive.engine.error_groups`.
    """

    id: int
    task: str
    queue: str
    priority: int
    state: State
    hold: Hold | None
    note: str | None
    enqueued_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    caught_at: datetime | None
    skipped_at: datetime | None
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    redrives: int
    lease_id: int | None
    worker_id: int | None
    parent_id: int | None
    partition: str | None
    key: str | None
    key_until: KeyUntil | None
    origin: str | None
    reason: str | None
    error: str | None
    policy: Policy
    expires_at: datetime | None = None
    fingerprint: str | None = None

    @property
    def is_skipped(self) -> bool:
        """True if it is dead, and an operator has decided to leave it so."""
        return self.skipped_at is not None and self.finished_at is not None and self.skipped_at > self.finished_at


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One finished attempt.

    Attributes:
        number: ordinal, from 1; repeated if an earlier attempt was given back.
        stage: how far the call got before it failed.
        error_type: qualified name of the exception.
        nominal: the delay that the backoff computed.
        delay: the delay that was decided and stored.
    """

    job_id: int
    lease_id: int
    number: int
    worker_id: int
    started_at: datetime
    finished_at: datetime
    outcome: AttemptOutcome
    reason: str | None = None
    stage: str | None = None
    error_type: str | None = None
    error: str | None = None
    traceback: str | None = None
    nominal: timedelta | None = None
    delay: timedelta | None = None
    rule: str | None = None
    verdict: str | None = None

    def __repr__(self) -> str:
        """Return all fields but the long traceback."""
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "traceback")
        return f"AttemptRecord({', '.join(shown)})"


class Progress(msgspec.Struct, frozen=True, gc=False):
    """The progress that a handler reported last; ``details`` is JSON."""

    job_id: int
    lease_id: int
    details: str
    at: datetime


class Count(msgspec.Struct, frozen=True, gc=False):
    """A number of jobs that is counted up to a limit.

    Attributes:
        value: the number.
        capped: True if there may be more.
    """

    value: int
    capped: bool = False

    @classmethod
    def exact_to(cls, number: int, most: int) -> Count:
        """Return a number that is exact up to a limit, and beyond it was not counted to its end."""
        return cls(min(number, most), number > most)

    def __add__(self, other: Count) -> Count:
        """Add two numbers; the sum may be more if one of them may."""
        return Count(self.value + other.value, self.capped or other.capped)

    def __str__(self) -> str:
        """Write it for a reader: ``10,000+``."""
        return f"{self.value:,}{'+' if self.capped else ''}"


#: The largest number of one state that is counted in a `Stats`.
COUNTED: Final = 10_000


class Stats(msgspec.Struct, frozen=True, gc=False):
    """The number of jobs by state, each at most 10,000; ``capped`` has the names of the numbers that may be larger.

    Attributes:
        due: ready, and due now.
        scheduled: ready, due later, not after a failure.
        retrying: ready, due later, after a failure.
        dead: gave up, and neither caught nor skipped by an operator.
        caught: gave up, and the catch task succeeded.
    """

    due: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    succeeded: int
    dead: int
    caught: int
    cancelled: int

    @property
    def unfinished(self) -> int:
        """Return the number of jobs that have not ended."""
        return self.due + self.scheduled + self.retrying + self.running + self.waiting

    @property
    def capped(self) -> tuple[str, ...]:
        """Return the names of the numbers that have reached the limit: there may be more jobs of these states."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) >= COUNTED)


class Process(msgspec.Struct, frozen=True, gc=False):
    """The operating system process of a worker; other workers of the same host can see that it has ended."""

    host: str
    pid: int
    birth: str | None  # start time; distinguishes the process from a later one with the same ``pid``; None if unknown


class WorkerRecord(msgspec.Struct, frozen=True, gc=False):
    """A worker.

    Attributes:
        host: the host of its process; None, like ``pid``, if it does not have a process of its own.
        birth: see `Process`.
        queues: the queues that it serves; None means all, without those of ``excluded``.
        tasks: the names of the tasks that it has; None means all.
        expires_at: when it is presumed dead.
        stopped_at: when it shut down in order.
        trouble: the background duties that fail because of a defect, and why; None if none does.
        version: the version of its redrive; None if unknown.
        running: the attempts that it runs, and those that it has claimed ahead.
        build: of its code; None if unknown.
        loop_lag_for: the time for which its event loop had not run at its last heartbeat; None before the second one.
        unstopped: handlers that go on although their attempts have ended.
        oldest_id: the job of its oldest attempt, without those of feeders.
        oldest_at: when that began.
    """

    id: int
    name: str
    host: str | None
    pid: int | None
    birth: str | None
    lock_id: int | None
    concurrency: int
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    stopped_at: datetime | None
    locked: bool | None
    trouble: str | None = None
    version: str | None = None
    excluded: tuple[str, ...] | None = None
    running: int = 0
    build: str | None = None
    loop_lag_for: timedelta | None = None
    unstopped: int = 0
    oldest_id: int | None = None
    oldest_at: datetime | None = None

    def serves(self, queue: str, task: str | None = None) -> bool:
        """Return True if it claims from a queue, and there jobs of a task, if one is given."""
        return (
            (self.queues is None or queue in self.queues)
            and queue not in (self.excluded or ())
            and (task is None or self.tasks is None or task in self.tasks)
        )


class AuditEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the audit log: an operator's action.

    Attributes:
        actor: ``user@host`` by default.
        action: one word: ``cancel``, ``retry``, ``redrive`` ...
        details: the jobs and the parameters, as JSON.
    """

    id: int
    at: datetime
    actor: str
    action: str
    details: str


class Finding(msgspec.Struct, frozen=True, gc=False):
    """An inconsistency in the database.

    Attributes:
        id: the job, or another number that the text names.
    """

    id: int
    text: str
    rule: str


class Severity(StrEnum):
    """The importance of a diagnosis."""

    OK = "ok"
    """Nothing is to be done."""
    NOTE = "note"
    """It is worth a look."""
    PROBLEM = "problem"
    """It needs a person."""


class Diagnosis(msgspec.Struct, frozen=True, gc=False):
    """The state of one part of a database and its workers.

    Attributes:
        check: the part, in one word, such as ``workers``.
        text: the finding, as a sentence.
        advice: what to do; None if nothing is to be done.
    """

    check: str
    severity: Severity
    text: str
    advice: str | None = None


E = TypeVar("E", bound=StrEnum)


#: An id above all ids of jobs.
NEWEST = 2**63 - 1

#: Jobs that a filter without a limit reads.
PAGE: Final = 100


class _Spelled(msgspec.StructMeta):
    """The class of `Filter`, whose error about a field that it does not have is made by this project."""

    # Type checkers read the fields from the class itself.
    if not TYPE_CHECKING:

        def __call__(self, *args: object, **kwargs: object) -> Filter:
            """Return a filter with these fields."""
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                unknown = next((name for name in kwargs if name not in self.__struct_fields__), None)
                if unknown is None:
                    raise
                from redrive.vocabulary import unknown_option

                raise unknown_option(self.__name__, unknown, self.__struct_fields__) from None


class Filter(msgspec.Struct, frozen=True, gc=False, metaclass=_Spelled):
    """A selection of jobs; all given conditions must hold.

    Attributes:
        hold: jobs that wait for this reason; unless ``oldest_first``, in the order in which they become due.
        reason: jobs that last failed for this reason.
        error: jobs with this text in their last error, where secret values of the job are replaced by ``[redacted]``: a
            search finds no part of them.
        group: jobs with a last failure in the error group of this fingerprint.
        caught: jobs with a catch task that has succeeded (True) or not (False).
        skipped: dead jobs that an operator has skipped (True), or jobs without those (False).
        tag: jobs with this tag.
        args: jobs with an argument of this value, at any depth, but under no secret key; ``*`` at its beginning or end
            stands for any text.
        key: jobs with this unique key or idempotency key.
        partition: jobs in this partition of their queues.
        schedule: jobs that this cron or refresh has made.
        run: the jobs of runs with this id, and of the runs that these have called.
        worker: jobs of which this worker, its id or its name, has had an attempt.
        since: jobs that ended at this instant or later, or have not ended and were enqueued then; it is aware.
        until: jobs that ended before this instant, or have not ended and were enqueued before it; it is aware.
        attempts: jobs with so many attempts, such as ``3``, ``>3`` or ``<=3``.
        took: jobs of which the latest attempt has taken so long, such as ``>10s``; one that runs, until now.
        without: jobs that meet none of these filters, which have one condition each.
        finished_before: jobs that ended before this instant, which is aware.
        all: for operations that change jobs: True if all jobs are meant. Without a condition they demand it.
        after_id: jobs enqueued after this one.
        before_id: jobs enqueued before this one.
        oldest_first: in the order of enqueueing; otherwise newest first.
        limit: maximum number of jobs. None, the default, means 100 where jobs are read, and all that match where they
            are changed or counted.
        refreshes: also failed attempts of refreshes, where dead jobs are read or started again. The schedule of the
            refresh retries them, and no operator has to, so that they are left out there unless ``ids`` names them.
        hidden: True if ``error`` is searched without any value of the job, as dashboards do that hide them.
        redacted: True if the caller must not find secret values by the time of a search either, as for dashboards that
            redact them. The database then compares no error, and all those of the other conditions are read.

    Raises:
        ConfigurationError: unknown state or hold (their values as text are converted), an instant without a time zone,
            a comparison that cannot be read, or a value of another type.
    """

    ids: tuple[int, ...] | None = None
    state: State | None = None
    task: str | None = None
    queue: str | None = None
    hold: Hold | None = None
    reason: str | None = None
    error: str | None = None
    group: str | None = None
    caught: bool | None = None
    skipped: bool | None = None
    tag: str | None = None
    args: str | None = None
    key: str | None = None
    partition: str | None = None
    schedule: str | None = None
    run: str | None = None
    worker: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    attempts: str | None = None
    took: str | None = None
    without: tuple[Filter, ...] = ()
    finished_before: datetime | None = None
    all: bool = False
    after_id: int = 0
    before_id: int = NEWEST
    oldest_first: bool = False
    limit: int | None = None
    refreshes: bool = False
    hidden: bool = False
    redacted: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "state", _member(State, "state", self.state))
        force_setattr(self, "hold", _member(Hold, "hold", self.hold))
        for field in ("since", "until", "finished_before"):
            instant = getattr(self, field)
            if instant is not None and (not isinstance(instant, datetime) or instant.tzinfo is None):
                raise ConfigurationError(f"{field}={instant!r} has no time zone: add tzinfo=UTC")
        for field in _TEXTS:
            text: object = getattr(self, field)
            if text is not None and not isinstance(text, str):
                raise ConfigurationError(f"Filter({field}=): a text, got {text!r}")
        for field in ("after_id", "before_id", "limit"):
            count: object = getattr(self, field)
            if count is None and field == "limit":
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise ConfigurationError(f"Filter({field}=): a whole number, zero or more, got {count!r}")
        # Raises an error if one cannot be read.
        _ = self.attempt_bounds, self.took_bounds
        if self.without:
            force_setattr(self, "without", _without(self.without))
        if self.all and self.conditions:
            raise ConfigurationError(f"all=True with {', '.join(self.conditions)}: give the conditions, or all=True")

    @property
    def conditions(self) -> dict[str, object]:
        """The conditions that are given, by name; those of `without` as a list."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name not in NO_CONDITIONS}
        found = {name: value for name, value in given.items() if value is not None}
        return found | ({"without": [each.conditions for each in self.without]} if self.without else {})

    def excluded(self, name: str) -> list[str]:
        """The values of a condition that a job must not meet."""
        return [value for each in self.without if (value := getattr(each, name)) is not None]

    @property
    def attempt_bounds(self) -> Bounds:
        """The numbers of attempts that are meant."""
        return Bounds() if self.attempts is None else _bounds("attempts", self.attempts, whole)

    @property
    def took_bounds(self) -> Bounds:
        """The lengths of attempts that are meant, in microseconds."""
        if self.took is None:
            return Bounds()
        found = _bounds("took", self.took, _micros)
        if found.least == found.most:
            raise ConfigurationError(f"took: a bound such as >{self.took} or <{self.took}")
        return found

    @property
    def reads_errors(self) -> bool:
        """True if errors are read to be compared as they are shown, because a database must not compare them."""
        return (self.error is not None and (self.redacted or self.hidden)) or bool(self.excluded("error"))

    @property
    def reads_arguments(self) -> bool:
        """True if arguments are read, because a database cannot compare them."""
        return self.args is not None or bool(self.excluded("args"))

    @property
    def reads_documents(self) -> bool:
        """True if rows are read further to be compared."""
        return self.reads_errors or self.reads_arguments

    @property
    def most(self) -> int:
        """The number of jobs that a read returns at most."""
        return PAGE if self.limit is None else self.limit

    def for_changes(self) -> Filter:
        """Return the filter of an operation that changes jobs: without a limit it changes all that match.

        Raise `ConfigurationError` if it would change all jobs by accident.
        """
        if not self.conditions and not self.all:
            raise ConfigurationError("the filter has no condition: give one, or Filter(all=True) for all jobs")
        return self if self.limit is not None else replace(self, limit=NEWEST)


_TEXTS = (
    "task", "queue", "reason", "error", "group", "tag", "args", "key", "partition", "schedule", "run", "worker",
    "attempts", "took",
)  # fmt: skip

#: The fields of a filter that are no conditions.
NO_CONDITIONS = frozenset(
    {"without", "all", "after_id", "before_id", "oldest_first", "limit", "refreshes", "hidden", "redacted"}
)

#: The conditions that jobs must not meet can be of these; the others have an opposite of their own.
EXCLUDED = frozenset(_TEXTS) - {"attempts", "took"} | {"state", "hold"}

#: The conditions of a filter that are options of commands on jobs; the filter language has all of them.
CONDITIONS = ("ids", "state", "task", "queue", "hold", "reason", "error", "group", "caught", "skipped", "tag")


def _without(given: Iterable[object]) -> tuple[Filter, ...]:
    """Check the conditions that jobs must not meet."""
    filters = tuple(each for each in given if isinstance(each, Filter))
    if filters != tuple(given) or not all(len(each.conditions) == 1 for each in filters):
        raise ConfigurationError(f"Filter(without=): a list of filters with one condition each, got {given!r}")
    wrong = {name for each in filters for name in each.conditions} - EXCLUDED
    if wrong:
        raise ConfigurationError(f"Filter(without=): {min(wrong)} cannot be; it can be {', '.join(sorted(EXCLUDED))}")
    return filters


def _bounds(field: str, text: str, read: Callable[[str], int]) -> Bounds:
    try:
        return Bounds.parse(text, read)
    except ConfigurationError as error:
        raise ConfigurationError(f"{field}: {error}") from error


def _micros(text: str) -> int:
    """Read a span."""
    try:
        return parse_duration(text) // timedelta.resolution
    except PolicyError as error:
        raise ConfigurationError(f"expected a time such as >10s, got {text[:40]!r}") from error


def _member(kind: type[E], field: str, value: str | None) -> E | None:
    try:
        return None if value is None else kind(value)
    except ValueError as error:
        raise ConfigurationError(f"{field} is {', '.join(repr(each.value) for each in kind)}, not {value!r}") from error
