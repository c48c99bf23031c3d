"""A stage for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Deployment, stage


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return an app in a folder and a database of its own; its processes end with the test."""
    with stage(tmp_path, request.param) as opened:
        yield opened
