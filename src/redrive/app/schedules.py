"""What recurs: the part of an App that makes crons and refreshes, and looks at both."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from redrive.app.cron import Cron
from redrive.app.pending import Pending
from redrive.app.refresh import Refresh
from redrive.app.task import Task
from redrive.clock import SystemClock
from redrive.engine.recurring import CatchUp, Overlap, ScheduleRecord
from redrive.errors import TaskDefinitionError
from redrive.policy import Policy
from redrive.schedule import RefreshPolicy, Schedule
from redrive.schedule.member import member
from redrive.stores.operations import schedules
from redrive.stores.operations.refresh import read
from redrive.stores.operations.refresh.read import Counts
from redrive.stores.store import Store

__all__ = ["Said", "Schedules"]

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Task[Any, Any, Any])

Span: TypeAlias = timedelta | float | str


@dataclass(frozen=True, slots=True)
class Said:
    """What a decorator is told of a task; see `redrive.App.task`."""

    retry: Policy | str | None = None
    queue: str = "default"
    timeout: Span | None = None
    name: str | None = None
    priority: int = 0
    idempotent: bool | None = None
    soft_timeout: Span | None = None
    keep_for: Span | None = None
    aka: str | Iterable[str] = ()


class RegisterCron(Protocol):
    """What ``@app.cron(...)`` is."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, None]], /
    ) -> Cron[P, None, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, function: Callable[P, None], /) -> Cron[P, None, None]: ...


