"""The middleware of an app: functions that wrap the calls of handlers, steps and undos, and that see each enqueue."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

import msgspec

from redrive.app.attempts.resources import POSITIONAL
from redrive.errors import TaskDefinitionError


class Execution(msgspec.Struct, frozen=True):
    """One call of a handler, of a step of a run, or of the undo of a step; see `App.around`.

    Attributes:
        kind: ``"handler"``, ``"step"`` or ``"undo"``.
        task: name of the task, or of the workflow.
        name: name of the step, or of the function that takes it back; of a handler, as ``task``.
        job_id: id of the job; of a delivery that a feeder makes, that of the feeder.
        attempt: number of this attempt of the job, or of this try of the step, from 1; in ``flow.transaction``,
            which has no tries of its own, that of the attempt of the run.
        arguments: the arguments by name, without the context and without those that were left out; empty for an undo.
            The values are those that the handler gets: do not change them.
        queue: the queue of the job.
        partition: the partition of the job in its queue.
        origin: what the job was created for, as `Context.origin`.
    """

    kind: Literal["handler", "step", "undo"]
    task: str
    name: str
    job_id: int
    attempt: int
    arguments: Mapping[str, Any]
    queue: str
    partition: str | None = None
    origin: str | None = None


class EnqueueRequest(msgspec.Struct, frozen=True):
    """A job, or a run, that is about to be enqueued; see `App.on_enqueue`.

    Attributes:
        task: name of the task, or of the workflow.
        queue: name of its queue.
        priority: smaller runs first.
        tags: those of the options, and those that earlier functions have added.
        payload: the arguments as JSON.
        partition: the partition of the queue.
        key: the key of the job.
    """

    task: str
    queue: str
    priority: int
    tags: tuple[str, ...]
    payload: bytes
    partition: str | None = None
    key: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as plain JSON."""
        found: dict[str, Any] = msgspec.json.decode(self.payload)
        return found


Middleware: TypeAlias = Callable[[Execution], contextlib.AbstractContextManager[None]]


def within(
    middleware: Sequence[Middleware], function: Callable[..., Any], execution: Callable[[], Execution]
) -> functools.partial[Any]:
    """Return a function of the same colour that calls this one within the middleware."""
    return functools.partial(
        _awaited if inspect.iscoroutinefunction(function) else _called, middleware, execution, function
    )


def _called(
    middleware: Sequence[Middleware],
    execution: Callable[[], Execution],
    function: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    with _Open(middleware, execution()):
        return function(*args, **kwargs)


async def _awaited(
    middleware: Sequence[Middleware],
    execution: Callable[[], Execution],
    function: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    with _Open(middleware, execution()):
        return await function(*args, **kwargs)


# Unlike `contextlib.ExitStack`: a middleware that swallows an error must not make a failed attempt succeed without a
# result.
class _Open:
    """The middleware around one call: the first one is outside. What it raises takes the place of the error inside."""

    __slots__ = ("_execution", "_managers", "_middleware")

    def __init__(self, middleware: Sequence[Middleware], execution: Execution) -> None:
        self._middleware, self._execution = middleware, execution
        self._managers: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        try:
            for each in self._middleware:
                manager = each(self._execution)
                _entered(manager)
                self._managers.append(manager)
        except BaseException as error:
            last = self._close(error)
            if last is error:
                raise
            raise last from last.__cause__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        last = self._close(error)
        if last is not None and last is not error:
            raise last from last.__cause__

    def _close(self, error: Any) -> Any:
        """Leave the middleware, the innermost first, and return the error with which the call ends."""
        while self._managers:
            manager = self._managers.pop()
            try:
                manager.__exit__(None if error is None else type(error), error, getattr(error, "__traceback__", None))
            except BaseException as other:  # noqa: BLE001 - it takes the place of the error
                error = _misyielding(manager, other)
        return error


def _entered(manager: contextlib.AbstractContextManager[None]) -> None:
    try:
        manager.__enter__()
    except RuntimeError as error:
        raise _misyielding(manager, error) from None


def _misyielding(manager: contextlib.AbstractContextManager[None], error: BaseException) -> BaseException:
    """Return the error of a middleware, with its name if it has not yielded once."""
    if type(error) is not RuntimeError or not str(error).startswith(
        ("generator didn't stop", "generator didn't yield")
    ):
        return error
    name = cast("Any", manager).gen.__qualname__  # of the class of contextlib
    how = "yielded twice" if "stop" in str(error) else "did not yield"
    return TaskDefinitionError(f"the middleware {name} {how}: the call takes place at its only yield")


def checked_middleware(function: Callable[[Execution], Iterator[None]]) -> Middleware:
    """Return a middleware as it is called; raise `TaskDefinitionError` if it does not yield, or is async."""
    if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
        raise TaskDefinitionError(
            f"the middleware {function.__qualname__} is async: it wraps def handlers too, which run in threads; "
            "write a def with one yield"
        )
    _check_takes_one(function, "around", "the Execution")
    if not inspect.isgeneratorfunction(function):
        raise TaskDefinitionError(
            f"the middleware {function.__qualname__} does not yield: the call takes place at its only yield"
        )
    return contextlib.contextmanager(function)


def checked_listener(function: Callable[[EnqueueRequest], Any]) -> None:
    """Raise `TaskDefinitionError` if a function cannot be called with each job that is enqueued."""
    _check_takes_one(function, "on_enqueue", "the EnqueueRequest")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TaskDefinitionError(
            f"the function {function.__qualname__} of @app.on_enqueue is async, and enqueue() is not: write a def"
        )
    if inspect.isgeneratorfunction(function):
        raise TaskDefinitionError(
            f"the function {function.__qualname__} of @app.on_enqueue yields; it runs before the job is stored, and "
            "returns tags or None. What happens afterwards is an event: redrive.observe"
        )


def _check_takes_one(function: Callable[..., Any], kind: str, what: str) -> None:
    if not inspect.isroutine(function):
        raise TaskDefinitionError(f"{function!r} is no function; write @app.{kind} above a function")
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1 or parameters[0].kind not in POSITIONAL:
        raise TaskDefinitionError(
            f"{function.__qualname__} takes ({', '.join(map(str, parameters))}); a function of @app.{kind} takes one "
            f"parameter, {what}"
        )
