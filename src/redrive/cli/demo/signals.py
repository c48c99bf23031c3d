"""Ctrl-C once: finish in order. Ctrl-C twice: stop.

The first SIGINT (or SIGTERM, or the terminal's SIGHUP) only sets a flag that the demo looks at ten times a second. The
second raises ``KeyboardInterrupt`` wherever the program stands, so that it works even if the program hangs. While the
demo then kills its processes further ones are ignored: an impatient third Ctrl-C must not leave half of them behind.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Listens to signals while it is entered as a context, and gives them back afterwards.

    Attributes:
        asked: has somebody asked to finish?
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._hear) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Hear no more until the context ends."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
