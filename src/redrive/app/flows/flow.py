"""What the body of an ``async def`` workflow works with, and what it shares with `SyncFlow` in a ``def``.

Both describe what the body asks for and pass the description to the conductor of the run, which is the worker's.
They differ only in their colour: a method of `Flow` returns a `FlowCall` to be awaited, one of `SyncFlow` its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, overload
from uuid import UUID

import msgspec

from redrive.app.arguments import checked_text, shown
from redrive.app.flows.calls import (
    SleepCall,
    aware,
    caller,
    child_call,
    first_call,
    gather_call,
    long_span,
    ordered,
    wait_call,
)
from redrive.app.flows.flow_call import ConductorProtocol, FlowCall
from redrive.app.flows.flow_steps import map_call, step_call
from redrive.app.flows.rng import FlowRandom
from redrive.app.payload import check_document, write_value
from redrive.app.tasks.task import Task
from redrive.engine.runs import StepKind
from redrive.errors import ConfigurationError, FlowMisused
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.seams import without

if TYPE_CHECKING:
    from redrive.app.flows.named_flow import NamedFlow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OnErrorName = Literal["first", "wait", "collect"]


class FlowBase:
    """What both colours of a flow share."""

    _conductor: ConductorProtocol

    def __init__(self, conductor: ConductorProtocol | None = None) -> None:
        if conductor is None:
            raise FlowMisused(
                f"a {type(self).__name__} is made by the worker: it is the first parameter of a function below "
                "@app.workflow(); a test starts the workflow and calls redrive.testing.drain(app)"
            )
        object.__setattr__(self, "_conductor", conductor)

    # A body is replayed: what it assigns here would be lost when the run continues in another process.
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"flow.{name} cannot be assigned: a flow stores nothing in attributes; flow.set({name!r}, ...) stores a "
            "value of the run, which Run.value reads, and a local variable belongs to the body"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"flow.{name} cannot be deleted: a flow stores nothing in attributes")

    if not TYPE_CHECKING:
        __getattr__ = without("flow")

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return self._conductor.identity[0]

    @property
    def id(self) -> str:
        """The id of the run, unique in its workflow."""
        return self._conductor.identity[1]

    @property
    def version(self) -> int:
        """The version of the code that started the run."""
        return self._conductor.identity[2]

    @property
    def parking(self) -> bool:
        """True in ``finally`` and ``with`` blocks that run because the run gives its worker back, not at its end."""
        return self._conductor.parking

    def set(self, name: str, value: object) -> None:
        """Store a value that programs can read by `Run.value`, without a worker. It is written with the next step.

        Args:
            name: a text.
            value: anything that can be written as JSON; no bytes, no set, and no number that JSON does not have.

        Raises:
            PayloadError: the value cannot be written, or would be read as another one.
            ResultTooLarge: all values of the run together are larger than ``App(max_payload=...)``, 1 MiB.
            ConfigurationError: the name is empty.
        """
        checked_text(name, "flow.set(): the name")
        check_document(msgspec.json.encode({name: None}), "flow.set(): the values of a run", None)
        self._conductor.set(name, write_value(value, "flow.set(): the value") or b"null")

    def now(self) -> datetime:
        """Return the time of the last recorded step, which is the same in each replay; the start of the run at first.

        It costs no row. Use it in place of ``datetime.now()``.
        """
        return self._conductor.now()

    @property
    def random(self) -> FlowRandom:
        """A random number generator with a seed of the run, which returns the same numbers in each replay."""
        return self._conductor.random()

    def uuid(self) -> UUID:
        """Return a random UUID that is the same in each replay."""
        return UUID(int=self.random.getrandbits(128), version=4)

    def shield(self) -> AbstractContextManager[None]:
        """Return a ``with`` block in which no cancellation arrives; it arrives at the first step behind the block."""
        return self._conductor.shield()

    def patched(self, name: str) -> bool:
        """Return True if this run takes a change of the code, False if it has passed this place before the change.

        ``if flow.patched("invoice-first"): new code, else: old code``. The answer is recorded. When no run of the
        earlier code is left, remove the condition and the old code; rows of the patch are skipped then.

        Args:
            name: identifies the change.
        """
        return self._conductor.patched(checked_text(name, "flow.patched(): the name"), caller())

    def restart(self, *args: object, **kwargs: object) -> NoReturn:
        """End this body and begin the run anew, with these arguments and no recorded steps.

        For loops that would record more steps than a run may have. The run keeps its id, its values and its unread
        signals.

        Raises:
            PayloadError: the arguments do not fit the workflow.
        """
        self._conductor.restart(args, kwargs)


CURRENT: ContextVar[Flow | None] = ContextVar("redrive_flow", default=None)
"""The flow of the body that runs."""


def current_flow() -> Flow | None:
    """Return the flow of the ``async def`` workflow whose body runs here, in any task of it.

    None elsewhere, in the functions of steps, and in the bodies of ``def`` workflows. It is for libraries that record
    steps if they are called in a workflow; see `Flow.named`.
    """
    flow = CURRENT.get()
    return None if flow is None or flow._conductor.in_step else flow  # noqa: SLF001 - of the same module


class Flow(FlowBase):
    """What an ``async def`` workflow works with; its first parameter has this annotation.

    The body is replayed from its beginning whenever a worker continues the run. Steps that are recorded return their
    recorded values. Therefore the body must ask for the same steps in the same order each time: time, random numbers
    and I/O belong into steps, or come from `now`, `random` and `uuid`. Operations of redrive that write, such as
    ``enqueue`` and ``publish``, are refused in the body by `redrive.errors.FlowMisused`, and permitted in its steps.
    """

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
        retry: Policy | str | None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> FlowCall[R]: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: object,
        timeout: Duration | None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> FlowCall[R]: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: object,
        undo: Callable[[R], Any] | None,
        **kwargs: object,
    ) -> FlowCall[R]: ...
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
    ) -> FlowCall[R]: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[..., R],
        /,
        *args: object,
        timeout: Duration | None,
        undo: Callable[[R], Any] | None = None,
        **kwargs: object,
    ) -> FlowCall[R]: ...
    @overload
    def step(  # type: ignore[overload-cannot-match]
        self, function: Callable[..., R], /, *args: object, undo: Callable[[R], Any] | None, **kwargs: object
    ) -> FlowCall[R]: ...
    def step(
        self, function: Any, /, *args: Any, retry: Any = None, timeout: Any = None, undo: Any = None, **kwargs: Any
    ) -> FlowCall[Any]:
        """Call a function once and record its result; a replay returns the recorded result.

        If the process dies between the effect of the function and its record, the function is called again.

        Args:
            function: sync or async; a task is called here, too, and not enqueued. Its name identifies the step.
            *args: its arguments, which JSON must not change.
            retry: the policy of the step, a directive or a `Policy`; by default the ``steps=`` of the workflow, and
                without that the first failure is final. While the step waits for its next try the run holds no worker.
                Its hooks are called after a failed try, before that is recorded: again if the process dies then.
            timeout: the time limit of one try: a ``timedelta``, seconds, or text. Without it, and without one in the
                policy, a try may take as long as the attempt of the run.
            undo: a function that receives the result and takes the effect back. If the run fails for good or is
                cancelled, the undos of its steps run in reverse order.
            **kwargs: as ``args``.

        Returns:
            An awaitable for the result, as the return annotation of the function reads it from JSON.

        Raises:
            TaskDefinitionError: it is no function, has no name, or has a parameter that this method takes itself.
            PayloadError: the arguments do not fit the annotations, or cannot be written.
            PolicyError: the policy cannot be read.
            ResultTooLarge: awaited: the result is larger than a row may be. The step is not called again.
            StepFailed: awaited: the step failed for good, and the class of its exception cannot be imported. Otherwise
                an exception of that class is raised.
        """
        call = step_call(function, args, kwargs, retry=retry, timeout=timeout, undo=undo, line=caller())
        return FlowCall(self._conductor, call)

    def sleep(self, span: Duration) -> FlowCall[None]:
        """Wait for a time. The run holds no worker while it waits, and a restart does not begin the wait anew.

        Args:
            span: a ``timedelta``, seconds, or text such as ``"90s"`` or ``"1 day"``.

        Raises:
            PolicyError: the span cannot be read.
        """
        return FlowCall(self._conductor, SleepCall(long_span(span, "flow.sleep()"), None, caller()))

    def sleep_until(self, instant: datetime) -> FlowCall[None]:
        """Wait for an instant, which has a time zone; see `sleep`."""
        return FlowCall(self._conductor, SleepCall(None, aware(instant), caller()))

    @overload
    def wait_for(self, name: str, kind: type[T], /, *, timeout: Duration | None = None) -> FlowCall[T]: ...
    @overload
    def wait_for(self, name: str, /, *, timeout: Duration | None = None) -> FlowCall[Any]: ...
    def wait_for(self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None) -> FlowCall[Any]:
        """Wait for a signal to this run, which `Run.signal` sends, and return its value.

        Signals of one name are received in the order in which they were sent, each once; one that was sent before the
        run waits is kept.

        Args:
            name: of the signal.
            kind: the type of its value; by default plain JSON.
            timeout: the time to wait; None waits for ever.

        Raises:
            TimedOut: awaited: no signal came in time. That is recorded, and stays so if a signal comes later.
            PayloadError: awaited: the value does not fit the type. That is recorded, too: the signal is read, and the
                body may catch the error and wait for the next one. If the run dies of it, a retry waits anew, and
                `Run.supply` gives the value.
        """
        return FlowCall(self._conductor, wait_call(StepKind.WAIT, name, kind, timeout, caller()))

    @overload
    def wait_for_event(self, name: str, kind: type[T], /, *, timeout: Duration | None = None) -> FlowCall[T]: ...
    @overload
    def wait_for_event(self, name: str, /, *, timeout: Duration | None = None) -> FlowCall[Any]: ...
    def wait_for_event(self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None) -> FlowCall[Any]:
        """Wait for a value that `App.emit` publishes, and return it.

        The first emit of a name wins. Every run that waits for the name receives the value, also later ones.

        Args:
            name: of the event.
            kind: the type of its value; by default plain JSON.
            timeout: the time to wait; None waits for ever.

        Raises:
            TimedOut: awaited: nothing was emitted in time; see `wait_for`.
            PayloadError: awaited: the value does not fit the type. A retry of the run reads the same value, and
                `Run.supply` gives another one.
        """
        return FlowCall(self._conductor, wait_call(StepKind.EVENT, name, kind, timeout, caller()))

    @overload
    def gather(self, *branches: Awaitable[R], on_error: Literal["first", "wait"] = "first") -> FlowCall[list[R]]: ...
    @overload
    def gather(self, *branches: Awaitable[R], on_error: Literal["collect"]) -> FlowCall[list[R | Exception]]: ...
    def gather(self, *branches: Awaitable[Any], on_error: OnErrorName = "first") -> FlowCall[Any]:
        """Run branches at once, and return their results in their order.

        A branch is a call of this flow, such as ``flow.step(...)``, or a coroutine that makes such calls. The run gives
        its worker back when every branch waits.

        Args:
            *branches: the branches.
            on_error: what happens when a branch fails: ``"first"`` raises its error at once and drops the other
                branches; ``"wait"`` waits for all and raises the error of the first one that failed, in their order;
                ``"collect"`` waits for all and returns errors in the places of results.

        Raises:
            ConfigurationError: ``on_error`` is another word, or a branch is no awaitable, or was started already.
        """
        return FlowCall(self._conductor, gather_call("gather", _awaitables("gather", branches), on_error, None))

    def map(
        self,
        function: Callable[[T], Coroutine[Any, Any, R]] | Callable[[T], R],
        items: Iterable[T],
        /,
        *,
        at_once: int = 20,
        on_error: OnErrorName = "first",
        retry: Policy | str | None = None,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
    ) -> FlowCall[list[R]]:
        """Run one step for each item, so many at once, and return the results in the order of the items.

        Args:
            function: called with each item; see `step`.
            items: the items, which must be the same in each replay.
            at_once: steps at once; one that waits for its next try counts.
            on_error: see `gather`.
            retry: see `step`.
            timeout: see `step`.
            undo: see `step`.

        Raises:
            ConfigurationError: ``at_once`` is not positive, or the items are a set, which has no fixed order.
        """
        calls = [self.step(function, item, retry=retry, timeout=timeout, undo=undo) for item in ordered(items)]
        return FlowCall(self._conductor, map_call(function, calls, on_error, at_once))

    def first(self, *branches: Awaitable[R]) -> FlowCall[tuple[int, R]]:
        """Run branches at once, and return the number of the first that ends, from 0, and its result.

        The winner is recorded, so that each replay has the same one. The other branches are dropped. If the first to
        end fails, its error is raised.

        Args:
            *branches: as for `gather`; at least one.
        """
        return FlowCall(self._conductor, first_call(_awaitables("first", branches)))

    def call(self, workflow: Task[P, R, Any, ...], /, *args: P.args, **kwargs: P.kwargs) -> FlowCall[R]:
        """Start a child run, wait for its end, and return its result. The run holds no worker while it waits.

        The id of the child is made of the workflow and the id of this run and the path of the call:
        ``checkout/order-42/3``. If another run has that id, a number follows, as in ``checkout/order-42/3~17``. A
        cancellation of this run cancels it.

        Args:
            workflow: the workflow of the child.
            *args: its arguments.
            **kwargs: likewise.

        Raises:
            WaitsForItself: awaited: the child would be a run that waits for this one.
            ChildFailed: awaited: the child failed for good, or was cancelled.
            PayloadError: the arguments do not fit the child.
        """
        return FlowCall(self._conductor, child_call(workflow, args, kwargs))

    def transaction(self, function: Callable[..., Any], /, *args: object, **kwargs: object) -> FlowCall[Any]:
        """Call a function with a connection to the database of the app, and commit its writes and the record together.

        The effect of such a step takes place exactly once. If the database has ended the transaction without its
        effect, as by a deadlock or because its server goes, the function is called again. If the function raises, its
        writes are rolled back, and the step has failed: it is tried again as ``@app.workflow(steps=...)`` says.

        Args:
            function: takes the driver's own connection first (a `sqlite3.Connection` on SQLite), in a transaction that
                has begun, then the arguments. It must not commit. Keep it short: it holds the run's row.
            *args: its other arguments.
            **kwargs: likewise.

        Raises:
            ConfigurationError: awaited: the store has no connection to lend.
        """
        call = step_call(function, args, kwargs, retry=None, timeout=None, undo=None, line=caller(), transacted=True)
        return FlowCall(self._conductor, call)

    def named(self, name: str, *, inputs: object = None) -> NamedFlow:
        """Return calls of this flow with a name, which any asyncio task of the body may make.

        A library that uses tasks, task groups, queues or streams of asyncio or anyio works so in a workflow. A replay
        finds such a call by its kind, its name and its inputs, whatever other tasks do, and gives recorded ends to the
        body in the order in which it received them::

            await flow.named("charge").step(charge, order, retry="5 1s")
            await flow.named("weather", inputs=[city]).step(lambda: client.get(city))

        Args:
            name: any text; of calls with equal names and inputs the first one in a replay is the first one before.
            inputs: what identifies the call in place of its arguments, as for a closure: anything that can be written
                as JSON, and that is the same in each replay. None for the arguments.

        Raises:
            ConfigurationError: the name is empty, or begins with a colon.
            PayloadError: the inputs cannot be written as JSON.
        """
        # Most workflows have no named calls.
        from redrive.app.flows.named_flow import NamedFlow

        return NamedFlow(self._conductor, name, inputs)


def _awaitables(method: str, branches: Sequence[Any]) -> list[Any]:
    import asyncio

    for each in branches:
        if isinstance(each, asyncio.Future):
            raise ConfigurationError(
                f"flow.{method}(): a branch is a task of asyncio, which runs already; pass the coroutine itself"
            )
        if not isinstance(each, Awaitable):
            raise ConfigurationError(
                f"flow.{method}(): a branch is an awaitable, such as flow.step(...) or a coroutine, got {shown(each)}"
            )
    return list(branches)
