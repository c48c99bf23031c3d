"""Crons and refreshes as the code declares them and the database keeps them. PURE.

The database keeps the last declaration, because the process in which a job ends may not have the code: the sweep after
a crash, an external completion, an operator's cancel.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from redrive.engine.frozen import FrozenPolicy, freeze, thaw
from redrive.engine.origin import Kind
from redrive.errors import ConfigurationError, ScheduleError
from redrive.policy import format_duration
from redrive.schedule import RefreshPolicy, Schedule
from redrive.schedule.timezone import wall, zone

# The beginning of a pattern in English.
_EVERY = re.compile(r"\s*every\b", re.IGNORECASE)

# The jitter is compared with this many occurrences from the first instant on, and with those around the clock changes
# of some years, in which the last Sunday of a month has nearly each date that it can have.
_COMPARED = 100
_EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
_CHANGES = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(10 * 365)]
_HOUR = timedelta(hours=1)
# The largest shift of a clock, and the hour in which it is.
_SHIFT = timedelta(hours=4)


class Overlap(StrEnum):
    """The effect of an occurrence while the job of the one before has not ended."""

    SKIP = "skip"
    """The occurrence is left out."""
    QUEUE = "queue"
    """The occurrence waits for that job to end; at most one waits."""
    CANCEL = "cancel"
    """That job is cancelled."""
    ALLOW = "allow"
    """Both jobs run."""


class CatchUp(StrEnum):
    """The effect of occurrences that passed while no worker was running."""

    ONE = "one"
    """The last one is started late; the others are left out."""
    ALL = "all"
    """All within the window are started."""
    NONE = "none"
    """All are left out."""


class JobTemplate(msgspec.Struct, frozen=True):
    """The jobs that a schedule makes.

    Attributes:
        parameter: name of the parameter that receives the `Disabled` of a refresh.
        payload: the arguments of the jobs of a cron, as JSON.
        search: the tags of these arguments; None if the task declares no fields.
    """

    task: str
    queue: str
    priority: int
    policy: FrozenPolicy
    parameter: str = ""
    payload: str = "{}"
    search: tuple[str, ...] | None = None

    @property
    def described(self) -> str:
        """Return the task, its queue and its policy as a sentence."""
        return f"{self.task} on {self.queue}, priority {self.priority}; {self.policy.policy.explain()}"


class CronDefinition(msgspec.Struct, frozen=True):
    """A cron as declared."""

    kind: ClassVar[Kind] = Kind.CRON
    name: str
    pattern: str
    tz: str
    overlap: Overlap
    catch_up: CatchUp
    window: timedelta  # how far back missed occurrences are started
    job: JobTemplate
    jitter: timedelta = timedelta(0)  # the largest delay of a job after its occurrence

    @property
    def started_late(self) -> str:
        """Return which missed occurrences are started."""
        return f"all within {format_duration(self.window)}" if self.catch_up is CatchUp.ALL else self.catch_up.value

    @property
    def schedule(self) -> Schedule:
        """Return the schedule of the occurrences."""
        return read_pattern(self.pattern, self.tz)

    def checked(self) -> CronDefinition:
        """Return itself; raise `ScheduleError` if the pattern or the time zone is not valid, or the jitter too long."""
        schedule = self.schedule
        if not self.jitter:
            return self
        compared: list[Iterator[datetime]] = [itertools.islice(schedule.since(_EPOCH), _COMPARED)]
        for hour in _set_forward(self.tz):
            begin, end = hour - self.jitter, hour + _SHIFT + self.jitter
            around = itertools.islice(schedule.since(begin), _COMPARED)
            compared.append(itertools.takewhile(end.__gt__, around))
        gaps = (after - before for instants in compared for before, after in itertools.pairwise(instants))
        shortest = min(gaps, default=None)
        if shortest is not None and self.jitter >= shortest:
            raise ScheduleError(
                f"jitter={format_duration(self.jitter)}: two occurrences are only {format_duration(shortest)} apart, "
                "and a job must start before the next occurrence, also when clocks are changed"
            )
        return self

    def starts_at(self, occurs_at: datetime) -> datetime:
        """Return when the job of an occurrence is due: later by less than the jitter.

        The delay is computed from the name of the cron and the occurrence, so every process computes the same one.
        """
        if not self.jitter:
            return occurs_at
        digest = hashlib.sha256(f"{self.name}\n{occurs_at.astimezone(UTC).isoformat()}".encode()).digest()
        share = int.from_bytes(digest[:8])
        return occurs_at + self.jitter // timedelta.resolution * share // 2**64 * timedelta.resolution

    @property
    def timing(self) -> str:
        """Return the digest of the pattern and the time zone."""
        return _digest(f"{self.pattern}\n{self.tz}")

    @property
    def document(self) -> str:
        """Return the JSON for the database."""
        return _json(
            _CronDocument(
                self.pattern,
                self.tz,
                self.overlap,
                self.catch_up,
                self.window,
                _template_document(self.job),
                self.jitter,
            )
        )


class RefreshDefinition(msgspec.Struct, frozen=True):
    """A refresh as declared."""

    kind: ClassVar[Kind] = Kind.REFRESH
    name: str
    policy: RefreshPolicy
    job: JobTemplate  # the job of each attempt
    on_disabled: JobTemplate | None = None  # the job that is made after an item was given up

    @property
    def timing(self) -> str:
        """Return the digest of the policy."""
        return _digest(policy_document(self.policy))

    @property
    def document(self) -> str:
        """Return the JSON for the database."""
        disabled = None if self.on_disabled is None else _template_document(self.on_disabled)
        policy = msgspec.Raw(policy_document(self.policy).encode())
        return _json(_RefreshDocument(policy, _template_document(self.job), disabled))


Definition: TypeAlias = CronDefinition | RefreshDefinition


class ScheduleRecord(msgspec.Struct, frozen=True):
    """A schedule as the database keeps it.

    Attributes:
        paused_by: the operator who paused it.
        resumed_at: when it was last resumed; occurrences planned before are left out.
        next_at: the next occurrence of a cron.
        job_id: the job that the cron made last.
        queued_at: the occurrence that waits for that job to end.
        created: True for a cron that was created at run time, which every worker starts.
    """

    name: str
    kind: Kind
    document: str
    timing: str  # digest of the part that determines the times
    declared_at: datetime
    paused_at: datetime | None
    resumed_at: datetime | None
    next_at: datetime | None
    job_id: int | None
    queued_at: datetime | None
    created: bool = False
    paused_by: str | None = None

    @property
    def definition(self) -> Definition | None:
        """Return the declaration; None if this version cannot decode it."""
        return read(self.name, self.kind, self.document)


# ------------------------------------------------------------------------------------------------------------ documents


class _TemplateDocument(msgspec.Struct):
    task: str
    queue: str
    priority: int
    policy: msgspec.Raw
    parameter: str = ""
    payload: str = "{}"
    search: tuple[str, ...] | UnsetType = UNSET


class _CronDocument(msgspec.Struct):
    pattern: str
    tz: str
    overlap: Overlap
    catch_up: CatchUp
    window: timedelta
    job: _TemplateDocument
    jitter: timedelta = timedelta(0)


class _RefreshDocument(msgspec.Struct):
    policy: msgspec.Raw
    job: _TemplateDocument
    on_disabled: _TemplateDocument | None = None


# The document is JSON. A refresh policy is stored as `RefreshPolicy.to_dict` writes it, which is versioned. A document
# that a newer version has written and this one cannot decode is left alone; see `read`.
def read(name: str, kind: Kind, document: str) -> Definition | None:
    """Decode a declaration; return None if this version cannot."""
    try:
        return _decoded(name, kind, document)
    except (ConfigurationError, msgspec.MsgspecError):
        return None


# Errors are not kept: a function that the document names may be registered later.
@functools.lru_cache(maxsize=1024)
def _decoded(name: str, kind: Kind, document: str) -> Definition:
    if kind is Kind.CRON:
        cron = msgspec.json.decode(document, type=_CronDocument)
        definition = CronDefinition(
            name, cron.pattern, cron.tz, cron.overlap, cron.catch_up, cron.window, _template(cron.job), cron.jitter
        )
        # The jitter was checked when it was declared, by the clock changes that were known then.
        read_pattern(cron.pattern, cron.tz)
        return definition
    kept = msgspec.json.decode(document, type=_RefreshDocument)
    disabled = None if kept.on_disabled is None else _template(kept.on_disabled)
    return RefreshDefinition(name, read_policy(bytes(kept.policy).decode()), _template(kept.job), disabled)


@functools.lru_cache(maxsize=1024)
def policy_document(policy: RefreshPolicy) -> str:
    """Return the JSON of a refresh policy; the same text for equal policies."""
    return msgspec.json.encode(policy.to_dict(), order="deterministic").decode()


@functools.lru_cache(maxsize=1024)
def read_policy(document: str) -> RefreshPolicy:
    """Decode a refresh policy; return the same value for the same document, or raise `ScheduleError`."""
    try:
        return RefreshPolicy.from_dict(msgspec.json.decode(document))
    except msgspec.DecodeError as error:
        raise ScheduleError(f"the stored policy is not JSON: {error}") from error


def _template_document(template: JobTemplate) -> _TemplateDocument:
    return _TemplateDocument(
        template.task,
        template.queue,
        template.priority,
        msgspec.Raw(template.policy.document.encode()),
        template.parameter,
        template.payload,
        UNSET if template.search is None else template.search,
    )


def _template(document: _TemplateDocument) -> JobTemplate:
    policy = freeze(thaw(bytes(document.policy).decode()))
    search = None if document.search is UNSET else document.search
    return JobTemplate(
        document.task, document.queue, document.priority, policy, document.parameter, document.payload, search
    )


def _json(document: _CronDocument | _RefreshDocument) -> str:
    return msgspec.json.encode(document).decode()


@functools.lru_cache(maxsize=1024)
def read_pattern(pattern: str, tz: str) -> Schedule:
    """Return the schedule of a pattern: English if it begins with "every", and otherwise a cron expression.

    Intervals in English, such as ``every 90 minutes``, are counted from the default start of a `Schedule`, so a restart
    or a deployment changes nothing. Those of hours, minutes and seconds are elapsed time, also when clocks are changed;
    days and longer ones keep their time of day.

    Raises:
        ScheduleError: the pattern or the time zone is not valid.
    """
    if _EVERY.match(pattern) is None:
        return Schedule.cron(pattern, tz=tz)
    from redrive.schedule.english import read

    return read.recurrence(pattern, zone(tz).key)


@functools.lru_cache(maxsize=64)
def _set_forward(tz: str) -> tuple[datetime, ...]:
    """Return the beginnings of the hours of some years in which the clock of a zone is set forward."""
    place = zone(tz)

    def is_forward(begin: datetime, end: datetime) -> bool:
        return wall(end, place) - wall(begin, place) > end - begin

    days = [day for day, following in itertools.pairwise(_CHANGES) if is_forward(day, following)]
    hours = [day + number * _HOUR for day in days for number in range(24)]
    return tuple(hour for hour in hours if is_forward(hour, hour + _HOUR))


# ``timing`` is a digest of the part that determines the times. If a deployment changes it, planned times are computed
# anew; if only the queue or the job's policy changes, planned times stay.
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
