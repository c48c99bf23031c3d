"""A limit on the label values of metrics, so that the number of time series stays finite.

A metric has one series for each combination of its labels, and each costs memory in the process and in the database of
the metrics. Names of tasks and queues are few if programmers write them, but a program may generate a queue per tenant.
So each label has a maximum number of values; later values are counted as `OTHER`.
"""

from __future__ import annotations

from threading import Lock

__all__ = ["OTHER", "Bounded"]

OTHER = "other"


class Bounded:
    """A filter that replaces label values beyond a limit.

    Args:
        limit: distinct values of each label, `OTHER` not counted.
    """

    def __init__(self, limit: int = 100) -> None:
        if limit < 1:
            message = f"a label needs room for one value at least, got limit={limit}"
            raise ValueError(message)
        self._limit = limit
        self._known: dict[str, set[str]] = {}
        self._lock = Lock()

    def value(self, label: str, value: str) -> str:
        """Return the value under which to count, which is the given one or `OTHER`."""
        known = self._known.get(label)
        if known is not None and value in known:
            return value
        with self._lock:
            known = self._known.setdefault(label, set())
            if len(known) < self._limit:
                known.add(value)
            return value if value in known else OTHER
