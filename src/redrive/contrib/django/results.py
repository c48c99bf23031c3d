"""Jobs as ``TaskResult`` of Django."""

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


def result(task: Any, backend: str, material: CatchMaterial) -> Any:  # noqa: ANN401 - Django's Task and TaskResult
    """Return the ``TaskResult`` of a job, without the return value."""
    job = material.job
    arguments = _arguments(material.payload)
    return compat.TaskResult(
        task=task,
        id=str(job.id),
        status=STATUS[job.state],
        enqueued_at=local_time(job.enqueued_at),
        started_at=local_time(job.started_at),
        finished_at=local_time(job.finished_at),
        last_attempted_at=local_time(_last_attempted_at(material)),
        args=arguments["args"],
        kwargs=arguments["kwargs"],
        backend=backend,
        errors=_errors(material),
        worker_ids=_worker_ids(material),
    )


def succeeding(running: Any, value: Any) -> Any:  # noqa: ANN401 - Django's TaskResult, and the user's
    """Return the ``TaskResult`` of a running task that has just succeeded."""
    done = replace(running, status=compat.TaskResultStatus.SUCCESSFUL, finished_at=local_time(timezone.now()))
    return with_value(done, value)


def failing(running: Any, error: BaseException) -> Any:  # noqa: ANN401 - Django's TaskResult
    """Return the ``TaskResult`` of a running task that has just failed and is not retried."""
    text = "".join(traceback.format_exception(error))
    last = compat.TaskError(exception_class_path=qualified_name(type(error)), traceback=text)
    errors = [*running.errors, last]
    return replace(
        running, status=compat.TaskResultStatus.FAILED, finished_at=local_time(timezone.now()), errors=errors
    )


def with_value(done: Any, value: Any) -> Any:  # noqa: ANN401 - Django's TaskResult, and the user's
    """Set the return value of a ``TaskResult``, and return the result."""
    # A frozen dataclass without a parameter for it.
    object.__setattr__(done, "_return_value", value)
    return done


def local_time(instant: datetime | None) -> datetime | None:
    """Return an aware instant as the project uses it: aware, or naive if USE_TZ is off."""
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
    """Return the error of a job without failed executions: it was cancelled, or its deadline had passed."""
    name = "JobCancelled" if job.state is State.CANCELLED else "JobDead"
    return compat.TaskError(exception_class_path=f"redrive.errors.{name}", traceback=job.note or job.error or name)
