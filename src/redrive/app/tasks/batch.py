"""Batches: jobs that are enqueued together, and one that runs when all of them have ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redrive.app.attempts.effects import Effects, joined
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.tasks.enqueue import Enqueuer
from redrive.app.tasks.job import Job
from redrive.engine.records import Enqueue, NewJob
from redrive.errors import ConfigurationError
from redrive.observe.listeners import DEBUG, heard
from redrive.stores.operations import batches, jobs
from redrive.stores.operations.jobs import EnqueueResult
from redrive.stores.query import Operation

if TYPE_CHECKING:
    from redrive.app.events import EnqueueEvents

P = ParamSpec("P")
R = TypeVar("R")

_TWICE = (
    "this batch was enqueued before, and its jobs would run twice: build another one by app.batch(), in a handler one "
    "for each attempt"
)


class Batch:
    """Jobs of any tasks that are enqueued together, and one that runs when all of them have ended.

    `redrive.App.batch` makes it. Nothing is stored before `enqueue`, which is called once.

    A job has ended when it has succeeded, is cancelled, or is dead; with a catch task, when its catch job has ended. An
    operator who redrives a dead job later does not change that. All jobs of a batch have the tag ``batch:N``, where N
    is the id of the one that follows them. There ``app.jobs.count(Filter(tag=f"batch:{ctx.job_id}", state="dead"))``
    returns how many went wrong, and ``app.jobs.select`` which, as long as ended jobs are kept.
    """

    def __init__(self, app: AppProtocol) -> None:
        self._app = app
        self._members: list[NewJob] = []
        #: Locked from the begin of its enqueue on, unless that fails.
        self._enqueued = threading.Lock()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, task: Enqueuer[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Add a job.

        Args:
            task: a task of the app, perhaps under `options`; without a key, and without ``immediate``.
            *args: its arguments.
            **kwargs: likewise.

        Raises:
            PayloadError: the arguments do not match the annotations, or cannot be stored.
            ConfigurationError: the batch was enqueued before, the task belongs to another app, or is ``immediate``,
                which only a whole batch can be.
        """
        self._members += self._member(task).prepared([(args, kwargs)])

    def add_many(self, task: Enqueuer[..., Any], calls: Iterable[Any]) -> None:
        """Add many jobs of one task, with calls as for `Task.enqueue_many`."""
        self._members += self._member(task).prepared_many(calls)

    def enqueue(self, then: Enqueuer[P, R], *args: Any, using: Any = None, **kwargs: Any) -> Job[R]:
        """Enqueue all jobs, all or none, and the job that runs when they have ended; at once if there are none.

        In a handler they are enqueued when the attempt succeeds, as by `Task.enqueue`; at once if ``then`` is a task
        under ``options(immediate=True)``.

        Args:
            then: the task of the job that follows, perhaps under `options`; without a key, and without ``delay``,
                ``at`` and ``expires``, for it is due when the others have ended.
            *args: its arguments.
            using: your own connection, as for `Task.enqueue`.
            **kwargs: its arguments by name.

        Returns:
            A handle on the job that follows.

        Raises:
            PayloadError: its arguments do not match the annotations, or cannot be stored.
            ConfigurationError: the batch was enqueued before, a job has a key, one of an ordered queue has no
                partition, ``then`` has a due time or an expiry, or is a task of another app.
            OutcomeUnknown: the answer to the commit was lost: all jobs exist, or none.
            StoreError: the database refused, or cannot be reached; nothing was enqueued.
        """
        last, held = self._prepared(then, args, kwargs, using)
        with self._once():
            if held is None:
                return run(self._app.store, self._storing(last, using), using=using)
            loan = held.loans[0] if self._app.store.local else None
            with self._watched(last, using) as watched:
                placed = (self._app.store.run if loan is None else loan.run)(self._reservation(last))
            return self._join(held, last, placed, watched)

    async def aenqueue(self, then: Enqueuer[P, R], *args: Any, using: Any = None, **kwargs: Any) -> Job[R]:
        """Enqueue all jobs, and the one that follows them; see `enqueue`."""
        last, held = self._prepared(then, args, kwargs, using)
        with self._once():
            if held is None:
                return await arun(self._app.store, self._storing(last, using), using=using)
            loan = held.loans[1] if self._app.store.local else None
            with self._watched(last, using) as watched:
                placed = await (self._app.store.arun if loan is None else loan.run)(self._reservation(last))
            return self._join(held, last, placed, watched)

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """Enqueue the batch within this block; raise if that was done before, or another task or thread does it."""
        if not self._enqueued.acquire(blocking=False):
            raise ConfigurationError(_TWICE)
        try:
            yield
        except BaseException:
            self._enqueued.release()
            raise

    def _member(self, task: Enqueuer[P, R]) -> Enqueuer[P, R]:
        """Return a task of the app; raise `ConfigurationError` for one that cannot be in a batch."""
        task = self._own(task)
        if task.defaults.immediate:
            raise ConfigurationError(
                f"{task.name}: a batch is written as a whole: give options(immediate=True) to the task that follows"
            )
        return task

    def _own(self, task: Enqueuer[P, R]) -> Enqueuer[P, R]:
        """Return a task of the app, for a batch that was not enqueued; otherwise raise `ConfigurationError`."""
        if self._enqueued.locked():
            raise ConfigurationError(_TWICE)
        if not isinstance(task, Enqueuer):
            done = f"; {task!r} is enqueued already, outside of the batch" if isinstance(task, Job) else ""
            raise ConfigurationError(
                f"a batch takes a task and its arguments, as in batch.add(charge, 7), got {task!r}{done}"
            )
        # Of tasks from a collection ``app`` is that; its attributes are those of the app that has included it.
        if task.app.hooks is not self._app.hooks:
            raise ConfigurationError(
                f"{task.name!r} is a task of another app, and a batch has the jobs of the app that made it"
            )
        return task

    def _prepared(
        self, then: Enqueuer[P, R], args: tuple[Any, ...], kwargs: Mapping[str, Any], using: object
    ) -> tuple[NewJob, Effects | None]:
        """Return the job that follows, and the effects of the attempt that writes the batch; None for now."""
        (last,) = self._own(then).prepared([(args, kwargs)])
        held = None if using is not None or then.defaults.immediate else joined(self._app)
        if held is not None:
            held.check()
        return last, held

    def _storing(self, last: NewJob, using: object) -> Procedure[Job[Any]]:
        """Store the batch now."""
        with self._watched(last, using) as watched:
            placed = yield batches.enqueue(self._members, last, trace=watched.trace, now=self._app.now())
        if heard("redrive.jobs", DEBUG):
            # The one that follows has no due time yet: its event has that of an enqueue without delay.
            own, _ = batches.linked(self._members, last, placed.ids[-1])
            watched.emit(placed, [*own, last])
        return Job(self._app, placed.ids[-1], enqueued_at=placed.at, uncommitted=using is not None)

    def _reservation(self, last: NewJob) -> Operation[EnqueueResult]:
        return jobs.reserve([*self._members, last], now=self._app.now())

    def _join(self, held: Effects, last: NewJob, placed: EnqueueResult, watched: EnqueueEvents) -> Job[Any]:
        """Have an attempt write the batch at its end."""
        own, follower = batches.linked(self._members, last, placed.ids[-1])
        new = zip(placed.ids, [*own, follower], strict=True)
        held.add(*(Enqueue(number, job, watched.trace) for number, job in new))
        watched.emit(placed, [*own, last])
        return Job(self._app, placed.ids[-1], pending=held)

    def _watched(self, last: NewJob, using: object) -> EnqueueEvents:
        from redrive.app.events import EnqueueEvents

        return EnqueueEvents(last.task, last.queue, [*self._members, last], using)
