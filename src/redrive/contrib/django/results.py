"""Jobs as ``TaskResult`` of Django."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from redrive.contrib.django import compat
from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, AttemptRecord, JobRecord
from redrive.errors import JobNotFound
from redrive.stores.operations import jobs
from redrive.stores.operations.jobs import CatchMaterial

STATUS = {
    State.READY: compat.TaskResultStatus.READY,
    State.RUNNING: compat.TaskResultStatus.RUNNING,
    State.WAITING: compat.TaskResultStatus.RUNNING,
    State.SUCCEEDED: compat.TaskResultStatus.SUCCESSFUL,
    State.DEAD: compat.TaskResultStatus.FAILED,
    State.CANCELLED: compat.TaskResultStatus.FAILED,
}

UNNAMED = "redrive.errors.JobError"
"""The class of failures without one, such as texts of ``App.fail``."""

LOWEST, HIGHEST = -100, 100
"""The priorities that Django accepts; redrive accepts others."""


def find(app: Any, job_id: int, using: Any = None) -> Any:
    """Return the ``TaskResult`` of a job; None if there is no such job, or if its task is not one of Django's."""
    try:
        material = app.store.run(jobs.material(job_id), using=using)
    except JobNotFound:
        return None
    job = material.job
    task = app.source(job.task)
    if task is None:
        return None
    found = result(task, app.alias, material)
    if job.state is State.SUCCEEDED:
        value = app.read_result(job.task, app.store.run(jobs.result(job.id), using=using))
        # A frozen dataclass without a parameter for it.
        object.__setattr__(found, "_return_value", value)
    return found


def result(task: Any, alias: str, material: CatchMaterial) -> Any:
    """Return the ``TaskResult`` of a job, without the return value."""
    job = material.job
    stored = {} if material.payload is None else msgspec.json.decode(material.payload)
    # An operator may have moved the job to a queue without settings in Django.
    queues = compat.task_backends[alias].queues
    return compat.TaskResult(
        task=task.using(
            priority=min(max(-job.priority, LOWEST), HIGHEST),
            queue_name=job.queue if not queues or job.queue in queues else None,
            run_after=local_time(datetime.fromisoformat(stored["run_after"])) if "run_after" in stored else None,
            backend=alias,
        ),
        id=encode_id(job.id),
        status=STATUS[job.state],
        enqueued_at=local_time(job.enqueued_at),
        started_at=local_time(job.started_at),
        finished_at=local_time(job.finished_at),
        last_attempted_at=local_time(_last_attempted_at(material)),
        args=stored.get("args", []),
        kwargs=stored.get("kwargs", {}),
        backend=alias,
        errors=_errors(material),
        worker_ids=_worker_ids(material),
    )


# Users see the ids of results, for example in URLs, so an id must not be guessable, and must not reveal how many jobs
# there are. It is a code of the number of the job, 16 bytes: a keyed hash of the number, and the number masked by a
# keyed hash of that. The number and the key determine it, so the database needs no column for it.
def encode_id(number: int, secret: str | None = None) -> str:
    """Return the id of the result of a job; ``secret`` replaces SECRET_KEY."""
    tag = _digest("tag", f"{number}", secret)
    mask = int.from_bytes(_digest("mask", tag.hex(), secret))
    return (tag + (number ^ mask).to_bytes(8)).hex()


def decode_id(text: str) -> int | None:
    """Return the number of the job with a result of this id; None if the id is not one of this project."""
    for secret in [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]:
        try:
            raw = bytes.fromhex(text)
        except (TypeError, ValueError):
            return None
        number = int.from_bytes(raw[8:16]) ^ int.from_bytes(_digest("mask", raw[:8].hex(), secret))
        if constant_time_compare(text, encode_id(number, secret)):
            return number
    return None


def _digest(part: str, value: str, secret: str | None) -> bytes:
    return bytes(salted_hmac(f"redrive.contrib.django.{part}", value, secret, algorithm="sha256").digest()[:8])


def local_time(instant: datetime | None) -> datetime | None:
    """Return an aware instant as the project uses it: aware, or naive if USE_TZ is off."""
    return instant if instant is None or settings.USE_TZ else timezone.make_naive(instant)


def stored_time(instant: datetime) -> str:
    """Return a time of the project as text in UTC."""
    aware = timezone.make_aware(instant) if timezone.is_naive(instant) else instant
    return aware.astimezone(UTC).isoformat()


def _last_attempted_at(material: CatchMaterial) -> datetime | None:
    if material.job.state in {State.RUNNING, State.WAITING}:
        return material.job.claimed_at
    return material.attempts[-1].started_at if material.attempts else None


def _worker_ids(material: CatchMaterial) -> list[str]:
    ended = [str(attempt.worker_id) for attempt in material.attempts]
    present = material.job.worker_id
    return ended if present is None else [*ended, str(present)]


def _errors(material: CatchMaterial) -> list[Any]:
    errors = [
        _error(each) for each in material.attempts if each.outcome in {AttemptOutcome.FAILED, AttemptOutcome.LOST}
    ]
    job = material.job
    if not errors and STATUS[job.state] is compat.TaskResultStatus.FAILED:
        return [_end(job)]
    return errors


def _error(attempt: AttemptRecord) -> Any:
    path = attempt.error_type or ("redrive.errors.LeaseLost" if attempt.outcome is AttemptOutcome.LOST else UNNAMED)
    text = attempt.traceback or attempt.error or attempt.verdict or str(attempt.reason)
    return compat.TaskError(exception_class_path=path, traceback=text)


def _end(job: JobRecord) -> Any:
    """Return the error of a job without failed executions: it was cancelled, or its deadline had passed."""
    name = "JobCancelled" if job.state is State.CANCELLED else "JobDead"
    return compat.TaskError(exception_class_path=f"redrive.errors.{name}", traceback=job.note or job.error or name)
