"""Seams: the calls from a lower layer to a higher one, all listed in this file.

Imports point downward only. A method such as ``policy.call(fn)`` nevertheless needs a higher layer that waits. The
lower layer declares a Protocol and calls a `Seam`, which imports the provider at the first call. A second ``Policy``
class in the higher layer would break equality and unpickling; registration at import would depend on what else has
been imported.

`spelled` and `without` explain options and attributes that do not exist by the words of `redrive.vocabulary`, which
only an error loads. They are here because another module would cost each start of a program a fifth of a millisecond.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from types import FunctionType

__all__ = [
    "FAILURE_READERS",
    "Seam",
    "command_line",
    "composed_schedules",
    "in_process",
    "main",
    "policy_from_dict",
    "policy_operators",
    "policy_to_dict",
    "refuse_task",
    "spelled",
    "without",
]


class Seam:
    """A reference to an object of a higher layer, imported at its first use.

    Args:
        provider: ``module:attribute``.
    """

    __slots__ = ("_found", "_provider")

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._found: Any = None

    def __call__(self) -> Any:
        """Return the object; its type is a Protocol of the calling layer."""
        if self._found is None:
            module, _, attribute = self._provider.partition(":")
            self._found = getattr(import_module(module), attribute)
        return self._found


# Carries out calls in this process: `redrive.policy.call_methods.Runner`.
in_process: Seam = Seam("redrive.retrying.runner:RUNNER")

# The operators on policies by their sign. Combinations are policies, so their module imports that of the policy.
policy_operators: Seam = Seam("redrive.policy.algebra:OPERATORS")

# Writes a policy as JSON-able data. The codec imports the policy, because it builds policies.
policy_to_dict: Seam = Seam("redrive.policy.codec:policy_to_dict")

# Reads a policy from JSON-able data.
policy_from_dict: Seam = Seam("redrive.policy.codec:policy_from_dict")

# The schedules made of schedules, by their kind. They are backoffs, so their module imports that of the backoff.
composed_schedules: Seam = Seam("redrive.policy.compose:COMPOSED")

# Describe the exceptions of a library, by its top-level module: `redrive.policy.known.Reader`.
FAILURE_READERS: Mapping[str, Seam] = {
    "aiohttp": Seam("redrive.contrib.aiohttp:failure_of"),
    "anthropic": Seam("redrive.contrib.http.models:failure_of"),
    "asyncpg": Seam("redrive.contrib.asyncpg:failure_of"),
    "couchbase": Seam("redrive.contrib.couchbase.sdk:failure_of"),
    "grpc": Seam("redrive.contrib.grpc.classify:describe"),
    "httpx": Seam("redrive.contrib.httpx:failure_of"),
    "httpx2": Seam("redrive.contrib.httpx2:failure_of"),
    "openai": Seam("redrive.contrib.http.models:failure_of"),
    "psycopg": Seam("redrive.contrib.psycopg:failure_of"),
    "psycopg_pool": Seam("redrive.contrib.psycopg:failure_of"),
    "pydantic_ai": Seam("redrive.contrib.pydantic_ai:failure_of"),
    "redis": Seam("redrive.contrib.redis.replies:failure_of"),
    "requests": Seam("redrive.contrib.requests:failure_of"),
    "sqlalchemy": Seam("redrive.contrib.sqlalchemy:failure_of"),
}

# The command line and its entry point. Django looks for the command of ``manage.py`` inside of its integration.
command_line: Seam = Seam("redrive.cli:cli")
main: Seam = Seam("redrive.cli:main")


# The flag of the code of an ``async def``; importing `inspect` costs more than this module.
_COROUTINE = 0x80

F = TypeVar("F", bound=Callable[..., Any])


def spelled(written: str, example: str | None = None) -> Callable[[F], F]:
    """Return a decorator for a method or function whose error about its arguments is made by this project.

    Args:
        written: the call as users write it, such as ``@app.cron``.
        example: a whole call that is right, if the call needs parentheses: a function as its only argument is an error.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: object, **kwargs: object) -> Any:
            if example is not None and not kwargs and args and hasattr(args[-1], "__code__"):
                from redrive.vocabulary import without_parentheses

                raise without_parentheses(written, example, args[-1])
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                frames = error.__traceback__
                # An error of the call itself: no frame of the function was entered.
                if frames is None or frames.tb_next is not None:
                    raise
                from redrive.vocabulary import wrong_arguments

                raise wrong_arguments(written, example, function, kwargs, error) from None

        if not cast("FunctionType", function).__code__.co_flags & _COROUTINE:
            return cast("F", called)

        @functools.wraps(function)
        async def acalled(*args: object, **kwargs: object) -> Any:
            return await called(*args, **kwargs)

        return cast("F", acalled)

    return decorate


def without(kind: str) -> Callable[[object, str], Any]:
    """Return a ``__getattr__`` that raises the error about an attribute that objects of a kind do not have.

    Args:
        kind: of `redrive.vocabulary.ATTRIBUTES`.
    """

    def missing(self: object, name: str) -> Any:
        # A property whose function raises an AttributeError comes here, and raises it again.
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        from redrive.vocabulary import no_attribute

        raise no_attribute(self, kind, name, vars(self).get("name") if hasattr(self, "__dict__") else None)

    return missing


def refuse_task(written: str, function: object) -> None:
    """Raise a `TypeError` if a decorator that returns a plain function is given a task, which would lose ``enqueue``.

    Args:
        written: the decorator as users write it, such as ``@redrive.retry``.
        function: what the decorator got.
    """
    if type(function).__module__.startswith("redrive.app."):
        from redrive.vocabulary import above_task

        raise above_task(written, function)
