"""What recurs, as the code declares it and the database keeps it. PURE.

A *cron* makes a job for each occurrence; a *refresh* makes a job for each attempt at one of the things that are tracked
under it. Both are declared in code, by a decorator. The database keeps what was declared last, because decisions are
made where a job ends, and that may be in a process that has never seen the code: the sweep after a crash, an answer
from outside, an operator's cancel.

The document is JSON. A refresh policy is stored in the form of `RefreshPolicy.to_dict`, never as its text: sentences
can be reworded by a later version, and its form is versioned. What a newer redrive has written and this one cannot
read is left alone: see `read`.

``timing`` is the digest of the part that says *when*. Where a deployment changes it, what was reckoned by the old one
is reckoned anew; where only the queue or the retries of the jobs change, nothing that is planned moves.
"""

from __future__ import annotations

import functools
import hashlib
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from redrive.engine.frozen import FrozenPolicy, freeze, thaw
from redrive.engine.origin import Kind
from redrive.errors import ConfigurationError, ScheduleError
from redrive.schedule import RefreshPolicy, Schedule

__all__ = [
    "CatchUp",
    "CronDefinition",
    "Definition",
    "JobTemplate",
    "Overlap",
    "RefreshDefinition",
    "ScheduleRecord",
    "policy_document",
    "read",
    "read_policy",
]


class Overlap(StrEnum):
    """What becomes of an occurrence whose predecessor has not ended."""

    SKIP = "skip"
    """It is left out."""
    QUEUE = "queue"
    """It waits for its predecessor to end; one waits at most."""
    CANCEL = "cancel"
    """Its predecessor is cancelled."""
    ALLOW = "allow"
    """Both run."""


class CatchUp(StrEnum):
    """What becomes of occurrences at whose time no worker was there."""

    ONE = "one"
    """The last one of them is started, late; the others are left out."""
    ALL = "all"
    """All are started that lie within the window."""
    NONE = "none"
    """All are left out."""


class JobTemplate(msgspec.Struct, frozen=True):
    """The jobs that are made.

    Attributes:
        task: name of the task.
        queue: name of the queue.
        priority: smaller runs first.
        policy: the policy of each.
        parameter: where the job is told something, by which name of its task.
    """

    task: str
    queue: str
    priority: int
    policy: FrozenPolicy
    parameter: str = ""


class CronDefinition(msgspec.Struct, frozen=True):
    """A cron as it was declared.

    Attributes:
        name: unique among all schedules.
        pattern: the cron expression, as it was written.
        tz: whose wall clock it means.
        overlap: what becomes of an occurrence whose predecessor has not ended.
        catch_up: what becomes of missed occurrences.
        window: how far back missed ones are started.
        job: what each occurrence makes.
    """

    name: str
    pattern: str
    tz: str
    overlap: Overlap
    catch_up: CatchUp
    window: timedelta
    job: JobTemplate

    @property
    def schedule(self) -> Schedule:
        """When it occurs."""
        return _schedule(self.pattern, self.tz)

    def checked(self) -> CronDefinition:
        """Check that it can occur.

        Returns:
            Itself.

        Raises:
            ScheduleError: the pattern or the place is not understood.
        """
        _ = self.schedule
        return self

    @property
    def kind(self) -> Kind:
        """What it is."""
        return Kind.CRON

    @property
    def timing(self) -> str:
        """Digest of the part that says when."""
        return _digest(f"{self.pattern}\n{self.tz}")

    @property
    def document(self) -> str:
        """What the database keeps."""
        return _json(
            _CronDocument(self.pattern, self.tz, self.overlap, self.catch_up, self.window, _made_document(self.job))
        )


class RefreshDefinition(msgspec.Struct, frozen=True):
    """A refresh as it was declared.

    Attributes:
        name: unique among all schedules.
        policy: when it is refreshed, and how often it is tried; things may have policies of their own.
        job: what each attempt makes.
        on_disabled: the job that is made when a thing was given up.
    """

    name: str
    policy: RefreshPolicy
    job: JobTemplate
    on_disabled: JobTemplate | None = None

    @property
    def kind(self) -> Kind:
        """What it is."""
        return Kind.REFRESH

    @property
    def timing(self) -> str:
        """Digest of the policy."""
        return _digest(policy_document(self.policy))

    @property
    def document(self) -> str:
        """What the database keeps."""
        disabled = None if self.on_disabled is None else _made_document(self.on_disabled)
        policy = msgspec.Raw(policy_document(self.policy).encode())
        return _json(_RefreshDocument(policy, _made_document(self.job), disabled))


