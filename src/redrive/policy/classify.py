"""Classification: matching of failures against names of exception types and of reasons.

Policies hold names instead of classes, so that they can be compared, hashed and stored, and so that a failure that was
read from a database matches like a live one. Three rules come before every match:

* Exceptions that end a program or a task (`NEVER`) are never retried.
* A failure with a settled ``candidate`` keeps it.
* An exception group is judged by its leaves, unless its own type is named.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from types import FunctionType, MethodType
from typing import Any, TypeAlias, TypeVar, cast

from redrive.errors import CoroutineReturned, PolicyValueError
from redrive.policy.duration import parse_duration
from redrive.policy.failure import Failure, forbidden_by, qualified_name
from redrive.policy.known import describe
from redrive.policy.reason import is_reason_name, refuse_unknown
from redrive.policy.stage import Stage

Answer: TypeAlias = bool | str | float | timedelta | Failure | None
"""The result of a classifier."""
Classifier: TypeAlias = Callable[[BaseException], Answer | Awaitable[Answer]]
"""In process only: returns for an exception True or False, its reason, the delay before its retry (a ``timedelta`` or
seconds), or the whole `Failure`."""
Predicate: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
"""In process only: given a result, returns True if it counts as a failure (``on_result``)."""

R = TypeVar("R")
_One: TypeAlias = type[BaseException] | str
On: TypeAlias = _One | Iterable[_One] | Classifier
"""The values that ``on`` accepts."""

# Control flow, not failure: never a candidate. trio's is known by name, so that trio need not be installed.
NEVER = frozenset(
    {
        "asyncio.exceptions.CancelledError",
        "builtins.GeneratorExit",
        "builtins.KeyboardInterrupt",
        "builtins.SystemExit",
        "concurrent.futures._base.CancelledError",
        # An error of the program that would come again.
        "redrive.errors.CoroutineReturned",
        "trio.Cancelled",
        "trio._core._exceptions.Cancelled",
    }
)

_ANY = frozenset({"builtins.Exception", "builtins.BaseException"})


def names_of(on: _One | Iterable[_One], field: str) -> tuple[str, ...]:
    """Return exception types and reason names as sorted, unique names."""
    items: Iterable[object] = (on,) if isinstance(on, str | type) else on
    try:
        names = sorted({_name_of(item, field) for item in items})
    except TypeError as error:
        if "not iterable" not in str(error):
            raise
        raise PolicyValueError(f"{field}={on!r}: name exception types or reasons") from error
    if not NEVER.isdisjoint(names):
        never = ", ".join(name.rpartition(".")[2] for name in names if name in NEVER)
        raise PolicyValueError(f"{field}: {never} ends a program or a task and is never retried: name other failures")
    if not names:
        raise PolicyValueError(f"{field} is empty, so no failure could match; for no retries use attempts=1")
    return tuple(names)


def _name_of(item: object, field: str) -> str:
    if isinstance(item, type):
        if issubclass(item, BaseException):
            return qualified_name(item)
    elif isinstance(item, str) and item:
        refuse_unknown(item, field)
        if "." in item or is_reason_name(item):
            return item
        if isinstance(getattr(builtins, item, None), type):
            return f"builtins.{item}"
    raise PolicyValueError(
        f"{field}: {item!r} is neither an exception type, nor its qualified name, nor the name of a reason"
    )


def reading(
    read: Callable[[BaseException], Failure | None], on: On | None, named: Iterable[str] = ()
) -> Callable[[BaseException], Failure | None]:
    """Return a classifier that describes exceptions with a function and retries only those that are named.

    A function given as ``on`` decides alone what is retried. With this one, the names of a stored policy stay in force:
    ``policy.with_(on=reading(read, policy.on))``. A lasting failure is retried if its reason is one of these names,
    or if ``on`` selects its class and ``named`` has its reason.
    """
    if callable(on) and not isinstance(on, type):
        raise PolicyValueError(f"on={on!r} is a classifier already: give names, or combine the two functions yourself")
    names = None if on is None else frozenset(names_of(on, "on"))
    reasons = frozenset(named)

    def classify(exception: BaseException) -> Failure | None:
        failure = read(exception)
        if failure is None or failure.candidate is not None:
            return failure
        if failure.lasting is not None and names is not None:
            # A class stands for many failures, and selects from those that can pass.
            selected = failure.reason in names or (failure.reason in reasons and matches(names, "all", failure))
            return failure._replace(candidate=selected)
        return failure._replace(candidate=matches(names, "all", failure))

    return classify


# The flags of code objects, as in `inspect`; its import costs more than this package.
_COROUTINE, _ITERABLE_COROUTINE = 0x80, 0x100


def code_flags(function: object) -> int:
    """Return the code flags of the function that a callable (partial, method or callable object) calls."""
    while not isinstance(function, FunctionType):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            function = type(function).__call__
            if not isinstance(function, FunctionType):
                return 0
    # A program that marks a function as a coroutine function has imported it.
    inspect = sys.modules.get("inspect")
    marked = inspect is not None and inspect.iscoroutinefunction(function)
    # The mark of asyncio, before Python 3.12.
    marked = marked or getattr(function, "_is_coroutine", None) is not None
    return function.__code__.co_flags | (_COROUTINE if marked else 0)


def is_coroutine_function(function: object) -> bool:
    """Return True if the calls of a callable must be awaited."""
    return bool(code_flags(function) & (_COROUTINE | _ITERABLE_COROUTINE))


def refuse_async(function: Callable[..., Any], instead: str) -> None:
    """Raise PolicyValueError if a function that is to be called without ``await`` is a coroutine function."""
    # Nearly all callables are functions or methods. To look at these alone is a fraction of a call.
    code = getattr(function, "__code__", None)
    if is_coroutine_function(function) if code is None else code.co_flags & (_COROUTINE | _ITERABLE_COROUTINE):
        raise PolicyValueError(
            f"{function!r} is a coroutine function, and a call without `await` would only make a coroutine and retry "
            f"nothing: write `{instead}`"
        )


def refuse_coroutine_function(function: object, field: str) -> None:
    """Raise PolicyValueError if a field is a coroutine function, because its coroutine would always be true."""
    if callable(function) and not isinstance(function, type) and is_coroutine_function(function):
        raise PolicyValueError(f"{field}={function!r} is a coroutine function, which cannot be awaited here: use def")


def _must_be_awaited(kind: type) -> bool:
    """Return True for coroutines and futures; an object that can be awaited, such as a pool, may be meant as it is."""
    return hasattr(kind, "__await__") and (hasattr(kind, "send") or hasattr(kind, "_asyncio_future_blocking"))


# Kept, because asking a class for an attribute that it does not have costs a tenth of a call. The cache is bounded, as
# that of `redrive.policy.failure`.
must_be_awaited = cast("Callable[[type], bool]", functools.lru_cache(1024)(_must_be_awaited))


def refuse_coroutine(result: R, function: object) -> R:
    """Return the result of a function; raise `CoroutineReturned` if it is a coroutine or a future."""
    kind = type(result)
    if not must_be_awaited(kind):
        return result
    is_coroutine = hasattr(kind, "send")
    # A coroutine that is dropped would be reported as one that was never awaited.
    end = getattr(result, "close" if is_coroutine else "cancel", None)
    if end is not None:
        end()
    what = "a coroutine" if is_coroutine else "a future"
    raise CoroutineReturned(
        f"{function!r} returned {what}, which nothing awaits here, so that its failures could not be retried: decorate "
        "an `async def` function that awaits it, or use a form that awaits what a function returns: policy.acall, "
        "policy.aoutcome, or `async for attempt in policy`"
    )


def described(exception: BaseException, answer: Answer, stage: Stage | None) -> Failure:
    """Describe an exception from the result of a classifier."""
    if isinstance(answer, Failure):
        candidate = answer.lasting is None if answer.candidate is None else answer.candidate
        return answer._replace(candidate=candidate, once=answer.once or forbidden_by(exception))
    failure = describe(exception, reason=answer if isinstance(answer, str) else None, stage=stage)
    if failure.candidate is not None:
        return failure
    delay = delay_of(answer)
    if delay is not None:
        # The same as a `RetryAfter` that the function raises.
        return failure._replace(reason="RETRY_AFTER", hint=delay, candidate=True)
    return failure._replace(candidate=bool(answer))


def delay_of(answer: Answer) -> timedelta | None:
    """Return the delay that a classifier has returned; None if its result is no delay."""
    if isinstance(answer, bool) or not isinstance(answer, timedelta | float | int):
        return None
    try:
        return parse_duration(answer)
    except PolicyValueError as error:
        raise PolicyValueError(f"on: a classifier returned {answer!r}: {error}") from None


def answer_of(answer: object, field: str, function: object) -> Any:  # noqa: ANN401 - of either kind
    """Return the result of a predicate or a classifier; refuse an awaitable, which would always count as true."""
    if not hasattr(type(answer), "__await__"):
        return answer
    if hasattr(answer, "close"):
        # A coroutine that is dropped would be reported as one that was never awaited.
        answer.close()
    raise PolicyValueError(
        f"{field}={function!r} returned an awaitable where nothing awaits it: give the coroutine function itself, and "
        "use a form that awaits it: an async function under @redrive.retry, policy.acall or policy.aoutcome"
    )


def is_control_flow(failure: Failure) -> bool:
    """Return True if a failure, or a leaf of it, is never a candidate."""
    return not NEVER.isdisjoint(failure.types) or any(is_control_flow(leaf) for leaf in failure.leaves)


def matches(names: frozenset[str] | None, groups: str, failure: Failure) -> bool:
    """Return True if a failure is one of those named (None: any ``Exception`` that is not lasting).

    Control flow is not checked.
    """
    if not failure.leaves:
        if names is None:
            return failure.lasting is None and (not failure.types or "builtins.Exception" in failure.types)
        return failure.reason in names or not names.isdisjoint(failure.types) or "builtins.BaseException" in names
    if names is not None and not (names - _ANY).isdisjoint(failure.types):
        # The type of the group itself is named.
        return True
    if groups == "never":
        return False
    each = [matches(names, groups, leaf) for leaf in failure.leaves]
    return all(each) if groups == "all" else any(each)
