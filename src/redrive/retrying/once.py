"""Calls of functions that are declared ``idempotent=False``, inside of other retried calls.

The stricter of both declarations holds: whatever the policy of the caller allows, a failure with an unknown outcome is
not repeated. An exception that leaves such a function is marked for that; the mark is also found through the explicit
causes of another exception, such as the `TimeoutError` of a cancelled attempt.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from redrive.policy.classify import is_coroutine_function
from redrive.policy.failure import forbid_repetition
from redrive.retrying.context import SYSTEM, refuse_copies


def once_only(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function of the same kind whose failures in flight are not repeated by any call around it."""
    if is_coroutine_function(function):

        async def acalled(*args: Any, **kwargs: Any) -> Any:
            refuse_copies(name)
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                forbid_repetition(error, name, SYSTEM.monotonic())
                raise

        return functools.wraps(function)(acalled)

    def called(*args: Any, **kwargs: Any) -> Any:
        refuse_copies(name)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            forbid_repetition(error, name, SYSTEM.monotonic())
            raise

    return functools.wraps(function)(called)
