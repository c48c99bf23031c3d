"""Why a job is not running, in one line. PURE.

Every screen and command that shows a job shows this line (`spec/engine.md`: every job says in one line why it is not
running). It is derived from the row, and for a due job from what holds up its queue; so it cannot lag behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.engine.lifecycle import State
from redrive.engine.queue import Standing
from redrive.engine.records import Hold, Job

__all__ = ["span", "why_not_running"]

_WAITS = {
    Hold.DELAY: "scheduled",
    Hold.RETRY: "retrying",
    Hold.SNOOZE: "snoozed",
    Hold.RELEASE: "given back",
    Hold.UNKNOWN_TASK: "unknown task",
    Hold.LOST: "its worker was lost",
    Hold.REDRIVE: "redriven",
    Hold.DEBOUNCE: "debounced",
    Hold.BREAKER: "circuit open",
}


def why_not_running(job: Job, now: datetime, standing: Standing | None = None) -> str:
    """Say in one line why ``job`` is not running at ``now``.

    Args:
        job: the job.
        now: the present instant.
        standing: how it stands in its queue, if something is set for that.

    Returns:
        One line for people; "running ..." where it is running.
    """
    match job.state:
        case State.RUNNING:
            held = f" for {span(now - job.claimed_at)}" if job.claimed_at else ""
            return f"running{held}: attempt {job.attempt} on worker {job.worker_id}"
        case State.WAITING:
            return f"waiting for an answer from outside until {job.scheduled_at:%Y-%m-%d %H:%M:%S} UTC"
        case State.SUCCEEDED:
            return "finished"
        case State.CANCELLED:
            return f"cancelled: {job.note or 'by an operator'}"
        case State.DEAD:
            return f"{_fate(job)}: {job.note or job.error or job.reason}"
        case State.READY:  # pragma: no branch - the last one; mypy proves that all are here
            return _ready(job, now, standing)


def _fate(job: Job) -> str:
    if job.caught_at:
        return "caught"
    if job.skipped_at:
        return "dead, and skipped"
    # A catch job carries the policy of its parent, but nothing catches it.
    return f"catching by {job.policy.catch}" if job.policy.catch and job.parent_id is None else "dead"


def _ready(job: Job, now: datetime, standing: Standing | None) -> str:
    why = _WAITS[job.hold] if job.hold else "due"
    detail = f" ({job.note})" if job.note else ""
    paused = standing.settings.paused_at if standing else None
    if job.scheduled_at <= now:
        held_up = _held_up(job, standing, now) if standing else None
        late = now - job.scheduled_at
        since = f"due since {span(late)}, {held_up or 'waiting for a free worker'}"
        return since + (f"; {why}{detail}" if job.hold else "")
    return f"{why}: due in {span(job.scheduled_at - now)}{detail}" + (
        f"; queue paused since {_at(paused)}" if paused else ""
    )


def _held_up(job: Job, standing: Standing, now: datetime) -> str | None:
    """What in its queue keeps a due job from running."""
    settings = standing.settings
    if settings.paused_at is not None:
        return f"queue paused since {_at(settings.paused_at)}"
    if settings.ordered and job.partition is not None and standing.head_id not in (job.id, None):
        dead = ": retry, redrive or skip that one" if standing.head_state is State.DEAD else ""
        return f"blocked by job {standing.head_id} of the same partition, which is {standing.head_state}{dead}"
    mine = [number for number, partition in standing.holders if partition == job.partition is not None]
    if settings.per_partition is not None and len(mine) >= settings.per_partition:
        return f"limit {len(mine)}/{settings.per_partition} of partition {job.partition!r} held by {_jobs(mine)}"
    everybody = [number for number, _ in standing.holders]
    if settings.concurrency is not None and len(everybody) >= settings.concurrency:
        return f"limit {len(everybody)}/{settings.concurrency} held by {_jobs(everybody)}"
    if standing.next_at is not None and standing.next_at > now:
        return f"rate {settings.rate} reached, next at {_at(standing.next_at)}"
    return None


_NAMED = 5
"""So many jobs are named; of more, how many there are."""


def _jobs(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"job{'s' if len(numbers) > 1 else ''} {named}{more}"


def _at(instant: datetime) -> str:
    exact = instant.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{exact} UTC"


def span(duration: timedelta) -> str:
    """Write a span for people, to two units: ``1h 5m``, ``3.2s``, ``40ms``.

    Args:
        duration: the span; negative ones count as zero.

    Returns:
        The text.
    """
    seconds = max(0.0, round(duration.total_seconds(), 3))
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if round(seconds, 1) < 60:  # noqa: PLR2004 - rounded first, so that nothing is written as "60s"
        return f"{seconds:.1f}s".replace(".0s", "s")
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    parts: list[str] = []
    rest = round(seconds)
    for name, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{name}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))
