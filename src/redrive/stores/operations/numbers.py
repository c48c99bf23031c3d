"""Numbers that are handed out once and never again: ids of jobs, leases and workers. PURE."""

from __future__ import annotations

from collections.abc import Generator

from redrive.stores.query import Query, Rows

__all__ = ["take"]


def take(name: str, count: int) -> Generator[Query, Rows, list[int]]:
    """Take numbers as a part of a larger operation.

    A database answers blocks, each by its first and its last number. SQLite, which has one writer, answers one block.
    On PostgreSQL the numbers come from a sequence, so that nobody waits for anybody, and need not be neighbours.

    Args:
        name: of the sequence: ``job``, ``lease`` or ``worker``.
        count: how many.

    Returns:
        The numbers, ascending.
    """
    rows = yield Query("take", {"name": name, "count": count})
    return sorted(number for first, last in rows for number in range(first, last + 1))
