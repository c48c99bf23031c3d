"""The store under test: every kind of store, in both colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.helpers import COLOURS, SHARED, STORES, Harness, harness

EACH = [(kind, colour) for kind, colour in itertools.product(STORES, COLOURS) if (kind, colour) != ("turso", "async")]
"""Turso in one colour: the other one is SQLite's own code, and pyturso takes its time."""


@pytest.fixture(params=EACH, ids="-".join)
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
