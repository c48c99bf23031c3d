"""Queues: their limits and settings, which change while workers run."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from redrive.app.arguments import checked_flag, checked_text
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.engine.queue import QueueChange, QueueSettings, Rate
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError
from redrive.observe.logs import logger
from redrive.policy.duration import Duration
from redrive.policy.fields import span
from redrive.seams import spelled
from redrive.stores.operations import admin, queues
from redrive.stores.query import Operation

_log = logger("redrive.jobs")


def queue_change(
    *,
    concurrency: int | UnsetType | None = UNSET,
    per_partition: int | UnsetType | None = UNSET,
    rate: Rate | str | UnsetType | None = UNSET,
    rate_per_partition: Rate | str | UnsetType | None = UNSET,
    ordered: bool | UnsetType = UNSET,
    aging: Duration | UnsetType | None = UNSET,
) -> QueueChange:
    """Read the arguments of `Queue.limit`."""
    for what, limit in (("concurrency", concurrency), ("per_partition", per_partition)):
        if (
            limit is not None
            and not isinstance(limit, UnsetType)
            and (isinstance(limit, bool) or not isinstance(limit, int))
        ):
            raise ConfigurationError(f"{what} must be a whole number above zero, or None for no limit, got {limit!r}")
    for name, given in (("rate", rate), ("rate_per_partition", rate_per_partition)):
        if given is not None and not isinstance(given, Rate | str | UnsetType):
            raise ConfigurationError(f"{name}={given!r} is not a rate: write starts and a span, such as '100/1m'")
    if not isinstance(ordered, UnsetType):
        checked_flag(ordered, "ordered")
    return QueueChange(
        concurrency=concurrency,
        per_partition=per_partition,
        rate=_read(rate),
        rate_per_partition=_read(rate_per_partition),
        ordered=ordered,
        aging_for=aging if aging is None or isinstance(aging, UnsetType) else span(aging, "aging"),
    )


def _read(rate: Rate | str | UnsetType | None) -> Rate | UnsetType | None:
    return Rate.parse(rate) if isinstance(rate, str) else rate


class Queue:
    """A handle on one queue. Its settings are read from the database when they are needed.

    Methods that change the queue return its new settings. ``actor`` is the name in the
    audit log, by default ``user@host`` of this process.
    """

    def __init__(self, app: AppProtocol, name: str) -> None:
        self.name: str = checked_text(name, "the name of a queue")
        self._app = app

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    @property
    def settings(self) -> QueueSettings:
        """The settings, read now."""
        return self._app.store.run(queues.settings(self.name))

    async def asettings(self) -> QueueSettings:
        """Read the settings; see `settings`."""
        return await self._app.store.arun(queues.settings(self.name))

    def pause(self, *, actor: str | None = None) -> QueueSettings:
        """Start no job until `resume`. Running jobs go on; new jobs wait.

        A queue that no task of this process, no setting and no job has is paused with a warning in the log.
        """
        return run(self._app.store, self._pausing(actor))

    async def apause(self, *, actor: str | None = None) -> QueueSettings:
        """Start no job until `aresume`; see `pause`."""
        return await arun(self._app.store, self._pausing(actor))

    def resume(self, *, actor: str | None = None) -> QueueSettings:
        """End a pause."""
        return self._app.store.run(self._change(QueueChange(paused=False), actor))

    async def aresume(self, *, actor: str | None = None) -> QueueSettings:
        """End a pause; see `resume`."""
        return await self._app.store.arun(self._change(QueueChange(paused=False), actor))

    @spelled("queue.limit")
    def limit(
        self,
        *,
        concurrency: int | UnsetType | None = UNSET,
        per_partition: int | UnsetType | None = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        rate_per_partition: Rate | str | UnsetType | None = UNSET,
        ordered: bool | UnsetType = UNSET,
        aging: Duration | UnsetType | None = UNSET,
        actor: str | None = None,
    ) -> QueueSettings:
        """Change limits, from the next claim of each worker on. None removes a limit; others stay as they are.

        Args:
            concurrency: attempts at once, in all workers together, including those that run already. Exact.
            per_partition: attempts at once of each partition.
            rate: starts within any span, such as ``"5/1.8s"``. Exact, by the database's clock.
            rate_per_partition: the same, counted for each partition by itself. Jobs without a partition are not
                limited by it. A claim reads the starts of all partitions within the span.
            ordered: run the jobs of each partition strictly one after the other; jobs without a partition are refused.
            aging: the time after which a due job counts as one priority higher, after twice the time as two.
            actor: for the audit log.

        Raises:
            ConfigurationError: a limit is not positive, or the rate cannot be read.
        """
        change = queue_change(
            concurrency=concurrency,
            per_partition=per_partition,
            rate=rate,
            rate_per_partition=rate_per_partition,
            ordered=ordered,
            aging=aging,
        )
        return self._app.store.run(self._change(change, actor))

    @spelled("queue.limit")
    async def alimit(
        self,
        *,
        concurrency: int | UnsetType | None = UNSET,
        per_partition: int | UnsetType | None = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        rate_per_partition: Rate | str | UnsetType | None = UNSET,
        ordered: bool | UnsetType = UNSET,
        aging: Duration | UnsetType | None = UNSET,
        actor: str | None = None,
    ) -> QueueSettings:
        """Change limits; see `limit`."""
        change = queue_change(
            concurrency=concurrency,
            per_partition=per_partition,
            rate=rate,
            rate_per_partition=rate_per_partition,
            ordered=ordered,
            aging=aging,
        )
        return await self._app.store.arun(self._change(change, actor))

    def forget(self, *, actor: str | None = None) -> None:
        """Delete the settings; a worker applies the declared limits again when it starts."""
        self._app.store.run(self._forget(actor))

    async def aforget(self, *, actor: str | None = None) -> None:
        """Delete the settings; see `forget`."""
        await self._app.store.arun(self._forget(actor))

    def _pausing(self, actor: str | None) -> Procedure[QueueSettings]:
        before = yield queues.settings(self.name)
        named = {task.defaults.queue for task in self._app.tasks.values()}
        if before == QueueSettings(self.name) and self.name not in named:
            jobs = yield admin.select(Filter(queue=self.name, limit=1))
            if not jobs:
                known = ", ".join(sorted(named)) or "none"
                text = "queue %s is paused, and no task, no setting and no job has it; queues of the tasks: %s"
                _log.warning(text, self.name, known)
        after: QueueSettings = yield self._change(QueueChange(paused=True), actor)
        return after

    def _change(self, change: QueueChange, actor: str | None) -> Operation[QueueSettings]:
        return queues.change(self.name, change, actor=actor or self._app.default_actor, now=self._app.now())

    def _forget(self, actor: str | None) -> Operation[None]:
        return queues.forget(self.name, actor=actor or self._app.default_actor, now=self._app.now())


class Queues:
    """The queues of an App, as ``app.queues``; ``app.queue(name)`` is the handle on one of them."""

    def __init__(self, app: AppProtocol) -> None:
        self._app = app
        self.declared: dict[str, QueueChange] = {}
        """The limits that the code declares, by the names of the queues."""

    def select(self) -> tuple[QueueSettings, ...]:
        """Read the settings of the queues that have any, by name."""
        return self._app.store.run(queues.queues())

    async def aselect(self) -> tuple[QueueSettings, ...]:
        """Read the settings of the queues that have any; see `select`."""
        return await self._app.store.arun(queues.queues())

    def declare(self, name: str, change: QueueChange) -> Queue:
        """Declare the limits of a queue and return its handle; see `redrive.App.queue`."""
        handle = Queue(self._app, name)
        if change != QueueChange():
            self.declared[name] = change
        return handle
