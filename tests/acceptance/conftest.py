"""A stage for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Stage, stage


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> Iterator[Stage]:
    """An app in a folder of its own; whatever it starts ends with the test."""
    with stage(tmp_path) as opened:
        yield opened
