"""The demo while it runs: a live display in a terminal, plain lines elsewhere.

Both are told the same two things: a `note` when something happens once, and the present `Counts` as often as anybody
likes. The plain one prints a line of counts at most once a second, and none that says what the last one said, so that a
log stays readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from redrive.cli.screen import draw
from redrive.clock import Clock
from redrive.visible import visible

__all__ = ["Counts", "Display", "LiveDisplay", "PlainDisplay", "display_for"]

_STYLES = (
    ("queued", "cyan"),
    ("running", "yellow"),
    ("retrying", "magenta"),
    ("delivered", "green"),
    ("caught", "red"),
)
_PLAIN_EVERY = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Counts:
    """How many events are where.

    Attributes:
        queued: wait for their first attempt, or were given back by a worker.
        running: are being delivered.
        retrying: wait for their next attempt.
        delivered: have arrived.
        caught: could not be delivered; the catch task took them.
    """

    queued: int = 0
    running: int = 0
    retrying: int = 0
    delivered: int = 0
    caught: int = 0

    @property
    def finished(self) -> int:
        """Events that are done with."""
        return self.delivered + self.caught

    def parts(self) -> tuple[tuple[str, int, str], ...]:
        """Name, number and colour, in the order of an event's life."""
        return tuple((name, getattr(self, name), style) for name, style in _STYLES)


class Display(Protocol):
    """Somebody who shows progress."""

    def note(self, text: str) -> None:
        """Tell what has just happened."""
        ...

    def show(self, counts: Counts, total: int) -> None:
        """Show how many of ``total`` events are where."""
        ...

    def close(self) -> None:
        """Show the last counts and leave the screen to others."""
        ...


class PlainDisplay:
    """Prints lines.

    Args:
        console: where to.
        clock: for the time at the start of each line.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._start = clock.monotonic()
        self._next = 0.0
        self._pending = ""
        self._said = ""

    def note(self, text: str) -> None:
        """Tell what has just happened."""
        self._print(text)

    def show(self, counts: Counts, total: int) -> None:
        """Print the counts, if they are news and it is time."""
        self._pending = "  ".join(f"{name} {number}" for name, number, _ in counts.parts()) + f"  of {total}"
        if self._clock.monotonic() >= self._next:
            self._flush()

    def close(self) -> None:
        """Print the last counts if they were held back."""
        self._flush()

    def _flush(self) -> None:
        if self._pending != self._said:
            self._print(self._pending)
            self._said = self._pending
            self._next = self._clock.monotonic() + _PLAIN_EVERY

    def _print(self, text: str) -> None:
        elapsed = self._clock.monotonic() - self._start
        draw(self._console, f"{elapsed:5.1f} s  {text}")


class LiveDisplay:
    """Redraws two lines in place; notes scroll by above them.

    Args:
        console: a terminal.
        clock: for the elapsed time.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        # Redrawn by show() alone: a thread that redraws by itself would be one more thing alive when processes fork.
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def note(self, text: str) -> None:
        """Tell what has just happened."""
        elapsed = self._clock.monotonic() - self._start
        self._live.console.print(Text.assemble((f"{elapsed:5.1f} s  ", "dim"), visible(text)))

    def show(self, counts: Counts, total: int) -> None:
        """Redraw."""
        bar = Table.grid(padding=(0, 1))
        elapsed = self._clock.monotonic() - self._start
        bar.add_row(
            Text(f"{elapsed:5.1f} s", "dim"),
            ProgressBar(total=max(total, 1), completed=counts.finished, width=50),
            Text(f"{counts.finished}/{total}"),
        )
        numbers = Text("         ")
        for name, number, style in counts.parts():
            numbers.append(f"{name} ").append(f"{number:<5}", style=f"bold {style}")
        self._live.update(Group(bar, numbers), refresh=True)

    def close(self) -> None:
        """Leave the last picture where it is."""
        self._live.stop()


def display_for(console: Console, clock: Clock) -> Display:
    """The display that fits where the output goes."""
    can_redraw = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console, clock) if can_redraw else PlainDisplay(console, clock)
