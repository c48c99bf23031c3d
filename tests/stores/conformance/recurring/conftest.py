"""The stores under test for what recurs: each kind, but not each in both colours, which are the drivers' affair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.helpers import Harness, harness

EACH = [("file", "sync"), ("memory", "async"), ("postgres", "async"), ("postgres", "sync"), ("turso", "sync")]
"""PostgreSQL in both, since its two colours are two libraries."""


@pytest.fixture(params=EACH, ids="-".join)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A new, empty store."""
    kind, colour = request.param
    with harness(kind, colour, tmp_path) as opened:
        yield opened
