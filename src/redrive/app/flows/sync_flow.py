"""What the body of a ``def`` workflow works with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar, overload

from redrive.app.arguments import shown
from redrive.app.flows import calls
from redrive.app.flows.flow import FlowBase, OnErrorName
from redrive.app.flows.flow_steps import map_call, step_call
from redrive.app.tasks.task import Task
from redrive.engine.runs import StepKind
from redrive.errors import ConfigurationError
from redrive.policy import Policy
from redrive.policy.duration import Duration

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncFlow(FlowBase):
    """What a ``def`` workflow works with; its first parameter has this annotation. It runs in a thread.

    The methods are those of `Flow`, and return results instead of awaitables. A branch of `gather` and `first` is a
    function without parameters, and runs in a thread of its own: ``flow.gather(lambda: flow.step(pack, order), ...)``.
    """

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: object,
        retry: Policy | str | None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> R: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: object,
        timeout: Duration | None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> R: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: object,
        undo: Callable[[R], Any] | None,
        **kwargs: object,
    ) -> R: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., R],
        /,
        *args: object,
        retry: Policy | str | None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> R: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., R],
        /,
        *args: object,
        timeout: Duration | None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> R: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self, function: Callable[..., R], /, *args: object, undo: Callable[[R], Any] | None, **kwargs: object
    ) -> R: ...
    def step(
        self, function: Any, /, *args: Any, retry: Any = None, timeout: Any = None, undo: Any = None, **kwargs: Any
    ) -> Any:
        """Call a function once and record its result; see `Flow.step`."""
        call = step_call(function, args, kwargs, retry=retry, timeout=timeout, undo=undo, line=calls.caller())
        return self._conductor.perform_in_thread(call)

    def sleep(self, span: Duration) -> None:
        """Wait for a time; see `Flow.sleep`."""
        self._conductor.perform_in_thread(calls.SleepCall(calls.long_span(span, "flow.sleep()"), None, calls.caller()))

    def sleep_until(self, instant: datetime) -> None:
        """Wait for an instant, which has a time zone; see `Flow.sleep`."""
        self._conductor.perform_in_thread(calls.SleepCall(None, calls.aware(instant), calls.caller()))

    @overload
    def wait_for(self, name: str, kind: type[T], /, *, timeout: Duration | None = None) -> T: ...
    @overload
    def wait_for(self, name: str, /, *, timeout: Duration | None = None) -> Any: ...
    def wait_for(self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal to this run, and return its value; see `Flow.wait_for`."""
        return self._conductor.perform_in_thread(calls.wait_call(StepKind.WAIT, name, kind, timeout, calls.caller()))

    @overload
    def wait_for_event(self, name: str, kind: type[T], /, *, timeout: Duration | None = None) -> T: ...
    @overload
    def wait_for_event(self, name: str, /, *, timeout: Duration | None = None) -> Any: ...
    def wait_for_event(self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None) -> Any:
        """Wait for a value that `App.emit` publishes, and return it; see `Flow.wait_for_event`."""
        return self._conductor.perform_in_thread(calls.wait_call(StepKind.EVENT, name, kind, timeout, calls.caller()))

    @overload
    def gather(self, *branches: Callable[[], R], on_error: Literal["first", "wait"] = "first") -> list[R]: ...
    @overload
    def gather(self, *branches: Callable[[], R], on_error: Literal["collect"]) -> list[R | Exception]: ...
    def gather(self, *branches: Callable[[], Any], on_error: OnErrorName = "first") -> Any:
        """Run branches at once, each in a thread, and return their results in their order; see `Flow.gather`."""
        return self._conductor.perform_in_thread(
            calls.gather_call("gather", _functions("gather", branches), on_error, None)
        )

    def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        /,
        *,
        at_once: int = 20,
        on_error: OnErrorName = "first",
        retry: Policy | str | None = None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
    ) -> list[R]:
        """Run one step for each item, so many at once, and return the results; see `Flow.map`."""

        def branch(item: T) -> Callable[[], R]:
            return lambda: self.step(function, item, retry=retry, timeout=timeout, undo=undo)

        branches = [branch(item) for item in calls.ordered(items)]
        result: list[R] = self._conductor.perform_in_thread(map_call(function, branches, on_error, at_once))
        return result

    def first(self, *branches: Callable[[], R]) -> tuple[int, R]:
        """Run branches at once; return the number of the first that ends, and its result; see `Flow.first`."""
        result: tuple[int, R] = self._conductor.perform_in_thread(calls.first_call(_functions("first", branches)))
        return result

    def call(self, workflow: Task[P, R, Any, ...], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a child run, wait for its end, and return its result; see `Flow.call`."""
        result: R = self._conductor.perform_in_thread(calls.child_call(workflow, args, kwargs))
        return result

    def transaction(self, function: Callable[..., R], /, *args: object, **kwargs: object) -> R:
        """Call a function with a connection, and commit its writes and the record together; see `Flow.transaction`."""
        call = step_call(
            function, args, kwargs, retry=None, timeout=None, undo=None, line=calls.caller(), transacted=True
        )
        result: R = self._conductor.perform_in_thread(call)
        return result


def _functions(method: str, branches: Sequence[Any]) -> list[Any]:
    for each in branches:
        if not callable(each):
            raise ConfigurationError(
                f"flow.{method}(): in a def workflow a branch is a function without parameters, as in "
                f"flow.{method}(lambda: flow.step(...)); got {shown(each)}"
            )
    return list(branches)
