"""Functions as steps: their names, and the checks before a call is recorded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from redrive.app.arguments import earlier_names, only_started, shown
from redrive.app.flows.calls import GatherCall, Key, StepCall, StepFunction, Undo, checked_event, gather_call, long_span
from redrive.app.payload import Returns, Signature
from redrive.app.tasks.enqueue import durable_policy
from redrive.app.tasks.task import Task
from redrive.engine.runs import digest_of
from redrive.errors import PayloadError, TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.duration import Duration

#: The parameters that ``flow.step`` takes itself.
RESERVED: Final = frozenset({"retry", "timeout", "undo"})

_functions: WeakKeyDictionary[Callable[..., Any], StepFunction] = WeakKeyDictionary()

#: The names of functions that ``@app.step`` declares, and their earlier names.
_declared: WeakKeyDictionary[Callable[..., Any], tuple[str, tuple[str, ...]]] = WeakKeyDictionary()


def declare_step(function: object, name: str | None, aka: str | Iterable[str]) -> None:
    """Store the name under which a function is recorded as a step, and its earlier names."""
    if isinstance(function, Task):
        raise TaskDefinitionError(
            f"@app.step: {function.name!r} is a task, which is recorded by its own name: give name= and aka= to "
            "@app.task"
        )
    if not callable(function):
        raise TaskDefinitionError(f"@app.step() stands above a function, got {shown(function)}")
    known = getattr(function, "__name__", None)
    if name is None and not _is_name(known):
        raise TaskDefinitionError(f"@app.step: {shown(function)} has no name; give one, as in @app.step(name='charge')")
    label = checked_event(known if name is None else name, "@app.step(): the name")
    _declared[function] = label, earlier_names("step", label, aka)
    _functions.pop(function, None)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _name_of(function: Any) -> tuple[str, tuple[str, ...]] | None:
    """Return the name of a function as a step and its earlier names; None if it has no name."""
    try:
        declared = _declared.get(getattr(function, "__func__", function))
    except TypeError:
        declared = None
    if declared is not None:
        return declared
    name = getattr(function, "__name__", None)
    return (name, ()) if isinstance(name, str) and name.isidentifier() else None


def step_function(function: Any, label: str | None = None) -> StepFunction:
    """Return a function as a step, after a check that its calls can be recorded; a ``label`` is the name of a call."""
    if label is not None:
        step = step_function(function) if isinstance(function, Task) else _checked(_described(function, label))
        return replace(step, name=label, aka=())
    if isinstance(function, Task):
        if function.is_workflow:
            raise TaskDefinitionError(f"flow.step(): {function.name} is a workflow: a run calls it by flow.call()")
        name, *aka = function.names
        parts = function.direct, name, function.signature, function.returns
        return _checked(StepFunction(*parts, tuple(aka), function.traits.idempotent is False))
    try:
        known = _functions.get(function)
    except TypeError:
        known = None
    if known is None:
        known = _checked(_described(function))
        # A bound method is made anew for each call.
        if inspect.isfunction(function):
            _functions[function] = known
    return known


def _described(function: object, label: str | None = None) -> StepFunction:
    if not callable(function):
        hint = "; pass the function and its arguments, as in flow.step(charge, order)"
        if inspect.isawaitable(function):
            if inspect.iscoroutine(function):
                function.close()
            raise TaskDefinitionError(f"flow.step() takes a function, and got the call of one{hint}")
        raise TaskDefinitionError(f"flow.step() takes a function, got {shown(function)}{hint}")
    named = _name_of(function) if label is None else (label, ())
    if named is None:
        raise TaskDefinitionError(
            f"flow.step(): {shown(function)} has no name, and a step is recorded by its name: write a def function"
        )
    name, aka = named
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskDefinitionError(f"flow.step(): {name} is a generator function, and a step returns once")
    try:
        signature = Signature(function, name)
    except TaskDefinitionError as error:
        raise TaskDefinitionError(str(error).replace("task ", "step ", 1)) from None
    return StepFunction(function, name, signature, Returns(signature), aka)


def _checked(step: StepFunction) -> StepFunction:
    taken = RESERVED.intersection(step.signature.parameters)
    if taken:
        raise TaskDefinitionError(
            f"step {step.name!r}: a parameter cannot be called {min(taken)!r}, which flow.step() takes itself"
        )
    if step.signature.context is not None:
        raise TaskDefinitionError(
            f"step {step.name!r} takes a redrive.Context, and a step is no job: leave that parameter out"
        )
    step.returns.check_type()
    return step


@functools.lru_cache(maxsize=1024)
def _parsed(retry: Policy | str | None, timeout: timedelta | None, where: str) -> Policy:
    kind, _, name = where.partition(" ")
    policy = durable_policy(retry, name, kind=kind)
    if policy.catch is not None:
        raise TaskDefinitionError(
            f"{where}: the policy of a step has no catch: write try/except around flow.step(), or give the catch to "
            "@app.workflow(retry=...)"
        )
    return policy if timeout is None else policy.with_(attempt_timeout=timeout)


def step_policy(retry: Policy | str | None, timeout: Duration | None, where: str) -> Policy:
    """Return the complete policy of a step; without one, its first failure is final."""
    limit = None if timeout is None else long_span(timeout, f"{where}: timeout")
    try:
        return _parsed(retry, limit, where)
    except TypeError:
        return _parsed.__wrapped__(retry, limit, where)


def undo_of(undo: object, where: str) -> Undo:
    """Return the function that takes a step back."""
    if isinstance(undo, Task):
        if undo.is_workflow:
            raise TaskDefinitionError(f"{where}: undo= takes a function, and {only_started(undo.name)}")
        return Undo(undo.direct, undo.name, undo.traits.idempotent is False)
    named = _name_of(undo) or _name_of(getattr(undo, "func", None))
    if not callable(undo) or named is None:
        raise TaskDefinitionError(f"{where}: undo= takes a function of the result of the step, got {shown(undo)}")
    return Undo(undo, named[0])


def step_call(
    function: object,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    retry: Policy | str | None,
    timeout: Duration | None,
    undo: object,
    line: str,
    transacted: bool = False,
    key: Key | None = None,
) -> StepCall:
    """Describe a step; raise if its function, its arguments or its policy cannot be used."""
    step = step_function(function, None if key is None else key.name)
    if transacted:
        step = replace(step, signature=_without_first(step))
    is_open = retry is None and timeout is None
    policy = None if is_open else step_policy(retry, timeout, f"step {step.name!r}")
    digest = None if key is None else key.digest
    if digest is None:
        try:
            digest = digest_of(step.signature.write(args, kwargs, order="deterministic"))
        except PayloadError as error:
            unknown = next((name for name in kwargs if name not in step.signature.parameters), None)
            if unknown is None:
                raise
            from redrive.vocabulary import unknown_of_step

            raise unknown_of_step(error, unknown, RESERVED) from error.__cause__
    taken_back = None if undo is None else undo_of(undo, f"step {step.name!r}")
    named = None if key is None else replace(key, digest=digest)
    return StepCall(step, args, kwargs, policy, taken_back, digest, line, transacted, named)


def _without_first(step: StepFunction) -> Signature:
    """Return the signature of a function without its first parameter, which receives the connection."""
    names = list(step.signature.parameters)
    if not names:
        raise TaskDefinitionError(
            f"flow.transaction(): {step.name} takes no parameter; its first one receives the connection"
        )
    function, first = step.function, names[0]

    class _Rest(Signature):
        @functools.cached_property
        def payload(self) -> tuple[str, ...]:
            return tuple(name for name in self.parameters if name != first)

    return _Rest(function, step.name)


def map_call(function: object, branches: list[Any], on_error: str, at_once: int) -> GatherCall:
    """Describe branches that call one step each."""
    step = step_function(function)
    call = gather_call(f"map {step.name}", branches, on_error, at_once)
    return replace(call, aka=tuple(f"map {name}" for name in step.aka))