class RegisterRefresh(Protocol):
    """What ``@app.refresh(...)`` is."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Refresh[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R | Pending], /) -> Refresh[P, R, R]: ...


class Schedules:
    """The part of an App that makes what recurs."""

    @property
    def store(self) -> Store:
        """The database."""
        raise NotImplementedError

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The registered tasks by name."""
        raise NotImplementedError

    def now(self) -> datetime | None:
        """The injected instant, in tests."""
        raise NotImplementedError

    def define(self, target: Callable[..., Any], said: Said, kind: Callable[..., K]) -> K:
        """Register a function as a task of some kind."""
        raise NotImplementedError

    @property
    def schedules(self) -> Mapping[str, Cron[Any, Any, Any] | Refresh[Any, Any, Any]]:
        """The crons and refreshes of the code, by name."""
        return {name: task for name, task in self.tasks.items() if isinstance(task, Cron | Refresh)}

    def recurring(self) -> tuple[ScheduleRecord, ...]:
        """Read the crons and refreshes of the database, by name; also those that the code does not have any more.

        Returns:
            Where they stand.
        """
        return self.store.run(schedules.select())

    def tracked(self) -> tuple[Counts, ...]:
        """Count the things of each refresh. That walks them all.

        Returns:
            The counts, by name.
        """
        return self.store.run(read.counts())

    def cron(  # noqa: PLR0913 - what one may say of a cron, by keyword
        self,
        pattern: str,
        *,
        tz: str = "UTC",
        retry: Policy | str | None = None,
        overlap: Literal["skip", "queue", "cancel", "allow"] = "skip",
        catch_up: Literal["one", "all", "none"] = "one",
        window: Span = "1d",
        queue: str = "default",
        timeout: Span | None = None,
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Span | None = None,
        keep_for: Span | None = None,
    ) -> RegisterCron:
        """Register a function that runs at the occurrences of a cron expression.

        Each occurrence makes one job, whatever the number of workers, with retries of its own. Workers see to that: the
        occurrences are those of the code that the worker which started last has. A cron that the code does not have any
        more is not fired.

        Args:
            pattern: ``"*/5 * * * *"``; six fields begin with seconds, seven end with years; ``@daily`` and its like;
                FTL's ``30s``, ``12h``, ``Mon``. The reference says what each field may be.
            tz: whose wall clock that means: ``Europe/Kyiv``. A time that does not exist fires at the first instant
                after the gap, one that exists twice fires once.
            retry: a directive or a `Policy` for each job; without it a failure is final, until the next occurrence.
            overlap: an occurrence whose predecessor has not ended is left out (``"skip"``), waits for it to end, one at
                most (``"queue"``), cancels it (``"cancel"``), or runs beside it (``"allow"``).
            catch_up: of the occurrences that no worker was there for, start the last (``"one"``), all that lie within
                ``window`` (``"all"``; only with ``overlap="allow"``), or none (``"none"``).
            window: a ``timedelta``, seconds, or text.
            queue: where its jobs wait.
            timeout: how long one attempt may take; by default an hour.
            name: unique in the app; by default the function's own name.
            priority: smaller runs first.
            idempotent: as for `task`.
            soft_timeout: as for `task`.
            keep_for: as for `task`.

        Returns:
            A decorator; what it makes is a task that can still be called as the function.

        Raises:
            ScheduleError: the pattern or the place is not understood, or it can never occur.
            PolicyError: the directive cannot be read.
            TaskDefinitionError: the name is taken or has a slash, the function takes arguments or returns something, or
                there is no pattern.

        Warns:
            RuntimeWarning: all its occurrences lie in the past.
        """
        if not isinstance(pattern, str):
            message = f'a cron is made by @app.cron("*/5 * * * *") above a function, and {pattern!r} is no text'
            raise TaskDefinitionError(message)
        how = member(Overlap, "overlap", overlap)
        late = member(CatchUp, "catch_up", catch_up)
        said = Said(retry, queue, timeout, name, priority, idempotent, soft_timeout, keep_for)

        def register(target: Callable[..., Any]) -> Any:  # noqa: ANN401 - see `RegisterCron`
            _check_target(target, "cron", name)

            def kind(*args: Any, **kwargs: Any) -> Cron[Any, Any, Any]:  # noqa: ANN401 - as `define` gives them
                return Cron(*args, **kwargs, pattern=pattern, tz=tz, overlap=how, catch_up=late, window=window)

            cron = _early(self.define(target, said, kind))
            self._warn_if_over(f"cron {cron.name!r}", cron.definition.schedule)
            return cron

        return register

    def refresh(  # noqa: PLR0913 - what one may say of a refresh, by keyword
        self,
        policy: RefreshPolicy | str,
        *,
        on_disabled: Task[Any, Any, Any] | str | None = None,
        queue: str = "default",
        name: str | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        soft_timeout: Span | None = None,
        keep_for: Span | None = None,
    ) -> RegisterRefresh:
        """Register a function that keeps things fresh: planned refreshes, retries between them, and an end of trying.

        What is kept fresh, `Refresh.track` says. Each attempt is a job; whether and when another one follows, the
        refresh policy says, and it is the attempt's timeout too.

        Args:
            policy: in English, such as ``"Refresh every 2 hours; allow 10 minutes; on the first failure retry
                immediately"``, or as a value.
            on_disabled: the task that is told, by a `redrive.Disabled`, when a thing was given up.
            queue: where its jobs wait.
            name: unique in the app; by default the function's own name.
            priority: smaller runs first.
            idempotent: as for `task`. With False an attempt whose worker vanished has failed; the next one is another
                attempt.
            soft_timeout: as for `task`.
            keep_for: as for `task`.

        Returns:
            A decorator; what it makes is a task that can still be called as the function.

        Raises:
            ScheduleSyntaxError: the policy is not understood, with its line and its column.
            TaskDefinitionError: the name is taken or has a slash, the parameters cannot be stored, or ``on_disabled``
                takes something else, or there is no policy.

        Warns:
            RuntimeWarning: all its planned refreshes lie in the past.
        """
        if not isinstance(policy, RefreshPolicy | str):
            message = (
                f'a refresh is made by @app.refresh("Refresh every 2 hours") above a function, and {policy!r} is no '
                "policy"
            )
            raise TaskDefinitionError(message)
        found = RefreshPolicy.parse(policy) if isinstance(policy, str) else policy
        said = Said(None, queue, found.timeout, name, priority, idempotent, soft_timeout, keep_for)

        def register(target: Callable[..., Any]) -> Any:  # noqa: ANN401 - see `RegisterRefresh`
            _check_target(target, "refresh", name)

            def kind(*args: Any, **kwargs: Any) -> Refresh[Any, Any, Any]:  # noqa: ANN401 - as `define` gives them
                return Refresh(*args, **kwargs, refresh=found, on_disabled=on_disabled)

            refresh = self.define(target, said, kind)
            self._warn_if_over(f"refresh {refresh.name!r}", found.schedule)
            return refresh

        return register

    def _warn_if_over(self, what: str, schedule: Schedule | None) -> None:
        """Warn of a schedule that has come to its end. An error would stop a program on the day after that."""
        if schedule is not None and schedule.next(self.now() or SystemClock().now()) is None:
            message = f"{what} has no occurrence any more: its schedule lies in the past"
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def _check_target(target: object, what: str, name: str | None) -> None:
    if isinstance(target, Task):
        message = (
            f"{target.name!r} is a task already, and one function is one task: make another function for the {what}"
        )
        raise TaskDefinitionError(message)
    if not inspect.isroutine(target):
        message = f"{target!r} is no function; a {what} is made by @app.{what}(...) above a function"
        raise TaskDefinitionError(message)
    label = name or target.__name__
    if "/" in label:
        message = f"the {what} {label!r} has a slash in its name, which parts the name from the key of a thing"
        raise TaskDefinitionError(message)


def _early(cron: Cron[Any, Any, Any]) -> Cron[Any, Any, Any]:
    """Check what can be checked at import already: not annotations that name what comes later."""
    try:
        _ = cron.signature.hints
    except TaskDefinitionError:
        return cron
    cron.check_signature()
    return cron
