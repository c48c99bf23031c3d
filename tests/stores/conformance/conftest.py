"""The store under test: every kind of store, in both colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.helpers import COLOURS, SHARED, STORES, Harness, harness


@pytest.fixture(params=list(itertools.product(STORES, COLOURS)), ids="-".join)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A new, empty store."""
    kind, colour = request.param
    with harness(kind, colour, tmp_path) as opened:
        yield opened


@pytest.fixture(params=list(itertools.product(SHARED, COLOURS)), ids="-".join)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A new, empty store that other processes can open too."""
    kind, colour = request.param
    with harness(kind, colour, tmp_path) as opened:
        yield opened
