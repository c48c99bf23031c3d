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

    def __str__(self) -> str:
        """Write it for a reader: ``10,000+``."""
        return f"{self.value:,}{'+' if self.capped else ''}"
