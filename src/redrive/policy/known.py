"""The exceptions of libraries, described by the integrations of redrive wherever a policy meets them.

A client raises its own exceptions also where no integration wraps it: in a plain function, in a task, in a step. What
the integration reads from them (the reason, how far the call got, the delay that the server asks for, and whether
another attempt would fail alike) holds there as well. An exception that was raised ``from`` one of them keeps its own
classes and message, and has the rest from its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias, cast

from redrive.errors.foreign import cause_of
from redrive.policy.failure import Failure, flatten, forbidden_by, of_leaves
from redrive.policy.stage import Stage, stage_of_one
from redrive.seams import FAILURE_READERS

__all__ = ["describe", "reader_of"]

Reader: TypeAlias = Callable[[BaseException], Failure | None]
"""The function of an integration that describes an exception of its library; None for others."""


def _reader_of(kind: type[BaseException]) -> Reader | None:
    for base in kind.__mro__:
        provider = FAILURE_READERS.get(str(base.__module__).partition(".")[0])
        if provider is not None:
            try:
                return cast("Reader", provider())
            except ImportError:
                # A module of the program has the name of a library that is not installed, or that is too old.
                return None
    return None


# The cache is bounded, as that of `redrive.policy.failure.names_of_class`.
_kept_reader_of = cast("Callable[[type[BaseException]], Reader | None]", lru_cache(1024)(_reader_of))


def reader_of(kind: type[BaseException]) -> Reader | None:
    """Return the reader of the integration for a class of exceptions; None if its library has none."""
    try:
        return _kept_reader_of(kind)
    except Exception:  # noqa: BLE001 - a metaclass may refuse to be hashed, or raise
        return _reader_of(kind)


def describe(exception: BaseException, *, reason: str | None = None, stage: Stage | None = None) -> Failure:
    """Describe an exception, with what an integration reads from it or from its explicit causes.

    Args:
        exception: the exception. What a signal in it has settled is kept.
        reason: name of the reason; by default that of the integration, or see `Failure.of`.
        stage: how far the call got; by default what an integration knows, or else what the exception proves. An
            exception that was in flight stays so, whatever an integration knows about its cause.
    """
    failure = Failure.of(exception, reason=reason, stage=stage)
    if not failure.leaves and cause_of(exception) is None and reader_of(type(exception)) is None:
        # By far the most.
        return failure
    if failure.leaves:
        group = cast("BaseExceptionGroup[BaseException]", exception)
        return of_leaves(failure, [describe(leaf, stage=stage) for leaf in flatten(group)], stage)
    if failure.permanent is not None or failure.candidate is not None:
        return failure
    found = _read(exception)
    if found is None:
        return failure
    hints = [hint for hint in (failure.hint, found.hint) if hint is not None]
    # Whether that one request can be repeated (`Failure.permanent`) says nothing about the code around it.
    return failure._replace(
        reason=reason or found.reason,
        stage=stage or found.stage,
        hint=max(hints, default=None),
        lasting=found.lasting,
        # A class without a stage of its own was not asked for it.
        once=failure.once or forbidden_by(exception),
    )


def _read(exception: BaseException) -> Failure | None:
    """Return what an integration reads from an exception or from the first of its causes that one knows.

    If an exception around that cause was in flight, so is the whole.
    """
    is_lost = False
    for link in _causes(exception):
        read, found = reader_of(type(link)), None
        # The methods of a foreign exception may raise anything.
        with suppress(Exception):
            found = None if read is None else read(link)
        if found is not None:
            return found._replace(stage=Stage.IN_FLIGHT) if is_lost else found
        is_lost = is_lost or stage_of_one(link) is Stage.IN_FLIGHT
    return None


def _causes(exception: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = exception
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = cause_of(link)
