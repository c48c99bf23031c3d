"""Reports from outside: the progress and the outcome of attempts with a handler that has returned `Pending`."""

from __future__ import annotations

import re

from redrive.app.arguments import LARGEST
from redrive.app.attempts.handle import progress_json
from redrive.app.payload import write_result
from redrive.app.protocol import AppProtocol, Procedure
from redrive.app.tasks.failures import ERROR_TEXT, clean, failed
from redrive.engine.outcome import Failed, Succeeded
from redrive.errors import Cancel, LeaseLost, PayloadError, Snooze, TokenError
from redrive.errors.foreign import is_a
from redrive.policy import Failure
from redrive.retrying import rng
from redrive.stores.operations import attempts, jobs
from redrive.stores.operations.attempts import ProgressReport

_TOKEN = re.compile(r"(?P<job>[1-9]\d{0,17})\.(?P<lease>[1-9]\d{0,18})", re.ASCII)


def complete(app: AppProtocol, token: str, result: object) -> Procedure[bool]:
    """Complete an attempt with a result; see `redrive.App.complete`."""
    job_id, lease_id = _read(token)
    task = app.find((yield jobs.get(job_id)).task)
    raw = write_result(result, limit=app.max_payload) if task is None else task.returns.check(result)
    return (yield from _end(app, job_id, lease_id, Succeeded(raw)))


def fail(app: AppProtocol, token: str, error: Exception | str) -> Procedure[bool]:
    """Complete an attempt with a failure; see `redrive.App.fail`."""
    job_id, lease_id = _read(token)
    return (yield from _end(app, job_id, lease_id, _failed(error)))


def report(app: AppProtocol, token: str, details: object) -> Procedure[None]:
    """Report the progress of an attempt; see `redrive.App.report`."""
    job_id, lease_id = _read(token)
    written = ProgressReport(job_id, lease_id, progress_json(details))
    if lease_id not in (yield attempts.report([written], now=app.now())):
        job = yield jobs.get(job_id)
        raise LeaseLost(f"attempt {token} is over: job {job_id} is {job.state}, and the report changes nothing")


def _end(app: AppProtocol, job_id: int, lease_id: int, outcome: Succeeded | Failed) -> Procedure[bool]:
    settlement = yield attempts.complete(job_id, lease_id, outcome, rng.roll(), now=app.now())
    if settlement is not None:
        from redrive.app.events import emit_moved

        emit_moved([settlement])
    return settlement is not None


def _read(token: str) -> tuple[int, int]:
    match = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if match is None or int(match["lease"]) > LARGEST:
        raise TokenError(f"{token!r} is no token: it is the ctx.attempt_uid of a handler, such as '3.7'")
    return int(match["job"]), int(match["lease"])


def _failed(error: Exception | str) -> Failed:
    if isinstance(error, str):
        return Failed(Failure((), clean(error, ERROR_TEXT)))
    if not isinstance(error, Exception) or is_a(error, (Snooze, Cancel)):
        raise PayloadError(f"fail() takes an error or its text, not {error!r}")
    return failed(error)
