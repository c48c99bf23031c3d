"""The decorator ``@redrive.retry`` for functions of every kind.

The kind of a function is determined once, when it is decorated. Mistakes are errors at that time, with the name of the
function: a policy without the errors that may be retried, a directive with a catch task, a class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from redrive.errors import PolicyValueError
from redrive.policy import Policy
from redrive.policy.classify import code_flags
from redrive.policy.fields import FIELDS
from redrive.retrying import loops
from redrive.retrying.context import SCOPE, SYSTEM
from redrive.retrying.plan import Plan, name_of
from redrive.retrying.state import CallState
from redrive.retrying.wrapper import Parts, compile_wrapper
from redrive.seams import refuse_task

if TYPE_CHECKING:
    from redrive.retrying.generators import Mode

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")


class Decorator(Protocol):
    """A decorator that returns a function of the same type."""

    def __call__(self, function: F, /) -> F:
        """Decorate a function."""
        ...


class _Retry(Protocol[P]):
    """The type of `retry`, with the arguments of `redrive.policy.Policy`; ``generator`` is a keyword, too."""

    def __call__(
        self,
        policy: Policy | str | None = None,
        /,
        generator: Mode = "until_first_item",
        *fields: P.args,
        **more: P.kwargs,
    ) -> Decorator:
        """See `retry`."""
        ...


def _with_arguments_of(constructor: Callable[P, Policy]) -> Callable[[Callable[..., Decorator]], _Retry[P]]:  # noqa: ARG001 - for its type
    """Give a function the keyword arguments of a constructor, for type checkers."""
    return lambda function: cast("_Retry[P]", function)


@_with_arguments_of(Policy)
def retry(policy: Policy | str | None = None, /, *, generator: Mode = "until_first_item", **fields: Any) -> Decorator:
    """Return a decorator that retries calls of a function under a policy.

    The function may be plain, async, a generator or an async generator, a method, a classmethod or a staticmethod; the
    decorated one has the same type and signature. A call that succeeds at once costs no more than a loop written by
    hand.

    In async code an ``attempt_timeout``, and a deadline that is given, cancel an attempt with a `TimeoutError`; it is
    retried if ``on`` names it and the policy is ``idempotent``. In sync code no attempt is interrupted; the called code
    can read the time that is left from `redrive.deadline`.

    Args:
        policy: a policy, or a directive such as ``"5 100ms 2s"`` (5 retries after 100 ms, 200 ms, ... up to 2 s).
        generator: for generators: ``until_first_item``, ``restart`` or `redrive.resume`; see
            `redrive.retrying.generators`.
        **fields: fields of the policy by name, as `redrive.policy.Policy` takes them; they replace those of ``policy``.
            ``on``, the failures that may be retried, is required unless the policy has it or checks results.

    Returns:
        The decorator. The function it returns has the policy as its attribute ``policy``.

    Raises:
        PolicySyntaxError: the directive cannot be read.
        PolicyValueError: the policy has no sensible meaning, or (when a function is decorated) does not name what is
            retried.
        TypeError: ``policy`` is not a policy, or (when a function is decorated) the object is a class, a task, or
            not callable.
    """
    if policy is not None and not isinstance(policy, Policy | str):
        raise TypeError(f"retry() takes a policy or a directive, not {policy!r}: write @retry(..., on=SomeError)")
    if not fields.keys() <= FIELDS.keys():
        from redrive.vocabulary import unknown_option

        raise unknown_option("@redrive.retry", next(name for name in fields if name not in FIELDS), [*FIELDS])
    if fields.get("on", ...) is None:
        del fields["on"]
    base = Policy.parse(policy) if isinstance(policy, str) else policy
    given = Policy(**fields) if base is None else base.with_(**fields) if fields else base

    def decorate(function: object) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return type(function)(decorate(function.__func__))
        refuse_task("@redrive.retry", function)
        if isinstance(function, type) or not callable(function):
            what = "a class; decorate its methods" if isinstance(function, type) else "no function"
            raise TypeError(f"retry() cannot decorate {function!r}: it is {what}")
        plan = Plan(given, name_of(function))
        wrapper = functools.update_wrapper(cast("FunctionType", _wrapper(function, plan, generator)), function)
        wrapper.policy = given  # type: ignore[attr-defined]  # for users, to read or override it
        return wrapper

    return cast("Decorator", decorate)


# The flags of code objects, as in `inspect`; importing that costs more than importing this module.
_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


def _wrapper(function: Callable[..., Any], plan: Plan, mode: Mode) -> Callable[..., Any]:
    flags = code_flags(function)
    if flags & (_GENERATOR | _ASYNC_GENERATOR) and not flags & _ITERABLE_COROUTINE:
        from redrive.retrying import generators

        return generators.wrap(function, plan, mode, is_async=bool(flags & _ASYNC_GENERATOR))
    if mode != "until_first_item":
        raise PolicyValueError(f"{plan.name}: generator={mode!r}, but it is not a generator function")
    is_async = bool(flags & (_COROUTINE | _ITERABLE_COROUTINE))
    if not is_async:
        plan.refuse_hedge("not one")
        plan.refuse_await("a plain function")
    if plan.direct:
        return compile_wrapper(function, plan, _ASYNC if is_async else _SYNC, is_async=is_async)
    if is_async:

        async def awrapper(*args: object, **kwargs: object) -> Any:
            return await loops.acall(plan, function, args, kwargs)

        return awrapper

    def wrapper(*args: object, **kwargs: object) -> Any:
        return loops.call(plan, function, args, kwargs)

    return wrapper


_SYNC = Parts(SCOPE.get, SYSTEM.monotonic, loops.call, CallState.begin, SCOPE.set, SCOPE.reset)
_ASYNC = Parts(SCOPE.get, SYSTEM.monotonic, loops.acall, CallState.begin, SCOPE.set, SCOPE.reset)
