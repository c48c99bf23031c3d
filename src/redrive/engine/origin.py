"""The origin of a job: what it was created for, and the report of its end to that. PURE.

The column is readable text, as in FTL: the kind, a colon, the name of what created the job, a slash, and the part of it
that the job belongs to. Names contain no slash; the part is any text. ::

    cron:nightly/2026-03-29T03:00:00Z
    refresh:big_tables/customer-42
    machine:payment/invoice-42
    topic:payments/processing#812
    topic:payments/processing@0
    run:checkout/order-42
    batch:job/42
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """The kind of what created a job."""

    CRON = "cron"
    """An occurrence of a cron."""
    REFRESH = "refresh"
    """An attempt to refresh a tracked item."""
    MACHINE = "machine"
    """A transition of an instance of a state machine."""
    TOPIC = "topic"
    """A delivery of an event to a subscription."""
    RUN = "run"
    """A run of a workflow."""
    BATCH = "batch"
    """A batch of jobs that another job follows."""


_KINDS: Final[Mapping[str, Kind]] = {str(each): each for each in Kind}


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The origin of a job.

    Attributes:
        name: the name of the cron, refresh, machine, topic or workflow.
        part: the occurrence of a cron, the key of a refresh or of an instance, the subscription and the event of a
            delivery, the id of a run, or the id of the job that follows a batch.
    """

    kind: Kind
    name: str
    part: str

    def __str__(self) -> str:
        """Return the text that is stored with the job."""
        return f"{self.kind}:{self.name}/{self.part}"

    @property
    def described(self) -> str:
        """Return what the job is for, in words."""
        match self.kind:
            case Kind.CRON:
                return f"occurrence {self.part} of cron {self.name}"
            case Kind.REFRESH:
                return f"attempt at {self.part} of refresh {self.name}"
            case Kind.MACHINE:
                return f"transition of {self.part} of machine {self.name}"
            case Kind.TOPIC:
                subscription, _, shard = self.part.partition("@")
                if shard:
                    return f"feeder of shard {shard} of subscription {subscription} of topic {self.name}"
                subscription, _, event = self.part.rpartition("#")
                return f"delivery of event {event} of topic {self.name} to {subscription}"
            case Kind.RUN:
                return f"run {self.part} of workflow {self.name}"
            case Kind.BATCH:  # pragma: no branch - the last one; mypy proves that all are here
                return f"batch of job {self.part}"

    @property
    def occurs_at(self) -> datetime | None:
        """Return the occurrence of a cron; None for other kinds."""
        return datetime.fromisoformat(self.part) if self.kind is Kind.CRON else None


class Effect(msgspec.Struct, frozen=True, gc=False):
    """The base class of effects: changes that commit with the end of a successful attempt, or not at all.

    A handler adds effects while it runs. If the attempt fails, they are discarded with it; if it succeeds, the store
    writes them in the transaction that settles it (`redrive.stores.operations.origins`).
    """


class OriginResult(msgspec.Struct, frozen=True, gc=False):
    """The end of a job that has an origin."""

    origin: Origin
    job_id: int
    succeeded: bool
    dead: bool = False  # True if the job is in the state ``dead`` now
    why: str | None = None
    permanent: str | None = None  # why no further attempt can succeed, as a text for end users
    retry_after: timedelta | None = None  # the delay that the other side asked for
    sample: float = 0.0  # from 0 to 1, for jitter
    at: datetime | None = None  # when the attempt ended logically; None means now
    began_at: datetime | None = None  # when a worker claimed the last attempt; None if none has
    effects: tuple[Effect, ...] = ()  # of the successful attempt
    attempt: int = 0  # the number of the last attempt
    catches: int | None = None  # the dead job that this job, a catch job, has caught
    has_catch: bool = False  # True if a catch job follows this dead one
    lasting: bool = False  # True if the next attempt would fail alike, until the code or the data has changed


def of_cron(cron: str, occurs_at: datetime) -> str:
    """Return the origin of the job of an occurrence."""
    instant = occurs_at.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{Kind.CRON}:{cron}/{instant}Z"


def of_refresh(refresh: str, key: str) -> str:
    """Return the origin of the jobs of a tracked item."""
    return f"{Kind.REFRESH}:{refresh}/{key}"


def of_machine(machine: str, key: str) -> str:
    """Return the origin of the jobs of the transitions of an instance."""
    return f"{Kind.MACHINE}:{machine}/{key}"


def of_topic(topic: str, subscription: str, event_id: int) -> str:
    """Return the origin of the job of a delivery that failed."""
    return f"{Kind.TOPIC}:{topic}/{subscription}#{event_id}"


def of_feeder(topic: str, subscription: str, shard: int) -> str:
    """Return the origin of a feeder, the job that delivers the events of a shard."""
    return f"{Kind.TOPIC}:{topic}/{subscription}@{shard}"


def is_feeder(text: str | None) -> bool:
    """Return True for the origin of a feeder. Names of topics and subscriptions have neither ``#`` nor ``@``."""
    return text is not None and text.startswith(f"{Kind.TOPIC}:") and "#" not in text and "@" in text


def of_run(workflow: str, run_id: str) -> str:
    """Return the origin of the job of a run."""
    return f"{Kind.RUN}:{workflow}/{run_id}"


def of_batch(number: int) -> str:
    """Return the origin of the jobs of a batch, by the id of the job that follows them."""
    return f"{Kind.BATCH}:job/{number}"


def read_origin(text: str | None) -> Origin | None:
    """Parse a stored origin; return None for None, and for a kind that this version does not have."""
    if text is None:
        return None
    kind, _, rest = text.partition(":")
    name, _, part = rest.partition("/")
    found = _KINDS.get(kind)
    return Origin(found, name, part) if part and found is not None else None
