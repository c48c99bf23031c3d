"""A job as Django's ``TaskResult``."""

from __future__ import annotations

import traceback
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from redrive.contrib.django import compat
from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, AttemptRecord, JobRecord
from redrive.policy.failure import qualified_name
from redrive.stores.operations.jobs import CatchMaterial

__all__ = ["at", "failing", "result", "succeeding", "with_value"]

STATUS = {
    State.READY: compat.TaskResultStatus.READY,
    State.RUNNING: compat.TaskResultStatus.RUNNING,
    State.WAITING: compat.TaskResultStatus.RUNNING,
    State.SUCCEEDED: compat.TaskResultStatus.SUCCESSFUL,
    State.DEAD: compat.TaskResultStatus.FAILED,
    State.CANCELLED: compat.TaskResultStatus.FAILED,
}

UNNAMED = "redrive.errors.JobError"
"""The class of a failure that has none: it was noted as a text, by ``App.fail`` for example."""


def result(task: Any, backend: str, material: CatchMaterial) -> Any:  # noqa: ANN401 - Django's Task and TaskResult
    """Describe a job as Django does.

    Args:
        task: Django's.
        backend: alias of the backend.
        material: the job, its arguments as JSON, and its closed executions.

    Returns:
        A ``TaskResult``, without the return value.
    """
    job = material.job
    arguments = _arguments(material.payload)
    return compat.TaskResult(
        task=task,
        id=str(job.id),
        status=STATUS[job.state],
        enqueued_at=at(job.enqueued_at),
        started_at=at(job.started_at),
        finished_at=at(job.finished_at),
        last_attempted_at=at(_last_attempted_at(material)),
        args=arguments["args"],
        kwargs=arguments["kwargs"],
        backend=backend,
        errors=_errors(material),
        worker_ids=_worker_ids(material),
    )


def succeeding(running: Any, value: Any) -> Any:  # noqa: ANN401 - Django's TaskResult, and the user's
    """Describe what has just succeeded.

    Args:
        running: how it was described when it started.
        value: what its function has returned.

    Returns:
        A ``TaskResult``.
    """
    done = replace(running, status=compat.TaskResultStatus.SUCCESSFUL, finished_at=at(timezone.now()))
    return with_value(done, value)


def failing(running: Any, error: BaseException) -> Any:  # noqa: ANN401 - Django's TaskResult
    """Describe what has just failed for good.

    Args:
        running: how it was described when it started.
        error: what its function has raised.

    Returns:
        A ``TaskResult``.
    """
    text = "".join(traceback.format_exception(error))
    last = compat.TaskError(exception_class_path=qualified_name(type(error)), traceback=text)
    errors = [*running.errors, last]
    return replace(running, status=compat.TaskResultStatus.FAILED, finished_at=at(timezone.now()), errors=errors)


def with_value(done: Any, value: Any) -> Any:  # noqa: ANN401 - Django's TaskResult, and the user's
    """Put a return value into a ``TaskResult``, which has no other door for it.

    Args:
        done: the result.
        value: the return value.

    Returns:
        The same result.
    """
    object.__setattr__(done, "_return_value", value)
    return done


def at(instant: datetime | None) -> datetime | None:
    """An instant as this project has them: aware, or naive where USE_TZ is off.

    Args:
        instant: aware, or None.

    Returns:
        The same instant.
    """
    return instant if instant is None or settings.USE_TZ or timezone.is_naive(instant) else timezone.make_naive(instant)


def _arguments(payload: bytes | None) -> dict[str, Any]:
    found = {} if payload is None else msgspec.json.decode(payload)
    return {"args": found.get("args", []), "kwargs": found.get("kwargs", {})}


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


def _error(attempt: AttemptRecord) -> Any:  # noqa: ANN401 - Django's TaskError
    path = attempt.error_type or ("redrive.errors.LeaseLost" if attempt.outcome is AttemptOutcome.LOST else UNNAMED)
    text = attempt.traceback or attempt.error or attempt.verdict or str(attempt.reason)
    return compat.TaskError(exception_class_path=path, traceback=text)


def _end(job: JobRecord) -> Any:  # noqa: ANN401 - Django's TaskError
    """What ended a job none of whose executions has failed: somebody cancelled it, or its time was over."""
    name = "JobCancelled" if job.state is State.CANCELLED else "JobDead"
    return compat.TaskError(exception_class_path=f"redrive.errors.{name}", traceback=job.note or job.error or name)
