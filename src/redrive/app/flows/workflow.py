"""Workflows: functions with recorded steps."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, ParamSpec, TypeVar, overload

from redrive.app.arguments import checked_count, checked_text, only_started
from redrive.app.flows.flow import Flow
from redrive.app.flows.flow_steps import step_policy
from redrive.app.flows.run import Run
from redrive.app.flows.sync_flow import SyncFlow
from redrive.app.protocol import AppProtocol, Procedure, arun, run
from redrive.app.tasks.enqueue import Options
from redrive.app.tasks.task import Task, Traits
from redrive.app.types import type_name
from redrive.engine.runs import MAX_STEPS, WARN_STEPS, NewRun, digest_of
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.policy import Policy
from redrive.seams import without
from redrive.stores.operations.runs import start as starting
from redrive.stores.operations.runs.start import StartedRun

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_RESERVED = ("id", "using")


class Workflow(Task[P, R, C, ...], Generic[P, R, C]):
    """A function with recorded steps; made by ``@app.workflow``.

    A run of it is a job of this task. Several functions with one name and different versions are one workflow: a run
    continues with the function of the version that started it.
    """

    is_workflow: ClassVar[bool] = True
    injected: ClassVar[tuple[type, ...]] = (Flow, SyncFlow)

    def __init__(
        self,
        app: AppProtocol,
        name: str,
        function: Callable[..., Any],
        options: Options,
        *,
        traits: Traits | None = None,
        version: int = 1,
        steps: Policy | str | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        super().__init__(app, name, function, options, traits=traits)
        self.version: int = checked_count(version, f"workflow {name!r}: version")
        self.max_steps: int = checked_count(max_steps, f"workflow {name!r}: max_steps")
        self.warn_steps: int = min(WARN_STEPS, self.max_steps)
        #: The policy of steps that have none of their own.
        self.step_policy: Policy = step_policy(steps, None, f"workflow {name!r}: steps")
        self.is_async: bool = inspect.iscoroutinefunction(function)
        #: The workflows of this name, by version.
        self.versions: dict[int, Workflow[Any, Any, Any]] = {self.version: self}

    def join(self, other: Workflow[Any, Any, Any]) -> None:
        """Become another version of a workflow."""
        if self.version in other.versions:
            raise TaskDefinitionError(
                f"two workflows are called {self.name!r} with version {self.version}: give the changed one another "
                "version, as in @app.workflow(version=2), or another name"
            )
        other.versions[self.version] = self
        self.versions = other.versions

    def of_version(self, version: int) -> Workflow[Any, Any, Any] | None:
        """Return the workflow that continues runs of a version; None if this process does not have it."""
        return self.versions.get(version)

    if not TYPE_CHECKING:  # as in `redrive.App`
        __getattr__ = without("workflow")

    # ---------------------------------------------------------------- starting

    @overload
    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def start(self, *args: object, id: str | None, using: object = None, **kwargs: object) -> Run[R]: ...
    @overload
    def start(self, *args: object, using: object, **kwargs: object) -> Run[R]: ...
    def start(self, *args: Any, id: Any = None, using: Any = None, **kwargs: Any) -> Run[R]:
        """Start a run.

        Args:
            *args: the arguments of the function, without the flow.
            id: identifies the run in its workflow. A run with the id and the same arguments is started once; another
                call returns a handle on it. By default an id is made.
            using: your own connection to the same database; the run exists if and only if its transaction commits.
            **kwargs: as ``args``.

        Returns:
            A handle on the run, which is stored when this returns (with ``using``: when the transaction commits). Its
            ``created`` is False if the run existed.

        Raises:
            PayloadError: the arguments do not match the annotations, or cannot be stored.
            DuplicateRun: a run has this id with other arguments; nothing was started.
            ConfigurationError: the id is empty or too long.
            OutcomeUnknown: the answer to the commit was lost. With an ``id`` the call can be repeated.
            StoreError: the database refused, or cannot be reached; nothing was started.
        """
        return run(self.app.store, self.starting(id, args, kwargs), using=using)

    @overload
    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    async def astart(self, *args: object, id: str | None, using: object = None, **kwargs: object) -> Run[R]: ...
    @overload
    async def astart(self, *args: object, using: object, **kwargs: object) -> Run[R]: ...
    async def astart(self, *args: Any, id: Any = None, using: Any = None, **kwargs: Any) -> Run[R]:
        """Start a run; see `start`. On PostgreSQL ``using`` takes an asynchronous connection."""
        return await arun(self.app.store, self.starting(id, args, kwargs), using=using)

    def options(self, **options: Any) -> Workflow[P, R, C]:
        """Return this workflow with other options for the runs that it starts; see `Enqueuer.options`.

        A run is identified by its ``id``, so that ``key`` and ``idempotency_key`` are refused.
        """
        refused = sorted({"key", "key_until", "on_conflict", "idempotency_key"} & options.keys())
        if refused:
            raise ConfigurationError(
                f"{self.name}: options({refused[0]}=...) is for jobs; a run is identified by start(id=...)"
            )
        made = copy.copy(self)
        made._options = super().options(**options).defaults  # of the same class
        return made

    def debounce(self, *_: object, **__: object) -> Never:
        """Refuse: each start of a run with another id is a run."""
        raise ConfigurationError(f"{self.name} is a workflow, and its runs are not debounced")

    def run(self, id: str) -> Run[R]:
        """Return a handle on a run by its id. It is read when it is used.

        Raises:
            ConfigurationError: the id is empty or too long.
        """
        return Run(self.app, self.name, checked_text(id, f"{self.name}: the id of a run"))

    def new_run(self, id: str | None, payload: bytes, parent: tuple[int, str] | None = None) -> NewRun:
        """Return a run to be started, with its arguments as canonical JSON."""
        parent_id, parent_path = parent or (None, None)
        job = self.new_job(payload)
        if self.app.hooks.enqueue:
            job = self.announced(job)
        return NewRun(job, self.name, self.version, digest_of(payload), id, parent_id, parent_path)

    def starting(self, id: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Procedure[Run[R]]:
        """Start a run, as the procedure of both methods."""
        if id is not None:
            checked_text(id, f"{self.name}: the id of a run")
        new = self.new_run(id, self.signature.write(args, kwargs, order="deterministic"))
        self.app.check()
        self.app.check_policy(self.policy, self.signature)
        started: StartedRun
        (started,) = yield starting.start([new], now=self.app.now())
        return Run(self.app, self.name, started.id, job_id=started.job_id, created=started.created)

    # All ways to enqueue make their jobs here.
    def _new(self, args: object, kwargs: object) -> Never:  # noqa: ARG002 - as of the base
        raise ConfigurationError(only_started(self.name))

    def _many(self, calls: object) -> Never:  # noqa: ARG002 - as of the base
        raise ConfigurationError(only_started(self.name))

    def call(self, *_: object, **__: object) -> Never:
        """Refuse: only a worker can run the steps of a run."""
        raise ConfigurationError(only_started(self.name))

    async def acall(self, *_: object, **__: object) -> Never:
        """Refuse; see `call`."""
        raise ConfigurationError(only_started(self.name))

    # ---------------------------------------------------------------- definition

    def check_flow(self) -> None:
        """Check that the function takes a flow of its colour first."""
        colour = Flow if self.is_async else SyncFlow
        what = "an async def" if self.is_async else "a def"
        first = next(iter(self.signature.parameters), None)
        hint = None if first is None else self.signature.hints.get(first)
        if hint is not colour:
            found = "nothing" if first is None else f"{first}: {type_name(hint) if hint else '?'}"
            raise TaskDefinitionError(
                f"workflow {self.name!r}: the first parameter of {what} workflow is the flow, annotated with "
                f"redrive.{colour.__name__}; got {found}"
            )
        taken = [each for each in _RESERVED if each in self.signature.parameters]
        if taken:
            raise TaskDefinitionError(
                f"workflow {self.name!r}: a parameter cannot be called {taken[0]!r}, which start() takes itself"
            )
        others = [each for each in self.signature.parameters if self.signature.hints.get(each) in self.injected]
        if others != [first]:
            raise TaskDefinitionError(f"workflow {self.name!r}: it takes one flow, got {', '.join(others)}")
