"""Bulk operations: actions on all jobs that match a filter, which any process carries on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from redrive.app.arguments import checked_count, checked_filter
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.clock import Clock, SystemClock
from redrive.engine.bulk import BulkAction, BulkOperation, BulkOptions, BulkState, scoped
from redrive.engine.lifecycle import State
from redrive.engine.queue import Rate
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError, StoreError
from redrive.errors.foreign import summary
from redrive.observe.listeners import INFO, heard
from redrive.stores.operations import admin, bulk
from redrive.stores.operations.bulk import BulkLine, BulkPreview
from redrive.stores.query import Operation

LONGEST = 1.0
"""The longest time between two polls while a bulk operation runs, in seconds: it may be stopped, and others start."""

BUSY = 0.5
"""Seconds until the next poll while another process writes a batch."""


class BulkOperations:
    """The bulk operations of an App, as ``app.operations``.

    A bulk operation is prepared by `preview`, which changes nothing, and begun by `start`. It is carried out in batches
    of at most 500 jobs, each a transaction of its own, by every worker, by ``redrive web`` and by `finish`, whichever
    is first. If a process dies, the others go on after its last batch. Jobs that reach their state after the preview
    are not changed.
    """

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    def preview(
        self, action: BulkAction | str, where: Filter, *, queue: str | None = None, why: str | None = None
    ) -> BulkPreview:
        """Count the jobs that a bulk operation would change, and those that would stay, with the reasons.

        At most 10,000 jobs are counted.

        Args:
            action: ``redrive``, ``cancel`` or ``repolicy``.
            where: the conditions; the limit, if there is one, counts the jobs that are changed. A redrive starts dead
                jobs that were not caught, unless the filter has a state or ids.
            queue: for a redrive, the queue to which the jobs go; by default they stay in theirs.
            why: for a cancel, the reason, shown on the jobs.

        Raises:
            ConfigurationError: the filter has no condition, or means jobs on which the action has no effect.
        """
        return self._app.store.run(self._preview(action, where, queue, why))

    async def apreview(
        self, action: BulkAction | str, where: Filter, *, queue: str | None = None, why: str | None = None
    ) -> BulkPreview:
        """Count the jobs that a bulk operation would change; see `preview`."""
        return await self._app.store.arun(self._preview(action, where, queue, why))

    def _preview(
        self, action: BulkAction | str, where: Filter, queue: str | None, why: str | None
    ) -> Operation[BulkPreview]:
        task = checked_filter(where).task
        does, options = bulk_options(self._app, action, queue=queue, why=why, task=task)
        return bulk.preview(does, scoped(does, where), options, now=self._app.now())

    def start(self, found: BulkPreview, *, rate: str | None = None, actor: str | None = None) -> BulkOperation:
        """Start the operation of a preview, and return it.

        If an equal bulk operation runs already, return that one, so that a repeated call starts nothing twice.

        Args:
            found: the preview.
            rate: the number of jobs per time, such as ``"100/s"``; by default there is no limit.
            actor: for the audit log.

        Raises:
            ConfigurationError: the rate cannot be read.
        """
        return self._app.store.run(self._start(found, rate, actor))

    async def astart(self, found: BulkPreview, *, rate: str | None = None, actor: str | None = None) -> BulkOperation:
        """Start the operation of a preview; see `start`."""
        return await self._app.store.arun(self._start(found, rate, actor))

    def _start(self, found: BulkPreview, rate: str | None, actor: str | None) -> Operation[BulkOperation]:
        speed = None if rate is None else Rate.parse(rate)
        return bulk.start(found, rate=speed, actor=actor or self._app.default_actor, now=self._app.now())

    def get(self, number: int) -> BulkOperation:
        """Read a bulk operation.

        Raises:
            OperationNotFound: there is none with this id.
        """
        return self._app.store.run(bulk.get(checked_count(number, "the id of an operation")))

    async def aget(self, number: int) -> BulkOperation:
        """Read a bulk operation; see `get`."""
        return await self._app.store.arun(bulk.get(checked_count(number, "the id of an operation")))

    def select(self, *, before_id: int | None = None, limit: int = 100) -> tuple[BulkOperation, ...]:
        """Read bulk operations with ids below ``before_id``, newest first."""
        return self._app.store.run(bulk.select(before_id=before_id, limit=limit))

    async def aselect(self, *, before_id: int | None = None, limit: int = 100) -> tuple[BulkOperation, ...]:
        """Read bulk operations; see `select`."""
        return await self._app.store.arun(bulk.select(before_id=before_id, limit=limit))

    def batches(self, number: int) -> Iterator[BulkLine]:
        """Read the lines of the audit log about a bulk operation, oldest first: its batches with their jobs."""
        after: int | None = 0
        while after is not None:
            found = self._app.store.run(bulk.lines(number, after_id=after))
            yield from found
            after = found[-1].id if found else None

    async def abatches(self, number: int) -> AsyncIterator[BulkLine]:
        """Read the lines of the audit log about a bulk operation; see `batches`."""
        after: int | None = 0
        while after is not None:
            found = await self._app.store.arun(bulk.lines(number, after_id=after))
            for each in found:
                yield each
            after = found[-1].id if found else None

    def stop(self, number: int, *, actor: str | None = None) -> BulkOperation:
        """End a bulk operation after the batch under way. Jobs that it has changed stay as they are.

        Raises:
            OperationNotFound: there is none with this id.
            IllegalMove: it does not run.
        """
        return self._app.store.run(bulk.stop(number, actor=actor or self._app.default_actor, now=self._app.now()))

    async def astop(self, number: int, *, actor: str | None = None) -> BulkOperation:
        """End a bulk operation; see `stop`."""
        return await self._app.store.arun(
            bulk.stop(number, actor=actor or self._app.default_actor, now=self._app.now())
        )

    def undo(self, number: int, *, actor: str | None = None) -> BulkOperation:
        """Start a bulk operation that takes a redrive or a cancel back, and return it. One that runs is stopped first.

        Of a redrive, the jobs that have not started are cancelled. Of a cancel, the jobs start again, each not before
        it was due and with the retries that it had left. Jobs that have changed since stay as they are. A repolicy
        cannot be undone.

        Raises:
            OperationNotFound: there is none with this id.
            IllegalMove: it cannot be undone, or is undone already.
        """
        return self._app.store.run(bulk.undo(number, actor=actor or self._app.default_actor, now=self._app.now()))

    async def aundo(self, number: int, *, actor: str | None = None) -> BulkOperation:
        """Start a bulk operation that takes another one back; see `undo`."""
        return await self._app.store.arun(
            bulk.undo(number, actor=actor or self._app.default_actor, now=self._app.now())
        )

    # ------------------------------------------------------------------------------------------------ carrying out

    @property
    def _clock(self) -> Clock:
        return self._app.clock or SystemClock()

    def finish(self, number: int) -> BulkOperation:
        """Carry out a bulk operation to its end, together with other processes, and return it.

        Raises:
            OperationNotFound: there is none with this id.
        """
        while (found := self.get(number)).state is BulkState.RUNNING:
            if run(self._app.store, self._carry_out(number)) is None:
                self._clock.sleep(_rest(found))
        return found

    async def afinish(self, number: int) -> BulkOperation:
        """Carry out a bulk operation to its end; see `finish`."""
        while (found := await self.aget(number)).state is BulkState.RUNNING:
            if await arun(self._app.store, self._carry_out(number)) is None:
                await self._clock.asleep(_rest(found))
        return found

    async def aturn(self) -> float | None:
        """Write the batch that is due first, and return the seconds until the next poll; None if none runs."""
        found = await self._app.store.arun(bulk.look(now=self._app.now()))
        if found is None:
            return None
        rest = found.rest_for.total_seconds()
        if rest > 0:
            return min(rest, LONGEST)
        try:
            batch = await arun(self._app.store, self._carry_out(found.id))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - stored with the operation; others go on
            await self._app.store.arun(bulk.failed(found.id, summary(error), now=self._app.now()))
            return 0.0
        return BUSY if batch is None else 0.0

    def _carry_out(self, number: int) -> Procedure[BulkOperation | None]:
        """Write one batch, and emit the events of the jobs that it has cancelled."""
        batch = yield bulk.carry_out(number, now=self._app.now())
        if batch is None:
            return None
        done: BulkOperation = batch.bulk
        if batch.ids and done.action in (BulkAction.CANCEL, BulkAction.UNDO) and heard("redrive.jobs", INFO):
            from redrive.app.events import emit_cancelled

            these = Filter(ids=batch.ids, state=State.CANCELLED, limit=len(batch.ids), oldest_first=True)
            emit_cancelled((yield admin.select(these)))
        return done


def _rest(found: BulkOperation) -> float:
    """Return the seconds until the next poll of a bulk operation without a due batch."""
    return min(BUSY, max(found.spacing.total_seconds(), 0.01))


def bulk_options(
    app: AppProtocol, action: BulkAction | str, *, queue: str | None, why: str | None, task: str | None
) -> tuple[BulkAction, BulkOptions]:
    """Return an action and its parameters, checked, with the present policies for a repolicy."""
    try:
        does = BulkAction(action)
    except ValueError as error:
        raise ConfigurationError(f"the action is redrive, cancel or repolicy, not {action!r}") from error
    if queue is not None and does is not BulkAction.REDRIVE:
        raise ConfigurationError(f"queue is for a redrive: a {does} moves no job")
    if why is not None and does is not BulkAction.CANCEL:
        raise ConfigurationError(f"why is for a cancel: a {does} has no reason")
    policies = {}
    if does is BulkAction.REPOLICY:
        known = app.policies()
        policies = {name: each.document for name, each in known.items() if task in (None, name)}
    return does, BulkOptions(queue, why, policies)
