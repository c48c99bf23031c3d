"""Queues that are not like the others: what is set for them, and whose turn it is. PURE.

Most queues need no settings, and nothing is stored of them. A queue is *special* as soon as a person or the code has
set something for it, or its jobs have a partition:

* *paused*: nothing of it starts;
* *limited*: so many attempts at once, in all workers together, or of each partition; the running job is itself the
  proof that a place is taken, and a place is given back by whatever ends the attempt, a lost lease included;
* with a *rate*: so many starts within any span of so long, counted by the starts themselves and the database's clock;
* *ordered*: of each partition strictly one job after the other, in the order of their ids. The first one blocks those
  behind it while it waits, runs, is to be retried, or is dead and nobody has caught it, redriven it, or let the others
  pass;
* *aging*: a job counts as one priority higher for each span that it has been due.

Partitions (tenants, accounts) are served by turns: each gets one place before one gets a second, and the next claim
goes on behind the partition that was served last. So somebody with ten thousand waiting jobs delays somebody with ten
by one round. Within a partition, and among jobs that have none, the order is that of every queue: priority, due time,
id. Fairness comes first: a job with a better priority does not overtake the turn of another partition.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import format_duration, parse_duration

__all__ = ["Due", "Key", "QueueChange", "QueuePosition", "QueueSettings", "Rate", "keys", "serve"]

Key = tuple[int, datetime, int]
"""What jobs are ordered by: priority, due time, id."""


class Rate(msgspec.Struct, frozen=True, gc=False):
    """So many starts within any span of so long.

    Attributes:
        count: starts.
        span: how long.
    """

    count: int
    span: timedelta

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read a rate such as ``5/1.8s``, ``100/1m`` or ``10/s``.

        Args:
            text: a whole number, a slash, and a span; the span may have decimals if it is in seconds.

        Returns:
            The rate.

        Raises:
            ConfigurationError: that is no rate.
        """
        count, _, span = text.replace(" ", "").partition("/")
        try:
            if re.fullmatch(r"\d+\.\d+s", span):
                length = parse_duration(float(span[:-1]))
            else:
                length = parse_duration(f"1{span}" if span.isalpha() else span)
            rate = cls(int(count), length)
        except (PolicyError, ValueError) as error:
            message = f"{text!r} is no rate: write starts and a span, such as '5/1.8s' or '100/1m'"
            raise ConfigurationError(message) from error
        if rate.count < 1 or rate.span <= timedelta(0):
            message = f"{text!r} is no rate: both numbers must be positive; to stop a queue, pause it"
            raise ConfigurationError(message)
        return rate

    def __str__(self) -> str:
        """Write it as `parse` reads it."""
        seconds = self.span.total_seconds()
        plain = (
            format_duration(self.span) if seconds.is_integer() or seconds < 1 else f"{seconds:.6f}".rstrip("0") + "s"
        )
        return f"{self.count}/{plain}"


class QueueSettings(msgspec.Struct, frozen=True, gc=False):
    """What is set for a queue.

    Attributes:
        name: of the queue.
        paused_at: since when nothing of it starts.
        concurrency: attempts at once, in all workers together; None for no limit.
        per_partition: attempts at once of each partition.
        rate_count: starts within any span of ``rate_for``.
        rate_for: see ``rate_count``.
        ordered: of each partition strictly one after the other?
        aging_for: a job that has been due for so long counts as one priority higher, after twice as long as two.
        turn: the partition that was served last.
        changed_at: when somebody last set something; None where nobody has, and the code's own settings hold.
    """

    name: str
    paused_at: datetime | None = None
    concurrency: int | None = None
    per_partition: int | None = None
    rate_count: int | None = None
    rate_for: timedelta | None = None
    ordered: bool = False
    aging_for: timedelta | None = None
    turn: str | None = None
    changed_at: datetime | None = None

    @property
    def rate(self) -> Rate | None:
        """Starts within any span, if there is such a limit."""
        if self.rate_count is None or self.rate_for is None:
            return None
        return Rate(self.rate_count, self.rate_for)

    @property
    def limited(self) -> bool:
        """Do its running attempts take up places?"""
        return self.concurrency is not None or self.per_partition is not None


