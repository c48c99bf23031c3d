"""A handle on one run of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from redrive.app.arguments import checked_instant, checked_text, shown
from redrive.app.flows.calls import checked_event, read_value
from redrive.app.flows.history import RunHistory, export
from redrive.app.payload import refuse_encoded, write_result, write_value
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.tasks.job import Job
from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.engine.runs import RunRecord, SignalRecord, StepKind, StepRecord, in_order
from redrive.errors import ConfigurationError
from redrive.policy.duration import Duration
from redrive.seams import without
from redrive.stores.operations import jobs
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.managing_runs import RunView, Timeline
from redrive.stores.operations.runs import start, waits
from redrive.stores.query import Operation

R = TypeVar("R")
T = TypeVar("T")


class Run(Generic[R]):
    """A handle on one run. What it shows is read from the database when it is asked for.

    ``actor`` is the name in the audit log, by default ``user@host`` of this process.

    Attributes:
        workflow: the name of the workflow.
        id: of the run, unique in its workflow.
        created: False if a start has found an existing run with its id.
    """

    def __init__(
        self, app: AppProtocol, workflow: str, id: str, *, job_id: int | None = None, created: bool = True
    ) -> None:
        self.workflow = workflow
        self.id = id
        self.created = created
        self._app = app
        self._job_id = job_id

    if not TYPE_CHECKING:  # as in `redrive.App`
        __getattr__ = without("run")

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.workflow}>"

    # ---------------------------------------------------------------- reading

    @property
    def job(self) -> Job[R]:
        """The job that executes the run: `Job.result`, `Job.attempts`, `Job.why`."""
        if self._job_id is None:
            self._job_id = self.record.job_id
        return Job(self._app, self._job_id)

    @property
    def record(self) -> RunRecord:
        """The row of the run, read now.

        Raises:
            RunNotFound: there is no such run, for example because the transaction that started it has not committed.
        """
        return self._app.store.run(self._get()).run

    async def arecord(self) -> RunRecord:
        """Read the row of the run; see `record`."""
        return (await self._app.store.arun(self._get())).run

    def _get(self) -> Operation[RunView]:
        return manage.get(self.workflow, self.id)

    @property
    def state(self) -> State:
        """The state of its job, read now; a run that waits is ``ready``."""
        return self._app.store.run(self._get()).job.state

    async def astate(self) -> State:
        """Read the state of its job; see `state`."""
        return (await self._app.store.arun(self._get())).job.state

    @property
    def why(self) -> str:
        """The reason why it is not running, in one line, read now; with the signals that a waiting run has not read."""
        job = self.job.refresh()
        if job.record.hold is not Hold.PARKED:
            return job.why
        names = self._app.store.run(manage.unread(job.id))
        return f"{job.why}; unread signals: {', '.join(map(repr, names))}" if names else job.why

    def values(self) -> dict[str, Any]:
        """Return what the body has stored by ``flow.set``, read now."""
        return _values(self.record)

    async def avalues(self) -> dict[str, Any]:
        """Return what the body has stored by ``flow.set``; see `values`."""
        return _values(await self.arecord())

    @overload
    def value(self, name: str, kind: type[T]) -> T | None: ...
    @overload
    def value(self, name: str) -> Any: ...
    def value(self, name: str, kind: Any = Any) -> Any:
        """Return one value that the body has stored by ``flow.set``; None if it has not.

        Args:
            name: of the value.
            kind: the type of the value; by default plain JSON.

        Raises:
            PayloadError: the value does not fit the type.
        """
        return _value(self.record, name, kind)

    @overload
    async def avalue(self, name: str, kind: type[T]) -> T | None: ...
    @overload
    async def avalue(self, name: str) -> Any: ...
    async def avalue(self, name: str, kind: Any = Any) -> Any:
        """Return one value that the body has stored by ``flow.set``; see `value`."""
        return _value(await self.arecord(), name, kind)

    def timeline(self) -> Sequence[StepRecord]:
        """Return the recorded steps, in the order of the calls, undos last, read now."""
        return self._app.store.run(self._timeline()).steps

    async def atimeline(self) -> Sequence[StepRecord]:
        """Return the recorded steps; see `timeline`."""
        return (await self._app.store.arun(self._timeline())).steps

    def signals(self) -> Sequence[SignalRecord]:
        """Return the signals that the run has not received yet, in the order of their sending, read now."""
        return [each for each in self._app.store.run(self._timeline()).signals if each.path is None]

    def _timeline(self) -> Operation[Timeline]:
        return manage.timeline(self.workflow, self.id)

    def history(self) -> RunHistory:
        """Return what `redrive.testing.replay` needs to replay the run without a database; it can be kept as JSON."""
        return run(self._app.store, self._history())

    async def ahistory(self) -> RunHistory:
        """Return what `redrive.testing.replay` needs; see `history`."""
        return await arun(self._app.store, self._history())

    def _history(self) -> Procedure[RunHistory]:
        found = yield self._timeline()
        material = yield jobs.material(found.job.id)
        result = yield jobs.result(found.job.id)
        return export(found, material.payload, result)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the run, and return its result; see `Job.result`."""
        return self.job.result(timeout)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Await the end of the run, and return its result; see `Job.result`."""
        if self._job_id is None:
            self._job_id = (await self.arecord()).job_id
        return await Job[R](self._app, self._job_id).aresult(timeout)

    # ---------------------------------------------------------------- signals

    def signal(
        self, name: str, value: object = None, *, key: str | None = None, using: object = None, actor: str | None = None
    ) -> bool:
        """Send a signal to the run, which ``flow.wait_for`` receives.

        Args:
            name: of the signal.
            value: anything that can be written as JSON.
            key: identifies the signal: another one of this name with the key is dropped.
            using: your own connection to the same database; the signal is sent if and only if its transaction commits.
                It locks nothing of the run.
            actor: the operator that sends it, for the audit log. Without it the application sends it, and the audit log
                has no line.

        Returns:
            False if a signal of this name with this key was sent before.

        Raises:
            RunNotFound: there is no such run.
            IllegalMove: the run has ended.
            PayloadError: the value cannot be written.
            ConfigurationError: the name or the key is empty, or the name begins with a colon.
        """
        return self._app.store.run(self.signalling(name, value, key, actor), using=using) is not None

    async def asignal(
        self, name: str, value: object = None, *, key: str | None = None, using: object = None, actor: str | None = None
    ) -> bool:
        """Send a signal to the run; see `signal`."""
        return await self._app.store.arun(self.signalling(name, value, key, actor), using=using) is not None

    def signalling(self, name: str, value: object, key: str | None, actor: str | None) -> Operation[int | None]:
        """Send a signal, as the operation of both methods; None if one with the key was sent before."""
        checked_event(name, "run.signal(): the name")
        if key is not None:
            checked_text(key, "run.signal(): the key")
        payload = write_value(value, "run.signal(): the value", self._app.max_payload)
        return waits.signal(self.workflow, self.id, name, payload, key=key, actor=actor, now=self._app.now())

    # ---------------------------------------------------------------- actions

    def cancel(self, why: str | None = None, *, actor: str | None = None) -> bool:
        """Ask the run, and the runs that it has called, to end.

        The body receives `redrive.errors.CancelRequested` once, where it waits or at its next step, and can clean up;
        then the undos of its steps run. The ``async def`` function of a step that runs is cancelled where it awaits.

        A second call takes the run back from its worker, so that only its undos run. One that comes when these have
        begun ends the run, and its reason names the steps that were not undone.

        Return True if this call has changed something; False if the run has ended.

        Raises:
            RunNotFound: there is no such run.
        """
        return self._app.store.run(self._cancel(why, actor))

    async def acancel(self, why: str | None = None, *, actor: str | None = None) -> bool:
        """Ask the run to end; see `cancel`."""
        return await self._app.store.arun(self._cancel(why, actor))

    def _cancel(self, why: str | None, actor: str | None) -> Operation[bool]:
        return manage.cancel(
            self.workflow, self.id, why=why, actor=actor or self._app.default_actor, now=self._app.now()
        )

    def pause(self, why: str | None = None, *, until: datetime | None = None, actor: str | None = None) -> None:
        """Let the run take no new step.

        The ``async def`` function of a step that runs is cancelled where it awaits, and called again after the pause;
        one of a step with ``idempotent=False`` goes on, and so does a ``def`` function.

        Args:
            why: shown on the run.
            until: when the run goes on by itself: a ``datetime`` with a time zone. None waits for `resume`.
            actor: for the audit log.

        Raises:
            RunNotFound: there is no such run.
            IllegalMove: the run has ended.
            ConfigurationError: the instant has no time zone, or is more than 50 years away.
        """
        self._app.store.run(self.pausing(why, until, actor))

    async def apause(self, why: str | None = None, *, until: datetime | None = None, actor: str | None = None) -> None:
        """Let the run take no new step; see `pause`."""
        await self._app.store.arun(self.pausing(why, until, actor))

    def pausing(self, why: str | None, until: datetime | None, actor: str | None) -> Operation[None]:
        """Pause the run, as the operation of both methods."""
        if until is not None and (not isinstance(until, datetime) or until.utcoffset() is None):
            raise ConfigurationError(f"run.pause(until=): a datetime with a time zone, got {shown(until)}")
        return manage.pause(
            self.workflow,
            self.id,
            until=None if until is None else checked_instant(until, "run.pause(until=)", self._app.now()),
            actor=actor or self._app.default_actor,
            now=self._app.now(),
            **({} if why is None else {"why": why}),
        )

    def resume(self, *, actor: str | None = None) -> bool:
        """End the pause of the run; return False if it was not paused.

        Raises:
            RunNotFound: there is no such run.
            IllegalMove: the run has ended.
        """
        return self._app.store.run(self._resume(actor))

    async def aresume(self, *, actor: str | None = None) -> bool:
        """End the pause of the run; see `resume`."""
        return await self._app.store.arun(self._resume(actor))

    def _resume(self, actor: str | None) -> Operation[bool]:
        return manage.resume(self.workflow, self.id, actor=actor or self._app.default_actor, now=self._app.now())

    def fork(self, from_step: str | None = None, *, id: str | None = None, actor: str | None = None) -> Run[R]:
        """Start a new run with the arguments of this one and its recorded steps before one of them.

        This run stays as it is. Its unread signals are not copied, and steps that it has undone are executed anew.

        Args:
            from_step: the first step that runs again: its path, such as ``4.0.2``, or the name of the first step that
                is called so. None copies no step.
            id: of the new run; by default one is made.
            actor: for the audit log.

        Raises:
            RunNotFound: there is no such run.
            ConfigurationError: the run has no such step.
            DuplicateRun: a run has this id.
            IllegalMove: a step is given, and the run takes its steps back at this moment.
        """
        return run(self._app.store, self.forking(from_step, id, actor))

    async def afork(self, from_step: str | None = None, *, id: str | None = None, actor: str | None = None) -> Run[R]:
        """Start a new run with recorded steps of this one; see `fork`."""
        return await arun(self._app.store, self.forking(from_step, id, actor))

    def forking(self, from_step: str | None, id: str | None, actor: str | None) -> Procedure[Run[R]]:
        """Start a new run in its place, as the procedure of both methods."""
        if id is not None:
            checked_text(id, "run.fork(): the id")
        found = yield self._timeline()
        before = path_of(found, from_step)
        sources, by = {self.id: id}, actor or self._app.default_actor
        (started,) = yield start.fork(self.workflow, sources, before=before, actor=by, now=self._app.now())
        return Run(self._app, self.workflow, started.id, job_id=started.job_id)

    def supply(self, step: str, value: object = None, *, actor: str | None = None) -> None:
        """Give a failed step a result, and let the run go on, also if it is dead; undone steps are executed anew.

        A wait has failed if the value of its signal or event did not fit the type, a call if the result of its child
        did not. If the step failed in a branch of ``flow.gather`` or ``flow.map``, the branches that were dropped go
        on, too.

        Args:
            step: its path, or the name of the first step that is called so. The path of an undo that has failed, such
                as ``u1``, records that its step was taken back by hand, and the run stays as it is.
            value: the result, as the function would return it.
            actor: for the audit log.

        Raises:
            RunNotFound: there is no such run.
            ConfigurationError: the run has no such step.
            IllegalMove: the run is executed or takes its steps back at this moment or has succeeded, or the step has
                not failed.
            ResultTooLarge: the value is too large for a row.
        """
        run(self._app.store, self._supply(step, value, actor))

    async def asupply(self, step: str, value: object = None, *, actor: str | None = None) -> None:
        """Give a failed step a result, and let the run go on; see `supply`."""
        await arun(self._app.store, self._supply(step, value, actor))

    def _supply(self, step: str, value: object, actor: str | None) -> Procedure[None]:
        found = yield self._timeline()
        path = path_of(found, step)
        assert path is not None  # a step was named
        yield manage.supply(
            self.workflow,
            self.id,
            path,
            write_result(value),
            limit=self._app.max_payload,
            actor=actor or self._app.default_actor,
            now=self._app.now(),
        )


# Rows of the run itself, which are no steps of its code.
_MARKS = frozenset({StepKind.UNDO, StepKind.CANCEL})


def path_of(found: Timeline, step: str | None) -> str | None:
    """Return the path of a step that is given by its path or its name."""
    if step is None:
        return None
    rows = in_order(found.steps)
    for row in rows:
        if step == row.path:
            return row.path
    named = next((row.path for row in rows if row.name == step and row.kind not in _MARKS), None)
    if named is None:
        known = ", ".join(f"{row.path} {row.name}" for row in rows[:10]) or "none"
        raise ConfigurationError(f"run {found.run.id!r} of {found.run.workflow} has no step {step!r}; it has {known}")
    return named


def _values(record: RunRecord) -> dict[str, Any]:
    if record.values is None:
        return {}
    refuse_encoded(record.values, "the document of its values")
    found: dict[str, Any] = msgspec.json.decode(record.values)
    return found


def _value(record: RunRecord, name: str, kind: object) -> Any:
    if record.values is None:
        return None
    refuse_encoded(record.values, "the document of its values")
    raw = msgspec.json.decode(record.values, type=dict[str, msgspec.Raw]).get(name)
    return None if raw is None else read_value(bytes(raw), kind, f"the value of {name!r}")
