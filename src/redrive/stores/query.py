"""The vocabulary of store operations. PURE.

An operation is a generator. It yields the statements that it wants run, each a `Query` with a name and parameters,
receives the rows, and returns its result. It knows neither the database nor whether anybody awaits: a driver drives
it (the habit of psycopg's ``generators.py``). So every operation is written once for all dialects and both colours,
and can be tested by hand with canned rows. The decision is ADR 0002.

A driver runs each operation in one transaction, entirely or not at all. Errors of the database are translated and
*thrown into* the generator, so that an operation may answer them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

__all__ = ["DRAWN", "Drawn", "Operation", "Query", "Rows", "Steps", "reads", "wakes", "writes"]

R = TypeVar("R")
P = ParamSpec("P")


class Drawn(Enum):
    """The type of `DRAWN`."""

    NUMBER = "number"


DRAWN = Drawn.NUMBER
"""A parameter whose value the driver draws: a random number below 2**53, for each row of `Query.many` another one."""


@dataclass(frozen=True, slots=True)
class Query:
    """One statement to be run.

    Attributes:
        name: of the statement, which is the name of its file.
        params: its parameters by name.
        many: where given, the statement runs for each of these, and yields the rows of all in no particular order: by
            one after the other, or as one statement over arrays.
        into: the record that each row becomes; without it rows are tuples.
        also: statements that are to run before this one or together with it. None of all these may need to see what
            another one does, nobody hears what these answer, and they have no ``also`` of their own.
        free: is it as good before the transaction as in it? What it writes may stay there if the operation fails, and
            it may be run twice.
        last: is it the last one of its operation, and does nobody hear what it answers? If there was nothing but free
            ones before it, it is the whole transaction.
        complete: may what it writes stay, whatever becomes of what follows? If there was nothing but free ones before
            it, it is a transaction by itself, and what follows is another one.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    many: Sequence[Mapping[str, Any]] | None = None
    into: type | None = None
    also: tuple[Query, ...] = ()
    free: bool = False
    last: bool = False
    complete: bool = False


Rows: TypeAlias = Sequence[Any]
"""What a query answers: records of ``Query.into``, or tuples."""

Steps: TypeAlias = Generator[Query, Rows, R]
"""The conversation of an operation with its driver."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[R]):
    """A store operation, ready to be run once.

    Attributes:
        name: for logs and errors.
        steps: the generator.
        writes: does it need a write transaction?
        wakes: may it give workers something to do, so that they should look?
        before: what is to be committed first if this one runs in a transaction of the user's: rows that jobs of other
            transactions need too, which would else wait for the end of that one. A database with one writer ignores it.
    """

    name: str
    steps: Steps[R]
    writes: bool
    wakes: bool = False
    before: Operation[None] | None = None


def reads(steps: Callable[P, Steps[R]]) -> Callable[P, Operation[R]]:
    """Make an operation of a generator function that only reads.

    Args:
        steps: the generator function.

    Returns:
        A function that builds the operation.
    """
    return _operation(steps, writes=False)


def writes(steps: Callable[P, Steps[R]]) -> Callable[P, Operation[R]]:
    """Make an operation of a generator function that writes.

    Args:
        steps: the generator function.

    Returns:
        A function that builds the operation.
    """
    return _operation(steps, writes=True)


def wakes(steps: Callable[P, Steps[R]]) -> Callable[P, Operation[R]]:
    """Make an operation of a generator function that writes something that workers wait for, such as a due job.

    A settle is none of these: the worker that settles looks by itself afterwards.

    Args:
        steps: the generator function.

    Returns:
        A function that builds the operation.
    """
    return _operation(steps, writes=True, wakes=True)


def _operation(steps: Callable[P, Steps[R]], *, writes: bool, wakes: bool = False) -> Callable[P, Operation[R]]:
    @functools.wraps(steps)
    def build(*args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        return Operation(steps.__name__, steps(*args, **kwargs), writes, wakes)

    return build
