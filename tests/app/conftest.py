"""An app on a database in memory, with time that jumps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive import App
from redrive.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """Time that passes when told to."""
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Iterator[App]:
    """An app that is closed in the end."""
    app = App("memory://", clock=clock)
    yield app
    app.close()
