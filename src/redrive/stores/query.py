"""The vocabulary of store operations. PURE.

An operation is a generator. It yields the statements to execute, receives their rows, and returns its result. It does
not depend on the database or on the colour of its caller, so it is written once for all dialects and both colours (ADR
0002). A driver executes each operation in one transaction, entirely or not at all; it translates errors of the database
and *throws* them *into* the generator, so that an operation may handle them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import msgspec

R = TypeVar("R")
P = ParamSpec("P")


class Drawn(Enum):
    """The type of `DRAWN`."""

    NUMBER = "number"


#: A parameter that the driver replaces by a random number below 2**53, another one for each row of `Query.many`.
DRAWN = Drawn.NUMBER


class Query(msgspec.Struct, frozen=True):
    """One statement to execute.

    Attributes:
        name: its name in the files of ``stores/statements``.
        params: its parameters by name.
        many: if given, the statement is executed for each of these, in no particular order, and returns the rows of
            all; a driver may execute one statement over arrays.
        into: the record that each row becomes; without it rows are tuples.
        own: True if what it writes may stay whatever follows, in this operation; see the header ``transaction: own``.
    """

    name: str
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)
    many: Sequence[Mapping[str, Any]] | None = None
    into: type | None = None
    own: bool = False


class Compound(msgspec.Struct, frozen=True):
    """Statements that a driver may execute as one; the answer has the rows of the last.

    None of them depends on the effects of another one, except on a database that executes them one after the other.
    """

    queries: tuple[Query, ...]


Rows: TypeAlias = Sequence[Any]
"""The answer to a query: records of ``Query.into``, or tuples."""

Statements: TypeAlias = Generator[Query | Compound, Rows, R]
"""The generator of an operation, or of a part of one."""


class Operation(msgspec.Struct, Generic[R], frozen=True):
    """A store operation, to be executed once."""

    name: str  # for logs and errors
    steps: Statements[R]  # the generator
    writes: bool  # True if it needs a write transaction
    wakes: bool = False  # True if it may create work, so that workers should be notified
    if_any: bool = False  # True if it has created none if its result is empty
    # An operation to commit first if this one becomes a part of the user's transaction: it writes rows that other
    # transactions need too, and would otherwise block them until the user commits. A database with one writer ignores
    # it.
    before: Operation[None] | None = None
    # The era of the store in which the caller has read what this operation relies on (`Store.era`). In another one it
    # is refused as unreachable, before it is sent. None if it relies on nothing.
    era: int | None = None


def reads(steps: Callable[P, Statements[R]]) -> Callable[P, Operation[R]]:
    """Turn a generator function that only reads into a function that returns operations."""
    return _operation(steps, writes=False)


def writes(steps: Callable[P, Statements[R]]) -> Callable[P, Operation[R]]:
    """Turn a generator function that writes into a function that returns operations."""
    return _operation(steps, writes=True)


# A settle does not wake workers: the worker that settles claims again by itself.
def wakes(steps: Callable[P, Statements[R]]) -> Callable[P, Operation[R]]:
    """Turn a generator function that may create work for workers into a function that returns operations."""
    return _operation(steps, writes=True, wakes=True)


# Every worker sweeps: without this, each sweep that finds nothing would have all workers poll for jobs.
def wakes_if_any(steps: Callable[P, Statements[R]]) -> Callable[P, Operation[R]]:
    """Turn a generator function that creates no work if its result is empty into one that returns operations."""
    return _operation(steps, writes=True, wakes=True, if_any=True)


def _operation(
    steps: Callable[P, Statements[R]], *, writes: bool, wakes: bool = False, if_any: bool = False
) -> Callable[P, Operation[R]]:
    @functools.wraps(steps)
    def build(*args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        return Operation(steps.__name__, steps(*args, **kwargs), writes, wakes, if_any)

    return build
