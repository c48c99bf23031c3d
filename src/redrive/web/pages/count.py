"""Numbers of jobs that are counted up to a limit."""

from __future__ import annotations

import msgspec


class Count(msgspec.Struct, frozen=True, gc=False):
    """A number of jobs that is counted up to a limit.

    Attributes:
        value: the number.
        capped: True if there may be more.
    """

    value: int
    capped: bool = False

    @classmethod
    def exact_to(cls, number: int, most: int) -> Count:
        """Return a number that is exact up to a limit, and beyond it was not counted to its end."""
        return cls(min(number, most), number > most)

    def __str__(self) -> str:
        """Write it for a reader: ``10,000+``."""
        return f"{self.value:,}{'+' if self.capped else ''}"
