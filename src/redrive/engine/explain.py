"""Why a job is not running, in one line. PURE.

Every screen and command that shows a job shows this line (`spec/engine.md`: every job says in one line why it is not
running). It is derived from the row alone, so it cannot lag behind.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.engine.lifecycle import State
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
}


def why_not_running(job: Job, now: datetime) -> str:
    """Say in one line why ``job`` is not running at ``now``.

    Args:
        job: the job.
        now: the present instant.

    Returns:
        One line for people; "running ..." where it is running.
    """
    match job.state:
        case State.RUNNING:
            held = f" for {span(now - job.claimed_at)}" if job.claimed_at else ""
            return f"running{held}: attempt {job.attempt} on worker {job.worker_id}"
        case State.SUCCEEDED:
            return "finished"
        case State.CANCELLED:
            return f"cancelled: {job.note or 'by an operator'}"
        case State.DEAD:
            return f"{_fate(job)}: {job.note or job.error or job.reason}"
        case State.READY:  # pragma: no branch - the last one; mypy proves that all are here
            return _ready(job, now)


def _fate(job: Job) -> str:
    if job.caught_at:
        return "caught"
    # A catch job carries the policy of its parent, but nothing catches it.
    return f"catching by {job.policy.catch}" if job.policy.catch and job.parent_id is None else "dead"


def _ready(job: Job, now: datetime) -> str:
    why = _WAITS[job.hold] if job.hold else "due"
    detail = f" ({job.note})" if job.note else ""
    if job.scheduled_at <= now:
        late = now - job.scheduled_at
        return f"due since {span(late)}, waiting for a free worker" + (f"; {why}{detail}" if job.hold else "")
    return f"{why}: due in {span(job.scheduled_at - now)}{detail}"


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
