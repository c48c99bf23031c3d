"""Calls of a flow with a name of their own, which any asyncio task of a body may make."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

import msgspec
from msgspec.structs import replace

from redrive.app.flows.calls import (
    Key,
    SleepCall,
    aware,
    caller,
    checked_event,
    child_call,
    long_span,
    wait_call,
)
from redrive.app.flows.flow_call import ConductorProtocol, FlowCall
from redrive.app.flows.flow_steps import step_call
from redrive.app.payload import write_value
from redrive.app.tasks.task import Task
from redrive.engine.runs import StepKind, digest_of
from redrive.policy import Policy
from redrive.policy.duration import Duration

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class NamedFlow:
    """What `Flow.named` returns: calls with a name, which are those of `Flow` otherwise."""

    __slots__ = ("_conductor", "_key")

    def __init__(self, conductor: ConductorProtocol, name: object, inputs: object) -> None:
        self._conductor = conductor
        text = checked_event(name, "flow.named(): the name")
        self._key = Key(text, None if inputs is None else _digest(text, inputs))

    def __repr__(self) -> str:
        return f"<calls of flow with the name {self._key.name!r}>"

    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> FlowCall[R]: ...
    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> FlowCall[R]: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: object,
        retry: Policy | str | None = None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> FlowCall[R]: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., R],
        /,
        *args: object,
        retry: Policy | str | None = None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> FlowCall[R]: ...
    def step(
        self, function: Any, /, *args: Any, retry: Any = None, timeout: Any = None, undo: Any = None, **kwargs: Any
    ) -> FlowCall[Any]:
        """Call a function once and record its result; see `Flow.step`. It may also be a ``lambda`` or a closure."""
        call = step_call(function, args, kwargs, retry=retry, timeout=timeout, undo=undo, line=caller(), key=self._key)
        return FlowCall(self._conductor, call)

    def transaction(self, function: Callable[..., Any], /, *args: object, **kwargs: object) -> FlowCall[Any]:
        """Call a function with a connection, and commit its writes and the record together; see `Flow.transaction`."""
        call = step_call(
            function, args, kwargs, retry=None, timeout=None, undo=None, line=caller(), transacted=True, key=self._key
        )
        return FlowCall(self._conductor, call)

    def sleep(self, span: Duration) -> FlowCall[None]:
        """Wait for a time; see `Flow.sleep`."""
        return FlowCall(self._conductor, SleepCall(long_span(span, "flow.sleep()"), None, caller(), self._key))

    def sleep_until(self, instant: datetime) -> FlowCall[None]:
        """Wait for an instant, which has a time zone; see `Flow.sleep`."""
        return FlowCall(self._conductor, SleepCall(None, aware(instant), caller(), self._key))

    @overload
    def wait_for(self, name: str, kind: type[T], /, *, timeout: Duration | None = None) -> FlowCall[T]: ...
    @overload
    def wait_for(self, name: str, /, *, timeout: Duration | None = None) -> FlowCall[Any]: ...
    def wait_for(self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None) -> FlowCall[Any]:
        """Wait for a signal to this run, and return its value; see `Flow.wait_for`."""
        call = wait_call(StepKind.WAIT, name, kind, timeout, caller())
        return FlowCall(self._conductor, replace(call, key=self._key))

    @overload
    def wait_for_event(self, name: str, kind: type[T], /, *, timeout: Duration | None = None) -> FlowCall[T]: ...
    @overload
    def wait_for_event(self, name: str, /, *, timeout: Duration | None = None) -> FlowCall[Any]: ...
    def wait_for_event(self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None) -> FlowCall[Any]:
        """Wait for a value that `App.emit` publishes, and return it; see `Flow.wait_for_event`."""
        call = wait_call(StepKind.EVENT, name, kind, timeout, caller())
        return FlowCall(self._conductor, replace(call, key=self._key))

    def call(self, workflow: Task[P, R, Any, ...], /, *args: P.args, **kwargs: P.kwargs) -> FlowCall[R]:
        """Start a child run, wait for its end, and return its result; see `Flow.call`."""
        call = child_call(workflow, args, kwargs)
        digest = self._key.digest or call.digest
        return FlowCall(self._conductor, replace(call, digest=digest, key=replace(self._key, digest=digest)))


def _digest(name: str, inputs: object) -> int:
    raw = write_value(inputs, f"flow.named({name!r}): inputs") or b"null"
    return digest_of(msgspec.json.encode(msgspec.json.decode(raw), order="deterministic"))
