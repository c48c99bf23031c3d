"""An app on a database in memory, with time that jumps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive import App
from redrive.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """Return a virtual clock."""
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Iterator[App]:
    """Yield an app and close it in the end."""
    app = App("memory://", clock=clock)
    yield app
    app.close()
