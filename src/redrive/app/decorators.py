"""The types of the decorators of an App.

The parameter for the `redrive.Context` is not a parameter of `redrive.Task.enqueue`. The type system can remove a
parameter only from the front (`typing.Concatenate`): behind a context in front, type checkers check the arguments of
`enqueue`; with a context in another place, they accept any. The overloads, in order:

* The first parameter takes any object. It would also match a context in front, so the parameters are left open.
* The first parameter is the context, and is removed.
* Another parameter called ``ctx`` or ``context`` is the context. The parameters are left open.
* No parameter is a context.

Each of these exists for functions that return a coroutine and for other functions.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Never, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from redrive.app.attempts.context import Context, Pending
from redrive.app.flows.flow import Flow
from redrive.app.flows.sync_flow import SyncFlow
from redrive.app.flows.workflow import Workflow
from redrive.app.recurring.cron import Cron
from redrive.app.recurring.refresh import Refresh
from redrive.app.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class AnyArgument:
    """A type of which no function but one that takes any object has a parameter."""


class _Ctx0(Protocol[R_co]):
    def __call__(self, *, ctx: Context) -> R_co: ...


class _Ctx1(Protocol[R_co]):
    def __call__(self, a: Never, /, *, ctx: Context) -> R_co: ...


class _Ctx2(Protocol[R_co]):
    def __call__(self, a: Never, b: Never, /, *, ctx: Context) -> R_co: ...


class _Ctx3(Protocol[R_co]):
    def __call__(self, a: Never, b: Never, c: Never, /, *, ctx: Context) -> R_co: ...


class _Ctx4(Protocol[R_co]):
    def __call__(self, a: Never, b: Never, c: Never, d: Never, /, *, ctx: Context) -> R_co: ...


class _Context0(Protocol[R_co]):
    def __call__(self, *, context: Context) -> R_co: ...


class _Context1(Protocol[R_co]):
    def __call__(self, a: Never, /, *, context: Context) -> R_co: ...


class _Context2(Protocol[R_co]):
    def __call__(self, a: Never, b: Never, /, *, context: Context) -> R_co: ...


class _Context3(Protocol[R_co]):
    def __call__(self, a: Never, b: Never, c: Never, /, *, context: Context) -> R_co: ...


class _Context4(Protocol[R_co]):
    def __call__(self, a: Never, b: Never, c: Never, d: Never, /, *, context: Context) -> R_co: ...


ContextInside: TypeAlias = (
    _Ctx0[R]
    | _Ctx1[R]
    | _Ctx2[R]
    | _Ctx3[R]
    | _Ctx4[R]
    | _Context0[R]
    | _Context1[R]
    | _Context2[R]
    | _Context3[R]
    | _Context4[R]
)
"""Functions with a context, called ``ctx`` or ``context``, behind at most four other parameters."""


class TaskDecorator(Protocol):
    """The type of ``@app.task(...)``, which keeps the parameters and the result of the function."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[AnyArgument, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AnyArgument, P], R | Pending], /) -> Task[..., R, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Task[P, R, Coroutine[Any, Any, R], Concatenate[Context, P]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], R | Pending], /
    ) -> Task[P, R, R, Concatenate[Context, P]]: ...
    @overload
    def __call__(
        self, function: ContextInside[Coroutine[Any, Any, R | Pending]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: ContextInside[R | Pending], /) -> Task[..., R, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R | Pending], /) -> Task[P, R, R]: ...


class RefreshDecorator(Protocol):
    """The type of ``@app.refresh(...)``."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[AnyArgument, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Refresh[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AnyArgument, P], R | Pending], /) -> Refresh[..., R, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R | Pending]], /
    ) -> Refresh[P, R, Coroutine[Any, Any, R], Concatenate[Context, P]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], R | Pending], /
    ) -> Refresh[P, R, R, Concatenate[Context, P]]: ...
    @overload
    def __call__(
        self, function: ContextInside[Coroutine[Any, Any, R | Pending]], /
    ) -> Refresh[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: ContextInside[R | Pending], /) -> Refresh[..., R, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Pending]], /
    ) -> Refresh[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R | Pending], /) -> Refresh[P, R, R]: ...


class CronDecorator(Protocol):
    """The type of ``@app.cron(...)``."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, None]], /
    ) -> Cron[P, None, Coroutine[Any, Any, None], Concatenate[Context, P]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], None], /
    ) -> Cron[P, None, None, Concatenate[Context, P]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, None]], /
    ) -> Cron[P, None, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, function: Callable[P, None], /) -> Cron[P, None, None]: ...


class WorkflowDecorator(Protocol):
    """The type of ``@app.workflow(...)``, which takes the flow from the front of the parameters."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Flow, P], Coroutine[Any, Any, R]], /
    ) -> Workflow[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncFlow, P], R], /) -> Workflow[P, R, R]: ...
