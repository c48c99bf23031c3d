"""Keeps the number of time series finite, whatever names a program makes up.

A metric has one series for each combination of its labels, and each costs memory in the process and in the database of
the metrics, for ever. Names of tasks and queues are few where people write them, but a queue for each tenant is made by
a program. So each label has a number of values that it may take; what comes later is counted as `OTHER`.
"""

from __future__ import annotations

from threading import Lock

__all__ = ["OTHER", "Bounded"]

OTHER = "other"


class Bounded:
    """Replaces the values of labels, once there are too many.

    Args:
        limit: distinct values of each label, `OTHER` not counted.

    Raises:
        ValueError: the limit is not positive.
    """

    def __init__(self, limit: int = 100) -> None:
        if limit < 1:
            message = f"a label needs room for one value at least, got limit={limit}"
            raise ValueError(message)
        self._limit = limit
        self._known: dict[str, set[str]] = {}
        self._lock = Lock()

    def value(self, label: str, value: str) -> str:
        """Say under which value something is counted.

        Args:
            label: name of the label.
            value: what it would be.

        Returns:
            The same, or `OTHER`.
        """
        known = self._known.get(label)
        if known is not None and value in known:
            return value
        with self._lock:
            known = self._known.setdefault(label, set())
            if len(known) < self._limit:
                known.add(value)
            return value if value in known else OTHER
