"""The vocabulary of store operations."""

from __future__ import annotations

import pytest

from redrive.stores.query import Query, reads, writes


def steps(first: int, *, second: int = 0):
    """Add the answers."""
    rows = yield Query("one", {"first": first})
    return sum(rows) + second


def test_an_operation_declares_whether_it_writes():
    """Generator functions become operations with their name, which read or write as declared."""
    read, write = reads(steps)(1), writes(steps)(1)

    assert ("steps", False) == (read.name, read.writes)
    assert ("steps", True) == (write.name, write.writes)


def test_an_operation_runs_the_generator_of_its_function():
    """Generators of operations get the arguments that the operation was built with."""
    operation = writes(steps)(7, second=100)

    assert Query("one", {"first": 7}) == next(operation.steps)
    with pytest.raises(StopIteration) as stop:
        operation.steps.send([1, 2])
    assert 103 == stop.value.value


def test_each_call_builds_a_new_operation():
    """Operations run once; each call builds another generator."""
    build = reads(steps)

    assert build(1).steps is not build(1).steps


def test_an_operation_keeps_the_metadata_of_its_function():
    """Functions that build operations have the name and the docstring of the generator function."""
    assert ("steps", steps.__doc__) == (reads(steps).__name__, reads(steps).__doc__)
