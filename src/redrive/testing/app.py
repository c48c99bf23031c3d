"""An app of a program under test, for the time of a test on another database and another clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redrive.app.app import App
from redrive.testing.clock import VirtualClock

# What an App has of its database and its time; all other attributes describe the code.
_EXCHANGED = ("url", "clock", "_store", "_uid")


@contextmanager
def using_app(app: App, *, url: str = "memory://", clock: VirtualClock | None = None) -> Iterator[VirtualClock]:
    """Give an app an empty database in memory and a virtual clock inside a ``with`` block, and restore both after it.

    For an app of a module, such as the one that workers import: its tasks stay as they are, and its own database is
    neither opened nor closed nor written. Works in async tests, too. The change applies to the whole process, so tests
    that run in parallel threads cannot share an app. Calls that are retried in process keep their clock; see `using`.

    Args:
        app: the app; blocks for the same app may be nested.
        url: another database, such as one for tests on PostgreSQL. A database that is not in memory keeps its jobs.
        clock: the clock, if the time of its start matters.

    Returns:
        The clock, as the value of ``with ... as clock``.

    Raises:
        TypeError: ``app`` is not an App.
    """
    if not isinstance(app, App):
        raise TypeError(
            f"using_app() takes the App of the program, got {app!r}: import it, as in `from shop import app`"
        )
    present = clock or VirtualClock()
    before = {name: getattr(app, name) for name in _EXCHANGED}
    _set(app, {"url": url, "clock": present, "_store": None, "_uid": None})
    try:
        yield present
    finally:
        try:
            app.close()
        finally:
            _set(app, before)


def _set(app: App, values: dict[str, object]) -> None:
    for name, value in values.items():
        setattr(app, name, value)
