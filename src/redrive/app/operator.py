"""What people do with the jobs of an app: look, cancel, redrive, apply the present policies, check.

These are the methods of `redrive.App` that need no task. Each that changes something leaves a line in the audit log
with the name of the *actor*: ``user@host`` of this process unless told otherwise. What touches many jobs does it in
batches, each a transaction of its own, so that no one waits long behind it, and an interrupted one can be repeated.
"""

from __future__ import annotations

import functools
import getpass
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.engine.frozen import FrozenPolicy
from redrive.engine.queue import Rate
from redrive.engine.records import AuditEntry, Finding, JobRecord, Stats, WorkerRecord
from redrive.engine.select import Filter
from redrive.observe.listeners import LISTENERS
from redrive.stores.operations import admin, audit, checks, redriving, repolicy, workers
from redrive.stores.store import Store

__all__ = ["Operator", "whoami"]

BATCH = 500
"""Jobs of one transaction."""


@functools.cache
def whoami() -> str:
    """Who runs this process, for the audit log.

    Returns:
        ``user@host``.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container, the number of the user may have no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


class Operator:
    """The part of an App that people use."""

    @property
    def store(self) -> Store:
        """The database."""
        raise NotImplementedError

    def now(self) -> datetime | None:
        """The injected instant, in tests."""
        raise NotImplementedError

    def policies(self) -> Mapping[str, FrozenPolicy]:
        """The present policy of each task."""
        raise NotImplementedError

    @property
    def actor(self) -> str:
        """Who operates, where nobody else is named: ``user@host``."""
        return whoami()

    # ---------------------------------------------------------------- looking

    def jobs(self, wanted: Filter | None = None) -> tuple[JobRecord, ...]:
        """Read jobs.

        Args:
            wanted: which; by default the newest 100.

        Returns:
            Their rows.
        """
        return self.store.run(admin.select(wanted or Filter()))

    def stats(self, *, after_id: int = 0, task: str | None = None) -> Stats:
        """Count jobs by what they are doing.

        Args:
            after_id: only jobs with a larger id.
            task: only jobs of this task.

        Returns:
            The counts.
        """
        return self.store.run(admin.stats(after_id=after_id, task=task, now=self.now()))

    def workers(self) -> tuple[WorkerRecord, ...]:
        """Read the workers that have not left.

        Returns:
            The workers, oldest first.
        """
        return self.store.run(workers.workers())

    def audit(self, *, before_id: int | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Read what people have done, newest first.

        Args:
            before_id: only what was done before this line.
            limit: at most so many lines.

        Returns:
            The lines.
        """
        return self.store.run(audit.audit(before_id=before_id, limit=limit))

    def verify(self, *, limit: int = 100) -> tuple[Finding, ...]:
        """Look for what must not be: the invariants of the engine, asked of the whole database.

        Only reads, a stride of jobs at a time, so that it may be run in production. On a healthy database it finds
        nothing, whatever has crashed.

        Args:
            limit: stop after so many findings.

        Returns:
            What was found.
        """
        found: list[Finding] = []
        after: int | None = 0
        while after is not None and len(found) < limit:
            checked = self.store.run(checks.check(after))
            found += checked.findings
            after = checked.last_id
        return tuple(found[:limit])

    # ---------------------------------------------------------------- acting

    def cancel(self, wanted: Filter, *, why: str | None = None, actor: str | None = None) -> tuple[int, ...]:
        """End the jobs that fit and have not ended; running ones lose their leases, and their handlers are told.

        Args:
            wanted: which; its limit counts the jobs that are looked at.
            why: shown on the jobs.
            actor: who does it.

        Returns:
            Those that were cancelled by this call.
        """
        ended: list[int] = []
        after: int | None = wanted.after_id
        left = wanted.limit
        while after is not None and left > 0:
            batch = replace(wanted, after_id=after, limit=min(BATCH, left))
            done = self.store.run(admin.cancel_all(batch, why=why, actor=actor or self.actor, now=self.now()))
            if done.ids and LISTENERS:
                self._tell_cancelled(done.ids)
            ended += done.ids
            after = done.last_id
            left -= batch.limit
        return tuple(ended)

    def _tell_cancelled(self, ids: tuple[int, ...]) -> None:
        from redrive.app.events import emit_cancelled

        emit_cancelled(self.jobs(Filter(ids=ids, limit=len(ids), oldest_first=True)))

    def redrive(
        self,
        wanted: Filter,
        *,
        rate: str | None = None,
        queue: str | None = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> redriving.Redriven:
        """Start dead or cancelled jobs again, oldest first, with all their failures forgiven.

        A job whose unique key another one holds stays as it is, and so does one that is being caught.

        Args:
            wanted: which; jobs in other states are not touched. Its limit counts those that are started.
            rate: how many are due within how long, such as ``"100/s"``; without it all are due now.
            queue: where they go; without it they stay where they are.
            dry_run: only say which.
            actor: who does it.

        Returns:
            Which were started, and which were kept and why.

        Raises:
            ConfigurationError: the rate cannot be read.
        """
        spacing = _spacing(rate)
        if dry_run:
            return self.store.run(redriving.dry_run(wanted))
        ids: list[int] = []
        kept: list[tuple[int, str]] = []
        after: int | None = wanted.after_id
        while after is not None and len(ids) < wanted.limit:
            batch = replace(wanted, after_id=after, limit=min(BATCH, wanted.limit - len(ids)))
            operation = redriving.redrive(
                batch,
                queue=queue,
                spacing=spacing,
                first_after=spacing * len(ids),
                actor=actor or self.actor,
                now=self.now(),
            )
            done = self.store.run(operation)
            ids += done.ids
            kept += done.kept
            after = done.last_id
        return redriving.Redriven(tuple(ids), tuple(kept), after)

    def repolicy(self, wanted: Filter, *, dry_run: bool = False, actor: str | None = None) -> repolicy.Repolicied:
        """Give unfinished jobs the present policies of their tasks.

        A job keeps the policy that it was enqueued under; this is how a new one reaches jobs that wait already. It
        decides from their next failure on: what is due stays due when it is.

        Args:
            wanted: which; its limit counts the jobs that are looked at.
            dry_run: only say which.
            actor: who does it.

        Returns:
            Which have another policy now, and which were kept and why.
        """
        ids: list[int] = []
        kept: list[tuple[int, str]] = []
        after: int | None = wanted.after_id
        left = wanted.limit
        while after is not None and left > 0:
            batch = replace(wanted, after_id=after, limit=min(BATCH, left))
            operation = repolicy.repolicy(
                batch, self.policies(), dry_run=dry_run, actor=actor or self.actor, now=self.now()
            )
            done = self.store.run(operation)
            ids += done.ids
            kept += done.kept
            after = done.last_id
            left -= batch.limit
        return repolicy.Repolicied(tuple(ids), tuple(kept), after)


def _spacing(rate: str | None) -> timedelta:
    if rate is None:
        return timedelta(0)
    parsed = Rate.parse(rate)
    # Rounded up: a microsecond too slow keeps the rate, one too fast does not.
    return -(-parsed.span // (parsed.count * timedelta(microseconds=1))) * timedelta(microseconds=1)
