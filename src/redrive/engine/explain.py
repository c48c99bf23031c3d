"""The reason why a job is not running, in one line, and what clears it. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from redrive.engine.commands import command
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import read_origin
from redrive.engine.queue import QueuePosition
from redrive.engine.records import Hold, JobRecord, WorkerRecord
from redrive.engine.runs import is_far

#: Characters of an error that a line shows.
ERROR_TEXT: Final = 200


class CatchJob(msgspec.Struct, frozen=True, gc=False):
    """The latest catch job of a dead job."""

    parent_id: int
    id: int
    task: str
    state: State


class Circumstances(msgspec.Struct, frozen=True, gc=False):
    """The data beside the row of a job on which the reason depends."""

    now: datetime  # when all of it was read, by the clock of the database
    # For a due job, the workers that have not stopped; those past ``expires_at`` are presumed dead.
    workers: tuple[WorkerRecord, ...] = ()
    standing: QueuePosition | None = None  # for a ready job, its position in a queue with settings
    catch: CatchJob | None = None  # for a dead job, its latest catch job
    error_type: str | None = None  # for a dead job, the qualified name of its last exception
    is_ahead: bool = False  # for a running job, True if its worker has as many that start before it as slots


class Obstacle(msgspec.Struct, frozen=True, gc=False):
    """What keeps a job from running.

    Attributes:
        text: as part of a sentence.
        command: the words after ``redrive`` that clear it or show more; None if no command does.
        arguments: what follows the reference of the app in that command.
        queue: its option ``--queue``.
        jobs: the jobs that hold it up.
        is_queue: True if the settings of its queue are the cause.
    """

    text: str
    command: str | None = None
    arguments: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    is_queue: bool = False
    queue: str | None = None

    def advice(self, app: str) -> str | None:
        """Return the whole command."""
        return None if self.command is None else command(self.command, app, *self.arguments, queue=self.queue)


_WAITS: Final[Mapping[Hold, str]] = {
    Hold.DELAY: "scheduled",
    Hold.RETRY: "retrying",
    Hold.SNOOZE: "snoozed",
    Hold.RELEASE: "given back",
    Hold.UNKNOWN_TASK: "unknown task",
    Hold.BAD_PAYLOAD: "arguments cannot be read",
    Hold.BAD_POLICY: "policy cannot be read",
    Hold.LOST: "its worker was lost",
    Hold.REDRIVE: "redriven",
    Hold.DEBOUNCE: "debounced",
    Hold.BREAKER: "circuit open",
    Hold.PARKED: "parked",
    Hold.PAUSED: "run paused",
    Hold.BATCH: "waits for the jobs of its batch",
    Hold.HELD: "held: its code does not fit its recorded steps",
}


# Every screen and command that shows a job shows this line. It is computed from the row and its `Circumstances`, which
# are read together, so it is never out of date.
def why_not_running(job: JobRecord, around: Circumstances) -> str:
    """Return why a job is not running, as one line, with what it belongs to; "running ..." if it is.

    A worker may have claimed a running job ahead, so that it has not started yet.
    """
    origin = read_origin(job.origin)
    why = _why(job, around)
    return why if origin is None else f"{why}; {origin.described}"


def _why(job: JobRecord, around: Circumstances) -> str:
    match job.state:
        case State.RUNNING | State.WAITING if job.hold is not None:
            return f"{_WAITS[job.hold]}: {job.note}"
        case State.RUNNING:
            held = f" for {span(around.now - job.claimed_at)}" if job.claimed_at else ""
            # The row does not show the start: to write it would cost as much as a claim.
            if around.is_ahead:
                return f"claimed ahead{held} by worker {job.worker_id}: it starts when a slot is free, or is given back"
            return f"running{held}: attempt {job.attempt} on worker {job.worker_id}"
        case State.WAITING:
            return f"waiting for an answer from outside until {job.scheduled_at:%Y-%m-%d %H:%M:%S} UTC"
        case State.SUCCEEDED:
            return "finished"
        case State.CANCELLED:
            return f"cancelled: {job.note or 'by an operator'}"
        case State.DEAD:
            return f"{_fate(job, around.catch)}: {_cause(job, around.error_type)}"
        case State.READY:  # pragma: no branch - the last one; mypy proves that all are here
            return _ready(job, around)


# Holds that another command than `jobs retry` clears; runs have commands of their own, on the page of the run.
_CLEARED: Final[Mapping[Hold, str | None]] = {
    Hold.UNKNOWN_TASK: "workers list",
    Hold.BAD_POLICY: "jobs repolicy",
    Hold.PARKED: None,
    Hold.PAUSED: "runs resume",
    Hold.HELD: None,
}


def obstacle(job: JobRecord, around: Circumstances) -> Obstacle | None:
    """Return what keeps a job from running, with what clears it; None if nothing does or no command clears it."""
    standing = around.standing
    if job.state is State.DEAD and not (job.caught_at or job.is_skipped):
        return _dead(job, around)
    if job.state is not State.READY:
        return None
    if job.scheduled_at <= around.now:
        return (_held_up(job, standing, around.now) if standing else None) or _not_served(job, around)
    if standing and standing.settings.paused_at is not None:
        return _paused(job.queue, standing.settings.paused_at)
    command = _CLEARED.get(job.hold, "jobs retry") if job.hold else "jobs retry"
    arguments = (str(job.id),) if command in ("jobs retry", "jobs repolicy") else ()
    if command == "runs resume" and (run := read_origin(job.origin)) is not None:
        arguments = (f"{run.name}/{run.part}",)
    return None if command is None else Obstacle(_why(job, around), command, arguments)


def _dead(job: JobRecord, around: Circumstances) -> Obstacle | None:
    """Return what helps a dead job: its catch job if that is dead too; None while that is about to catch it."""
    catch = around.catch
    if catch is not None and catch.state not in FINAL:
        return None
    if catch is not None and catch.state is State.DEAD:
        return Obstacle(_why(job, around), "jobs retry", (str(catch.id),), (catch.id,))
    return Obstacle(_why(job, around), "jobs retry", (str(job.id),))


def _fate(job: JobRecord, catch: CatchJob | None) -> str:
    if job.caught_at:
        return "caught"
    if job.is_skipped:
        return "dead, and skipped"
    if catch is None:
        return "dead"
    if catch.state not in FINAL:
        return f"catching by {catch.task}"
    return f"dead, and its catch job {catch.id} is {catch.state}"


def _cause(job: JobRecord, error_type: str | None) -> str:
    """Return the last decision about a dead job, with its last error if that is not part of the decision."""
    if job.note is None or (job.error and job.error in job.note):
        return job.note or job.error or job.reason or ""
    text = (job.error or "").strip().partition("\n")[0]
    text = text if len(text) <= ERROR_TEXT else f"{text[:ERROR_TEXT]}..."
    error = ": ".join(part for part in ((error_type or "").removeprefix("builtins."), text) if part)
    return f"{job.note} ({error or job.reason})"


def _ready(job: JobRecord, around: Circumstances) -> str:
    standing, now = around.standing, around.now
    why = _WAITS[job.hold] if job.hold else "due"
    detail = f" ({job.note})" if job.note else ""
    if job.scheduled_at <= now:
        held_up = _held_up(job, standing, now) if standing else None
        known = [each.text for each in (held_up, _not_served(job, around)) if each is not None]
        since = f"due since {span(now - job.scheduled_at)}, {', '.join(known) or 'waiting for a free worker'}"
        return since + (f"; {why}{detail}" if job.hold else "")
    paused = standing.settings.paused_at if standing else None
    due = "" if is_far(job.scheduled_at) else f": due in {span(job.scheduled_at - now)}"
    return f"{why}{due}{detail}" + (f"; queue paused since {_at(paused)}" if paused else "")


def unserved(job: JobRecord, around: Circumstances) -> Obstacle | None:
    """Return what a ready job lacks if it is due and there is no live worker for it; None if there is one."""
    if job.state is not State.READY or job.scheduled_at > around.now:
        return None
    alive = [worker for worker in around.workers if worker.expires_at > around.now]
    if not alive:
        return Obstacle("no worker is alive", "worker")
    if not any(worker.serves(job.queue) for worker in alive):
        return Obstacle(f"no live worker serves queue {job.queue!r}", "worker", queue=job.queue)
    if not any(worker.serves(job.queue, job.task) for worker in alive):
        return Obstacle(f"no live worker has the task {job.task!r} in queue {job.queue!r}", "workers list")
    return None


def _not_served(job: JobRecord, around: Circumstances) -> Obstacle | None:
    """Return why no worker will take a due job; None if one will."""
    missing = unserved(job, around)
    if missing is not None:
        return missing
    able = [each for each in around.workers if each.expires_at > around.now and each.serves(job.queue, job.task)]
    if all(worker.trouble is not None for worker in able):
        return Obstacle(f"worker {able[0].id} is in trouble: {able[0].trouble}", "workers list")
    # A worker may have claimed more jobs than it has slots.
    slots = sum(worker.concurrency for worker in able)
    taken = sum(min(worker.running, worker.concurrency) for worker in able)
    if taken < slots:
        return None
    return Obstacle(f"waiting for a free worker: all are busy ({taken} of {slots} slots)", "worker")


def _held_up(job: JobRecord, standing: QueuePosition, now: datetime) -> Obstacle | None:
    """Return what in its queue keeps a due job from running."""
    settings = standing.settings
    if settings.paused_at is not None:
        return _paused(settings.name, settings.paused_at)
    if settings.ordered and job.partition is not None and standing.head_id not in (job.id, None):
        dead = ": retry, redrive or skip that one" if standing.head_state is State.DEAD else ""
        text = f"blocked by job {standing.head_id} of the same partition, which is {standing.head_state}{dead}"
        return Obstacle(text, "jobs show", (str(standing.head_id),), (standing.head_id,))
    limit = Obstacle("", "queues show", (job.queue,), is_queue=True)
    mine = [number for number, partition in standing.holders if partition == job.partition is not None]
    if settings.per_partition is not None and len(mine) >= settings.per_partition:
        text = f"limit {len(mine)}/{settings.per_partition} of partition {job.partition!r} held by {_jobs(mine)}"
        return replace(limit, text=text, jobs=tuple(mine))
    taken = [number for number, _ in standing.holders]
    if settings.concurrency is not None and len(taken) >= settings.concurrency:
        text = f"limit {len(taken)}/{settings.concurrency} held by {_jobs(taken)}"
        return replace(limit, text=text, jobs=tuple(taken))
    if standing.partition_next_at is not None and standing.partition_next_at > now:
        reached = f"rate {settings.rate_per_partition} of partition {job.partition!r} reached"
        return replace(limit, text=f"{reached}, next at {_at(standing.partition_next_at)}")
    if standing.next_at is not None and standing.next_at > now:
        return replace(limit, text=f"rate {settings.rate} reached, next at {_at(standing.next_at)}")
    return None


def _paused(queue: str, since: datetime) -> Obstacle:
    return Obstacle(f"queue paused since {_at(since)}", "queues resume", (queue,), is_queue=True)


#: Number of jobs that are listed by id; further ones are counted.
_NAMED = 5


def _jobs(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"job{'s' if len(numbers) > 1 else ''} {named}{more}"


def _at(instant: datetime) -> str:
    exact = instant.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{exact} UTC"


def span(duration: timedelta) -> str:
    """Format a span to two units: ``1h 5m``, ``3.2s``, ``40ms``; negative spans count as zero."""
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
