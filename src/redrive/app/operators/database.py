"""The database of an App as a whole: its workers, its audit log, and a check of its invariants."""

from __future__ import annotations

import functools
import getpass
import os
import socket
from typing import TYPE_CHECKING

from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.engine.records import AuditEntry, Diagnosis, Finding, WorkerRecord
from redrive.stores.operations import audit, checks, workers

if TYPE_CHECKING:
    from redrive.stores.operations.erasing import Erased


@functools.cache
def default_actor() -> str:
    """Return the user and the host of this process as ``user@host``, for the audit log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container, the number of the user may have no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


class Workers:
    """The workers of an App, as ``app.workers``."""

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    def select(self) -> tuple[WorkerRecord, ...]:
        """Read the workers that have not left, oldest first."""
        return self._app.store.run(workers.workers())

    async def aselect(self) -> tuple[WorkerRecord, ...]:
        """Read the workers that have not left; see `select`."""
        return await self._app.store.arun(workers.workers())


class Database:
    """The database of an App, as ``app.database``."""

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    def audit(
        self, *, before_id: int | None = None, about: str | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """Read at most ``limit`` lines of the audit log with ids below ``before_id``, newest first.

        ``about`` is the one thing that was changed, such as ``queue:mail``, ``schedule:nightly`` or ``job:17``.
        """
        return self._app.store.run(audit.audit(before_id=before_id, about=about, limit=limit))

    async def aaudit(
        self, *, before_id: int | None = None, about: str | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """Read the audit log; see `audit`."""
        return await self._app.store.arun(audit.audit(before_id=before_id, about=about, limit=limit))

    def verify(self, *, limit: int = 100) -> tuple[Finding, ...]:
        """Check the invariants of the engine over the whole database, and return the violations, at most ``limit``.

        The check only reads, one stride of jobs at a time, so that it may run in production. A healthy database has no
        findings, also after crashes.
        """
        return run(self._app.store, _verify(limit))

    async def averify(self, *, limit: int = 100) -> tuple[Finding, ...]:
        """Check the invariants of the engine over the whole database; see `verify`."""
        return await arun(self._app.store, _verify(limit))

    def erase(self, value: str, *, dry_run: bool = False, actor: str | None = None) -> Erased:
        """Erase all that is stored under the value of one person. This is final.

        Jobs with the value as a tag, a key, an idempotency key or a partition, or with ``field:value`` for a field that
        their task names in ``search=``; runs with it as their id, instances,
        items, events and emitted values with it as their key or name: with arguments, results, attempts, steps and
        signals, and with their catch jobs, child runs and forks. Stored answers to requests with an Idempotency-Key are
        deleted if they mention it. In the audit log, in bulk operations that have ended and in the titles of error
        groups it is replaced by ``[erased]``. The audit log then has the erasure, without the value.

        What has not started is cancelled first. What runs is kept: a job that runs or waits for an answer, a run with
        finished steps and the one that has called it or of which it is a fork, an instance in a transition, an event
        that a subscription has not got. Cancel it or let it end, and repeat the call. Archives are yours to search.

        Args:
            value: the whole tag, key or id, or ``customer:7`` for ``search=["customer"]``; at least 3 characters.
            dry_run: change nothing, only return the result.
            actor: for the audit log.

        Returns:
            The number of what was erased by kind, and what was kept, with the reasons; its ``matched`` is False if
            nothing is stored under the value.

        Raises:
            ConfigurationError: the value is too short.
            PayloadEncoded: arguments with the value of a field cannot be decoded here.
            StoreError: the database refused; what was erased before stays so, and the call can be repeated.
        """
        return run(self._app.store, self.erasing(value, actor, dry_run=dry_run))

    async def aerase(self, value: str, *, dry_run: bool = False, actor: str | None = None) -> Erased:
        """Erase all that is stored under the value of one person; see `erase`."""
        return await arun(self._app.store, self.erasing(value, actor, dry_run=dry_run))

    def erasing(self, value: str, actor: str | None, *, dry_run: bool) -> Procedure[Erased]:
        """Erase all that is stored under a value, as the procedure of both methods."""
        # A worker does not load what only its operators use.
        from redrive.app.operators.erasure import erasing

        return erasing(self._app, value, actor or self._app.default_actor, dry_run=dry_run)

    def diagnose(self, *, app: str = "APP") -> tuple[Diagnosis, ...]:
        """Return the state of the database, its schema, its clock and its workers, and what to do, as `redrive doctor`.

        Args:
            app: the name of this app in the commands of the advice, such as ``payments.jobs:app``.
        """
        return run(self._app.store, self._diagnose(app))

    async def adiagnose(self, *, app: str = "APP") -> tuple[Diagnosis, ...]:
        """Return the state of the database and its workers; see `diagnose`."""
        return await arun(self._app.store, self._diagnose(app))

    def _diagnose(self, app: str) -> Procedure[tuple[Diagnosis, ...]]:
        # A worker does not load what only its operators use.
        from redrive.app.operators.diagnosis import diagnosis, examined

        found = yield from examined(self._app)
        return (yield from diagnosis(self._app, app, found))


def _verify(limit: int) -> Procedure[tuple[Finding, ...]]:
    found: list[Finding] = []
    after: int | None = 0
    while after is not None and len(found) < limit:
        checked = yield checks.check(after)
        found += checked.findings
        after = checked.last_id
    return tuple(found[:limit])
