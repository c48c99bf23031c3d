"""Jobs by filter: read, count, cancel, redrive, delete, archive, and give them the present policies of their tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from redrive.app.arguments import checked_filter
from redrive.app.operators import archive as archives
from redrive.app.operators.archive import Archive
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.engine.bulk import BATCH
from redrive.engine.keys import idempotency_key
from redrive.engine.queue import Rate
from redrive.engine.records import Filter, JobRecord, Stats
from redrive.observe.listeners import INFO, heard
from redrive.observe.logs import logger
from redrive.seams import spelled
from redrive.stores.operations import admin, deleting, jobs, redriving
from redrive.stores.operations.admin import BulkResult

_log = logger("redrive.jobs")


class Jobs:
    """The jobs of an App, as ``app.jobs``.

    Methods that change jobs refuse a filter without a condition, which would change all of them by accident:
    ``Filter(all=True)`` means all. They write a line to the audit log with the name of the *actor*, which is
    ``user@host`` of this process by default. They work in batches, each in a transaction of its own, so that an
    interrupted call can be repeated. Unless the filter has a limit they change all jobs that match, but none that is
    enqueued after the call has begun.
    """

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    @spelled("app.jobs.select")
    def select(self, where: Filter | None = None) -> tuple[JobRecord, ...]:
        """Read the rows of jobs: the newest 100, or as many as the limit of the filter allows; `count` counts all."""
        return self._app.store.run(admin.select(Filter() if where is None else checked_filter(where)))

    @spelled("app.jobs.select")
    async def aselect(self, where: Filter | None = None) -> tuple[JobRecord, ...]:
        """Read jobs; see `select`."""
        return await self._app.store.arun(admin.select(Filter() if where is None else checked_filter(where)))

    def count(self, where: Filter) -> int:
        """Count all jobs that match, or at most as many as the limit of the filter.

        The rows are read in batches, so that the cost grows with the number of jobs; `stats` has a bounded cost.

        Raises:
            ConfigurationError: the filter has no condition.
        """
        return run(self._app.store, self._count(checked_filter(where)))

    async def acount(self, where: Filter) -> int:
        """Count jobs; see `count`."""
        return await arun(self._app.store, self._count(checked_filter(where)))

    def _count(self, where: Filter) -> Procedure[int]:
        def read(batch: Filter) -> Procedure[BulkResult]:
            found: tuple[JobRecord, ...] = yield admin.select(replace(batch, oldest_first=True))
            last = found[-1].id if len(found) == batch.limit else None
            return BulkResult(tuple(job.id for job in found), last_id=last)

        return len((yield from self._in_batches(where, read)).ids)

    def stats(self, *, after_id: int = 0, task: str | None = None) -> Stats:
        """Count jobs by state: all, those with an id above ``after_id``, or those of one task.

        The cost does not depend on the size of the table: a count of 10,000 means that many or more, and ``capped``
        of the result has its name. Succeeded and cancelled jobs are counted among the newest 10,000 jobs.
        """
        return self._app.store.run(admin.stats(after_id=after_id, task=task, now=self._app.now()))

    async def astats(self, *, after_id: int = 0, task: str | None = None) -> Stats:
        """Count jobs by state; see `stats`."""
        return await self._app.store.arun(admin.stats(after_id=after_id, task=task, now=self._app.now()))

    def idempotency_key(self, number: int) -> str:
        """Return the key that the handler of a job finds in ``ctx.idempotency_key``.

        Raises:
            JobNotFound: no job has the id ``number``.
        """
        return run(self._app.store, self._idempotency_key(number))

    async def aidempotency_key(self, number: int) -> str:
        """Return the idempotency key of a job; see `idempotency_key`."""
        return await arun(self._app.store, self._idempotency_key(number))

    def _idempotency_key(self, number: int) -> Procedure[str]:
        salt = yield jobs.salt(number)
        return idempotency_key((yield admin.identify("uid")), number, salt)

    @spelled("app.jobs.cancel")
    def cancel(self, where: Filter, *, why: str | None = None, actor: str | None = None) -> tuple[int, ...]:
        """Cancel the unfinished jobs that match, and return their ids.

        Running jobs lose their leases, and their handlers are asked to stop. Runs of workflows are asked to end, as by
        `Run.cancel`.

        Args:
            where: the conditions; the limit, if there is one, counts the jobs that are read.
            why: the reason, shown on the jobs.
            actor: for the audit log.

        Raises:
            ConfigurationError: the filter has no condition.
        """
        return run(self._app.store, self._cancel(checked_filter(where), why, actor))

    @spelled("app.jobs.cancel")
    async def acancel(self, where: Filter, *, why: str | None = None, actor: str | None = None) -> tuple[int, ...]:
        """Cancel the unfinished jobs that match; see `cancel`."""
        return await arun(self._app.store, self._cancel(checked_filter(where), why, actor))

    def _cancel(self, where: Filter, why: str | None, actor: str | None) -> Procedure[tuple[int, ...]]:
        def change(batch: Filter) -> Procedure[BulkResult]:
            by, now = actor or self._app.default_actor, self._app.now()
            done: BulkResult = yield admin.cancel_all(batch, why=why, actor=by, now=now)
            if done.ids and heard("redrive.jobs", INFO):
                from redrive.app.events import emit_cancelled

                emit_cancelled((yield admin.select(Filter(ids=done.ids, limit=len(done.ids), oldest_first=True))))
            return done

        return (yield from self._in_batches(where, change)).ids

    @spelled("app.jobs.redrive")
    def redrive(
        self,
        where: Filter,
        *,
        rate: str | None = None,
        queue: str | None = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> BulkResult:
        """Start dead or cancelled jobs again, oldest first, with their failure counts set to zero.

        Jobs stay as they are if another job holds their unique key, or if their catch job has not ended.

        Args:
            where: the conditions; jobs in other states stay as they are. The limit, if there is one, counts the jobs
                that are started.
            rate: the number of jobs that become due per time, such as ``"100/s"``; by default all are due now.
            queue: the queue to move them to; by default they stay in theirs.
            dry_run: change nothing, only return the result.
            actor: for the audit log.

        Returns:
            The jobs that were started, and those that were not, with the reasons.

        Raises:
            ConfigurationError: the filter has no condition, or the rate cannot be read.
        """
        return run(self._app.store, self.redriving(where, rate, queue, actor, dry_run=dry_run))

    @spelled("app.jobs.redrive")
    async def aredrive(
        self,
        where: Filter,
        *,
        rate: str | None = None,
        queue: str | None = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> BulkResult:
        """Start dead or cancelled jobs again; see `redrive`."""
        return await arun(self._app.store, self.redriving(where, rate, queue, actor, dry_run=dry_run))

    def redriving(
        self, where: Filter, rate: str | None, queue: str | None, actor: str | None, *, dry_run: bool = False
    ) -> Procedure[BulkResult]:
        """Start dead or cancelled jobs again, as the procedure of both methods."""
        where, spacing = checked_filter(where), timedelta(0) if rate is None else Rate.parse(rate).spacing
        where = yield from self._bounded(where)
        if dry_run:
            rehearsed: BulkResult = yield redriving.dry_run(where)
            return rehearsed
        ids: list[int] = []
        kept: list[tuple[int, str]] = []
        after: int | None = where.after_id
        while after is not None and len(ids) < where.most:
            done = yield redriving.redrive(
                replace(where, after_id=after, limit=min(BATCH, where.most - len(ids))),
                queue=queue,
                spacing=spacing,
                first_after=spacing * len(ids),
                actor=actor or self._app.default_actor,
                now=self._app.now(),
            )
            ids += done.ids
            kept += done.kept
            after = done.last_id
        return BulkResult(tuple(ids), tuple(kept), after)

    @spelled("app.jobs.repolicy")
    def repolicy(self, where: Filter, *, dry_run: bool = False, actor: str | None = None) -> BulkResult:
        """Give unfinished jobs the present policies of their tasks.

        A job keeps the policy under which it was enqueued; this method replaces it. The new policy decides from the
        next failure on: due times stay as they are.

        Args:
            where: the conditions; the limit, if there is one, counts the jobs that are read.
            dry_run: change nothing, only return the result.
            actor: for the audit log.

        Returns:
            The jobs with another policy now, and those that were not changed, with the reasons.

        Raises:
            ConfigurationError: the filter has no condition.
        """
        return run(self._app.store, self._repolicy(checked_filter(where), actor, dry_run=dry_run))

    @spelled("app.jobs.repolicy")
    async def arepolicy(self, where: Filter, *, dry_run: bool = False, actor: str | None = None) -> BulkResult:
        """Give unfinished jobs the present policies of their tasks; see `repolicy`."""
        return await arun(self._app.store, self._repolicy(checked_filter(where), actor, dry_run=dry_run))

    def _repolicy(self, where: Filter, actor: str | None, *, dry_run: bool) -> Procedure[BulkResult]:
        policies, by, now = self._app.policies(), actor or self._app.default_actor, self._app.now()

        def change(batch: Filter) -> Procedure[BulkResult]:
            done: BulkResult = yield redriving.repolicy(batch, policies, dry_run=dry_run, actor=by, now=now)
            return done

        return self._in_batches(where, change)

    @spelled("app.jobs.delete")
    def delete(self, where: Filter, *, dry_run: bool = False, actor: str | None = None) -> BulkResult:
        """Delete jobs with their arguments, results, histories, keys and tags. This is final.

        A job that has not started is cancelled first. A job stays if it runs or waits for an answer, and a dead job if
        it has a catch job that stays.

        Args:
            where: the conditions; the limit, if there is one, counts the jobs that are read.
            dry_run: change nothing, only return the result.
            actor: for the audit log.

        Returns:
            The jobs that were deleted, and those that were not, with the reasons.

        Raises:
            ConfigurationError: the filter has no condition.
        """
        return run(self._app.store, self._delete(checked_filter(where), actor, dry_run=dry_run))

    @spelled("app.jobs.delete")
    async def adelete(self, where: Filter, *, dry_run: bool = False, actor: str | None = None) -> BulkResult:
        """Delete jobs; see `delete`."""
        return await arun(self._app.store, self._delete(checked_filter(where), actor, dry_run=dry_run))

    def _delete(self, where: Filter, actor: str | None, *, dry_run: bool) -> Procedure[BulkResult]:
        def change(batch: Filter) -> Procedure[BulkResult]:
            by, now = actor or self._app.default_actor, self._app.now()
            done: BulkResult = yield deleting.delete(batch, dry_run=dry_run, actor=by, now=now)
            return done

        return self._in_batches(where, change)

    def archive(self, where: Filter, to: Archive, *, dry_run: bool = False, actor: str | None = None) -> BulkResult:
        """Write ended jobs to an archive, and delete them.

        Each job is a line of JSON: its row with its policy and tags, its arguments, result and history. The lines of a
        batch are written, and have reached the disk, before its jobs are deleted. If the process dies in between,
        the same call writes these jobs once more.

        Args:
            where: the conditions; jobs that have not ended are left out. The limit, if there is one, counts the jobs
                that are read.
            to: the path of a file, to which lines are appended; or a function that stores a list of lines and raises
                if it cannot.
            dry_run: write and change nothing, only return the result.
            actor: for the audit log.

        Returns:
            The jobs that were archived, and those that were not, with the reasons.

        Raises:
            ConfigurationError: the filter has no condition.
            ArchiveError: the file cannot be written; the jobs of this batch stay.
        """
        return run(self._app.store, self._archive(checked_filter(where), to, actor, dry_run=dry_run))

    async def aarchive(
        self, where: Filter, to: Archive, *, dry_run: bool = False, actor: str | None = None
    ) -> BulkResult:
        """Write ended jobs to an archive and delete them; see `archive`. A thread writes the lines."""
        return await arun(self._app.store, self._archive(checked_filter(where), to, actor, dry_run=dry_run))

    def _archive(self, where: Filter, to: Archive, actor: str | None, *, dry_run: bool) -> Procedure[BulkResult]:
        def change(batch: Filter) -> Procedure[BulkResult]:
            page: deleting.ArchivePage = yield deleting.entries(batch, now=self._app.now())
            if not page.entries or dry_run:
                return BulkResult(tuple(entry.job.id for entry in page.entries), page.kept, page.last_id)
            yield functools.partial(archives.write, to, page.entries)
            by = actor or self._app.default_actor
            done: BulkResult = yield deleting.archived(page, where, archives.name(to), actor=by)
            return done

        return self._in_batches(where, change)

    # ---------------------------------------------------------------- batches

    def _in_batches(self, where: Filter, change: Callable[[Filter], Procedure[BulkResult]]) -> Procedure[BulkResult]:
        """Change the jobs of a filter batch by batch, and return the results of all as one."""
        where = yield from self._bounded(where)
        ids: list[int] = []
        kept: list[tuple[int, str]] = []
        after: int | None = where.after_id
        left = where.most
        while after is not None and left > 0:
            batch = replace(where, after_id=after, limit=min(BATCH, left))
            done = yield from change(batch)
            ids += done.ids
            kept += done.kept
            after = done.last_id
            left -= batch.most
        return BulkResult(tuple(ids), tuple(kept), after)

    def _bounded(self, where: Filter) -> Procedure[Filter]:
        """Return the filter of an operation in batches, which ends although jobs are enqueued meanwhile."""
        wanted = where.for_changes()
        if where.task is not None and self._app.find(where.task) is None:
            stored = yield admin.select(Filter(task=where.task, limit=1))
            if not stored:
                known = ", ".join(sorted(self._app.tasks)) or "none"
                _log.warning("no task and no job is named %s; tasks: %s", where.task, known)
        if where.limit is not None:
            return wanted
        newest: tuple[JobRecord, ...] = yield admin.select(Filter(limit=1))
        return replace(wanted, before_id=min(where.before_id, newest[0].id + 1 if newest else 1))
