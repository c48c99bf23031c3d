"""Apps for the tests of the runtime: in memory with time that jumps, and on a file with real time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App
from redrive.testing import VirtualClock
from tests.runtime.helpers import app_on


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with a clock that stands still until a test moves it."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[App]:
    """Return an app on a file, with very short leases."""
    app = app_on(tmp_path)
    yield app
    app.close()
