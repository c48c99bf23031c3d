"""Completion from outside: the outcome of attempts with a handler that has returned `Pending`."""

from __future__ import annotations

import re

from redrive.app.failures import ERROR_TEXT, clean, failed
from redrive.app.payload import write_result
from redrive.app.protocol import AppProtocol, Procedure
from redrive.engine.outcome import Failed, Succeeded
from redrive.errors import Cancel, PayloadError, Snooze, TokenError
from redrive.policy import Failure
from redrive.retrying import rng
from redrive.stores.operations import attempts, jobs

_TOKEN = re.compile(r"(?P<job>[1-9]\d{0,17})\.(?P<lease>[1-9]\d{0,18})", re.ASCII)
_LARGEST = 2**63 - 1


def complete(app: AppProtocol, token: str, result: object) -> Procedure[bool]:
    """Complete an attempt with a result; see `redrive.App.complete`."""
    job_id, lease_id = _read(token)
    task = app.find((yield jobs.get(job_id)).task)
    raw = write_result(result) if task is None else task.returns.check(result)
    return (yield from _end(app, job_id, lease_id, Succeeded(raw)))


def fail(app: AppProtocol, token: str, error: Exception | str) -> Procedure[bool]:
    """Complete an attempt with a failure; see `redrive.App.fail`."""
    job_id, lease_id = _read(token)
    return (yield from _end(app, job_id, lease_id, _failed(error)))


def _end(app: AppProtocol, job_id: int, lease_id: int, outcome: Succeeded | Failed) -> Procedure[bool]:
    transition = yield attempts.complete(job_id, lease_id, outcome, rng.roll(), now=app.now())
    if transition is not None:
        from redrive.app.events import emit_moved

        emit_moved([transition])
    return transition is not None


def _read(token: str) -> tuple[int, int]:
    match = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if match is None or int(match["lease"]) > _LARGEST:
        raise TokenError(f"{token!r} is no token: it is the ctx.attempt_uid of a handler, such as '3.7'")
    return int(match["job"]), int(match["lease"])


def _failed(error: Exception | str) -> Failed:
    if isinstance(error, str):
        return Failed(Failure((), clean(error, ERROR_TEXT)))
    if not isinstance(error, Exception) or isinstance(error, Snooze | Cancel):
        raise PayloadError(f"fail() takes an error or its text, not {error!r}")
    return failed(error)
