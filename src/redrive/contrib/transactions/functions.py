"""The decorator behind ``transactional`` of each library."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from redrive.contrib.sqlstate import FailureReader, classifier
from redrive.contrib.transactions.block import TransactionBlock
from redrive.policy import Policy
from redrive.retrying.decorator import retry

__all__ = ["decorator"]

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


def decorator(
    enter: Callable[[], TransactionBlock[C]], policy: Policy | str, read: FailureReader
) -> Callable[[Callable[Concatenate[C, P], T]], Callable[P, T]]:
    """Return a decorator that runs each call of a function in a transaction and retries it."""
    given = Policy.parse(policy) if isinstance(policy, str) else policy
    on = given.on
    if on is None or not callable(on):
        given = given.with_(on=classifier(read, on))

    def decorate(function: Callable[Concatenate[C, P], T]) -> Callable[P, T]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is a generator, which would go on after its transaction: return a list")
        attempt = (
            _async_attempt(enter, function) if inspect.iscoroutinefunction(function) else _attempt(enter, function)
        )
        functools.update_wrapper(attempt, function)
        signature = inspect.signature(function)
        attempt.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
        return cast("Callable[P, T]", retry(given)(attempt))

    return decorate


def _attempt(enter: Callable[[], TransactionBlock[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(*args: object, **kwargs: object) -> object:
        with enter() as given:
            return function(given, *args, **kwargs)

    return attempt


def _async_attempt(enter: Callable[[], TransactionBlock[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    async def attempt(*args: object, **kwargs: object) -> object:
        async with enter() as given:
            return await function(given, *args, **kwargs)

    return attempt
