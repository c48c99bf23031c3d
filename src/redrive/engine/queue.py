"""Queue settings: pauses, limits, rates, order, and turns between partitions. PURE.

Most queues have no settings, and no row. A queue has a row once an operator or the code sets something for it, or once
its jobs have a partition. A queue can be

* *paused*: no job of it starts;
* *limited*: a number of concurrent attempts, in all workers together or for each partition. The running job itself
  takes the slot, so every end of the attempt frees it, a lost lease included;
* with a *rate*: a number of starts within any span, in all or for each partition, counted by the starts and the
  database's clock;
* *ordered*: within each partition strictly one job after the other, in the order of their ids. The first one blocks
  those behind it while it waits, runs, is to be retried, or is dead and neither caught, redriven nor skipped;
* *aging*: a job gains one priority for each span that it has been due.

Partitions (tenants, accounts) take turns: each gets one slot before one gets a second, and the next claim continues
behind the partition served last. So a tenant with ten thousand jobs delays one with ten jobs by one round. Within a
partition, and among jobs without one, the order is priority, due time, id. A better priority does not overtake the turn
of another partition.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import format_duration, parse_duration

#: Sort key of a job: priority, due time, id.
Key = tuple[int, datetime, int]

#: The largest limit: databases store 32 bits.
LARGEST_LIMIT: Final = 2**31 - 1


class Rate(msgspec.Struct, frozen=True, gc=False):
    """A limit on starts: ``count`` within any ``span``."""

    count: int
    span: timedelta

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Parse a rate such as ``5/1.8s``, ``100/1m`` or ``10/s``.

        Args:
            text: a whole number, a slash, and a span; a span in seconds may have decimals.

        Raises:
            ConfigurationError: the text is not a rate.
        """
        count, _, span = text.replace(" ", "").partition("/")
        try:
            if re.fullmatch(r"\d+\.\d+s", span):
                length = parse_duration(float(span[:-1]))
            else:
                length = parse_duration(f"1{span}" if span.isalpha() else span)
            rate = cls(int(count), length)
        except (PolicyError, ValueError) as error:
            message = f"{text!r} is not a rate: write starts and a span, such as '5/1.8s' or '100/1m'"
            raise ConfigurationError(message) from error
        if rate.count < 1 or rate.span <= timedelta(0):
            message = f"{text!r} is not a rate: both numbers must be positive; to stop a queue, pause it"
            raise ConfigurationError(message)
        return rate

    @property
    def spacing(self) -> timedelta:
        """The time between two starts that are spread evenly."""
        # Rounded up: one microsecond too much keeps the rate, one too little exceeds it.
        return -(-self.span // (self.count * timedelta(microseconds=1))) * timedelta(microseconds=1)

    def __str__(self) -> str:
        """Format the rate as `parse` reads it."""
        seconds = self.span.total_seconds()
        plain = (
            format_duration(self.span) if seconds.is_integer() or seconds < 1 else f"{seconds:.6f}".rstrip("0") + "s"
        )
        return f"{self.count}/{plain}"


class QueueSettings(msgspec.Struct, frozen=True, gc=False):
    """The settings of a queue.

    Attributes:
        paused_by: the operator who paused it; None if the code did.
        concurrency: concurrent attempts in all workers together; None for no limit.
        per_partition: concurrent attempts of each partition.
        rate_count: starts within any span of ``rate_for``.
        partition_rate_count: starts of each partition within any span of ``partition_rate_for``.
        aging_for: span for which a due job gains one priority.
        turn: the partition served last.
        changed_at: when an operator last changed the settings; None if the settings of the code hold.
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
    paused_by: str | None = None
    partition_rate_count: int | None = None
    partition_rate_for: timedelta | None = None

    @property
    def rate_per_partition(self) -> Rate | None:
        """Return the limit on starts of each partition, if there is one."""
        if self.partition_rate_count is None or self.partition_rate_for is None:
            return None
        return Rate(self.partition_rate_count, self.partition_rate_for)

    @property
    def rate(self) -> Rate | None:
        """Return the limit on starts, if there is one."""
        if self.rate_count is None or self.rate_for is None:
            return None
        return Rate(self.rate_count, self.rate_for)

    @property
    def limited(self) -> bool:
        """Return True if the number of concurrent attempts is limited."""
        return self.concurrency is not None or self.per_partition is not None


class QueueChange(msgspec.Struct, frozen=True, gc=False):
    """A change of queue settings; None removes a limit, and fields that are not given stay.

    Attributes:
        concurrency: concurrent attempts in all workers together.

    Raises:
        ConfigurationError: a limit is not positive, or too large.
    """

    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    per_partition: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    ordered: bool | UnsetType = UNSET
    aging_for: timedelta | UnsetType | None = UNSET
    rate_per_partition: Rate | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        """Refuse limits under which no job would ever run; pause the queue for that."""
        for name, least in (("concurrency", 1), ("per_partition", 1), ("aging_for", timedelta(microseconds=1))):
            value: Any = getattr(self, name)
            if value is not UNSET and value is not None and value < least:
                raise ConfigurationError(f"{name} must be positive, got {value}; to stop a queue, pause it")
        rates = [each.count for each in (self.rate, self.rate_per_partition) if isinstance(each, Rate)]
        counts = (self.concurrency, self.per_partition, *rates)
        if any(isinstance(each, int) and each > LARGEST_LIMIT for each in counts):
            raise ConfigurationError(f"a limit of a queue is at most {LARGEST_LIMIT:,}; None is no limit")

    def applied(self, settings: QueueSettings, at: datetime) -> QueueSettings:
        """Return the settings with this change."""
        given = {name: getattr(self, name) for name in ("concurrency", "per_partition", "ordered", "aging_for")}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
        for name, rate in (("rate", self.rate), ("partition_rate", self.rate_per_partition)):
            if not isinstance(rate, UnsetType):
                changes[f"{name}_count"] = None if rate is None else rate.count
                changes[f"{name}_for"] = None if rate is None else rate.span
        if self.paused is not UNSET:
            changes["paused_at"] = (settings.paused_at or at) if self.paused else None
            changes["paused_by"] = settings.paused_by if self.paused else None
        return replace(settings, **changes)


class Due(msgspec.Struct, frozen=True, gc=False):
    """A due job, as a claim sees it; ``head_id`` is the first job of its partition in an ordered queue."""

    id: int
    partition: str | None
    priority: int
    scheduled_at: datetime
    head_id: int | None


class QueuePosition(msgspec.Struct, frozen=True, gc=False):
    """The position of a ready job in its queue: all that can keep it from running beside its due time."""

    settings: QueueSettings
    head_id: int | None = None  # the first job of its partition, in an ordered queue
    head_state: State | None = None
    holders: tuple[tuple[int, str | None], ...] = ()  # the jobs that take slots of the queue, with their partitions
    next_at: datetime | None = None  # when the rate of the queue allows the next start; None if it does now
    partition_next_at: datetime | None = None  # the same for the rate of its partition


def _key(job: Due, settings: QueueSettings, at: datetime) -> Key:
    lifted = (at - job.scheduled_at) // settings.aging_for if settings.aging_for else 0
    return job.priority - lifted, job.scheduled_at, job.id


class PartitionUse(msgspec.Struct, frozen=True, gc=False):
    """What the partitions of a queue take of its limits: running attempts, and starts within the span of the rate."""

    held: Mapping[str, int] = {}
    begun: Mapping[str, int] = {}

    def left(self, settings: QueueSettings, partition: str) -> int | None:
        """Return how many jobs of a partition may start; None for no limit."""
        limits = ((settings.per_partition, self.held), (settings.partition_rate_count, self.begun))
        found = [most - taken.get(partition, 0) for most, taken in limits if most is not None]
        return max(0, min(found)) if found else None


def serve(
    due: Iterable[Due], settings: QueueSettings, at: datetime, *, room: int, used: PartitionUse, turn: str
) -> list[Due]:
    """Return the due jobs to start, at most `room`, in order, taking turns between partitions.

    ``turn`` is the partition behind which to begin.
    """
    shares: dict[str, list[Due]] = defaultdict(list)
    for job in sorted(due, key=lambda each: _key(each, settings, at)):
        if not settings.ordered or job.partition is None or job.id == job.head_id:
            shares[job.partition or ""].append(job)
    for partition in shares.keys() - {""}:
        left = used.left(settings, partition)
        if left is not None:
            del shares[partition][left:]
    ring = sorted(shares, key=lambda partition: (partition <= turn, partition))
    served: list[Due] = []
    for place in range(max(map(len, shares.values()), default=0)):
        served += [shares[partition][place] for partition in ring if place < len(shares[partition])]
        if len(served) >= room:
            break
    return served[:room]


def keys(served: Sequence[Due], settings: QueueSettings, at: datetime) -> list[Key]:
    """Return a sort key for each served job, ascending, to merge them with the jobs of other queues."""
    # The queue competes as a whole by priority and due time; which of its jobs starts when is decided by `serve`.
    return sorted(_key(each, settings, at) for each in served)