Definition: TypeAlias = CronDefinition | RefreshDefinition


class ScheduleRecord(msgspec.Struct, frozen=True):
    """A schedule as the database keeps it.

    Attributes:
        name: unique.
        kind: cron or refresh.
        document: what was declared.
        timing: digest of the part that says when.
        declared_at: when it was declared last.
        paused_at: since when nothing of it is started.
        resumed_at: when that ended last: what was planned before is left out.
        next_at: of a cron, the next occurrence.
        job_id: of a cron, the job that was made last.
        queued_at: of a cron, the occurrence that waits for that job to end.
    """

    name: str
    kind: Kind
    document: str
    timing: str
    declared_at: datetime
    paused_at: datetime | None
    resumed_at: datetime | None
    next_at: datetime | None
    job_id: int | None
    queued_at: datetime | None

    @property
    def definition(self) -> Definition | None:
        """What was declared; None where this redrive cannot read it: a newer one has written it."""
        return read(self.name, self.kind, self.document)


# ------------------------------------------------------------------------------------------------------------ documents


class _MadeDocument(msgspec.Struct):
    task: str
    queue: str
    priority: int
    policy: msgspec.Raw
    parameter: str = ""


class _CronDocument(msgspec.Struct):
    pattern: str
    tz: str
    overlap: Overlap
    catch_up: CatchUp
    window: timedelta
    job: _MadeDocument


class _RefreshDocument(msgspec.Struct):
    policy: msgspec.Raw
    job: _MadeDocument
    on_disabled: _MadeDocument | None = None


@functools.lru_cache(maxsize=1024)
def read(name: str, kind: Kind, document: str) -> Definition | None:
    """Read what was declared.

    Args:
        name: of the schedule.
        kind: cron or refresh.
        document: as the database keeps it.

    Returns:
        What was declared, or None where this redrive cannot read it.
    """
    try:
        if kind is Kind.CRON:
            cron = msgspec.json.decode(document, type=_CronDocument)
            said = CronDefinition(
                name, cron.pattern, cron.tz, cron.overlap, cron.catch_up, cron.window, _made(cron.job)
            )
            _ = said.schedule
            return said
        kept = msgspec.json.decode(document, type=_RefreshDocument)
        disabled = None if kept.on_disabled is None else _made(kept.on_disabled)
        return RefreshDefinition(name, read_policy(bytes(kept.policy).decode()), _made(kept.job), disabled)
    except (ConfigurationError, msgspec.MsgspecError):
        return None


@functools.lru_cache(maxsize=1024)
def policy_document(policy: RefreshPolicy) -> str:
    """Write a refresh policy as the database keeps it.

    Args:
        policy: which.

    Returns:
        JSON; the same text for equal policies.
    """
    return msgspec.json.encode(policy.to_dict(), order="deterministic").decode()


@functools.lru_cache(maxsize=1024)
def read_policy(document: str) -> RefreshPolicy:
    """Read a refresh policy that the database keeps.

    Args:
        document: as `policy_document` has written it.

    Returns:
        The policy; the same value for the same document.

    Raises:
        ScheduleError: this redrive cannot read it.
    """
    try:
        return RefreshPolicy.from_dict(msgspec.json.decode(document))
    except msgspec.DecodeError as error:
        raise ScheduleError(f"the stored policy is no JSON: {error}") from error


def _made_document(made: JobTemplate) -> _MadeDocument:
    return _MadeDocument(
        made.task, made.queue, made.priority, msgspec.Raw(made.policy.document.encode()), made.parameter
    )


def _made(document: _MadeDocument) -> JobTemplate:
    policy = freeze(thaw(bytes(document.policy).decode()))
    return JobTemplate(document.task, document.queue, document.priority, policy, document.parameter)


def _json(document: _CronDocument | _RefreshDocument) -> str:
    return msgspec.json.encode(document).decode()


@functools.lru_cache(maxsize=1024)
def _schedule(pattern: str, tz: str) -> Schedule:
    return Schedule.cron(pattern, tz=tz)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
