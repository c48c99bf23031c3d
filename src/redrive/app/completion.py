"""Answers from outside: how an attempt ends whose handler has returned `Pending`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redrive.app.failures import ERROR_TEXT, clean, failed
from redrive.app.payload import write_result
from redrive.engine.outcome import Failed, Succeeded
from redrive.engine.transition import Transition
from redrive.errors import Cancel, PayloadError, Snooze, TokenError
from redrive.observe.listeners import LISTENERS
from redrive.policy import Failure
from redrive.retrying import rng
from redrive.stores.operations import attempts, jobs
from redrive.stores.query import Operation
from redrive.stores.store import Store

if TYPE_CHECKING:
    from redrive.app.task import Task

__all__ = ["Answers"]

_TOKEN = re.compile(r"(?P<job>[1-9]\d{0,17})\.(?P<lease>[1-9]\d{0,18})", re.ASCII)
_MOST = 2**63 - 1


class Answers:
    """The part of an App that takes answers from outside."""

    @property
    def store(self) -> Store:
        """The database."""
        raise NotImplementedError

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by its name."""
        raise NotImplementedError

    def now(self) -> datetime | None:
        """The injected instant, in tests."""
        raise NotImplementedError

    def complete(self, token: str, result: object = None) -> bool:
        """Say that an attempt whose handler returned `Pending` has succeeded.

        The answer may come before the handler has returned. The same answer may come twice, for example because the
        reply to the first one got lost: it counts once.

        Args:
            token: the handler's ``ctx.attempt_uid``.
            result: of the job, as the handler would have returned it; checked against the task's return annotation.

        Returns:
            Was the attempt ended by this call? False where the same answer has done so before.

        Raises:
            TokenError: the token does not name an attempt.
            JobNotFound: there is no such job.
            LeaseLost: the attempt is over: its wait ended, the job was cancelled or runs again; the message says what.
            PayloadError: the result does not fit the annotation; the attempt goes on waiting.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat it.
        """
        job_id, lease_id = _read(token)
        task = self.store.run(jobs.get(job_id)).task
        return _told(self.store.run(self._answer(job_id, lease_id, self._succeeded(task, result))))

    async def acomplete(self, token: str, result: object = None) -> bool:
        """Say that an attempt whose handler returned `Pending` has succeeded; see `complete`."""
        job_id, lease_id = _read(token)
        task = (await self.store.arun(jobs.get(job_id))).task
        return _told(await self.store.arun(self._answer(job_id, lease_id, self._succeeded(task, result))))

    def fail(self, token: str, error: Exception | str) -> bool:
        """Say that an attempt whose handler returned `Pending` has failed; the job's policy decides what follows.

        Args:
            token: the handler's ``ctx.attempt_uid``.
            error: what went wrong. An exception is matched by the policy as if the handler had raised it: its class,
                and the signals `GiveUp` and `RetryAfter`. A text has no class.

        Returns:
            Was the attempt ended by this call? False where the same answer has done so before.

        Raises:
            TokenError: the token does not name an attempt.
            JobNotFound: there is no such job.
            LeaseLost: the attempt is over; the message says what ended it.
            PayloadError: the error is none: a `Snooze` or a `Cancel`.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); repeat it.
        """
        return _told(self.store.run(self._answer(*_read(token), _failed(error))))

    async def afail(self, token: str, error: Exception | str) -> bool:
        """Say that an attempt whose handler returned `Pending` has failed; see `fail`."""
        return _told(await self.store.arun(self._answer(*_read(token), _failed(error))))

    def _succeeded(self, task: str, result: object) -> Succeeded:
        known = self.find(task)
        if known is not None:
            return Succeeded(known.returns.check(result))
        return Succeeded(write_result(result))

    def _answer(self, job_id: int, lease_id: int, outcome: Succeeded | Failed) -> Operation[Transition | None]:
        return attempts.complete(job_id, lease_id, outcome, rng.roll(), now=self.now())


def _told(moved: Transition | None) -> bool:
    """Tell what an answer has done, if it has done anything, and say whether it has."""
    if LISTENERS and moved is not None:
        from redrive.app.events import emit_moved

        emit_moved([moved])
    return moved is not None


def _read(token: str) -> tuple[int, int]:
    match = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if match is None or int(match["lease"]) > _MOST:
        message = f"{token!r} is no token: it is the ctx.attempt_uid of a handler, such as '3.7'"
        raise TokenError(message)
    return int(match["job"]), int(match["lease"])


def _failed(error: Exception | str) -> Failed:
    if isinstance(error, str):
        return Failed(Failure((), clean(error, ERROR_TEXT)))
    if not isinstance(error, Exception) or isinstance(error, Snooze | Cancel):
        message = f"fail() takes an error or its text, not {error!r}"
        raise PayloadError(message)
    return failed(error)