class QueueChange(msgspec.Struct, frozen=True, gc=False):
    """What somebody wants to be otherwise; None takes a limit away, and what is not given stays.

    Attributes:
        paused: should nothing of it start?
        concurrency: attempts at once, in all workers together.
        per_partition: attempts at once of each partition.
        rate: starts within any span.
        ordered: of each partition strictly one after the other?
        aging_for: a job that has been due for so long counts as one priority higher.

    Raises:
        ConfigurationError: a limit is not positive.
    """

    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    per_partition: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    ordered: bool | UnsetType = UNSET
    aging_for: timedelta | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        """Refuse limits under which nothing would ever run; that is what a pause is for."""
        for name, least in (("concurrency", 1), ("per_partition", 1), ("aging_for", timedelta(microseconds=1))):
            value: Any = getattr(self, name)
            if value is not UNSET and value is not None and value < least:
                message = f"{name} must be positive, got {value}; to stop a queue, pause it"
                raise ConfigurationError(message)

    def applied(self, settings: QueueSettings, at: datetime) -> QueueSettings:
        """Change settings.

        Args:
            settings: as they are.
            at: the present instant.

        Returns:
            As they should be.
        """
        given = {name: getattr(self, name) for name in ("concurrency", "per_partition", "ordered", "aging_for")}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
        if self.rate is not UNSET:
            changes["rate_count"] = None if self.rate is None else self.rate.count
            changes["rate_for"] = None if self.rate is None else self.rate.span
        if self.paused is not UNSET:
            changes["paused_at"] = (settings.paused_at or at) if self.paused else None
        return replace(settings, **changes)


class Due(msgspec.Struct, frozen=True, gc=False):
    """A due job, as a claim looks at it.

    Attributes:
        id: the job.
        partition: whose turn it is.
        priority: smaller runs first.
        scheduled_at: since when it is due.
        head_id: of an ordered queue, the first job of its line.
    """

    id: int
    partition: str | None
    priority: int
    scheduled_at: datetime
    head_id: int | None


class QueuePosition(msgspec.Struct, frozen=True, gc=False):
    """How a ready job stands in its queue: what may hold it up beside its own due time.

    Attributes:
        settings: of its queue.
        head_id: of an ordered queue, the first job of its line.
        head_state: what that one is doing.
        holders: the jobs that take up places of the queue, with their partitions.
        next_at: when the queue may start something again; None where its rate allows that now.
    """

    settings: QueueSettings
    head_id: int | None = None
    head_state: State | None = None
    holders: tuple[tuple[int, str | None], ...] = ()
    next_at: datetime | None = None


def _key(job: Due, settings: QueueSettings, at: datetime) -> Key:
    lifted = (at - job.scheduled_at) // settings.aging_for if settings.aging_for else 0
    return job.priority - lifted, job.scheduled_at, job.id


def serve(  # noqa: PLR0913 - what the choice depends on
    due: Iterable[Due], settings: QueueSettings, at: datetime, *, room: int, held: Mapping[str, int], turn: str
) -> list[Due]:
    """Choose whom to serve, partition by partition.

    Args:
        due: due jobs, in any order, each once.
        settings: of their queue.
        at: the present instant.
        room: how many at most.
        held: running attempts of each partition.
        turn: the partition behind which to begin.

    Returns:
        The jobs, in the order in which they should start.
    """
    shares: dict[str, list[Due]] = defaultdict(list)
    for job in sorted(due, key=lambda each: _key(each, settings, at)):
        if not settings.ordered or job.partition is None or job.id == job.head_id:
            shares[job.partition or ""].append(job)
    if settings.per_partition is not None:
        for partition in shares.keys() - {""}:
            del shares[partition][max(0, settings.per_partition - held.get(partition, 0)) :]
    ring = sorted(shares, key=lambda partition: (partition <= turn, partition))
    served: list[Due] = []
    for place in range(max(map(len, shares.values()), default=0)):
        served += [shares[partition][place] for partition in ring if place < len(shares[partition])]
        if len(served) >= room:
            break
    return served[:room]


def keys(served: Sequence[Due], settings: QueueSettings, at: datetime) -> list[Key]:
    """Say where those who are served stand among the jobs of other queues.

    The queue as a whole stands where its jobs do by priority and due time; who of it stands where is its own affair.

    Args:
        served: the jobs that are served, in their order.
        settings: of their queue.
        at: the present instant.

    Returns:
        A key for each of them, ascending.
    """
    return sorted(_key(each, settings, at) for each in served)
