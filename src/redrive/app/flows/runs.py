"""Runs of workflows by filter: ``app.runs``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from redrive.app.arguments import checked_count, checked_text, shown
from redrive.app.flows.run import Run, path_of
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.engine.lifecycle import State
from redrive.engine.queue import Rate
from redrive.engine.records import Hold
from redrive.engine.runs import RunRecord
from redrive.errors import ConfigurationError
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.managing_runs import RetryingStep, RunFilter
from redrive.stores.operations.runs import start
from redrive.stores.query import Operation

if TYPE_CHECKING:
    from datetime import datetime


class Runs:
    """The runs of an app."""

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    def get(self, workflow: str, id: str) -> Run[Any]:
        """Return a handle on a run by the name of its workflow and its id. It is read when it is used.

        Raises:
            ConfigurationError: a name is empty or too long.
        """
        return Run(
            self._app,
            checked_text(workflow, "the name of a workflow"),
            checked_text(id, f"{workflow}: the id of a run"),
        )

    def select(
        self,
        *,
        workflow: str | None = None,
        state: State | str | None = None,
        hold: Hold | str | None = None,
        parent: Run[Any] | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> Sequence[RunRecord]:
        """Return runs, newest first.

        Args:
            workflow: the name of their workflow.
            state: the state of their jobs; runs that wait are ``ready``.
            hold: the reason why they wait: ``parked``, ``paused``, ``held``.
            parent: the run that has called them.
            before_id: only runs with jobs before this one, for the next page.
            limit: the largest number.

        Raises:
            ConfigurationError: a state or a hold does not exist, or a number is not positive.
        """
        wanted = self._filter(workflow, state, hold, parent, before_id, limit)
        return [each.run for each in self._app.store.run(manage.select(wanted))]

    async def aselect(
        self,
        *,
        workflow: str | None = None,
        state: State | str | None = None,
        hold: Hold | str | None = None,
        parent: Run[Any] | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> Sequence[RunRecord]:
        """Return runs, newest first; see `select`."""
        wanted = self._filter(workflow, state, hold, parent, before_id, limit)
        return [each.run for each in await self._app.store.arun(manage.select(wanted))]

    def _filter(  # noqa: PLR0917 - as `select`
        self,
        workflow: str | None,
        state: State | str | None,
        hold: Hold | str | None,
        parent: Run[Any] | None,
        before_id: int | None,
        limit: int,
    ) -> RunFilter:
        return RunFilter(
            workflow=workflow,
            state=_member(State, "state", state),
            hold=_member(Hold, "hold", hold),
            parent_id=None if parent is None else parent.job.id,
            before_id=before_id,
            limit=checked_count(limit, "app.runs.select(): limit"),
        )

    def retrying(
        self, *, workflow: str | None = None, before: datetime | None = None, limit: int = 100
    ) -> Sequence[RetryingStep]:
        """Return the steps that wait for their next try, by the time of it. An index serves this.

        Args:
            workflow: only of this workflow.
            before: only those that are due before this instant, which has a time zone.
            limit: the largest number.
        """
        return self._app.store.run(self._retrying(workflow, before, limit))

    async def aretrying(
        self, *, workflow: str | None = None, before: datetime | None = None, limit: int = 100
    ) -> Sequence[RetryingStep]:
        """Return the steps that wait for their next try; see `retrying`."""
        return await self._app.store.arun(self._retrying(workflow, before, limit))

    def _retrying(
        self, workflow: str | None, before: datetime | None, limit: int
    ) -> Operation[tuple[RetryingStep, ...]]:
        if before is not None and before.utcoffset() is None:
            raise ConfigurationError(f"app.runs.retrying(before=): {shown(before)} has no time zone")
        return manage.retrying(task=workflow, before=before, limit=checked_count(limit, "app.runs.retrying(): limit"))

    def fork(
        self,
        runs: Sequence[Run[Any]],
        *,
        from_step: str | None = None,
        rate: str | None = None,
        actor: str | None = None,
    ) -> list[Run[Any]]:
        """Fork many runs, so many in a time, and return the new runs in their order; see `Run.fork`.

        Args:
            runs: the runs, for example those that have failed for one reason.
            from_step: the path or the name of the first step that runs again, looked up in each run.
            rate: how many of them may start in a time, such as ``"10/s"``; None starts all at once.
            actor: for the audit log.

        Raises:
            RunNotFound: a run does not exist.
            ConfigurationError: the rate cannot be read, or a run has no such step. The runs before it are forked.
        """
        return run(self._app.store, self._fork(runs, from_step, rate, actor))

    async def afork(
        self,
        runs: Sequence[Run[Any]],
        *,
        from_step: str | None = None,
        rate: str | None = None,
        actor: str | None = None,
    ) -> list[Run[Any]]:
        """Fork many runs, so many in a time; see `fork`."""
        return await arun(self._app.store, self._fork(runs, from_step, rate, actor))

    def _fork(
        self, runs: Sequence[Run[Any]], from_step: str | None, rate: str | None, actor: str | None
    ) -> Procedure[list[Run[Any]]]:
        spacing = timedelta(0) if rate is None else Rate.parse(rate).spacing
        groups: dict[tuple[str, str | None], list[Run[Any]]] = {}
        for each in runs:
            before = None
            if from_step is not None:
                before = path_of((yield manage.timeline(each.workflow, each.id)), from_step)
            groups.setdefault((each.workflow, before), []).append(each)
        made: dict[tuple[str, str], Run[Any]] = {}
        for (workflow, before), group in groups.items():
            sources: dict[str, str | None] = {each.id: None for each in group}
            # Each group is a transaction of its own; together they keep the rate.
            apart, by = spacing * len(groups), actor or self._app.default_actor
            started = yield start.fork(workflow, sources, before=before, spacing=apart, actor=by, now=self._app.now())
            for id, new in zip(sources, started, strict=True):
                made[workflow, id] = Run(self._app, workflow, new.id, job_id=new.job_id)
        return [made[each.workflow, each.id] for each in runs]


def _member(kind: Any, field: str, value: Any) -> Any:
    try:
        return None if value is None else kind(value)
    except ValueError as error:
        known = ", ".join(repr(str(each)) for each in kind)
        raise ConfigurationError(f"app.runs.select({field}=): {known}; got {value!r}") from error
