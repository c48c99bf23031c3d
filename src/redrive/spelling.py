"""Errors about options and attributes that do not exist: they name what the user wrote, and what would be right.

The words are in `redrive.vocabulary`, which only an error loads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def spelled(written: str, example: str | None = None) -> Callable[[F], F]:
    """Return a decorator for a method or function whose error about its arguments is made by this project.

    Args:
        written: the call as users write it, such as ``@app.cron``.
        example: a whole call that is right, if the call needs parentheses: a function as its only argument is an error.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: object, **kwargs: object) -> Any:  # noqa: ANN401 - as the function
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

        return cast("F", called)

    return decorate


def without(kind: str) -> Callable[[object, str], Any]:
    """Return a ``__getattr__`` that raises the error about an attribute that objects of a kind do not have.

    Args:
        kind: of `redrive.vocabulary.ATTRIBUTES`.
    """

    def missing(self: object, name: str) -> Any:  # noqa: ANN401 - any attribute
        # A property whose function raises an AttributeError comes here, and raises it again.
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        from redrive.vocabulary import no_attribute

        raise no_attribute(self, kind, name, vars(self).get("name") if hasattr(self, "__dict__") else None)

    return missing
