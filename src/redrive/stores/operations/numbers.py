"""Numbers that are handed out once and never again: ids of jobs, leases and workers. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable

from redrive.stores.query import Query, Rows

__all__ = ["numbers", "take"]


def take(name: str, count: int) -> Generator[Query, Rows, list[int]]:
    """Take numbers as a part of a larger operation.

    Args:
        name: of the sequence: ``job``, ``lease`` or ``worker``.
        count: how many.

    Returns:
        The numbers, ascending.
    """
    return numbers((yield Query("take", {"name": name, "count": count})))


def numbers(blocks: Iterable[tuple[int, int]]) -> list[int]:
    """List the numbers of blocks.

    A database answers blocks, each by its first and its last number. SQLite, which has one writer, answers one block.
    On PostgreSQL the numbers come from a sequence, so that nobody waits for anybody, and need not be neighbours.

    Args:
        blocks: as the database answers them.

    Returns:
        The numbers, ascending.
    """
    return sorted(itertools.chain.from_iterable(range(first, last + 1) for first, last in blocks))
