"""Store operations run step by step, with given answers instead of a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.stores.operations.clock import Instant
from redrive.stores.query import Compound, Operation, Query
from tests.stores.helpers import T0

CLOCK = [Instant(T0)]
"""The first row of the query ``clock`` in most tests."""


def converse(operation: Operation[Any], *answers: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Answer an operation's statements one by one; return its result and the statements that it ran."""
    asked = [next(operation.steps)]
    for number, answer in enumerate(answers, 1):
        try:
            asked.append(operation.steps.send(answer))
        except StopIteration as stop:
            assert number == len(answers)
            return stop.value, asked
    message = f"the operation wants more: {asked[-1]}"
    raise AssertionError(message)


def single(asked: list[Query | Compound]) -> list[Query]:
    """Return all statements, each by itself, in an order in which they may run."""
    return [each for query in asked for each in (query.queries if isinstance(query, Compound) else (query,))]


def names(asked: list[Query | Compound]) -> list[str]:
    """Return the names of all statements, in an order in which they may run."""
    return [query.name for query in single(asked)]
